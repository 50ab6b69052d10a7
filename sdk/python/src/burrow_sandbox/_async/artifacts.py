"""Artifacts of a memory: named, versioned blobs."""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

from .. import types
from .._decode import decode
from .._wire import path
from .files import pieces
from .transport import AsyncTransport


class AsyncArtifacts:
    """Artifacts: reports, data, logs and other content that is too large for an entry.

    >>> stored = await sandbox.memory.artifacts.put("reports/q3.txt", "all is well", media_type="text/plain")
    >>> stored.bytes
    11
    >>> await sandbox.memory.artifacts.get("reports/q3.txt")
    b'all is well'
    """

    def __init__(self, transport: AsyncTransport, of: str) -> None:
        self._transport = transport
        self._of = of

    async def put(
        self,
        name: str,
        data: str | bytes | IO[bytes],
        *,
        media_type: str = "application/octet-stream",
        metadata: Mapping[str, Any] | None = None,
        space: str | None = None,
    ) -> types.Artifact:
        """Stores an artifact, or a new version of it. An open file is streamed."""
        headers = {"content-type": media_type}
        if metadata:
            headers["x-burrow-metadata"] = json.dumps(dict(metadata))
        content = data.encode() if isinstance(data, str) else data
        answer = await self._transport.upload(
            "PUT",
            self._path("artifacts", name),
            content if isinstance(content, bytes) else pieces(content),
            headers=headers,
            space=space,
        )
        return decode(types.Artifact, answer)

    async def get(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: str | int | None = None,
        space: str | None = None,
    ) -> bytes:
        """The bytes of an artifact."""
        response = await self._transport.read(self._path("artifacts", name), version=version, as_of=as_of, space=space)
        return response.content

    async def get_stream(
        self, name: str, *, version: int | None = None, space: str | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes of an artifact as a stream, for content that does not fit in memory."""
        response = await self._transport.open("GET", self._path("artifacts", name), version=version, space=space)
        async for piece in self._transport.chunks(response):
            yield piece

    async def list(
        self, prefix: str = "", *, as_of: str | int | None = None, space: str | None = None
    ) -> builtins.list[types.Artifact]:
        """All artifacts whose names begin with `prefix`."""
        return await self._transport.all(
            types.Artifact, self._path("artifacts"), prefix=prefix or None, as_of=as_of, space=space
        )

    async def versions(self, name: str, *, space: str | None = None) -> builtins.list[types.Artifact]:
        """All versions of an artifact."""
        rows = await self._transport.json(
            "GET", self._path("artifact-versions", name), params={"space": space}, repeat=True
        )
        return [decode(types.Artifact, row) for row in rows]

    async def remove(self, name: str, *, space: str | None = None) -> None:
        """Removes an artifact."""
        await self._transport.nothing("DELETE", self._path("artifacts", name), repeat=True, space=space)

    def _path(self, *rest: str) -> str:
        return path("memory", self._of, *rest)
