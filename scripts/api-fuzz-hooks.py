"""Schemathesis hooks that make generated requests pass the first validation.

The OpenAPI document cannot express that a path must be absolute, that an exec has either an argv or a command, that an exec
with `wait` should end soon, or that a sandbox with little CPU is slow. With `BURROW_FUZZ_DEEP` set, these hooks fix the
requests, so that their other fields are tested in the daemon and the guest.
"""

import json
import os

import schemathesis

DEEP = os.environ.get("BURROW_FUZZ_DEEP") == "1"
PATHS = ("path", "from", "to", "workdir")
# One CPU. With a hundredth of one, which is a valid limit, starting Python takes longer than a request may.
CPU_MILLIS_MIN = 1000


@schemathesis.serializer("application/x-tar")
def archive(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value if isinstance(value, bytes) else (json.dumps(value) + "\n").encode()


@schemathesis.hook
def before_call(context, case, kwargs):
    if not DEEP:
        return
    if isinstance(case.query, dict):
        absolute(case.query)
    if isinstance(case.body, dict):
        absolute(case.body)
        if "/execs" in case.path or "/services" in case.path:
            runnable(case.body)
        limits = case.body.get("limits")
        cpu = limits.get("cpu_millis") if isinstance(limits, dict) else None
        if isinstance(cpu, int) and 0 < cpu < CPU_MILLIS_MIN:
            limits["cpu_millis"] = CPU_MILLIS_MIN


def absolute(values):
    for name in PATHS:
        value = values.get(name)
        if isinstance(value, str) and not value.startswith("/"):
            values[name] = "/tmp/" + value


def runnable(body):
    argv, command = body.get("argv"), body.get("command")
    if argv:
        body.pop("command", None)
    elif not command:
        body.pop("argv", None)
        body["command"] = "echo $RANDOM"
    if body.get("wait") is True:
        body["timeout_ms"] = 500
    # It would stop the sandbox that the following requests use.
    body.pop("then_stop", None)
