#!/usr/bin/env bash
# Prepares this machine: system packages, cargo, CRIU, QEMU. Skips completed steps and reports the others.
#
#   scripts/setup.sh [--test] [--bench]
#
#   --test    also install the tools that the tests need
#   --bench   also install the programs that the benchmarks compare with
#
# Works on Debian and Ubuntu. On other distributions it lists the missing packages.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# Required programs or files, and the packages that provide them. A name with a slash is a file, any other a program.
base=(
    mkfs.btrfs:btrfs-progs
    nft:nftables
    ip:iproute2
    mmdebstrap:mmdebstrap
    mkfs.ext4:e2fsprogs
    mount:mount
    setpriv:util-linux
    tar:tar
    gzip:gzip
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

# Older versions of CRIU cannot restore on kernel 6.16 or newer.
criu_min=4.2

# Older versions of QEMU cannot prevent microVMs from writing to shared RAM.
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
        fail "the kernel does not support btrfs" "Burrow stores the disks of sandboxes on btrfs; the default kernels of distributions support it"
    [ -e /dev/loop-control ] || modprobe loop 2>/dev/null ||
        note "loop devices are missing: set pool.path to a directory on btrfs (see docs/configuration.md)"
}

# Whether a required program or file exists.
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
        fail "these packages are missing (Debian names):" "${missing[@]}" \
            "install them with your distribution's package manager, then run this again"
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local options=(-y -q --no-install-recommends -o Dpkg::Use-Pty=0)
    # Try without updating the package lists first, which is slow. A fresh machine has no lists.
    if ! apt-get install "${options[@]}" "${missing[@]}" >/dev/null 2>&1; then
        apt-get update -q >/dev/null || fail "could not update the package lists" "run \`apt-get update\` and fix the errors that it reports"
        apt-get install "${options[@]}" "${missing[@]}" ||
            fail "could not install ${missing[*]}" "see the output of apt-get above"
    fi
}

install_cargo() {
    local version
    if version=$(cargo_version); then
        note "cargo $version"
        return
    fi
    say "installing Rust $rust_min or newer for $(build_user) with rustup"
    if as_builder sh -c 'curl --proto =https --tlsv1.2 -fsS --max-time 60 https://sh.rustup.rs |
        sh -s -- -y -q --profile minimal --component clippy --component rustfmt'; then
        version=$(cargo_version) && note "cargo $version" && return
    fi
    if has apt-get; then
        note "installing with rustup failed: trying the packages of the distribution"
        apt-get install -y -q --no-install-recommends cargo rustc >/dev/null 2>&1 || true
        version=$(cargo_version) && note "cargo $version" && return
    fi
    fail "could not install cargo $rust_min or newer" "install Rust from https://rustup.rs, then run this again"
}

# Only saving the processes of sandboxes requires CRIU, so a failure here is not fatal.
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
        note "CRIU is not installed: sandboxes work, but their processes cannot be saved to disk. \`burrow doctor\` has details."
}

# Only microVMs require QEMU and a guest kernel, so a failure here is not fatal.
install_qemu() {
    say "checking for QEMU $qemu_min or newer in $lib_dir/qemu and a guest kernel in $lib_dir/vm"
    "$repo/scripts/get-qemu.sh" "$lib_dir/qemu" "$lib_dir/vm" "$qemu_min" ||
        note "QEMU is not installed: sandboxes run as containers, not as microVMs. \`burrow doctor\` has details."
}

# Installs Node.js for the tests of the TypeScript SDK and the MCP inspector, which are skipped without it. The version of older distributions is too old.
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
    note "Node.js 20 is not installed: the tests of the TypeScript SDK and the MCP inspector are skipped. See https://nodejs.org"
}

# Unpacks nginx, which the benchmarks compare with. It is not installed, because its package would start a web server.
unpack_nginx() {
    local work
    has "$lib_dir/nginx/usr/sbin/nginx" && return
    has apt-get || { note "apt-get is missing: the gateway benchmark runs only if nginx is in PATH"; return; }
    say "unpacking nginx into $lib_dir/nginx (nothing else on this machine changes)"
    work=$(mktemp -d)
    chmod 755 "$work"
    if (cd "$work" && apt-get download -q -o APT::Sandbox::User=root nginx >/dev/null 2>&1) &&
        mkdir -p "$lib_dir/nginx" && dpkg-deb -x "$work"/nginx_*.deb "$lib_dir/nginx" &&
        "$lib_dir/nginx/usr/sbin/nginx" -v 2>/dev/null; then
        note "nginx in $lib_dir/nginx"
    else
        rm -rf "$lib_dir/nginx"
        note "nginx is missing: the gateway benchmark runs only if it is in PATH"
    fi
    rm -rf "$work"
}

# Unpacks the server of OpenSSH. It is not installed, because its package would start an SSH server.
unpack_sshd() {
    local work
    has "$lib_dir/openssh/usr/sbin/sshd" && return
    has apt-get || { note "apt-get is missing: the SSH benchmark runs only if sshd is in PATH"; return; }
    say "unpacking the OpenSSH server into $lib_dir/openssh (nothing else on this machine changes)"
    work=$(mktemp -d)
    chmod 755 "$work"
    # Copy the one library that is not installed otherwise to the directory of the program.
    if (cd "$work" && apt-get download -q -o APT::Sandbox::User=root openssh-server libwrap0 >/dev/null 2>&1) &&
        mkdir -p "$lib_dir/openssh" && dpkg-deb -x "$work"/openssh-server_*.deb "$lib_dir/openssh" &&
        dpkg-deb -x "$work"/libwrap0_*.deb "$work/libwrap" &&
        find "$work/libwrap" -name 'libwrap.so.*' -exec cp -P -t "$lib_dir/openssh/usr/sbin" {} + &&
        ! LD_LIBRARY_PATH=$lib_dir/openssh/usr/sbin ldd "$lib_dir/openssh/usr/sbin/sshd" | grep -q 'not found'; then
        note "sshd in $lib_dir/openssh"
    else
        rm -rf "$lib_dir/openssh"
        note "sshd is missing: the SSH benchmark runs only if it is in PATH"
    fi
    rm -rf "$work"
}

main "$@"
