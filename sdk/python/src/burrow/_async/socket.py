"""A WebSocket on one of the connections of the pool."""

from __future__ import annotations

from typing import Any

import httpcore
import httpx

from .._websocket import PING, PONG, Frames, Message, accept_of, frame, new_key
from ..errors import BrokenError

READ_BYTES = 256 << 10
WRITE_SECONDS = 60.0
# `httpcore` is what `httpx` stands on: the connection under an upgraded answer raises its errors.
BROKEN = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.WriteTimeout, OSError)


class AsyncSocket:
    """Messages both ways. Reading answers pings by itself."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._stream: Any = response.extensions["network_stream"]
        self._frames = Frames()

    @staticmethod
    def handshake() -> tuple[str, dict[str, str]]:
        """A key, and the headers that ask for an upgrade with it."""
        key = new_key()
        headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": key,
        }
        return key, headers

    @classmethod
    async def upgraded(cls, response: httpx.Response, key: str) -> AsyncSocket:
        """The socket of an answer that agreed."""
        accepted = response.headers.get("sec-websocket-accept")
        if response.status_code != 101 or accepted != accept_of(key):
            await response.aclose()
            raise BrokenError("the daemon did not agree to a WebSocket")
        return cls(response)

    async def receive(self, timeout: float) -> Message | None:
        """The next message; `None` when none came in that time."""
        while True:
            try:
                message = self._frames.next()
            except ValueError as error:
                raise BrokenError(f"the daemon sent what is no WebSocket: {error}") from error
            if message is not None:
                if message.kind == PING:
                    await self.send(PONG, message.data)
                    continue
                return message
            try:
                data = await self._stream.read(READ_BYTES, timeout)
            except httpcore.ReadTimeout:
                return None
            except BROKEN as error:
                raise BrokenError(f"the connection broke: {error}") from error
            if not data:
                raise BrokenError("the daemon closed the connection")
            self._frames.feed(data)

    async def send(self, kind: int, data: bytes) -> None:
        """Sends one message."""
        try:
            await self._stream.write(frame(kind, data), WRITE_SECONDS)
        except BROKEN as error:
            raise BrokenError(f"the connection broke: {error}") from error

    async def aclose(self) -> None:
        """Hangs up."""
        await self._response.aclose()
