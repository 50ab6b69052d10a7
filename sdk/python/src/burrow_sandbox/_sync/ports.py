# Generated from _async/ports.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""The ports of a sandbox: listening, publishing and connecting."""

from __future__ import annotations

import builtins
import time
from collections.abc import Mapping

import httpx

from .. import types
from .._wire import Duration, given, path, seconds
from ..errors import UnavailableError
from .transport import Transport

POLL_SECONDS = 0.05


class Ports:
    """The listening and published ports of a sandbox.

    >>> server = sandbox.spawn("python3 -m http.server 8000")
    >>> port = sandbox.ports.wait(8000)
    >>> with sandbox.ports.http(8000) as http:
    ...     print((http.get("/")).status_code)
    200
    """

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def list(self) -> builtins.list[types.Port]:
        """All listening and published ports, by number."""
        return self._transport.all(types.Port, self._path())

    def wait(self, port: int, timeout: Duration = 60) -> types.Port:
        """Waits until a server listens on a port."""
        deadline = time.monotonic() + (seconds(timeout) or 0)
        while True:
            for found in self.list():
                if found.port == port and found.addresses:
                    return found
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"nothing listens on port {port}",
                    code="port_closed",
                    hint="check the output of the server for errors",
                )
            time.sleep(POLL_SECONDS)

    def get_url(self, port: int, *, expires: Duration | None = None) -> str:
        """A link that opens a port without a key, valid for one hour by default."""
        made = self._transport.send(
            types.PortUrl,
            "POST",
            self._path(str(port), "url"),
            given(expires_seconds=seconds(expires)),
            repeat=True,
        )
        return made.url

    def publish(self, port: int) -> None:
        """Makes a port public: it can be opened without a key or a link."""
        self._transport.nothing("PUT", self._path(str(port)), repeat=True)

    def unpublish(self, port: int) -> None:
        """Makes a port private again."""
        self._transport.nothing("DELETE", self._path(str(port)), repeat=True)

    def http(self, port: int, *, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """An HTTP client for the server on a port, through the daemon and with this client's key."""
        sent = dict(headers or {})
        if self._transport.api_key:
            sent["x-burrow-key"] = self._transport.api_key
        return self._transport.beside(f"/p/{self._sandbox}/{port}", sent)

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "ports", *rest)
