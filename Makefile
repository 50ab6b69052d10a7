# Burrow's commands for people and CI. Each is one script in scripts/, which says what it does and how.

# Where `make up` installs. The scripts read it from the environment.
export PREFIX ?= /usr/local

.DEFAULT_GOAL := help
.PHONY: help up down image package check test test-all attacks fuzz bench lint fmt uninstall

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## Set this machine up, build, install, start, build the default image
	@scripts/up.sh

down: ## Stop the daemon; sandboxes run on
	@$(PREFIX)/bin/burrow down

image: ## Build the default image again
	@$(PREFIX)/bin/burrow image build --rebuild

package: ## Build packages in target/packages: tarball, .deb, client, OCI image
	@scripts/package.sh

check: ## While you work: format, clippy, unit tests of what changed
	@scripts/check.sh

test: ## Everything CI runs
	@scripts/test.sh

test-all: ## The same and the long ones: cycles, version matrices, fuzzing
	@scripts/test.sh --all

attacks: ## Only the suites of hostile code
	@scripts/test.sh --attacks

fuzz: ## Feed what reads strangers' bytes with nonsense, for a while
	@scripts/fuzz.sh

bench: ## Measure the promised figures on this machine
	@scripts/bench.sh

lint: ## rustfmt, clippy, shellcheck, cargo deny
	@scripts/lint.sh

fmt: ## Format the code
	@cargo fmt --all

uninstall: ## Remove everything; asks before it deletes data (YES=1 deletes without asking)
	@scripts/uninstall.sh
