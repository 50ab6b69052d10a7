#!/usr/bin/env bash
# Removes Burrow from this machine: daemon, sandboxes, mounts, cgroups, programs, and optionally the data.
#
#   scripts/uninstall.sh [--purge | --keep-data]
#
# Asks before it deletes data (the configured `state_dir` and `pool.path`, and /etc/burrow), unless --purge or YES=1 is set.
# Without a terminal, data is kept.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

purge=ask
[ "${YES:-}" = 1 ] && purge=yes
case ${1:-} in
--purge) purge=yes ;;
--keep-data) purge=no ;;
'') ;;
*) fail "unknown argument: $1" ;;
esac
need_root "$@"

main() {
    # The installed program knows the configured paths; it is removed before the data.
    paths=$(mktemp)
    trap 'rm -f "$paths"' EXIT
    remove paths > "$paths"
    decide
    say "stopping"
    if [ -d /run/systemd/system ]; then
        systemctl disable --now burrow.service >/dev/null 2>&1 || true
    fi
    remove stop
    say "removing the programs"
    rm -f "$PREFIX/bin/burrow" /etc/systemd/system/burrow.service
    rm -rf "${lib_dir:?}"
    [ -d /run/systemd/system ] && systemctl daemon-reload
    if [ "$purge" = yes ]; then
        say "deleting $(places | paste -sd' ')"
        BURROW_PATHS=$paths remove delete-data
        rm -rf /etc/burrow
    else
        note "data is kept in $(places | paste -sd' '); \`make uninstall YES=1\` deletes it"
    fi
    say "done"
}

remove() { BURROW_LIB_DIR=$lib_dir "$repo/deploy/remove.sh" "$@"; }

# Prints the configured directories that contain data.
places() {
    sed -n 's/^\(state_dir\|pool\)=//p' "$paths"
    echo /etc/burrow
}

decide() {
    [ "$purge" = ask ] || return 0
    purge=no
    local place kept=()
    while read -r place; do
        if [ -e "$place" ]; then kept+=("$place"); fi
    done < <(places)
    [ ${#kept[@]} -gt 0 ] || return 0
    [ -t 0 ] || return 0
    local answer
    read -r -p "Delete all sandboxes, images and keys (${kept[*]}) as well? [y/N] " answer
    case $answer in [yY] | [yY][eE][sS]) purge=yes ;; esac
}

main
