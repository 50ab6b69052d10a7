# Generated from _async/kv.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""The key-value store of a memory."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

from .. import params, types
from .._decode import decode, decode_union
from .._wire import Duration, given, path, seconds
from ..errors import NotFoundError
from .streams import Stream
from .transport import Transport


class Kv:
    """JSON values by key, with versions and expiry.

    >>> item = sandbox.memory.kv.set("plan/step", 3)
    >>> sandbox.memory.kv.get("plan/step")
    3
    >>> sandbox.memory.kv.get("no/such/key", default="nothing")
    'nothing'
    >>> (sandbox.memory.kv.increment("runs")).value
    1
    """

    def __init__(self, transport: Transport, of: str) -> None:
        self._transport = transport
        self._of = of

    def get(self, key: str, default: Any = None, *, as_of: str | int | None = None, space: str | None = None) -> Any:
        """The value of a key, or `default` if the key does not exist."""
        try:
            return (self.item(key, as_of=as_of, space=space)).value
        except NotFoundError:
            return default

    def item(self, key: str, *, as_of: str | int | None = None, space: str | None = None) -> types.KvItem:
        """The value of a key with its version and times. Raises `NotFoundError` if the key does not exist."""
        return self._transport.get(types.KvItem, self._path("kv", key), as_of=as_of, space=space)

    def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: Duration | None = None,
        if_version: int | None = None,
        if_absent: bool = False,
        space: str | None = None,
    ) -> types.KvItem:
        """Sets a key: with `if_version` only if it still has that version, with `if_absent` only if it does not exist.
        Otherwise raises `ConflictError`.
        """
        body = given(ttl_seconds=seconds(ttl), if_version=if_version, if_absent=if_absent or None)
        body["value"] = value
        # A conditional write is not retried: after the first success, its condition no longer holds.
        repeat = if_version is None and not if_absent
        return self._transport.send(types.KvItem, "PUT", self._path("kv", key), body, repeat=repeat, space=space)

    def delete(self, key: str, *, if_version: int | None = None, space: str | None = None) -> None:
        """Removes a key."""
        self._transport.nothing("DELETE", self._path("kv", key), repeat=True, if_version=if_version, space=space)

    def increment(
        self, key: str, by: float = 1, *, ttl: Duration | None = None, space: str | None = None
    ) -> types.KvItem:
        """Adds to a number. A missing key counts as 0."""
        body = given(key=key, by=by, ttl_seconds=seconds(ttl))
        return self._transport.send(types.KvItem, "POST", self._path("kv-increment"), body, space=space)

    def list(
        self, prefix: str = "", *, as_of: str | int | None = None, space: str | None = None
    ) -> builtins.list[types.KvItem]:
        """All keys that begin with `prefix`."""
        return self._transport.all(types.KvItem, self._path("kv"), prefix=prefix or None, as_of=as_of, space=space)

    def batch(
        self, operations: Iterable[params.KvOperation], *, space: str | None = None
    ) -> builtins.list[types.KvItem | None]:
        """Applies several operations atomically."""
        changed = self._transport.send(
            types.KvChanged, "POST", self._path("kv-batch"), {"ops": list(operations)}, space=space
        )
        return changed.items

    def history(self, key: str, *, space: str | None = None) -> builtins.list[types.KvVersion]:
        """The earlier versions of a key."""
        rows = self._transport.json("GET", self._path("kv-history", key), params={"space": space}, repeat=True)
        return [decode(types.KvVersion, row) for row in rows]

    def watch(self, prefix: str = "", *, since: int | None = None, space: str | None = None) -> Stream[types.KvEvent]:
        """Every change of keys that begin with `prefix`, from now on or after the sequence number `since`; none is missed.

        `reset` reports that the sandbox was restored to a snapshot: read the keys again.
        """
        seen = {"seq": since}

        def read(line: dict[str, Any]) -> types.KvEvent | None:
            seen["seq"] = line.get("seq", seen["seq"])
            event: types.KvEvent | None = None if line["kind"] == "heartbeat" else decode_union("KvEvent", line)
            return event

        stream: Stream[types.KvEvent] = Stream(
            self._transport,
            lambda: self._transport.open(
                "GET", self._path("kv-watch"), prefix=prefix or None, since=seen["seq"], space=space
            ),
            read,
            endless=True,
        )
        stream.open()
        return stream

    def _path(self, *rest: str) -> str:
        return path("memory", self._of, *rest)
