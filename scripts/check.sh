#!/usr/bin/env bash
# The developer's loop: format, clippy and unit tests of the crates that changed since the last commit, or since a given one.
# Some unit tests use kernel features and need root.
#
#   scripts/check.sh            changes that are not committed
#   scripts/check.sh REVISION   changes since a revision
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$repo"

since=${1:-HEAD}
git rev-parse --quiet --verify "$since^{commit}" > /dev/null || fail "unknown revision: $since"

# Changed files, and new ones that git does not ignore.
changed=$({ git diff --name-only "$since" && git ls-files --others --exclude-standard; } | sort -u)
packages=()
# The package `burrow-tests` has no unit tests, and cargo refuses `--lib` if no package has a library.
units=(--bins)
while read -r folder; do
    [ -e "$folder/Cargo.toml" ] || continue
    name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml" | head -n 1)
    packages+=(--package "$name")
    [ ! -e "$folder/src/lib.rs" ] || units=(--lib --bins)
done < <(sed -nE 's#^((crates/[^/]+|benches|tests))/.*#\1#p' <<< "$changed" | sort -u)
if grep -qE '^Cargo\.(toml|lock)$' <<< "$changed"; then
    packages=(--workspace)
    units=(--lib --bins)
fi

say "format"
cargo fmt --all --check
if [ ${#packages[@]} = 0 ]; then
    note "no crate changed since $since"
    exit
fi
say "clippy: ${packages[*]}"
cargo clippy --locked --all-targets "${packages[@]}" -- -Dwarnings
say "unit tests"
cargo test --locked "${units[@]}" "${packages[@]}"
