"""What commands come to, and the pieces their output comes in."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, field

from . import types
from .errors import CommandError, CommandLostError

# As shells and `timeout` have it.
_SIGNALLED, _TIMED_OUT = 128, 124
_SHOWN_OF_STDERR = 400


@dataclass(frozen=True, kw_only=True)
class Output:
    """A piece of what a command wrote, as it came."""

    stream: types.OutputStream
    data: bytes
    text: str
    """The same as text. A character that was cut in two comes whole with the next piece; what is no UTF-8 is replaced."""
    offset: int
    """Of its first byte, counted over both streams."""
    skipped: int = 0
    """Bytes just before it that nobody read while they were kept."""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What a command came to."""

    exit_code: int
    """Its own; 128 and the signal's number; 124 where the timeout ended it."""
    stdout: str
    stderr: str
    exec: types.Exec = field(repr=False)
    """All that is known of it: times, RAM, what it was not let through to, what memory knows about its failure."""
    truncated: bool = False
    """Some of the output was gone before anybody read it."""

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether the timeout ended it."""
        return bool(self.exec.outcome and self.exec.outcome.timed_out)

    def check(self) -> CommandResult:
        """Itself, if it ended with 0; else raises `CommandError`."""
        if self.ok:
            return self
        said = (self.stderr or self.stdout).strip()[-_SHOWN_OF_STDERR:]
        command = self.exec.argv[-1] if self.exec.argv[:2] == ["/bin/sh", "-c"] else " ".join(self.exec.argv)
        raise CommandError(f"`{command}` ended with {self.exit_code}" + (f": {said}" if said else ""), self)


def exit_code(exec: types.Exec) -> int | None:
    """The exit code of an exec as a shell would tell it; `None` while it runs."""
    if exec.state == "running":
        return None
    outcome = exec.outcome
    if exec.state == "lost" or outcome is None:
        raise CommandLostError(
            f"what became of exec `{exec.id}` is not known",
            hint="its sandbox was stopped under it; a snapshot or `burrow logs` may tell more",
        )
    if outcome.timed_out:
        return _TIMED_OUT
    if outcome.exit_code is not None:
        return outcome.exit_code
    return _SIGNALLED + signal_number(outcome.signal or "SIGKILL")


def signal_number(name: str) -> int:
    """Of `SIGKILL`, `KILL` or `9`."""
    if name.isdigit():
        return int(name)
    name = name if name.startswith("SIG") else f"SIG{name}"
    found = getattr(signals, name, None)
    return int(found) if found is not None else 0


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What changed since the checkpoint before, and the snapshot to come back to."""

    snapshot: types.Snapshot
    since: str | None
    """The snapshot it is compared with; `None` is the image."""
    added: list[str]
    changed: list[str]
    deleted: list[str]
    total: int
    """How many paths changed in all; the lists hold the first thousand."""
    more: bool
    """So much changed that only some of it was looked at."""

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return self.total > 0


@dataclass(frozen=True, kw_only=True)
class ImportedSnapshot:
    """What was taken in from a file."""

    snapshot: types.Snapshot
    identity: str
    """What the file was: later exports may hold no more than what differs from it."""
    origin: str
    """The snapshot's id where it came from."""
    entries: int
    content_bytes: int
    bytes: int


__all__ = ["Checkpoint", "CommandResult", "ImportedSnapshot", "Output"]
