#!/usr/bin/env bash
# Runs schemathesis against the OpenAPI document of a live daemon: no server error, no undocumented status, no answer
# of another kind or shape than the document says.
#
#   scripts/api-fuzz.sh BURROW GUEST [EXAMPLES]
#
# Needs root, python3 with venv, and the pool of scripts/test-pool.sh (which it brings up if need be). Four passes: one
# with random ids, and one where every id is that of a sandbox, an exec and a snapshot that are there, so that requests
# get past "not found"; one over the routes of memory and one over images. The daemon has a state, a cgroup and a port of
# its own, and is removed at the end with all it made.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$repo"
burrow=$(realpath "$1")
guest=$(realpath "$2")
examples="${3:-25}"
# Pinned: a new version finds new things, which must not break a build that changed nothing.
version=4.32.5
venv=target/venv
# No request may take longer; waits and streams that are meant to last are told to be short, or left out below.
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
    # Whatever a daemon that died left running.
    for path in $(awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts); do
        [ -d "$path/$name" ] || continue
        find "$path/$name" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null || true
    done
    sleep 0.2
    for path in $(awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts); do
        [ -d "$path/$name" ] && find "$path/$name" -depth -type d -exec rmdir {} + 2>/dev/null
    done
    awk -v at="$work/" 'index($2, at) == 1 {print $2}' /proc/mounts | tac | xargs -r -n1 umount -l 2>/dev/null || true
    # For whoever wants to know what the daemon saw.
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

# Streams that end only when somebody hangs up, a WebSocket, what takes minutes, and what dials hosts it is given.
excluded=(
    --exclude-path '/v1/sandboxes/{sandbox}/egress/test'
    --exclude-path '/v1/sandboxes/{sandbox}/execs/{exec}/attach'
    --exclude-path '/v1/sandboxes/{sandbox}/ports/{port}/connect'
    --exclude-path '/v1/sandboxes/{sandbox}/files/watch'
    --exclude-path '/v1/memory/{of}/kv-watch'
    --exclude-path '/v1/audit/follow'
    --exclude-path '/v1/backup'
    --exclude-name 'POST /v1/images'
    # Half a gigabyte each time.
    --exclude-path '/v1/images/{image}/export'
)
# Some forty operations with large schemas: with all cases of the document a pass over them takes longer than all others
# together. They have one of their own, with few; the daemon's own tests send them hostile bodies.
no_memory=(--exclude-path-regex '^/v1/(memory|spaces)')
# What takes the image away that the passes need has a pass of its own, at the end.
images_away=(
    --exclude-name 'DELETE /v1/images/{image}'
    --exclude-name 'DELETE /v1/images/{image}/tags/{tag}'
    --exclude-name 'POST /v1/images/prune'
)

# One worker: CPython 3.11 parses its own source from two threads with one counter between them, and gives up.
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
# Of files: this daemon is told of no CRIU, so that requests stay quick; the daemon's own tests ask for processes.
snapshot=$("$burrow" snapshot create --files-only fuzzed 2>/dev/null)
phases=examples,fuzzing examples=$((examples < 15 ? examples : 15)) pass memory "$(printf '"path.of" = "%s"\n' "$sandbox")
" --include-path-regex '^/v1/(memory|spaces)'
export BURROW_FUZZ_DEEP=1
# By id, since a request may rename it; not its delete and stop, which would end the pass early.
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
    say "the daemon does not answer any more"
    failed=1
fi
[ "$failed" -eq 0 ] && say "no server error, no undocumented status"
exit "$failed"
