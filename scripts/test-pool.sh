#!/usr/bin/env bash
# Prepares the btrfs pool that the end-to-end tests, attacks and benchmarks share, and prints its path.
#
#   scripts/test-pool.sh up BURROW GUEST   create and mount target/test-pool, build its images once
#   scripts/test-pool.sh begin BURROW GUEST, scripts/test-pool.sh finish BURROW GUEST   the same in two steps: the default image,
#                                          then the image that runs code, while the pool may already be in use
#   scripts/test-pool.sh down              unmount it; the file and its images are kept for the next run
#   scripts/test-pool.sh clean             unmount it and delete it
#
# Layout: template/images/<id> (the sealed default image), template/catalog.db (a catalog that contains it), code/ (the same, and
# the image that runs code), daemons/ (one folder per daemon under test; each gets its own snapshots of the images).
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$repo"
pool="${BURROW_TEST_POOL_DIR:-$PWD/target/test-pool}"
file="$pool.img"
size_gib="${BURROW_TEST_POOL_GIB:-24}"
schema=$(cat crates/catalog/migrations/*.sql | sha256sum | cut -d' ' -f1)

say() { printf '%s\n' "$*" >&2; }

mounted() { mountpoint -q "$pool"; }

unmount() {
    if mounted; then
        umount "$pool" 2>/dev/null || umount -l "$pool"
    fi
}

mount_pool() {
    mkdir -p "$pool"
    mounted && return
    if [ ! -e "$file" ]; then
        say "test-pool: creating a sparse btrfs pool of ${size_gib} GiB"
        truncate -s "${size_gib}G" "$file.new"
        mkfs.btrfs -q "$file.new" >&2
        mv "$file.new" "$file"
    fi
    mount -o loop,noatime,discard=async "$file" "$pool"
    # Like the daemon for its own pool: direct IO avoids caching data twice and delaying writes.
    losetup --direct-io=on "$(findmnt --noheadings --output SOURCE --mountpoint "$pool")" || true
    chmod 700 "$pool"
}

# Removes the state of daemons of earlier, interrupted runs.
sweep() {
    discard "$pool"/daemons/*
    mkdir -p "$pool/daemons"
}

# build FOLDER BURROW GUEST [ARGUMENTS]: a temporary daemon adds an image to those in FOLDER; its catalog becomes that of the
# folder.
build() {
    local folder=$pool/$1 burrow guest state
    burrow=$(realpath "$2")
    guest=$(realpath "$3")
    shift 3
    # The catalog of another schema cannot be opened.
    if [ -e "$folder/catalog.db" ] && [ "$(cat "$folder/schema" 2>/dev/null)" = "$schema" ]; then
        return
    fi
    say "test-pool: building an image (once): burrow image build $*"
    state=$(mktemp -d -t burrow-template-XXXXXX)
    # Remove the state of a failed attempt.
    discard "$folder"
    mkdir -p "$folder" "$state/state"
    if [ "$folder" != "$pool/template" ]; then
        mkdir -p "$folder/images"
        local image
        for image in "$pool"/template/images/*; do
            btrfs -q subvolume snapshot -r "$image" "$folder/images/$(basename "$image")" >&2
        done
        cp "$pool"/template/catalog.db* "$state/state/"
    fi
    cat > "$state/config.toml" <<CONFIG
listen = "127.0.0.1:0"
state_dir = "$state/state"
run_dir = "$state/run"
admin_key_file = "$state/admin.key"
[pool]
path = "$folder"
[runtime]
guest = "$guest"
cgroup = "burrow-template-$$"
[egress]
allow_ranges = [$(mirror_ranges)]
CONFIG
    "$burrow" serve --config "$state/config.toml" > "$state/log" 2>&1 &
    local daemon=$! address=""
    for _ in $(seq 600); do
        address=$(cat "$state/run/address" 2>/dev/null || true)
        [ -n "$address" ] && break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    if [ -z "$address" ]; then
        cat "$state/log" >&2
        say "test-pool: the daemon did not start"
        exit 1
    fi
    if ! BURROW_URL="http://$address" BURROW_API_KEY=$(cat "$state/admin.key") "$burrow" image build "$@" >&2; then
        tail -n 30 "$state/log" >&2
        kill "$daemon"
        exit 1
    fi
    kill "$daemon"
    wait "$daemon" || true
    # A write-ahead log that was not checkpointed yet is part of the database.
    if [ -e "$state/state/catalog.db-wal" ]; then
        cp "$state/state/catalog.db-wal" "$folder/catalog.db-wal"
    fi
    cp "$state/state/catalog.db" "$folder/catalog.db.new"
    mv "$folder/catalog.db.new" "$folder/catalog.db"
    echo "$schema" > "$folder/schema"
    umount -l "$state"/run/* 2>/dev/null || true
    rmdir /sys/fs/cgroup{,/*}/"burrow-template-$$"{,-vm} 2>/dev/null || true
    rm -rf "$state"
}

case "${1:-}" in
up | begin)
    mount_pool
    sweep
    build template "$2" "$3"
    [ "$1" = begin ] || build code "$2" "$3" --ready python-interpreter
    printf '%s\n' "$pool"
    ;;
finish)
    build code "$2" "$3" --ready python-interpreter
    ;;
down)
    if mounted; then sweep; fi
    unmount
    ;;
clean)
    unmount
    rm -f "$file"
    rmdir "$pool" 2>/dev/null || true
    ;;
*)
    sed -n '2,12p' "$0" >&2
    exit 2
    ;;
esac
