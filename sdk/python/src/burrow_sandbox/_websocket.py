"""The client side of the WebSocket protocol (RFC 6455), without I/O.

Received bytes are passed to `Frames.feed`; `Frames.next` returns complete messages. Supports what the daemon uses: no
extensions, and no validation of text beyond JSON.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
from dataclasses import dataclass

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
_CONTINUATION = 0x0
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# The daemon sends output in far smaller messages.
MESSAGE_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Message:
    """One complete message."""

    kind: int
    data: bytes


def new_key() -> str:
    """A new value for `Sec-WebSocket-Key`."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """The expected value of `Sec-WebSocket-Accept` for a key."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()


def frame(kind: int, data: bytes) -> bytes:
    """Encodes one message as a single frame, masked as the protocol requires of clients."""
    length = len(data)
    if length < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, length)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, length)
    mask = os.urandom(4)
    return head + mask + _masked(data, mask)


def _masked(data: bytes, mask: bytes) -> bytes:
    if not data:
        return b""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")


class Frames:
    """Assembles messages from received bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._parts_kind: int | None = None

    def feed(self, data: bytes) -> None:
        """Adds received bytes to the buffer."""
        self._buffer += data

    def next(self) -> Message | None:
        """The next complete message, or `None` if more bytes are needed. Raises `ValueError` on a protocol violation."""
        while True:
            piece = self._next_frame()
            if piece is None:
                return None
            final, kind, data = piece
            if kind >= CLOSE:
                return Message(kind, data)
            if kind != _CONTINUATION:
                if self._parts_kind is not None:
                    raise ValueError("a new message began before the previous one ended")
                self._parts_kind = kind
            elif self._parts_kind is None:
                raise ValueError("a continuation frame without a message to continue")
            self._parts.append(data)
            if sum(map(len, self._parts)) > MESSAGE_BYTES_MAX:
                raise ValueError(f"a message is larger than {MESSAGE_BYTES_MAX} bytes")
            if final:
                message = Message(self._parts_kind, b"".join(self._parts))
                self._parts, self._parts_kind = [], None
                return message

    def _next_frame(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        if buffer[0] & 0x70 or buffer[1] & 0x80:
            raise ValueError("a frame with reserved bits or a mask, which servers must not send")
        length, head = buffer[1] & 0x7F, 2
        if length == 126:
            head = 4
        elif length == 127:
            head = 10
        if len(buffer) < head:
            return None
        if head > 2:
            length = int.from_bytes(buffer[2:head], "big")
        if length > MESSAGE_BYTES_MAX:
            raise ValueError(f"a message is larger than {MESSAGE_BYTES_MAX} bytes")
        if len(buffer) < head + length:
            return None
        final, kind = bool(buffer[0] & 0x80), buffer[0] & 0x0F
        data = bytes(buffer[head : head + length])
        del buffer[: head + length]
        return final, kind, data
