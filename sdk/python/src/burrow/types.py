"""What the daemon answers, as frozen dataclasses. Times are in milliseconds since 1970.

Generated from docs/openapi.json by `tools/generate.py`: change that, and generate again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union


@dataclass(frozen=True, kw_only=True)
class Ability:
    fix: str | None = None
    """The command that mends it."""
    reason: str | None = None
    """Why not."""
    yes: bool


@dataclass(frozen=True, kw_only=True)
class AddedEntries:
    """Answer of adding: one for each entry, in order."""

    entries: list[AddedEntry]


@dataclass(frozen=True, kw_only=True)
class AddedEntry:
    duplicate_of: str | None = None
    """An older entry that says the same. Both are kept; search shows one."""
    existed: bool
    """There was an entry with this key already: nothing was stored."""
    id: str
    seq: int
    """Its number in the log."""


Approve = Literal["once", "session"]


@dataclass(frozen=True, kw_only=True)
class ArmReport:
    arm: str
    """`lexical`, `vector`, `neighbours`, …"""
    covered: float | None = None
    """Share of the entries that it could see, from 0 to 1, when not all."""
    reason: str | None = None
    """Why it was down."""
    state: ArmState


ArmState = Literal["took", "off", "down", "partial"]


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One version of an artifact. `PUT /v1/memory/{of}/artifacts/{name}` takes the bytes as its body, the media
    type as `Content-Type` and the metadata as a JSON object in `X-Burrow-Metadata`.
    """

    at_ms: int
    bytes: int
    hash: str
    """BLAKE3 of the bytes, in hexadecimal; also the `ETag`."""
    media_type: str
    metadata: dict[str, Any]
    name: str
    seq: int
    """Number in the log."""
    version: int
    """1, and one more each time it is put."""


@dataclass(frozen=True, kw_only=True)
class AttachServerMessageGap:
    """Bytes `from..to` are gone from the ring."""

    from_: int
    kind: Literal["gap"]
    to: int


@dataclass(frozen=True, kw_only=True)
class AttachServerMessageExit:
    """The exec ended and all output has been sent. Last message."""

    exec: Exec
    kind: Literal["exit"]


@dataclass(frozen=True, kw_only=True)
class AttachServerMessageError:
    """The stream broke; attach again from the last offset. Last message."""

    error: ErrorDetail
    kind: Literal["error"]


AttachServerMessage = Union[AttachServerMessageGap, AttachServerMessageExit, AttachServerMessageError]
"""Bytes `from..to` are gone from the ring."""


@dataclass(frozen=True, kw_only=True)
class AttachedSpace:
    """A space that a sandbox searches besides the one it remembers in."""

    access: SpaceAccess | None = None
    space: str
    """Its name or id; in answers its id."""


@dataclass(frozen=True, kw_only=True)
class AuditCheckpoint:
    """The log's size and root, signed: to be kept elsewhere, and compared with later."""

    note: str
    """The checkpoint as text, a signed note: origin, size, root, signature."""
    public_key: str
    """The public key that signed it: `burrow-audit+…+…`."""
    root: str
    """The root of the tree, in hexadecimal digits."""
    size: int
    """Events in the log."""


@dataclass(frozen=True, kw_only=True)
class AuditConsistency:
    """That the log of `to` events begins with that of `from` (RFC 6962). Hashes are in hexadecimal digits."""

    from_: int
    from_root: str
    path: list[str]
    to: int
    to_root: str


@dataclass(frozen=True, kw_only=True)
class AuditEvent:
    """One event of the log."""

    action: str
    """`egress.inject`, `exec.start`, `key.create`, `api.call`, …"""
    actor: str | None = None
    """Who did it: a key's id and name, `sandbox`, `daemon`."""
    at_ms: int
    """By the clock of who tells; the order is that of `index`."""
    bytes_in: int | None = None
    """From the host to the sandbox."""
    bytes_out: int | None = None
    """From the sandbox to the host."""
    duration_ms: int | None = None
    host: str | None = None
    index: int
    """Its place in the log, from 0, without gaps: the number of its leaf."""
    method: str | None = None
    outcome: str
    """`allowed`, `denied`, `done` or `failed`."""
    path: str | None = None
    """Without its query."""
    port: int | None = None
    reason: str | None = None
    request_id: str | None = None
    rule: str | None = None
    """The rule that decided."""
    sandbox_id: str | None = None
    secret: str | None = None
    """The name of a secret, never its value."""
    status: int | None = None
    """Of the answer."""
    target: str | None = None
    """The id or name of whatever else it is about: a key, a snapshot, an exec."""


@dataclass(frozen=True, kw_only=True)
class AuditInclusion:
    """That an event is in the log (RFC 6962). Hashes are in hexadecimal digits."""

    index: int
    leaf: str
    path: list[str]
    """From the leaf to the root."""
    root: str
    size: int
    """Of the tree it is proven for."""


@dataclass(frozen=True, kw_only=True)
class BudgetDocument:
    """How much of a rule may be used."""

    bytesOutPerDay: Size | None = None
    """Bytes, or a size such as `50MB`."""
    requestsPerDay: int | None = None
    requestsPerMinute: int | None = None


@dataclass(frozen=True, kw_only=True)
class BudgetLeft:
    """What is left of a rule's budget now."""

    bytes_out_today: int | None = None
    requests_this_minute: int | None = None
    requests_today: int | None = None


@dataclass(frozen=True, kw_only=True)
class BuildProgressStage:
    kind: Literal["stage"]
    percent: int | None = None
    """From 0 to 100, where known."""
    stage: str


@dataclass(frozen=True, kw_only=True)
class BuildProgressItem:
    """One layer or step of several."""

    bytes: int
    """Bytes so far, of a transfer."""
    bytes_total: int | None = None
    """Bytes in all, where known."""
    count: int
    """How many there are."""
    index: int
    """From 0."""
    kind: Literal["item"]
    state: ItemState
    what: str
    """A digest's beginning, or the step as the recipe has it."""


@dataclass(frozen=True, kw_only=True)
class BuildProgressOutput:
    """Output of a build's step."""

    kind: Literal["output"]
    text: str


@dataclass(frozen=True, kw_only=True)
class BuildProgressDone:
    image: Image
    kind: Literal["done"]
    more: list[Image] = field(default_factory=list)
    """Further images of the same archive."""


@dataclass(frozen=True, kw_only=True)
class BuildProgressError:
    error: ErrorDetail
    kind: Literal["error"]


BuildProgress = Union[BuildProgressStage, BuildProgressItem, BuildProgressOutput, BuildProgressDone, BuildProgressError]
"""One line of what a long request on images answers."""


@dataclass(frozen=True, kw_only=True)
class Change:
    kind: ChangeKind
    path: str


ChangeKind = Literal["added", "changed", "deleted"]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is different from the snapshot before."""

    more: bool | None = None
    """Not all were looked at: there are too many, or they are on a microVM's disk, which only a diff reads."""
    paths: list[Change]
    """The first 1,000, in order; always empty in lists."""
    since: str | None = None
    """Against which snapshot; absent: against the image."""
    total: int
    """How many there are in all; at least, if there are `more`."""


@dataclass(frozen=True, kw_only=True)
class CodeContext:
    """A language's process that keeps its variables between runs, and as long as the processes of its sandbox
    are kept.
    """

    cwd: str
    execution_count: int
    """Runs since it was made or restarted."""
    id: str
    language: str
    state: CodeContextState


CodeContextState = Literal["idle", "busy", "dead"]


@dataclass(frozen=True, kw_only=True)
class CodeError:
    """What code failed with."""

    name: str
    """`ZeroDivisionError`; of a run that was ended from outside `KeyboardInterrupt`, `TimeoutError` and the
    like.
    """
    traceback: str
    """As the language writes it, lines with their line ends."""
    value: str


@dataclass(frozen=True, kw_only=True)
class CodeEventStdout:
    kind: Literal["stdout"]
    text: str


@dataclass(frozen=True, kw_only=True)
class CodeEventStderr:
    kind: Literal["stderr"]
    text: str


@dataclass(frozen=True, kw_only=True)
class CodeEventResult:
    """Something shown: a plot, a table, the value of the last line."""

    chart: Any = None
    """What a plot shows: its kind, its axes, its points."""
    data: Any = None
    """Columns of a data frame, each a list."""
    extra: Any = None
    """Forms of other kinds, by media type."""
    html: str | None = None
    javascript: str | None = None
    jpeg: str | None = None
    json: Any = None
    latex: str | None = None
    main: bool
    """The value of the last line, rather than something shown on the way."""
    markdown: str | None = None
    pdf: str | None = None
    png: str | None = None
    svg: str | None = None
    text: str | None = None
    kind: Literal["result"]


@dataclass(frozen=True, kw_only=True)
class CodeEventError:
    """The code failed."""

    name: str
    """`ZeroDivisionError`; of a run that was ended from outside `KeyboardInterrupt`, `TimeoutError` and the
    like.
    """
    traceback: str
    """As the language writes it, lines with their line ends."""
    value: str
    kind: Literal["error"]


@dataclass(frozen=True, kw_only=True)
class CodeEventEnd:
    """The last line."""

    duration_ms: int
    execution_count: int | None = None
    """Of the context, with this run; absent where none was counted."""
    kind: Literal["end"]
    status: CodeRunStatus


@dataclass(frozen=True, kw_only=True)
class CodeEventBroken:
    """The last line, when nobody will say how it ended."""

    error: ErrorDetail
    kind: Literal["broken"]


CodeEvent = Union[CodeEventStdout, CodeEventStderr, CodeEventResult, CodeEventError, CodeEventEnd, CodeEventBroken]
"""One line of a run's answer."""


@dataclass(frozen=True, kw_only=True)
class CodeResult:
    """One thing shown, in every form there is of it. Pictures and PDFs are base64."""

    chart: Any = None
    """What a plot shows: its kind, its axes, its points."""
    data: Any = None
    """Columns of a data frame, each a list."""
    extra: Any = None
    """Forms of other kinds, by media type."""
    html: str | None = None
    javascript: str | None = None
    jpeg: str | None = None
    json: Any = None
    latex: str | None = None
    main: bool
    """The value of the last line, rather than something shown on the way."""
    markdown: str | None = None
    pdf: str | None = None
    png: str | None = None
    svg: str | None = None
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class CodeRun:
    """A run that was waited for."""

    duration_ms: int
    error: CodeError | None = None
    execution_count: int | None = None
    results: list[CodeResult]
    status: CodeRunStatus
    stderr: str
    stdout: str
    truncated: bool
    """More was written than is shown here."""


CodeRunStatus = Literal["ok", "error", "interrupted", "timed_out", "output_limit", "kernel_died"]


@dataclass(frozen=True, kw_only=True)
class ConsolidatedMemory:
    """Answer of a consolidation. Nothing is lost: sources stay, in `as_of` reads, the history and exports."""

    after: int
    before: int
    """Warm entries before and after."""
    cooled: int
    """Their entries, which moved to the cold tier."""
    dry_run: bool
    examined: int
    """Entries looked at."""
    fell_back: int
    """Summaries that the configured endpoint failed to write: they are the sources' own sentences."""
    joined: int
    """Duplicates joined with what they repeat."""
    more: bool
    """There is more to do than fitted in the budget."""
    rolled_up: int
    """Groups of old entries that a summary now stands for."""
    summaries: list[str]
    """Ids of the summaries; each cites its sources."""


@dataclass(frozen=True, kw_only=True)
class ContextBlock:
    """A block for a prompt, and what it is made of."""

    arms: list[ArmReport]
    ids: list[str]
    """Ids of the entries in it."""
    text: str
    """Dated, with ids and relevance, fenced as data so that stored text cannot pose as instructions. Empty when
    there is nothing to tell.
    """
    truncated: bool
    """There was more to tell than fits."""
    used_tokens: int
    """Tokens it takes, as estimated."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two things that cannot both hold."""

    ours: str
    """What is said here, cut short; empty for nothing."""
    theirs: str
    """What is said there."""
    why: str
    """What they disagree about, and which of them is here now."""


@dataclass(frozen=True, kw_only=True)
class CreatedKey:
    """Shown once: the daemon keeps only a hash."""

    key: Key
    secret: str
    """`e2b_` and 40 hexadecimal digits."""


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What is different."""

    added: int
    """Paths added, changed and deleted, listed or not."""
    base: DiffSide | None = None
    """The snapshot or image where their histories part; absent: they have none in common."""
    changed: int
    cut: bool
    """There are more than are listed."""
    deleted: int
    entries: list[DiffEntry]
    """By path."""
    from_: DiffSide
    new_bytes: int
    noise: list[DiffNoise]
    """What was left out, and how much of it."""
    old_bytes: int
    """Bytes of the files among them, before and after."""
    to: DiffSide


DiffAspect = Literal["content", "kind", "mode", "owner", "link", "device", "xattr"]


@dataclass(frozen=True, kw_only=True)
class DiffEntry:
    """One path."""

    change: ChangeKind
    lines: DiffLines | None = None
    """The lines of a text file that differ, if asked for."""
    new: DiffNode | None = None
    old: DiffNode | None = None
    path: str
    what: list[DiffAspect]
    """In what it has changed; empty for what was added or deleted."""


@dataclass(frozen=True, kw_only=True)
class DiffLines:
    added: int
    cut: bool
    """They are more than this."""
    hunks: str
    """As `diff -u` writes them, without the names above."""
    removed: int


@dataclass(frozen=True, kw_only=True)
class DiffNode:
    """What is, or was, at a path."""

    gid: int
    kind: FileKind
    mode: str
    """Octal permission bits, e.g. `0644`."""
    size: int
    target: str | None = None
    """Of a symbolic link."""
    uid: int
    xattrs: list[str] = field(default_factory=list)
    """Names of extended attributes."""


@dataclass(frozen=True, kw_only=True)
class DiffNoise:
    count: int
    what: str
    """What it is, for people: `caches`, `logs`."""


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    id: str
    kind: DiffSideKind


DiffSideKind = Literal["sandbox", "snapshot", "image"]


@dataclass(frozen=True, kw_only=True)
class Driver:
    available: Ability
    disk_rate: Ability | None = None
    """Whether a sandbox's disk can be held to a rate; absent from a daemon that does not know rates."""
    hibernate: Ability
    limits: Ability
    name: str
    note: str | None = None
    """By what its machines run, where there is more than one way."""
    pause: Ability
    volumes: Ability | None = None
    """Whether its sandboxes can have volumes; absent from a daemon that does not know them."""


@dataclass(frozen=True, kw_only=True)
class EgressApproval:
    """A request that waits for somebody to agree."""

    approve: Approve
    """How far a yes goes."""
    host: str
    id: int
    """In its sandbox, until its network is opened anew."""
    method: str
    path: str
    """Without its query."""
    port: int
    rule: str
    """The rule that asks, in one line."""
    secret: str | None = None
    """The secret that would go along."""
    since_ms: int
    """Since when it waits."""


@dataclass(frozen=True, kw_only=True)
class EgressCounters:
    allowed: int
    connections_open: int
    denied: int
    failed: int
    log_dropped: int
    """Log entries that were dropped since they came too fast."""
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, kw_only=True)
class EgressDenied:
    """Something that was not let through while an exec ran. By time, not by process: a neighbour of the exec in
    the same sandbox may have asked.
    """

    host: str
    """The name that was asked for, or the address where there was none."""
    port: int | None = None
    """Absent when it was the name that was refused."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class EgressEntry:
    """One line of a sandbox's egress log."""

    address: str | None = None
    """Where it was connected to."""
    at_ms: int
    duration_ms: int | None = None
    host: str
    """The name that was asked for, or the address where there was none."""
    kind: EgressKind
    port: int | None = None
    reason: str | None = None
    """Why not, or what went wrong."""
    received_bytes: int | None = None
    rule: str | None = None
    """The rule that let it through."""
    sent_bytes: int | None = None
    """Of a connection that has ended: bytes the sandbox sent and received, and how long it lasted."""
    seq: int
    """Grows; names a place in the log."""
    times: int
    """How many alike it stands for: repeats are counted instead of listed."""
    verdict: EgressVerdict


@dataclass(frozen=True, kw_only=True)
class EgressExplanation:
    """What would happen, without anything being looked up or dialled."""

    allowed: bool
    because: str
    """In words."""
    hint: str | None = None
    """What to do to have it otherwise."""
    host: str
    """As it was understood."""
    mode: NetworkMode
    port: int
    protocol: EgressKind
    request: EgressRequestExplained | None = None
    """What is done to the request; absent where nothing is decrypted and no rule about requests is about the
    host.
    """
    rule: str | None = None
    """The rule that decides, if one does."""
    set: str | None = None
    """The host set the rule is of; absent for the sandbox's own rules."""


EgressKind = Literal["dns", "tls", "http", "tcp"]


@dataclass(frozen=True, kw_only=True)
class EgressRequestExplained:
    """What would be done to one request."""

    approval: bool
    """Whether a person is asked before."""
    decrypted: bool
    """Whether it would be decrypted."""
    left: BudgetLeft | None = None
    """What is left of the rule's budget; absent without one, or while the sandbox does not run."""
    method: str
    path: str
    """As it is matched."""
    secret: str | None = None
    """The secret that would be put in."""
    slot: str | None = None
    """Where: `header authorization`, `query key`, …"""


@dataclass(frozen=True, kw_only=True)
class EgressRequestRule:
    """A rule about requests, and how it stands."""

    budget: BudgetDocument | None = None
    left: BudgetLeft | None = None
    """Absent without a budget, or while the sandbox does not run."""
    problem: str | None = None
    """Why it lets nothing through now, if so: its secret is gone, cannot be opened, or may not go there any
    more.
    """
    rule: RuleDocument
    text: str
    """In one line."""


@dataclass(frozen=True, kw_only=True)
class EgressRuleInForce:
    rule: str
    set: str | None = None
    """Absent for the sandbox's own."""


@dataclass(frozen=True, kw_only=True)
class EgressStatus:
    """`GET …/egress`: what is in force, and what came of it since the sandbox started."""

    counters: EgressCounters | None = None
    """Absent while the sandbox does not run."""
    missing_sets: list[str]
    """Host sets it names that the configuration does not have any more."""
    network: Network
    requests: list[EgressRequestRule] = field(default_factory=list)
    """Its rules about requests, and how they stand."""
    rules: list[EgressRuleInForce]
    """Every rule in force, those of its host sets included."""


@dataclass(frozen=True, kw_only=True)
class EgressStep:
    detail: str
    ok: bool
    step: str
    """`decide`, `resolve`, `check`, `dial`."""
    took_us: int


@dataclass(frozen=True, kw_only=True)
class EgressTrial:
    """What did happen when the egress process tried."""

    hint: str | None = None
    host: str
    port: int
    reached: bool
    """Whether it came all the way."""
    steps: list[EgressStep]
    """In order; the last one is where it ended."""


EgressVerdict = Literal["allowed", "denied", "failed", "closed"]


@dataclass(frozen=True, kw_only=True)
class ErasedEntries:
    """Answer of erasing. Copies in other spaces, in exports and in backups are out of its reach, and not
    counted.
    """

    branches: int
    """On how many branches they lay: forks and restored selves of the sandbox had them as well."""
    copies: list[str]
    """Entries of the space that say the very same under another id, or were joined with one of them by a merge,
    and are still there. The first 1,000.
    """
    count: int
    """How many in all, summaries included."""
    dry_run: bool
    ids: list[str]
    """The first 1,000 of those that were meant."""
    summaries: list[str]
    """Summaries that were made of them, and went along. The first 1,000."""


@dataclass(frozen=True, kw_only=True)
class ErrorBody:
    """Body of every answer that is not a success."""

    error: ErrorDetail


ErrorCode = Literal[
    "invalid_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "no_such_route",
    "method_not_allowed",
    "conflict",
    "not_running",
    "exec_ended",
    "idempotency_mismatch",
    "idempotency_in_flight",
    "too_large",
    "unsupported_media_type",
    "range_not_satisfiable",
    "unprocessable",
    "no_such_program",
    "cannot_execute",
    "too_many",
    "busy",
    "no_space",
    "guest_unreachable",
    "port_closed",
    "bad_gateway",
    "gateway_timeout",
    "not_dumpable",
    "restore_failed",
    "sandbox_asleep",
    "snapshot_in_use",
    "damaged",
    "unsupported",
    "internal",
]
"""Stable: codes are only added. Each has one HTTP status."""


@dataclass(frozen=True, kw_only=True)
class ErrorDetail:
    code: ErrorCode
    hint: str | None = None
    """What to do about it."""
    message: str
    """What was tried and on what."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of `GET /v1/events`."""

    at_ms: int
    detail: dict[str, Any]
    exec_id: str | None = None
    kind: str
    """`sandbox.created`, `sandbox.stopped`, `exec.started`, …"""
    sandbox_id: str | None = None
    seq: int
    """Grows by one with each event; pass the last one seen as `since`."""


@dataclass(frozen=True, kw_only=True)
class Exec:
    argv: list[str]
    egress_denied: list[EgressDenied] = field(default_factory=list)
    """What its sandbox was not let through to while it ran, at most 16, each once. By time, not by process:
    whatever else ran in the sandbox counts too. Not told in lists.
    """
    ended_ms: int | None = None
    id: str
    outcome: ExecOutcome | None = None
    output_dropped: int
    output_end: int
    """One past the last byte of output; the first byte still held; bytes nobody read and the ring dropped."""
    output_start: int
    pid: int | None = None
    """Inside the sandbox."""
    related: list[RelatedMemory] = field(default_factory=list)
    """What is remembered of failures like this one, where it failed and that is worth showing. Told once, to
    those who waited for it or were attached to its output.
    """
    rollback: Rollback | None = None
    """What became of `rollback_on_failure`. Not told in lists."""
    sandbox_id: str
    snapshot: str | None = None
    """The snapshot taken just before it started, as long as it is there: with `snapshot`, or until it is known
    that there is nothing to roll back. Not told in lists.
    """
    started_ms: int
    state: ExecState
    terminal: bool


@dataclass(frozen=True, kw_only=True)
class ExecOutcome:
    cpu_us: int
    exit_code: int | None = None
    killed_from_outside: bool
    """Most likely the kernel, for want of RAM."""
    ram_max_bytes: int
    signal: str | None = None
    """`SIGKILL` and the like."""
    timed_out: bool
    wall_us: int


ExecState = Literal["running", "ended", "lost"]


@dataclass(frozen=True, kw_only=True)
class FileConflict:
    """One path that both changed, each in its way."""

    base: DiffNode | None = None
    """What both came from."""
    kind: MergeConflictKind
    ours: DiffNode | None = None
    """The parent's."""
    path: str
    theirs: DiffNode | None = None
    """The child's."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    gid: int
    group: str | None = None
    kind: FileKind
    mode: str
    """Octal permission bits, e.g. `0644`."""
    modified_ms: int
    name: str
    path: str
    size: int
    target: str | None = None
    uid: int
    user: str | None = None


FileKind = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, kw_only=True)
class FileList:
    entries: list[FileEntry]


@dataclass(frozen=True, kw_only=True)
class ForgottenEntries:
    """Answer of forgetting."""

    count: int
    """How many in all."""
    dry_run: bool
    ids: list[str]
    """The first 1,000 of them."""


@dataclass(frozen=True, kw_only=True)
class Forked:
    """Answer of a fork. At least one child came to life."""

    children: list[Sandbox]
    failed: list[ErrorDetail]
    """Why others did not, one for each."""
    pause_us: int
    """How long the parent stood still, in microseconds."""
    snapshot: str
    """The snapshot that the children stand on."""


@dataclass(frozen=True, kw_only=True)
class FoundSkill:
    relevance: float
    """How well it fits, from 0 to 1."""
    score: float
    """How well it fits and how well it went, from 0 to 1."""
    skill: Skill
    space: str
    """Where it was found: a space's name, or the sandbox's whose own it is."""


@dataclass(frozen=True, kw_only=True)
class FoundSkills:
    hits: list[FoundSkill]
    """Best first."""


GarbageAction = Literal["keep", "remove"]
"""What is done about it."""


@dataclass(frozen=True, kw_only=True)
class GarbageItem:
    action: GarbageAction
    bytes: int
    """What it costs, in bytes of disk; RAM included where it holds any."""
    failure: str | None = None
    """Why the action could not be taken."""
    id: str
    kind: GarbageKind
    name: str | None = None
    why: str
    """Why it counts as stale, and what it holds."""


GarbageKind = Literal["sandbox", "snapshot", "image"]


@dataclass(frozen=True, kw_only=True)
class GarbageReport:
    """What is stale, and what becomes of it."""

    applied: bool
    """Whether the actions were taken, or only named."""
    items: list[GarbageItem]
    unused_for_seconds: int


@dataclass(frozen=True, kw_only=True)
class HostInfo:
    """`GET /v1/host`: what this host can do."""

    default_driver: str
    """The driver of a sandbox whose creator does not say."""
    drivers: list[Driver]
    pool_free_bytes: int
    pool_total_bytes: int
    sandboxes: int
    sandboxes_recovering: int | None = None
    """Sandboxes that cannot be used yet: the daemon was restarted and is still finishing what it was doing to
    them.
    """
    sandboxes_running: int
    version: str


@dataclass(frozen=True, kw_only=True)
class Image:
    """What sandboxes start from."""

    config: ImageConfig
    created_ms: int
    id: str
    name: str | None = None
    """Its first name; absent when newer images took all its names over."""
    names: list[str]
    origin: str
    """`debian`, `pull`, `import`, `build` or `commit`."""
    origin_of: str | None = None
    """A reference with its digest, a base image, a sandbox."""
    size_bytes: int
    """Bytes of its files, those it shares with other images included."""


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """What an image says about the processes run in it."""

    cmd: list[str]
    entrypoint: list[str]
    env: dict[str, str]
    exposed_ports: list[str]
    labels: dict[str, str]
    user: str | None = None
    workdir: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImageDetail:
    """`GET /v1/images/{image}`: everything about one image."""

    config: ImageConfig
    created_ms: int
    id: str
    name: str | None = None
    """Its first name; absent when newer images took all its names over."""
    names: list[str]
    origin: str
    """`debian`, `pull`, `import`, `build` or `commit`."""
    origin_of: str | None = None
    """A reference with its digest, a base image, a sandbox."""
    size_bytes: int
    """Bytes of its files, those it shares with other images included."""
    history: list[ImageStep]
    """What was done, oldest first."""
    layers: list[ImageLayer]
    """Lowest first."""
    unique_bytes: int
    """Bytes of layers that no other image stands on: what removing it would free at least."""
    used_by: list[str]
    """Sandboxes made from it, a hundred at most."""


@dataclass(frozen=True, kw_only=True)
class ImageLayer:
    """A layer that an image stands on. It is stored once, however many images do."""

    key: str
    """Chain id, or the key of a build's step."""
    size_bytes: int
    what: str


@dataclass(frozen=True, kw_only=True)
class ImageStep:
    size_bytes: int
    what: str


@dataclass(frozen=True, kw_only=True)
class ImportedMemory:
    """Answer of an import."""

    added: int
    """Stored now."""
    erased: int
    """Was erased here, and stays so."""
    existed: int
    """There already, as new or newer."""
    lines: int
    """Lines read."""
    updated: int
    """A newer version of what was there."""


@dataclass(frozen=True, kw_only=True)
class ImportedSnapshot:
    """What `POST /v1/snapshots` took in."""

    bytes: int
    """Bytes of the file."""
    content_bytes: int
    """Bytes of all content, holes not counted."""
    entries: int
    """Names in the file."""
    identity: str
    """What the file was, in 64 hexadecimal digits: later exports may hold no more than what differs from it."""
    origin: str
    """The snapshot's id where it came from."""
    snapshot: Snapshot


ItemState = Literal["downloading", "unpacking", "running", "cached", "done"]
"""How far a layer or step is."""


@dataclass(frozen=True, kw_only=True)
class Key:
    created_ms: int
    expires_ms: int | None = None
    id: str
    last_used_ms: int | None = None
    name: str
    prefix: str
    """First characters of the key, to recognise it by."""
    revoked_ms: int | None = None
    sandbox_id: str | None = None
    scope: Scope


@dataclass(frozen=True, kw_only=True)
class KvChanged:
    """Answer of a batch: what each step left under its key, in order; `null` where nothing is left."""

    items: list[KvItem | None]


@dataclass(frozen=True, kw_only=True)
class KvEventSet:
    """A key was set."""

    item: KvItem
    kind: Literal["set"]
    seq: int


@dataclass(frozen=True, kw_only=True)
class KvEventDeleted:
    """A key was deleted."""

    key: str
    kind: Literal["deleted"]
    seq: int


@dataclass(frozen=True, kw_only=True)
class KvEventExpired:
    """The time of a key was over. Who goes on after a break may be told once more."""

    at_ms: int
    key: str
    kind: Literal["expired"]
    seq: int


@dataclass(frozen=True, kw_only=True)
class KvEventReset:
    """The sandbox remembers elsewhere now: it went back to a snapshot, or was given another space. Every key may
    hold something else than was told, so read them anew; what follows is of where it remembers now.
    """

    kind: Literal["reset"]
    seq: int


@dataclass(frozen=True, kw_only=True)
class KvEventHeartbeat:
    """Nothing happened for a while; the stream is alive. Going on from `seq` loses nothing."""

    kind: Literal["heartbeat"]
    seq: int


@dataclass(frozen=True, kw_only=True)
class KvEventError:
    """The last line, when the stream broke."""

    error: ErrorDetail
    kind: Literal["error"]


KvEvent = Union[KvEventSet, KvEventDeleted, KvEventExpired, KvEventReset, KvEventHeartbeat, KvEventError]
"""One line of `GET /v1/memory/{of}/kv-watch`."""


@dataclass(frozen=True, kw_only=True)
class KvItem:
    """A value and its version."""

    created_ms: int
    expires_ms: int | None = None
    """When it goes away by itself."""
    key: str
    updated_ms: int
    value: Any
    """Any JSON."""
    version: int
    """Number in the log of this version: give it as `if_version` to change nothing but this."""


KvPolicy = Literal["ours", "theirs", "fail"]


@dataclass(frozen=True, kw_only=True)
class KvVersion:
    """One version of a key."""

    at_ms: int
    item: KvItem | None = None
    """Absent where it was deleted."""
    version: int


@dataclass(frozen=True, kw_only=True)
class LexicalWhy:
    """Its words."""

    rank: int
    """Place among the arm's finds, from 1."""
    score: float
    terms: list[str] = field(default_factory=list)
    """The words of the query that it has."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    cpu_millis: int
    """Thousandths of a core."""
    disk_mib: int
    disk_mib_per_second: int | None = None
    """Absent: as fast as the host is."""
    network_mib_per_second: int | None = None
    """Each way by itself. Absent: as fast as the host is."""
    pids: int
    ram_mib: int


MemoryChange = Literal["written", "forgotten", "cooled", "warmed", "repeated"]
"""What became of an entry."""


@dataclass(frozen=True, kw_only=True)
class MemoryCheck:
    """`POST /v1/memory/{of}/check` and `…/rebuild`: whether a space is what was written, and all its indices
    agree.
    """

    ok: bool
    parts: list[MemoryPart]
    """What was compared."""
    problems: list[str]
    """What is wrong, if anything is. The first 100."""
    took_ms: int


@dataclass(frozen=True, kw_only=True)
class MemoryEntry:
    """Something remembered, as it is now or was at `as_of`."""

    agent: str | None = None
    artifacts: list[str]
    at_ms: int
    """When it happened."""
    branch: str
    """The line of memory that it was written on: the sandbox's own, or one that it came from."""
    cold: bool
    """Old and little used: search shows it to those who ask (`include_cold`)."""
    count: int
    """How often it happened: repeats are counted rather than stored again."""
    id: str
    importance: float
    kind: str
    links: list[str]
    metadata: dict[str, Any]
    seq: int
    """Number in the log of this version."""
    session: str | None = None
    source: str | None = None
    stored_ms: int
    """When it was stored."""
    superseded_by: str | None = None
    supersedes: list[str]
    text: str
    """As it was given. Data that somebody stored, not instructions."""
    user: str | None = None
    valid_from_ms: int | None = None
    valid_to_ms: int | None = None
    version: int
    """1, and one more with each update."""


@dataclass(frozen=True, kw_only=True)
class MemoryHit:
    collapsed: list[str] = field(default_factory=list)
    """Ids of entries that say nearly the same, shown by this one."""
    entry: MemoryEntry
    score: float
    """From 0 to 1."""
    space: str
    """Where it was found: a space's name, or the sandbox's whose own it is."""
    why: SearchWhy


MemoryLine = dict[str, Any]
"""One line of `GET /v1/memory/{of}/export`, and of what `POST …/import` takes: `line` says what it is, `header`
or `entry`, and an entry's fields are those of a `MemoryEntry`. Ids are kept, so importing twice stores once.
"""


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    count: int
    part: str
    """`entries`, `words`, `vectors`, `pending`, `branches`, `artifacts`, …"""


@dataclass(frozen=True, kw_only=True)
class MemorySession:
    """What was said or done together."""

    closed: bool
    """Nothing joins it any more unless it is named."""
    entries: int
    first: str
    """How its first entry begins."""
    last: str
    """How its last entry begins."""
    last_ms: int
    opened_ms: int
    session: str


@dataclass(frozen=True, kw_only=True)
class MemoryStats:
    """`GET /v1/memory/{of}`."""

    artifacts: int
    attached: list[AttachedSpace]
    """Spaces that are searched as well."""
    branch: str
    """The line of it that is seen here."""
    by_kind: dict[str, int]
    cold: int
    """Of these, in the cold tier."""
    entries: int
    """Entries, those in the cold tier and those that others replaced included."""
    kv_keys: int
    name: str | None = None
    """Its name; absent for a sandbox's own."""
    sandbox: str | None = None
    """The sandbox it was asked for by, if it was."""
    seq: int
    """The last number of the log that is seen here; 0: nothing."""
    sessions: int
    skills: int
    space: str
    """Id of the space."""
    superseded: int
    """Of these, replaced by others."""
    text_bytes: int
    """Of the texts of these entries."""
    vectors: VectorCoverage


@dataclass(frozen=True, kw_only=True)
class MemoryVersion:
    """One step in the life of an entry."""

    branch: str
    """The line of memory that it was written on."""
    change: MemoryChange
    entry: MemoryEntry | None = None
    """With `written`: the entry as it was then."""
    seq: int
    """Its number in the log."""
    stored_ms: int
    times: int | None = None
    """With `repeated`: how often."""


@dataclass(frozen=True, kw_only=True)
class MergeConflict:
    """A key that both changed."""

    key: str
    ours: str | None = None
    """What it is here, cut short; absent where it was deleted."""
    taken: KvPolicy
    """Whose is there now."""
    theirs: str | None = None


MergeConflictKind = Literal[
    "both-changed", "both-added", "deleted-by-ours", "deleted-by-theirs", "kind", "attributes", "directory"
]


@dataclass(frozen=True, kw_only=True)
class MergeOpenFile:
    path: str
    pid: int
    """As the host numbers it."""
    program: str


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What a merge did, would do, or why it did nothing."""

    applied: bool
    """Whether anything was changed. Not where there are conflicts."""
    base: str
    """The snapshot that both came from."""
    changes: dict[str, list[str]]
    """Paths by what happens to them: `added`, `changed`, `deleted`, `merged` (lines of both). The first 10,000
    of each.
    """
    child: str
    conflicts: list[FileConflict]
    """Where there are any, nothing is merged."""
    cut: bool
    """There are more than are listed."""
    dry_run: bool
    id: str | None = None
    """Absent where nothing was done."""
    memory: MergedMemory | None = None
    """What came, or would come, of what the child remembers."""
    moved: list[MovedFile]
    """Files that one moved and the other changed: changed where they are now."""
    noise: list[DiffNoise]
    """What the child changed and was left out, and how much of it."""
    open: list[MergeOpenFile]
    """Files that were replaced or removed while processes of the parent have them open: these go on with the old
    ones.
    """
    parent: str
    pause_us: int
    """How long the parent stood still, in microseconds."""
    total: int
    """How many paths that are in all."""
    undo: Snapshot | None = None
    """The parent as it was before: restoring it undoes the merge."""


@dataclass(frozen=True, kw_only=True)
class MergedMemory:
    """Answer of a merge."""

    added: int
    """Entries that are new here."""
    artifacts: int
    contradictions: list[Contradiction]
    """What cannot both hold, and which of it is here now. The first 1,000."""
    dry_run: bool
    joined: int
    """Entries that said what was known, joined with what was there."""
    kv: int
    """Keys taken over."""
    kv_conflicts: list[MergeConflict]
    """Keys that both changed. The first 1,000."""
    skills: int
    updated: int
    """Updates and forgettings taken over."""


@dataclass(frozen=True, kw_only=True)
class MovedFile:
    from_: str
    to: str


@dataclass(frozen=True, kw_only=True)
class NeighbourWhy:
    """What was said or done just before and after it."""

    ids: list[str] = field(default_factory=list)
    """Ids of the neighbours that have words of the query, as far as known."""
    score: float


@dataclass(frozen=True, kw_only=True)
class Network:
    """What a sandbox may reach."""

    allow: list[str]
    """Its own rules, as they are written."""
    deny: list[str] = field(default_factory=list)
    """Blocks of addresses that are not dialled."""
    mode: NetworkMode
    requests: list[RuleDocument] = field(default_factory=list)
    """Its rules about requests."""
    sets: list[str]
    """Names of host sets."""


NetworkMode = Literal["none", "allowlist", "open"]
"""How far a sandbox may reach."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a sandbox came from, when not from an image."""

    kind: OriginKind
    sandbox: str
    """The sandbox that snapshot was taken of."""
    snapshot: str
    """The snapshot it goes on from."""


OriginKind = Literal["fork", "restore"]


@dataclass(frozen=True, kw_only=True)
class OutputChunkOutput:
    base64: str | None = None
    """The bytes in base64, when they are not."""
    kind: Literal["output"]
    offset: int
    stream: OutputStream
    text: str | None = None
    """The bytes, when they are UTF-8."""


@dataclass(frozen=True, kw_only=True)
class OutputChunkGap:
    """Bytes `from..to` are gone from the ring."""

    from_: int
    kind: Literal["gap"]
    to: int


@dataclass(frozen=True, kw_only=True)
class OutputChunkExit:
    """The last line, when the exec ended."""

    exec: Exec
    kind: Literal["exit"]


@dataclass(frozen=True, kw_only=True)
class OutputChunkDrained:
    """The last line, without `follow`."""

    kind: Literal["drained"]
    offset: int


@dataclass(frozen=True, kw_only=True)
class OutputChunkError:
    """The last line, when the stream broke."""

    error: ErrorDetail
    kind: Literal["error"]


OutputChunk = Union[OutputChunkOutput, OutputChunkGap, OutputChunkExit, OutputChunkDrained, OutputChunkError]
"""One line of `GET …/output` as NDJSON. Exactly one of the parts is there."""


OutputStream = Literal["stdout", "stderr"]


@dataclass(frozen=True, kw_only=True)
class PastMerge:
    """`GET /v1/sandboxes/{sandbox}/merges`: one that was done."""

    base: str
    child: str
    created_ms: int
    id: str
    total: int
    """Paths that it changed."""
    undo: str
    """Snapshot of the parent as it was before."""


@dataclass(frozen=True, kw_only=True)
class PastMerges:
    merges: list[PastMerge]
    """Newest first, the last hundred."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """A TCP port that something listens on, or that was published."""

    addresses: list[str]
    """Where it listens inside; empty while nothing does, or while the sandbox does not run."""
    command: str | None = None
    """Its command line, cut to a sane length."""
    pid: int | None = None
    """The process behind it, inside; absent where it cannot be told."""
    port: int
    process: str | None = None
    """Its name."""
    published: bool
    """Whether anybody may open it, without a key."""
    url: str
    """Where HTTP reaches it: with a key, or, if it is published, without one."""
    user: str | None = None
    """Whose socket it is, inside."""


@dataclass(frozen=True, kw_only=True)
class PortMessageEnd:
    """No more bytes from this side; the other side may go on."""

    kind: Literal["end"]


@dataclass(frozen=True, kw_only=True)
class PortMessageError:
    """The connection broke, and this is why. From the daemon only, last."""

    error: ErrorDetail
    kind: Literal["error"]


PortMessage = Union[PortMessageEnd, PortMessageError]
"""Text messages of `GET …/ports/{port}/connect`, both ways. Bytes travel as binary messages."""


@dataclass(frozen=True, kw_only=True)
class PortUrl:
    """A link to a port. Whoever has it may open the port: it is as good as a key for that one port."""

    expires_ms: int
    url: str


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What `POST /v1/images/prune` removed."""

    freed_bytes: int
    """Bytes of files in what was removed."""
    images: list[str]
    """Ids of images that had no name and no sandbox."""
    layers: int
    """Layers that no image stands on, and steps kept for builds."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """A race as it stands."""

    attempts: list[RaceAttempt]
    base: str | None = None
    """The snapshot that all attempts started from."""
    created_ms: int
    ended_ms: int | None = None
    failure: str | None = None
    """Why it ended early."""
    id: str
    judge: list[str] | None = None
    merged: RaceMerged | None = None
    """What became of merging it, if it was to be merged."""
    parent: str
    run: list[str]
    stage: RaceStage
    version: int
    """Grows with every change: `after` takes it."""
    winner: int | None = None
    """Number of the attempt that won; absent: none yet, or none at all."""


@dataclass(frozen=True, kw_only=True)
class RaceAttempt:
    added: int | None = None
    """Paths it added, changed and deleted."""
    changed: int | None = None
    deleted: int | None = None
    exec: str | None = None
    exit_code: int | None = None
    gone: bool
    """Its sandbox is deleted."""
    number: int
    """From 1."""
    sandbox: str
    score: float | None = None
    state: RaceAttemptState
    took_ms: int | None = None
    why: str | None = None
    """Why it does not count."""


RaceAttemptState = Literal["waiting", "running", "judging", "ended", "failed"]


@dataclass(frozen=True, kw_only=True)
class RaceMerged:
    applied: bool
    conflicts: list[str]
    """Paths in conflict, the first hundred; where there are any, nothing was merged."""
    total: int
    """Paths that it changed."""
    undo: str | None = None
    """Snapshot of the parent as it was before."""


RaceStage = Literal["forking", "running", "choosing", "merging", "cleaning", "done"]


@dataclass(frozen=True, kw_only=True)
class Races:
    """`GET /v1/races`."""

    races: list[Race]
    """Newest first, the last two hundred."""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """`GET /readyz`."""

    ready: bool
    waiting_for: list[str]
    """What is still missing."""


@dataclass(frozen=True, kw_only=True)
class RelatedFix:
    """What ended a failure."""

    at_ms: int
    commands: list[str]
    """What was run in between, in order."""
    files: list[str]
    """Files that changed in between."""
    id: str
    """The entry of the run that worked."""


@dataclass(frozen=True, kw_only=True)
class RelatedMemory:
    """What is remembered about a failure like this one."""

    at_ms: int
    """When it last happened, and how often."""
    count: int
    fixed_by: RelatedFix | None = None
    """What was done until it worked."""
    id: str
    kind: str
    score: float
    """From 0 to 1."""
    text: str
    """What it says, cut short. Data that somebody stored, not instructions."""
    why: str
    """What it has in common with this one."""


Remember = Literal["off", "errors", "all"]
"""Which execs become memories by themselves."""


RestartPolicy = Literal["always", "on-failure", "never"]


@dataclass(frozen=True, kw_only=True)
class Restored:
    """Answer of a restore in place."""

    sandbox: Sandbox
    undo: Snapshot
    """What was replaced: restoring it undoes this restore."""


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """How far the undoing of a failed exec is. A waited-for exec, and an attachment's `exit`, answer when it is
    settled.
    """

    error: ErrorDetail | None = None
    """Why it could not be undone."""
    state: RollbackState
    undo: str | None = None
    """What the failed exec left, as a snapshot, where that could not be removed."""


RollbackState = Literal["pending", "unneeded", "done", "failed"]


@dataclass(frozen=True, kw_only=True)
class RotatePolicy:
    """How a sandbox is renewed. What it replaces is kept as a snapshot."""

    every_seconds: int
    snapshot: str
    """The snapshot's id."""


@dataclass(frozen=True, kw_only=True)
class RuleDocument:
    """One rule about the requests to a host."""

    approve: Approve | None = None
    """A person must agree."""
    budget: BudgetDocument | None = None
    host: str
    """`api.example.com` or `*.example.com`."""
    methods: list[str] = field(default_factory=list)
    """Every method when absent; with a secret, those its owner allows."""
    mode: RuleMode | None = None
    """`intercept` when absent."""
    paths: list[str] = field(default_factory=list)
    """Patterns such as `/v1/**`. Every path when absent; with a secret, those its owner allows."""
    port: int | None = None
    """443 when absent."""
    secret: str | None = None
    """The secret that is put into what it covers."""


RuleMode = Literal["sni", "intercept"]


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Answer of a waited-for exec."""

    exec: Exec
    stderr: str
    stdout: str
    """Bytes that are not UTF-8 are replaced; the output routes give the exact bytes."""
    truncated: bool
    """More was written than is shown here."""


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    active_ms: int | None = None
    """When it was last seen at work."""
    asleep_since_ms: int | None = None
    """Since when it is paused or hibernated."""
    created_ms: int
    driver: str
    env: dict[str, str]
    ephemeral: bool
    expires_ms: int | None = None
    failure: str | None = None
    """Why it failed."""
    id: str
    image: str
    image_id: str
    labels: dict[str, str]
    limits: Limits
    memory: SandboxMemory | None = None
    """What it remembers and where; absent from a daemon that does not know memory."""
    name: str | None = None
    network: Network | None = None
    """What it may reach."""
    origin: Origin | None = None
    """Where it came from, when not from an image."""
    recovering: str | None = None
    """Why it cannot be used yet: the daemon was restarted and is still finishing what it was doing to this
    sandbox.
    """
    rotate: RotatePolicy | None = None
    """How it is renewed."""
    services: list[str]
    """Names of its services."""
    sleep: SleepPolicy | None = None
    """When it is put to sleep if it does no work."""
    snapshot_policy: SnapshotPolicy | None = None
    """Snapshots it takes by itself."""
    started_ms: int | None = None
    state: SandboxState
    stop_reason: StopReason | None = None
    """Why it does not run, when it once did."""
    stopped_ms: int | None = None
    user: str | None = None
    volumes: list[VolumeMount] = field(default_factory=list)
    """Volumes in it."""
    workdir: str | None = None


@dataclass(frozen=True, kw_only=True)
class SandboxMemory:
    """What a sandbox remembers and where."""

    attached: list[AttachedSpace]
    branch: str
    """Its line in that space."""
    own: bool
    """Whether that is its own, which is rolled back, restored and forked with it."""
    remember: Remember
    space: str
    """Id of the space it remembers in."""


SandboxState = Literal[
    "creating",
    "starting",
    "running",
    "paused",
    "hibernating",
    "hibernated",
    "waking",
    "restoring",
    "stopping",
    "stopped",
    "deleting",
    "failed",
]


Scope = Literal["read", "exec", "admin"]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Answer of a search."""

    arms: list[ArmReport]
    """Which arms took part, and which did not and why."""
    hits: list[MemoryHit]
    """Best first."""
    searched: int
    """Entries that could have been found."""
    took_us: int


@dataclass(frozen=True, kw_only=True)
class SearchWhy:
    """What each arm found in it; an arm that did not find it is absent."""

    importance: float
    """What its importance added."""
    lexical: LexicalWhy | None = None
    neighbours: NeighbourWhy | None = None
    recency: float
    """What its age added."""
    validity: float
    """What is left of the score because of when it holds: 1 where it holds now."""
    vector: VectorWhy | None = None


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret, without its value: no route shows it."""

    allow: list[SecretScope]
    changed_ms: int
    """When its value was last set."""
    created_ms: int
    name: str
    placeholder: SecretPlaceholder | None = None
    slot: SecretSlot
    used_by: list[SecretUser]
    """Sandboxes whose rules name it."""
    version: int
    """Raised by every new value."""


@dataclass(frozen=True, kw_only=True)
class SecretPlaceholder:
    """A variable inside that holds a fake token."""

    env: str
    """`OPENAI_API_KEY` and the like."""
    prefix: str | None = None
    """What the fake begins with, such as `sk-`."""


@dataclass(frozen=True, kw_only=True)
class SecretScope:
    """Requests to a host."""

    host: str
    """`api.example.com`, or `*.example.com` for all below it."""
    methods: list[str] = field(default_factory=list)
    """None: every method."""
    paths: list[str] = field(default_factory=list)
    """`/v1/**` and the like. None: every path."""
    port: int | None = None
    """443 when absent."""


@dataclass(frozen=True, kw_only=True)
class SecretSlotHeader:
    format: str | None = None
    """`{}` is the secret, as in `Bearer {}`; the secret alone when absent."""
    kind: Literal["header"]
    name: str


@dataclass(frozen=True, kw_only=True)
class SecretSlotGrpcMetadata:
    """In requests of gRPC only."""

    format: str | None = None
    kind: Literal["grpc_metadata"]
    name: str


@dataclass(frozen=True, kw_only=True)
class SecretSlotQuery:
    """A parameter of the query."""

    kind: Literal["query"]
    name: str


@dataclass(frozen=True, kw_only=True)
class SecretSlotBasic:
    """`Authorization: Basic`; the secret is the password."""

    kind: Literal["basic"]
    user: str


@dataclass(frozen=True, kw_only=True)
class SecretSlotClientCert:
    """A certificate chain and its key in PEM, shown to a host that asks for one."""

    kind: Literal["client_cert"]


SecretSlot = Union[SecretSlotHeader, SecretSlotGrpcMetadata, SecretSlotQuery, SecretSlotBasic, SecretSlotClientCert]
"""Where in a request a secret stands. What a program put there itself is taken away before."""


@dataclass(frozen=True, kw_only=True)
class SecretUser:
    id: str
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Service:
    argv: list[str]
    exec_id: str | None = None
    """Its present or last run; its output is read like any exec's."""
    name: str
    restart: RestartPolicy
    restarts: int
    state: ServiceState


ServiceState = Literal["running", "backing_off", "ended", "stopped"]


Size = Union[int, str]


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One version of a skill, with how it went."""

    created_ms: int
    description: str
    failures: int
    last: SkillOutcome | None = None
    """The last run."""
    name: str
    parameters: list[SkillParameter]
    score: float
    """How likely it works, from 0 to 1: learned from its runs."""
    seq: int
    """Number in the log."""
    source: str | None = None
    steps: list[SkillStep]
    successes: int
    """Runs of this version that went well, and that did not."""
    version: int
    """1, and one more each time it is put."""
    when_to_use: str


@dataclass(frozen=True, kw_only=True)
class SkillOutcome:
    """`POST /v1/memory/{of}/skills/{name}/outcome`: how a run went that Burrow did not make."""

    at_ms: int | None = None
    """When it was told; not to be given."""
    detail: str | None = None
    """What is worth knowing about it."""
    exit_code: int | None = None
    ok: bool
    took_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class SkillParameter:
    """What a skill wants to be told. Commands have it as `{{name}}`, as one quoted word; it is in the
    environment, too, as `PARAM_NAME`.
    """

    default: str | None = None
    description: str | None = None
    name: str
    required: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SkillRun:
    """How a run of a skill went. It stops at the first step that fails."""

    error: ErrorDetail | None = None
    """Why the step after the last one shown could not be run at all."""
    name: str
    ok: bool
    recorded: bool
    """The outcome was remembered with the skill."""
    steps: list[RunResult]
    took_ms: int
    total: int
    """Steps in all, those included that were not come to."""
    version: int


@dataclass(frozen=True, kw_only=True)
class SkillRunStepStart:
    """A step is about to run."""

    kind: Literal["start"]
    run: str
    step: int
    total: int


@dataclass(frozen=True, kw_only=True)
class SkillRunStepStep:
    """It has ended."""

    kind: Literal["step"]
    result: RunResult
    step: int


@dataclass(frozen=True, kw_only=True)
class SkillRunStepEnd:
    """The last line."""

    kind: Literal["end"]
    ok: bool
    recorded: bool
    took_ms: int


@dataclass(frozen=True, kw_only=True)
class SkillRunStepError:
    """The last line, when a step could not be run at all."""

    error: ErrorDetail
    kind: Literal["error"]
    recorded: bool


SkillRunStep = Union[SkillRunStepStart, SkillRunStepStep, SkillRunStepEnd, SkillRunStepError]
"""One line of a streamed run."""


@dataclass(frozen=True, kw_only=True)
class SkillStepCommand:
    """A line for `/bin/sh -c`."""

    env: dict[str, str] = field(default_factory=dict)
    kind: Literal["command"]
    run: str
    timeout_seconds: int | None = None
    workdir: str | None = None


@dataclass(frozen=True, kw_only=True)
class SkillStepToolCall:
    """A call of a tool, for whoever runs the skill to make: Burrow does not."""

    arguments: Any = None
    kind: Literal["tool-call"]
    tool: str


@dataclass(frozen=True, kw_only=True)
class SkillStepScript:
    """A text for a program's standard input."""

    env: dict[str, str] = field(default_factory=dict)
    interpreter: str
    """A program and its arguments, such as `python3` or `bash -e`."""
    kind: Literal["script"]
    text: str


SkillStep = Union[SkillStepCommand, SkillStepToolCall, SkillStepScript]
"""A line for `/bin/sh -c`."""


@dataclass(frozen=True, kw_only=True)
class SleepPolicy:
    """When a sandbox that does no work is put to sleep. Absent: never."""

    hibernate_after_seconds: int | None = None
    pause_after_seconds: int | None = None
    stop_after_seconds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An immutable point in a sandbox's life: its files, its configuration and, unless left out, its processes."""

    changes: Changes
    created_ms: int
    description: str
    disk_bytes: int
    """Bytes of files that no other snapshot held when it was taken, as far as known."""
    expires_ms: int | None = None
    id: str
    image: str
    """The image the sandbox was made from: as it was asked for, and which that was."""
    image_id: str
    kind: SnapshotKind
    labels: dict[str, str]
    name: str | None = None
    parent: str | None = None
    """The snapshot that the sandbox came from, or the one taken of it before."""
    pause_us: int
    """How long the sandbox stood still for it, in microseconds."""
    processes: bool
    """Whether it holds processes besides files."""
    ram_bytes: int
    """Bytes on disk of the processes' RAM."""
    sandbox_id: str
    """The sandbox it was taken of, which may be gone by now."""
    sandbox_name: str | None = None
    """Its name when the snapshot was taken."""


SnapshotKind = Literal["manual", "policy", "before-restore", "exec", "fork", "before-rotate", "before-merge"]
"""Why a snapshot was taken."""


@dataclass(frozen=True, kw_only=True)
class SnapshotPolicy:
    """Snapshots a sandbox takes by itself, while it works."""

    every_seconds: int
    files_only: bool
    keep: int


@dataclass(frozen=True, kw_only=True)
class Space:
    """A space that outlives sandboxes. A sandbox's own is not listed: it comes and goes with the sandbox."""

    created_ms: int
    description: str
    id: str
    labels: dict[str, str]
    name: str
    used_by: list[str] = field(default_factory=list)
    """Ids of the sandboxes that remember in it or have it attached. Empty in lists."""


SpaceAccess = Literal["read", "read-write"]


@dataclass(frozen=True, kw_only=True)
class Ssh:
    """`GET /v1/ssh`."""

    address: str | None = None
    """Where it listens, as `127.0.0.1:2222`; absent where it is turned off or could not listen."""
    host_fingerprint: str | None = None
    """`SHA256:…`, as clients show it."""
    host_key: str | None = None
    """`ssh-ed25519 AAAA…`, for a client's list of known hosts."""


@dataclass(frozen=True, kw_only=True)
class SshKey:
    """A public key by which somebody logs in. It opens what the API key that added it opens, for as long as that
    one does.
    """

    created_ms: int
    fingerprint: str
    """`SHA256:…`."""
    id: str
    key_id: str
    """The API key that it stands for."""
    last_used_ms: int | None = None
    name: str
    public_key: str
    """`ssh-ed25519 AAAA…`."""


@dataclass(frozen=True, kw_only=True)
class Stats:
    """`GET /v1/sandboxes/{sandbox}/stats`."""

    agent_ram_bytes: int
    cpu_us: int
    disk_limit_bytes: int
    disk_used_bytes: int
    """Charged to the sandbox's quota."""
    execs_running: int
    id: str
    network_received_bytes: int
    network_sent_bytes: int
    oom_kills: int
    """Processes the kernel ended for want of RAM since the sandbox started."""
    processes: int
    ram_bytes: int
    ram_limit_bytes: int
    state: SandboxState
    """Asking wakes nobody: of one that is paused or hibernated, what is known without it, and 0 for the rest."""
    threads: int
    uptime_ms: int


StopReason = Literal["requested", "guest_exited", "host_restarted", "expired", "idle"]


@dataclass(frozen=True, kw_only=True)
class StoredTurn:
    """Answer of storing a turn."""

    added: int
    """How many of them are new."""
    ids: list[str]
    """Ids of the entries, in order, those that were there already included."""
    session: str


@dataclass(frozen=True, kw_only=True)
class TarSummary:
    """Answer of `PUT …/files/tar`."""

    bytes: int
    entries: int


@dataclass(frozen=True, kw_only=True)
class Tree:
    """`GET /v1/tree`: sandboxes and snapshots by descent."""

    nodes: list[TreeNode]
    """Parents before their children; siblings oldest first."""


@dataclass(frozen=True, kw_only=True)
class TreeNode:
    """A sandbox or a snapshot."""

    created_ms: int
    id: str
    kind: TreeNodeKind
    name: str | None = None
    parent: int | None = None
    """Place of its parent in `nodes`, lower than its own. A snapshot's is the one of the same sandbox that it
    followed, else its sandbox; a sandbox's is the snapshot it was made from. None when that is gone, or was
    never there.
    """
    processes: bool | None = None
    """Whether a snapshot holds processes."""
    sandbox_id: str | None = None
    """The sandbox that a snapshot was taken of, which may be gone, and its name then."""
    sandbox_name: str | None = None
    snapshot_kind: SnapshotKind | None = None
    """A snapshot's."""
    state: SandboxState | None = None
    """A sandbox's."""


TreeNodeKind = Literal["sandbox", "snapshot"]


@dataclass(frozen=True, kw_only=True)
class VectorCoverage:
    """How far vectors have come."""

    covered: int
    """Entries that have one of this model, and that wait for theirs."""
    model: str
    """What makes them."""
    pending: int


@dataclass(frozen=True, kw_only=True)
class VectorWhy:
    """Its meaning."""

    cosine: float
    """How alike, from -1 to 1."""
    rank: int
    """Place among the arm's finds, from 1."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """`GET /v1/version`."""

    guest_generation: int
    """Generation of the host–guest protocol."""
    version: str


@dataclass(frozen=True, kw_only=True)
class Volume:
    created_ms: int
    disk_mib: int
    """Most that is written to it, in MiB."""
    from_snapshot: str | None = None
    """Id of the snapshot it was made from."""
    id: str
    name: str
    used_by: list[VolumeUser] = field(default_factory=list)
    """Sandboxes that have it, in whatever state they are."""
    used_bytes: int | None = None
    """Charged to it. Absent in lists, and where the pool keeps no account."""


VolumeMode = Literal["ro", "rw"]
"""Who may write to a volume: of all sandboxes that have it one at most, and any number reads beside it."""


@dataclass(frozen=True, kw_only=True)
class VolumeMount:
    """A volume in a sandbox."""

    id: str
    mode: VolumeMode
    name: str
    path: str


@dataclass(frozen=True, kw_only=True)
class VolumeSnapshot:
    """The files of a volume as they were once."""

    created_ms: int
    id: str
    name: str | None = None
    volume: str
    """Id of its volume."""


@dataclass(frozen=True, kw_only=True)
class VolumeUser:
    """A sandbox that has a volume."""

    mode: VolumeMode
    name: str | None = None
    path: str
    sandbox: str


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """One line of `GET …/files/watch` as NDJSON."""

    from_: str | None = None
    kind: WatchEventKind
    path: str


WatchEventKind = Literal["ready", "created", "written", "removed", "renamed", "attributes", "overflow"]


__all__ = [
    "Ability",
    "AddedEntries",
    "AddedEntry",
    "Approve",
    "ArmReport",
    "ArmState",
    "Artifact",
    "AttachServerMessage",
    "AttachServerMessageError",
    "AttachServerMessageExit",
    "AttachServerMessageGap",
    "AttachedSpace",
    "AuditCheckpoint",
    "AuditConsistency",
    "AuditEvent",
    "AuditInclusion",
    "BudgetDocument",
    "BudgetLeft",
    "BuildProgress",
    "BuildProgressDone",
    "BuildProgressError",
    "BuildProgressItem",
    "BuildProgressOutput",
    "BuildProgressStage",
    "Change",
    "ChangeKind",
    "Changes",
    "CodeContext",
    "CodeContextState",
    "CodeError",
    "CodeEvent",
    "CodeEventBroken",
    "CodeEventEnd",
    "CodeEventError",
    "CodeEventResult",
    "CodeEventStderr",
    "CodeEventStdout",
    "CodeResult",
    "CodeRun",
    "CodeRunStatus",
    "ConsolidatedMemory",
    "ContextBlock",
    "Contradiction",
    "CreatedKey",
    "Diff",
    "DiffAspect",
    "DiffEntry",
    "DiffLines",
    "DiffNode",
    "DiffNoise",
    "DiffSide",
    "DiffSideKind",
    "Driver",
    "EgressApproval",
    "EgressCounters",
    "EgressDenied",
    "EgressEntry",
    "EgressExplanation",
    "EgressKind",
    "EgressRequestExplained",
    "EgressRequestRule",
    "EgressRuleInForce",
    "EgressStatus",
    "EgressStep",
    "EgressTrial",
    "EgressVerdict",
    "ErasedEntries",
    "ErrorBody",
    "ErrorCode",
    "ErrorDetail",
    "Event",
    "Exec",
    "ExecOutcome",
    "ExecState",
    "FileConflict",
    "FileEntry",
    "FileKind",
    "FileList",
    "ForgottenEntries",
    "Forked",
    "FoundSkill",
    "FoundSkills",
    "GarbageAction",
    "GarbageItem",
    "GarbageKind",
    "GarbageReport",
    "HostInfo",
    "Image",
    "ImageConfig",
    "ImageDetail",
    "ImageLayer",
    "ImageStep",
    "ImportedMemory",
    "ImportedSnapshot",
    "ItemState",
    "Key",
    "KvChanged",
    "KvEvent",
    "KvEventDeleted",
    "KvEventError",
    "KvEventExpired",
    "KvEventHeartbeat",
    "KvEventReset",
    "KvEventSet",
    "KvItem",
    "KvPolicy",
    "KvVersion",
    "LexicalWhy",
    "Limits",
    "MemoryChange",
    "MemoryCheck",
    "MemoryEntry",
    "MemoryHit",
    "MemoryLine",
    "MemoryPart",
    "MemorySession",
    "MemoryStats",
    "MemoryVersion",
    "MergeConflict",
    "MergeConflictKind",
    "MergeOpenFile",
    "Merged",
    "MergedMemory",
    "MovedFile",
    "NeighbourWhy",
    "Network",
    "NetworkMode",
    "Origin",
    "OriginKind",
    "OutputChunk",
    "OutputChunkDrained",
    "OutputChunkError",
    "OutputChunkExit",
    "OutputChunkGap",
    "OutputChunkOutput",
    "OutputStream",
    "PastMerge",
    "PastMerges",
    "Port",
    "PortMessage",
    "PortMessageEnd",
    "PortMessageError",
    "PortUrl",
    "Pruned",
    "Race",
    "RaceAttempt",
    "RaceAttemptState",
    "RaceMerged",
    "RaceStage",
    "Races",
    "Readiness",
    "RelatedFix",
    "RelatedMemory",
    "Remember",
    "RestartPolicy",
    "Restored",
    "Rollback",
    "RollbackState",
    "RotatePolicy",
    "RuleDocument",
    "RuleMode",
    "RunResult",
    "Sandbox",
    "SandboxMemory",
    "SandboxState",
    "Scope",
    "SearchResult",
    "SearchWhy",
    "Secret",
    "SecretPlaceholder",
    "SecretScope",
    "SecretSlot",
    "SecretSlotBasic",
    "SecretSlotClientCert",
    "SecretSlotGrpcMetadata",
    "SecretSlotHeader",
    "SecretSlotQuery",
    "SecretUser",
    "Service",
    "ServiceState",
    "Size",
    "Skill",
    "SkillOutcome",
    "SkillParameter",
    "SkillRun",
    "SkillRunStep",
    "SkillRunStepEnd",
    "SkillRunStepError",
    "SkillRunStepStart",
    "SkillRunStepStep",
    "SkillStep",
    "SkillStepCommand",
    "SkillStepScript",
    "SkillStepToolCall",
    "SleepPolicy",
    "Snapshot",
    "SnapshotKind",
    "SnapshotPolicy",
    "Space",
    "SpaceAccess",
    "Ssh",
    "SshKey",
    "Stats",
    "StopReason",
    "StoredTurn",
    "TarSummary",
    "Tree",
    "TreeNode",
    "TreeNodeKind",
    "VectorCoverage",
    "VectorWhy",
    "Version",
    "Volume",
    "VolumeMode",
    "VolumeMount",
    "VolumeSnapshot",
    "VolumeUser",
    "WatchEvent",
    "WatchEventKind",
]
