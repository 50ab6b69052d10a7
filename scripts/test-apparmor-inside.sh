#!/bin/bash
# Runs as the init process of the machine that scripts/test-apparmor.sh boots.
set -uo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

end() {
    echo "apparmor: $1"
    dmesg | grep -i 'apparmor="DENIED"' | head -n 20
    sync
    echo o > /proc/sysrq-trigger
    sleep 60
}
check() { # NAME EXPECTED FOUND
    if [ "$2" = "$3" ]; then echo "ok: $1"; else echo "FAILED: $1: expected \`$2\`, found \`$3\`"; end "failed"; fi
}
program=/usr/local/lib/burrow/burrow
burrow() { "$program" "$@"; }
label() { burrow exec "$1" -- cat /proc/self/attr/current; }
# Prints the AppArmor label of a process that was started before the last hibernate, and checks that it still runs.
label_of_sleeper() { burrow exec "$1" -- sh -c 'cat /proc/$(cat /tmp/pid)/attr/current'; }
serve() { # SETTING: the value of `runtime.apparmor`
    sed -i '/^apparmor = /d' /etc/burrow/config.toml
    [ -z "${1:-}" ] || echo "apparmor = $1" >> /etc/burrow/config.toml
    # Not the function: its process id would be that of a shell, and `stop` would leave the daemon running.
    "$program" serve --config /etc/burrow/config.toml > /tmp/serve.log 2>&1 &
    daemon=$!
    for _ in $(seq 300); do
        burrow ls > /tmp/ls.log 2>&1 && return
        kill -0 "$daemon" || break
        sleep 1
    done
    cat /tmp/serve.log /tmp/ls.log
    end "failed: the daemon did not start"
}
stop() { kill "$daemon"; wait "$daemon"; }
restart() { stop; serve "$1"; }
parser=$(command -v apparmor_parser)

mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t securityfs security /sys/kernel/security
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
# Nothing creates /dev/loop-control and /dev/net/tun, which the daemon and CRIU open, before their modules are loaded.
modprobe -a loop tun
check "the kernel has AppArmor" Y "$(cat /sys/module/apparmor/parameters/enabled)"
cat > /etc/burrow/config.toml <<CONFIG
state_dir = "/var/lib/burrow"
run_dir = "/run/burrow"

[pool]
size = "3G"

[runtime]
CONFIG
# Without the setting: `auto`.
serve
export BURROW_API_KEY
BURROW_API_KEY=$(cat /etc/burrow/admin.key)
burrow image import /image.tar --name tools || { cat /tmp/serve.log; end "failed: no image"; }
burrow create --isolation container --image tools --net none --name one || { cat /tmp/serve.log; end "failed: no sandbox"; }
expected="burrow-sandbox (enforce)"
check "a command is confined" "$expected" "$(label one)"
burrow exec one -- sh -c 'sleep 100000 > /dev/null 2>&1 & echo $! > /tmp/pid'
check "doctor" 1 "$(burrow doctor | grep -c 'active: the profile')"
for round in 1 2; do
    burrow hibernate one || { cat /tmp/serve.log; end "failed: hibernate"; }
    check "a woken process is confined, $round" "$expected" "$(label_of_sleeper one)"
done
burrow fork one --name two
check "a process of a fork is confined" "$expected" "$(label_of_sleeper two)"
burrow hibernate one
restart false
check "without the profile a dump with labels is restored" unconfined "$(label_of_sleeper one)"
burrow hibernate one
# The profile stays in the kernel until it is removed.
"$parser" --remove <<< 'profile burrow-sandbox {}'
mv "$parser" /tmp/parser
restart '"auto"'
check "without the parser a dump is restored without the profile" unconfined "$(label_of_sleeper one)"
check "doctor names the missing parser" 1 "$(burrow doctor | grep -c 'apparmor_parser.*is missing')"
burrow hibernate one
stop
sed -i 's/^apparmor = .*/apparmor = true/' /etc/burrow/config.toml
timeout 60 "$program" serve --config /etc/burrow/config.toml > /tmp/serve.log 2>&1
check "with \`true\` and without the parser, the daemon does not start" 1 "$(grep -c 'apparmor_parser.*not installed' /tmp/serve.log)"
mv /tmp/parser "$parser"
serve true
check "with the profile a dump without labels is confined" "$expected" "$(label_of_sleeper one)"
denied=$(dmesg | grep -c 'apparmor="DENIED".*burrow-sandbox')
check "nothing that sandboxes need is denied" 0 "$denied"
burrow rm one two
end "all passed"
