# What people and continuous integration run. Plain `cargo build` and `cargo test -p <crate>` work too.
.PHONY: build deps demo test test-alone check docs bench fuzz

build:
	cargo build --release

# Installs the packages that are missing (Debian, Ubuntu).
deps:
	@scripts/deps.sh

demo: deps build
	@scripts/demo.sh

# Tests that need root or a feature of the kernel say `skipped: why` where it is missing.
test: deps
	cargo test --workspace --no-fail-fast
	@$(MAKE) --no-print-directory test-alone

# These change what is one for the machine (a sysctl) for some seconds, and put it back: nothing may run beside them.
test-alone:
	cargo test -p longhaul-bpf --test linux -- --ignored --test-threads=1 a_full_backlog
	cargo test -p longhaul-measure --test udp -- --ignored --test-threads=1 a_full_backlog

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@DOCS_WITHOUT_PYTHON=0 scripts/docs.sh

# The site in target/docs; a broken link or anchor fails it.
docs:
	@scripts/docs.sh

bench: deps
	cargo bench -p longhaul-lab --bench path
	cargo bench -p longhaul-measure --bench udp
	cargo bench -p longhaul-filter --bench filter
	cargo bench -p longhaul-flows --bench analyze
	cargo bench -p longhaul --bench capture

# A minute of mutated input for each parser; CONTRIBUTING.md has the way with cargo-fuzz.
fuzz:
	LONGHAUL_FUZZ_SECONDS=60 cargo test -p longhaul --test pure -- --nocapture fuzz_corpus::
