#!/bin/bash
# Runs inside a fresh root that scripts/test-packages.sh made: installs, uses, upgrades and removes the packages in /packages.
#
#   inside.sh SUITE CGROUP RANGES    RANGES: a TOML list of addresses that sandboxes may reach, those of the mirror
set -euo pipefail

suite=$1 cgroup=$2 ranges=$3
state=/srv/burrow-state
config=/etc/burrow/config.toml
export BURROW_URL=http://127.0.0.1:17710

say() { printf '    %s: %s\n' "$suite" "$*" >&2; }
fail() {
    say "FAILED: $*"
    tail -n 15 /var/log/burrow.log 2>/dev/null >&2 || true
    exit 1
}
check() { # NAME EXPECTED FOUND
    [ "$2" = "$3" ] || fail "$1: expected \`$2\`, found \`$3\`"
    say "ok: $1"
}
install() { apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold "$@" > /tmp/apt.log 2>&1 || { tail -n 20 /tmp/apt.log >&2; fail "apt-get install $*"; }; }
daemon_pid() { cat /run/burrow/daemon.pid; }
# Processes that a stop of the daemon must not leave.
processes() { grep -lE '^(/usr|/usr/local)/lib/burrow/' /proc/[0-9]*/cmdline 2>/dev/null | wc -l; }
mounts() { awk '$5 ~ "^(/run/burrow|/srv/burrow-state)"' /proc/self/mountinfo | wc -l; }
groups() { find /sys/fs/cgroup -maxdepth 2 -name "$cgroup*" | wc -l; }
run() { burrow run --rm --isolation container --net none -- "$@"; }
configure() {
    mkdir -p /etc/burrow
    cat > "$config" <<CONFIG
listen = "127.0.0.1:17710"
state_dir = "$state"
[pool]
size = "8G"
[runtime]
cgroup = "$cgroup"
[egress]
allow_ranges = $ranges
CONFIG
}
gone() { # NAME
    check "$1: no processes" 0 "$(processes)"
    check "$1: no mounts" 0 "$(mounts)"
    check "$1: no control groups" 0 "$(groups)"
    check "$1: no runtime directory" no "$([ -e /run/burrow ] && echo yes || echo no)"
}

# --- The .deb ---

apt-get update -q > /dev/null
configure
began=$(date +%s%N)
install /packages/old.deb
installed=$(date +%s%N)
burrow up > /tmp/up.log 2>&1 || { cat /tmp/up.log >&2; fail "burrow up"; }
started=$(date +%s%N)
check "a sandbox runs" sandbox-runs "$(run echo sandbox-runs)"
ended=$(date +%s%N)
say "from the .deb to the first \`burrow run\`: $(((ended - began) / 1000000)) ms (apt $(((installed - began) / 1000000)), up $(((started - installed) / 1000000)), run $(((ended - started) / 1000000)))"
check "doctor finds the packaged CRIU and QEMU" 2 "$(burrow doctor | grep -cE '^  (ok|note) +(CRIU|QEMU) .* /usr/lib/burrow/' || true)"
check "manual pages" yes "$([ -s /usr/share/man/man1/burrow-create.1.gz ] || grep -qs path-exclude /etc/dpkg/dpkg.cfg.d/* && echo yes)"
check "completions" yes "$([ -s /usr/share/bash-completion/completions/burrow ] && echo yes)"

burrow create --name kept --isolation container --net none > /dev/null
burrow exec kept -- sh -c 'echo file > /root/file; sleep 100000 > /dev/null 2>&1 & echo $! > /tmp/sleeper'
before=$(daemon_pid)
install /packages/new.deb
check "the upgrade restarts the daemon" yes "$([ "$before" != "$(daemon_pid)" ] && echo yes)"
check "the sandbox runs on" running "$(burrow inspect kept | sed -n 's/^ *"state": "\(.*\)",*$/\1/p' | head -n 1)"
check "its process too" yes "$(burrow exec kept -- sh -c 'kill -0 $(cat /tmp/sleeper) && echo yes')"
burrow hibernate kept > /tmp/hibernate.log 2>&1 || { cat /tmp/hibernate.log >&2; fail "hibernate"; }
check "the packaged CRIU restores its process" yes "$(burrow exec kept -- sh -c 'kill -0 $(cat /tmp/sleeper) && echo yes')"
check "a sandbox of the new version runs" sandbox-runs "$(run echo sandbox-runs)"

if burrow doctor --help | grep -q -- --fix; then
    chmod 644 /etc/burrow/vault.key
    dpkg --force-depends --remove nftables > /dev/null 2>&1
    burrow doctor --fix --yes > /tmp/doctor.log 2>&1 || true
    check "doctor --fix: the mode of the key file" 600 "$(stat -c %a /etc/burrow/vault.key)"
    check "doctor --fix: a missing package" yes "$(command -v nft > /dev/null && echo yes)"
    check "doctor --fix: neither is reported again" "" "$(burrow doctor --fix --yes 2>&1 | grep -E '^(network, nft|secrets, key file)' || true)"
fi

apt-get remove -y -q burrow > /tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; fail "apt-get remove"; }
gone "remove"
check "remove keeps data" yes "$([ -e "$state/catalog.db" ] && echo yes)"
install /packages/new.deb
burrow up > /tmp/up.log 2>&1 || { cat /tmp/up.log >&2; fail "burrow up after a removal"; }
burrow start kept > /dev/null
check "the kept files" file "$(burrow exec kept -- cat /root/file)"
apt-get purge -y -q burrow > /tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; fail "apt-get purge"; }
gone "purge"
check "purge deletes data" "" "$(find "$state" /etc/burrow /usr/lib/burrow /var/log/burrow.log* 2>/dev/null | head -n 5 || true)"

# --- The tarball, and the client ---

if [ -e /packages/burrow.tar.gz ]; then
    # The shell remembers the removed program.
    hash -r
    configure
    mkdir /tmp/unpacked
    tar -C /tmp/unpacked -xf /packages/burrow.tar.gz
    bash /tmp/unpacked/*/install.sh > /tmp/up.log 2>&1 || { cat /tmp/up.log >&2; fail "install.sh"; }
    check "tarball: a sandbox runs" sandbox-runs "$(run echo sandbox-runs)"
    before=$(daemon_pid)
    bash /tmp/unpacked/*/install.sh > /tmp/up.log 2>&1 || { cat /tmp/up.log >&2; fail "install.sh again"; }
    check "tarball: installing again restarts the daemon" yes "$([ "$before" != "$(daemon_pid)" ] && echo yes)"
    if [ -e /packages/client.tar.gz ]; then
        mkdir /tmp/client
        tar -C /tmp/client -xf /packages/client.tar.gz
        check "client: it lists the images" yes "$(env BURROW_URL=http://127.0.0.1:17710 BURROW_API_KEY="$(cat /etc/burrow/admin.key)" /tmp/client/*/bin/burrow image ls | grep -q debian && echo yes)"
    fi
    /usr/local/lib/burrow/uninstall.sh --purge > /tmp/up.log 2>&1 || { cat /tmp/up.log >&2; fail "uninstall.sh"; }
    gone "uninstall"
    check "uninstall deletes everything" "" "$(find "$state" /etc/burrow /usr/local -name '*burrow*' 2>/dev/null | head -n 5 || true)"
fi
