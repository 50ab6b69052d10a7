"""Requests to the daemon, as typed dictionaries.

Generated from docs/openapi.json by `tools/generate.py`. Do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union


class _AddEntries(TypedDict):
    entries: list[NewEntry]
    """Stored in this order, all or none."""


class AddEntries(_AddEntries, total=False):
    pass


AddMemory = Union["AddEntries", "NewEntry"]
"""`POST /v1/memory/{of}/entries`: one entry, or several that are stored atomically."""


class _AddSshKey(TypedDict):
    public_key: str
    """One line, as in `~/.ssh/id_ed25519.pub`."""


class AddSshKey(_AddSshKey, total=False):
    """`POST /v1/ssh/keys`."""

    name: str | None
    """For people; the comment of the key when absent."""


class _AnswerApproval(TypedDict):
    allow: bool


class AnswerApproval(_AnswerApproval, total=False):
    """`POST …/egress/approvals/{approval}`."""


Approve = Literal["once", "session"]


class _AttachedSpace(TypedDict):
    space: str
    """Its name or id; in responses its id."""


class AttachedSpace(_AttachedSpace, total=False):
    """A space that searches include, besides the one that the sandbox writes to."""

    access: SpaceAccess


class BudgetDocument(TypedDict, total=False):
    """Limits on the use of a rule."""

    bytesOutPerDay: Size | None
    """Bytes, or a size such as `50MB`."""
    requestsPerDay: int | None
    requestsPerMinute: int | None


_BuildImageOptionalWords = TypedDict("_BuildImageOptionalWords", {"from": "ImageFrom"}, total=False)


class BuildImage(_BuildImageOptionalWords, total=False):
    """`POST /v1/images`: creates an image. The response is NDJSON of [`BuildProgress`]. Fields that do not
    belong to `from` must be absent.
    """

    base: str | None
    """`packages`: the image to install them in, by name or id; the default image when absent."""
    build_args: dict[str, str]
    """`dockerfile`: values of its arguments (`ARG`). They are part of the cache's keys, not of the image."""
    config: ImageConfigChange | None
    """`sandbox`: changes to the configuration of the image that the sandbox was created from."""
    credentials: RegistryCredentials | None
    """`pull`: credentials for the registry. Used for this pull and not stored."""
    dockerfile: str | None
    """`dockerfile`: the text of the Dockerfile. One that copies files is sent to `/v1/images/build`, with its
    files.
    """
    insecure: bool
    """`pull`: the registry speaks HTTP without TLS. Always allowed for loopback addresses."""
    name: str | None
    """Its name. When absent: `debian` for the default image, the reference for `pull`, else none."""
    network: NetworkRequest | None
    """`recipe`, `dockerfile`: what its `run` steps may connect to; the daemon's default for sandboxes when
    absent. Packages are always fetched from the package sources of the image.
    """
    no_cache: bool
    """`packages`, `recipe`, `dockerfile`: run every step, and do not use the cache of earlier builds."""
    packages: list[str]
    """`packages`: what to install."""
    platform: str | None
    """`pull`: like `linux/amd64`; the host's own when absent."""
    rebuild: bool
    """`default`: build again even if the name exists."""
    recipe: str | None
    """`recipe`: the text of the recipe. A recipe that copies files is sent to `/v1/images/build`, with its
    files.
    """
    reference: str | None
    """`pull`: where the image is, as in `registry.example.com/org/app:v1`."""
    sandbox: str | None
    """`sandbox`: the sandbox whose files are used, by name or id."""
    target: str | None
    """`dockerfile`: the name or number of the stage to build; the last one when absent."""


class _ChangeMode(TypedDict):
    mode: str
    """Octal, e.g. `0644`."""
    path: str


class ChangeMode(_ChangeMode, total=False):
    """`POST …/files/chmod`."""


class CollectGarbage(TypedDict, total=False):
    """`POST /v1/gc`: takes the actions that `GET /v1/gc` lists."""

    unused_for_seconds: int | None
    """How long an object must be unused to be stale; 30 days when absent."""


class ConsolidateMemory(TypedDict, total=False):
    """`POST /v1/memory/{of}/consolidate`. Everything is optional."""

    budget_ms: int | None
    """Time it may take; 30 s when absent."""
    dry_run: bool
    """Only report what would happen."""
    entries: int | None
    """Maximum number of entries to examine; 10000 when absent."""
    older_than_seconds: int | None
    """Only entries older than this; `memory.consolidate_older_than` of the configuration when absent."""
    target_share: float | None
    """Share of the entries that should stay warm, from 0 to 1; when absent, their value decides."""


class ContextRequest(TypedDict, total=False):
    """`POST /v1/memory/{of}/context`: a block for a prompt."""

    budget_tokens: int | None
    """Maximum tokens of the block; 1000 when absent."""
    filter: EntryFilter | None
    messages: list[TurnMessage]
    """The conversation so far; the last messages count most."""
    query: str | None
    """The topic. Without it and without messages, the block answers "where was I": the last session, open work
    and recent failures.
    """
    session: str | None
    """Name of the session to continue."""
    spaces: list[str]
    """Names or ids of the spaces to search, of the sandbox's own (`own`) and the attached ones; all when empty."""


class CreateCodeContext(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/contexts`."""

    cwd: str | None
    """Absolute; the home directory of its user when absent."""
    env: dict[str, str]
    """Environment variables, set for the lifetime of the context."""
    language: str | None
    """`python` when absent; the image determines which other languages exist."""


class CreateExec(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/execs`. Give either `argv` or `command`."""

    argv: list[str]
    """Program and arguments."""
    command: str | None
    """A command line for `/bin/sh -c`."""
    env: dict[str, str]
    """Added to the sandbox's environment; these values take precedence."""
    hold: bool
    """The client is about to attach: the process waits for it (30 s at most), so that no output is lost."""
    input: str | None
    """Text written to its standard input, which is then closed."""
    ring_bytes: int | None
    """Bytes of output to keep for re-attaching."""
    rollback_on_failure: bool
    """Take a snapshot first, and restore it in place unless the exec ends with exit code 0, which undoes
    everything that it did. Requires `wait` or `hold`.
    """
    snapshot: bool
    """Take a snapshot just before it starts; the response contains its id."""
    stdin: StdinMode
    """What the standard input of the process is connected to."""
    terminal: TerminalSize | None
    """Run it in a terminal of this size."""
    then_stop: bool
    """Stop the sandbox when this exec has ended (an ephemeral sandbox is then deleted)."""
    timeout_ms: int | None
    """Kill the whole process group after this time."""
    user: str | None
    """`name`, `uid`, `name:group` or `uid:gid`."""
    wait: bool
    """Respond when it has ended, with its output ([`RunResult`], status 200), instead of at once ([`Exec`],
    201).
    """
    workdir: str | None
    """Absolute. When absent, the working directory of the sandbox, else of the image, else the user's home."""


class _CreateKey(TypedDict):
    name: str
    """For people."""
    scope: Scope


class CreateKey(_CreateKey, total=False):
    """`POST /v1/keys`."""

    forks: bool
    """Also the forks of that sandbox: the key can fork it, merge the forks and delete them, and reaches no other
    sandbox.
    """
    sandbox: str | None
    """Only this sandbox (name or id)."""
    ttl_seconds: int | None


class CreatePortUrl(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/ports/{port}/url`: a link that a browser can open."""

    expires_seconds: int
    """How long the link opens the port."""


class CreateSandbox(TypedDict, total=False):
    """`POST /v1/sandboxes`. Everything is optional."""

    driver: str | None
    """How it is isolated, `container` or `microvm`; the daemon's default when absent."""
    env: dict[str, str]
    """Environment variables of every exec."""
    ephemeral: bool
    """Delete it with all its data as soon as it stops."""
    if_not_exists: bool
    """If a sandbox with this name exists, return it with status 200, started or woken if it was not running."""
    image: str | None
    """Name or id of an image; `debian` when absent."""
    labels: dict[str, str]
    limits: LimitsRequest | None
    memory: MemoryRequest | None
    """What it remembers, and in which space."""
    name: str | None
    """Lower-case letters, digits and hyphens; unique. Can be used instead of the id."""
    network: NetworkRequest | None
    """Its network access."""
    rotate: RotateRequest | None
    """Periodic restores to a known good state."""
    services: dict[str, CreateService]
    """Supervised processes that are started with the sandbox, by name."""
    sleep: SleepRequest | None
    """When it is put to sleep while idle."""
    snapshot_policy: SnapshotPolicyRequest | None
    """Snapshots that are taken automatically."""
    ttl_seconds: int | None
    """Delete it this long after creation, in any state."""
    user: str | None
    """The user of execs; that of the image, else root, when absent."""
    volumes: list[MountVolume]
    """Volumes to mount."""
    workdir: str | None
    """The working directory of execs; that of the image, else the user's home, when absent."""


class CreateService(TypedDict, total=False):
    """`PUT /v1/sandboxes/{sandbox}/services/{name}`, and in the specification of a sandbox. Give `argv` or
    `command`.
    """

    argv: list[str]
    command: str | None
    """A command line for `/bin/sh -c`."""
    env: dict[str, str]
    restart: RestartPolicy
    user: str | None
    workdir: str | None


class CreateSnapshot(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/snapshots`. Everything is optional."""

    description: str
    """For people."""
    expires_seconds: int | None
    """Delete it this long after it was taken."""
    files_only: bool
    """Leave the processes out: faster, smaller, and possible with any processes. A sandbox created from it
    boots.
    """
    labels: dict[str, str]
    name: str | None
    """Lower-case letters, digits and hyphens; unique among snapshots. Can be used instead of the id."""


class _CreateSpace(TypedDict):
    name: str
    """Lower-case letters, digits and hyphens; unique among spaces. Can be used instead of the id."""


class CreateSpace(_CreateSpace, total=False):
    """`POST /v1/spaces`."""

    description: str
    """For people."""
    labels: dict[str, str]


class _CreateVolume(TypedDict):
    name: str
    """Lower-case letters, digits and hyphens; unique among volumes, and never changed. Can be used instead of
    the id.
    """


class CreateVolume(_CreateVolume, total=False):
    """`POST /v1/volumes`."""

    disk_mib: int | None
    """Maximum size, in MiB; that of a sandbox's disk when absent."""
    from_snapshot: str | None
    """Id of a snapshot of any volume, whose files it starts with; empty when absent."""


class CreateVolumeSnapshot(TypedDict, total=False):
    """`POST /v1/volumes/{volume}/snapshots`."""

    name: str | None
    """Unique among the volume's snapshots."""


class _DiffRequest(TypedDict):
    to: str
    """The new side."""


_DiffRequestWords = TypedDict("_DiffRequestWords", {"from": "str"})


class DiffRequest(_DiffRequest, _DiffRequestWords, total=False):
    """`POST /v1/diff`: how one file tree differs from another. `GET /v1/diff` takes the same fields as query
    parameters. Each side is a sandbox, a snapshot or an image, by id, by a unique prefix of its id, or by
    name. A name that several kinds have means the sandbox first, then the snapshot. The prefixes `sandbox:`,
    `snapshot:` and `image:` select one kind.
    """

    all: bool
    """Include noise: caches, temporary files, logs, pid files."""
    content: bool
    """Include the lines of text files that differ."""
    globs: list[str]
    """Only paths that match one of these patterns: `*.py`, `/srv/**`."""
    limit: int | None
    """Maximum number of entries; 10,000 when absent. The rest are only counted."""


class _EgressAuth(TypedDict):
    authRef: str
    """A secret's name."""
    destination: str
    """A host, as in a rule."""


class EgressAuth(_EgressAuth, total=False):
    """The short form of a rule."""


class EgressDocument(TypedDict, total=False):
    """What may be connected to."""

    allow: list[str]
    """Connection rules, such as `tcp://db.example.com:5432`: not decrypted."""
    default: Otherwise | None
    """For hosts that no rule names; `deny` when absent."""
    deny: list[str]
    """Address blocks that are denied, such as `203.0.113.0/24`, unless `allow` contains the address or its
    block.
    """
    rules: list[RuleDocument]
    """Request rules. Two of them must not cover the same request."""
    sets: list[str]
    """Names of host sets, such as `pypi`; `GET /v1/egress/sets` lists them."""


class _EgressQuestion(TypedDict):
    target: str
    """`https://host/path`, `http://host`, `tcp://host:port`, `host:port` or `host`, which means HTTPS."""


class EgressQuestion(_EgressQuestion, total=False):
    """`POST …/egress/explain` and `…/egress/test`."""

    method: str | None
    """Method of the request, if its host is decrypted; `GET` when absent."""


class EntryFilter(TypedDict, total=False):
    """Selects entries. Everything is optional; all given conditions must hold."""

    agent: str | None
    ids: list[str]
    """Entries with one of these ids."""
    include_cold: bool
    """Include entries in the cold tier."""
    include_superseded: bool
    """Include entries that others replaced."""
    kinds: list[str]
    """Entries of one of these kinds."""
    metadata: list[MetadataTest]
    """Conditions on their metadata."""
    session: str | None
    since_ms: int | None
    """Happened at this time or later."""
    source: str | None
    until_ms: int | None
    """Happened before this time."""
    user: str | None


EntryPolicy = Literal["ours", "theirs", "both"]


class EraseEntries(TypedDict, total=False):
    """`POST /v1/memory/{of}/erase`: removes entries from every version, branch, snapshot and index of the space,
    and from the disk. Only a marker without content remains. Give exactly one of `ids`, `filter` and
    `older_than_seconds`.
    """

    dry_run: bool
    """Only report what would be erased."""
    filter: EntryFilter | None
    ids: list[str]
    older_than_seconds: int | None
    """Entries that happened longer ago than this."""


class _FindSkills(TypedDict):
    query: str


class FindSkills(_FindSkills, total=False):
    """`POST /v1/memory/{of}/skills/search`."""

    limit: int | None
    """10 when absent."""


class ForgetEntries(TypedDict, total=False):
    """`POST /v1/memory/{of}/forget`: the entries are no longer found, from now on and on this branch; `as_of`,
    the history and snapshots still have them. Give exactly one of `ids`, `filter` and `older_than_seconds`.
    """

    dry_run: bool
    """Only report what would be forgotten."""
    filter: EntryFilter | None
    ids: list[str]
    older_than_seconds: int | None
    """Entries that happened longer ago than this."""


class ForkSandbox(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/fork`: children that continue from its current state."""

    count: int
    ephemeral: bool
    """Delete each child with all its data as soon as it stops."""
    files_only: bool
    """Leave the processes out: the children boot from the files."""
    labels: dict[str, str] | None
    """The children's labels; the parent's when absent."""
    names: list[str]
    """Empty, one name per child, or one name for several children, which are then called `NAME-1`, `NAME-2` and
    so on.
    """
    ttl_seconds: int | None
    """Delete each child this long after creation, in any state."""


class ImageConfigChange(TypedDict, total=False):
    """Absent fields stay as they are."""

    cmd: list[str] | None
    entrypoint: list[str] | None
    env: dict[str, str]
    """Added to the existing variables."""
    labels: dict[str, str]
    user: str | None
    workdir: str | None


ImageFrom = Literal["default", "pull", "packages", "recipe", "dockerfile", "sandbox"]
"""The source of a new image."""


class _KvBatch(TypedDict):
    ops: list[KvOperation]


class KvBatch(_KvBatch, total=False):
    """`POST /v1/memory/{of}/kv-batch`: applied atomically."""


class _KvIncrement(TypedDict):
    key: str


class KvIncrement(_KvIncrement, total=False):
    """`POST /v1/memory/{of}/kv-increment`. A missing key counts as 0."""

    by: float
    """1 when absent. Integers stay integers."""
    ttl_seconds: int | None
    """Expires after this time; the expiry stays as it was when absent."""


class _KvOperationSet(TypedDict):
    key: str
    op: Literal["set"]
    value: Any


class KvOperationSet(_KvOperationSet, total=False):
    if_absent: bool
    if_version: int | None
    ttl_seconds: int | None


class _KvOperationDelete(TypedDict):
    key: str
    op: Literal["delete"]


class KvOperationDelete(_KvOperationDelete, total=False):
    if_version: int | None


class _KvOperationIncrement(TypedDict):
    key: str
    op: Literal["increment"]


class KvOperationIncrement(_KvOperationIncrement, total=False):
    by: float
    ttl_seconds: int | None


class _KvOperationCheck(TypedDict):
    key: str
    op: Literal["check"]


class KvOperationCheck(_KvOperationCheck, total=False):
    """Changes nothing; only its condition is checked."""

    if_absent: bool
    if_version: int | None


KvOperation = Union["KvOperationSet", "KvOperationDelete", "KvOperationIncrement", "KvOperationCheck"]
"""One step of a batch. If its `if_version` or `if_absent` does not hold, the whole batch is undone."""


KvPolicy = Literal["ours", "theirs", "fail"]


class _KvSet(TypedDict):
    value: Any
    """Any JSON, 256 KiB at most."""


class KvSet(_KvSet, total=False):
    """`PUT /v1/memory/{of}/kv/{key}`."""

    if_absent: bool
    """Apply only if the key does not exist."""
    if_version: int | None
    """Apply only if this is the current version; otherwise the conflict error contains the current version."""
    ttl_seconds: int | None
    """Expires after this time; never when absent."""


class LimitsRequest(TypedDict, total=False):
    """Limits to set. Absent fields stay as they are, or take the daemon's default."""

    cpu_millis: int | None
    """Thousandths of a core."""
    disk_mib: int | None
    disk_mib_per_second: int | None
    """Disk throughput per second, reads and writes together; unlimited when absent. 0 in an update removes the
    limit. Not every driver supports it: see `GET /v1/host`.
    """
    network_mib_per_second: int | None
    """Network throughput per second, for each direction; unlimited when absent. 0 in an update removes the
    limit. Execs and files are not counted, because they do not use the sandbox's network.
    """
    pids: int | None
    """Processes and threads."""
    ram_mib: int | None


class _MakeDirectory(TypedDict):
    path: str


class MakeDirectory(_MakeDirectory, total=False):
    """`POST …/files/mkdir`."""

    mode: str | None
    """Octal, e.g. `0755`."""
    parents: bool
    """Create missing parents; an existing directory is not an error."""
    user: str | None


MemoryLine = dict[str, Any]
"""One line of `GET /v1/memory/{of}/export`, and of the body of `POST …/import`. `line` is its type, `header` or
`entry`; the fields of an entry are those of a `MemoryEntry`. Ids are kept, so importing twice stores once.
"""


class MemoryRequest(TypedDict, total=False):
    """What a sandbox remembers, and in which space. Absent fields stay as they are, or take the default."""

    attached: list[AttachedSpace] | None
    """Other spaces that searches include. The list replaces the existing one. 8 at most."""
    remember: Remember | None
    """Which execs are remembered automatically; `memory.remember` of the configuration when absent."""
    space: str | None
    """Name or id of a space that outlives the sandbox, to use instead of its own; `own` for its own, the
    default. Only its own space is rolled back, restored and forked with it.
    """


_MergeMemoryWords = TypedDict("_MergeMemoryWords", {"from": "str"})


class MergeMemory(_MergeMemoryWords, total=False):
    """`POST /v1/memory/{of}/merge`: merges what a fork remembered."""

    dry_run: bool
    """Only report what would happen."""
    entries: EntryPolicy | None
    """Which side wins if both changed an entry, or one forgot what the other changed; also for conflicts that an
    earlier merge listed. When absent, this side stays, and the conflict is listed until a merge decides it.
    """
    kv: KvPolicy | None
    """Which side wins if both changed a key, a skill or an artifact; also for conflicts that an earlier merge
    listed. When absent, this side stays, and the conflict is listed until a merge decides it.
    """


MergeMemoryPolicy = Literal["none", "list", "ours", "theirs", "both", "fail"]


MergePolicy = Literal["fail", "ours", "theirs", "union", "text"]


class MergeRace(TypedDict, total=False):
    """`POST /v1/races/{race}/merge`."""

    dry_run: bool
    """Only report what would happen."""
    memory: MergeMemoryPolicy
    policies: list[MergeRule]
    policy: MergePolicy


class _MergeRule(TypedDict):
    glob: str
    """Which paths: `*.md`, `/srv/**`."""
    policy: MergePolicy


class MergeRule(_MergeRule, total=False):
    pass


class _MergeSandbox(TypedDict):
    child: str
    """Name or id of the sandbox whose changes are merged."""


class MergeSandbox(_MergeSandbox, total=False):
    """`POST /v1/sandboxes/{sandbox}/merge`: applies the changes of a fork to the sandbox, as a three-way merge
    against the snapshot that both came from.
    """

    all: bool
    """Include noise: caches, temporary files, logs, pid files."""
    dry_run: bool
    """Only report what would happen."""
    memory: MergeMemoryPolicy
    """How the child's memory is merged."""
    policies: list[MergeRule]
    """Policies for paths that both changed, by pattern; the first that matches applies."""
    policy: MergePolicy
    """The policy where no pattern matches; `fail` when absent."""


MetadataOperator = Literal["eq", "ne", "in", "exists", "lt", "gt"]


class _MetadataTest(TypedDict):
    path: str
    """A key, or keys separated by dots for nested values."""


class MetadataTest(_MetadataTest, total=False):
    """One condition on the metadata of an entry."""

    operator: MetadataOperator
    value: Any
    """The value to compare with: a list for `in`, absent for `exists`."""


class _MountVolume(TypedDict):
    name: str
    """The volume's name or id."""
    path: str
    """Where it is mounted: absolute, and not a system directory."""


class MountVolume(_MountVolume, total=False):
    """A volume to mount in a sandbox."""

    mode: VolumeMode
    """`rw` when absent."""


class _MoveFile(TypedDict):
    to: str


_MoveFileWords = TypedDict("_MoveFileWords", {"from": "str"})


class MoveFile(_MoveFile, _MoveFileWords, total=False):
    """`POST …/files/move`."""


NetworkMode = Literal["none", "allowlist", "open"]
"""How much network access a sandbox has."""


class NetworkRequest(TypedDict, total=False):
    """The network access of a new sandbox. Absent fields take the daemon's default; rules or sets without a mode
    mean `allowlist`.
    """

    allow: list[str] | None
    """Rules like `example.com`, `*.example.com:443`, `https://example.com`, `tcp://db.example.com:5432`."""
    deny: list[str] | None
    """Address blocks that are denied, such as `203.0.113.0/24`, whatever name resolves to them. A rule about an
    address or a block is an exception.
    """
    mode: NetworkMode | None
    requests: list[RuleDocument] | None
    """Request rules, as in a policy document: which requests are decrypted, and which secrets are inserted."""
    sets: list[str] | None
    """Names of host sets, such as `pypi`; `GET /v1/egress/sets` lists them."""


class _NewEntry(TypedDict):
    text: str
    """Stored verbatim. 64 KiB at most; store larger data as an artifact."""


class NewEntry(_NewEntry, total=False):
    """Something to remember."""

    agent: str | None
    artifacts: list[str]
    """Names or hashes of artifacts that belong to it."""
    at_ms: int | None
    """When it happened; now when absent."""
    importance: float
    """From 0 to 1; 0.5 when absent. Affects the ranking."""
    key: str | None
    """If an entry with this key exists, it is returned, and the other fields are ignored."""
    kind: str
    """A lower-case word: `note` when absent; also `fact`, `decision`, `observation`, `turn`, …"""
    links: list[str]
    """Ids of related entries."""
    metadata: dict[str, Any]
    """Anything to filter by. 16 KiB at most."""
    session: str | None
    """A session groups what was said or done together; the open session when absent."""
    source: str | None
    """Where it comes from: a file, an address, a program."""
    supersedes: list[str]
    """Ids of entries that this one replaces: they are found only if the search asks for replaced entries."""
    user: str | None
    valid_from_ms: int | None
    """Start of the time in which it is valid."""
    valid_to_ms: int | None
    """End of the time in which it is valid."""


class _NewSkill(TypedDict):
    description: str
    """What it does."""
    name: str
    """Lower-case letters, digits, `-`, `_` and `.`; not `search` or `promote`."""
    steps: list[SkillStep]


class NewSkill(_NewSkill, total=False):
    """`POST /v1/memory/{of}/skills`: a new skill, or a new version of a skill."""

    parameters: list[SkillParameter]
    source: str | None
    """Where it comes from."""
    when_to_use: str
    """When to use it, in words that a search would contain."""


Otherwise = Literal["deny", "allow"]


class PolicyDocument(TypedDict, total=False):
    """A sandbox's whole egress policy."""

    egress: EgressDocument | None
    egressAuth: list[EgressAuth]
    """The short form: each item is one rule that inserts a secret into the requests to one host."""


class _PromoteSkill(TypedDict):
    first: str
    """The first exec and the last: ids, or unique prefixes of them. All between them that succeeded become
    steps.
    """
    name: str


class PromoteSkill(_PromoteSkill, total=False):
    """`POST /v1/memory/{of}/skills/promote`: creates a skill from commands that were run."""

    description: str
    """Generated from the commands when empty."""
    include_failed: bool
    """Include execs that failed."""
    last: str | None
    """`first` when absent."""
    parameters: dict[str, str]
    """Each becomes a parameter of that name with the value as its default, and replaces the value in every step."""
    sandbox: str | None
    """The sandbox whose execs are used; the one in the path when absent."""
    when_to_use: str


class _RecallRequest(TypedDict):
    messages: list[TurnMessage]
    """The conversation so far, as it is sent to the model."""


class RecallRequest(_RecallRequest, total=False):
    """`POST /v1/memory/{of}/recall`: a block to insert before a turn. Returns a `ContextBlock`."""

    budget_tokens: int | None
    """Maximum tokens of the block; 1000 when absent."""
    session: str | None
    """Name of the session to continue."""


class _RegistryCredentials(TypedDict):
    password: str
    username: str


class RegistryCredentials(_RegistryCredentials, total=False):
    """A name and a password or token for a registry."""


Remember = Literal["off", "errors", "all"]
"""Which execs are remembered automatically."""


RestartPolicy = Literal["always", "on-failure", "never"]


class _RestoreSandbox(TypedDict):
    snapshot: str
    """Name or id of a snapshot, of this sandbox or of another."""


class RestoreSandbox(_RestoreSandbox, total=False):
    """`POST /v1/sandboxes/{sandbox}/restore`: restores a sandbox to the state of a snapshot."""

    files_only: bool
    """Leave the snapshot's processes out: the sandbox boots from the files."""


class _RestoreVolume(TypedDict):
    snapshot: str
    """One of the volume's own snapshots, by id or name."""


class RestoreVolume(_RestoreVolume, total=False):
    """`POST /v1/volumes/{volume}/restore`."""


class _RotateRequest(TypedDict):
    every_seconds: int
    """At least 10; 0: never."""


class RotateRequest(_RotateRequest, total=False):
    """Periodic restores to a known good state; replaces the existing policy."""

    snapshot: str | None
    """Name or id of the snapshot to restore; required unless `every_seconds` is 0."""


class _RotateSecret(TypedDict):
    value: str
    """The bytes of the secret, in base64: 8 to 65,536 bytes."""


class RotateSecret(_RotateSecret, total=False):
    """`POST /v1/secrets/{secret}/rotate`."""


class _RuleDocument(TypedDict):
    host: str
    """`api.example.com` or `*.example.com`."""


class RuleDocument(_RuleDocument, total=False):
    """A rule for the requests to a host."""

    approve: Approve | None
    """Requests require approval by a person."""
    budget: BudgetDocument | None
    methods: list[str]
    """Every method when absent; with a secret, those that its owner allows."""
    mode: RuleMode | None
    """`intercept` when absent."""
    paths: list[str]
    """Patterns such as `/v1/**`. Every path when absent; with a secret, those that its owner allows."""
    port: int | None
    """443 when absent."""
    secret: str | None
    """The secret that is inserted into the requests that the rule covers."""


RuleMode = Literal["sni", "intercept"]


class _RunCode(TypedDict):
    code: str


class RunCode(_RunCode, total=False):
    """`POST /v1/sandboxes/{sandbox}/contexts/{context}/run`."""

    env: dict[str, str]
    """Environment variables for this run."""
    output_bytes_max: int | None
    """Interrupt the run when it has written more than this; 16 MiB when absent."""
    timeout_ms: int | None
    """Interrupt the run after this time; no limit when absent. Time in a queue does not count."""
    wait: bool
    """Return one response when the run has ended ([`CodeRun`]) instead of streaming lines ([`CodeEvent`])."""


class RunSkill(TypedDict, total=False):
    """`POST /v1/memory/{of}/skills/{name}/run`."""

    parameters: dict[str, str]
    sandbox: str | None
    """The sandbox to run it in; the one in the path when absent."""
    stream: bool
    """Stream one `SkillRunStep` per line as each step ends (`application/x-ndjson`), the last line being the
    outcome, instead of one response with everything (`SkillRun`).
    """
    user: str | None
    """Overrides the user of the sandbox."""
    version: int | None
    """The latest version when absent."""


class SandboxFromSnapshot(TypedDict, total=False):
    """`POST /v1/snapshots/{snapshot}/sandboxes`: a new sandbox that continues from the state of a snapshot."""

    ephemeral: bool
    """Delete it with all its data as soon as it stops."""
    files_only: bool
    """Leave the snapshot's processes out: the sandbox boots from the files."""
    labels: dict[str, str] | None
    """Its labels; those of the snapshot's sandbox when absent."""
    name: str | None
    network: UpdateNetwork | None
    """Changes its network access before any of its processes runs. Without it, its access is the present one of
    the snapshot's sandbox, or the daemon's default if that sandbox was deleted.
    """
    ttl_seconds: int | None
    """Delete it this long after creation, in any state."""


Scope = Literal["read", "exec", "admin"]


class _SearchMemory(TypedDict):
    query: str
    """Words, a question, or a whole message."""


class SearchMemory(_SearchMemory, total=False):
    """`POST /v1/memory/{of}/search`."""

    explain: bool
    """Include the terms and figures of each arm for each hit."""
    filter: EntryFilter | None
    half_life_seconds: int | None
    """The age at which the contribution of recency to the score is halved."""
    include_cold: bool
    """Include entries in the cold tier."""
    limit: int | None
    """Maximum number of hits; 10 when absent."""
    min_score: float | None
    """Only hits with at least this score."""
    spaces: list[str]
    """Names or ids of the spaces to search, of the sandbox's own (`own`) and the attached ones; all when empty."""
    weights: SearchWeights | None


class SearchWeights(TypedDict, total=False):
    """The relative weights of the parts of the score. Absent fields keep their defaults."""

    importance: float | None
    lexical: float | None
    """Words."""
    neighbours: float | None
    """Proximity to matches: what was said or done just before and after."""
    recency: float | None
    vector: float | None
    """Meaning."""


class _SecretPlaceholder(TypedDict):
    env: str
    """`OPENAI_API_KEY` and the like."""


class SecretPlaceholder(_SecretPlaceholder, total=False):
    """A variable inside the sandbox that contains a fake token."""

    prefix: str
    """The prefix of the fake token, such as `sk-`."""


class _SecretScope(TypedDict):
    host: str
    """`api.example.com`, or `*.example.com` for all its subdomains."""


class SecretScope(_SecretScope, total=False):
    """Requests to a host."""

    methods: list[str]
    """Empty: every method."""
    paths: list[str]
    """`/v1/**` and the like. Empty: every path."""
    port: int | None
    """443 when absent."""


class _SecretSlotHeader(TypedDict):
    kind: Literal["header"]
    name: str


class SecretSlotHeader(_SecretSlotHeader, total=False):
    format: str | None
    """`{}` is the secret, as in `Bearer {}`; the secret alone when absent."""


class _SecretSlotGrpcMetadata(TypedDict):
    kind: Literal["grpc_metadata"]
    name: str


class SecretSlotGrpcMetadata(_SecretSlotGrpcMetadata, total=False):
    """In gRPC requests only."""

    format: str | None


class _SecretSlotQuery(TypedDict):
    kind: Literal["query"]
    name: str


class SecretSlotQuery(_SecretSlotQuery, total=False):
    """A parameter of the query."""


class _SecretSlotBasic(TypedDict):
    kind: Literal["basic"]
    user: str


class SecretSlotBasic(_SecretSlotBasic, total=False):
    """`Authorization: Basic`; the secret is the password."""


class _SecretSlotClientCert(TypedDict):
    kind: Literal["client_cert"]


class SecretSlotClientCert(_SecretSlotClientCert, total=False):
    """A certificate chain and its key in PEM, presented to a host that requests a client certificate."""


SecretSlot = Union[
    "SecretSlotHeader", "SecretSlotGrpcMetadata", "SecretSlotQuery", "SecretSlotBasic", "SecretSlotClientCert"
]
"""The position of a secret in a request. A value that the program put there is removed first."""


class _SendSignal(TypedDict):
    signal: str
    """`TERM`, `SIGTERM` or `15`."""


class SendSignal(_SendSignal, total=False):
    """`POST …/signal`."""

    group: bool
    """Signal the whole process group, as a terminal does, instead of its first process only."""


class _SetSecret(TypedDict):
    allow: list[SecretScope]
    """Where it may be sent at most, whatever the rules of a sandbox say."""
    slot: SecretSlot
    value: str
    """The bytes of the secret, in base64: 8 to 65,536 bytes."""


class SetSecret(_SetSecret, total=False):
    """`PUT /v1/secrets/{secret}`."""

    placeholder: SecretPlaceholder | None
    """The variable that programs inside see instead of it."""


Size = Union["int", "str"]


class _SkillOutcome(TypedDict):
    ok: bool


class SkillOutcome(_SkillOutcome, total=False):
    """`POST /v1/memory/{of}/skills/{name}/outcome`: the outcome of a run that was not made by Burrow."""

    at_ms: int | None
    """When it was reported. Set by the daemon; not accepted in requests."""
    detail: str
    """Details worth knowing."""
    exit_code: int | None
    took_ms: int


class _SkillParameter(TypedDict):
    name: str


class SkillParameter(_SkillParameter, total=False):
    """A parameter of a skill. Commands refer to it as `{{name}}`, which becomes one quoted word. It is also in
    the environment, as `PARAM_NAME`.
    """

    default: str | None
    description: str
    required: bool


class _SkillStepCommand(TypedDict):
    kind: Literal["command"]
    run: str


class SkillStepCommand(_SkillStepCommand, total=False):
    """A command line for `/bin/sh -c`."""

    env: dict[str, str]
    timeout_seconds: int | None
    workdir: str | None


class _SkillStepToolCall(TypedDict):
    kind: Literal["tool-call"]
    tool: str


class SkillStepToolCall(_SkillStepToolCall, total=False):
    """A tool call, which the client that runs the skill makes: Burrow does not."""

    arguments: Any


class _SkillStepScript(TypedDict):
    interpreter: str
    """A program and its arguments, such as `python3` or `bash -e`."""
    kind: Literal["script"]
    text: str


class SkillStepScript(_SkillStepScript, total=False):
    """A text for a program's standard input."""

    env: dict[str, str]


SkillStep = Union["SkillStepCommand", "SkillStepToolCall", "SkillStepScript"]
"""A command line for `/bin/sh -c`."""


class SleepRequest(TypedDict, total=False):
    """When a sandbox is put to sleep while idle, and whether a use starts it again. Absent fields stay as they
    are, or take the daemon's default; 0: never. The times that are set must be in ascending order. A default
    that does not fit between the times of a new sandbox is left out.
    """

    hibernate_after_seconds: int | None
    """Hibernate: its RAM is written to disk."""
    pause_after_seconds: int | None
    """Pause: its RAM is kept."""
    start_on_use: bool | None
    """Whether any use of the stopped sandbox starts it."""
    stop_after_seconds: int | None
    """Stop: only its files are kept."""


class _SnapshotPolicyRequest(TypedDict):
    every_seconds: int
    """At least 10; 0: never."""


class SnapshotPolicyRequest(_SnapshotPolicyRequest, total=False):
    """Snapshots to take automatically; replaces the existing policy."""

    files_only: bool
    keep: int
    """Number of the policy's snapshots to keep; the oldest ones are deleted."""


SpaceAccess = Literal["read", "read-write"]


class _StartRace(TypedDict):
    attempts: int
    parent: str
    """Name or id of the sandbox that is forked."""
    run: list[str]
    """The command of every attempt. `BURROW_ATTEMPT` contains the number of the attempt."""


class StartRace(_StartRace, total=False):
    """`POST /v1/races`."""

    files_only: bool
    """The attempts boot from the parent's files, without its processes."""
    judge: list[str] | None
    """A command that is run in every attempt after it ended, and whose last line of output is a number: the
    highest wins. It rejects an attempt by a non-zero exit code. Without a judge, the fastest attempt that
    exits with code 0 wins.
    """
    keep: bool
    """Keep the sandboxes of the attempts after the race."""
    memory: MergeMemoryPolicy
    merge_winner: bool
    """Merge the winner into the parent."""
    parallel: int | None
    """How many run at the same time; all when absent."""
    policies: list[MergeRule]
    """The policies for merging the winner, as in a merge."""
    policy: MergePolicy
    timeout_seconds: int | None
    """Time limit of an attempt."""


StdinMode = Literal["null", "pipe"]


class _StoreTurn(TypedDict):
    messages: list[TurnMessage]
    """The new messages: the question and the answer. Messages that were stored just before are not stored again."""


class StoreTurn(_StoreTurn, total=False):
    """`POST /v1/memory/{of}/turns`: what to remember after a turn."""

    agent: str | None
    session: str | None
    """The open session when absent; sessions open and close automatically."""
    user: str | None


class _TagImage(TypedDict):
    name: str


class TagImage(_TagImage, total=False):
    """`POST /v1/images/{image}/tags`: adds a name to an image."""


class _TerminalSize(TypedDict):
    columns: int
    rows: int


class TerminalSize(_TerminalSize, total=False):
    pass


TurnMessage = dict[str, Any]
"""One message of a conversation, in the format of model APIs: messages for a model can be passed unchanged."""


class UpdateEntry(TypedDict, total=False):
    """`PATCH /v1/memory/{of}/entries/{id}`: a new version; the old one stays in the history. Absent fields stay
    as they are.
    """

    artifacts: list[str] | None
    """Replaces the existing value."""
    if_version: int | None
    """Apply only if this is the current version; otherwise the conflict error contains the current version."""
    importance: float | None
    kind: str | None
    links: list[str] | None
    """Replaces the existing value."""
    metadata: dict[str, Any] | None
    """Replaces the existing value."""
    text: str | None
    valid_from_ms: int | None
    valid_to_ms: int | None


class UpdateNetwork(TypedDict, total=False):
    """Changes the network access of a sandbox. Absent fields stay as they are; connections that are no longer
    allowed are closed.
    """

    add: list[str]
    """Rules to add; existing ones stay."""
    add_deny: list[str]
    """Blocks to deny; blocks that are denied already stay denied."""
    add_requests: list[RuleDocument]
    """Request rules to add; existing ones stay."""
    add_sets: list[str]
    allow: list[str] | None
    """All rules; replaces the existing ones."""
    deny: list[str] | None
    """All denied address blocks; replaces the existing ones."""
    mode: NetworkMode | None
    remove: list[str]
    """Rules to remove. A missing rule is an error, because the client believes it to be in effect."""
    remove_deny: list[str]
    """Blocks to deny no longer; a block that is not denied is an error."""
    remove_sets: list[str]
    requests: list[RuleDocument] | None
    """All request rules; replaces the existing ones."""
    sets: list[str] | None
    """All host sets; replaces the existing ones."""


class UpdateSandbox(TypedDict, total=False):
    """`PATCH /v1/sandboxes/{sandbox}`. Absent fields stay as they are."""

    env: dict[str, str | None]
    """Variables to set; `null` removes one. They apply to execs that start from now on."""
    labels: dict[str, str | None]
    """Labels to set; `null` removes one."""
    limits: LimitsRequest | None
    memory: MemoryRequest | None
    """What it remembers, and in which space."""
    name: str | None
    """A new name."""
    network: UpdateNetwork | None
    """Its network access from now on, including open connections."""
    rotate: RotateRequest | None
    """Periodic restores to a known good state."""
    sleep: SleepRequest | None
    """When it is put to sleep while idle."""
    snapshot_policy: SnapshotPolicyRequest | None
    """Snapshots that are taken automatically."""
    volumes: list[MountVolume] | None
    """All its volumes; replaces the existing ones. Only while it is stopped."""


class UpdateSpace(TypedDict, total=False):
    """`PATCH /v1/spaces/{space}`. Absent fields stay as they are."""

    description: str | None
    labels: dict[str, str | None]
    """Labels to set; `null` removes one."""
    name: str | None
    """A new name."""


VolumeMode = Literal["ro", "rw"]
"""Access to a volume: at most one sandbox writes to it, and any number of sandboxes read it."""


__all__ = [
    "AddEntries",
    "AddMemory",
    "AddSshKey",
    "AnswerApproval",
    "Approve",
    "AttachedSpace",
    "BudgetDocument",
    "BuildImage",
    "ChangeMode",
    "CollectGarbage",
    "ConsolidateMemory",
    "ContextRequest",
    "CreateCodeContext",
    "CreateExec",
    "CreateKey",
    "CreatePortUrl",
    "CreateSandbox",
    "CreateService",
    "CreateSnapshot",
    "CreateSpace",
    "CreateVolume",
    "CreateVolumeSnapshot",
    "DiffRequest",
    "EgressAuth",
    "EgressDocument",
    "EgressQuestion",
    "EntryFilter",
    "EntryPolicy",
    "EraseEntries",
    "FindSkills",
    "ForgetEntries",
    "ForkSandbox",
    "ImageConfigChange",
    "ImageFrom",
    "KvBatch",
    "KvIncrement",
    "KvOperation",
    "KvOperationCheck",
    "KvOperationDelete",
    "KvOperationIncrement",
    "KvOperationSet",
    "KvPolicy",
    "KvSet",
    "LimitsRequest",
    "MakeDirectory",
    "MemoryLine",
    "MemoryRequest",
    "MergeMemory",
    "MergeMemoryPolicy",
    "MergePolicy",
    "MergeRace",
    "MergeRule",
    "MergeSandbox",
    "MetadataOperator",
    "MetadataTest",
    "MountVolume",
    "MoveFile",
    "NetworkMode",
    "NetworkRequest",
    "NewEntry",
    "NewSkill",
    "Otherwise",
    "PolicyDocument",
    "PromoteSkill",
    "RecallRequest",
    "RegistryCredentials",
    "Remember",
    "RestartPolicy",
    "RestoreSandbox",
    "RestoreVolume",
    "RotateRequest",
    "RotateSecret",
    "RuleDocument",
    "RuleMode",
    "RunCode",
    "RunSkill",
    "SandboxFromSnapshot",
    "Scope",
    "SearchMemory",
    "SearchWeights",
    "SecretPlaceholder",
    "SecretScope",
    "SecretSlot",
    "SecretSlotBasic",
    "SecretSlotClientCert",
    "SecretSlotGrpcMetadata",
    "SecretSlotHeader",
    "SecretSlotQuery",
    "SendSignal",
    "SetSecret",
    "Size",
    "SkillOutcome",
    "SkillParameter",
    "SkillStep",
    "SkillStepCommand",
    "SkillStepScript",
    "SkillStepToolCall",
    "SleepRequest",
    "SnapshotPolicyRequest",
    "SpaceAccess",
    "StartRace",
    "StdinMode",
    "StoreTurn",
    "TagImage",
    "TerminalSize",
    "TurnMessage",
    "UpdateEntry",
    "UpdateNetwork",
    "UpdateSandbox",
    "UpdateSpace",
    "VolumeMode",
]
