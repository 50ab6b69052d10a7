"""What is different between two trees of files, and what bringing the work of one sandbox into another comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from . import types
from .errors import BurrowError

MergePolicy = Literal["fail", "ours", "theirs", "union", "text"]
"""Where both changed the same path: a conflict; the parent's stays; the child's comes; the lines of both; line by line."""

MergeMemoryPolicy = Literal["none", "list", "ours", "theirs", "both", "fail"]
"""What becomes of what the child remembers."""


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One of the two that are compared."""

    kind: Literal["sandbox", "snapshot", "image"]
    id: str


@dataclass(frozen=True, kw_only=True)
class DiffNode:
    """What is, or was, at a path."""

    kind: types.FileKind
    size: int
    mode: str
    uid: int
    gid: int
    target: str | None = None
    xattrs: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DiffLines:
    """The lines of a text file that differ, as `diff -u` writes them."""

    added: int
    removed: int
    hunks: str
    cut: bool


@dataclass(frozen=True, kw_only=True)
class DiffEntry:
    """One path that is different."""

    path: str
    change: types.ChangeKind
    what: list[str] = field(default_factory=list)
    """In what it has changed: `content`, `mode`, `owner`, ..."""
    old: DiffNode | None = None
    new: DiffNode | None = None
    lines: DiffLines | None = None
    """If asked for with `content`."""


@dataclass(frozen=True, kw_only=True)
class DiffNoise:
    """What was left out, and how much of it."""

    what: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What is different."""

    from_: DiffSide
    to: DiffSide
    base: DiffSide | None = None
    """Where their histories part."""
    entries: list[DiffEntry]
    added: int
    changed: int
    deleted: int
    old_bytes: int
    new_bytes: int
    noise: list[DiffNoise] = field(default_factory=list)
    cut: bool
    """There are more than are listed."""

    def paths(self, change: types.ChangeKind) -> list[str]:
        """Those that were added, changed or deleted."""
        return [entry.path for entry in self.entries if entry.change == change]


@dataclass(frozen=True, kw_only=True)
class MergePathConflict:
    """One path that both changed, each in its way."""

    path: str
    kind: str
    """`both-changed`, `both-added`, `deleted-by-ours`, `deleted-by-theirs`, `kind`, `attributes`, `directory`."""
    base: DiffNode | None = None
    ours: DiffNode | None = None
    theirs: DiffNode | None = None


@dataclass(frozen=True, kw_only=True)
class MovedFile:
    """A file that one moved and the other changed."""

    from_: str
    to: str


@dataclass(frozen=True, kw_only=True)
class MergeOpenFile:
    """A file that a process of the parent has open: it goes on with the old one."""

    path: str
    pid: int
    program: str


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What a merge did, would do, or why it did nothing."""

    id: str | None = None
    parent: str
    child: str
    base: str
    dry_run: bool
    applied: bool
    undo: types.Snapshot | None = None
    """The parent as it was before: restoring it undoes the merge."""
    changes: dict[str, list[str]] = field(default_factory=dict)
    """Paths by what happens to them: `added`, `changed`, `deleted`, `merged`."""
    moved: list[MovedFile] = field(default_factory=list)
    total: int
    cut: bool
    conflicts: list[MergePathConflict] = field(default_factory=list)
    open: list[MergeOpenFile] = field(default_factory=list)
    noise: list[DiffNoise] = field(default_factory=list)
    memory: types.MergedMemory | None = None
    pause_us: int


@dataclass(frozen=True, kw_only=True)
class RaceAttempt:
    """One of those that race."""

    number: int
    sandbox: str
    state: Literal["waiting", "running", "judging", "ended", "failed"]
    exec: str | None = None
    exit_code: int | None = None
    score: float | None = None
    took_ms: int | None = None
    why: str | None = None
    """Why it does not count."""
    added: int | None = None
    changed: int | None = None
    deleted: int | None = None
    gone: bool


@dataclass(frozen=True, kw_only=True)
class RaceMerged:
    """What became of merging the winner."""

    applied: bool
    total: int
    conflicts: list[str] = field(default_factory=list)
    undo: str | None = None


@dataclass(frozen=True, kw_only=True)
class Race:
    """A race as it stands."""

    id: str
    parent: str
    stage: Literal["forking", "running", "choosing", "merging", "cleaning", "done"]
    run: list[str]
    judge: list[str] | None = None
    attempts: list[RaceAttempt]
    base: str | None = None
    winner: int | None = None
    """Number of the attempt that won."""
    merged: RaceMerged | None = None
    failure: str | None = None
    created_ms: int
    ended_ms: int | None = None
    version: int


class MergeError(BurrowError):
    """Both changed the same, so nothing was merged. `merged.conflicts` lists every path."""

    def __init__(self, merged: Merged) -> None:
        shown = ", ".join(f"`{conflict.path}` ({conflict.kind})" for conflict in merged.conflicts[:3])
        more = f" and {len(merged.conflicts) - 3} more" if len(merged.conflicts) > 3 else ""
        super().__init__(
            f"nothing was merged: {shown}{more}",
            hint="say who wins: policy='theirs', or policies={'*.md': 'union'}",
        )
        self.merged = merged


__all__ = [
    "Diff",
    "DiffEntry",
    "DiffLines",
    "DiffNode",
    "DiffNoise",
    "DiffSide",
    "MergeError",
    "MergeMemoryPolicy",
    "MergeOpenFile",
    "MergePathConflict",
    "MergePolicy",
    "Merged",
    "MovedFile",
    "Race",
    "RaceAttempt",
    "RaceMerged",
]
