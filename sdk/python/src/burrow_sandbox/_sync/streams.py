# Generated from _async/streams.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Streams that resume where they broke off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx

from ..errors import BrokenError, BurrowError, api_error
from .transport import Transport, is_transient

T = TypeVar("T")

# With the delays, about a minute of consecutive attempts: longer than a restart of the daemon.
RESUMES_MAX = 60
RESUME_PAUSE = 0.05
RESUME_PAUSE_MAX = 1.0


def resume_pause(failures: int) -> float:
    """The delay before the next attempt, in seconds."""
    return min(RESUME_PAUSE * float(2 ** min(failures, 10)), RESUME_PAUSE_MAX)


class Stream(Generic[T]):
    """Items as they arrive. Iterate over it; `close()` or the end of an `with` block closes the connection."""

    def __init__(
        self,
        transport: Transport,
        open: Callable[[], httpx.Response],
        read: Callable[[dict[str, Any]], T | None],
        *,
        endless: bool,
        resumed: Callable[[], T | None] = lambda: None,
    ) -> None:
        """`open` starts after the last item that `read` has decoded; `read` returns `None` for lines to skip."""
        self._transport = transport
        self._open = open
        self._read = read
        self._endless = endless
        self._resumed = resumed
        self._lines: Iterator[dict[str, Any]] | None = None
        self._response: httpx.Response | None = None
        self._failures = 0
        self._done = False

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        while not self._done:
            try:
                item = self._step()
            except StopIteration:
                self._lines = None
                if not self._endless:
                    break
                # An endless stream ends only when the daemon shuts down.
                item = self._wait_to_reconnect(BrokenError("the daemon ended the stream"))
            except BurrowError as error:
                item = self._wait_to_reconnect(error)
            if item is not None:
                return item
        self._done = True
        raise StopIteration

    def open(self) -> None:
        """Sends the request, so that errors in it are raised immediately."""
        if self._lines is None:
            self._response = self._open()
            self._lines = self._transport.lines(self._response)

    def _step(self) -> T | None:
        self.open()
        assert self._lines is not None
        line = self._lines.__next__()
        if line.get("kind") == "error" and "error" in line:
            raise api_error(line["error"])
        item = self._read(line)
        self._failures = 0
        return item

    def _wait_to_reconnect(self, error: BurrowError) -> T | None:
        """Waits before the next attempt, or raises the error after the last one. Returns the item that reports the break."""
        self._disconnect()
        if not is_transient(error) or self._failures >= RESUMES_MAX:
            self._done = True
            raise error
        time.sleep(resume_pause(self._failures))
        self._failures += 1
        return self._resumed() if self._failures == 1 else None

    def _disconnect(self) -> None:
        self._lines = None
        if self._response is not None:
            self._response.close()
            self._response = None

    def close(self) -> None:
        """Closes the connection."""
        self._done = True
        self._disconnect()

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
