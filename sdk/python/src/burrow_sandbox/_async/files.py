"""Files of a sandbox. Paths are absolute inside it."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator
from typing import IO, Union

from .. import tarballs, types
from .._decode import decode
from .._shims import async_in_thread
from .._wire import given, path
from .streams import AsyncStream
from .transport import AsyncTransport

CHUNK_BYTES = 256 << 10

Local = Union[str, "os.PathLike[str]"]
"""A local path."""


class AsyncFiles:
    """Reads, writes and watches files; copies file trees to and from the sandbox.

    >>> _ = await sandbox.files.write("/srv/notes/today.txt", "first line\\n")
    >>> await sandbox.files.read("/srv/notes/today.txt")
    'first line\\n'
    >>> [entry.name for entry in await sandbox.files.list("/srv/notes")]
    ['today.txt']
    """

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def read(self, path: str) -> str:
        """The text of a file. Invalid UTF-8 is replaced; `read_bytes` returns the unchanged bytes."""
        return (await self.read_bytes(path)).decode("utf-8", "replace")

    async def read_bytes(self, path: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file, or those from `start` up to but not including `end`.

        >>> _ = await sandbox.files.write("/tmp/digits", "0123456789")
        >>> await sandbox.files.read_bytes("/tmp/digits", start=2, end=5)
        b'234'
        """
        headers = {}
        if start or end is not None:
            # The end of an HTTP range is inclusive.
            headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        response = await self._transport.read(self._path(), headers=headers, path=path)
        return response.content

    async def read_stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file as a stream, for content that does not fit in memory."""
        response = await self._transport.open("GET", self._path(), path=path)
        async for piece in self._transport.chunks(response):
            yield piece

    async def write(
        self,
        path: str,
        data: str | bytes | IO[bytes],
        *,
        mode: str | None = None,
        user: str | None = None,
        parents: bool = True,
        sync: bool = False,
    ) -> types.FileEntry:
        """Replaces a file atomically: readers see either the old or the new content.

        `data` may be an open file, which is streamed. `mode` is octal, as in `"0755"`; `parents` creates missing
        directories; `sync` writes the file to disk before the call returns.
        """
        content = data.encode() if isinstance(data, str) else data
        answer = await self._transport.upload(
            "PUT",
            self._path(),
            content if isinstance(content, bytes) else pieces(content),
            repeat=True,
            path=path,
            mode=mode,
            user=user,
            parents=parents,
            sync=sync,
        )
        return decode(types.FileEntry, answer)

    async def write_at(self, path: str, offset: int, data: bytes) -> types.FileEntry:
        """Writes to an existing file at an offset."""
        answer = await self._transport.upload("PUT", self._path(), data, repeat=True, path=path, offset=str(offset))
        return decode(types.FileEntry, answer)

    async def list(self, path: str, *, depth: int = 1) -> builtins.list[types.FileEntry]:
        """The entries of a directory, down to `depth` levels."""
        found = await self._transport.get(types.FileList, self._path("list"), path=path, depth=depth)
        return found.entries

    async def stat(self, path: str, *, follow: bool = False) -> types.FileEntry:
        """The metadata of a path. For a symbolic link, of the link itself, or with `follow` of its target."""
        return await self._transport.get(types.FileEntry, self._path("stat"), path=path, follow=follow)

    async def exists(self, path: str) -> bool:
        """Whether a path exists.

        >>> await sandbox.files.exists("/etc/passwd"), await sandbox.files.exists("/no/such/file")
        (True, False)
        """
        from ..errors import NotFoundError

        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or with `recursive` a directory with its contents."""
        await self._transport.nothing("DELETE", self._path(), repeat=True, path=path, recursive=recursive)

    async def move(self, source: str, target: str) -> types.FileEntry:
        """Moves or renames a file or directory."""
        return await self._transport.send(types.FileEntry, "POST", self._path("move"), {"from": source, "to": target})

    async def mkdir(
        self, path: str, *, parents: bool = True, mode: str | None = None, user: str | None = None
    ) -> types.FileEntry:
        """Creates a directory."""
        body = given(path=path, parents=parents, mode=mode, user=user)
        return await self._transport.send(types.FileEntry, "POST", self._path("mkdir"), body)

    async def chmod(self, path: str, mode: str) -> types.FileEntry:
        """Changes permission bits, given in octal as in `"0644"`."""
        body = {"path": path, "mode": mode}
        return await self._transport.send(types.FileEntry, "POST", self._path("chmod"), body, repeat=True)

    async def upload(self, local: Local, path: str, *, user: str | None = None) -> None:
        """Copies a local file to a path, or the contents of a local directory into a directory of the sandbox.

        >>> await sandbox.files.upload("src", "/srv/project")
        """
        if not await async_in_thread(os.path.isdir, local):
            with await async_in_thread(tarballs.open_read, local) as file:
                mode = await async_in_thread(tarballs.mode_of, file)
                await self.write(path, file, mode=mode, user=user)
            return
        with await async_in_thread(tarballs.pack, local) as archive:
            await self.upload_tar(archive, path, user=user)

    async def download(self, path: str, local: Local) -> None:
        """Copies a file to a local path, or the contents of a directory into a local directory.

        Entries that would be written outside the local directory and device files are rejected.
        """
        if (await self.stat(path, follow=True)).kind != "directory":
            with await async_in_thread(tarballs.open_write, local) as file:
                async for piece in self.read_stream(path):
                    await async_in_thread(file.write, piece)
            return
        with tarballs.spool() as archive:
            async for piece in self.download_tar(path):
                await async_in_thread(archive.write, piece)
            await async_in_thread(tarballs.unpack, archive, local)

    async def upload_tar(self, archive: bytes | IO[bytes], path: str, *, user: str | None = None) -> types.TarSummary:
        """Unpacks a tar archive into a directory, which is created if it does not exist."""
        content = archive if isinstance(archive, bytes) else pieces(archive)
        headers = {"content-type": "application/x-tar"}
        answer = await self._transport.upload("PUT", self._path("tar"), content, headers=headers, path=path, user=user)
        return decode(types.TarSummary, answer)

    async def download_tar(self, path: str) -> AsyncIterator[bytes]:
        """A file or directory as a tar archive. The archive is untrusted: unpack it safely."""
        response = await self._transport.open("GET", self._path("tar"), path=path)
        async for piece in self._transport.chunks(response):
            yield piece

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncStream[types.WatchEvent]:
        """Reports changes below a directory, starting when this call returns.

        After a broken connection, or when too many changes happen at once, an event of kind `overflow` reports that changes
        may have been missed: read the directory again, then continue.

        >>> async with await sandbox.files.watch("/tmp") as changes:
        ...     _ = await sandbox.files.write("/tmp/news", "!")
        ...     async for change in changes:
        ...         if change.path == "/tmp/news":
        ...             break
        """
        missed = types.WatchEvent(kind="overflow", path=path)
        stream = AsyncStream(
            self._transport,
            lambda: self._transport.open("GET", self._path("watch"), path=path, recursive=recursive),
            lambda line: decode(types.WatchEvent, line),
            endless=True,
            resumed=lambda: missed,
        )
        # The first event reports that the watch is active.
        await stream.__anext__()
        return stream

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "files", *rest)


async def pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The content of an open file, in pieces for an upload."""
    while piece := await async_in_thread(file.read, CHUNK_BYTES):
        yield piece
