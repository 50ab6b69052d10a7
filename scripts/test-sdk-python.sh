#!/usr/bin/env bash
# Checks and tests the Python SDK against a real daemon: generated files, mypy, ruff, the packages, and pytest, which also runs
# every example of the docstrings and guides, and the programs in examples/.
#
#   scripts/test-sdk-python.sh BURROW GUEST [POOL] [PYTEST ARGUMENTS...]
#
# Needs root, python3 (3.10 or newer) with venv, and the pool of scripts/test-pool.sh, which it mounts if none is given.
# BURROW_CRIU is the path of CRIU; it defaults to the installed one.
set -euo pipefail

cd "$(dirname "$0")/.."
BURROW_TEST_BURROW=$(realpath "$1")
BURROW_TEST_GUEST=$(realpath "$2")
pool=${3:-${BURROW_TEST_POOL:-$(scripts/test-pool.sh up "$1" "$2")}}
BURROW_TEST_POOL=$(realpath "$pool")
BURROW_CRIU=${BURROW_CRIU:-${PREFIX:-/usr/local}/lib/burrow/criu/sbin/criu}
export BURROW_TEST_BURROW BURROW_TEST_GUEST BURROW_TEST_POOL BURROW_CRIU
shift $(($# < 3 ? $# : 3))
sdk=$PWD/sdk/python
venv=$PWD/target/sdk-python

say() { printf 'sdk-python: %s\n' "$*" >&2; }

# The environment is created again if the requirements have changed.
if ! cmp --silent "$sdk/requirements-test.txt" "$venv/installed.txt"; then
    say "installing the requirements of the suite into ${venv#"$PWD"/}"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile --requirement "$sdk/requirements-test.txt"
    cp "$sdk/requirements-test.txt" "$venv/installed.txt"
fi

cd "$sdk"
say "generated files"
"$venv/bin/python" tools/generate.py --check
say "ruff"
"$venv/bin/ruff" check --quiet --no-cache --config pyproject.toml . ../../examples
"$venv/bin/ruff" format --check --quiet --no-cache --config pyproject.toml . ../../examples
say "mypy --strict"
"$venv/bin/mypy" --strict --cache-dir "$venv/mypy"
say "wheel"
rm -rf "$venv/dist"
"$venv/bin/python" -m build --no-isolation --outdir "$venv/dist" . > "$venv/build.log" 2>&1 || {
    cat "$venv/build.log" >&2
    exit 1
}
# The tests run with the wheel that users install.
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$venv"/dist/*.whl
# One test installs the package that a daemon serves.
../../scripts/build-sdks.sh python
say "pytest"
"$venv/bin/pytest" --quiet -p no:cacheprovider "$@"
