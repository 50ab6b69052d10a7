# Generated from _async/artifacts.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Artifacts of a memory: named, versioned blobs."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from .. import types
from .._decode import decode
from .._wire import path
from .files import pieces
from .transport import Transport


class Artifacts:
    """Artifacts: reports, data, logs and other content that is too large for an entry.

    >>> stored = sandbox.memory.artifacts.put("reports/q3.txt", "all is well", media_type="text/plain")
    >>> stored.bytes
    11
    >>> sandbox.memory.artifacts.get("reports/q3.txt")
    b'all is well'
    """

    def __init__(self, transport: Transport, of: str) -> None:
        self._transport = transport
        self._of = of

    def put(
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
        answer = self._transport.upload(
            "PUT",
            self._path("artifacts", name),
            content if isinstance(content, bytes) else pieces(content),
            headers=headers,
            space=space,
        )
        return decode(types.Artifact, answer)

    def get(
        self,
        name: str,
        *,
        version: int | None = None,
        as_of: str | int | None = None,
        space: str | None = None,
    ) -> bytes:
        """The bytes of an artifact."""
        response = self._transport.read(self._path("artifacts", name), version=version, as_of=as_of, space=space)
        return response.content

    def get_stream(self, name: str, *, version: int | None = None, space: str | None = None) -> Iterator[bytes]:
        """The bytes of an artifact as a stream, for content that does not fit in memory."""
        response = self._transport.open("GET", self._path("artifacts", name), version=version, space=space)
        for piece in self._transport.chunks(response):
            yield piece

    def list(
        self, prefix: str = "", *, as_of: str | int | None = None, space: str | None = None
    ) -> builtins.list[types.Artifact]:
        """All artifacts whose names begin with `prefix`."""
        return self._transport.all(
            types.Artifact, self._path("artifacts"), prefix=prefix or None, as_of=as_of, space=space
        )

    def versions(self, name: str, *, space: str | None = None) -> builtins.list[types.Artifact]:
        """All versions of an artifact."""
        rows = self._transport.json("GET", self._path("artifact-versions", name), params={"space": space}, repeat=True)
        return [decode(types.Artifact, row) for row in rows]

    def remove(self, name: str, *, space: str | None = None) -> None:
        """Removes an artifact."""
        self._transport.nothing("DELETE", self._path("artifacts", name), repeat=True, space=space)

    def _path(self, *rest: str) -> str:
        return path("memory", self._of, *rest)
