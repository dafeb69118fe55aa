#!/bin/sh
# Runs fuzz targets guided by coverage: SECONDS each, LONGHAUL_FUZZERS (2) at a time. Usage: scripts/fuzz-guided.sh SECONDS [TARGET…]
#
# libFuzzer with nightly's coverage, without cargo-fuzz, in 512 MB of address space. A target begins with the inputs that `cargo test` tries. Inputs that
# it keeps and findings are in target/fuzz/TARGET. The exit status is not 0 where a target had a finding.
set -eu
cd "$(dirname "$0")/.."
seconds=$1
shift
[ $# -gt 0 ] || set -- $(sed -n '/^\[\[bin\]\]/{n;s/name = "\(.*\)"/\1/p}' fuzz/Cargo.toml)
export CARGO_TARGET_DIR="$PWD/target/fuzz-build"
sancov="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
sancov="$sancov -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$sancov --cfg fuzzing -Cdebug-assertions -Ccodegen-units=1" \
    cargo +nightly build --release --manifest-path fuzz/Cargo.toml --target "$(rustc -vV | sed -n 's/host: //p')"
for target in "$@"; do
    mkdir -p "target/fuzz/$target"
    echo "$target"
done | xargs -P "${LONGHAUL_FUZZERS:-2}" -I '{}' sh -c '
    seeds=$(sed -n "s/^    {}\(\( + \"[^\"]*\"\)*\): .*/\1/p" crates/longhaul/tests/pure/fuzz_corpus.rs | tr -d "+\"")
    [ ! -d fuzz/corpus/{} ] || seeds="fuzz/corpus/{} $seeds"
    # No kept input is cut.
    longest=$({ echo 65536; find target/fuzz/{} $seeds -type f -printf "%s\n"; } | sort -n | tail -1)
    # Each thread of the C library reserves 128 MB otherwise.
    export MALLOC_ARENA_MAX=1
    ulimit -v 524288
    "$1"/*/release/{} -max_total_time="$2" -timeout=5 -rss_limit_mb=512 -malloc_limit_mb=512 -close_fd_mask=3 -max_len="$longest" \
        -artifact_prefix=target/fuzz/{}/finding- -print_final_stats=1 target/fuzz/{} $seeds >target/fuzz/{}.log 2>&1
    status=$?
    echo "{}: exit $status, $(grep -a "cov:" target/fuzz/{}.log | tail -1)"
    exit $status
' sh "$CARGO_TARGET_DIR" "$seconds"
