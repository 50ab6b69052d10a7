#!/usr/bin/env bash
# Installs the release build: PREFIX/lib/burrow (the programs), PREFIX/bin/burrow (a link), a systemd unit.
#
# A running daemon and running sandboxes keep the files that they were started from. Prints `changed` or `unchanged`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
need_root "$@"

changed=unchanged
# put FILE PLACE MODE: replaces the file by renaming, so that no process starts an incomplete file.
put() {
    cmp -s "$1" "$2" && return
    install -D -m "$3" "$1" "$2.new"
    mv "$2.new" "$2"
    changed=changed
}

put "$repo/target/release/burrow" "$lib_dir/burrow" 755
put "$guest_binary" "$lib_dir/burrow-guest" 755
# A daemon serves the packages of its own version, and reads them for each request.
changed_programs=$changed
for package in python.tar.gz typescript.tgz; do
    if [ -e "$repo/target/sdk/$package" ]; then
        put "$repo/target/sdk/$package" "$lib_dir/sdk/$package" 644
    else
        rm -f "$lib_dir/sdk/$package"
    fi
done
changed=$changed_programs
mkdir -p "$PREFIX/bin"
# The program finds the guest agent and CRIU in its own directory, no matter where the link to it is.
ln -sfn ../lib/burrow/burrow "$PREFIX/bin/burrow"

if [ -d /run/systemd/system ]; then
    unit=$(mktemp)
    trap 'rm -f "$unit"' EXIT
    sed "s|@PREFIX@|$PREFIX|g" "$repo/deploy/burrow.service" > "$unit"
    if ! cmp -s "$unit" /etc/systemd/system/burrow.service; then
        install -m 644 "$unit" /etc/systemd/system/burrow.service
        systemctl daemon-reload
    fi
fi
printf '%s\n' "$changed"
