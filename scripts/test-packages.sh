#!/usr/bin/env bash
# Tests the packages in target/packages: installs each into fresh roots, starts the daemon, runs a sandbox, upgrades over a running
# older build, removes and purges it.
#
#   scripts/test-packages.sh [SUITE...]    bookworm, trixie, jammy and noble by default; `oci` tests the container image
#
# BURROW_TEST_OLD_DEB names the older package; by default, the new one with a lower version. Fresh roots are kept in
# target/package-roots. Packages come from the mirrors that this machine reaches; a suite without a mirror is skipped.
# Processes and mounts end with the namespaces that they are in. systemd does not run in them.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_root "$@"
cd "$repo"

packages=$repo/target/packages
roots=$repo/target/package-roots
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie jammy noble oci)
failed=()
# shellcheck source=scripts/debian.sh
. scripts/debian.sh
# That of debian.sh, which empties it.
apt_work=$work
work=$(mktemp -d -t burrow-packages-XXXXXX)
trap 'rm -rf "$work" "$apt_work"' EXIT
ubuntu_mirror=${BURROW_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}

# Ubuntu's keys are a package of newer Debian suites.
ubuntu_keyring() {
    local found=$roots/ubuntu-archive-keyring.gpg
    if [ ! -e "$found" ]; then
        (
            work=$apt_work
            use_suite testing && unpack ubuntu-archive-keyring &&
                cp "$apt_work/tree/usr/share/keyrings/ubuntu-archive-keyring.gpg" "$found"
        ) >&2 || return 1
    fi
    printf '%s\n' "$found"
}

# fresh_root SUITE: prints an archive of a minimal root.
fresh_root() {
    local suite=$1 archive=$roots/$1.tar lines keys=''
    mkdir -p "$roots"
    if [ ! -e "$archive" ]; then
        case $suite in
        bookworm | trixie) lines="deb $mirror $suite main" ;;
        *)
            keys=$(ubuntu_keyring) || return 1
            lines="deb $ubuntu_mirror $suite main universe"
            ;;
        esac
        mmdebstrap --quiet --variant=minbase --include=apt,ca-certificates ${keys:+--keyring="$keys"} "$suite" "$roots/new-$suite.tar" "$lines" >&2 || return 1
        mv "$roots/new-$suite.tar" "$archive"
    fi
    printf '%s\n' "$archive"
}

# The same package with a lower version, for the upgrade.
older_deb() {
    if [ -n "${BURROW_TEST_OLD_DEB:-}" ]; then
        cp "$BURROW_TEST_OLD_DEB" "$work/old.deb"
        return
    fi
    [ -e "$work/old.deb" ] && return
    dpkg-deb -R "$packages"/burrow_*.deb "$work/old"
    sed -i 's/^Version: .*/Version: 0.0.1/' "$work/old/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$work/old" "$work/old.deb" >/dev/null
    rm -rf "$work/old"
}

# in_root ROOT COMMAND...: runs a command as if ROOT were a machine. `chroot` is not enough: in it, no user namespace can be created.
in_root() {
    local root=$1
    shift
    # shellcheck disable=SC2016 # The inner shell expands these.
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash -c '
        set -e
        root=$1
        shift
        mount --bind "$root" "$root"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t proc proc "$root/proc"
        mount -t tmpfs run "$root/run"
        mkdir -p "$root/run/lock" "$root/mnt"
        rm -f "$root/etc/resolv.conf"
        cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
        cd "$root"
        pivot_root . mnt
        umount -l /mnt
        cd /
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb NO_COLOR=1 \
            DEBIAN_FRONTEND=noninteractive "$@"' bash "$root" "$@"
}

# Mounts and processes end with their namespaces; only control groups could be left.
left_behind() {
    rmdir /sys/fs/cgroup/burrow-packages-oci-container/init /sys/fs/cgroup/burrow-packages-oci-container 2>/dev/null || true
    if find /sys/fs/cgroup -maxdepth 2 -name "$1*" | grep -q .; then
        note "control groups are left: $1"
        find /sys/fs/cgroup -depth -path "*/$1*" -type d -exec rmdir {} \; 2>/dev/null || true
        return 1
    fi
}

test_suite() {
    local suite=$1 root=$work/$1 archive
    if ! archive=$(fresh_root "$suite"); then
        printf 'skipped: packages on %s: no root could be made from the mirror\n' "$suite"
        return 0
    fi
    mkdir "$root"
    tar -C "$root" -xf "$archive" --exclude=./dev/*
    mkdir -p "$root/packages"
    cp "$packages"/burrow_*.deb "$root/packages/new.deb"
    cp "$work/old.deb" "$root/packages/old.deb"
    cp "$packages"/burrow-[0-9]*-linux-*.tar.gz "$root/packages/burrow.tar.gz" 2>/dev/null || true
    cp "$packages"/burrow-client-*.tar.gz "$root/packages/client.tar.gz" 2>/dev/null || true
    cp scripts/test-packages-inside.sh "$root/packages/inside.sh"
    in_root "$root" bash /packages/inside.sh "$suite" "burrow-packages-$suite" "[$(mirror_ranges)]"
}

test_oci() {
    local root=$work/oci layer
    mkdir -p "$work/layout" "$root"
    tar -C "$work/layout" -xf "$packages"/burrow-*-oci-*.tar
    if has skopeo; then
        skopeo inspect "oci-archive:$(echo "$packages"/burrow-*-oci-*.tar)" >/dev/null || { note "skopeo cannot read the image"; return 1; }
    fi
    layer=$(sed -n 's/.*"Layers":\["\([^"]*\)".*/\1/p' "$work/layout/manifest.json")
    tar -C "$root" -xzf "$work/layout/$layer"
    printf 'listen = "127.0.0.1:17711"\n[pool]\nsize = "8G"\n[runtime]\ncgroup = "burrow-packages-oci"\n' > "$root/etc/burrow/config.toml"
    cp deploy/oci/entrypoint.sh "$root/usr/lib/burrow/entrypoint.sh"
    # In a control group of its own, like a container: the first process moves the processes of its group.
    # shellcheck disable=SC2016 # The inner shell expands these.
    in_root "$root" bash -c '
        set -e
        if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
            mkdir /sys/fs/cgroup/burrow-packages-oci-container
            echo $$ > /sys/fs/cgroup/burrow-packages-oci-container/cgroup.procs
        fi
        exec unshare --mount --cgroup bash "$@"' bash -c '
        if [ -e /sys/fs/cgroup/cgroup.controllers ]; then mount -t cgroup2 none /sys/fs/cgroup; fi
        export BURROW_URL=http://127.0.0.1:17711
        /usr/lib/burrow/entrypoint.sh > /tmp/log 2>&1 & first=$!
        for _ in $(seq 300); do burrow image inspect debian >/dev/null 2>&1 && break; kill -0 $first || break; sleep 1; done
        burrow run --rm --isolation container --net none -- echo sandbox-runs | grep -qx sandbox-runs || { cat /tmp/log; exit 1; }
        kill $first && wait $first && /usr/lib/burrow/remove.sh stop'
}

[ "${suites[*]}" = oci ] || older_deb
for suite in "${suites[@]}"; do
    say "packages: $suite"
    if [ "$suite" = oci ]; then run=(test_oci); else run=(test_suite "$suite"); fi
    # Not a condition, in which `set -e` would have no effect.
    set +e
    (set -e; "${run[@]}")
    status=$?
    set -e
    left_behind "burrow-packages-$suite" || status=1
    [ "$status" = 0 ] && note "$suite: ok" || failed+=("$suite")
    rm -rf "${work:?}/$suite" "$work/layout"
done
[ ${#failed[@]} = 0 ] || fail "packages failed on: ${failed[*]}"
