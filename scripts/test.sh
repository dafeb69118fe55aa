#!/usr/bin/env bash
# All tests, and at the end the list of those that could not run on this machine, and why.
set -uo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export LONGHAUL_SKIPPED=$target/skipped
# Locked while guests run: tests that judge times wait for their end.
export LONGHAUL_GUESTS=$target/guests
rm -f "$LONGHAUL_SKIPPED"
# Cargo's name for the key `target.HOST.runner`.
runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUNNER
export "$runner=scripts/run-tests.sh"
cargo test --workspace --no-run || exit
# Tests that boot guests take minutes of CPU time, and do not mind how busy the machine is: they run beside those that mostly wait, and what
# they say comes at the end. In a process group of their own, so that they end with this.
set -m
RUST_TEST_THREADS=$(nproc) flock --close "$LONGHAUL_GUESTS" \
    cargo test --workspace --no-fail-fast --test endpoint --test oracle -- guests:: </dev/null >"$LONGHAUL_GUESTS.log" 2>&1 &
guests=$!
set +m
trap 'kill -- -$guests 2>/dev/null' EXIT
cargo test --workspace --no-fail-fast -- --skip guests::
status=$?
wait $guests || status=$?
cat "$LONGHAUL_GUESTS.log"
if [[ $status == 0 ]]; then
    make --no-print-directory test-alone test-package
    status=$?
fi
if [[ -s $LONGHAUL_SKIPPED ]]; then
    echo "test: these could not run here, or not in full:"
    sort -u "$LONGHAUL_SKIPPED" | sed 's/^/test:     /'
fi
exit $status
