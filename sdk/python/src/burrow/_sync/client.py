# Generated from _async/client.py by `tools/generate.py`: change that, and generate again.
"""A daemon: what is not of one sandbox, and the way to sandboxes."""

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
    """One daemon. Where it is and which key opens it come from the arguments, else from `BURROW_URL`, `BURROW_API_KEY` and
    `BURROW_CA_FILE`, else as the command line finds them.

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
        """The memory of a sandbox or a space, by name or id; `space:NAME` and `sandbox:NAME` say which is meant."""
        return Memory(self.transport, of)

    def version(self) -> types.Version:
        """The daemon's version."""
        return self.transport.get(types.Version, path("version"))

    def host(self) -> types.HostInfo:
        """What the host can do, and how full it is."""
        return self.transport.get(types.HostInfo, path("host"))

    def tree(self) -> list[types.TreeNode]:
        """Who came from whom."""
        return (self.transport.get(types.Tree, path("tree"))).nodes

    def create_key(
        self, name: str, scope: types.Scope, *, sandbox: str | None = None, ttl: Duration | None = None
    ) -> types.CreatedKey:
        """A new key, whose secret is shown this once."""
        body = given(name=name, scope=scope, sandbox=sandbox, ttl_seconds=seconds(ttl))
        return self.transport.create(types.CreatedKey, path("keys"), body)

    def revoke_key(self, key: str) -> None:
        """Ends a key at once."""
        self.transport.nothing("DELETE", path("keys", key), repeat=True)

    def events(
        self, *, sandbox: str | None = None, since: int | None = None, follow: bool = False
    ) -> Stream[types.Event]:
        """What happened on the host, in order; with `follow` also what happens from now on."""
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
    """The client that the environment describes, shared by all who do not bring their own."""
    url = find_url(None)
    wanted = (url, find_key(None, url) or "", os.environ.get("BURROW_CA_FILE", ""))
    clients = _DEFAULTS.setdefault(owner(), {})
    if wanted not in clients:
        clients[wanted] = Client()
    return clients[wanted]
