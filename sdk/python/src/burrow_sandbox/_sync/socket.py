# Generated from _async/socket.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""A WebSocket on a connection of the pool."""

from __future__ import annotations

from typing import Any

import httpcore
import httpx

from .._websocket import PING, PONG, Frames, Message, accept_of, frame, new_key
from ..errors import BrokenError

READ_BYTES = 256 << 10
WRITE_SECONDS = 60.0
# `httpx` uses `httpcore`, whose errors the connection of an upgraded response raises.
BROKEN = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.WriteTimeout, OSError)


class Socket:
    """Sends and receives messages. `receive` answers pings automatically."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._stream: Any = response.extensions["network_stream"]
        self._frames = Frames()

    @staticmethod
    def handshake() -> tuple[str, dict[str, str]]:
        """A new key, and the headers of an upgrade request with it."""
        key = new_key()
        headers = {
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": key,
        }
        return key, headers

    @classmethod
    def upgraded(cls, response: httpx.Response, key: str) -> Socket:
        """The socket of a response that accepted the upgrade."""
        accepted = response.headers.get("sec-websocket-accept")
        if response.status_code != 101 or accepted != accept_of(key):
            response.close()
            raise BrokenError("the daemon did not accept the WebSocket upgrade")
        return cls(response)

    def receive(self, timeout: float) -> Message | None:
        """The next message; `None` if none arrived in time."""
        while True:
            try:
                message = self._frames.next()
            except ValueError as error:
                raise BrokenError(f"the daemon violated the WebSocket protocol: {error}") from error
            if message is not None:
                if message.kind == PING:
                    self.send(PONG, message.data)
                    continue
                return message
            try:
                data = self._stream.read(READ_BYTES, timeout)
            except httpcore.ReadTimeout:
                return None
            except BROKEN as error:
                raise BrokenError(f"the connection broke: {error}") from error
            if not data:
                raise BrokenError("the daemon closed the connection")
            self._frames.feed(data)

    def send(self, kind: int, data: bytes) -> None:
        """Sends one message."""
        try:
            self._stream.write(frame(kind, data), WRITE_SECONDS)
        except BROKEN as error:
            raise BrokenError(f"the connection broke: {error}") from error

    def close(self) -> None:
        """Closes the connection."""
        self._response.close()
