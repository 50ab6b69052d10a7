#!/bin/bash
# Installs Burrow from the folder of this script, without compiling. Run it again to install another version over it.
#
#   ./install.sh [--no-start]            PREFIX=/usr/local by default
#   PREFIX/lib/burrow/uninstall.sh       removes it
#
# A running daemon of an earlier version is restarted; its sandboxes keep running.
set -euo pipefail

prefix=${PREFIX:-/usr/local}
lib_dir=$prefix/lib/burrow
from=$(dirname "$(readlink -f "$0")")
start=yes
case ${1:-} in
--no-start) start=no ;;
'') ;;
*)
    printf 'error: unknown argument: %s\n' "$1" >&2
    exit 2
    ;;
esac
if [ "$(id -u)" != 0 ]; then
    printf 'error: root is required\n       run: sudo %s\n' "$0" >&2
    exit 1
fi

# The programs that the daemon runs, and the Debian packages that contain them.
missing=()
for need in mkfs.btrfs:btrfs-progs nft:nftables ip:iproute2 mkfs.ext4:e2fsprogs mount:mount setpriv:util-linux tar:tar gzip:gzip; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${need%:*}" >/dev/null || missing+=("${need#*:}")
done
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
if [ ${#missing[@]} -gt 0 ]; then
    printf 'error: these packages are missing (Debian names): %s\n' "${missing[*]}" >&2
    if command -v apt-get >/dev/null; then
        printf '       run: apt-get update && apt-get install -y --no-install-recommends %s\n' "${missing[*]}" >&2
    fi
    exit 1
fi

was_running=no
if [ -x "$lib_dir/burrow" ] && "$lib_dir/burrow" config paths >/dev/null 2>&1; then
    run_dir=$("$lib_dir/burrow" config paths | sed -n 's/^run_dir=//p')
    if [ -n "$run_dir" ] && kill -0 "$(cat "$run_dir/daemon.pid" 2>/dev/null || echo none)" 2>/dev/null; then was_running=yes; fi
fi

# Replaces each file by renaming: running processes keep the files that they were started from.
copy_tree() { # FROM TO
    local file
    (cd "$1" && find . -type d -print0) | while IFS= read -r -d '' file; do mkdir -p "$2/$file"; done
    (cd "$1" && find . -type f -print0) | while IFS= read -r -d '' file; do
        cp -p "$1/$file" "$2/$file.new"
        chown root:root "$2/$file.new"
        mv "$2/$file.new" "$2/$file"
    done
}
mkdir -p "$lib_dir" "$prefix/bin"
copy_tree "$from/lib/burrow" "$lib_dir"
copy_tree "$from/share" "$prefix/share"
ln -sfn ../lib/burrow/burrow "$prefix/bin/burrow"
(cd "$from/share" && find . -type f | sed "s|^\.|$prefix/share|") > "$lib_dir/installed-files"

if [ -d /run/systemd/system ]; then
    sed "s|@PREFIX@|$prefix|g" "$from/burrow.service" > /etc/systemd/system/burrow.service
    systemctl daemon-reload
    systemctl enable --quiet burrow.service
    if systemctl --quiet is-active burrow.service; then
        systemctl restart burrow.service
        was_running=no
    fi
fi
if [ "$was_running" = yes ]; then "$lib_dir/burrow" down; fi
if [ "$start" = yes ]; then
    exec "$lib_dir/burrow" up
fi
printf 'installed in %s; start it with: %s/bin/burrow up\n' "$prefix" "$prefix" >&2
