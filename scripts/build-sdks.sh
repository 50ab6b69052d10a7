#!/usr/bin/env bash
# Builds the packages of the SDKs that the daemon serves: target/sdk/python.tar.gz and target/sdk/typescript.tgz.
#
#   scripts/build-sdks.sh [python|typescript]
#
# Without an argument it builds both.
# The one for TypeScript needs Node.js 20 or newer with npm; without them it is skipped. Unchanged packages are not built again.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

out=$repo/target/sdk
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

python() {
    local version
    version=$(sed -n 's/^Version: //p' "$repo/sdk/python/PKG-INFO")
    # A source package: it needs no other package to be built, and pip accepts it from an address without a file name.
    as_builder tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --exclude=__pycache__ \
        --transform "s,^,burrow_sandbox-$version/," --use-compress-program='gzip -n' --file "$out/python.tar.gz" \
        --directory "$repo/sdk/python" PKG-INFO README.md build_backend.py pyproject.toml src
}

typescript() {
    local sources inputs=(package.json package-lock.json .npmrc tsconfig.json README.md scripts src)
    if ! node_version >/dev/null; then
        rm -f "$out/typescript.tgz"
        note "the package of the TypeScript SDK is not built: it needs Node.js 20 or newer with npm"
        return
    fi
    cd "$repo/sdk/typescript"
    sources=$(find "${inputs[@]}" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
    [ -e "$out/typescript.tgz" ] && [ "$(cat "$out/typescript.sum" 2>/dev/null)" = "$sources" ] && return
    # Never serve a package of other sources.
    rm -f "$out/typescript.tgz"
    # A copy, so that neither packages nor output appear among the sources.
    work=$(as_builder mktemp -d)
    as_builder cp -R "${inputs[@]}" "$work"
    cd "$work"
    if ! as_builder npm ci --prefer-offline --no-audit --no-fund --loglevel=error >&2 || ! as_builder npm pack --silent >&2; then
        note "the package of the TypeScript SDK is not built: see the messages of npm above"
        return
    fi
    as_builder mv burrow-sandbox-*.tgz "$out/typescript.tgz"
    printf '%s\n' "$sources" | as_builder tee "$out/typescript.sum" >/dev/null
}

case ${1:-} in
'' | python | typescript) ;;
*) fail "unknown argument: $1" ;;
esac
as_builder mkdir -p "$out"
[ "${1:-}" = typescript ] || python
[ "${1:-}" = python ] || typescript
