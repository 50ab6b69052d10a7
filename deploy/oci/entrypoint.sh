#!/bin/bash
# The first process of a container with Burrow's daemon: prepares control groups and devices, starts the daemon, reaps orphans.
set -eu

groups=/sys/fs/cgroup
# Only in a control group namespace of its own: with that of the host, these would be the processes of the host.
if [ -e "$groups/cgroup.controllers" ] && grep -qx '0::/' /proc/self/cgroup; then
    # A control group with processes cannot give controllers to its children, so the processes move to a child first.
    mkdir -p "$groups/init"
    while read -r pid; do echo "$pid" > "$groups/init/cgroup.procs" 2>/dev/null || true; done < "$groups/cgroup.procs"
    for controller in $(cat "$groups/cgroup.controllers"); do
        echo "+$controller" > "$groups/cgroup.subtree_control" 2>/dev/null || true
    done
fi
# The devices of a container are a copy: loop devices that the kernel adds later have no nodes in it.
[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
for number in $(seq 0 31); do
    [ -e "/dev/loop$number" ] || mknod "/dev/loop$number" b 7 "$number"
done
if [ ! -e /dev/net/tun ]; then
    mkdir -p /dev/net
    mknod /dev/net/tun c 10 200
fi
# Volumes may be empty.
if [ ! -e /etc/burrow/config.toml ]; then
    mkdir -p /etc/burrow
    cp /usr/lib/burrow/config.toml /etc/burrow/config.toml
fi

rm -rf /run/burrow
/usr/lib/burrow/burrow serve "$@" &
daemon=$!
trap 'kill -TERM $daemon' TERM INT
trap 'kill -HUP $daemon' HUP
(
    # Without an address, `up` would start a second daemon.
    until [ -e /run/burrow/address ]; do
        kill -0 "$daemon" 2>/dev/null || exit 1
        sleep 0.2
    done
    exec /usr/lib/burrow/burrow up
) &
status=0
while kill -0 "$daemon" 2>/dev/null; do
    wait "$daemon" && status=0 || status=$?
done
exit "$status"
