#!/usr/bin/env bash
# Tests the AppArmor profile of containers on a kernel with AppArmor: a Debian kernel in an emulated machine.
#
#   scripts/test-apparmor.sh BURROW GUEST LIB_DIR
#
# LIB_DIR contains QEMU and CRIU, as installed by scripts/setup.sh. The Debian packages, including the kernel, are downloaded from the
# mirror that this machine installs from. Takes about ten minutes; `make test-all` runs it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

burrow=$(realpath "${1:?usage: test-apparmor.sh BURROW GUEST LIB_DIR}")
guest=$(realpath "${2:?usage: test-apparmor.sh BURROW GUEST LIB_DIR}")
lib=$(realpath "${3:?usage: test-apparmor.sh BURROW GUEST LIB_DIR}")
cd "$repo"
# shellcheck source=scripts/debian.sh
. scripts/debian.sh
trap 'rm -rf "$work"' EXIT
# Time limit of the machine in seconds.
limit=1800

# The modules that the machine needs to find its disk, in load order.
boot_modules=(virtio virtio_ring virtio_mmio virtio_blk crc16 crc32c_generic mbcache jbd2 ext4)

make_root() {
    local root=$1
    unpack bash coreutils sed grep gawk mount util-linux procps kmod iproute2 nftables btrfs-progs e2fsprogs apparmor \
        busybox-static lz4 ca-certificates base-files gzip tar
    mv "$work/tree" "$root"
    mkdir -p "$root"/{proc,sys,dev,run,tmp,root,etc/burrow,var/lib/burrow,usr/local/lib/burrow}
    # The installed CRIU is started by a script.
    [ -e "$root/bin/sh" ] || ln -s bash "$root/bin/sh"
    printf 'root:x:0:0::/root:/bin/bash\n' > "$root/etc/passwd"
    printf 'root:x:0:\n' > "$root/etc/group"
    chroot "$root" /sbin/depmod "$release"
    cp "$burrow" "$root/usr/local/lib/burrow/burrow"
    strip --strip-debug "$root/usr/local/lib/burrow/burrow"
    cp "$guest" "$root/usr/local/lib/burrow/burrow-guest"
    cp -a "$lib/criu" "$root/usr/local/lib/burrow/criu"
    sed -i "s#$lib#/usr/local/lib/burrow#g" "$root/usr/local/lib/burrow/criu/sbin/criu"
    # The image of the sandboxes: a shell and its tools.
    mkdir -p "$work/image"/{bin,etc,proc,sys,dev,tmp,root}
    cp "$root/bin/busybox" "$work/image/bin/busybox"
    for name in sh cat sleep echo; do ln -s busybox "$work/image/bin/$name"; done
    cp "$root/etc/passwd" "$root/etc/group" "$work/image/etc/"
    tar -C "$work/image" -cf "$root/image.tar" .
    cp scripts/test-apparmor-inside.sh "$root/inside.sh"
}

make_initrd() {
    local root=$1 initrd=$work/initrd-tree module file
    mkdir -p "$initrd"/{bin,proc,sys,dev,root}
    cp "$root/bin/busybox" "$initrd/bin/busybox"
    {
        printf '#!/bin/busybox sh\n'
        printf '/bin/busybox mount -t devtmpfs dev /dev\n'
        for module in "${boot_modules[@]}"; do
            file=$(find "$root/lib/modules/$release" -name "$module.ko" -print -quit)
            # Some modules are built in.
            [ -n "$file" ] || continue
            cp "$file" "$initrd/$module.ko"
            printf '/bin/busybox insmod /%s.ko\n' "$module"
        done
        printf '/bin/busybox mount -t ext4 /dev/vda /root\n'
        printf 'exec /bin/busybox switch_root /root /bin/bash /inside.sh\n'
    } > "$initrd/init"
    chmod +x "$initrd/init"
    (cd "$initrd" && find . | "$root/bin/busybox" cpio -o -H newc 2>/dev/null) > "$work/initrd"
}

use_suite bookworm || fail "could not read the packages of bookworm"
say "fetching a kernel with AppArmor"
image=$(apt-cache "${apt_options[@]}" depends linux-image-cloud-amd64 |
    awk '/Depends: linux-image-6\.1\..*-cloud-amd64/ && !found++ {print $2}')
[ -n "$image" ] || fail "bookworm has no cloud kernel"
release=${image#linux-image-}
(cd "$work" && apt-get "${apt_options[@]}" download "$image" >"$work/log" 2>&1) || fail "could not download $image"
dpkg-deb -x "$work/$image"_*.deb "$work/tree"
say "building a machine"
make_root "$work/root"
make_initrd "$work/root"
vmlinux=$work/vmlinux
# shellcheck source=scripts/kernel.sh
. scripts/kernel.sh
loader=$work/root/lib64/ld-linux-x86-64.so.2
libraries=$work/root/lib/x86_64-linux-gnu:$work/root/usr/lib/x86_64-linux-gnu
uncompress_kernel "$work/root/boot/vmlinuz-$release" "$vmlinux" "$loader" --library-path "$libraries" "$work/root/usr/bin/lz4"
truncate -s 8G "$work/disk"
mkfs.ext4 -q -F -d "$work/root" "$work/disk"
# On a busy host the kernel cannot measure its clocks against the emulated timer, and waits for ever.
no_calibration="lpj=4000000 no_timer_check tsc_early_khz=1000000"
say "booting it"
(cd "$lib/qemu" && timeout "$limit" lib/ld-linux-x86-64.so.2 --library-path lib run/qemu-system-x86_64 -L share \
    -M microvm -bios qboot.rom -accel tcg,thread=multi -cpu max -smp 2 -m 3072 -nodefaults -no-user-config -display none \
    -no-reboot -kernel "$vmlinux" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1 apparmor=1 security=apparmor $no_calibration" \
    -drive "id=disk,file=$work/disk,format=raw,if=none" -device virtio-blk-device,drive=disk -device virtio-rng-device \
    -serial stdio) </dev/null | tee "$work/console" >&2
grep -q 'apparmor: all passed' "$work/console" || fail "the test in the machine failed"
note "AppArmor: ok"
