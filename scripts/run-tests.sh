#!/usr/bin/env bash
# How cargo starts each test program of `make test`: PROGRAM ARGUMENTS. Says at the end how long it took, and ends what it left running: that
# could keep the pipe open that reads all this.
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

# Processes of this run, wherever they went: a daemon has a session of its own, and its environment is still that of its test.
mark=LONGHAUL_TEST_RUN=$$
left() {
    grep -lsazxF "$mark" /proc/[0-9]*/environ | cut -d/ -f3
}

# Whoever interrupts this interrupts the program, too, as they are one process group: what it leaves then is ended as well.
trap : HUP INT TERM
SECONDS=0
env "$mark" "$@"
status=$?
echo "test: $program took $SECONDS s"
# What undoes a change when a command is killed takes a moment.
for ((tenths = 0; tenths < 40; tenths++)); do
    mapfile -t pids < <(left)
    ((${#pids[@]})) || break
    if ((tenths == 10)); then
        names=$(for pid in "${pids[@]}"; do cat "/proc/$pid/comm"; done 2>/dev/null | paste -sd ' ')
        echo "test: $program left ${#pids[@]} processes: $names"
        kill "${pids[@]}" 2>/dev/null
    elif ((tenths >= 30)); then
        kill -KILL "${pids[@]}" 2>/dev/null
    fi
    sleep 0.1
done
exit $status
