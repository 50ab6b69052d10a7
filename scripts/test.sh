#!/usr/bin/env bash
# Runs the tests. Run by `make test` and by CI; works on a fresh machine, as root or with sudo.
#
#   scripts/test.sh              what CI runs
#   scripts/test.sh --all        also long cycles, version matrices and fuzzing
#   scripts/test.sh --attacks    only the suites of hostile code
#
# Tests drive the real kernel, so they run as root; what they need is built before, as whoever owns the checkout.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

mode=${1:---ci}
case $mode in --ci | --all | --attacks) ;; *) fail "unknown argument: $mode" ;; esac
need_root "$@"
cd "$repo"

log=$repo/target/test.log
# Of the steps that run beside the others.
log_beside=$repo/target/test-beside.log
# Names of steps that failed.
failures=$repo/target/test-failures
# The engine's fault points, which the crash tests arm.
features=(--features burrow-cli/faults)
# Clippy lints our crates while it compiles them for the tests. A second build for lints alone took about as long as the tests of all libraries.
linted=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings)
started=$SECONDS
beside=

# step NAME COMMAND...: goes on after a failure, since one broken suite should not hide another.
step() {
    local name=$1 began=$SECONDS
    shift
    say "$name"
    if "$@"; then
        note "$name: ok, $((SECONDS - began)) s"
    else
        note "$name: FAILED, $((SECONDS - began)) s"
        printf '%s\n' "$name" >> "$failures"
    fi
}

# Most steps wait for one daemon or for a network most of the time, so two lines of them share the machine.
# in_background COMMAND...: what it says is kept, and shown by in_foreground_again.
in_background() {
    log=$log_beside "$@" > "$log_beside.shown" 2>&1 &
    beside=$!
}

in_foreground_again() {
    say "what ran beside it"
    # Its steps go on after a failure: one that breaks off has not run them all.
    wait "$beside" || printf 'beside\n' >> "$failures"
    beside=
    cat "$log_beside.shown" >&2
}

# A run that made files in target/ as root gives them back.
give_back() {
    local user
    user=$(build_user)
    [ "$user" = root ] || chown -R "$user:" "$repo/target"
}
trap give_back EXIT

prepare() {
    "$repo/scripts/setup.sh" --test
    as_builder mkdir -p "$repo/target"
    : > "$log"
    : > "$log_beside"
    : > "$failures"
    say "building"
    build_guest
    as_builder "${linted[@]}" cargo test --locked --workspace "${features[@]}" --no-run
}

# Root runs what the builder built: the same cargo, with nothing left to fetch or compile.
cargo_test() {
    local home
    home=$(home_of "$(build_user)")
    env CARGO_HOME="$home/.cargo" RUSTUP_HOME="$home/.rustup" PATH="$home/.cargo/bin:$PATH" \
        "${linted[@]}" cargo test --locked --no-fail-fast --workspace "${features[@]}" "$@" 2>&1 | tee -a "$log"
}

summary() {
    local passed broken
    passed=$(cat "$log" "$log_beside" | awk '/^test result:/ {sum += $4} END {print sum + 0}')
    broken=$(cat "$log" "$log_beside" | awk '/^test result:/ {sum += $6} END {print sum + 0}')
    say "summary"
    grep -hE '^(egress: )?blocked [0-9]+/' "$log" >&2 || true
    # What this machine could not show, such as package mirrors that it does not reach.
    grep -hE '^skipped: ' "$log" "$log_beside" >&2 || true
    note "$passed tests passed, $broken failed, $((SECONDS - started)) s"
    if [ -s "$failures" ]; then
        grep -hE '^test .* FAILED$' "$log" >&2 || true
        fail "failed: $(paste -sd' ' "$failures")" "the whole output is in $log and $log_beside"
    fi
}

prepare
export BURROW_TEST_BURROW=$repo/target/debug/burrow
export BURROW_TEST_GUEST=$guest_binary
export BURROW_CRIU=$lib_dir/criu/sbin/criu
export BURROW_TEST_LIB=$lib_dir
say "preparing the pool the end-to-end tests share"
BURROW_TEST_POOL=$(scripts/test-pool.sh begin "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST")
export BURROW_TEST_POOL
trap '[ -z "$beside" ] || kill "$beside" 2>/dev/null; scripts/test-pool.sh down; give_back' EXIT

# Every suite but `attacks` and `e2e`, which drive the whole program.
suites() {
    cargo_test --lib --bins --test '[!ae]*' --test 'a[!t]*' --test 'e[!2]*'
}

finish_pool() { scripts/test-pool.sh finish "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST"; }

end_to_end() {
    # Without its image, what runs code fails and says so.
    until [ -e "$BURROW_TEST_POOL/code/catalog.db" ] || grep -qx image "$failures" || ! kill -0 "$beside" 2>/dev/null; do
        sleep 1
    done
    local name skips=()
    if [ "$mode" = --ci ]; then
        # Emulated machines take minutes for the first; the simulations of the engine inject the same failures as the second.
        for name in microvm_disks:: a_failure_at_every_step; do
            skips+=(--skip "$name")
            printf 'skipped: end-to-end: %s: `make test-all` runs them\n' "$name" | tee -a "$log"
        done
    fi
    cargo_test --test e2e -- "${skips[@]}"
}

# The same once more, on the other driver: emulated, that takes hours.
on_microvms() {
    local name reason skips=()
    while read -r name reason; do
        [[ $name == '#' ]] && continue
        skips+=(--skip "$name")
        printf 'skipped: on microVMs: %s: %s\n' "$name" "$reason" | tee -a "$log"
    done < crates/cli/tests/e2e/not-on-microvms.txt
    BURROW_TEST_DRIVER=microvm cargo_test --test e2e -- "${skips[@]}"
}

attacks() { cargo_test --test attacks -- --nocapture; }

api_fuzz() { scripts/api-fuzz.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "${1:-25}" 2>&1 | tee -a "$log"; }

# Of one language, against a daemon of its own.
sdk() {
    "scripts/test-sdk-$1.sh" "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"
}

# What runs code inside sandboxes, by itself.
code() { scripts/test-code.sh 2>&1 | tee -a "$log"; }

# With the clients that models are behind, against a daemon of its own.
mcp() { scripts/test-mcp.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"; }

# Released versions of E2B's own clients.
e2b() { scripts/test-e2b.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"; }

# After the first tests have started: until then cargo has the build directory for itself.
lint() {
    until grep -q 'Running' "$repo/target/test.log"; do sleep 1; done
    nice -n 19 scripts/lint.sh --without-clippy
}

clients() {
    step image finish_pool
    step lint lint
    step code code
    step api api_fuzz "$1"
    step python sdk python
    step typescript sdk typescript
    step mcp mcp
    step e2b e2b
}

case $mode in
--attacks)
    step attacks attacks
    ;;
--all)
    export BURROW_TEST_ALL=1
    in_background clients 200
    step tests suites
    step e2e end_to_end
    step attacks attacks
    in_foreground_again
    step microvms on_microvms
    step fuzz scripts/fuzz.sh 60
    ;;
--ci)
    # Enough examples to see that every route answers as documented; `make test-all` looks for more.
    in_background clients 8
    step tests suites
    step e2e end_to_end
    step attacks attacks
    in_foreground_again
    ;;
esac
summary
