"""Snapshots: saved states of sandboxes."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping

from .. import tarballs, types
from .._decode import decode
from .._shims import async_in_thread
from .._wire import path, tests_of_labels
from ..results import ImportedSnapshot
from .files import Local, pieces
from .transport import AsyncTransport


class AsyncSnapshots:
    """All snapshots, or those of one sandbox.

    >>> taken = await sandbox.snapshot(description="before the upgrade", files_only=True)
    >>> taken.id in [snapshot.id for snapshot in await sandbox.snapshots.list()]
    True
    >>> await sandbox.snapshots.delete(taken.id)
    """

    def __init__(self, transport: AsyncTransport, sandbox: str | None = None) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def list(
        self, *, labels: Mapping[str, str] | None = None, kind: types.SnapshotKind | None = None
    ) -> builtins.list[types.Snapshot]:
        """The snapshots, newest first."""
        return await self._transport.all(
            types.Snapshot, path("snapshots"), sandbox=self._sandbox, label=tests_of_labels(labels), kind=kind
        )

    async def get(self, snapshot: str) -> types.Snapshot:
        """A snapshot, by name or id, with the changes since the previous one."""
        return await self._transport.get(types.Snapshot, path("snapshots", snapshot))

    async def delete(self, snapshot: str) -> None:
        """Deletes a snapshot."""
        await self._transport.nothing("DELETE", path("snapshots", snapshot), repeat=True)

    async def export(
        self, snapshot: str, local: Local, *, since: str | None = None, files_only: bool = False
    ) -> str | None:
        """Exports a snapshot to a local file, atomically, for `import_file` on any daemon.

        With `since`, the file contains only the differences from that snapshot, which the receiver must have. Returns the key
        that signed the export.
        """
        response = await self._transport.open(
            "GET", path("snapshots", snapshot, "export"), since=since, files_only=files_only
        )
        part = tarballs.beside(local)
        try:
            with await async_in_thread(tarballs.open_write, part) as file:
                async for piece in self._transport.chunks(response):
                    await async_in_thread(file.write, piece)
            await async_in_thread(os.replace, part, local)
        except BaseException:
            await async_in_thread(tarballs.discard, part)
            raise
        signer: str | None = response.headers.get("x-burrow-signer")
        return signer

    async def import_file(
        self, local: Local, *, name: str | None = None, files_only: bool = False, trust: str | None = None
    ) -> ImportedSnapshot:
        """Imports an exported file. Processes are imported only from trusted hosts, or from the host that `trust` names."""
        with await async_in_thread(tarballs.open_read, local) as file:
            answer = await self._transport.upload(
                "POST", path("snapshots"), pieces(file), name=name, files_only=files_only, trust=trust
            )
        return decode(ImportedSnapshot, answer)
