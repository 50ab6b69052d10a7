# Generated from _async/process.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""A process in a sandbox: its output as it arrives, its input, its exit.

Output is received over a WebSocket with flow control: the process waits for a slow reader, so no output is lost. Input, signals
and terminal sizes are separate requests. A broken connection is re-established and continues at the same byte.
"""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from .. import types
from .._decode import decode
from .._shims import called
from .._websocket import BINARY, CLOSE, PING, TEXT, Message
from .._wire import Duration, milliseconds, path
from ..errors import BrokenError, BurrowError, ExecEndedError, SandboxAsleepError, api_error
from ..results import CommandResult, Output, exit_code
from .socket import Socket
from .streams import RESUMES_MAX, resume_pause
from .transport import Transport, is_transient

OutputCallback = Callable[[str], object]
"""Called with text as it arrives. With the asynchronous interface, it may be a coroutine function."""

HEARTBEAT_SECONDS = 20.0
SILENT_HEARTBEATS_MAX = 3
# Duration of one request of a long wait: shorter than the timeouts of usual proxies.
WAIT_MS = 30_000
OUTPUT_HEAD_BYTES = 9
STREAMS: dict[int, types.OutputStream] = {1: "stdout", 2: "stderr"}


class Process:
    """A started process: iterate over it to read its output, or wait for its exit.

    >>> process = sandbox.spawn("read name; echo hello $name", stdin=True)
    >>> process.write("world\\n")
    >>> result = process.wait()
    >>> result.stdout
    'hello world\\n'
    """

    def __init__(self, transport: Transport, exec: types.Exec) -> None:
        self._transport = transport
        self._exec = exec
        self._output: OutputStream | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self._exec.state}>"

    @property
    def id(self) -> str:
        """The id of the exec. `sandbox.process(id)` finds the process again, also from another program."""
        return self._exec.id

    @property
    def exec(self) -> types.Exec:
        """The last known state of the exec; `refresh()` requests it again."""
        return self._exec

    @property
    def exit_code(self) -> int | None:
        """The exit code as last known; `None` while the process runs."""
        return exit_code(self._exec)

    def refresh(self) -> types.Exec:
        """Requests the current state of the exec."""
        self._exec = self._transport.get(types.Exec, self._path())
        return self._exec

    def output(self, offset: int = 0, *, lossless: bool = True) -> OutputStream:
        """Streams the output from an offset. With `lossless`, the process waits for a slow reader.

        >>> process = sandbox.spawn("echo to be read later")
        >>> for piece in process.output():
        ...     print(piece.stream, piece.text)
        stdout to be read later
        """
        return OutputStream(self._transport, self._path(), self._set_exec, offset, lossless)

    def __iter__(self) -> OutputStream:
        if self._output is None:
            self._output = self.output()
        return self._output

    def wait(
        self,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Reads the output until the process exits. Returns the complete output, as far as it is still stored.

        `check` raises `CommandError` unless the process exits with 0.
        """
        stream = self.output()
        texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        truncated = False
        try:
            for piece in stream:
                texts[piece.stream].append(piece.text)
                truncated = truncated or piece.skipped > 0
                callback = on_stdout if piece.stream == "stdout" else on_stderr
                if callback is not None and piece.text:
                    called(callback, piece.text)
        finally:
            stream.close()
        code = exit_code(self._exec)
        assert code is not None, "the stream ends only after the exit of the process"
        result = CommandResult(
            exit_code=code,
            stdout="".join(texts["stdout"]),
            stderr="".join(texts["stderr"]),
            exec=self._exec,
            truncated=truncated,
        )
        return result.check() if check else result

    def wait_exit(self, timeout: Duration | None = None) -> int | None:
        """Waits for the exit without reading output. Returns `None` if the process still runs after `timeout`."""
        left = milliseconds(timeout)
        while True:
            step = WAIT_MS if left is None else min(left, WAIT_MS)
            self._exec = self._transport.get(types.Exec, self._path("wait"), timeout_ms=step)
            if left is not None:
                left -= step
            if self._exec.state != "running" or left == 0:
                return exit_code(self._exec)

    def write(self, data: str | bytes, *, close: bool = False) -> None:
        """Writes to standard input, and with `close` closes it. The process must have been started with `stdin=True`.

        Returns when the sandbox has received the data.
        """
        content = data.encode() if isinstance(data, str) else bytes(data)
        self._transport.upload("POST", self._path("stdin"), content, close=close)

    def close_stdin(self) -> None:
        """Closes standard input."""
        self.write(b"", close=True)

    def signal(self, signal: str, *, group: bool = True) -> None:
        """Sends `TERM`, `INT`, `HUP`, ... to the process group, or to the process alone with `group=False`."""
        self._transport.nothing("POST", self._path("signal"), {"signal": signal, "group": group})

    def kill(self) -> bool:
        """Kills the process group with `SIGKILL`. Returns whether the process was still running."""
        try:
            self.signal("KILL")
        except ExecEndedError:
            return False
        return True

    def resize(self, columns: int, rows: int) -> None:
        """Resizes the terminal."""
        self._transport.nothing("POST", self._path("resize"), {"columns": columns, "rows": rows}, repeat=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kills the process if it still runs."""
        if self._output is not None:
            self._output.close()
        if self._exec.state == "running":
            self.kill()

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._exec.sandbox_id, "execs", self._exec.id, *rest)

    def _set_exec(self, exec: types.Exec) -> None:
        self._exec = exec


class OutputStream:
    """The output of a process: each piece once and in order. Ends when the process has exited."""

    def __init__(
        self,
        transport: Transport,
        exec_path: str,
        ended: Callable[[types.Exec], None],
        offset: int,
        lossless: bool,
    ) -> None:
        self._transport = transport
        self._path = exec_path
        self._ended = ended
        self._offset = offset
        self._skipped = 0
        self._mode: Literal["lossless", "lossy"] = "lossless" if lossless else "lossy"
        self._socket: Socket | None = None
        self._failures = 0
        self._silent = 0
        self._done = False
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in STREAMS.values()}

    @property
    def offset(self) -> int:
        """The offset after the last returned byte, where another reader would continue."""
        return self._offset

    def __iter__(self) -> OutputStream:
        return self

    def __next__(self) -> Output:
        while not self._done:
            try:
                piece = self._step()
            except BurrowError as error:
                self._wait_to_reconnect(error)
                continue
            if piece is not None:
                return piece
        raise StopIteration

    def _step(self) -> Output | None:
        if self._socket is None:
            self._socket = self._transport.websocket(self._path + "/attach", offset=self._offset, mode=self._mode)
        message = self._socket.receive(HEARTBEAT_SECONDS)
        if message is None:
            self._silent += 1
            if self._silent > SILENT_HEARTBEATS_MAX:
                raise BrokenError("the daemon did not answer pings")
            self._socket.send(PING, b"")
            return None
        self._silent = 0
        return self._take(message)

    def _take(self, message: Message) -> Output | None:
        if message.kind == BINARY:
            return self._piece(message.data)
        if message.kind == TEXT:
            self._notice(json.loads(message.data))
        elif message.kind == CLOSE:
            if message.data[2:] == b"sandbox_asleep":
                # Attaching again would wake the sandbox, although it was put to sleep on purpose.
                raise SandboxAsleepError("the sandbox was put to sleep", code="sandbox_asleep")
            raise BrokenError("the daemon closed the connection")
        return None

    def _piece(self, data: bytes) -> Output | None:
        stream = STREAMS.get(data[0]) if len(data) >= OUTPUT_HEAD_BYTES else None
        if stream is None:
            raise BrokenError("the daemon sent an invalid output message")
        self._failures = 0
        begins = int.from_bytes(data[1:OUTPUT_HEAD_BYTES], "big")
        # On a new connection, the first message may begin before the requested offset.
        known = max(0, self._offset - begins)
        fresh = data[OUTPUT_HEAD_BYTES + known :]
        if not fresh:
            return None
        self._offset = begins + known + len(fresh)
        skipped, self._skipped = self._skipped, 0
        return Output(
            stream=stream,
            data=fresh,
            text=self._decoders[stream].decode(fresh),
            offset=begins + known,
            skipped=skipped,
        )

    def _notice(self, notice: dict[str, Any]) -> None:
        kind = notice.get("kind")
        if kind == "gap":
            self._skipped += notice["to"] - max(notice["from"], self._offset)
            self._offset = max(self._offset, notice["to"])
        elif kind == "exit":
            self._ended(decode(types.Exec, notice["exec"]))
            self.close()
        elif kind == "error":
            raise api_error(notice["error"])

    def _wait_to_reconnect(self, error: BurrowError) -> None:
        """Waits before the next attempt, or raises the error after the last one."""
        self._disconnect()
        if not is_transient(error) or self._failures >= RESUMES_MAX:
            self._done = True
            raise error
        time.sleep(resume_pause(self._failures))
        # Counted as a failure until output proves that the next connection works.
        self._failures += 1

    def _disconnect(self) -> None:
        self._silent = 0
        if self._socket is not None:
            socket, self._socket = self._socket, None
            socket.close()

    def close(self) -> None:
        """Closes the connection. The process continues."""
        self._done = True
        self._disconnect()
