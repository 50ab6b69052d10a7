"""The results of diffs, merges and races."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from . import types
from .errors import BurrowError

MergePolicy = Literal["fail", "ours", "theirs", "union", "text"]
"""How to resolve a path that both sides changed: report a conflict; keep the parent's version; take the child's version;
keep the lines of both; merge line by line."""

MergeMemoryPolicy = Literal["none", "list", "ours", "theirs", "both", "fail"]
"""How to merge the memory of the child."""


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One side of a diff."""

    kind: Literal["sandbox", "snapshot", "image"]
    id: str


@dataclass(frozen=True, kw_only=True)
class DiffNode:
    """A file system entry at a path, before or after a change."""

    kind: types.FileKind
    size: int
    mode: str
    uid: int
    gid: int
    target: str | None = None
    xattrs: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DiffLines:
    """The changed lines of a text file, in the format of `diff -u`."""

    added: int
    removed: int
    hunks: str
    cut: bool


@dataclass(frozen=True, kw_only=True)
class DiffEntry:
    """One path that differs."""

    path: str
    change: types.ChangeKind
    what: list[str] = field(default_factory=list)
    """The aspects that changed: `content`, `mode`, `owner`, ..."""
    old: DiffNode | None = None
    new: DiffNode | None = None
    lines: DiffLines | None = None
    """Set if the diff was requested with `content`."""


@dataclass(frozen=True, kw_only=True)
class DiffNoise:
    """A category of omitted paths, and their number."""

    what: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The differences between two file trees."""

    from_: DiffSide
    to: DiffSide
    base: DiffSide | None = None
    """The snapshot or image where the histories of both sides diverge."""
    entries: list[DiffEntry]
    added: int
    changed: int
    deleted: int
    old_bytes: int
    new_bytes: int
    noise: list[DiffNoise] = field(default_factory=list)
    cut: bool
    """Whether more paths differ than are listed."""

    def paths(self, change: types.ChangeKind) -> list[str]:
        """The paths with this kind of change."""
        return [entry.path for entry in self.entries if entry.change == change]


@dataclass(frozen=True, kw_only=True)
class MergePathConflict:
    """One path that both sides changed differently."""

    path: str
    kind: str
    """`both-changed`, `both-added`, `deleted-by-ours`, `deleted-by-theirs`, `kind`, `attributes`, `directory`."""
    base: DiffNode | None = None
    ours: DiffNode | None = None
    theirs: DiffNode | None = None


@dataclass(frozen=True, kw_only=True)
class MovedFile:
    """A file that one side moved and the other changed."""

    from_: str
    to: str


@dataclass(frozen=True, kw_only=True)
class MergeOpenFile:
    """A file that a process of the parent has open. The process continues to use the old version."""

    path: str
    pid: int
    program: str


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The result of a merge or of a dry run, including conflicts."""

    id: str | None = None
    parent: str
    child: str
    base: str
    dry_run: bool
    applied: bool
    undo: types.Snapshot | None = None
    """The parent before the merge: restoring it undoes the merge."""
    changes: dict[str, list[str]] = field(default_factory=dict)
    """Paths by kind of change: `added`, `changed`, `deleted`, `merged`."""
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
    """One attempt of a race."""

    number: int
    sandbox: str
    state: Literal["waiting", "running", "judging", "ended", "failed"]
    exec: str | None = None
    exit_code: int | None = None
    score: float | None = None
    took_ms: int | None = None
    why: str | None = None
    """Why the attempt was disqualified, if it was."""
    added: int | None = None
    changed: int | None = None
    deleted: int | None = None
    gone: bool


@dataclass(frozen=True, kw_only=True)
class RaceMerged:
    """The result of merging the winner."""

    applied: bool
    total: int
    conflicts: list[str] = field(default_factory=list)
    undo: str | None = None


@dataclass(frozen=True, kw_only=True)
class Race:
    """The current state of a race."""

    id: str
    parent: str
    stage: Literal["forking", "running", "choosing", "merging", "cleaning", "done"]
    run: list[str]
    judge: list[str] | None = None
    attempts: list[RaceAttempt]
    base: str | None = None
    winner: int | None = None
    """The number of the winning attempt."""
    merged: RaceMerged | None = None
    failure: str | None = None
    created_ms: int
    ended_ms: int | None = None
    version: int


class MergeError(BurrowError):
    """Both sides changed the same paths, so nothing was merged. `merged.conflicts` lists them."""

    def __init__(self, merged: Merged) -> None:
        shown = ", ".join(f"`{conflict.path}` ({conflict.kind})" for conflict in merged.conflicts[:3])
        more = f" and {len(merged.conflicts) - 3} more" if len(merged.conflicts) > 3 else ""
        super().__init__(
            f"nothing was merged: conflicts in {shown}{more}",
            hint="resolve conflicts with a policy: policy='theirs', or policies={'*.md': 'union'}",
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
