#!/usr/bin/env bash
# Fuzzes the parsers of untrusted input: runs each target of fuzz/ for a limited time.
#
#   scripts/fuzz.sh [SECONDS] [TARGET]...     default: all targets, 30 seconds each
#
# Runs on the stable toolchain: libFuzzer needs only the compiler's coverage pass. Inputs that increase coverage are kept in
# fuzz/corpus/ (not in git). An input that crashes a target is kept in fuzz/artifacts/; `scripts/fuzz.sh 0 TARGET FILE` repeats it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$repo/fuzz"

seconds=${1:-30}
shift || true

# The flags of cargo-fuzz, without a sanitizer.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
triple=$(rustc -vV | sed -n 's/^host: //p')
programs=$repo/fuzz/target/$triple/release

# A separate target directory and an explicit target, so that build scripts are not instrumented.
say "building the fuzz targets"
as_builder env RUSTFLAGS="$coverage" cargo build --release --target "$triple" --target-dir "$repo/fuzz/target"

if [ "$seconds" = 0 ]; then
    exec "$programs/$1" "$2"
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"/\1/p}' Cargo.toml)
fi
for target in "${targets[@]}"; do
    say "fuzzing $target for $seconds s"
    mkdir -p "corpus/$target" "artifacts/$target"
    # Limits the total time, the RAM, and the time per input.
    "$programs/$target" "corpus/$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -max_len=65536 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1 2>&1 | grep -vE '^#[0-9]+.*(NEW|REDUCE|pulse)' ||
        fail "the fuzz target $target failed" "the input is in fuzz/artifacts/$target"
done
note "no target crashed"
