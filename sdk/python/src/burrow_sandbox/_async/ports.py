"""The ports of a sandbox: listening, publishing and connecting."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Mapping

import httpx

from .. import types
from .._wire import Duration, given, path, seconds
from ..errors import UnavailableError
from .transport import AsyncTransport

POLL_SECONDS = 0.05


class AsyncPorts:
    """The listening and published ports of a sandbox.

    >>> server = await sandbox.spawn("python3 -m http.server 8000")
    >>> port = await sandbox.ports.wait(8000)
    >>> async with sandbox.ports.http(8000) as http:
    ...     print((await http.get("/")).status_code)
    200
    """

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def list(self) -> builtins.list[types.Port]:
        """All listening and published ports, by number."""
        return await self._transport.all(types.Port, self._path())

    async def wait(self, port: int, timeout: Duration = 60) -> types.Port:
        """Waits until a server listens on a port."""
        deadline = time.monotonic() + (seconds(timeout) or 0)
        while True:
            for found in await self.list():
                if found.port == port and found.addresses:
                    return found
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"nothing listens on port {port}",
                    code="port_closed",
                    hint="check the output of the server for errors",
                )
            await asyncio.sleep(POLL_SECONDS)

    async def get_url(self, port: int, *, expires: Duration | None = None) -> str:
        """A link that opens a port without a key, valid for one hour by default."""
        made = await self._transport.send(
            types.PortUrl,
            "POST",
            self._path(str(port), "url"),
            given(expires_seconds=seconds(expires)),
            repeat=True,
        )
        return made.url

    async def publish(self, port: int) -> None:
        """Makes a port public: it can be opened without a key or a link."""
        await self._transport.nothing("PUT", self._path(str(port)), repeat=True)

    async def unpublish(self, port: int) -> None:
        """Makes a port private again."""
        await self._transport.nothing("DELETE", self._path(str(port)), repeat=True)

    def http(self, port: int, *, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
        """An HTTP client for the server on a port, through the daemon and with this client's key."""
        sent = dict(headers or {})
        if self._transport.api_key:
            sent["x-burrow-key"] = self._transport.api_key
        return self._transport.beside(f"/p/{self._sandbox}/{port}", sent)

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "ports", *rest)
