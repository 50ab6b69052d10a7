#!/usr/bin/env bash
# Runs the benchmarks on this machine and prints the results; the JSON is written to target/bench/foundation.json.
#
#   scripts/bench.sh [--quick] [--only GROUP]...
#
# Groups: create exec pause files idle restart load gateway import egress interception snapshot sleep sleepers recall memory audit merge
# moving surfaces ssh code microvm.
# `sleepers` and `memory` take longest: they put 1,000 sandboxes to sleep and store a million texts.
#
# Uses the pool in BURROW_TEST_POOL if it is set, else the pool of scripts/test-pool.sh, which is unmounted afterwards
# unless it was mounted before. A missed target is reported, but is not an error.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_root "$@"
cd "$repo"

"$repo/scripts/setup.sh" --bench

say "building"
as_builder cargo build --locked --release --package burrow-cli --package burrow-bench
build_guest
burrow=$repo/target/release/burrow

unmount_after=no
give_back() {
    local user
    [ "$unmount_after" = no ] || scripts/test-pool.sh down
    user=$(build_user)
    [ "$user" = root ] || chown -R "$user:" "$repo/target"
}
trap give_back EXIT

pool=${BURROW_TEST_POOL:-}
if [ -z "$pool" ]; then
    mountpoint -q "${BURROW_TEST_POOL_DIR:-$repo/target/test-pool}" || unmount_after=yes
    pool=$(scripts/test-pool.sh up "$burrow" "$guest_binary")
fi

say "measuring (some minutes; leave the machine alone)"
nginx=()
sshd=()
[ ! -x "$lib_dir/openssh/usr/sbin/sshd" ] || sshd=(--sshd "$lib_dir/openssh/usr/sbin/sshd")
[ ! -x "$lib_dir/nginx/usr/sbin/nginx" ] || nginx=(--nginx "$lib_dir/nginx/usr/sbin/nginx")
criu=()
[ ! -x "$lib_dir/criu/sbin/criu" ] || criu=(--criu "$lib_dir/criu/sbin/criu")
# Memory is compared with chromadb. If it cannot be installed, the comparison is omitted.
chroma=()
venv=$repo/target/bench/chroma
has_chroma() { "$venv/bin/python" -c 'import chromadb' 2>/dev/null; }
if ! has_chroma; then
    as_builder python3 -m venv "$venv" || true
    as_builder "$venv/bin/pip" install --quiet chromadb || say "chromadb could not be installed"
fi
! has_chroma || chroma=(--chroma "$venv/bin/python")
# Interception is compared with mitmproxy.
mitmdump=()
venv=$repo/target/bench/mitmproxy
has_mitmdump() { "$venv/bin/mitmdump" --version >/dev/null 2>&1; }
if ! has_mitmdump; then
    as_builder python3 -m venv "$venv" || true
    as_builder "$venv/bin/pip" install --quiet mitmproxy || say "mitmproxy could not be installed"
fi
! has_mitmdump || mitmdump=(--mitmdump "$venv/bin/mitmdump")
# The official clients of E2B and MCP, in the tested versions.
clients=()
venv=$repo/target/bench/clients
has_clients() { "$venv/bin/python" -c 'import e2b, mcp' 2>/dev/null; }
if ! has_clients; then
    as_builder python3 -m venv "$venv" || true
    as_builder "$venv/bin/pip" install --quiet --requirement crates/mcp/e2e/requirements.txt httpx e2b==2.63.0 ||
        say "the clients of E2B and MCP could not be installed"
fi
! has_clients || clients=(--clients "$venv/bin/python")
lib=()
[ ! -d "$lib_dir/qemu" ] || lib=(--lib "$lib_dir")
"$repo/target/release/burrow-bench" --burrow "$burrow" --guest "$guest_binary" --pool "$pool" \
    "${nginx[@]}" "${sshd[@]}" "${criu[@]}" "${chroma[@]}" "${mitmdump[@]}" "${clients[@]}" "${lib[@]}" "$@"
