#!/bin/bash
# Removes an installation that `install.sh` made. Data is kept unless --purge is given.
#
#   uninstall.sh [--purge]
set -euo pipefail

lib_dir=$(dirname "$(readlink -f "$0")")
prefix=$(dirname "$(dirname "$lib_dir")")
if [ "$(id -u)" != 0 ]; then
    printf 'error: root is required\n       run: sudo %s\n' "$0" >&2
    exit 1
fi
case ${1:-} in
'' | --purge) ;;
*)
    printf 'error: unknown argument: %s\n' "$1" >&2
    exit 2
    ;;
esac

if [ -d /run/systemd/system ]; then systemctl disable --quiet --now burrow.service || true; fi
"$lib_dir/remove.sh" stop
if [ "${1:-}" = --purge ]; then
    "$lib_dir/remove.sh" delete-data
    rm -f /etc/burrow/config.toml
    rmdir /etc/burrow 2>/dev/null || true
else
    printf 'data is kept; `%s/bin/burrow` and its configuration were:\n' "$prefix" >&2
    "$lib_dir/remove.sh" paths >&2
fi
rm -f "$prefix/bin/burrow" /etc/systemd/system/burrow.service
if [ -r "$lib_dir/installed-files" ]; then xargs -r -d '\n' rm -f < "$lib_dir/installed-files"; fi
rm -rf "${lib_dir:?}" "$prefix/share/doc/burrow"
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
