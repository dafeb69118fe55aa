#!/usr/bin/env bash
# How cargo starts each test program of `make test`: PROGRAM ARGUMENTS. Says at the end how long it took.
set -uo pipefail

program=$(basename "$1")
# Cargo's hash says nothing.
program=${program%-*}

# at_once N: so many tests at a time, or as many as there are CPUs. RUST_TEST_THREADS asks for another number.
at_once() {
    local cpus
    cpus=$(nproc)
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($1 > cpus ? $1 : cpus))}
}

# Tests that mostly wait: for packets on long paths, for timers, for other programs.
case $program in
    # Their tests take turns where they must (crates/longhaul/tests/common/turns.rs).
    timed | host) at_once 8 ;;
    log) at_once 6 ;;
    endpoint | labs | tcp | udp) at_once 4 ;;
esac

if [[ $program == timed && -n ${LONGHAUL_GUESTS-} ]]; then
    flock --nonblock "$LONGHAUL_GUESTS" true || {
        echo "test: $program waits for the guests"
        flock "$LONGHAUL_GUESTS" true
    }
fi
SECONDS=0
"$@"
status=$?
echo "test: $program took $SECONDS s"
exit $status
