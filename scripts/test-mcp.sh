#!/usr/bin/env bash
# Tests the MCP interface against its own daemon: with the official Python client over stdio and HTTP, and with the command
# line of the MCP inspector.
#
#   scripts/test-mcp.sh BURROW GUEST POOL [PYTEST ARGUMENTS...]
#
# Needs root, the pool of scripts/test-pool.sh and python3 (3.10 or newer) with venv. The inspector needs Node.js 20 or newer
# with npm; its tests are skipped without them. Installed packages are kept in target/mcp.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

[ $# -ge 3 ] || { sed -n '2,8p' "$0" >&2; exit 2; }
BURROW_TEST_BURROW=$(realpath "$1")
BURROW_TEST_GUEST=$(realpath "$2")
BURROW_TEST_POOL=$(realpath "$3")
export BURROW_TEST_BURROW BURROW_TEST_GUEST BURROW_TEST_POOL
export BURROW_CRIU=${BURROW_CRIU:-$lib_dir/criu/sbin/criu}
shift 3

suite=$repo/crates/mcp/e2e
work=$repo/target/mcp
venv=$work/venv
inspector=$work/inspector
mkdir -p "$inspector"

# The environment is created again if the requirements have changed.
install_client() {
    cmp --silent "$suite/requirements.txt" "$venv/installed.txt" && return
    note "installing the requirements of the suite into ${venv#"$repo"/}"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile --requirement "$suite/requirements.txt"
    cp "$suite/requirements.txt" "$venv/installed.txt"
}

# Returns 3 if no package registry can be reached.
install_inspector() {
    local stamp=$inspector/installed lock
    # A lock file with registry URLs would override the configured registry.
    if grep -q '"resolved"' "$suite/package-lock.json"; then
        fail "package-lock.json contains registry URLs" "generate it again with the .npmrc in the same directory"
    fi
    lock=$(sha256sum < "$suite/package-lock.json")
    [ "$(cat "$stamp" 2>/dev/null)" = "$lock" ] && return
    note "installing the MCP inspector into ${inspector#"$repo"/}"
    cp "$suite/package.json" "$suite/package-lock.json" "$suite/.npmrc" "$inspector"
    # Not `npm ci`, which rejects lock files without the variants of a package for other systems.
    if ! (cd "$inspector" && npm install --no-save --prefer-offline --ignore-scripts --no-audit --no-fund --loglevel=error); then
        (cd "$inspector" && npm ping --loglevel=error >/dev/null 2>&1) || return 3
        fail "npm could not install the packages of package-lock.json"
    fi
    printf '%s\n' "$lock" > "$stamp"
}

say "mcp: packages"
# Both mostly wait for the network.
if node_version >/dev/null; then
    install_inspector &
    installing=$!
else
    installing=
    echo "skipped: mcp inspector: no Node.js 20"
fi
install_client
if [ -n "$installing" ]; then
    code=0
    wait "$installing" || code=$?
    case $code in
    0) export BURROW_TEST_INSPECTOR=$inspector/node_modules/.bin/mcp-inspector ;;
    3) echo "skipped: mcp inspector: packages cannot be downloaded here" ;;
    *) exit "$code" ;;
    esac
fi

say "mcp: tests"
cd "$suite"
output=$(mktemp)
status=0
# The inspector would otherwise write a list of servers to the home directory.
env HOME="$work" PYTHONDONTWRITEBYTECODE=1 "$venv/bin/pytest" --quiet -p no:cacheprovider -rP --no-header "$@" 2>&1 | tee "$output" || status=$?
# The format that the summary of test.sh parses.
counts=$(awk '/ in [0-9.]+s/ {
        p = f = 0
        for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) p = $(i - 1)
            if ($i ~ /^(failed|error)/) f += $(i - 1)
        }
    }
    END {printf "%d passed; %d failed", p, f}' "$output")
printf 'test result: %s %s\n' "$([ "$status" = 0 ] && echo ok. || echo FAILED.)" "$counts"
rm -f "$output"
exit "$status"
