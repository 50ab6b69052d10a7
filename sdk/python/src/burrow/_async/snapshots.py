"""Snapshots: points to come back to."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from .. import types
from .._wire import path, tests_of_labels
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
        """Newest first."""
        return await self._transport.all(
            types.Snapshot, path("snapshots"), sandbox=self._sandbox, label=tests_of_labels(labels), kind=kind
        )

    async def get(self, snapshot: str) -> types.Snapshot:
        """One, by name or id, with what changed since the one before."""
        return await self._transport.get(types.Snapshot, path("snapshots", snapshot))

    async def delete(self, snapshot: str) -> None:
        """Deletes one."""
        await self._transport.nothing("DELETE", path("snapshots", snapshot), repeat=True)
