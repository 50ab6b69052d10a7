# shellcheck shell=bash
# Unpacks a Debian kernel for a machine without firmware. Sourced by get-qemu.sh and test-apparmor.sh after lib.sh.

# Prints the little-endian number at an offset of a file.
number_at() { od -An -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }

# uncompress_kernel IMAGE INTO LZ4...: extracts the kernel from its compressed image; the x86 boot protocol defines its position.
uncompress_kernel() {
    local image=$1 into=$2 sectors offset length start
    shift 2
    sectors=$(number_at "$image" $((0x1f1)) 1)
    offset=$(number_at "$image" $((0x248)) 4)
    length=$(number_at "$image" $((0x24c)) 4)
    start=$(((sectors + 1) * 512 + offset))
    # The last four bytes of the payload are its uncompressed length, which is not part of the lz4 stream.
    head -c $((start + length - 4)) "$image" | tail -c +$((start + 1)) |
        "$@" -dc > "$into"
    [ "$(head -c 4 "$into" | od -An -t x1 | tr -d ' ')" = 7f454c46 ] ||
        fail "the kernel in $(basename "$image") could not be unpacked"
}
