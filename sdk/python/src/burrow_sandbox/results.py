"""Results of commands, pieces of their output, checkpoints and imported snapshots."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, field

from . import types
from .errors import CommandError, CommandLostError

# The conventions of shells and of `timeout`.
_SIGNALLED, _TIMED_OUT = 128, 124
_STDERR_CHARS_SHOWN = 400


@dataclass(frozen=True, kw_only=True)
class Output:
    """A piece of the output of a command, as it arrived."""

    stream: types.OutputStream
    data: bytes
    text: str
    """`data` as text. A character split between two pieces is in the later one; invalid UTF-8 is replaced."""
    offset: int
    """The offset of the first byte, counted over both streams."""
    skipped: int = 0
    """The number of bytes before this piece that were dropped before they were read."""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a command."""

    exit_code: int
    """The exit code of the command; 128 plus the signal number if a signal ended it; 124 if the timeout ended it."""
    stdout: str
    stderr: str
    exec: types.Exec = field(repr=False)
    """Details of the exec: times, RAM, denied egress, related memory entries of a failure."""
    truncated: bool = False
    """Whether some of the output was dropped before it was read."""

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether the timeout ended the command."""
        return bool(self.exec.outcome and self.exec.outcome.timed_out)

    @property
    def egress_denied(self) -> list[types.EgressDenied]:
        """Connections of the sandbox that were denied while the command ran; `set` names the host set that allows one."""
        return self.exec.egress_denied

    def check(self) -> CommandResult:
        """Returns this result if the command exited with 0, otherwise raises `CommandError`."""
        if self.ok:
            return self
        output = (self.stderr or self.stdout).strip()[-_STDERR_CHARS_SHOWN:]
        command = self.exec.argv[-1] if self.exec.argv[:2] == ["/bin/sh", "-c"] else " ".join(self.exec.argv)
        raise CommandError(f"`{command}` exited with {self.exit_code}" + (f": {output}" if output else ""), self)


def exit_code(exec: types.Exec) -> int | None:
    """The exit code of an exec as a shell reports it; `None` while it runs."""
    if exec.state == "running":
        return None
    outcome = exec.outcome
    if exec.state == "lost" or outcome is None:
        raise CommandLostError(
            f"the outcome of exec `{exec.id}` is unknown",
            hint="its sandbox was stopped while it ran; see `burrow logs {exec.id}`",
        )
    if outcome.timed_out:
        return _TIMED_OUT
    if outcome.exit_code is not None:
        return outcome.exit_code
    return _SIGNALLED + signal_number(outcome.signal or "SIGKILL")


def signal_number(name: str) -> int:
    """The number of a signal given as `SIGKILL`, `KILL` or `9`; 0 if unknown."""
    if name.isdigit():
        return int(name)
    name = name if name.startswith("SIG") else f"SIG{name}"
    found = getattr(signals, name, None)
    return int(found) if found is not None else 0


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint: its snapshot, and the changes since the previous checkpoint."""

    snapshot: types.Snapshot
    since: str | None
    """The snapshot that it is compared with; `None` is the image."""
    added: list[str]
    changed: list[str]
    deleted: list[str]
    total: int
    """The total number of changed paths; the lists contain at most the first thousand."""
    more: bool
    """Whether some paths were not compared, for example because too many changed."""

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return self.total > 0


@dataclass(frozen=True, kw_only=True)
class ImportedSnapshot:
    """A snapshot that was imported from a file."""

    snapshot: types.Snapshot
    identity: str
    """Identifies the exported snapshot: later exports may contain only the differences from it."""
    origin: str
    """The id of the snapshot on the exporting daemon."""
    entries: int
    content_bytes: int
    bytes: int


__all__ = ["Checkpoint", "CommandResult", "ImportedSnapshot", "Output"]
