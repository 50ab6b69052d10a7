# shellcheck shell=bash
# Downloads packages of any Debian suite and unpacks them into a separate directory. Sourced by get-criu.sh and get-qemu.sh
# after lib.sh. The caller has checked that apt-get exists, and removes $work at the end.
#
# Uses the mirror that this machine installs from (on other systems: BURROW_DEBIAN_MIRROR). apt verifies the signatures of
# the packages. Nothing is installed: apt resolves all dependencies as if no package were installed.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# shellcheck disable=SC2016 # apt, not the shell, fills these in.
mirror=${BURROW_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' | awk '$1 ~ /\/debian\/?$/ && $3 == "main" {print $1; exit}')}
[ -n "$mirror" ] || fail "this machine's package sources name no Debian mirror" \
    "set BURROW_DEBIAN_MIRROR to one, e.g. the address in a Debian machine's sources.list"
[ -e "$keyring" ] || fail "the keyring that verifies Debian packages is missing" "apt-get install debian-archive-keyring"

work=$(mktemp -d)
apt_options=(
    -q
    -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/etc"
    -o "Dir::State=$work" -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status"
    -o "Dir::Cache=$work/cache"
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root
    -o APT::Install-Recommends=false -o Debug::NoLocking=true
)

# Configures apt to use one suite only.
use_suite() {
    rm -rf "${work:?}"/*
    mkdir -p "$work"/{lists/partial,cache/archives/partial,etc,tree}
    : > "$work/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$1" > "$work/etc/suite.list"
    apt-get "${apt_options[@]}" update >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; return 1; }
}

# Downloads packages with their dependencies, and unpacks them into $work/tree.
unpack() {
    local package
    apt-get "${apt_options[@]}" -y --download-only install "$@" >"$work/log" 2>&1 ||
        { tail -n 3 "$work/log" >&2; return 1; }
    for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
}
