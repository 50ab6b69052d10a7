# Generated from _async/snapshots.py by `tools/generate.py`: change that, and generate again.
"""Snapshots: points to come back to."""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from .. import types
from .._wire import path, tests_of_labels
from .transport import Transport


class Snapshots:
    """All snapshots, or those of one sandbox.

    >>> taken = sandbox.snapshot(description="before the upgrade", files_only=True)
    >>> taken.id in [snapshot.id for snapshot in sandbox.snapshots.list()]
    True
    >>> sandbox.snapshots.delete(taken.id)
    """

    def __init__(self, transport: Transport, sandbox: str | None = None) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def list(
        self, *, labels: Mapping[str, str] | None = None, kind: types.SnapshotKind | None = None
    ) -> builtins.list[types.Snapshot]:
        """Newest first."""
        return self._transport.all(
            types.Snapshot, path("snapshots"), sandbox=self._sandbox, label=tests_of_labels(labels), kind=kind
        )

    def get(self, snapshot: str) -> types.Snapshot:
        """One, by name or id, with what changed since the one before."""
        return self._transport.get(types.Snapshot, path("snapshots", snapshot))

    def delete(self, snapshot: str) -> None:
        """Deletes one."""
        self._transport.nothing("DELETE", path("snapshots", snapshot), repeat=True)
