#!/usr/bin/env bash
# Formatting, clippy, shell scripts, licences. Changes nothing. Run by `make lint` and `make test`.
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
    # Notes are left out: older versions call the body of a trap unreachable.
    shellcheck --external-sources --severity=warning scripts/*.sh .ci/run
else
    note "shellcheck is not installed: scripts are not checked"
fi
if deny=$("$repo/scripts/get-cargo-deny.sh"); then
    say "cargo deny"
    # It reads the manifests of all dependencies, those for other systems included, which no build here has fetched.
    as_builder cargo fetch --locked --quiet
    # Advisories come from a database on the network and change without us: `cargo deny check advisories` on its own.
    as_builder "$deny" --offline --log-level warn check --hide-inclusion-graph licenses bans sources
else
    note "cargo-deny could not be installed: licences and sources of dependencies are not checked"
fi
