#!/bin/bash
# Stops Burrow on this machine, and removes its data. A part of every package, beside the program.
#
#   remove.sh paths         prints where the configured daemon stores what, as NAME=VALUE
#   remove.sh stop          stops the daemon and all sandboxes, removes mounts, control groups and runtime state; keeps data
#   remove.sh delete-data   also deletes sandboxes, images, volumes, memory and keys
#
# BURROW_PATHS names a file with the output of `paths`: without the program, the configuration cannot be read.
set -euo pipefail

lib_dir=${BURROW_LIB_DIR:-$(dirname "$(readlink -f "$0")")}

message() { printf '    %s\n' "$*" >&2; }

# Prints the paths; those of the standard configuration if there is none that can be read.
print_paths() {
    if [ -n "${BURROW_PATHS:-}" ] && [ -r "$BURROW_PATHS" ]; then
        cat "$BURROW_PATHS"
    elif ! "$lib_dir/burrow" config paths 2>/dev/null; then
        printf '%s\n' state_dir=/var/lib/burrow run_dir=/run/burrow cgroup=burrow \
            admin_key_file=/etc/burrow/admin.key key_file=/etc/burrow/vault.key
    fi
}

read_paths() {
    local name value
    state_dir='' run_dir='' cgroup='' admin_key_file='' key_file='' pool=''
    while IFS='=' read -r name value; do
        case $name in
        state_dir | run_dir | cgroup | admin_key_file | key_file | pool) printf -v "$name" '%s' "$value" ;;
        esac
    done < <(print_paths)
    # An empty or relative path would make every command below dangerous.
    for name in state_dir run_dir; do
        case ${!name} in
        /?*) ;;
        *) message "the configured \`$name\` is not an absolute path: \`${!name}\`"; exit 1 ;;
        esac
    done
}

# Whether the process is a program of Burrow in the given role.
is_role() { # PID ROLE
    local words=()
    mapfile -d '' -t words < "/proc/$1/cmdline" 2>/dev/null || return 1
    # Kernel threads and zombies have no command line.
    [ ${#words[@]} -ge 2 ] && [ "${words[0]##*/}" = burrow ] && [ "${words[1]}" = "$2" ]
}

stop_daemon() {
    local pid tries
    if [ -x "$lib_dir/burrow" ]; then
        "$lib_dir/burrow" down --stop-sandboxes >/dev/null 2>&1 || "$lib_dir/burrow" down >/dev/null 2>&1 || true
    fi
    # A daemon that did not stop. The pid file may be stale, and the pid may belong to another process by now.
    pid=$(cat "$run_dir/daemon.pid" 2>/dev/null || true)
    if [ -n "$pid" ] && is_role "$pid" serve; then
        kill -KILL "$pid" 2>/dev/null || true
        for tries in $(seq 50); do
            [ -e "/proc/$pid" ] || break
            [ "$tries" = 50 ] || sleep 0.1
        done
    fi
    # A daemon that shuts down normally ends the egress process with the last sandbox. A killed daemon does not.
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        if is_role "$pid" egress-process && tr '\0' '\n' < "/proc/$pid/cmdline" 2>/dev/null | grep -qF "$run_dir/"; then
            kill -KILL "$pid" 2>/dev/null || true
        fi
    done
}

# Prints all directories of Burrow in all cgroup hierarchies, the deepest first.
cgroup_dirs() {
    local top
    [ -n "$cgroup" ] || return 0
    for top in /sys/fs/cgroup/"$cgroup"{,-vm} /sys/fs/cgroup/*/"$cgroup"{,-vm}; do
        if [ -d "$top" ]; then find "$top" -depth -type d; fi
    done
}

# Kills sandboxes that the daemon did not stop, through their cgroups.
stop_sandboxes() {
    local dir pid left
    for _ in $(seq 50); do
        left=0
        while read -r dir; do
            if [ -w "$dir/cgroup.kill" ]; then echo 1 > "$dir/cgroup.kill" 2>/dev/null || true; fi
            while read -r pid; do
                left=1
                # 0 is a process of another pid namespace.
                [ "$pid" = 0 ] || kill -KILL "$pid" 2>/dev/null || true
            done < <(cat "$dir/cgroup.procs" 2>/dev/null)
        done < <(cgroup_dirs)
        [ "$left" = 1 ] || break
        sleep 0.1
    done
    [ "$left" = 0 ] || message "some processes of sandboxes are still running after 50 attempts to kill them"
    while read -r dir; do rmdir "$dir" 2>/dev/null || true; done < <(cgroup_dirs)
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

stop_all() {
    read_paths
    stop_daemon
    stop_sandboxes
    unmount_all
    rm -rf "${run_dir:?}"
    rm -f /var/log/burrow.log /var/log/burrow.log.[0-9]
}

# Deletes a directory of subvolumes; each of them is identified by the inode number of its root.
delete_pool() {
    local path
    find "$1" -mindepth 1 -type d -inum 256 -prune 2>/dev/null | while read -r path; do
        btrfs -q property set -f "$path" ro false 2>/dev/null || true
        btrfs -q subvolume delete "$path" >/dev/null 2>&1 || true
    done
    # The directory may be a mount point of the user.
    find "$1" -mindepth 1 -delete 2>/dev/null || true
    rmdir "$1" 2>/dev/null || true
}

delete_data() {
    read_paths
    # Only a directory that a daemon has used: the configuration may name the wrong one.
    if [ -e "$state_dir/catalog.db" ]; then
        rm -rf "${state_dir:?}"
    elif [ -d "$state_dir" ]; then
        rmdir "$state_dir" 2>/dev/null || message "\`$state_dir\` is kept: it contains no catalog of Burrow"
    fi
    if [ -n "$pool" ] && [ -d "$pool" ]; then
        if [ -e "$pool/epoch" ]; then
            delete_pool "$pool"
        else
            message "\`$pool\` is kept: it contains no pool of Burrow"
        fi
    fi
    [ -z "$admin_key_file" ] || rm -f "$admin_key_file"
    [ -z "$key_file" ] || rm -f "$key_file"
}

main() {
    case ${1:-} in
    paths) print_paths ;;
    stop) stop_all ;;
    delete-data) delete_data ;;
    *)
        message "usage: remove.sh paths | stop | delete-data"
        exit 2
        ;;
    esac
}

main "$@"
