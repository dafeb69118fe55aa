#!/usr/bin/env bash
# All tests, and at the end the list of those that could not run on this machine, and why. Many time real traffic, on a machine that may be
# shared: the few that fail run once more, one after the other, and the output has both runs. What fails twice has failed.
set -uo pipefail
cd "$(dirname "$0")/.."

# run_again LOG: runs the tests that failed by LOG. Fails where that are many, or where one fails again.
run_again() {
    local failed once_more passed
    # A line for each target: how cargo names it, and its failed tests.
    failed=$(awk '
        /^failures:$/ { tests = ""; listed = 1 }
        /^test result:/ { listed = 0 }
        listed && /^    / { tests = tests " " $1 }
        # Names of documentation tests have spaces: all of a package run.
        /^error: doctest failed, to rerun pass/ { print; tests = "" }
        /^error: test failed, to rerun pass/ { print $0 tests; tests = "" }
    ' "$1" | sed 's/.*`\(-p .*\)`/\1 --/')
    if [[ -z $failed ]] || (($(wc -w <<<"$failed") > 60)); then
        return 1
    fi
    while read -r once_more; do
        echo "test: failed, and once more: $once_more"
        # By name in the whole workspace: for one package alone dependencies would be compiled again, with other features.
        [[ $once_more != *--test* ]] || once_more="--workspace --test ${once_more##*--test }"
        read -ra arguments <<<"$once_more"
        if [[ $once_more == *--doc* || $once_more == *" --" ]]; then
            cargo test "${arguments[@]}" </dev/null || return
            continue
        fi
        cargo test "${arguments[@]}" --exact --include-ignored --test-threads=1 </dev/null | tee "$log.again" || return
        # A name that runs nothing proves nothing.
        passed=$(awk '/^test result: ok/ { passed += $4 } END { print passed + 0 }' "$log.again")
        ((passed >= $(wc -w <<<"${once_more##* -- }"))) || return
    done <<<"$failed"
}

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
log=$(mktemp)
trap 'kill -- -$guests 2>/dev/null; rm -f "$log" "$log.again"' EXIT
cargo test --workspace --no-fail-fast -- --skip guests:: 2>&1 | tee "$log"
status=$?
wait $guests || status=$?
tee -a "$log" <"$LONGHAUL_GUESTS.log"
if [[ $status != 0 ]]; then
    run_again "$log"
    status=$?
fi
if [[ $status == 0 ]]; then
    make --no-print-directory test-alone test-package
    status=$?
fi
if [[ -s $LONGHAUL_SKIPPED ]]; then
    echo "test: these could not run here, or not in full:"
    sort -u "$LONGHAUL_SKIPPED" | sed 's/^/test:     /'
fi
exit $status
