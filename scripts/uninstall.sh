#!/usr/bin/env bash
# Removes Burrow from this machine: daemon, sandboxes, mounts, cgroups, programs, and optionally the data.
#
#   scripts/uninstall.sh [--purge | --keep-data]
#
# Asks before it deletes data (/var/lib/burrow, /etc/burrow), unless --purge or YES=1 is set. Without a terminal, data is
# kept.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

state_dir=/var/lib/burrow
config_dir=/etc/burrow
run_dir=/run/burrow
cgroup=burrow

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
    decide
    stop_daemon
    stop_sandboxes
    unmount_all
    remove_cgroups
    say "removing the programs"
    rm -f "$PREFIX/bin/burrow" /etc/systemd/system/burrow.service
    rm -rf "${lib_dir:?}" "$run_dir"
    rm -f /var/log/burrow.log
    [ -d /run/systemd/system ] && systemctl daemon-reload
    if [ "$purge" = yes ]; then
        say "deleting $state_dir and $config_dir"
        rm -rf "$state_dir" "$config_dir"
    else
        note "data is kept in $state_dir and $config_dir; \`make uninstall YES=1\` deletes it"
    fi
    say "done"
}

decide() {
    [ "$purge" = ask ] || return 0
    purge=no
    [ -e "$state_dir" ] || [ -e "$config_dir" ] || return 0
    [ -t 0 ] || return 0
    local answer
    read -r -p "Delete all sandboxes, images and keys ($state_dir, $config_dir) as well? [y/N] " answer
    case $answer in [yY] | [yY][eE][sS]) purge=yes ;; esac
}

stop_daemon() {
    say "stopping"
    if [ -d /run/systemd/system ]; then
        systemctl disable --now burrow.service >/dev/null 2>&1 || true
    fi
    if [ -x "$PREFIX/bin/burrow" ]; then
        "$PREFIX/bin/burrow" down --stop-sandboxes >/dev/null 2>&1 || "$PREFIX/bin/burrow" down >/dev/null 2>&1 || true
    fi
    # Kill a daemon that did not stop. The pid file may be stale, and the pid may belong to another process by now.
    local pid
    pid=$(cat "$run_dir/daemon.pid" 2>/dev/null || true)
    if [ -n "$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null | grep -q 'burrow serve'; then
        kill -KILL "$pid" 2>/dev/null || true
    fi
    # A daemon that shuts down normally ends the egress process with the last sandbox. A killed daemon does not.
    for pid in $(pgrep -f "^($PREFIX/bin|$lib_dir)/burrow egress-process " 2>/dev/null || true); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

# Prints all directories of Burrow in all cgroup hierarchies, the deepest first.
cgroup_dirs() {
    local top
    for top in /sys/fs/cgroup/"$cgroup"{,-vm} /sys/fs/cgroup/*/"$cgroup"{,-vm}; do
        if [ -d "$top" ]; then find "$top" -depth -type d; fi
    done
}

# Kills sandboxes that the daemon did not stop, through their cgroups.
stop_sandboxes() {
    local dir pid tries
    for tries in $(seq 50); do
        local left=0
        while read -r dir; do
            if [ -w "$dir/cgroup.kill" ]; then echo 1 > "$dir/cgroup.kill" 2>/dev/null || true; fi
            while read -r pid; do
                left=1
                kill -KILL "$pid" 2>/dev/null || true
            done < "$dir/cgroup.procs"
        done < <(cgroup_dirs)
        [ "$left" = 1 ] || return 0
        sleep 0.1
    done
    note "some processes of sandboxes are still running after $tries attempts to kill them"
}

# Unmounts the pool, namespaces that are kept by a mount, and all other mounts below Burrow's directories.
unmount_all() {
    local place
    # The deepest first; a path may be mounted several times. The kernel escapes characters in octal.
    awk -v run="$run_dir" -v state="$state_dir" \
        'index($5, run "/") == 1 || index($5, state "/") == 1 || $5 == run {print $5}' /proc/self/mountinfo |
        sort -r | while read -r place; do
        umount -l "$(printf '%b' "$place")" 2>/dev/null || true
    done
}

remove_cgroups() {
    local dir
    while read -r dir; do rmdir "$dir" 2>/dev/null || true; done < <(cgroup_dirs)
}

main
