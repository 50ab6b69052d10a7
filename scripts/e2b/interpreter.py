"""One scenario for every version of E2B's Python client of the code interpreter, against a real daemon. Same output format as scenario.py.

It uses only calls of the client. With `E2B_DOMAIN` set, the checks run by host name and over TLS, which is the only way that
versions before 2.9 support.
"""

import asyncio
import base64
import os
import socket
import sys
import threading
import time
import traceback

from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b.exceptions import NotFoundException, SandboxException, TimeoutException

FAILED = []
# Names of the checks to run; empty for all.
ONLY = [name for name in os.environ.get("E2B_ONLY", "").split(";") if name]


class Absent(Exception):
    """This version of the client has no such call."""


def check(name, work, *args):
    if ONLY and name not in ONLY:
        return
    try:
        work(*args)
    except Absent:
        print(f"absent {name}", flush=True)
    except Exception as error:  # noqa: BLE001
        FAILED.append(name)
        print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
        traceback.print_exc()
    else:
        print(f"ok {name}", flush=True)


def refused(kind, work):
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def same(left, right):
    assert left == right, f"{left!r} is not {right!r}"


def need(thing, name):
    if not hasattr(thing, name):
        raise Absent


# === Runs ===


def run(sandbox):
    done = sandbox.run_code("import sys; print('out'); print('err', file=sys.stderr); 1 + 1")
    same((done.text, done.error), ("2", None))
    same(("".join(done.logs.stdout), "".join(done.logs.stderr)), ("out\n", "err\n"))
    assert done.execution_count >= 1
    same(sandbox.run_code("'ä€😀'").text, "ä€😀")
    same(sandbox.run_code("import os; os.getcwd()").text, "/home/user")
    same(sandbox.run_code("x = 1").results, [])


def variables_kept(sandbox):
    sandbox.run_code("kept = [1, 2]\ndef double(x): return 2 * x")
    same(sandbox.run_code("double(sum(kept))").text, "6")
    again = Sandbox.connect(sandbox.sandbox_id)
    same(again.run_code("kept").text, "[1, 2]")


def environment(sandbox):
    same(sandbox.run_code("import os; os.environ['ONCE']", envs={"ONCE": "for this run"}).text, "for this run")
    same(sandbox.run_code("os.environ.get('ONCE') is None").text, "True")
    same(sandbox.run_code("os.environ['E2B_SANDBOX'], os.environ['E2B_SANDBOX_ID']").text, f"('true', '{sandbox.sandbox_id}')")
    same(sandbox.run_code("os.environ['E2B_TEMPLATE_ID']").text, sandbox.commands.run("printf %s $E2B_TEMPLATE_ID").stdout)
    assert sandbox.run_code("os.environ['E2B_EVENTS_ADDRESS']").text


def callbacks(sandbox):
    seen = []
    sandbox.run_code(
        "import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr, flush=True)\ndisplay('three')\n1/0",
        on_stdout=lambda message: seen.append(("stdout", message.line, message.error)),
        on_stderr=lambda message: seen.append(("stderr", message.line, message.error)),
        on_result=lambda result: seen.append(("result", result.text)),
        on_error=lambda error: seen.append(("error", error.name)),
    )
    same(seen, [("stdout", "one\n", False), ("stderr", "two\n", True), ("result", "three"), ("error", "ZeroDivisionError")])


def streaming(sandbox):
    """Lines arrive when they are printed, not when the code has ended."""
    sandbox.files.write("/tmp/seen", "")

    def first(message):
        if "first" in message.line:
            sandbox.files.write("/tmp/seen", "yes")

    code = "import time\nprint('first', flush=True)\nwhile open('/tmp/seen').read() != 'yes': time.sleep(0.05)\n'seen'"
    same(sandbox.run_code(code, on_stdout=first, timeout=60).text, "seen")


def much_output(sandbox):
    done = sandbox.run_code("for _ in range(50): print('x' * 99_999)")
    same(sum(map(len, done.logs.stdout)), 5_000_000)


def errors(sandbox):
    done = sandbox.run_code("def inner():\n    raise ValueError('bad')\ninner()")
    same((done.error.name, done.error.value), ("ValueError", "bad"))
    assert "in inner" in done.error.traceback, done.error.traceback
    same(sandbox.run_code("this is not").error.name, "SyntaxError")
    same(sandbox.run_code("input()").error.name, "StdinNotImplementedError")
    same(sandbox.run_code("1").error, None)


def timeouts(sandbox):
    sandbox.run_code("kept = 'yes'")
    refused(TimeoutException, lambda: sandbox.run_code("import time; time.sleep(600)", timeout=2))
    # The client disconnected, so the code was interrupted, and the next run does not wait for it.
    same(sandbox.run_code("kept", timeout=60).text, "yes")


# === Results ===


def results(sandbox):
    forms = {
        "html": ("text/html", "<b>bold</b>"),
        "markdown": ("text/markdown", "*so*"),
        "svg": ("image/svg+xml", "<svg/>"),
        "png": ("image/png", "iVBORw0KGgo="),
        "jpeg": ("image/jpeg", "/9j/4AAQ"),
        "pdf": ("application/pdf", "JVBERi0="),
        "latex": ("text/latex", "$x$"),
        "json": ("application/json", {"a": [1, None]}),
        "javascript": ("application/javascript", "alert(1)"),
    }
    for field, (form, value) in forms.items():
        (shown,) = sandbox.run_code(f"display({{{form!r}: {value!r}}}, raw=True)").results
        same((shown[field], shown.is_main_result, list(shown.formats())), (value, False, [field]))
    (shown,) = sandbox.run_code("display({'application/vnd.example': 'other'}, raw=True)").results
    same(shown.extra, {"application/vnd.example": "other"})
    both = sandbox.run_code("display('shown')\n'value'")
    same([(one.text, one.is_main_result) for one in both.results], [("shown", False), ("value", True)])
    assert "value" in both.to_json()


def frames(sandbox):
    done = sandbox.run_code("import pandas as pd\npd.DataFrame({'n': [1, 2], 'd': pd.to_datetime(['2024-01-01', None])})")
    (shown,) = done.results
    same(shown.data, {"n": [1, 2], "d": ["2024-01-01T00:00:00", None]})
    assert "<table" in shown.html and "2024" in shown.text


def chart_of(sandbox, code):
    (shown,) = sandbox.run_code(f"import matplotlib.pyplot as plt\n{code}\nplt.show()").results
    same(base64.b64decode(shown.png)[:4], b"\x89PNG")
    return shown.chart


def charts(sandbox):
    line = chart_of(sandbox, "plt.plot([1, 2], [3, 4], label='one'); plt.title('T'); plt.xlabel('t (s)')")
    same((type(line).__name__, line.title, line.x_unit, line.elements[0].label), ("LineChart", "T", "s", "one"))
    same(line.elements[0].points, [(1, 3), (2, 4)])
    scatter = chart_of(sandbox, "plt.scatter([1], [2])")
    same((type(scatter).__name__, scatter.elements[0].points), ("ScatterChart", [(1.0, 2.0)]))
    bar = chart_of(sandbox, "plt.bar(['a', 'b'], [1, 2])")
    same([(type(bar).__name__, one.label, one.value) for one in bar.elements], [("BarChart", "a", 1.0), ("BarChart", "b", 2.0)])
    pie = chart_of(sandbox, "plt.pie([1, 3], labels=['x', 'y'])")
    same((pie.title, line.title), (None, "T"))
    same((type(pie).__name__, pie.elements[0].label, pie.elements[0].angle), ("PieChart", "x", 90.0))
    box = chart_of(sandbox, "plt.boxplot([1, 2, 3, 4, 50])")
    same((type(box).__name__, box.elements[0].median, box.elements[0].outliers), ("BoxAndWhiskerChart", 3.0, [50.0]))
    both = chart_of(sandbox, "figure, axes = plt.subplots(1, 2); axes[0].plot([1], [1]); axes[1].bar(['a'], [1])")
    same((type(both).__name__, [type(one).__name__ for one in both.elements]), ("SuperChart", ["LineChart", "BarChart"]))


# === Contexts and languages ===


def contexts(sandbox):
    context = sandbox.create_code_context(cwd="/tmp")
    same((context.language, context.cwd), ("python", "/tmp"))
    sandbox.run_code("x = 'mine'", context=context)
    same(sandbox.run_code("import os; x + os.getcwd()", context=context).text, "mine/tmp")
    # Kernels run as root, commands as the user.
    of_root = sandbox.create_code_context(cwd="/root")
    same(sandbox.run_code("import os; os.getcwd(), os.getuid()", context=of_root).text, "('/root', 0)")
    same(sandbox.run_code("x = 'default'; x").text, "default")
    same(sandbox.run_code("x", context=context).text, "mine")


def context_life(sandbox):
    need(sandbox, "list_code_contexts")
    context = sandbox.create_code_context()
    assert context.id in [one.id for one in sandbox.list_code_contexts()]
    sandbox.run_code("x = 1", context=context)
    sandbox.restart_code_context(context)
    same(sandbox.run_code("x", context=context).error.name, "NameError")
    sandbox.remove_code_context(context.id)
    assert context.id not in [one.id for one in sandbox.list_code_contexts()]
    refused(NotFoundException, lambda: sandbox.run_code("1", context=context))


def languages(sandbox):
    # The image of the tests contains Python only; the tests of the bridge cover the other languages.
    same(sandbox.run_code("6 * 7", language="python").text, "42")
    said = refused(SandboxException, lambda: sandbox.run_code("1", language="cobol"))
    assert "400" in said, said


# === Sandboxes ===


def beside(sandbox):
    """Files and commands use the same sandbox."""
    sandbox.files.write("/home/user/table.csv", "a,b\n1,2\n")
    same(sandbox.run_code("import pandas as pd; int(pd.read_csv('table.csv')['b'].sum())").text, "2")
    sandbox.run_code("open('written', 'w').write('by code')")
    same(sandbox.commands.run("cat written").stdout, "by code")


def pausing(sandbox):
    sandbox.run_code("kept = object(); before = id(kept)\nimport random; state = random.getstate()")
    sandbox.pause()
    again = Sandbox.connect(sandbox.sandbox_id, timeout=600)
    same(again.run_code("id(kept) == before and random.getstate() == state").text, "True")
    if hasattr(again, "list_code_contexts"):
        assert "default" in [one.id for one in again.list_code_contexts()]


def forking(sandbox):
    need(sandbox, "fork")
    sandbox.run_code("whose = 'parent'; shared = 42")
    children = sandbox.fork(timeout=600)
    try:
        (child,) = children
        same(child.run_code("whose = 'child'; shared").text, "42")
        same(child.run_code("import os; os.environ['E2B_SANDBOX_ID']").text, child.sandbox_id)
        same(sandbox.run_code("whose").text, "parent")
    finally:
        for one in children:
            one.kill()


def interpreter_killed(sandbox):
    """The next run restarts an interpreter that has ended; its variables are lost."""
    sandbox.run_code("kept = 1")
    # It has ended when nothing listens on its port (49999) any more. A request to a process that is ending fails.
    listens = "grep -q ':C34F 00000000:0000 0A' /proc/net/tcp"
    sandbox.commands.run(f"pkill -9 -f '[b]ridge.py'; while {listens}; do sleep 0.1; done", user="root")
    same(sandbox.run_code("'kept' in dir()").text, "False")


def killed_during_run_code():
    """Like E2B's own test."""
    sandbox = Sandbox.create(timeout=600)
    same(sandbox.run_code("1").text, "1")
    killer = threading.Timer(3, sandbox.kill)
    killer.start()
    try:
        sandbox.run_code("import time\ntime.sleep(60)")
    except TimeoutException as error:
        assert "sandbox was killed while the request was in progress" in str(error), error
    else:
        raise AssertionError("it did not fail")
    finally:
        killer.join()


def kill():
    sandbox = Sandbox.create(timeout=600)
    if hasattr(sandbox, "list_code_contexts"):
        same([(one.language, one.cwd) for one in sandbox.list_code_contexts()], [("python", "/home/user")])
    same(sandbox.run_code("1").text, "1")
    assert sandbox.kill()
    refused(Exception, lambda: sandbox.run_code("1", timeout=30))


async def asynchronous():
    sandbox = await AsyncSandbox.create(timeout=600)
    try:
        seen = []

        async def hear(message):
            seen.append(message.line)

        done = await sandbox.run_code("print('heard')\nx = 2\nx", on_stdout=hear)
        same((done.text, seen), ("2", ["heard\n"]))
        one, two = await sandbox.create_code_context(), await sandbox.create_code_context()
        # Each run waits for a file that the other writes: contexts run in parallel.
        code = "import os, time\nopen('/tmp/{}', 'w').close()\nwhile not os.path.exists('/tmp/{}'): time.sleep(0.05)\n'met'"
        met = await asyncio.gather(
            sandbox.run_code(code.format("left", "right"), context=one), sandbox.run_code(code.format("right", "left"), context=two)
        )
        same([run.text for run in met], ["met", "met"])
        if hasattr(sandbox, "list_code_contexts"):
            await sandbox.restart_code_context(one)
            await sandbox.remove_code_context(two)
            same({"default", one.id}, {context.id for context in await sandbox.list_code_contexts()})
        same((await sandbox.run_code("x + 1")).text, "3")
    finally:
        assert await sandbox.kill()


def names_lead_here():
    """Not every resolver resolves names below `localhost` to this machine."""
    usual = socket.getaddrinfo

    def resolve(host, *args, **options):
        local = isinstance(host, str) and host.endswith(".localhost")
        return usual("127.0.0.1" if local else host, *args, **options)

    socket.getaddrinfo = resolve


def leave():
    """Exits without interpreter shutdown: the native part of some versions sometimes aborts during the shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if FAILED else 0)


def main():
    if os.environ.get("E2B_DOMAIN"):
        names_lead_here()
    sandbox = Sandbox.create(timeout=600)
    for name, work in [
        ("run_code", run),
        ("run_code: variables are kept", variables_kept),
        ("run_code: envs", environment),
        ("run_code: callbacks", callbacks),
        ("run_code: output as it comes", streaming),
        ("run_code: 5 MB of output", much_output),
        ("run_code: errors", errors),
        ("run_code: timeout", timeouts),
        ("results: all forms", results),
        ("results: data frames", frames),
        ("results: charts", charts),
        ("contexts: create, cwd", contexts),
        ("contexts: list, restart, remove", context_life),
        ("languages: python, and a missing one", languages),
        ("files and commands beside", beside),
        ("pause, resume: variables are kept", pausing),
        ("fork: variables are kept", forking),
        ("restart: the interpreter was killed", interpreter_killed),
    ]:
        check(name, work, sandbox)
    sandbox.kill()
    check("kill", kill)
    check("killed during run_code", killed_during_run_code)
    check("async client", lambda: asyncio.run(asynchronous()))
    leave()


main()
