"""Local files and tar archives of local trees, spooled to disk instead of held in memory."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
import tempfile
from typing import IO, Union

# Archives below this size are held in memory.
SPOOL_BYTES = 4 << 20

Local = Union[str, "os.PathLike[str]"]


def spool() -> IO[bytes]:
    """A temporary file, held in memory while it is small."""
    return tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)


def open_read(path: Local) -> IO[bytes]:
    """Opens a local file for reading."""
    return open(path, "rb")


def open_write(path: Local) -> IO[bytes]:
    """Opens a local file for writing."""
    return open(path, "wb")


def beside(path: Local) -> str:
    """The path of the temporary file that holds a file until it is complete."""
    return f"{os.fspath(path)}.part"


def discard(path: str) -> None:
    """Removes an incomplete file."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def mode_of(file: IO[bytes]) -> str:
    """The octal permission bits of an open file."""
    return format(stat.S_IMODE(os.fstat(file.fileno()).st_mode), "04o")


def pack(folder: Local) -> IO[bytes]:
    """Packs the contents of a directory, with names relative to it and root as the owner."""
    archive = spool()

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(os.listdir(folder)):
            tar.add(os.path.join(folder, name), arcname=name, filter=anonymous)
    archive.seek(0)
    return archive


def unpack(archive: IO[bytes], folder: Local) -> None:
    """Unpacks into a directory and rejects entries that would be written outside it."""
    archive.seek(0)
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        tar.extractall(folder, filter="data")
