# Weir. The two commands that matter: `make run` and `make test`.

WEIR  := target/quick/weir
# As it is shipped and measured: with link-time optimisation.
DIST  := target/dist/weir
OUT   := out

.PHONY: help run guest guest-windows tour test soak bench bench-core bench-lab bench-mail bench-scan bench-web bench-vm lint style warnings setup docs man deb release try-release try-deb clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(WEIR) ## build Weir and start every gate on loopback, with its data in weir-data/
	@command -v qemu-system-x86_64 >/dev/null && [ ! -e target/guest/root.squashfs ] && guest/build || true
	@exec $(WEIR) up --demo

guest: ## build the guest in which samples run, from Debian packages, into target/guest; NODE=1: with Node.js, into target/guest-node, for lab.guest
	guest/build $(if $(NODE),--node)

guest-windows: ## build the guest in which Windows programs run, by Wine, into target/guest-windows; 350 MB to fetch the first time
	@tools/setup guest-windows
	guest/build-windows

tour: $(WEIR) ## the papers' experiments, recomputed, with plots in out/
	@mkdir -p $(OUT)
	@tools/tour $(WEIR) $(OUT)

# What only one build will read would fill the disk: incremental state is half of the target folder.
test: export CARGO_INCREMENTAL = 0
test: setup style guest ## install what the tests need and run all of them
	tools/test

soak: target/release/weir ## the long counts: thousands of seeds, many more random cases
	tools/soak target/release/weir

bench: bench-core bench-lab bench-mail bench-scan bench-web bench-vm ## all benchmarks

bench-core: ## what one decision of each discipline costs
	cargo run --profile dist --locked --quiet -p weir-bench --bin bench-core

bench-lab: $(DIST) ## five machines schedule samples, and lose their leader; the same job through Karton; a few minutes
	@tools/setup bench-lab
	cargo run --release --locked --quiet -p weir-bench --bin bench-lab -- $(DIST)

bench-mail: $(DIST) ## mail through Weir beside mail through Postfix, ten minutes
	cargo run --release --locked --quiet -p weir-bench --bin bench-mail -- $(DIST)

bench-scan: $(DIST) ## scanned mail through Weir beside Postfix with Amavis, the same clamd for both, ten minutes
	@tools/setup bench
	cargo run --release --locked --quiet -p weir-bench --bin bench-scan -- $(DIST)

bench-web: $(DIST) ## the web gate beside nginx and HAProxy: speed, an attack, several front-ends; over half an hour
	@mkdir -p $(OUT)
	cargo run --release --locked --quiet -p weir-bench --bin bench-web -- $(DIST) --plot $(OUT)/web-thesis.svg

bench-vm: guest ## samples in VMs: time to revert, time from sample to report, samples a minute; three minutes
	cargo run --release --locked --quiet -p weir-bench --bin bench-vm

lint: style warnings ## everything that can be said of the code without running it; warnings are refused

style: ## formatting, licences and known vulnerabilities of what we build on, import circles: seconds
	tools/deny
	tools/module-graph
	cargo fmt --all --check

# `make test` runs this beside the tests, which mostly wait (tools/test).
warnings: ## clippy and rustdoc: minutes
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude weir --no-deps --locked --quiet

setup: ## install what building and testing need (Debian; says what is missing elsewhere)
	@tools/setup

docs: $(WEIR) ## write docs/config.md anew from the code
	$(WEIR) config show --markdown > docs/config.md

man: $(WEIR) ## man pages and completions into out/
	$(WEIR) man --dir $(OUT)/man
	@mkdir -p $(OUT)/completions
	@for shell in bash zsh fish; do $(WEIR) completions $$shell > $(OUT)/completions/weir.$$shell; done

deb: $(DIST) ## the Debian package, into out/
	tools/deb $(DIST) $(OUT)

release: guest ## what one would publish, into out/release: static programs for amd64 and arm64, packages, apt repository, image, SBOM, sums, signature; many minutes
	@tools/setup release
	tools/release $(OUT)/release

try-release: ## from a clean Debian root to an HTTPS page through the gate, with what `make release` made (root, a few minutes)
	@tools/setup soak
	tools/try-release $(OUT)/release

try-deb: deb ## install the package on a clean Debian root, start its service, remove it again (root, a few minutes)
	@tools/setup soak
	tools/try-deb $(OUT)/weir_*.deb

clean: ## remove what was built
	cargo clean
	rm -rf $(OUT)

.PHONY: $(WEIR) $(DIST) target/release/weir
$(WEIR):
	@cargo build --profile quick --locked --bin weir
target/release/weir:
	@cargo build --release --locked --bin weir
$(DIST):
	@cargo build --profile dist --locked --bin weir
