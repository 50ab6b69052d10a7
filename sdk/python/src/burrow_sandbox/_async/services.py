"""Services: processes that start with their sandbox and are restarted when they exit."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from .. import types
from .._wire import given, path
from .transport import AsyncTransport


class AsyncServices:
    """The services of a sandbox.

    >>> service = await sandbox.services.set("web", "python3 -m http.server 8080", restart="on-failure")
    >>> [service.name for service in await sandbox.services.list()]
    ['web']
    >>> await sandbox.services.remove("web")
    """

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def set(
        self,
        name: str,
        command: str | Sequence[str],
        *,
        restart: types.RestartPolicy | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        workdir: str | None = None,
    ) -> types.Service:
        """Adds or changes a service."""
        body = given(
            command=command if isinstance(command, str) else None,
            argv=None if isinstance(command, str) else list(command),
            restart=restart,
            env=dict(env) if env else None,
            user=user,
            workdir=workdir,
        )
        return await self._transport.send(types.Service, "PUT", self._path(name), body, repeat=True)

    async def list(self) -> builtins.list[types.Service]:
        """All services."""
        return await self._transport.all(types.Service, self._path())

    async def restart(self, name: str) -> None:
        """Restarts a service."""
        await self._transport.nothing("POST", self._path(name, "restart"))

    async def remove(self, name: str) -> None:
        """Stops and removes a service."""
        await self._transport.nothing("DELETE", self._path(name), repeat=True)

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "services", *rest)
