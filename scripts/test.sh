#!/usr/bin/env bash
# Runs the tests. Run by `make test` and by CI; works on a fresh machine, as root or with sudo.
#
#   scripts/test.sh              what CI runs
#   scripts/test.sh --all        also long cycles, version matrices and fuzzing
#   scripts/test.sh --attacks    only the attack suites
#
# The tests use the real kernel, so they run as root. Everything is built first, as the owner of the checkout.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

mode=${1:---ci}
case $mode in --ci | --all | --attacks) ;; *) fail "unknown argument: $mode" ;; esac
need_root "$@"
cd "$repo"

log=$repo/target/test.log
# The log of the steps that run in the background.
log_beside=$repo/target/test-beside.log
# The names of the failed steps.
failures=$repo/target/test-failures
# The fault points of the engine, which the crash tests use.
features=(--features burrow-cli/faults)
# Clippy lints the crates while they are compiled for the tests. A separate build for lints took about as long as the tests of all libraries.
linted=(env RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings)
started=$SECONDS
beside=

# step NAME COMMAND...: continues after a failure, so that one broken suite does not hide another.
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

# Most steps wait for a daemon or the network most of the time, so two sequences of steps share the machine.
# in_background COMMAND...: records the output; in_foreground_again prints it.
in_background() {
    log=$log_beside "$@" > "$log_beside.shown" 2>&1 &
    beside=$!
}

in_foreground_again() {
    say "output of the background steps"
    # The steps continue after a failure, so an error status means that not all of them ran.
    wait "$beside" || printf 'beside\n' >> "$failures"
    beside=
    cat "$log_beside.shown" >&2
}

# Returns files in target/ that root created to the owner of the checkout.
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

# Root runs the tests that the building user compiled, with the same cargo: nothing is left to download or compile.
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
    # Tests that could not run on this machine, for example because no package mirror is reachable.
    grep -hE '^skipped: ' "$log" "$log_beside" >&2 || true
    # Releases of E2B's clients that are not tested yet.
    grep -hE '^e2b: newer: ' "$log" "$log_beside" >&2 || true
    note "$passed tests passed, $broken failed, $((SECONDS - started)) s"
    if [ -s "$failures" ]; then
        grep -hE '^test .* FAILED$' "$log" >&2 || true
        fail "failed: $(paste -sd' ' "$failures")" "the complete output is in $log and $log_beside"
    fi
}

prepare
export BURROW_TEST_BURROW=$repo/target/debug/burrow
export BURROW_TEST_GUEST=$guest_binary
export BURROW_CRIU=$lib_dir/criu/sbin/criu
export BURROW_TEST_LIB=$lib_dir
say "preparing the pool of the end-to-end tests"
BURROW_TEST_POOL=$(scripts/test-pool.sh begin "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST")
export BURROW_TEST_POOL
trap '[ -z "$beside" ] || kill "$beside" 2>/dev/null; scripts/test-pool.sh down; give_back' EXIT

# All suites except `attacks` and `e2e`, which run the whole program.
suites() {
    cargo_test --lib --bins --test '[!ae]*' --test 'a[!t]*' --test 'e[!2]*'
}

finish_pool() { scripts/test-pool.sh finish "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST"; }

end_to_end() {
    # Without the image, the tests that run code fail and report it.
    until [ -e "$BURROW_TEST_POOL/code/catalog.db" ] || grep -qx image "$failures" || ! kill -0 "$beside" 2>/dev/null; do
        sleep 1
    done
    local name skips=()
    if [ "$mode" = --ci ]; then
        # The first takes minutes, because it emulates machines; the engine's simulations inject the same failures as the second; the third takes half an hour.
        for name in microvm_disks:: a_failure_at_every_step zoo::; do
            skips+=(--skip "$name")
            printf 'skipped: end-to-end: %s: `make test-all` runs them\n' "$name" | tee -a "$log"
        done
    fi
    cargo_test --test e2e -- "${skips[@]}"
}

# Repeats the end-to-end tests with the `microvm` driver; with emulation, this takes hours.
on_microvms() {
    local name reason skips=()
    while read -r name reason; do
        [[ $name == '#' ]] && continue
        skips+=(--skip "$name")
        printf 'skipped: on microVMs: %s: %s\n' "$name" "$reason" | tee -a "$log"
    done < tests/e2e/not-on-microvms.txt
    BURROW_TEST_DRIVER=microvm cargo_test --test e2e -- "${skips[@]}"
}

attacks() { cargo_test --test attacks -- --nocapture; }

api_fuzz() { scripts/api-fuzz.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "${1:-25}" 2>&1 | tee -a "$log"; }

# Tests the SDK of one language against its own daemon.
sdk() {
    "scripts/test-sdk-$1.sh" "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"
}

# Tests the code interpreter without a daemon.
code() { scripts/test-code.sh 2>&1 | tee -a "$log"; }

# Tests the MCP interface with MCP clients, against its own daemon.
mcp() { scripts/test-mcp.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"; }

# Runs every command of the documents, as printed.
docs() { scripts/test-docs "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"; }

# Tests released versions of E2B's clients.
e2b() { scripts/test-e2b.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"; }

# Tests the AppArmor profile on a kernel with AppArmor.
apparmor() { scripts/test-apparmor.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$lib_dir" 2>&1 | tee -a "$log"; }

# Tests the packages on fresh roots of Debian and Ubuntu, with the program that the other tests use.
packages() {
    {
        BURROW_PACKAGE_PROGRAM=$BURROW_TEST_BURROW BURROW_PACKAGE_GUEST=$BURROW_TEST_GUEST BURROW_PACKAGE_ONLY="deb tar oci" scripts/package.sh &&
            scripts/test-packages.sh
    } 2>&1 | tee -a "$log"
}

# Tests released libraries that use E2B sandboxes. Their images take long to build.
integrations() {
    scripts/test-e2b-integrations.sh "$BURROW_TEST_BURROW" "$BURROW_TEST_GUEST" "$BURROW_TEST_POOL" 2>&1 | tee -a "$log"
}

# Runs after the first tests have started: before that, cargo locks the build directory.
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
    step docs docs
    step e2b e2b
    if [ "$mode" = --all ]; then
        step integrations integrations
    else
        printf "skipped: libraries that use E2B's clients, and the image polyglot-interpreter: \`make test-all\` runs them\n" | tee -a "$log"
    fi
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
    step apparmor apparmor
    step packages packages
    step microvms on_microvms
    step fuzz scripts/fuzz.sh 60
    ;;
--ci)
    # Enough examples to check that every route answers as documented; `make test-all` uses more.
    in_background clients 8
    printf 'skipped: AppArmor: `make test-all` boots a kernel with AppArmor\n' | tee -a "$log"
    printf 'skipped: packages: `make test-all` installs them in fresh roots\n' | tee -a "$log"
    step tests suites
    step e2e end_to_end
    step attacks attacks
    in_foreground_again
    ;;
esac
summary
