#!/usr/bin/env bash
# Puts a recent CRIU with its libraries into a directory of its own, from packages of Debian's newer suites.
#
#   scripts/get-criu.sh PREFIX [VERSION_MIN]
#
# The mirror is the one this machine installs from (on other systems: BURROW_DEBIAN_MIRROR). apt checks the packages'
# signatures. Nothing is installed: apt resolves the whole closure as if the machine were empty, the packages are
# unpacked aside, and CRIU keeps its own copies of the libraries it needs, with their own loader.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

prefix=${1:?usage: get-criu.sh PREFIX [VERSION_MIN]}
version_min=${2:-4.2}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

if ! has apt-get || ! has dpkg-deb; then
    fail "CRIU comes from Debian packages, and there is no apt-get here" \
        "install CRIU $version_min or newer by other means"
fi
# shellcheck disable=SC2016 # apt, not the shell, fills these in.
mirror=${BURROW_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' | awk '$1 ~ /\/debian\/?$/ && $3 == "main" {print $1; exit}')}
[ -n "$mirror" ] || fail "this machine's package sources name no Debian mirror" \
    "set BURROW_DEBIAN_MIRROR to one, e.g. the address in a Debian machine's sources.list"
[ -e "$keyring" ] || fail "there are no keys to check Debian's packages with" "apt-get install debian-archive-keyring"

work=$(mktemp -d)
trap 'rm -rf "$work" "$prefix.new"' EXIT
apt_options=(
    -q
    -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/etc"
    -o "Dir::State=$work" -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status"
    -o "Dir::Cache=$work/cache"
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root
    -o APT::Install-Recommends=false -o Debug::NoLocking=true
)

# Fetches CRIU's packages from a suite; fails when it is not there or too old.
fetch() {
    local suite=$1 version
    rm -rf "${work:?}"/*
    mkdir -p "$work"/{lists/partial,cache/archives/partial,etc,tree}
    : > "$work/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$suite" > "$work/etc/suite.list"
    apt-get "${apt_options[@]}" update >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; return 1; }
    version=$(apt-cache "${apt_options[@]}" policy criu | awk '/Candidate:/ {print $2}')
    if [ -z "$version" ] || ! dpkg --compare-versions "$version" ge "$version_min"; then return 1; fi
    note "criu $version from $suite"
    apt-get "${apt_options[@]}" -y --download-only install criu >"$work/log" 2>&1 ||
        { tail -n 3 "$work/log" >&2; return 1; }
}

# Takes CRIU, its loader and the libraries that loader names.
assemble() {
    local package criu loader libraries library
    for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$work/tree"; done
    criu=$(find "$work/tree" -path '*sbin/criu' -type f -print -quit)
    loader=$(find "$work/tree" -name 'ld-linux*.so.*' -type f -print -quit)
    libraries=$(find "$work/tree" -name libc.so.6 -printf '%h\n' -quit)
    if [ -z "$criu" ] || [ -z "$loader" ] || [ -z "$libraries" ]; then fail "the packages are not as expected"; fi
    libraries=$libraries:$work/tree/usr/lib/$(basename "$libraries")
    rm -rf "$prefix.new"
    mkdir -p "$prefix.new/lib" "$prefix.new/sbin"
    "$loader" --library-path "$libraries" --list "$criu" | awk '/=>/ {print $3}' | sort -u |
        while read -r library; do cp -L "$library" "$prefix.new/lib/"; done
    cp -L "$loader" "$prefix.new/lib/loader"
    cp "$criu" "$prefix.new/sbin/criu.bin"
    cat > "$prefix.new/sbin/criu" <<WRAPPER
#!/bin/sh
exec "$prefix/lib/loader" --library-path "$prefix/lib" "$prefix/sbin/criu.bin" "\$@"
WRAPPER
    chmod 755 "$prefix.new/sbin/criu"
}

for suite in testing unstable; do
    if fetch "$suite"; then
        assemble
        rm -rf "$prefix"
        mv "$prefix.new" "$prefix"
        found=$("$prefix/sbin/criu" --version | awk '/^Version:/ {print $2}')
        version_at_least "$found" "$version_min" || fail "CRIU says it is $found, and $version_min is needed"
        note "criu $found in $prefix"
        exit 0
    fi
done
fail "no suite of $mirror has CRIU $version_min or newer"
