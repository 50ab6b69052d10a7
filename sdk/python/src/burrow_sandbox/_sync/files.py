# Generated from _async/files.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Files of a sandbox. Paths are absolute inside it."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator
from typing import IO, Union

from .. import tarballs, types
from .._decode import decode
from .._shims import in_thread
from .._wire import given, path
from .streams import Stream
from .transport import Transport

CHUNK_BYTES = 256 << 10

Local = Union[str, "os.PathLike[str]"]
"""A local path."""


class Files:
    """Reads, writes and watches files; copies file trees to and from the sandbox.

    >>> _ = sandbox.files.write("/srv/notes/today.txt", "first line\\n")
    >>> sandbox.files.read("/srv/notes/today.txt")
    'first line\\n'
    >>> [entry.name for entry in sandbox.files.list("/srv/notes")]
    ['today.txt']
    """

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def read(self, path: str) -> str:
        """The text of a file. Invalid UTF-8 is replaced; `read_bytes` returns the unchanged bytes."""
        return (self.read_bytes(path)).decode("utf-8", "replace")

    def read_bytes(self, path: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of a file, or those from `start` up to but not including `end`.

        >>> _ = sandbox.files.write("/tmp/digits", "0123456789")
        >>> sandbox.files.read_bytes("/tmp/digits", start=2, end=5)
        b'234'
        """
        headers = {}
        if start or end is not None:
            # The end of an HTTP range is inclusive.
            headers["range"] = f"bytes={start}-{'' if end is None else end - 1}"
        response = self._transport.read(self._path(), headers=headers, path=path)
        return response.content

    def read_stream(self, path: str) -> Iterator[bytes]:
        """The bytes of a file as a stream, for content that does not fit in memory."""
        response = self._transport.open("GET", self._path(), path=path)
        for piece in self._transport.chunks(response):
            yield piece

    def write(
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
        answer = self._transport.upload(
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

    def write_at(self, path: str, offset: int, data: bytes) -> types.FileEntry:
        """Writes to an existing file at an offset."""
        answer = self._transport.upload("PUT", self._path(), data, repeat=True, path=path, offset=str(offset))
        return decode(types.FileEntry, answer)

    def list(self, path: str, *, depth: int = 1) -> builtins.list[types.FileEntry]:
        """The entries of a directory, down to `depth` levels."""
        found = self._transport.get(types.FileList, self._path("list"), path=path, depth=depth)
        return found.entries

    def stat(self, path: str, *, follow: bool = False) -> types.FileEntry:
        """The metadata of a path. For a symbolic link, of the link itself, or with `follow` of its target."""
        return self._transport.get(types.FileEntry, self._path("stat"), path=path, follow=follow)

    def exists(self, path: str) -> bool:
        """Whether a path exists.

        >>> sandbox.files.exists("/etc/passwd"), sandbox.files.exists("/no/such/file")
        (True, False)
        """
        from ..errors import NotFoundError

        try:
            self.stat(path)
        except NotFoundError:
            return False
        return True

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file, or with `recursive` a directory with its contents."""
        self._transport.nothing("DELETE", self._path(), repeat=True, path=path, recursive=recursive)

    def move(self, source: str, target: str) -> types.FileEntry:
        """Moves or renames a file or directory."""
        return self._transport.send(types.FileEntry, "POST", self._path("move"), {"from": source, "to": target})

    def mkdir(
        self, path: str, *, parents: bool = True, mode: str | None = None, user: str | None = None
    ) -> types.FileEntry:
        """Creates a directory."""
        body = given(path=path, parents=parents, mode=mode, user=user)
        return self._transport.send(types.FileEntry, "POST", self._path("mkdir"), body)

    def chmod(self, path: str, mode: str) -> types.FileEntry:
        """Changes permission bits, given in octal as in `"0644"`."""
        body = {"path": path, "mode": mode}
        return self._transport.send(types.FileEntry, "POST", self._path("chmod"), body, repeat=True)

    def upload(self, local: Local, path: str, *, user: str | None = None) -> None:
        """Copies a local file to a path, or the contents of a local directory into a directory of the sandbox.

        >>> sandbox.files.upload("src", "/srv/project")
        """
        if not in_thread(os.path.isdir, local):
            with in_thread(tarballs.open_read, local) as file:
                mode = in_thread(tarballs.mode_of, file)
                self.write(path, file, mode=mode, user=user)
            return
        with in_thread(tarballs.pack, local) as archive:
            self.upload_tar(archive, path, user=user)

    def download(self, path: str, local: Local) -> None:
        """Copies a file to a local path, or the contents of a directory into a local directory.

        Entries that would be written outside the local directory and device files are rejected.
        """
        if (self.stat(path, follow=True)).kind != "directory":
            with in_thread(tarballs.open_write, local) as file:
                for piece in self.read_stream(path):
                    in_thread(file.write, piece)
            return
        with tarballs.spool() as archive:
            for piece in self.download_tar(path):
                in_thread(archive.write, piece)
            in_thread(tarballs.unpack, archive, local)

    def upload_tar(self, archive: bytes | IO[bytes], path: str, *, user: str | None = None) -> types.TarSummary:
        """Unpacks a tar archive into a directory, which is created if it does not exist."""
        content = archive if isinstance(archive, bytes) else pieces(archive)
        headers = {"content-type": "application/x-tar"}
        answer = self._transport.upload("PUT", self._path("tar"), content, headers=headers, path=path, user=user)
        return decode(types.TarSummary, answer)

    def download_tar(self, path: str) -> Iterator[bytes]:
        """A file or directory as a tar archive. The archive is untrusted: unpack it safely."""
        response = self._transport.open("GET", self._path("tar"), path=path)
        for piece in self._transport.chunks(response):
            yield piece

    def watch(self, path: str, *, recursive: bool = False) -> Stream[types.WatchEvent]:
        """Reports changes below a directory, starting when this call returns.

        After a broken connection, or when too many changes happen at once, an event of kind `overflow` reports that changes
        may have been missed: read the directory again, then continue.

        >>> with sandbox.files.watch("/tmp") as changes:
        ...     _ = sandbox.files.write("/tmp/news", "!")
        ...     for change in changes:
        ...         if change.path == "/tmp/news":
        ...             break
        """
        missed = types.WatchEvent(kind="overflow", path=path)
        stream = Stream(
            self._transport,
            lambda: self._transport.open("GET", self._path("watch"), path=path, recursive=recursive),
            lambda line: decode(types.WatchEvent, line),
            endless=True,
            resumed=lambda: missed,
        )
        # The first event reports that the watch is active.
        stream.__next__()
        return stream

    def _path(self, *rest: str) -> str:
        return path("sandboxes", self._sandbox, "files", *rest)


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """The content of an open file, in pieces for an upload."""
    while piece := in_thread(file.read, CHUNK_BYTES):
        yield piece
