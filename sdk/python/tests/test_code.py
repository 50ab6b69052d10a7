"""Running code: parsing of the stream against a fake server, and complete runs if the interpreter image exists."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from daemon import PATIENCE, eventually
from test_repeating import SANDBOX, refusal

from burrow_sandbox import (
    AsyncClient,
    AsyncSandbox,
    BrokenError,
    Client,
    CodeResult,
    CodeRunError,
    InvalidRequestError,
    NotFoundError,
    Sandbox,
    UnavailableError,
    types,
)

CONTEXT: dict[str, Any] = {
    "id": "ctx1",
    "language": "python",
    "cwd": "/home/user",
    "state": "idle",
    "execution_count": 0,
}
END = {"kind": "end", "status": "ok", "execution_count": 3, "duration_ms": 12}
Line = dict[str, Any]
Said = Iterator[Line]


class Interpreter:
    """Answers runs with the lines of `say`, which may wait between lines, and records the requests."""

    def __init__(self, say: Callable[[], Said]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.hung_up = threading.Event()
        interpreter = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                interpreter.asked.append((f"{self.command} {self.path}", json.loads(body) if body else None))
                if self.path.endswith("/run"):
                    self.run()
                elif self.command == "DELETE" or self.path.endswith("/interrupt"):
                    self.answer(204, None)
                elif self.path.partition("?")[0].endswith("/contexts") and self.command == "GET":
                    self.answer(200, {"items": [CONTEXT]})
                else:
                    self.answer(200, SANDBOX if self.path.endswith("/sbx1") else CONTEXT)

            do_GET = do_DELETE = do_POST

            def run(self) -> None:
                try:
                    lines = say()
                    first = next(lines, None)
                    if first is not None and "error" in first and "kind" not in first:
                        self.answer(422, first)
                        return
                    self.send_response(200)
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    while first is not None:
                        text = json.dumps(first).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                        first = next(lines, None)
                    self.wfile.write(b"0\r\n\r\n")
                except (BrokenPipeError, ConnectionResetError):
                    interpreter.hung_up.set()

            def answer(self, status: int, value: Any) -> None:
                text = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


Serve = Callable[[Callable[[], Said]], tuple[Interpreter, Sandbox]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Interpreter] = []

    def start(say: Callable[[], Said]) -> tuple[Interpreter, Sandbox]:
        server = Interpreter(say)
        servers.append(server)
        return server, Sandbox.connect("sbx1", client=Client(server.url, "a-key"))

    yield start
    for server in servers:
        server.close()


def lines(*said: Line) -> Callable[[], Said]:
    return lambda: iter(said)


def endless() -> Said:
    """A run that continues until its client stops reading."""
    while True:
        yield {"kind": "stdout", "text": "." * 65_536}


# === Parsing the stream ===


def test_the_lines_of_a_run_become_what_it_came_to(serve: Serve) -> None:
    plot = {"kind": "result", "main": False, "png": "iVBO", "chart": {"type": "line"}}
    value = {"kind": "result", "main": True, "text": "42", "html": "<b>42</b>", "data": {"a_b": [1, None]}}
    server, sandbox = serve(
        lines(
            {"kind": "stdout", "text": "one "},
            {"kind": "stderr", "text": "careful"},
            plot,
            {"kind": "of-the-future", "text": "not for us"},
            {"kind": "stdout", "text": "two\n"},
            value,
            END,
        )
    )
    run = sandbox.run_code("x", timeout=1.5, env={"A": "b"}, max_output=4096)
    body = {"code": "x", "timeout_ms": 1500, "env": {"A": "b"}, "output_bytes_max": 4096}
    assert server.asked[-1] == ("POST /v1/sandboxes/sbx1/contexts/default/run", body)
    assert (run.status, run.ok, run.stdout, run.stderr, run.error) == ("ok", True, "one two\n", "careful", None)
    assert (run.execution_count, run.duration_ms) == (3, 12)
    assert [result.formats for result in run.results] == [["png", "chart"], ["text", "html", "data"]]
    assert run.main is run.results[1]
    assert run.text == "42"
    assert run.main.data == {"a_b": [1, None]}
    assert run.check() is run


def test_code_that_fails_says_with_what(serve: Serve) -> None:
    error = {"kind": "error", "name": "ZeroDivisionError", "value": "division by zero", "traceback": "line 1\n"}
    _, sandbox = serve(lines(error, {**END, "status": "error"}))
    run = sandbox.run_code("1 / 0")
    assert run.error == types.CodeError(name="ZeroDivisionError", value="division by zero", traceback="line 1\n")
    assert (run.ok, run.text) == (False, None)
    with pytest.raises(CodeRunError, match="ZeroDivisionError: division by zero") as caught:
        sandbox.run_code("1 / 0", check=True)
    assert caught.value.run == run


@pytest.mark.parametrize("status", ["interrupted", "timed_out", "output_limit", "kernel_died"])
def test_a_run_that_was_ended_says_by_what(serve: Serve, status: str) -> None:
    _, sandbox = serve(lines({"kind": "end", "status": status, "execution_count": None, "duration_ms": 1}))
    run = sandbox.run_code("x")
    assert (run.status, run.ok, run.timed_out) == (status, False, status == "timed_out")
    with pytest.raises(CodeRunError, match=status.replace("_", " ")):
        run.check()


def test_callbacks_hear_it_while_the_code_runs(serve: Serve) -> None:
    # The code continues only after the previous callback was called.
    heard: list[Any] = []

    def heard_at_least(count: int) -> bool:
        return len(heard) >= count

    said: list[Line] = [
        {"kind": "stdout", "text": "out"},
        {"kind": "stderr", "text": "err"},
        {"kind": "result", "main": True, "text": "value"},
        {"kind": "error", "name": "E", "value": "v", "traceback": "t"},
    ]

    def say() -> Said:
        for count, line in enumerate(said, 1):
            yield line
            eventually("the callback", partial(heard_at_least, count))
        yield {**END, "status": "error"}

    _, sandbox = serve(say)
    run = sandbox.run_code(
        "x", on_stdout=heard.append, on_stderr=heard.append, on_result=heard.append, on_error=heard.append
    )
    assert heard == ["out", "err", run.main, run.error]


def test_code_may_be_silent_for_longer_than_an_answer_may_take(serve: Serve) -> None:
    waiting = threading.Event()

    def say() -> Said:
        waiting.wait(0.4)
        yield {"kind": "stdout", "text": "at last"}
        waiting.wait(0.4)
        yield END

    server, _ = serve(say)
    with Client(server.url, "a-key", timeout=0.1) as client:
        assert Sandbox.connect("sbx1", client=client).run_code("x").stdout == "at last"


def test_a_picture_of_seven_mebibytes_comes_whole(serve: Serve) -> None:
    picture = "ab" * (7 << 19)
    _, sandbox = serve(lines({"kind": "result", "main": True, "png": picture}, END))
    (result,) = sandbox.run_code("x").results
    assert result.png == picture


# === Broken connections ===


def test_a_callback_that_fails_ends_the_run(serve: Serve) -> None:
    def on_stdout(_: str) -> None:
        raise RuntimeError("enough")

    server, sandbox = serve(endless)
    with pytest.raises(RuntimeError, match="enough"):
        sandbox.run_code("x", on_stdout=on_stdout)
    assert server.hung_up.wait(PATIENCE)


def test_a_run_is_sent_once_and_its_loss_is_told(serve: Serve) -> None:
    server, sandbox = serve(lines({"kind": "stdout", "text": "begun"}))
    with pytest.raises(BrokenError, match="ended without a result"):
        sandbox.run_code("x")
    assert len([what for what, _ in server.asked if what.endswith("/run")]) == 1
    gone = refusal("guest_unreachable", "the sandbox is gone")
    _, sandbox = serve(lines({"kind": "stdout", "text": "begun"}, {"kind": "broken", **gone}))
    with pytest.raises(UnavailableError, match="the sandbox is gone"):
        sandbox.run_code("x")


def test_an_image_without_an_interpreter_is_refused_with_what_to_do(serve: Serve) -> None:
    _, sandbox = serve(lines(refusal("unprocessable", "the sandbox has no python3", "take another image")))
    with pytest.raises(InvalidRequestError, match="no python3\nhint: take another image"):
        sandbox.run_code("x")


# === Contexts ===


@pytest.mark.parametrize(
    ("where", "context"),
    [
        ({}, "default"),
        ({"language": "python"}, "default"),
        ({"language": "r"}, "default-r"),
        ({"context": "ctx/1"}, "ctx%2F1"),
        ({"context": types.CodeContext(**CONTEXT)}, "ctx1"),
    ],
    ids=["nothing", "python", "another language", "an id", "a context"],
)
def test_where_code_runs(serve: Serve, where: dict[str, Any], context: str) -> None:
    server, sandbox = serve(lines(END))
    sandbox.run_code("x", **where)
    assert server.asked[-1] == (f"POST /v1/sandboxes/sbx1/contexts/{context}/run", {"code": "x"})


def test_a_context_has_a_language_already(serve: Serve) -> None:
    server, sandbox = serve(lines(END))
    with pytest.raises(InvalidRequestError, match="cannot be combined"):
        sandbox.run_code("x", context="ctx1", language="r")
    assert len(server.asked) == 1


def test_contexts_are_made_looked_at_and_ended(serve: Serve) -> None:
    server, sandbox = serve(lines(END))
    context = sandbox.contexts.create("r", cwd="/srv", env={"A": "b"})
    assert context == types.CodeContext(**CONTEXT)
    assert sandbox.contexts.list() == [context]
    assert sandbox.contexts.get("ctx1") == context
    sandbox.contexts.interrupt(context)
    assert sandbox.contexts.restart(context) == context
    sandbox.contexts.remove("ctx1")
    assert [(what.partition("?")[0].replace("/v1/sandboxes/sbx1", ""), body) for what, body in server.asked[1:]] == [
        ("POST /contexts", {"language": "r", "cwd": "/srv", "env": {"A": "b"}}),
        ("GET /contexts", None),
        ("GET /contexts/ctx1", None),
        ("POST /contexts/ctx1/interrupt", None),
        ("POST /contexts/ctx1/restart", None),
        ("DELETE /contexts/ctx1", None),
    ]


# === Results ===


def test_notebooks_are_shown_every_form() -> None:
    result = CodeResult(
        main=True,
        text="a",
        html="<a>",
        png="iVBO",
        json={"k": 1},
        data={"c": [1]},
        extra={"application/vnd.x": {"y": 2}, "text/plain": "not this one"},
    )
    bundle = {"text/plain": "a", "text/html": "<a>", "image/png": "iVBO", "application/json": {"k": 1}}
    assert result._repr_mimebundle_() == {**bundle, "application/vnd.x": {"y": 2}}
    assert result._repr_mimebundle_(include=None, exclude=None) == result._repr_mimebundle_()
    assert repr(result) == "<CodeResult text+html+png+json+data+extra 'a'>"
    assert repr(CodeResult(main=False)) == "<CodeResult empty>"


# === The asynchronous interface ===


async def test_callbacks_may_be_coroutines_and_a_cancelled_run_ends(serve: Serve) -> None:
    heard: list[Any] = []

    async def on_result(result: CodeResult) -> None:
        await asyncio.sleep(0)
        heard.append(result.text)

    server, _ = serve(lines({"kind": "result", "main": True, "text": "42"}, END))
    async with AsyncClient(server.url, "a-key") as client:
        sandbox = await AsyncSandbox.connect("sbx1", client=client)
        run = await sandbox.run_code("x", on_result=on_result, on_stdout=heard.append)
        assert (heard, run.text) == (["42"], "42")
        assert [context.id for context in await sandbox.contexts.list()] == ["ctx1"]
    server, _ = serve(endless)
    async with AsyncClient(server.url, "a-key") as client:
        sandbox = await AsyncSandbox.connect("sbx1", client=client)
        begun = asyncio.Event()
        running = asyncio.ensure_future(sandbox.run_code("x", on_stdout=lambda _: begun.set()))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(server.hung_up.wait, PATIENCE)


# === With an interpreter ===


@pytest.fixture
def code(interpreter: str, client: Client) -> Iterator[Sandbox]:
    """A sandbox that runs code."""
    with Sandbox.create(interpreter, client=client) as sandbox:
        yield sandbox


def test_variables_are_kept_and_the_last_line_has_a_value(code: Sandbox) -> None:
    assert code.run_code("x = 41", check=True).text is None
    heard: list[str] = []
    run = code.run_code(
        "import sys; print('out'); print('err', file=sys.stderr); x + 1", on_stdout=heard.append, check=True
    )
    assert (run.text, run.stdout, run.stderr, "".join(heard)) == ("42", "out\n", "err\n", "out\n")
    (context,) = code.contexts.list()
    assert (context.id, context.language, context.state) == ("default", "python", "idle")
    assert code.run_code("import os; os.environ['WHOSE']", env={"WHOSE": "yours"}, check=True).text == "yours"


def test_what_code_fails_with_and_that_its_context_goes_on(code: Sandbox) -> None:
    errors: list[types.CodeError] = []
    run = code.run_code("y = 7\n1 / 0", on_error=errors.append)
    assert run.status == "error"
    assert errors == [run.error]
    assert errors[0].name == "ZeroDivisionError"
    assert "1 / 0" in errors[0].traceback
    assert code.run_code("y", check=True).text == "7"
    assert code.run_code("input()").status == "error", "there is nobody to ask"


def test_plots_and_tables_come_in_every_form(code: Sandbox) -> None:
    shown: list[CodeResult] = []
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6])\nplt.title('growth')\nplt.show()"
    run = code.run_code(plot, on_result=shown.append, check=True)
    assert shown == run.results
    (figure,) = [result for result in run.results if result.png]
    assert "image/png" in figure._repr_mimebundle_()
    assert figure.chart["type"] == "line"
    assert figure.chart["title"] == "growth"
    table = code.run_code("import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})", check=True).main
    assert table is not None
    assert table.data == {"a": [1, 2], "b": ["x", "y"]}
    assert "<table" in (table.html or "")


def test_time_output_and_interrupts_end_a_run_and_nothing_else(code: Sandbox) -> None:
    code.run_code("kept = 'still there'", check=True)
    assert code.run_code("import time; time.sleep(1000)", timeout=0.5).timed_out
    assert code.run_code("while True: print('x' * 1000)", max_output=100_000).status == "output_limit"
    begun = threading.Event()
    runs: list[Any] = []

    def run() -> None:
        text = "print('begun', flush=True)\nimport time\ntime.sleep(1000)"
        runs.append(code.run_code(text, on_stdout=lambda _: begun.set()))

    runner = threading.Thread(target=run)
    runner.start()
    assert begun.wait(PATIENCE)
    assert code.contexts.get("default").state == "busy"
    code.contexts.interrupt("default")
    runner.join(PATIENCE)
    assert [run.status for run in runs] == ["interrupted"]
    assert code.run_code("kept", check=True).text == "still there"


def test_contexts_know_nothing_of_each_other(code: Sandbox) -> None:
    one = code.contexts.create(cwd="/tmp", env={"WHOSE": "one"})
    other = code.contexts.create()
    code.run_code("whose = 'mine'", context=one, check=True)
    here = "import os; (os.getcwd(), os.environ['WHOSE'], whose)"
    assert code.run_code(here, context=one, check=True).text == "('/tmp', 'one', 'mine')"
    error = code.run_code("whose", context=other.id).error
    assert error is not None
    assert error.name == "NameError"
    assert {context.id for context in code.contexts.list()} >= {one.id, other.id}
    assert code.contexts.restart(one).id == one.id
    assert code.run_code("whose", context=one).status == "error"
    code.contexts.remove(other)
    with pytest.raises(NotFoundError):
        code.contexts.get(other)
    with pytest.raises(InvalidRequestError):
        code.run_code("1", language="no-such-language")


def test_variables_outlive_sleep_and_go_along_with_forks(code: Sandbox) -> None:
    code.run_code("n = 1", check=True)
    code.sleep()
    assert code.run_code("n += 1; n", check=True).text == "2"
    (child,) = code.fork(1)
    try:
        assert child.run_code("n += 10; n", check=True).text == "12"
        assert code.run_code("n", check=True).text == "2"
    finally:
        child.delete()
