#!/usr/bin/env bash
# Builds the TypeScript SDK and tests it against its own daemon.
#
#   scripts/test-sdk-typescript.sh BURROW GUEST POOL
#
# Needs root, the pool of scripts/test-pool.sh, and Node.js 20 or newer with npm; without them it is skipped.
# Installs the packages of the lock file into sdk/typescript/node_modules.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

[ $# -eq 3 ] || { sed -n '2,7p' "$0" >&2; exit 2; }
BURROW_TEST_BURROW=$(realpath "$1")
BURROW_TEST_GUEST=$(realpath "$2")
BURROW_TEST_POOL=$(realpath "$3")
export BURROW_TEST_BURROW BURROW_TEST_GUEST BURROW_TEST_POOL
export BURROW_CRIU=${BURROW_CRIU:-$lib_dir/criu/sbin/criu}

cd "$repo/sdk/typescript"

if ! node_version >/dev/null; then
    echo "skipped: typescript sdk: no Node.js 20"
    exit 0
fi

# Runs a script of package.json as the owner of the checkout.
npm_run() { as_builder npm run --silent "$@"; }

install_packages() {
    local lock stamp=node_modules/.installed
    lock=$(sha256sum package-lock.json package.json)
    [ "$(cat "$stamp" 2>/dev/null)" = "$lock" ] && return
    if ! as_builder npm ci --prefer-offline --no-audit --no-fund --loglevel=error; then
        as_builder npm ping --loglevel=error >/dev/null 2>&1 || return 3
        fail "npm could not install the packages of package-lock.json"
    fi
    printf '%s\n' "$lock" | as_builder tee "$stamp" >/dev/null
}

# A lock file with registry URLs would override the configured registry.
check_lock() {
    if grep -q '"resolved"' package-lock.json; then
        fail "package-lock.json contains registry URLs" "generate it again with the .npmrc in the same directory"
    fi
}

# Checks that the package works without other packages: no framework, no types of Node.js.
check_package() {
    local work
    work=$(mktemp -d)
    "$repo/scripts/build-sdks.sh" typescript
    mkdir -p "$work/node_modules"
    tar -xzf "$repo/target/sdk/typescript.tgz" -C "$work/node_modules"
    mv "$work/node_modules/package" "$work/node_modules/burrow-sandbox"
    (cd "$work" && node --input-type=module -e '
        const { Client, Sandbox } = await import("burrow-sandbox");
        const { AgentMemory } = await import("burrow-sandbox/agents");
        if (!Client || !Sandbox.create || !AgentMemory) throw new Error("something is missing from the package");')
    rm -rf "$work"
}

# run NAME COMMAND...: runs a suite of the Node.js test runner, and prints its result in the format that the summary of test.sh parses.
suite() {
    local output status=0
    output=$(mktemp)
    "$@" 2>&1 | tee "$output" || status=$?
    awk '{ sub(/^[^a-z]*/, "") } /^pass [0-9]+$/ {p = $2} /^fail [0-9]+$/ {f = $2}
        END {printf "test result: %s %d passed; %d failed\n", f ? "FAILED." : "ok.", p, f}' "$output"
    rm -f "$output"
    return "$status"
}

say "typescript sdk: packages"
check_lock
code=0
install_packages || code=$?
if [ "$code" = 3 ]; then
    echo "skipped: typescript sdk: packages cannot be downloaded here"
    exit 0
fi
[ "$code" = 0 ]
say "typescript sdk: build"
npm_run generate:check
npm_run build:test
check_package
say "typescript sdk: tests"
suite npm_run test:unit
# Runs as root, because the daemon uses the real kernel.
suite npm run --silent test:e2e
