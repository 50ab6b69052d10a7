# Generated from _async/snapshots.py by `tools/generate.py`. Do not edit: edit the source and run the generator.
"""Snapshots: saved states of sandboxes."""

from __future__ import annotations

import builtins
import os
from collections.abc import Mapping

from .. import tarballs, types
from .._decode import decode
from .._shims import in_thread
from .._wire import path, tests_of_labels
from ..results import ImportedSnapshot
from .files import Local, pieces
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
        """The snapshots, newest first."""
        return self._transport.all(
            types.Snapshot, path("snapshots"), sandbox=self._sandbox, label=tests_of_labels(labels), kind=kind
        )

    def get(self, snapshot: str) -> types.Snapshot:
        """A snapshot, by name or id, with the changes since the previous one."""
        return self._transport.get(types.Snapshot, path("snapshots", snapshot))

    def delete(self, snapshot: str) -> None:
        """Deletes a snapshot."""
        self._transport.nothing("DELETE", path("snapshots", snapshot), repeat=True)

    def export(self, snapshot: str, local: Local, *, since: str | None = None, files_only: bool = False) -> str | None:
        """Exports a snapshot to a local file, atomically, for `import_file` on any daemon.

        With `since`, the file contains only the differences from that snapshot, which the receiver must have. Returns the key
        that signed the export.
        """
        response = self._transport.open(
            "GET", path("snapshots", snapshot, "export"), since=since, files_only=files_only
        )
        part = tarballs.beside(local)
        try:
            with in_thread(tarballs.open_write, part) as file:
                for piece in self._transport.chunks(response):
                    in_thread(file.write, piece)
            in_thread(os.replace, part, local)
        except BaseException:
            in_thread(tarballs.discard, part)
            raise
        signer: str | None = response.headers.get("x-burrow-signer")
        return signer

    def import_file(
        self, local: Local, *, name: str | None = None, files_only: bool = False, trust: str | None = None
    ) -> ImportedSnapshot:
        """Imports an exported file. Processes are imported only from trusted hosts, or from the host that `trust` names."""
        with in_thread(tarballs.open_read, local) as file:
            answer = self._transport.upload(
                "POST", path("snapshots"), pieces(file), name=name, files_only=files_only, trust=trust
            )
        return decode(ImportedSnapshot, answer)
