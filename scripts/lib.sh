# shellcheck shell=bash
# shellcheck disable=SC2034 # The scripts that source this use what it sets.
# Shared by the other scripts: messages, root, who builds, which cargo. Sourced, never run.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PREFIX=${PREFIX:-/usr/local}
lib_dir=$PREFIX/lib/burrow
# The oldest Rust that builds this, from the place where cargo reads it.
rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repo/Cargo.toml")
target_triple=$(uname -m)-unknown-linux-gnu

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
fail() {
    printf 'error: %s\n' "$1" >&2
    shift
    local line
    for line in "$@"; do printf '       %s\n' "$line" >&2; done
    exit 1
}

# A log file or a CI job shows escape sequences as noise.
if [ ! -t 2 ] || [ -n "${NO_COLOR:-}" ]; then
    say() { printf '==> %s\n' "$*" >&2; }
fi

# discard FOLDER...: removes what daemons kept there, subvolumes included.
discard() {
    local folder path
    for folder in "$@"; do
        [ -e "$folder" ] || continue
        # Subvolumes, by the number that the root of each has.
        find "$folder" -mindepth 1 -type d -inum 256 -prune 2>/dev/null | while read -r path; do
            btrfs -q property set -f "$path" ro false 2>/dev/null || true
            btrfs -q subvolume delete "$path" >&2 || true
        done
        rm -rf "$folder"
    done
}

has() { command -v "$1" >/dev/null 2>&1; }

# Starts the calling script again as root, with the settings it understands.
need_root() {
    [ "$(id -u)" = 0 ] && return
    has sudo || fail "this needs root, and there is no sudo" "run it again as root"
    say "root is needed: asking sudo"
    exec sudo --preserve-env=PREFIX,CI,NO_COLOR,YES,BURROW_DEBIAN_MIRROR,http_proxy,https_proxy,no_proxy \
        "$0" "$@"
}

# Who builds: whoever called sudo, if the checkout is theirs, so that target/ does not end up as root's.
build_user() {
    local owner
    owner=$(stat -c %U "$repo")
    if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$owner" = "$SUDO_USER" ]; then
        printf '%s\n' "$owner"
    else
        id -un
    fi
}

home_of() { getent passwd "$1" | cut -d: -f6; }

# Runs a command as the building user, with their cargo first in PATH.
as_builder() {
    local user home
    user=$(build_user)
    home=$(home_of "$user")
    if [ "$user" = "$(id -un)" ]; then
        PATH=$home/.cargo/bin:$PATH "$@"
    else
        runuser --user="$user" -- env HOME="$home" USER="$user" PATH="$home/.cargo/bin:$PATH" "$@"
    fi
}

# version_at_least HAVE WANT
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# Prints the version of the building user's cargo; fails when there is none or it is too old.
cargo_version() {
    local version
    version=$(cd "$repo" && as_builder cargo --version 2>/dev/null | awk '{print $2}') || return 1
    [ -n "$version" ] && version_at_least "$version" "$rust_min" && printf '%s\n' "$version"
}

# Prints the version of Node.js; fails when there is none with npm, or it is older than the TypeScript SDK runs on.
node_version() {
    local version
    has node && has npm || return 1
    version=$(node --version 2>/dev/null) && version=${version#v}
    version_at_least "$version" 20 && printf '%s\n' "$version"
}

# Builds the guest agent without shared libraries: it runs in images that may have none.
# The flag is not for the rest, so it is not in .cargo/config.toml.
build_guest() {
    (cd "$repo" && as_builder env RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --locked --package burrow-guest --profile guest --target "$target_triple")
}

guest_binary=$repo/target/$target_triple/guest/burrow-guest
