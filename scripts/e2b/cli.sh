#!/usr/bin/env bash
# Tests E2B's command line without a terminal, against the daemon that the environment selects. Same output format as scenario.py.
#
#   scripts/e2b/cli.sh E2B       E2B: the program
set -uo pipefail

e2b=$1
work=$(mktemp -d -t burrow-e2b-cli-XXXXXX)
template="cli-$$"
sandbox=""
failed=0

cleanup() {
    [ -z "$sandbox" ] || "$e2b" sandbox kill "$sandbox" > /dev/null 2>&1
    "$e2b" template delete --yes "$template" > /dev/null 2>&1
    rm -rf "$work"
}
trap cleanup EXIT

# check NAME COMMAND...: the command succeeds.
check() {
    local name=$1
    shift
    if "$@" > "$work/out" 2>&1; then
        printf 'ok %s\n' "$name"
    else
        printf 'FAILED %s: %s\n' "$name" "$(tail -n 3 "$work/out" | tr '\n' ' ')"
        cat "$work/out" >&2
        failed=1
    fi
}

created() {
    "$e2b" sandbox create --detach --timeout 600 base | tee "$work/created"
    sandbox=$(grep -oE '\b[a-z0-9]{20,}\b' "$work/created" | head -n 1)
    [ -n "$sandbox" ]
}

executed() {
    [ "$("$e2b" sandbox exec --env GIVEN=yes --cwd /tmp "$sandbox" 'echo "$GIVEN in $PWD"')" = "yes in /tmp" ] || return
    [ "$(printf 'through a pipe' | "$e2b" sandbox exec "$sandbox" cat)" = "through a pipe" ] || return
    "$e2b" sandbox exec "$sandbox" 'exit 7'
    [ $? -eq 7 ]
}

listed() {
    "$e2b" sandbox list --format json | grep "$sandbox" > /dev/null || return
    ! "$e2b" sandbox list --format json --state paused | grep "$sandbox" > /dev/null
}

# says WORD COMMAND...: the command prints the word.
says() {
    local word=$1
    shift
    "$@" | tee "$work/said-by" | grep "$word" > /dev/null || { cat "$work/said-by"; return 1; }
}

slept() {
    "$e2b" sandbox pause "$sandbox" || return
    "$e2b" sandbox list --format json --state paused | grep "$sandbox" > /dev/null || return
    "$e2b" sandbox resume "$sandbox" && [ "$("$e2b" sandbox exec "$sandbox" echo awake)" = awake ]
}

snapshotted() {
    "$e2b" sandbox snapshot create "$sandbox" || return
    "$e2b" sandbox snapshot list --format json "$sandbox" | tee "$work/snapshots" || return
    local snapshot
    snapshot=$(grep -oE '"snapshotI[dD]": *"[^"]+"' "$work/snapshots" | cut -d'"' -f4)
    [ -n "$snapshot" ] && "$e2b" sandbox snapshot delete "$snapshot"
}

built() {
    printf 'FROM base\nCOPY said /said\nRUN cat /said > /tmp/heard\n' > "$work/e2b.Dockerfile"
    printf 'from the command line' > "$work/said"
    "$e2b" template create --path "$work" --cpu-count 1 --memory-mb 512 "$template" || return
    "$e2b" template list --format json | grep "$template" > /dev/null || return
    "$e2b" template publish --yes "$template" && "$e2b" template delete --yes "$template"
}

# Its terminal needs a terminal, which `script` provides.
connected() {
    # The shell starts after the command line has connected; what is typed earlier is lost.
    { sleep 8; printf 'echo from-$((40 + 2))\n'; sleep 2; printf 'exit\n'; sleep 2; } |
        timeout 60 script -qec "'$e2b' sandbox connect '$sandbox'" /dev/null | tee "$work/terminal" | tr -d '\r'
    grep from-42 "$work/terminal" > /dev/null
}

# Neither of these needs the daemon; the project that `init` writes is built by the client.
initialized() {
    "$e2b" template init --path "$work" --name started --language python-sync || return
    grep -r 'Template.build' "$work/started" > /dev/null
}

migrated() {
    local folder=$work/old
    mkdir "$folder"
    printf 'FROM e2bdev/base\nRUN echo old > /tmp/old\n' > "$folder/e2b.Dockerfile"
    printf 'template_id = "old"\ndockerfile = "e2b.Dockerfile"\ntemplate_name = "old"\n' > "$folder/e2b.toml"
    "$e2b" template migrate --path "$folder" --language python-sync || return
    grep -r 'echo old > /tmp/old' --include='*.py' "$folder" > /dev/null
}

killed() {
    "$e2b" sandbox kill "$sandbox" || return
    ! "$e2b" sandbox list --format json | grep "$sandbox" > /dev/null
}

check "cli: sandbox create" created
check "cli: sandbox exec" executed
check "cli: sandbox list" listed
check "cli: sandbox info" says "$sandbox" "$e2b" sandbox info --format json "$sandbox"
check "cli: sandbox metrics" says memTotal "$e2b" sandbox metrics --format json "$sandbox"
check "cli: sandbox logs" says cat "$e2b" sandbox logs --format json "$sandbox"
check "cli: sandbox connect" connected
check "cli: sandbox pause, resume" slept
check "cli: sandbox snapshot" snapshotted
check "cli: template create, list, publish, delete" built
check "cli: template init" initialized
check "cli: template migrate" migrated
check "cli: sandbox kill" killed
exit "$failed"
