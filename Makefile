# `make` lists the targets. Only Rust must be installed: `deps` installs the other build tools.

CARGO   ?= cargo
PROFILE ?= dev
PREFIX  ?= /usr/local
SYSCONF ?= /etc
UNITS   ?= $(SYSCONF)/systemd/system
TARGET  := $(or $(CARGO_TARGET_DIR),target)
BINARY  ?= $(TARGET)/release/model-gateway

# Python interpreter with the providers' SDKs: that of `make sdks`, or else the system's.
SDKS           := $(TARGET)/sdks
GATEWAY_PYTHON ?= $(or $(wildcard $(abspath $(SDKS)/bin/python)),python3)
export GATEWAY_PYTHON

# Coding clients that some tests drive: installed by `make clients`, outside of the checkout.
GATEWAY_CLIENTS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/model-gateway/clients
export GATEWAY_CLIENTS

.DEFAULT_GOAL := help
.PHONY: help deps demo test linear check golden fuzz loom miri miri-setup bench sdks clients dashboards rules sbom release package install

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## Install the build tools besides Rust (a C compiler, cmake), if they are missing
	@scripts/deps

# The first build keeps nothing for a faster second one: that would be a tenth of its time.
demo: deps ## Run the gateway with simulated providers; options in ARGS="--port 8090"
	@$(if $(wildcard $(TARGET)/debug/incremental),,CARGO_INCREMENTAL=0) $(CARGO) run --locked --profile $(PROFILE) --bin model-gateway -- demo $(ARGS)

test: deps ## Run all tests; those whose tools are missing print SKIPPED (GATEWAY_REQUIRE_ALL=1: fail)
	$(CARGO) test --locked
	@$(MAKE) --no-print-directory linear

linear: deps ## Run the tests that count the instructions of translation (needs valgrind)
	$(CARGO) test --locked -p model-gateway-benches --config tests/linear/optimised.toml --test linear

check: deps ## Check the formatting and run the lints
	$(CARGO) fmt --all --check
	$(CARGO) fmt --check --manifest-path fuzz/Cargo.toml
	$(CARGO) clippy --locked --all-targets -- -D warnings

golden: deps ## Rewrite the golden files; review the diff before you commit it
	UPDATE_GOLDEN=1 $(CARGO) test --locked

fuzz: deps ## Replay the fuzz corpora and mutations of them, for a bounded time
	@scripts/fuzz

# Few defects need more preemptions than this; without a bound, a check could take hours.
loom: ## Model-check the lock-free code in every order in which its threads can interleave
	RUSTFLAGS="--cfg model_check" LOOM_MAX_PREEMPTIONS=3 $(CARGO) test --locked -p model-gateway-sync -p model-gateway-routing --lib \
	  --target-dir $(TARGET)/loom loom_

# The unsafe code under Miri is the conversion of checked bytes to text (src/json/document.rs). The vectors of src/json/block
# are replaced by plain Rust there: they are unsafe only in that the processor must have them, and tests compare each with
# the plain code. The other places (memory.rs and program_pages.rs of src/proxy/server) are calls of the C library, which Miri
# cannot make.
# Generated tests would take minutes, so the plain ones are named.
miri: miri-setup ## Run the tests of the unsafe code under Miri (rustup component add --toolchain nightly miri rust-src)
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked -p model-gateway-json --lib \
	  --target-dir $(TARGET)/miri -- block::tests::block_of document::tests::document_ranges_are \
	  document::tests::document_that frame_template wanted_members \
	  tests::scanner_finds tests::cursor_walks tests::string_escapes

# The folder of its temporary files is ours: in a shared one, any Cargo.toml above them would be taken for a workspace's.
miri-setup: ## Build the standard library that Miri runs the tests with
	mkdir -p $(TARGET)/miri/tmp
	TMPDIR=$(abspath $(TARGET))/miri/tmp RUST_BACKTRACE=0 $(CARGO) +nightly miri setup

bench: deps ## Run the micro-benchmarks
	$(CARGO) bench --locked -p model-gateway-benches --bench frames --bench translate -- $(ARGS)

sdks: ## Install the providers' Python SDKs for the tests in target/
	python3 -m venv $(SDKS)
	$(SDKS)/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt

dashboards: deps ## Make the dashboard for Grafana from its table of panels
	UPDATE_GOLDEN=1 $(CARGO) test --locked --test packaging dashboard

rules: ## Run the unit tests of the alert rules (needs promtool)
	cd packaging/prometheus && promtool check rules rules.yml && promtool test rules rules.test.yml

sbom: ## Write the bill of materials of the program (CycloneDX) to target/sbom.cdx.json
	@mkdir -p $(TARGET)
	packaging/sbom > $(TARGET)/sbom.cdx.json

clients: ## Install the coding clients for the tests in GATEWAY_CLIENTS (2.5 GB, from npm and PyPI)
	@scripts/clients

release: deps ## Build the release binary
	$(CARGO) build --locked --release --bin model-gateway

$(BINARY):
	$(MAKE) release

# BINARY=target/debug/model-gateway packages another build.
package: $(BINARY) ## Build the .deb and the .rpm of the release build into target/packages
	@BINARY=$(BINARY) packaging/package

install: $(BINARY) ## Install the release build as a systemd service (after `make release`, as root)
	install -D -m 0755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/model-gateway
	install -D -m 0644 systemd/model-gateway.service $(DESTDIR)$(UNITS)/model-gateway.service
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5
	@pages=$$(mktemp -d) && $(BINARY) man $$pages && \
	  install -m 0644 $$pages/*.1 $(DESTDIR)$(PREFIX)/share/man/man1 && \
	  install -m 0644 $$pages/*.5 $(DESTDIR)$(PREFIX)/share/man/man5 && rm -r $$pages
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/model-gateway/schema
	$(BINARY) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/model-gateway
	install -m 0644 conf/schema/*.json $(DESTDIR)$(PREFIX)/share/model-gateway/schema
	install -D -m 0644 systemd/logrotate $(DESTDIR)$(SYSCONF)/logrotate.d/model-gateway
	install -D -m 0644 docs/operations.md $(DESTDIR)$(PREFIX)/share/doc/model-gateway/operations.md
	install -d -m 0700 $(DESTDIR)$(SYSCONF)/model-gateway/secrets
	@# The service's user must be able to read these files; keys.toml has hashes only. Existing files are never replaced.
	@for file in gateway.toml routes.toml keys.toml; do \
	  [ -e $(DESTDIR)$(SYSCONF)/model-gateway/$$file ] || { \
	    install -m 0644 conf/production/$$file $(DESTDIR)$(SYSCONF)/model-gateway/$$file && \
	    sed -i '1s|\.\./schema/|file://$(PREFIX)/share/model-gateway/schema/|' $(DESTDIR)$(SYSCONF)/model-gateway/$$file; }; \
	done
	@chmod 0755 $(DESTDIR)$(SYSCONF)/model-gateway
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
	@echo "Installed. Next: docs/operations.md, \"Install\"."
