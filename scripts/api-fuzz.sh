#!/usr/bin/env bash
# Tests a running daemon against its OpenAPI document with schemathesis: no server error, no undocumented status, no
# response whose content type or schema differs from the document.
#
#   scripts/api-fuzz.sh BURROW GUEST [EXAMPLES]
#
# Needs root, python3 with venv, and the pool of scripts/test-pool.sh, which it mounts if necessary. Four passes: one with
# random ids; one with the ids of an existing sandbox, exec and snapshot, so that requests do not end with "not found"; one
# for the routes of memory; and one for images. The daemon has its own state, cgroup and port. The daemon and everything it
# created are removed at the end.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$repo"
burrow=$(realpath "$1")
guest=$(realpath "$2")
examples="${3:-25}"
# Pinned: a new version may find new problems, which must not break an unrelated build.
version=4.32.5
venv=target/venv
# Maximum duration of a request. Waits and streams get short limits, or are excluded below.
request_seconds=20

say() { printf 'api-fuzz: %s\n' "$*" >&2; }

work=$(mktemp -d -t burrow-fuzz-XXXXXX)
name="burrow-fuzz-$$"
pool="${BURROW_TEST_POOL:-$(scripts/test-pool.sh up "$burrow" "$guest")}"
place="$pool/daemons/$name"
daemon=""

cleanup() {
    local path
    if [ -n "$daemon" ] && kill -0 "$daemon" 2>/dev/null; then
        for path in $("$burrow" ls -q 2>/dev/null); do
            "$burrow" rm -f "$path" 2>/dev/null || true
        done
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    # Processes that a crashed daemon left running.
    for path in $(awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts); do
        [ -d "$path/$name" ] || continue
        find "$path/$name" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null || true
    done
    sleep 0.2
    for path in $(awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts); do
        [ -d "$path/$name" ] && find "$path/$name" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    awk -v at="$work/" 'index($2, at) == 1 {print $2}' /proc/mounts | tac | xargs -r -n1 umount -l 2>/dev/null || true
    # Keep the daemon's log for inspection.
    cp "$work/log" target/api-fuzz.log 2>/dev/null || true
    discard "$place"
    rm -rf "$work"
}
trap cleanup EXIT

if ! "$venv/bin/st" --version 2>/dev/null | grep -qF "$version"; then
    say "installing schemathesis $version into $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi

# === A daemon with the default image ===

mkdir -p "$place"/{images,staged,sandboxes} "$work/state"
for image in "$pool"/template/images/*; do
    btrfs -q subvolume snapshot -r "$image" "$place/images/$(basename "$image")" >/dev/null
done
cp "$pool"/template/catalog.db* "$work/state/"
cat > "$work/config.toml" <<CONFIG
listen = "127.0.0.1:0"
state_dir = "$work/state"
run_dir = "$work/run"
admin_key_file = "$work/admin.key"
[pool]
path = "$place"
[limits]
sandboxes = 12
[runtime]
guest = "$guest"
cgroup = "$name"
CONFIG
"$burrow" serve --config "$work/config.toml" > "$work/log" 2>&1 &
daemon=$!
address=""
for _ in $(seq 300); do
    address=$(cat "$work/run/address" 2>/dev/null || true)
    [ -n "$address" ] && break
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
done
if [ -z "$address" ]; then
    cat "$work/log" >&2
    say "the daemon did not start"
    exit 1
fi
export SCHEMATHESIS_HOOKS="$PWD/scripts/api-fuzz-hooks.py"
BURROW_URL="http://$address"
BURROW_API_KEY=$(cat "$work/admin.key")
export BURROW_URL BURROW_API_KEY

# === The passes ===

# Excluded: endless streams, a WebSocket, routes that take minutes, and routes that connect to given hosts.
excluded=(
    --exclude-path '/v1/sandboxes/{sandbox}/egress/test'
    --exclude-path '/v1/sandboxes/{sandbox}/execs/{exec}/attach'
    --exclude-path '/v1/sandboxes/{sandbox}/ports/{port}/connect'
    --exclude-path '/v1/sandboxes/{sandbox}/files/watch'
    --exclude-path '/v1/memory/{of}/kv-watch'
    --exclude-path '/v1/audit/follow'
    --exclude-path '/v1/backup'
    --exclude-name 'POST /v1/images'
    # Each request would write half a gigabyte.
    --exclude-path '/v1/images/{image}/export'
)
# About forty operations with large schemas: with all cases of the document, a pass over them takes longer than all other
# passes together. They have a pass of their own with few cases. The daemon's tests send them hostile bodies.
no_memory=(--exclude-path-regex '^/v1/(memory|spaces)')
# Operations that may remove the image that the passes need have a separate pass at the end.
images_away=(
    --exclude-name 'DELETE /v1/images/{image}'
    --exclude-name 'DELETE /v1/images/{image}/tags/{tag}'
    --exclude-name 'POST /v1/images/prune'
)

# One worker: CPython 3.11 fails when two threads parse source code, because they share a recursion counter.
# pass NAME PARAMETERS [MORE OPTIONS…]
pass() {
    local pass=$1 parameters=$2
    shift 2
    {
        printf '[parameters]\n"query.follow" = "false"\n"query.timeout_ms" = 50\n"query.grace_ms" = 100\n'
        printf '%s' "$parameters"
    } > "$work/$pass.toml"
    say "pass $pass: $examples examples per operation"
    local code=0
    "$venv/bin/st" --config-file "$work/$pass.toml" run "$BURROW_URL/v1/openapi.json" \
        --header "X-API-Key: $BURROW_API_KEY" \
        --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
        --phases "${phases:-examples,coverage,fuzzing}" --max-examples "$examples" --workers 1 --seed 1 --no-shrink \
        --request-timeout "$request_seconds" --suppress-health-check all --generation-database none --warnings off \
        --no-color --report ndjson --report-ndjson-path "$work/$pass.ndjson" "${excluded[@]}" "$@" \
        > "$work/$pass.out" 2>&1 || code=$?
    "$venv/bin/python" scripts/api-fuzz-summary.py "$pass" "$work/$pass.out" "$code" || failed=1
    if ! kill -0 "$daemon" 2>/dev/null; then
        tail -n 40 "$work/log" >&2
        say "the daemon ended during pass $pass"
        exit 1
    fi
}

failed=0
pass random '' "${no_memory[@]}" "${images_away[@]}"

for path in $("$burrow" ls -q); do
    "$burrow" rm -f "$path"
done
sandbox=$("$burrow" create --name fuzzed --ram 256M)
exec_id=$("$burrow" exec -d fuzzed -- sleep 100000)
# A snapshot of files only: this daemon has no CRIU configured, so that requests stay fast. The daemon's tests snapshot processes.
snapshot=$("$burrow" snapshot create --files-only fuzzed 2>/dev/null)
phases=examples,fuzzing examples=$((examples < 15 ? examples : 15)) pass memory "$(printf '"path.of" = "%s"\n' "$sandbox")
" --include-path-regex '^/v1/(memory|spaces)'
export BURROW_FUZZ_DEEP=1
# The sandbox is addressed by id, because a request may rename it. Delete and stop are excluded, because they would end the pass.
pass present "$(printf '"path.sandbox" = "%s"\n"path.exec" = "%s"\n"path.snapshot" = "%s"\n' "$sandbox" "$exec_id" "$snapshot")
" --exclude-name 'DELETE /v1/sandboxes/{sandbox}' --exclude-path '/v1/sandboxes/{sandbox}/stop' \
    --exclude-name 'DELETE /v1/snapshots/{snapshot}' \
    --exclude-path '/v1/sandboxes' --exclude-path '/v1/keys' --exclude-path '/v1/keys/{key}' \
    "${no_memory[@]}" "${images_away[@]}"
pass images '' --include-path-regex '^/v1/images'

# === The daemon afterwards ===

if grep -E '(^| )ERROR |panicked' "$work/log" >&2; then
    say "the daemon logged errors"
    failed=1
fi
if ! "$burrow" ls >/dev/null; then
    say "the daemon no longer answers"
    failed=1
fi
[ "$failed" -eq 0 ] && say "no server error, no undocumented status"
exit "$failed"
