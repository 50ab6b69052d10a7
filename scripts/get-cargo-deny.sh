#!/usr/bin/env bash
# Prints the path of cargo-deny. Builds it into target/tools first if it is missing.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

version=0.20.2
tools=$repo/target/tools
if [ -x "$tools/bin/cargo-deny" ] && "$tools/bin/cargo-deny" --version | grep -qF " $version"; then
    printf '%s\n' "$tools/bin/cargo-deny"
    exit
fi
if found=$(as_builder sh -c 'command -v cargo-deny'); then
    printf '%s\n' "$found"
    exit
fi
say "building cargo-deny $version (once)"
# Not optimized: the build takes half the time, and a run takes only a second.
as_builder env CARGO_TARGET_DIR="$tools/build" cargo install --quiet --debug --locked --root "$tools" \
    --version "$version" --no-default-features cargo-deny >&2
rm -rf "$tools/build"
printf '%s\n' "$tools/bin/cargo-deny"
