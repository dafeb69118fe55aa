#!/usr/bin/env bash
# All tests, and at the end the list of those that could not run on this machine, and why.
set -uo pipefail
cd "$(dirname "$0")/.."

LONGHAUL_SKIPPED=$(realpath -m "${CARGO_TARGET_DIR:-target}/skipped")
export LONGHAUL_SKIPPED
rm -f "$LONGHAUL_SKIPPED"
# Cargo's name for the key `target.HOST.runner`.
runner=CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)_RUNNER
export "$runner=scripts/run-tests.sh"
cargo test --workspace --no-fail-fast && make --no-print-directory test-alone test-package
status=$?
if [[ -s $LONGHAUL_SKIPPED ]]; then
    echo "test: these could not run here, or not in full:"
    sort -u "$LONGHAUL_SKIPPED" | sed 's/^/test:     /'
fi
exit $status
