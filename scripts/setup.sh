#!/usr/bin/env bash
# Prepares this machine: system packages, cargo, CRIU, QEMU. Does nothing that is already done; says what it does.
#
#   scripts/setup.sh [--test] [--bench]
#
#   --test    also what the tests need
#   --bench   also what the benchmarks compare with
#
# Works on Debian and Ubuntu. Elsewhere it lists what is missing, to be installed by hand.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# What is looked for, and the package that brings it. A name with a slash is a file, any other a program.
base=(
    mkfs.btrfs:btrfs-progs
    nft:nftables
    ip:iproute2
    mmdebstrap:mmdebstrap
    mkfs.ext4:e2fsprogs
    mount:mount
    setpriv:util-linux
    curl:curl
    cc:gcc
    make:make
    /usr/include/stdlib.h:libc6-dev
    /etc/ssl/certs/ca-certificates.crt:ca-certificates
)
test_needs=(
    strace:strace
    git:git
    ssh:openssh-client
    rsync:rsync
    python3:python3
    /usr/lib/python3/dist-packages/ensurepip-or-venv:python3-venv
    shellcheck:shellcheck
    openssl:openssl
    pgrep:procps
    docker-registry:docker-registry
    skopeo:skopeo
    umoci:umoci
)
bench_needs=(crun:crun)

# The oldest CRIU that restores on kernels from 6.16 on.
criu_min=4.2

# The oldest QEMU that keeps microVMs from writing to the RAM they share.
qemu_min=10

main() {
    local wanted=("${base[@]}") argument
    for argument in "$@"; do
        case $argument in
        --test) wanted+=("${test_needs[@]}") ;;
        --bench) wanted+=("${bench_needs[@]}") ;;
        *) fail "unknown argument: $argument" ;;
        esac
    done
    need_root "$@"
    check_kernel
    install_packages "${wanted[@]}"
    install_cargo
    install_criu
    install_qemu
    case " $* " in *" --test "*) install_node ;; esac
    case " $* " in *" --bench "*) unpack_nginx && unpack_sshd ;; esac
}

check_kernel() {
    grep -qw btrfs /proc/filesystems || modprobe btrfs 2>/dev/null ||
        fail "the kernel has no btrfs" "Burrow keeps sandboxes' disks on it; a distribution's own kernel has it"
    [ -e /dev/loop-control ] || modprobe loop 2>/dev/null ||
        note "there are no loop devices: set pool.path to a directory on btrfs (see docs/configuration.md)"
}

# Whether what a package brings is there.
present() {
    case $1 in
    *ensurepip-or-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    */*) [ -e "$1" ] ;;
    *) PATH=$PATH:/usr/sbin:/sbin has "$1" ;;
    esac
}

install_packages() {
    local need package missing=()
    for need in "$@"; do
        package=${need##*:}
        present "${need%:*}" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! has apt-get; then
        fail "these are missing on this machine; their names are Debian's:" "${missing[@]}" \
            "install them with your distribution's package manager, then run this again"
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local options=(-y -q --no-install-recommends -o Dpkg::Use-Pty=0)
    # A machine that is up to date needs no new lists; a fresh one has none at all.
    if ! apt-get install "${options[@]}" "${missing[@]}" >/dev/null 2>&1; then
        apt-get update -q >/dev/null || fail "could not read the package lists" "does \`apt-get update\` work?"
        apt-get install "${options[@]}" "${missing[@]}" ||
            fail "could not install ${missing[*]}" "see what apt-get said above"
    fi
}

install_cargo() {
    local version
    if version=$(cargo_version); then
        note "cargo $version"
        return
    fi
    say "installing Rust $rust_min or newer for $(build_user), with rustup's own installer"
    if as_builder sh -c 'curl --proto =https --tlsv1.2 -fsS --max-time 60 https://sh.rustup.rs |
        sh -s -- -y -q --profile minimal --component clippy --component rustfmt'; then
        version=$(cargo_version) && note "cargo $version" && return
    fi
    if has apt-get; then
        note "that did not work: trying the distribution's own"
        apt-get install -y -q --no-install-recommends cargo rustc >/dev/null 2>&1 || true
        version=$(cargo_version) && note "cargo $version" && return
    fi
    fail "there is no cargo $rust_min or newer" "install Rust as https://rustup.rs says, then run this again"
}

# Process state of sandboxes needs CRIU; sandboxes themselves do not, so a failure here stops nothing.
install_criu() {
    local criu
    for criu in "$lib_dir/criu/sbin/criu" criu; do
        if has "$criu" && version_at_least "$("$criu" --version | awk '/^Version:/ {print $2}')" "$criu_min"; then
            note "criu $("$criu" --version | awk '/^Version:/ {print $2}')"
            return
        fi
    done
    say "installing CRIU $criu_min or newer into $lib_dir/criu (nothing else on this machine changes)"
    "$repo/scripts/get-criu.sh" "$lib_dir/criu" "$criu_min" ||
        note "no CRIU: sandboxes work, but their processes cannot be kept on disk. \`burrow doctor\` says more."
}

# Hardware isolation needs QEMU and a kernel for its guests; containers do not, so a failure here stops nothing.
install_qemu() {
    say "looking for QEMU $qemu_min or newer in $lib_dir/qemu and a guests' kernel in $lib_dir/vm"
    "$repo/scripts/get-qemu.sh" "$lib_dir/qemu" "$lib_dir/vm" "$qemu_min" ||
        note "no QEMU: sandboxes run as containers, not as microVMs. \`burrow doctor\` says more."
}

# For the tests of the TypeScript SDK and the MCP inspector, which are left out without it. Older distributions have a Node.js that is too old.
install_node() {
    local version candidate
    if version=$(node_version); then
        note "node $version"
        return
    fi
    candidate=$(apt-cache policy nodejs 2>/dev/null | awk '/Candidate:/ {print $2}') || candidate=none
    if [[ $candidate =~ ^[0-9] ]] && version_at_least "$candidate" 20; then
        say "installing nodejs npm"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o Dpkg::Use-Pty=0 nodejs npm >/dev/null 2>&1 || true
        version=$(node_version) && note "node $version" && return
    fi
    note "no Node.js 20: the TypeScript SDK and the MCP inspector are not tested here. https://nodejs.org says how to install it."
}

# The proxy the benchmarks compare with. Unpacked, not installed: its package would start a web server on this machine.
unpack_nginx() {
    local work
    has "$lib_dir/nginx/usr/sbin/nginx" && return
    has apt-get || { note "no apt-get: the gateway is measured only where nginx is in PATH"; return; }
    say "unpacking nginx into $lib_dir/nginx (nothing else on this machine changes)"
    work=$(mktemp -d)
    chmod 755 "$work"
    if (cd "$work" && apt-get download -q -o APT::Sandbox::User=root nginx >/dev/null 2>&1) &&
        mkdir -p "$lib_dir/nginx" && dpkg-deb -x "$work"/nginx_*.deb "$lib_dir/nginx" &&
        "$lib_dir/nginx/usr/sbin/nginx" -v 2>/dev/null; then
        note "nginx in $lib_dir/nginx"
    else
        rm -rf "$lib_dir/nginx"
        note "no nginx: the gateway is measured only where it is in PATH"
    fi
    rm -rf "$work"
}

# OpenSSH's server, likewise: installed, it would serve this machine.
unpack_sshd() {
    local work
    has "$lib_dir/openssh/usr/sbin/sshd" && return
    has apt-get || { note "no apt-get: SSH is measured only where sshd is in PATH"; return; }
    say "unpacking OpenSSH's server into $lib_dir/openssh (nothing else on this machine changes)"
    work=$(mktemp -d)
    chmod 755 "$work"
    # With the one library that only it needs, beside the program.
    if (cd "$work" && apt-get download -q -o APT::Sandbox::User=root openssh-server libwrap0 >/dev/null 2>&1) &&
        mkdir -p "$lib_dir/openssh" && dpkg-deb -x "$work"/openssh-server_*.deb "$lib_dir/openssh" &&
        dpkg-deb -x "$work"/libwrap0_*.deb "$work/libwrap" &&
        find "$work/libwrap" -name 'libwrap.so.*' -exec cp -P -t "$lib_dir/openssh/usr/sbin" {} + &&
        ! LD_LIBRARY_PATH=$lib_dir/openssh/usr/sbin ldd "$lib_dir/openssh/usr/sbin/sshd" | grep -q 'not found'; then
        note "sshd in $lib_dir/openssh"
    else
        rm -rf "$lib_dir/openssh"
        note "no sshd: SSH is measured only where it is in PATH"
    fi
    rm -rf "$work"
}

main "$@"
