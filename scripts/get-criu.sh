#!/usr/bin/env bash
# Installs a recent CRIU with its libraries into a separate directory, from packages of newer Debian suites.
#
#   scripts/get-criu.sh PREFIX [VERSION_MIN]
#
# Uses the mirror that this machine installs from (on other systems: BURROW_DEBIAN_MIRROR). apt verifies the signatures of
# the packages. No package is installed: apt resolves all dependencies as if no package were installed, the packages are
# unpacked into a temporary directory, and CRIU gets its own copies of the libraries and of the loader.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

prefix=${1:?usage: get-criu.sh PREFIX [VERSION_MIN]}
version_min=${2:-4.2}

if ! has apt-get || ! has dpkg-deb; then
    fail "cannot install CRIU from Debian packages: apt-get is missing" \
        "install CRIU $version_min or newer by other means"
fi
# shellcheck source=scripts/debian.sh
. "$(dirname "$0")/debian.sh"
trap 'rm -rf "$work" "$prefix.new"' EXIT

# Downloads the packages of CRIU from a suite; fails if the suite has no CRIU or an older one.
fetch() {
    local suite=$1 version
    use_suite "$suite" || return 1
    version=$(apt-cache "${apt_options[@]}" policy criu | awk '/Candidate:/ {print $2}')
    if [ -z "$version" ] || ! dpkg --compare-versions "$version" ge "$version_min"; then return 1; fi
    note "criu $version from $suite"
    unpack criu
}

# Copies CRIU, its loader, and the libraries that the loader lists.
assemble() {
    local criu loader libraries library
    criu=$(find "$work/tree" -path '*sbin/criu' -type f -print -quit)
    loader=$(find "$work/tree" -name 'ld-linux*.so.*' -type f -print -quit)
    libraries=$(find "$work/tree" -name libc.so.6 -printf '%h\n' -quit)
    if [ -z "$criu" ] || [ -z "$loader" ] || [ -z "$libraries" ]; then fail "the packages of CRIU lack the program, its loader or libc"; fi
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
        version_at_least "$found" "$version_min" || fail "CRIU reports version $found, but $version_min or newer is required"
        note "criu $found in $prefix"
        exit 0
    fi
done
fail "no suite of $mirror has CRIU $version_min or newer"
