#!/usr/bin/env bash
# Tests the code interpreter's inside (crates/daemon/src/code) against real kernels, without a daemon and without a sandbox.
#
#   scripts/test-code.sh [TESTS...]      all, or such as test_bridge.Stops
#
# Needs python3 (3.11 or newer) with venv. BURROW_CODE_PYTHON names an interpreter that has the packages already, such as an image's own.
set -euo pipefail

cd "$(dirname "$0")/.."
tests=$PWD/crates/daemon/src/code/tests
venv=$PWD/target/code

say() { printf 'code: %s\n' "$*" >&2; }

python=${BURROW_CODE_PYTHON:-$venv/bin/python}
if [ -z "${BURROW_CODE_PYTHON:-}" ] && ! cmp --silent "$tests/requirements.txt" "$venv/installed.txt"; then
    say "installing kernels into ${venv#"$PWD"/}"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --requirement "$tests/requirements.txt"
    "$venv/bin/python" -m bash_kernel.install --sys-prefix > /dev/null 2>&1
    cp "$tests/requirements.txt" "$venv/installed.txt"
fi

cd "$tests"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
suites=("$@")
# One after another where some were named; else those that wait most beside one another.
[ $# -gt 0 ] || suites=(test_bridge.Runs test_bridge.Stops test_bridge.Kernels test_bridge.Contexts test_events test_results test_languages)
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore::DeprecationWarning
printf '%s\0' "${suites[@]}" | xargs -0 -P 3 -I {} sh -c '"$1" -m unittest "$2" > "$3/$2" 2>&1 || touch "$3/$2.failed"' sh "$python" {} "$logs"

failed=0
for suite in "${suites[@]}"; do
    if [ -e "$logs/$suite.failed" ]; then
        cat "$logs/$suite" >&2
        say "$suite: FAILED"
        failed=1
    else
        say "$suite: $(grep -E '^Ran ' "$logs/$suite")"
        if grep -q 'skipped=' "$logs/$suite"; then
            printf 'skipped: code: JavaScript: its kernel is in the image polyglot-interpreter only\n' >&2
        fi
    fi
done
exit "$failed"
