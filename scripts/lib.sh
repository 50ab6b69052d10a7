# shellcheck shell=bash
# shellcheck disable=SC2034 # The scripts that source this file use its variables.
# Shared by the other scripts: messages, root, the building user, cargo. Sourced, never run.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PREFIX=${PREFIX:-/usr/local}
lib_dir=$PREFIX/lib/burrow
# The minimum Rust version, from the manifest that cargo reads.
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

# Log files and CI jobs do not interpret escape sequences.
if [ ! -t 2 ] || [ -n "${NO_COLOR:-}" ]; then
    say() { printf '==> %s\n' "$*" >&2; }
fi

# discard FOLDER...: removes the state of daemons, including subvolumes.
discard() {
    local folder path
    for folder in "$@"; do
        [ -e "$folder" ] || continue
        # Subvolumes are identified by the inode number of their root.
        find "$folder" -mindepth 1 -type d -inum 256 -prune 2>/dev/null | while read -r path; do
            btrfs -q property set -f "$path" ro false 2>/dev/null || true
            btrfs -q subvolume delete "$path" >&2 || true
        done
        rm -rf "$folder"
    done
}

# Prints the addresses of the mirrors that this machine installs from, as a TOML list. They may be private addresses.
mirror_ranges() {
    local host
    if [ -n "${BURROW_TEST_ALLOW_RANGES:-}" ]; then
        printf '"%s"\n' "${BURROW_TEST_ALLOW_RANGES//,/\",\"}"
        return
    fi
    # shellcheck disable=SC2016 # A format of apt.
    apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | awk -F/ '{print $3}' | sed 's/.*@//; s/:.*//' | sort -u |
        while read -r host; do getent ahosts "$host" | awk '{print $1}'; done | sort -u | sed 's/.*/"&"/' | paste -sd,
}

has() { command -v "$1" >/dev/null 2>&1; }

# Restarts the calling script as root, with the environment variables that it uses.
need_root() {
    [ "$(id -u)" = 0 ] && return
    has sudo || fail "this script requires root, and sudo is missing" "run it again as root"
    say "root is required: running sudo"
    exec sudo --preserve-env=PREFIX,CI,NO_COLOR,YES,BURROW_DEBIAN_MIRROR,http_proxy,https_proxy,no_proxy \
        "$0" "$@"
}

# Prints the building user: the user who called sudo, if they own the checkout, so that root does not own files in target/.
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

# Runs a command as the building user, with that user's cargo first in PATH.
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

# Prints the version of the building user's cargo; fails if it is missing or too old.
cargo_version() {
    local version
    version=$(cd "$repo" && as_builder cargo --version 2>/dev/null | awk '{print $2}') || return 1
    [ -n "$version" ] && version_at_least "$version" "$rust_min" && printf '%s\n' "$version"
}

# Prints the version of Node.js; fails if Node.js or npm is missing, or too old for the TypeScript SDK.
node_version() {
    local version
    has node && has npm || return 1
    version=$(node --version 2>/dev/null) && version=${version#v}
    version_at_least "$version" 20 && printf '%s\n' "$version"
}

# Builds a statically linked guest agent, because it runs in images that may have no libraries.
# The flag must not apply to other crates, so it is not in .cargo/config.toml.
build_guest() {
    (cd "$repo" && as_builder env RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --locked --package burrow-guest --profile guest --target "$target_triple")
}

guest_binary=$repo/target/$target_triple/guest/burrow-guest
