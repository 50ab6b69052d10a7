#!/usr/bin/env bash
# Checks formatting, clippy, shell scripts and licences. Changes no file. Run by `make lint` and `make test`.
#
#   scripts/lint.sh                     all of it
#   scripts/lint.sh --without-clippy    for `make test`, which compiles with clippy
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$repo"

say "rustfmt"
as_builder cargo fmt --all --check
if [ "${1:-}" != --without-clippy ]; then
    say "clippy"
    as_builder cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
fi
if has shellcheck; then
    say "shellcheck"
    # Notes are disabled: older versions report the body of a trap as unreachable.
    shellcheck --external-sources --severity=warning scripts/*.sh deploy/*.sh deploy/*/*.sh deploy/deb/p* .ci/run
else
    note "shellcheck is not installed: scripts are not checked"
fi
if deny=$("$repo/scripts/get-cargo-deny.sh"); then
    say "cargo deny"
    # cargo-deny reads the manifests of all dependencies, including those for other systems, which a build does not download.
    as_builder cargo fetch --locked --quiet
    # Advisories are not checked: their database changes independently of this repository. Run `cargo deny check advisories`.
    as_builder "$deny" --offline --log-level warn check --hide-inclusion-graph licenses bans sources
else
    note "cargo-deny could not be installed: licences and sources of dependencies are not checked"
fi
