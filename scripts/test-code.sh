#!/usr/bin/env bash
# Tests the part of the code interpreter that runs in a sandbox (crates/interpreter/python) with real kernels, without a daemon or sandbox.
#
#   scripts/test-code.sh [TESTS...]      all tests, or for example test_bridge.Stops
#
# Needs python3 (3.11 or newer) with venv. BURROW_CODE_PYTHON may name an interpreter with the packages installed, such as that of an image.
set -euo pipefail

cd "$(dirname "$0")/.."
tests=$PWD/crates/interpreter/python/tests
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

# kernel LANGUAGE ARGV: writes the description of a kernel, like the build file of the image.
kernel() {
    mkdir -p "$venv/share/jupyter/kernels/$1"
    printf '{"display_name": "%s", "language": "%s", "argv": %s, "env": {"NO_COLOR": "1"}}\n' "$1" "$1" "$2" \
        > "$venv/share/jupyter/kernels/$1/kernel.json"
}

if [ -z "${BURROW_CODE_PYTHON:-}" ]; then
    kernel javascript "[\"$venv/bin/deno\", \"jupyter\", \"--kernel\", \"--conn\", \"{connection_file}\"]"
    kernel typescript "[\"$venv/bin/deno\", \"jupyter\", \"--kernel\", \"--conn\", \"{connection_file}\"]"
    # Kernels of the languages that this machine has.
    rm -rf "$venv/share/jupyter/kernels/"{java,r}
    if java --list-modules 2> /dev/null | grep -q '^jdk.jshell'; then
        kernel java "[\"$venv/bin/python\", \"$(dirname "$tests")/kernel_java.py\", \"-f\", \"{connection_file}\"]"
    fi
    if Rscript -e 'library(IRkernel)' > /dev/null 2>&1; then
        kernel r '["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"]'
    fi
fi

cd "$tests"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
suites=("$@")
# Given tests run one after the other; otherwise the suites run in parallel, because they mostly wait.
[ $# -gt 0 ] || suites=(test_bridge.Runs test_bridge.Stops test_bridge.Kernels test_bridge.Contexts test_events test_results test_languages)
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore::DeprecationWarning
printf '%s\0' "${suites[@]}" | xargs -0 -P 3 -I {} sh -c '"$1" -m unittest -v "$2" > "$3/$2" 2>&1 || touch "$3/$2.failed"' sh "$python" {} "$logs"

failed=0
for suite in "${suites[@]}"; do
    if [ -e "$logs/$suite.failed" ]; then
        cat "$logs/$suite" >&2
        say "$suite: FAILED"
        failed=1
    else
        say "$suite: $(grep -E '^Ran ' "$logs/$suite")"
        sed -n "s/.*skipped '\(.*\)'/skipped: code: \1/p" "$logs/$suite" | sort -u >&2
    fi
done
exit "$failed"
