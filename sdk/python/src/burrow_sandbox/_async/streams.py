"""Streams that resume where they broke off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import httpx

from ..errors import BrokenError, BurrowError, api_error
from .transport import AsyncTransport, is_transient

T = TypeVar("T")

# With the delays, about a minute of consecutive attempts: longer than a restart of the daemon.
RESUMES_MAX = 60
RESUME_PAUSE = 0.05
RESUME_PAUSE_MAX = 1.0


def resume_pause(failures: int) -> float:
    """The delay before the next attempt, in seconds."""
    return min(RESUME_PAUSE * float(2 ** min(failures, 10)), RESUME_PAUSE_MAX)


class AsyncStream(Generic[T]):
    """Items as they arrive. Iterate over it; `aclose()` or the end of an `async with` block closes the connection."""

    def __init__(
        self,
        transport: AsyncTransport,
        open: Callable[[], Awaitable[httpx.Response]],
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
        self._lines: AsyncIterator[dict[str, Any]] | None = None
        self._response: httpx.Response | None = None
        self._failures = 0
        self._done = False

    def __aiter__(self) -> AsyncStream[T]:
        return self

    async def __anext__(self) -> T:
        while not self._done:
            try:
                item = await self._step()
            except StopAsyncIteration:
                self._lines = None
                if not self._endless:
                    break
                # An endless stream ends only when the daemon shuts down.
                item = await self._wait_to_reconnect(BrokenError("the daemon ended the stream"))
            except BurrowError as error:
                item = await self._wait_to_reconnect(error)
            if item is not None:
                return item
        self._done = True
        raise StopAsyncIteration

    async def open(self) -> None:
        """Sends the request, so that errors in it are raised immediately."""
        if self._lines is None:
            self._response = await self._open()
            self._lines = self._transport.lines(self._response)

    async def _step(self) -> T | None:
        await self.open()
        assert self._lines is not None
        line = await self._lines.__anext__()
        if line.get("kind") == "error" and "error" in line:
            raise api_error(line["error"])
        item = self._read(line)
        self._failures = 0
        return item

    async def _wait_to_reconnect(self, error: BurrowError) -> T | None:
        """Waits before the next attempt, or raises the error after the last one. Returns the item that reports the break."""
        await self._disconnect()
        if not is_transient(error) or self._failures >= RESUMES_MAX:
            self._done = True
            raise error
        await asyncio.sleep(resume_pause(self._failures))
        self._failures += 1
        return self._resumed() if self._failures == 1 else None

    async def _disconnect(self) -> None:
        self._lines = None
        if self._response is not None:
            await self._response.aclose()
            self._response = None

    async def aclose(self) -> None:
        """Closes the connection."""
        self._done = True
        await self._disconnect()

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
