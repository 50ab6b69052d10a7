# Generated from _async/client.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""The client of a daemon: everything that does not belong to one sandbox."""

from __future__ import annotations

import os
import weakref
from types import TracebackType
from typing import Any

from .. import types
from .._config import find_key, find_url
from .._decode import decode
from .._shims import owner
from .._wire import Duration, given, path, seconds
from .images import Images
from .memory import Memory
from .secrets import Secrets
from .snapshots import Snapshots
from .spaces import Spaces
from .streams import Stream
from .transport import ANSWER_SECONDS, Transport


class Client:
    """A client of one daemon. Address, key and CA come from the arguments, otherwise from `BURROW_URL`, `BURROW_API_KEY` and
    `BURROW_CA_FILE`, otherwise from the defaults of the CLI.

    >>> with Client() as other:
    ...     print((other.version()).version == (client.version()).version)
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
        self.transport = Transport(url, api_key, ca_file, timeout, proxy)
        self.secrets = Secrets(self.transport)
        self.snapshots = Snapshots(self.transport)
        self.spaces = Spaces(self.transport)
        self.images = Images(self.transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """The daemon's address."""
        return self.transport.url

    def memory(self, of: str) -> Memory:
        """The memory of a sandbox or a space, by name or id; `space:NAME` and `sandbox:NAME` resolve ambiguous names."""
        return Memory(self.transport, of)

    def version(self) -> types.Version:
        """The daemon's version."""
        return self.transport.get(types.Version, path("version"))

    def host(self) -> types.HostInfo:
        """The capabilities and the resource usage of the host."""
        return self.transport.get(types.HostInfo, path("host"))

    def tree(self) -> list[types.TreeNode]:
        """The lineage of sandboxes and snapshots: parents before their children."""
        return (self.transport.get(types.Tree, path("tree"))).nodes

    def create_key(
        self, name: str, scope: types.Scope, *, sandbox: str | None = None, ttl: Duration | None = None
    ) -> types.CreatedKey:
        """Creates an API key. Its secret is returned only once."""
        body = given(name=name, scope=scope, sandbox=sandbox, ttl_seconds=seconds(ttl))
        return self.transport.create(types.CreatedKey, path("keys"), body)

    def revoke_key(self, key: str) -> None:
        """Revokes a key immediately."""
        self.transport.nothing("DELETE", path("keys", key), repeat=True)

    def events(
        self, *, sandbox: str | None = None, since: int | None = None, follow: bool = False
    ) -> Stream[types.Event]:
        """The events of the host, in order; with `follow` also new events as they happen."""
        seen = {"seq": since}

        def read(line: dict[str, Any]) -> types.Event:
            event = decode(types.Event, line)
            seen["seq"] = event.seq
            return event

        stream = Stream(
            self.transport,
            lambda: self.transport.open("GET", path("events"), sandbox=sandbox, follow=follow, since=seen["seq"]),
            read,
            endless=follow,
        )
        stream.open()
        return stream

    def close(self) -> None:
        """Closes all connections."""
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_DEFAULTS: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], Client]] = weakref.WeakKeyDictionary()


def default_client() -> Client:
    """The client configured by the environment, shared by all calls without a `client`."""
    url = find_url(None)
    wanted = (url, find_key(None, url) or "", os.environ.get("BURROW_CA_FILE", ""))
    clients = _DEFAULTS.setdefault(owner(), {})
    if wanted not in clients:
        clients[wanted] = Client()
    return clients[wanted]
