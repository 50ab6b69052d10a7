#!/usr/bin/env bash
# Sets up, builds, installs and starts Burrow from a fresh checkout, and builds the default image. Run by `make up`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_root "$@"

"$repo/scripts/setup.sh"

note "packages install without compiling: see docs/install.md"
say "building (the first time takes some minutes)"
(cd "$repo" && as_builder cargo build --locked --release --package burrow-cli)
build_guest
"$repo/scripts/build-sdks.sh"

say "installing into $PREFIX"
changed=$("$repo/scripts/install.sh")

# Stop a daemon of an earlier build. Its sandboxes continue to run, and the new daemon adopts them.
if [ "$changed" = changed ]; then
    if [ -d /run/systemd/system ] && systemctl --quiet is-active burrow.service; then
        systemctl restart burrow.service
    else
        "$PREFIX/bin/burrow" down >/dev/null 2>&1 || true
    fi
fi

say "starting"
exec "$PREFIX/bin/burrow" up
