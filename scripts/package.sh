#!/usr/bin/env bash
# Builds the packages in target/packages, from a clean clone: run by `make package`.
#
#   burrow-VERSION-linux-ARCH.tar.gz          everything, with install.sh
#   burrow_VERSION_ARCH.deb                   the same for Debian 12 and 13, Ubuntu 22.04 and 24.04
#   burrow-client-VERSION-linux-ARCH.tar.gz   the client alone, a static program
#   burrow-VERSION-oci-ARCH.tar               an image of the daemon for `docker load`
#   SHA256SUMS
#
# Programs and the default image that exist already are used instead of new ones if these variables name them:
#   BURROW_PACKAGE_PROGRAM, BURROW_PACKAGE_GUEST, BURROW_PACKAGE_CLIENT   files
#   BURROW_PACKAGE_PAGES     a program that writes the manual pages, if not the packaged one
#   BURROW_PACKAGE_IMAGE     a folder with debian.tar and sources
#   BURROW_PACKAGE_VERSION   another version than that of Cargo.toml
#   BURROW_PACKAGE_ONLY      some of: tar deb client oci
# The same inputs give the same packages: file times are SOURCE_DATE_EPOCH, that of the last commit by default.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_root "$@"
cd "$repo"
umask 022
export LC_ALL=C.UTF-8

version=${BURROW_PACKAGE_VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$repo" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
machine=$(uname -m)
case $machine in
x86_64) deb_arch=amd64 oci_arch=amd64 ;;
aarch64) deb_arch=arm64 oci_arch=arm64 ;;
*) fail "packages are built on x86_64 and aarch64 only; this machine is $machine" ;;
esac
out=$repo/target/packages
only=${BURROW_PACKAGE_ONLY:-tar deb client oci}
# The newest version of glibc that the oldest supported distribution has: Ubuntu 22.04.
glibc_max=2.35
# The packages whose programs the daemon runs.
depends=(btrfs-progs nftables iproute2 e2fsprogs mount util-linux tar gzip ca-certificates)

work=$(mktemp -d -t burrow-package-XXXXXX)
daemon=
cleanup() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    umount -l "$work"/state/run/* 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

wants() { [[ " $only " == *" $1 "* ]]; }

# Archives the contents of a folder so that the same files give the same bytes.
pack() { # FOLDER [TAR OPTIONS...]
    local folder=$1
    shift
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=posix \
        --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime --directory "$folder" "$@"
}

# --- The programs ---

build_programs() {
    if [ -z "${BURROW_PACKAGE_PROGRAM:-}" ]; then
        say "building the program (the first time takes some minutes)"
        as_builder cargo build --locked --release --package burrow-cli
    fi
    program=$(realpath "${BURROW_PACKAGE_PROGRAM:-target/release/burrow}")
    [ -n "${BURROW_PACKAGE_GUEST:-}" ] || build_guest
    guest=$(realpath "${BURROW_PACKAGE_GUEST:-$guest_binary}")
    local needed
    needed=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    note "$(basename "$program"): $(stat -c %s "$program") bytes, needs ${needed:-no glibc}"
    version_at_least "$glibc_max" "${needed#GLIBC_}" ||
        fail "$program needs $needed, which Ubuntu 22.04 does not have ($glibc_max)" "build it on Debian 12 or Ubuntu 22.04"
}

# The client without the daemon, linked statically with musl, so that it runs on every distribution.
build_client() {
    client=
    if [ -n "${BURROW_PACKAGE_CLIENT:-}" ]; then
        client=$(realpath "$BURROW_PACKAGE_CLIENT")
        return
    fi
    local triple=$machine-unknown-linux-musl
    has musl-gcc || { DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends musl-tools >/dev/null 2>&1 || true; }
    if ! has musl-gcc || ! as_builder rustup target add "$triple" >/dev/null 2>&1; then
        note "the client is not packaged: it needs musl-gcc (Debian: musl-tools) and \`rustup target add $triple\`"
        return
    fi
    say "building the client"
    as_builder cargo build --locked --release --package burrow-cli --no-default-features --target "$triple"
    client=$repo/target/$triple/release/burrow
}

# --- The default image ---

# Builds it with a daemon of its own, like `burrow up` on a host with this machine's mirror.
build_image() {
    if [ -n "${BURROW_PACKAGE_IMAGE:-}" ]; then
        image=$(realpath "$BURROW_PACKAGE_IMAGE")
        return
    fi
    say "building the default image"
    local state=$work/state address='' burrow=$program
    image=$work/image
    mkdir -p "$state" "$image"
    cat > "$state/config.toml" <<CONFIG
listen = "127.0.0.1:0"
state_dir = "$state/state"
run_dir = "$state/run"
admin_key_file = "$state/admin.key"
[pool]
size = "6G"
[runtime]
guest = "$guest"
cgroup = "burrow-package-$$"
CONFIG
    "$burrow" serve --config "$state/config.toml" > "$state/log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        address=$(cat "$state/run/address" 2>/dev/null || true)
        [ -n "$address" ] && break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    [ -n "$address" ] || { tail -n 20 "$state/log" >&2; fail "the daemon that builds the default image did not start"; }
    local as_client=(env BURROW_URL="http://$address" BURROW_API_KEY="$(cat "$state/admin.key")" "$burrow")
    "${as_client[@]}" image build >/dev/null
    "${as_client[@]}" image export debian --compression zstd -o "$image/debian.tar" >&2
    "${as_client[@]}" run --rm --isolation container --net none -- cat /etc/apt/sources.list |
        grep -o 'https\?://[^ ]*' | sort -u > "$image/sources"
    kill "$daemon"
    wait "$daemon" || true
    daemon=
    rmdir /sys/fs/cgroup{,/*}/"burrow-package-$$"{,-vm} 2>/dev/null || true
}

# --- The files that all packages of the daemon share ---

# stage ROOT SHARE LIB: fills LIB and SHARE below ROOT.
stage() {
    local root=$1 share=$1$2 lib=$1$3 pages=${BURROW_PACKAGE_PAGES:-$program} name
    mkdir -p "$lib/image" "$share/doc/burrow"
    install -m 755 "$program" "$lib/burrow"
    # Nothing is lost: a release build has no symbols.
    strip "$lib/burrow"
    install -m 755 "$guest" "$lib/burrow-guest"
    for name in criu qemu vm; do
        if [ -d "$lib_dir/$name" ]; then cp -a "$lib_dir/$name" "$lib/$name"; else note "without $name: scripts/setup.sh could not install it"; fi
    done
    # The installed wrapper contains the path of this machine's installation.
    if [ -e "$lib/criu/sbin/criu" ]; then
        # shellcheck disable=SC2016 # The wrapper expands these.
        printf '%s\n' '#!/bin/sh' 'prefix=${0%/sbin/criu}' \
            'exec "$prefix/lib/loader" --library-path "$prefix/lib" "$prefix/sbin/criu.bin" "$@"' > "$lib/criu/sbin/criu"
        chmod 755 "$lib/criu/sbin/criu"
    fi
    for name in python.tar.gz typescript.tgz; do
        if [ -e "target/sdk/$name" ]; then install -D -m 644 "target/sdk/$name" "$lib/sdk/$name"; fi
    done
    install -m 644 "$image/debian.tar" "$image/sources" "$lib/image/"
    install -m 755 deploy/remove.sh "$lib/remove.sh"
    extras "$pages" "$share"
    install -m 644 docs/configuration.md docs/install.md LICENSE "$share/doc/burrow/"
    chmod -R u=rwX,go=rX "$root"
}

# Manual pages and completions.
extras() { # PROGRAM SHARE
    "$1" manual "$2/man/man1"
    gzip -9 -n "$2"/man/man1/*.1
    mkdir -p "$2/bash-completion/completions" "$2/zsh/site-functions" "$2/fish/vendor_completions.d"
    "$1" completion bash > "$2/bash-completion/completions/burrow"
    "$1" completion zsh > "$2/zsh/site-functions/_burrow"
    "$1" completion fish > "$2/fish/vendor_completions.d/burrow.fish"
}

# --- The packages ---

make_tarball() {
    local name=burrow-$version-linux-$machine root
    say "$name.tar.gz"
    root=$work/tar/$name
    mkdir -p "$root"
    stage "$root" /share /lib/burrow
    install -m 755 deploy/install.sh "$root/install.sh"
    install -m 755 deploy/uninstall.sh "$root/lib/burrow/uninstall.sh"
    install -m 644 deploy/burrow.service LICENSE "$root/"
    install -m 644 docs/install.md "$root/README.md"
    pack "$work/tar" "$name" | gzip -n -6 > "$out/$name.tar.gz"
}

make_deb() {
    local name=burrow_${version}_$deb_arch.deb root=$work/deb list
    say "$name"
    mkdir -p "$root"/{DEBIAN,usr/bin,usr/lib/systemd/system,usr/lib/modules-load.d,etc/burrow}
    stage "$root" /usr/share /usr/lib/burrow
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    mv "$root/usr/share/doc/burrow/LICENSE" "$root/usr/share/doc/burrow/copyright"
    ln -s ../lib/burrow/burrow "$root/usr/bin/burrow"
    sed 's|@PREFIX@|/usr|g' deploy/burrow.service > "$root/usr/lib/systemd/system/burrow.service"
    printf 'btrfs\nloop\n' > "$root/usr/lib/modules-load.d/burrow.conf"
    install -m 644 deploy/deb/config.toml "$root/etc/burrow/config.toml"
    list=$(printf ', %s' "${depends[@]}")
    cat > "$root/DEBIAN/control" <<CONTROL
Package: burrow
Version: $version
Architecture: $deb_arch
Maintainer: The Burrow authors <burrow@localhost>
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= $glibc_max), libgcc-s1$list
Recommends: apparmor, kmod
Suggests: mmdebstrap
Section: admin
Priority: optional
Description: persistent sandboxes with memory for AI agents
 The daemon, its command line, and the programs that it uses: CRIU, QEMU and a
 kernel for microVMs, each in a directory of its own, and the default image of
 sandboxes.
CONTROL
    printf '/etc/burrow/config.toml\n' > "$root/DEBIAN/conffiles"
    install -m 755 deploy/deb/postinst deploy/deb/prerm "$root/DEBIAN/"
    { sed '/^main "\$@"$/d' deploy/remove.sh && cat deploy/deb/postrm; } > "$root/DEBIAN/postrm"
    chmod 755 "$root/DEBIAN/postrm"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) > "$work/md5sums"
    install -m 644 "$work/md5sums" "$root/DEBIAN/md5sums"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    # The dpkg of Debian 12 and of Ubuntu 22.04 reads zstd, which unpacks many times faster than xz.
    dpkg-deb --root-owner-group -Zzstd -z9 --build "$root" "$out/$name" >/dev/null
}

make_client() {
    local name=burrow-client-$version-linux-$machine root
    [ -n "$client" ] || return 0
    say "$name.tar.gz"
    root=$work/client/$name
    mkdir -p "$root"
    install -D -m 755 "$client" "$root/bin/burrow"
    strip "$root/bin/burrow"
    extras "$client" "$root/share"
    install -m 644 LICENSE "$root/"
    pack "$work/client" "$name" | gzip -n -9 > "$out/$name.tar.gz"
}

# An archive that `docker load`, podman and skopeo read: an OCI image layout with a manifest.json beside it. One layer: a small Debian
# with the files of the .deb.
make_oci() {
    local name=burrow-$version-oci-$oci_arch.tar layer=$work/layer.tar blobs=$work/oci/blobs/sha256 diff config manifest root=$work/oci-root list
    say "$name"
    has mmdebstrap || fail "mmdebstrap is missing" "run: scripts/setup.sh"
    list=$(IFS=,; printf '%s' "${depends[*]}")
    mmdebstrap --quiet --variant=minbase --include="$list,libgcc-s1" --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' bookworm "$root" >&2
    stage "$root" /usr/share /usr/lib/burrow
    ln -s ../lib/burrow/burrow "$root/usr/bin/burrow"
    install -m 644 deploy/oci/config.toml "$root/usr/lib/burrow/config.toml"
    mkdir -p "$root/etc/burrow"
    install -m 755 deploy/oci/entrypoint.sh "$root/usr/lib/burrow/entrypoint.sh"
    # They differ in each build.
    rm -rf "$root"/var/cache/* "$root"/var/log/* "$root"/var/lib/apt/lists/* "$root/etc/machine-id" "$root/etc/resolv.conf" "$root/etc/hostname"
    pack "$root" . > "$layer"
    mkdir -p "$blobs"
    diff=$(sha256sum < "$layer" | cut -d' ' -f1)
    gzip -n -6 < "$layer" > "$work/blob"
    local digest size
    add_blob() { # sets digest and size
        digest=$(sha256sum < "$work/blob" | cut -d' ' -f1)
        size=$(stat -c %s "$work/blob")
        mv "$work/blob" "$blobs/$digest"
    }
    add_blob
    local layer_digest=$digest layer_size=$size created
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    printf '{"created":"%s","architecture":"%s","os":"linux","config":{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"Entrypoint":["/usr/lib/burrow/entrypoint.sh"],"ExposedPorts":{"7700/tcp":{}},"StopSignal":"SIGTERM"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"scripts/package.sh"}]}' \
        "$created" "$oci_arch" "$diff" "$created" > "$work/blob"
    add_blob
    config=$digest
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%s}]}' \
        "$config" "$size" "$layer_digest" "$layer_size" > "$work/blob"
    add_blob
    manifest=$digest
    printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"org.opencontainers.image.ref.name":"burrow:%s"}}]}' \
        "$manifest" "$size" "$version" > "$work/oci/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' > "$work/oci/oci-layout"
    printf '[{"Config":"blobs/sha256/%s","RepoTags":["burrow:%s"],"Layers":["blobs/sha256/%s"]}]' "$config" "$version" "$layer_digest" > "$work/oci/manifest.json"
    pack "$work/oci" . > "$out/$name"
}

mkdir -p "$out"
rm -f "$out"/burrow[-_]* "$out/SHA256SUMS"
if wants tar || wants deb || wants oci; then
    build_programs
    "$repo/scripts/build-sdks.sh"
    build_image
fi
! wants tar || make_tarball
! wants deb || make_deb
if wants client; then
    build_client
    make_client
fi
! wants oci || make_oci
(cd "$out" && sha256sum burrow[-_]* > SHA256SUMS)
say "packages in ${out#"$repo/"}"
(cd "$out" && ls -l burrow[-_]*) | awk '{print $5, $9}' >&2
