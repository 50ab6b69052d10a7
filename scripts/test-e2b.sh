#!/usr/bin/env bash
# Runs one scenario with released versions of E2B's clients, each in a separate environment, against a real daemon.
#
#   scripts/test-e2b.sh BURROW GUEST POOL             the newest and the oldest versions; prints one line per version
#   BURROW_TEST_ALL=1 scripts/test-e2b.sh BURROW GUEST POOL   all versions
#   scripts/test-e2b.sh BURROW GUEST POOL py-2.63.0   only the given versions
#   scripts/test-e2b.sh BURROW GUEST POOL interpreters    only the clients of the code interpreter
#   scripts/test-e2b.sh BURROW GUEST POOL cli             only E2B's command line
#   UPDATE=1 scripts/test-e2b.sh BURROW GUEST POOL    also updates the tables in docs/e2b.md
#
# Needs root, python3 with venv, openssl, node with npm, and the pool of scripts/test-pool.sh. The daemon has its own state, cgroup
# and port, and everything it created is removed at the end.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$repo"
burrow=$(realpath "$1")
guest=$(realpath "$2")
pool=$(realpath "$3")
shift 3
# The newest version, one from before create and connect moved to /v2, and two in between.
versions=(py-2.63.0 py-2.56.0 py-2.51.0 py-2.45.1 js-2.51.0 js-2.45.0)
all=${#versions[@]}
# Clients of the code interpreter, each with the version of the base client that was the newest at its release: they pin none, and
# older ones do not work with the newest. Versions before 2.9 (npm: 2.7) do not support a single address.
interpreters=(py-2.11.5 py-2.9.2 js-2.8.0 js-2.7.2)
declare -A below=([py-2.11.5]=2.63.0 [py-2.9.2]=2.51.0 [js-2.8.0]=2.51.0 [js-2.7.2]=2.51.0)
all_interpreters=${#interpreters[@]}
# E2B's command line.
cli=2.19.0
# The newest tested version of each client, to detect later releases.
newest_python=2.63.0 newest_npm=2.51.0 newest_interpreter_python=2.11.5 newest_interpreter_npm=2.8.0 newest_cli=$cli
# Every run tests the newest version of each language and the oldest; `make test-all` tests the others.
if [ -z "${BURROW_TEST_ALL:-}${UPDATE:-}" ]; then
    versions=(py-2.63.0 py-2.45.1 js-2.51.0)
    interpreters=(py-2.11.5 js-2.8.0)
    printf "skipped: E2B's clients between the oldest and the newest: \`make test-all\` runs them\n" >&2
fi
if [ "$*" = interpreters ]; then
    versions=()
    cli=""
elif [ "$*" = cli ]; then
    versions=()
    interpreters=()
elif [ $# -gt 0 ]; then
    versions=("$@")
    interpreters=()
    cli=""
fi
home=$repo/target/e2b
results=$home/results

say() { printf 'e2b: %s\n' "$*" >&2; }

if ! node_version > /dev/null; then
    printf "skipped: E2B's npm clients: Node.js 20 with npm is missing\n" >&2
    cli=""
    for index in "${!versions[@]}"; do [[ ${versions[index]} != js-* ]] || unset "versions[index]"; done
    for index in "${!interpreters[@]}"; do [[ ${interpreters[index]} != js-* ]] || unset "interpreters[index]"; done
fi

work=$(mktemp -d -t burrow-e2b-XXXXXX)
name="burrow-e2b-$$"
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
        [ -d "$path/$name" ] || [ -d "$path/$name-vm" ] || continue
        find "$path/$name" "$path/$name-vm" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -9 2>/dev/null || true
    done
    sleep 0.2
    for path in $(awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts); do
        find "$path/$name" "$path/$name-vm" -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    awk -v at="$work/" 'index($2, at) == 1 {print $2}' /proc/mounts | tac | xargs -r -n1 umount -l 2>/dev/null || true
    # Keep the daemon's log for inspection.
    cp "$work/log" target/e2b.log 2>/dev/null || true
    discard "$place"
    rm -rf "$work"
}
trap cleanup EXIT

# === The clients ===

# Each version is installed in its own directory, so that a later run can reuse it.
install() {
    local version=$1 number=${1#*-}
    case $version in
    py-*)
        "$home/$version/bin/python" -c 'import e2b' 2>/dev/null && return
        python3 -m venv --clear --without-pip "$home/$version"
        "$home/pip/bin/pip" --python "$home/$version/bin/python" install --quiet --disable-pip-version-check --no-compile "e2b==$number"
        ;;
    js-*)
        [ -d "$home/$version/node_modules/e2b" ] && return
        mkdir -p "$home/$version"
        (cd "$home/$version" && printf '{"private": true}' > package.json && npm install --silent --no-audit --no-fund "e2b@$number")
        ;;
    esac
}

# The same for a client of the code interpreter.
install_interpreter() {
    local version=$1 number=${1#*-} core=${below[$1]} at=$home/interpreters/$1
    case $version in
    py-*)
        "$at/bin/python" -c 'import e2b_code_interpreter' 2>/dev/null && return
        python3 -m venv --clear --without-pip "$at"
        "$home/pip/bin/pip" --python "$at/bin/python" install --quiet --disable-pip-version-check --no-compile \
            "e2b-code-interpreter==$number" "e2b==$core"
        ;;
    js-*)
        [ -d "$at/node_modules/@e2b/code-interpreter" ] && return
        mkdir -p "$at"
        (cd "$at" && printf '{"private": true}' > package.json && npm install --silent --no-audit --no-fund "@e2b/code-interpreter@$number" "e2b@$core")
        ;;
    esac
}

# The same for the command line.
install_cli() {
    [ -x "$home/cli-$cli/node_modules/.bin/e2b" ] && return
    mkdir -p "$home/cli-$cli"
    (cd "$home/cli-$cli" && printf '{"private": true}' > package.json && npm install --silent --no-audit --no-fund "@e2b/cli@$cli")
}

# report_newer PACKAGE TESTED RELEASED: reports a release that is not tested here, or a failed query of the registry.
report_newer() {
    if [ -z "$3" ]; then
        say "newer: could not find out the newest release of $1"
    elif [ "$2" != "$3" ]; then
        say "newer: $1 $3 is released, the newest that is tested is $2"
    fi
}

# on_pypi PACKAGE: prints its newest release.
on_pypi() { "$home/pip/bin/pip" index versions "$1" 2>/dev/null | sed -n "1s/.*(\(.*\)).*/\1/p" || true; }

# report_newer_releases: reports all releases of the clients, and of libraries that use them, that are newer than those tested.
report_newer_releases() {
    local name tested libraries=scripts/e2b/integrations
    report_newer "e2b (PyPI)" "$newest_python" "$(on_pypi e2b)"
    report_newer "e2b-code-interpreter (PyPI)" "$newest_interpreter_python" "$(on_pypi e2b-code-interpreter)"
    # The libraries that use the clients. Their files name the tested versions.
    for name in smolagents langchain-e2b e2b-desktop; do
        tested=$(sed -n "s/^$name==//p" "$libraries/requirements.txt")
        report_newer "$name (PyPI)" "$tested" "$(on_pypi "$name")"
    done
    command -v npm > /dev/null || return 0
    for name in @computesdk/e2b @mastra/e2b; do
        tested=$(sed -n "s|^ *\"$name\": \"\(.*\)\".*|\1|p" "$libraries/package.json")
        report_newer "$name (npm)" "$tested" "$(npm view "$name" version 2>/dev/null || true)"
    done
    report_newer "e2b (npm)" "$newest_npm" "$(npm view e2b version 2>/dev/null || true)"
    report_newer "@e2b/code-interpreter (npm)" "$newest_interpreter_npm" "$(npm view @e2b/code-interpreter version 2>/dev/null || true)"
    report_newer "@e2b/cli (npm)" "$newest_cli" "$(npm view @e2b/cli version 2>/dev/null || true)"
}

mkdir -p "$results" "$home/interpreters/results"
# All environments share one pip, because installing pip takes half of the time to create an environment.
"$home/pip/bin/pip" --version > /dev/null 2>&1 || python3 -m venv --clear "$home/pip"
jobs=()
for version in "${versions[@]}"; do
    install "$version" &
    jobs+=($!)
done
for version in "${interpreters[@]}"; do
    install_interpreter "$version" &
    jobs+=($!)
done
[ -z "$cli" ] || { install_cli & jobs+=($!); }
[ -z "${BURROW_TEST_ALL:-}${UPDATE:-}" ] || report_newer_releases
for job in "${jobs[@]}"; do wait "$job"; done

# === A daemon with the default image ===

mkdir -p "$place"/{images,staged,sandboxes} "$work/state"
for image in "$pool"/code/images/*; do
    btrfs -q subvolume snapshot -r "$image" "$place/images/$(basename "$image")" >/dev/null
done
cp "$pool"/code/catalog.db* "$work/state/"
criu=""
[ -z "${BURROW_CRIU:-}" ] || criu="criu = \"$BURROW_CRIU\""

# begin LISTEN [MORE CONFIGURATION]: starts the daemon and sets `address`.
begin() {
    printf '%s\n' "listen = \"$1\"" "state_dir = \"$work/state\"" "run_dir = \"$work/run\"" "admin_key_file = \"$work/admin.key\"" \
        "[pool]" "path = \"$place\"" "[runtime]" "guest = \"$guest\"" "cgroup = \"$name\"" "$criu" "${2:-}" > "$work/config.toml"
    rm -f "$work/run/address"
    "$burrow" serve --config "$work/config.toml" >> "$work/log" 2>&1 &
    daemon=$!
    address=""
    for _ in $(seq 600); do
        address=$(cat "$work/run/address" 2>/dev/null || true)
        [ -n "$address" ] && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/log" >&2
    say "the daemon did not start"
    exit 1
}

begin 127.0.0.1:0
export BURROW_URL="http://$address"
BURROW_API_KEY=$(cat "$work/admin.key")
export BURROW_API_KEY
# All settings that an E2B client needs.
export E2B_API_URL=$BURROW_URL E2B_SANDBOX_URL=$BURROW_URL E2B_VOLUME_API_URL=$BURROW_URL E2B_API_KEY=$BURROW_API_KEY

# === The scenario, with each ===

failed=0

# scenario VERSION: runs the scenario and appends its output to the results.
scenario() {
    case $1 in
    py-*) "$home/$1/bin/python" scripts/e2b/scenario.py ;;
    js-*) (cd "$home/$1" && cp "$repo"/scripts/e2b/{scenario,calls}.mjs . && E2B_NEWEST=$newest_npm node scenario.mjs) ;;
    esac >> "$results/$1" 2>> "$results/$1.err"
}

# nothing_left VERSION: fails if the client left sandboxes or volumes behind.
nothing_left() {
    local left
    left=$("$burrow" ls -q)
    [ -z "$left" ] || say "$1 left sandboxes behind: $left"
    for left in $left; do
        failed=1
        "$burrow" rm -f "$left"
    done
    left=$("$burrow" volume ls -q)
    [ -z "$left" ] || say "$1 left volumes behind: $left"
    for left in $left; do
        failed=1
        "$burrow" volume rm --yes "$left"
    done
}

# with_each WHAT: runs the scenario with every version.
with_each() {
    local version began code
    for version in "${versions[@]}"; do
        began=$SECONDS code=0
        scenario "$version" || code=$?
        if [ "$code" -ne 0 ]; then
            failed=1
            say "$version, $1: FAILED, $((SECONDS - began)) s"
            grep '^FAILED ' "$results/$version" >&2 || tail -n 20 "$results/$version.err" >&2
        else
            say "$version, $1: $((SECONDS - began)) s"
        fi
        nothing_left "$version"
    done
}

# interpreter VERSION: runs the scenario of the code interpreter and appends its output to the results.
interpreter() {
    local at=$home/interpreters
    case $1 in
    py-*) "$at/$1/bin/python" scripts/e2b/interpreter.py ;;
    js-*) (cd "$at/$1" && cp "$repo/scripts/e2b/interpreter.mjs" . && node interpreter.mjs) ;;
    esac >> "$at/results/$1" 2>> "$at/results/$1.err"
}

# with_interpreters WHAT VERSION...: runs that scenario, with the image that its clients expect.
with_interpreters() {
    local version what=$1 began code at=$home/interpreters/results
    shift
    if ! "$burrow" image inspect python-interpreter > /dev/null 2>&1; then
        began=$SECONDS
        "$burrow" image build --ready python-interpreter > /dev/null
        say "image python-interpreter: built, $((SECONDS - began)) s"
    fi
    for version in "$@"; do
        began=$SECONDS code=0
        interpreter "$version" || code=$?
        if [ "$code" -ne 0 ]; then
            failed=1
            say "code interpreter $version, $what: FAILED, $((SECONDS - began)) s"
            grep '^FAILED ' "$at/$version" >&2 || tail -n 20 "$at/$version.err" >&2
        else
            say "code interpreter $version, $what: $((SECONDS - began)) s, $(grep -c '^ok ' "$at/$version") checks passed"
        fi
        nothing_left "code interpreter $version"
    done
}

for version in "${versions[@]}"; do
    : > "$results/$version"
    : > "$results/$version.err"
done
with_each "one address"
for version in "${interpreters[@]}"; do
    : > "$home/interpreters/results/$version"
    : > "$home/interpreters/results/$version.err"
done
[ "${#interpreters[@]}" -eq 0 ] || with_interpreters "one address" "${interpreters[@]}"

# with_cli: runs the checks of the command line.
with_cli() {
    local began=$SECONDS
    if scripts/e2b/cli.sh "$home/cli-$cli/node_modules/.bin/e2b" > "$home/cli-$cli/results" 2> "$home/cli-$cli/results.err"; then
        say "command line $cli: $((SECONDS - began)) s, $(grep -c '^ok ' "$home/cli-$cli/results") checks passed"
    else
        failed=1
        say "command line $cli: FAILED, $((SECONDS - began)) s"
        grep '^FAILED ' "$home/cli-$cli/results" >&2 || tail -n 20 "$home/cli-$cli/results.err" >&2
    fi
    nothing_left "command line $cli"
}
[ -z "$cli" ] || with_cli

# Repeats the scenario with emulated microVMs and the newest client.
machines="info;commands: run;commands: background, list, kill;commands: stdin;pty;files: read, write;files: directories;files: watch"
machines+=";ports: get_host, by token;pause, resume;pause without memory;auto-resume;snapshots;fork;network;kill"
newest=py-2.63.0
with_machines() {
    local code=0 began=$SECONDS
    kill "$daemon"
    wait "$daemon" || true
    begin "$address" "$(printf '%s\n' "qemu = \"$lib_dir/qemu\"" "kernel = \"$lib_dir/vm\"" 'accelerator = "emulation"' \
        "[defaults]" 'driver = "microvm"' 'ram = "256M"' "cpu = 1" 'disk = "1G"')"
    E2B_ONLY=$machines "$home/$newest/bin/python" scripts/e2b/scenario.py > "$results/microvms" 2> "$results/microvms.err" || code=$?
    say "$newest, microVMs: $(grep -c '^ok ' "$results/microvms" || true) checks passed, $((SECONDS - began)) s"
    if [ "$code" -ne 0 ] || [ "$(grep -c '^ok ' "$results/microvms")" -ne "$(tr ';' '\n' <<< "$machines" | wc -l)" ]; then
        failed=1
        say "$newest, microVMs: FAILED"
        grep '^FAILED ' "$results/microvms" >&2 || tail -n 20 "$results/microvms.err" >&2
    fi
}
[[ " ${versions[*]} " != *" $newest "* ]] || with_machines

# Repeats the scenario by host name and over TLS, as with E2B itself: only the domain is configured. Names below `localhost` need no DNS.
kill "$daemon"
wait "$daemon" || true
domain="boxes.localhost:${address##*:}"
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=a test's own authority" \
        -keyout "$work/ca.key" -out "$work/ca.pem"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=boxes.localhost" -keyout "$work/tls.key" -out "$work/tls.csr"
    printf 'subjectAltName=DNS:*.boxes.localhost,DNS:localhost\nbasicConstraints=CA:FALSE\n' > "$work/names"
    openssl x509 -req -in "$work/tls.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -days 2 -extfile "$work/names" \
        -out "$work/tls.pem"
} > "$work/openssl.log" 2>&1
begin "$address" "$(printf '%s\n' "[gateway]" "domain = \"$domain\"" "[tls]" "cert = \"$work/tls.pem\"" "key = \"$work/tls.key\"")"
unset E2B_API_URL E2B_SANDBOX_URL E2B_VOLUME_API_URL
export BURROW_URL="https://localhost:${address##*:}" BURROW_CA_FILE=$work/ca.pem E2B_DOMAIN=$domain SSL_CERT_FILE=$work/ca.pem NODE_EXTRA_CA_CERTS=$work/ca.pem
with_each "domain and TLS"
if [ "${#interpreters[@]}" -gt 0 ]; then
    E2B_ONLY="run_code;contexts: list, restart, remove" with_interpreters "domain and TLS" "${interpreters[0]}"
fi

for version in "${versions[@]}"; do
    say "$version: $(grep -c '^ok ' "$results/$version" || true) checks passed, $(grep -c '^absent ' "$results/$version" || true) not in this version"
done

if grep -E '(^| )ERROR |panicked' "$work/log" >&2; then
    say "the daemon logged errors"
    failed=1
fi
if [ "$failed" -eq 0 ] && [ "${#versions[@]}" -eq "$all" ]; then
    python3 scripts/e2b/table.py docs/e2b.md "support table" "$results" "${versions[@]}" || failed=1
fi
if [ "$failed" -eq 0 ] && [ "${#interpreters[@]}" -eq "$all_interpreters" ]; then
    python3 scripts/e2b/table.py docs/e2b.md "interpreter table" "$home/interpreters/results" "${interpreters[@]}" || failed=1
fi
exit "$failed"
