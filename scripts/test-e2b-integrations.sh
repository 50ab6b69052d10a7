#!/usr/bin/env bash
# Runs one test for each library that uses E2B sandboxes, in its released version, against a real daemon: smolagents, langchain-e2b,
# computesdk, mastra and e2b-desktop; and tests every language of the code interpreter's image.
#
#   scripts/test-e2b-integrations.sh BURROW GUEST POOL             all
#   scripts/test-e2b-integrations.sh BURROW GUEST POOL mastra      only the given ones
#
# Builds the images `desktop` and `polyglot-interpreter`, which downloads about 700 MB. Needs root, python3 with venv, node with npm, and the
# pool of scripts/test-pool.sh. The daemon has its own state, cgroup and port, and everything it created is removed at the end.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$repo"
burrow=$(realpath "$1")
guest=$(realpath "$2")
pool=$(realpath "$3")
shift 3
tests=("$@")
[ $# -gt 0 ] || tests=(smolagents langchain computesdk mastra desktop languages)
here=$repo/scripts/e2b/integrations
home=$repo/target/e2b/integrations
ready=$repo/crates/cli/src/commands/image/ready

say() { printf 'integrations: %s\n' "$*" >&2; }

if ! node_version > /dev/null; then
    printf "skipped: integrations: computesdk and mastra: Node.js 20 with npm is missing\n" >&2
    for index in "${!tests[@]}"; do [[ ${tests[index]} != computesdk && ${tests[index]} != mastra ]] || unset "tests[index]"; done
fi

work=$(mktemp -d -t burrow-integrations-XXXXXX)
name="burrow-integrations-$$"
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
        sleep 0.2
        find "$path/$name" "$path/$name-vm" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    awk -v at="$work/" 'index($2, at) == 1 {print $2}' /proc/mounts | tac | xargs -r -n1 umount -l 2>/dev/null || true
    cp "$work/log" target/e2b-integrations.log 2>/dev/null || true
    discard "$place"
    rm -rf "$work"
}
trap cleanup EXIT

# === The libraries ===

mkdir -p "$home/js"
if ! cmp --silent "$here/requirements.txt" "$home/py/installed.txt"; then
    python3 -m venv --clear "$home/py"
    "$home/py/bin/pip" install --quiet --disable-pip-version-check --no-compile --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$home/py/installed.txt"
fi
if [[ " ${tests[*]} " =~ \ (computesdk|mastra)\  ]] && ! cmp --silent "$here/package.json" "$home/js/installed.json"; then
    cp "$here/package.json" "$home/js/"
    (cd "$home/js" && npm install --silent --no-audit --no-fund --no-package-lock)
    cp "$here/package.json" "$home/js/installed.json"
fi

# === A daemon with the images ===

mkdir -p "$place"/{images,staged,sandboxes} "$work/state"
for image in "$pool"/code/images/*; do
    btrfs -q subvolume snapshot -r "$image" "$place/images/$(basename "$image")" >/dev/null
done
cp "$pool"/code/catalog.db* "$work/state/"
criu=""
[ -z "${BURROW_CRIU:-}" ] || criu="criu = \"$BURROW_CRIU\""

printf '%s\n' 'listen = "127.0.0.1:0"' "state_dir = \"$work/state\"" "run_dir = \"$work/run\"" "admin_key_file = \"$work/admin.key\"" \
    "[pool]" "path = \"$place\"" "[runtime]" "guest = \"$guest\"" "cgroup = \"$name\"" "$criu" \
    "[egress]" "allow_ranges = [$(mirror_ranges)]" > "$work/config.toml"
"$burrow" serve --config "$work/config.toml" >> "$work/log" 2>&1 &
daemon=$!
address=""
for _ in $(seq 600); do
    address=$(cat "$work/run/address" 2>/dev/null || true)
    [ -z "$address" ] || break
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
done
if [ -z "$address" ]; then
    cat "$work/log" >&2
    say "the daemon did not start"
    exit 1
fi
export BURROW_URL="http://$address"
BURROW_API_KEY=$(cat "$work/admin.key")
export BURROW_API_KEY
export E2B_API_URL=$BURROW_URL E2B_SANDBOX_URL=$BURROW_URL E2B_VOLUME_API_URL=$BURROW_URL E2B_API_KEY=$BURROW_API_KEY

# build NAME: builds an image from Burrow's build file, on a base that trusts the CAs that were added to this machine.
build() {
    local began=$SECONDS base
    base=$(sed -n 's/^base: //p' "$ready/$1.yaml")
    mkdir -p "$work/build/authorities"
    find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$work/build/authorities/" \; 2>/dev/null || true
    if [ -n "$(ls "$work/build/authorities")" ]; then
        printf '%s\n' "base: $base" "steps:" "  - user: root" \
            "  - copy: { from: authorities, to: /usr/local/share/ca-certificates/ }" "  - run: update-ca-certificates" > "$work/build/base.yaml"
        "$burrow" image build -f "$work/build/base.yaml" --name "$base-authorities" > "$work/build.log" 2>&1
        base=$base-authorities
    fi
    sed "s/^base: .*/base: $base/" "$ready/$1.yaml" > "$work/build/$1.yaml"
    if ! "$burrow" image build -f "$work/build/$1.yaml" --name "$1" --net open > "$work/build.log" 2>&1; then
        tail -n 30 "$work/build.log" >&2
        return 1
    fi
    printf 'image %s: built, %s s\n' "$1" "$((SECONDS - began))"
}

# === The tests ===

failed=0

# Much longer than any test takes; ends tests that hang.
python=(timeout 900 "$home/py/bin/python")

run_test() {
    case $1 in
    smolagents) "${python[@]}" "$here/smolagents_executor.py" ;;
    langchain) "${python[@]}" "$here/langchain_backend.py" ;;
    desktop) build desktop && "${python[@]}" "$here/desktop.py" "$home/desktop.png" ;;
    languages) build polyglot-interpreter && "${python[@]}" "$here/languages.py" ;;
    computesdk | mastra) cp "$here/$1.mjs" "$home/js/" && (cd "$home/js" && timeout 900 node "$1.mjs") ;;
    *) printf 'unknown test: `%s`\n' "$1" && return 1 ;;
    esac
}

for test in "${tests[@]}"; do
    began=$SECONDS
    if run_test "$test" > "$work/$test.log" 2>&1 && grep -q '^ok ' "$work/$test.log"; then
        sed -n 's/^image /integrations: image /p' "$work/$test.log" >&2
        say "$test: $((SECONDS - began)) s"
    else
        failed=1
        tail -n 40 "$work/$test.log" >&2
        say "$test: FAILED, $((SECONDS - began)) s"
    fi
    left=$("$burrow" ls -q)
    if [ -n "$left" ]; then
        failed=1
        say "$test left sandboxes behind: $left"
        for one in $left; do "$burrow" rm -f "$one"; done
    fi
done

if grep -E '(^| )ERROR |panicked' "$work/log" >&2; then
    say "the daemon logged errors"
    failed=1
fi
exit "$failed"
