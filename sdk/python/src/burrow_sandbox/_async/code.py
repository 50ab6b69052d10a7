"""Code in a sandbox: contexts that keep their variables, and running code in them.

A run is one request whose response is streamed until the code ends. The daemon interrupts a run whose client stops reading,
because no other client can read its output. A run whose connection broke is therefore neither resumed nor retried.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from .. import params, types
from .._decode import decode, decode_union
from .._shims import async_called
from .._wire import Duration, given, milliseconds, path
from ..code import CodeResult, CodeRun, ErrorCallback, ResultCallback
from ..errors import BrokenError, InvalidRequestError, api_error
from .process import OutputCallback
from .transport import AsyncTransport

# The context of runs that name none: `default` for Python, `default-LANGUAGE` for each other language.
DEFAULT_CONTEXT, DEFAULT_LANGUAGE = "default", "python"


class AsyncContexts:
    """The contexts of a sandbox: each is an interpreter process that keeps its variables between runs.

    Like all processes, contexts survive sleep and are part of snapshots and forks.

    >>> context = await sandbox.contexts.create(cwd="/tmp", env={"GREETING": "hello"})
    >>> run = await sandbox.run_code("import os; os.getcwd(), os.environ['GREETING']", context=context)
    >>> run.text
    "('/tmp', 'hello')"
    >>> await sandbox.contexts.remove(context)
    """

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def create(
        self, language: str | None = None, *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> types.CodeContext:
        """Creates a context, of Python by default. The image determines which languages are available."""
        body = given(language=language, cwd=cwd, env=dict(env) if env else None)
        return await self._transport.send(types.CodeContext, "POST", self._path(), body)

    async def list(self) -> builtins.list[types.CodeContext]:
        """All contexts, including the default contexts that runs have created."""
        return await self._transport.all(types.CodeContext, self._path())

    async def get(self, context: str | types.CodeContext) -> types.CodeContext:
        """The current state of a context."""
        return await self._transport.get(types.CodeContext, self._path(context))

    async def remove(self, context: str | types.CodeContext) -> None:
        """Removes a context: ends its process and any current run."""
        await self._transport.nothing("DELETE", self._path(context), repeat=True)

    async def interrupt(self, context: str | types.CodeContext) -> None:
        """Interrupts the current run of a context, like Ctrl-C; its variables are kept."""
        await self._transport.nothing("POST", self._path(context, "interrupt"))

    async def restart(self, context: str | types.CodeContext) -> types.CodeContext:
        """Restarts the process of a context; its variables are lost."""
        return await self._transport.send(types.CodeContext, "POST", self._path(context, "restart"))

    def _path(self, *rest: str | types.CodeContext) -> str:
        return _path(self._sandbox, *rest)


class AsyncHeard:
    """Collects the output of a run and passes it to the callbacks as it arrives."""

    def __init__(
        self,
        on_stdout: OutputCallback | None,
        on_stderr: OutputCallback | None,
        on_result: ResultCallback | None,
        on_error: ErrorCallback | None,
    ) -> None:
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._on_result = on_result
        self._on_error = on_error
        self._stdout: list[str] = []
        self._stderr: list[str] = []
        self._results: list[CodeResult] = []
        self._error: types.CodeError | None = None

    async def take(self, line: dict[str, Any]) -> CodeRun | None:
        """Processes one line of the response. Returns the complete run for the last line."""
        event: types.CodeEvent | None = decode_union("CodeEvent", line)
        match event:
            case types.CodeEventStdout():
                self._stdout.append(event.text)
                if self._on_stdout is not None:
                    await async_called(self._on_stdout, event.text)
            case types.CodeEventStderr():
                self._stderr.append(event.text)
                if self._on_stderr is not None:
                    await async_called(self._on_stderr, event.text)
            case types.CodeEventResult():
                result = decode(CodeResult, line)
                self._results.append(result)
                if self._on_result is not None:
                    await async_called(self._on_result, result)
            case types.CodeEventError():
                self._error = decode(types.CodeError, line)
                if self._on_error is not None:
                    await async_called(self._on_error, self._error)
            case types.CodeEventBroken():
                raise api_error(line["error"])
            case types.CodeEventEnd():
                return self._run(event)
        return None

    def _run(self, end: types.CodeEventEnd) -> CodeRun:
        return CodeRun(
            status=end.status,
            stdout="".join(self._stdout),
            stderr="".join(self._stderr),
            results=self._results,
            error=self._error,
            execution_count=end.execution_count,
            duration_ms=end.duration_ms,
            egress_denied=end.egress_denied,
        )


async def run_code(
    transport: AsyncTransport,
    sandbox: str,
    code: str,
    *,
    context: str | types.CodeContext | None,
    language: str | None,
    timeout: Duration | None,
    env: Mapping[str, str] | None,
    max_output: int | None,
    heard: AsyncHeard,
) -> CodeRun:
    """Runs code and waits for its end."""
    body: params.RunCode = {"code": code}
    if timeout is not None:
        body["timeout_ms"] = milliseconds(timeout)
    if env:
        body["env"] = dict(env)
    if max_output is not None:
        body["output_bytes_max"] = max_output
    where = _path(sandbox, _context(context, language), "run")
    # Code may run for hours without output.
    response = await transport.open("POST", where, body=body, silent=True)
    run = None
    try:
        # Read to the end, so that the connection can be reused.
        async for line in transport.lines(response):
            run = await heard.take(line) or run
    finally:
        # After a cancellation or a failed callback, close the response immediately: it keeps the code running.
        await response.aclose()
    if run is not None:
        return run
    raise BrokenError(
        "the stream of the run ended without a result",
        hint="the code was interrupted; the variables of its context are kept",
    )


def _context(context: str | types.CodeContext | None, language: str | None) -> str | types.CodeContext:
    if context is None:
        # The default context of the language, which the daemon creates on first use.
        return DEFAULT_CONTEXT if language in (None, DEFAULT_LANGUAGE) else f"{DEFAULT_CONTEXT}-{language}"
    if language is not None:
        raise InvalidRequestError(
            "`context` and `language` cannot be combined",
            code="invalid_request",
            hint="a context already has a language: pass only one of them, or create a context with `contexts.create(language)`",
        )
    return context


def _path(sandbox: str, *rest: str | types.CodeContext) -> str:
    parts = [part.id if isinstance(part, types.CodeContext) else part for part in rest]
    return path("sandboxes", sandbox, "contexts", *parts)
