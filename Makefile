# What people and continuous integration run. Plain `cargo build` and `cargo test -p <crate>` work too.
.PHONY: build mesh install install-mesh uninstall package deps web kernels demo mesh-demo pictures test test-alone test-package check schemas docs bench fuzz

# What `make install` installs, and where. Units name PREFIX; DESTDIR goes before it, for packagers.
BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/longhaul
# Beside it, if it was built.
MESH ?= $(BINARY)-mesh
PREFIX ?= /usr/local
ZSH ?= $(PREFIX)/share/zsh/site-functions

bin = $(DESTDIR)$(PREFIX)/bin
man = $(DESTDIR)$(PREFIX)/share/man/man1
bash = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zsh = $(DESTDIR)$(ZSH)
fish = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
units = $(DESTDIR)$(PREFIX)/lib/systemd/system

# Where Node is missing pages have still figures.
build:
	@scripts/web.sh
	cargo build --release --workspace --bin longhaul

# The program behind `longhaul mesh`, which `make install` and `make package` take if it is there: its database costs minutes of build.
mesh: build
	cargo build --release --workspace --bin longhaul-mesh

# The binary without its debug info, man pages, completions, and units for `serve` and `log`; the same of `mesh`, if it was built. Does not build: root may have no cargo.
install:
	@test -x $(BINARY) || { echo "install: there is no $(BINARY): run make build first" >&2; exit 1; }
	install -d $(bin) $(man) $(bash) $(zsh) $(fish) $(units)
	install -s -m 755 $(BINARY) $(bin)/longhaul
	$(bin)/longhaul man $(man)
	$(bin)/longhaul completion bash > $(bash)/longhaul
	$(bin)/longhaul completion zsh > $(zsh)/_longhaul
	$(bin)/longhaul completion fish > $(fish)/longhaul.fish
	for unit in serve log; do sed 's,@BINDIR@,$(PREFIX)/bin,' packaging/longhaul-$$unit.service > $(units)/longhaul-$$unit.service; done
	@! test -x $(MESH) || $(MAKE) --no-print-directory install-mesh
	cd $(man) && chmod 644 longhaul.1 longhaul-*.1 $(abspath $(bash)/longhaul $(zsh)/_longhaul $(fish)/longhaul.fish) $(abspath $(units))/longhaul-*.service

install-mesh:
	install -s -m 755 $(MESH) $(bin)/longhaul-mesh
	for unit in mesh mesh-coordinator; do sed 's,@BINDIR@,$(PREFIX)/bin,' packaging/longhaul-$$unit.service > $(units)/longhaul-$$unit.service; done

# Keys, options, captures and the results of a mesh stay.
uninstall:
	rm -f $(bin)/longhaul $(man)/longhaul.1 $(man)/longhaul-*.1 $(bash)/longhaul $(zsh)/_longhaul $(fish)/longhaul.fish
	rm -f $(bin)/longhaul-mesh $(units)/longhaul-serve.service $(units)/longhaul-log.service $(units)/longhaul-mesh.service $(units)/longhaul-mesh-coordinator.service

# A .deb in target/package, and the debug info of its binary beside it.
package: build
	@scripts/package.sh $(BINARY)

# Installs the packages that are missing (Debian, Ubuntu).
deps:
	@scripts/deps.sh

# The scripts of figures, which the binary embeds.
web: deps
	@scripts/web.sh

# Fetches the kernels that tests boot, once.
kernels: deps
	@scripts/kernels.sh

# Without the features that tests ask for (schemas): whoever runs only the demo waits for nothing else.
demo: web
	cargo build --workspace --bin longhaul
	@scripts/demo.sh

# Eight sites of a mesh in a lab: one receives badly, one path is bad, and the mesh names both. Needs root, two to three minutes.
mesh-demo: web
	cargo build --workspace --bin longhaul --bin longhaul-mesh --example demo
	@$(or $(CARGO_TARGET_DIR),target)/debug/examples/demo

# README's pictures, from the pages of the last demo.
pictures:
	@scripts/pictures.sh

# Tests that need root or a feature of the kernel say `skipped: why` where it is missing, and are listed at the end.
test: kernels web
	@scripts/test.sh

# These change what is one for the machine (a sysctl) for some seconds, and put it back: nothing may run beside them. With `-p` in place of
# `--workspace` the dependencies would have other features and be compiled again.
test-alone:
	cargo test --workspace --test linux --test udp -- --ignored --test-threads=1 a_full_backlog

# A package of the binary that was built for the tests is installed, used and removed.
test-package:
	@scripts/test-package.sh $(or $(CARGO_TARGET_DIR),target)/debug/longhaul

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@DOCS_OPTIONAL=1 scripts/docs.sh
	cargo test -q --workspace --lib schemas::

# `schemas/` from the types that `--json` prints, and `packaging/openapi/` from those that the page of a mesh answers. What is built for it here and in `check` is what `make test` needs, too.
schemas:
	LONGHAUL_WRITE_SCHEMAS=1 cargo test -q --workspace --lib schemas::

# The site in target/docs; a broken link or anchor fails it.
docs:
	@scripts/docs.sh

bench: deps
	cargo bench -p longhaul-lab --bench path
	cargo bench -p longhaul-peer --bench udp
	cargo bench -p longhaul-filter --bench filter
	cargo bench -p longhaul-flows --bench analyze
	cargo bench -p longhaul --bench capture

# A minute of mutated input for each target; CONTRIBUTING.md has the way that coverage guides.
fuzz:
	LONGHAUL_FUZZ_SECONDS=60 cargo test -p longhaul --test pure -- --nocapture fuzz_corpus::
