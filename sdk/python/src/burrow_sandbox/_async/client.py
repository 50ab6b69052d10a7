"""The client of a daemon: everything that does not belong to one sandbox."""

from __future__ import annotations

import os
import weakref
from types import TracebackType
from typing import Any

from .. import types
from .._config import find_key, find_url
from .._decode import decode
from .._shims import async_owner
from .._wire import Duration, given, path, seconds
from .images import AsyncImages
from .memory import AsyncMemory
from .secrets import AsyncSecrets
from .snapshots import AsyncSnapshots
from .spaces import AsyncSpaces
from .streams import AsyncStream
from .transport import ANSWER_SECONDS, AsyncTransport


class AsyncClient:
    """A client of one daemon. Address, key and CA come from the arguments, otherwise from `BURROW_URL`, `BURROW_API_KEY` and
    `BURROW_CA_FILE`, otherwise from the defaults of the CLI.

    >>> async with AsyncClient() as other:
    ...     print((await other.version()).version == (await client.version()).version)
    True
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        ca_file: str | None = None,
        timeout: float = ANSWER_SECONDS,
        proxy: str | None = None,
    ) -> None:
        ca_file = ca_file or os.environ.get("BURROW_CA_FILE") or None
        self.transport = AsyncTransport(url, api_key, ca_file, timeout, proxy)
        self.secrets = AsyncSecrets(self.transport)
        self.snapshots = AsyncSnapshots(self.transport)
        self.spaces = AsyncSpaces(self.transport)
        self.images = AsyncImages(self.transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """The daemon's address."""
        return self.transport.url

    def memory(self, of: str) -> AsyncMemory:
        """The memory of a sandbox or a space, by name or id; `space:NAME` and `sandbox:NAME` resolve ambiguous names."""
        return AsyncMemory(self.transport, of)

    async def version(self) -> types.Version:
        """The daemon's version."""
        return await self.transport.get(types.Version, path("version"))

    async def host(self) -> types.HostInfo:
        """The capabilities and the resource usage of the host."""
        return await self.transport.get(types.HostInfo, path("host"))

    async def tree(self) -> list[types.TreeNode]:
        """The lineage of sandboxes and snapshots: parents before their children."""
        return (await self.transport.get(types.Tree, path("tree"))).nodes

    async def create_key(
        self, name: str, scope: types.Scope, *, sandbox: str | None = None, ttl: Duration | None = None
    ) -> types.CreatedKey:
        """Creates an API key. Its secret is returned only once."""
        body = given(name=name, scope=scope, sandbox=sandbox, ttl_seconds=seconds(ttl))
        return await self.transport.create(types.CreatedKey, path("keys"), body)

    async def revoke_key(self, key: str) -> None:
        """Revokes a key immediately."""
        await self.transport.nothing("DELETE", path("keys", key), repeat=True)

    async def events(
        self, *, sandbox: str | None = None, since: int | None = None, follow: bool = False
    ) -> AsyncStream[types.Event]:
        """The events of the host, in order; with `follow` also new events as they happen."""
        seen = {"seq": since}

        def read(line: dict[str, Any]) -> types.Event:
            event = decode(types.Event, line)
            seen["seq"] = event.seq
            return event

        stream = AsyncStream(
            self.transport,
            lambda: self.transport.open("GET", path("events"), sandbox=sandbox, follow=follow, since=seen["seq"]),
            read,
            endless=follow,
        )
        await stream.open()
        return stream

    async def aclose(self) -> None:
        """Closes all connections."""
        await self.transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


_DEFAULTS: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], AsyncClient]] = weakref.WeakKeyDictionary()


def default_client() -> AsyncClient:
    """The client configured by the environment, shared by all calls without a `client`."""
    url = find_url(None)
    wanted = (url, find_key(None, url) or "", os.environ.get("BURROW_CA_FILE", ""))
    clients = _DEFAULTS.setdefault(async_owner(), {})
    if wanted not in clients:
        clients[wanted] = AsyncClient()
    return clients[wanted]
