#!/usr/bin/env bash
# Installs a recent QEMU with its libraries, and a kernel for microVMs, into separate directories, from Debian packages.
#
#   scripts/get-qemu.sh PREFIX VM_DIR [VERSION_MIN]
#
#   PREFIX/run/qemu-system-x86_64, lib/, share/   QEMU, its loader and libraries, its firmware
#   VM_DIR/vmlinux, release, modules/             Debian's 6.1 cloud kernel, uncompressed, and the modules that a guest needs,
#                                                 `modules/order` in the order in which they are loaded
#
# Uses the mirror that this machine installs from (on other systems: BURROW_DEBIAN_MIRROR). apt verifies the signatures of
# the packages. No package is installed: apt resolves all dependencies as if no package were installed, and the packages are
# unpacked into a temporary directory. An existing QEMU or kernel that is recent enough is not replaced.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

prefix=${1:?usage: get-qemu.sh PREFIX VM_DIR [VERSION_MIN]}
vm_dir=${2:?usage: get-qemu.sh PREFIX VM_DIR [VERSION_MIN]}
# Older versions cannot prevent machines from writing to shared RAM.
version_min=${3:-10}
# 6.12 boots more slowly under emulation, and panicked there.
kernel_suite=bookworm
# The kernel modules that a guest needs. A module that is built in has no file.
modules=(virtio virtio_ring virtio_mmio virtio_blk failover net_failover virtio_net virtio_console rng-core virtio-rng
    inet_diag tcp_diag)

[ "$(uname -m)" = x86_64 ] || fail "microVMs require x86_64; this machine is $(uname -m)"
if ! has apt-get || ! has dpkg-deb; then
    fail "cannot install QEMU and the guest kernel from Debian packages: apt-get is missing" \
        "microVMs need QEMU $version_min or newer; containers do not"
fi
# shellcheck source=scripts/debian.sh
. "$(dirname "$0")/debian.sh"
# shellcheck source=scripts/kernel.sh
. "$(dirname "$0")/kernel.sh"
trap 'rm -rf "$work" "$prefix.new" "$vm_dir.new"' EXIT

# Finds the directories of the unpacked libraries, and their loader.
find_libraries() {
    local folder
    loader=$(find "$work/tree" -name 'ld-linux*.so.*' -type f -print -quit)
    folder=$(find "$work/tree" -name libc.so.6 -printf '%h\n' -quit)
    if [ -z "$loader" ] || [ -z "$folder" ]; then fail "the packages lack libc or its loader"; fi
    libraries=$folder:$work/tree/usr/lib/$(basename "$folder")
}

# Downloads QEMU from a suite; fails if the suite has no QEMU or an older one.
fetch_qemu() {
    local suite=$1 version
    use_suite "$suite" || return 1
    version=$(apt-cache "${apt_options[@]}" policy qemu-system-x86 | awk '/Candidate:/ {print $2}')
    if [ -z "$version" ] || ! dpkg --compare-versions "${version#*:}" ge "$version_min"; then return 1; fi
    note "qemu $version from $suite"
    unpack qemu-system-x86
}

assemble_qemu() {
    local program library firmware
    find_libraries
    program=$work/tree/usr/bin/qemu-system-x86_64
    [ -x "$program" ] || fail "the packages of QEMU lack the program"
    rm -rf "$prefix.new"
    mkdir -p "$prefix.new"/{lib,share,run}
    "$loader" --library-path "$libraries" --list "$program" | awk '/=>/ {print $3}' | sort -u |
        while read -r library; do cp -L "$library" "$prefix.new/lib/"; done
    cp -L "$loader" "$prefix.new/lib/loader"
    cp "$program" "$prefix.new/run/qemu-system-x86_64"
    for firmware in qboot.rom pvh.bin; do
        find "$work/tree/usr" -name "$firmware" \( -type f -o -type l \) -exec cp -L {} "$prefix.new/share/" \; -quit
        [ -s "$prefix.new/share/$firmware" ] || fail "the packages lack the firmware $firmware"
    done
    # The uid of a machine must be able to read it.
    chmod -R u=rwX,go=rX "$prefix.new"
}

# Prints the version of the QEMU in a prefix.
qemu_version() {
    "$1/lib/loader" --library-path "$1/lib" "$1/run/qemu-system-x86_64" --version 2>/dev/null |
        sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p'
}

get_qemu() {
    local suite found
    for suite in stable bookworm-backports testing unstable; do
        fetch_qemu "$suite" || continue
        assemble_qemu
        found=$(qemu_version "$prefix.new")
        version_at_least "${found:-0}" "$version_min" || fail "QEMU reports version ${found:-unknown}, but $version_min or newer is required"
        rm -rf "$prefix"
        mv "$prefix.new" "$prefix"
        note "qemu $found in $prefix"
        return
    done
    fail "no suite of $mirror has QEMU $version_min or newer"
}

get_kernel() {
    local image release module file
    use_suite "$kernel_suite" || fail "could not read the packages of $kernel_suite"
    # The kernel is downloaded without the dependencies of its package, and lz4 to unpack it.
    image=$(apt-cache "${apt_options[@]}" depends linux-image-cloud-amd64 |
        awk '/Depends: linux-image-6\.1\..*-cloud-amd64/ && !found++ {print $2}')
    [ -n "$image" ] || fail "$kernel_suite has no cloud kernel"
    (cd "$work" && apt-get "${apt_options[@]}" download "$image" >"$work/log" 2>&1) ||
        { tail -n 3 "$work/log" >&2; fail "could not download $image"; }
    unpack lz4 || fail "could not download lz4"
    dpkg-deb -x "$work/$image"_*.deb "$work/tree"
    find_libraries
    release=${image#linux-image-}
    rm -rf "$vm_dir.new"
    mkdir -p "$vm_dir.new/modules"
    uncompress_kernel "$work/tree/boot/vmlinuz-$release" "$vm_dir.new/vmlinux" \
        "$loader" --library-path "$libraries" "$work/tree/usr/bin/lz4"
    for module in "${modules[@]}"; do
        file=$(find "$work/tree/lib/modules/$release" "$work/tree/usr/lib/modules/$release" \
            -name "$module.ko" -print -quit 2>/dev/null) || file=
        [ -n "$file" ] || continue
        cp "$file" "$vm_dir.new/modules/$module.ko"
        printf '%s.ko\n' "$module" >> "$vm_dir.new/modules/order"
    done
    printf '%s\n' "$release" > "$vm_dir.new/release"
    chmod -R u=rwX,go=rX "$vm_dir.new"
    rm -rf "$vm_dir"
    mv "$vm_dir.new" "$vm_dir"
    note "kernel $release in $vm_dir"
}

mkdir -p "$(dirname "$prefix")" "$(dirname "$vm_dir")"
if found=$(qemu_version "$prefix") && version_at_least "${found:-0}" "$version_min"; then
    note "qemu $found"
else
    get_qemu
fi
if [ -s "$vm_dir/vmlinux" ] && [ -s "$vm_dir/modules/order" ] && [ -s "$vm_dir/release" ]; then
    note "kernel $(cat "$vm_dir/release")"
else
    get_kernel
fi
