"""What the daemon is asked, as dictionaries with types.

Generated from docs/openapi.json by `tools/generate.py`: change that, and generate again.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union


class _AddEntries(TypedDict):
    entries: list[NewEntry]
    """Stored in this order, all or none."""


class AddEntries(_AddEntries, total=False):
    pass


AddMemory = Union["AddEntries", "NewEntry"]
"""`POST /v1/memory/{of}/entries`: one entry, or several that are stored together or not at all."""


class _AddSshKey(TypedDict):
    public_key: str
    """One line, as in `~/.ssh/id_ed25519.pub`."""


class AddSshKey(_AddSshKey, total=False):
    """`POST /v1/ssh/keys`."""

    name: str | None
    """For people; the key's own comment when absent."""


class _AnswerApproval(TypedDict):
    allow: bool


class AnswerApproval(_AnswerApproval, total=False):
    """`POST …/egress/approvals/{approval}`."""


Approve = Literal["once", "session"]


class _AttachedSpace(TypedDict):
    space: str
    """Its name or id; in answers its id."""


class AttachedSpace(_AttachedSpace, total=False):
    """A space that a sandbox searches besides the one it remembers in."""

    access: SpaceAccess


class BudgetDocument(TypedDict, total=False):
    """How much of a rule may be used."""

    bytesOutPerDay: Size | None
    """Bytes, or a size such as `50MB`."""
    requestsPerDay: int | None
    requestsPerMinute: int | None


_BuildImageOptionalWords = TypedDict("_BuildImageOptionalWords", {"from": "ImageFrom"}, total=False)


class BuildImage(_BuildImageOptionalWords, total=False):
    """`POST /v1/images`: makes an image. The answer is NDJSON of [`BuildProgress`]. Fields that do not belong to
    `from` must be absent.
    """

    base: str | None
    """`packages`: the image to install them in, by name or id; the default image when absent."""
    config: ImageConfigChange | None
    """`sandbox`: what the image says differently from the one the sandbox was made from."""
    credentials: RegistryCredentials | None
    """`pull`: who asks the registry. Used for this pull and kept nowhere."""
    insecure: bool
    """`pull`: the registry speaks HTTP without TLS. Loopback does so without being asked."""
    name: str | None
    """What to call it. When absent: `debian` for the default image, the reference for `pull`, else nothing."""
    network: NetworkRequest | None
    """`recipe`: what its `run` steps may reach; the daemon's default for sandboxes when absent. Packages are
    fetched from wherever the image's own sources are, whatever this says.
    """
    no_cache: bool
    """`packages`, `recipe`: run every step, whatever is kept of earlier builds."""
    packages: list[str]
    """`packages`: what to install."""
    platform: str | None
    """`pull`: like `linux/amd64`; the host's own when absent."""
    rebuild: bool
    """`default`: build again even if the name exists."""
    recipe: str | None
    """`recipe`: the build file's text. One that copies files is sent with them to `/v1/images/build`."""
    reference: str | None
    """`pull`: where the image is, as in `registry.example.com/org/app:v1`."""
    sandbox: str | None
    """`sandbox`: whose files, by name or id."""


class _ChangeMode(TypedDict):
    mode: str
    """Octal, e.g. `0644`."""
    path: str


class ChangeMode(_ChangeMode, total=False):
    """`POST …/files/chmod`."""


class CollectGarbage(TypedDict, total=False):
    """`POST /v1/gc`: does what `GET /v1/gc` says."""

    unused_for_seconds: int | None
    """What nobody used for this long is stale; 30 days when absent."""


class ConsolidateMemory(TypedDict, total=False):
    """`POST /v1/memory/{of}/consolidate`. Everything is optional."""

    budget_ms: int | None
    """Time it may take; 30 s when absent."""
    dry_run: bool
    """Only say what would happen."""
    entries: int | None
    """Entries looked at, at most; 10000 when absent."""
    older_than_seconds: int | None
    """Only what is older than this; `memory.consolidate_older_than` of the configuration when absent."""
    target_share: float | None
    """Share of the entries that should stay warm, from 0 to 1; as many as are worth it when absent."""


class ContextRequest(TypedDict, total=False):
    """`POST /v1/memory/{of}/context`: a block for a prompt."""

    budget_tokens: int | None
    """Tokens the block may take; 1000 when absent."""
    filter: EntryFilter | None
    messages: list[TurnMessage]
    """The conversation so far; the last messages count most."""
    query: str | None
    """What it should be about. Without it and without messages: "where was I", the last session, open work and
    recent failures.
    """
    session: str | None
    """The session that goes on, if it has a name."""
    spaces: list[str]
    """Names or ids of the spaces to look in, among the sandbox's own (`own`) and the attached ones; all when
    empty.
    """


class CreateCodeContext(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/contexts`."""

    cwd: str | None
    """Absolute; the home of the user it runs as when absent."""
    env: dict[str, str]
    """For its whole life."""
    language: str | None
    """`python` when absent; which others there are is the image's to say."""


class CreateExec(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/execs`. Give either `argv` or `command`."""

    argv: list[str]
    """Program and arguments."""
    command: str | None
    """A line for `/bin/sh -c`."""
    env: dict[str, str]
    """Wins over the sandbox's environment."""
    hold: bool
    """The caller is about to attach: let the process wait for it (30 s at most) rather than lose output."""
    input: str | None
    """Text written to its standard input at once, which is then closed."""
    ring_bytes: int | None
    """Bytes of output to keep for re-attaching."""
    rollback_on_failure: bool
    """Take a snapshot, and restore it in place if the exec ends with anything but exit code 0: what it did
    leaves no trace. Needs `wait` or `hold`.
    """
    snapshot: bool
    """Take a snapshot just before it starts; the answer names it."""
    stdin: StdinMode
    """What the process finds on its standard input."""
    terminal: TerminalSize | None
    """A terminal of this size."""
    then_stop: bool
    """Stop the sandbox when this exec has ended (an ephemeral one is then deleted)."""
    timeout_ms: int | None
    """End the whole process group after this time."""
    user: str | None
    """`name`, `uid`, `name:group` or `uid:gid`."""
    wait: bool
    """Answer when it has ended, with its output ([`RunResult`], status 200) instead of at once ([`Exec`], 201)."""
    workdir: str | None
    """Absolute; the sandbox's, the image's, else the user's home, when absent."""


class _CreateKey(TypedDict):
    name: str
    """For people."""
    scope: Scope


class CreateKey(_CreateKey, total=False):
    """`POST /v1/keys`."""

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
    """What isolates it, `container` or `microvm`; the daemon's default when absent."""
    env: dict[str, str]
    """Environment of every exec."""
    ephemeral: bool
    """Delete it, with all it holds, as soon as it stops."""
    if_not_exists: bool
    """With a name that exists: answer that sandbox, started or woken if it was not running, with status 200."""
    image: str | None
    """Name or id of an image; `debian` when absent."""
    labels: dict[str, str]
    limits: LimitsRequest | None
    memory: MemoryRequest | None
    """What it remembers and where."""
    name: str | None
    """Lower-case letters, digits and hyphens; unique. Usable wherever an id is."""
    network: NetworkRequest | None
    """What it may reach."""
    rotate: RotateRequest | None
    """Renewal from a known good state."""
    services: dict[str, CreateService]
    """Supervised processes, started with the sandbox, by name."""
    sleep: SleepRequest | None
    """When to put it to sleep if it does no work."""
    snapshot_policy: SnapshotPolicyRequest | None
    """Snapshots it takes by itself."""
    ttl_seconds: int | None
    """Delete it this long after creation, whatever it does."""
    user: str | None
    """Who execs run as; the image's user, else root, when absent."""
    volumes: list[MountVolume]
    """Volumes in it."""
    workdir: str | None
    """Where execs start; the image's, else the user's home, when absent."""


class CreateService(TypedDict, total=False):
    """`PUT /v1/sandboxes/{sandbox}/services/{name}`, and in a sandbox's specification. Give `argv` or `command`."""

    argv: list[str]
    command: str | None
    """A line for `/bin/sh -c`."""
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
    """Leave the processes out: quicker, smaller, and possible whatever runs. A sandbox made from it boots."""
    labels: dict[str, str]
    name: str | None
    """Lower-case letters, digits and hyphens; unique among snapshots. Usable wherever an id is."""


class _CreateSpace(TypedDict):
    name: str
    """Lower-case letters, digits and hyphens; unique among spaces. Usable wherever an id is."""


class CreateSpace(_CreateSpace, total=False):
    """`POST /v1/spaces`."""

    description: str
    """For people."""
    labels: dict[str, str]


class _CreateVolume(TypedDict):
    name: str
    """Lower-case letters, digits and hyphens; unique among volumes, for good. Usable wherever an id is."""


class CreateVolume(_CreateVolume, total=False):
    """`POST /v1/volumes`."""

    disk_mib: int | None
    """Most that is written to it, in MiB; that of a sandbox's disk when absent."""
    from_snapshot: str | None
    """Id of a snapshot of any volume, whose files it begins with; empty when absent."""


class CreateVolumeSnapshot(TypedDict, total=False):
    """`POST /v1/volumes/{volume}/snapshots`."""

    name: str | None
    """Unique among the volume's snapshots."""


class _DiffRequest(TypedDict):
    to: str
    """What is there after."""


_DiffRequestWords = TypedDict("_DiffRequestWords", {"from": "str"})


class DiffRequest(_DiffRequest, _DiffRequestWords, total=False):
    """`POST /v1/diff`: what is different in one tree of files from another. `GET /v1/diff` takes the same as
    query parameters. Each side is a sandbox, a snapshot or an image, by id, by a unique beginning of it, or
    by name; a name of several kinds means the sandbox first, then the snapshot. `sandbox:`, `snapshot:` or
    `image:` before it says which.
    """

    all: bool
    """Noise too: caches, temporary files, logs, pid files."""
    content: bool
    """With the lines of text files that differ."""
    globs: list[str]
    """Only paths that one of these patterns matches: `*.py`, `/srv/**`."""
    limit: int | None
    """Entries at most; 10,000 when absent. More are only counted."""


class _EgressAuth(TypedDict):
    authRef: str
    """A secret's name."""
    destination: str
    """A host, as in a rule."""


class EgressAuth(_EgressAuth, total=False):
    """The short form of one rule."""


class EgressDocument(TypedDict, total=False):
    """What may be reached."""

    allow: list[str]
    """Rules about connections, such as `tcp://db.example.com:5432`: not decrypted."""
    default: Otherwise | None
    """Of what no rule names; `deny` when absent."""
    deny: list[str]
    """Blocks of addresses that are not dialled, such as `203.0.113.0/24`, unless `allow` names the address or
    its block.
    """
    rules: list[RuleDocument]
    """Rules about requests. No request may be covered by two of them."""
    sets: list[str]
    """Names of host sets in the daemon's configuration."""


class _EgressQuestion(TypedDict):
    target: str
    """`https://host/path`, `http://host`, `tcp://host:port`, `host:port` or `host`, which means HTTPS."""


class EgressQuestion(_EgressQuestion, total=False):
    """`POST …/egress/explain` and `…/egress/test`."""

    method: str | None
    """Of the request that is asked about, where its host is decrypted; `GET` when absent."""


class EntryFilter(TypedDict, total=False):
    """Which entries; everything is optional, and all that is given must hold."""

    agent: str | None
    ids: list[str]
    """Among these."""
    include_cold: bool
    """Those in the cold tier too."""
    include_superseded: bool
    """Those that others replaced too."""
    kinds: list[str]
    """Of one of these kinds."""
    metadata: list[MetadataTest]
    """What their metadata must say."""
    session: str | None
    since_ms: int | None
    """Happened at this time or later."""
    source: str | None
    until_ms: int | None
    """Happened before this time."""
    user: str | None


EntryPolicy = Literal["ours", "theirs", "both"]


class EraseEntries(TypedDict, total=False):
    """`POST /v1/memory/{of}/erase`: what is erased is gone from every version, branch, snapshot and index of the
    space, and from the disk. Only a mark without content stays. Give exactly one of `ids`, `filter` and
    `older_than_seconds`.
    """

    dry_run: bool
    """Only say what would be erased."""
    filter: EntryFilter | None
    ids: list[str]
    older_than_seconds: int | None
    """What happened longer ago than this."""


class _FindSkills(TypedDict):
    query: str


class FindSkills(_FindSkills, total=False):
    """`POST /v1/memory/{of}/skills/search`."""

    limit: int | None
    """10 when absent."""


class ForgetEntries(TypedDict, total=False):
    """`POST /v1/memory/{of}/forget`: what is forgotten is found no more, from now on and on this branch;
    `as_of`, the history and snapshots still have it. Give exactly one of `ids`, `filter` and
    `older_than_seconds`.
    """

    dry_run: bool
    """Only say what would be forgotten."""
    filter: EntryFilter | None
    ids: list[str]
    older_than_seconds: int | None
    """What happened longer ago than this."""


class ForkSandbox(TypedDict, total=False):
    """`POST /v1/sandboxes/{sandbox}/fork`: children that go on from where it is now."""

    count: int
    ephemeral: bool
    """Delete each child, with all it holds, as soon as it stops."""
    files_only: bool
    """Leave the processes out: the children boot from the files."""
    labels: dict[str, str] | None
    """The children's labels; the parent's when absent."""
    names: list[str]
    """None, one per child, or one for several, which are then called `NAME-1`, `NAME-2` and so on."""
    ttl_seconds: int | None
    """Delete each child this long after creation, whatever it does."""


class ImageConfigChange(TypedDict, total=False):
    """Absent stays as it is."""

    cmd: list[str] | None
    entrypoint: list[str] | None
    env: dict[str, str]
    """Added to what is there."""
    labels: dict[str, str]
    user: str | None
    workdir: str | None


ImageFrom = Literal["default", "pull", "packages", "recipe", "sandbox"]
"""Where a new image comes from."""


class _KvBatch(TypedDict):
    ops: list[KvOperation]


class KvBatch(_KvBatch, total=False):
    """`POST /v1/memory/{of}/kv-batch`: all of it, or nothing."""


class _KvIncrement(TypedDict):
    key: str


class KvIncrement(_KvIncrement, total=False):
    """`POST /v1/memory/{of}/kv-increment`. What is not there counts from 0."""

    by: float
    """1 when absent. Whole numbers stay whole."""
    ttl_seconds: int | None
    """Goes away by itself after this time; keeps the time it had when absent."""


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
    """Changes nothing; only its condition counts."""

    if_absent: bool
    if_version: int | None


KvOperation = Union["KvOperationSet", "KvOperationDelete", "KvOperationIncrement", "KvOperationCheck"]
"""One step of a batch. A step whose `if_version` or `if_absent` does not hold undoes the whole batch."""


KvPolicy = Literal["ours", "theirs", "fail"]


class _KvSet(TypedDict):
    value: Any
    """Any JSON, 256 KiB at most."""


class KvSet(_KvSet, total=False):
    """`PUT /v1/memory/{of}/kv/{key}`."""

    if_absent: bool
    """Only if there is none."""
    if_version: int | None
    """Only if this is its version still; else a conflict that says which it is."""
    ttl_seconds: int | None
    """Goes away by itself after this time; stays when absent."""


class LimitsRequest(TypedDict, total=False):
    """Limits to set; what is absent stays, or takes the daemon's default."""

    cpu_millis: int | None
    """Thousandths of a core."""
    disk_mib: int | None
    disk_mib_per_second: int | None
    """What it reads from its disk and writes to it in a second, together; without a bound when absent. 0 in an
    update takes the bound away. Not every driver can hold a disk to a rate: `GET /v1/host` tells.
    """
    network_mib_per_second: int | None
    """What it sends in a second, and as much again for what it receives; without a bound when absent. 0 in an
    update takes the bound away. Execs and files are not counted: they are not its network.
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
    """Make missing parents; an existing directory is fine."""
    user: str | None


MemoryLine = dict[str, Any]
"""One line of `GET /v1/memory/{of}/export`, and of what `POST …/import` takes: `line` says what it is, `header`
or `entry`, and an entry's fields are those of a `MemoryEntry`. Ids are kept, so importing twice stores once.
"""


class MemoryRequest(TypedDict, total=False):
    """What a sandbox remembers and where; what is absent stays, or takes the default."""

    attached: list[AttachedSpace] | None
    """Spaces searched as well, all of them: the list replaces the one there is. 8 at most."""
    remember: Remember | None
    """Which execs become memories by themselves; `memory.remember` of the configuration when absent."""
    space: str | None
    """Name or id of a space that outlives the sandbox, to remember in instead of its own; `own` for its own, the
    default. Only its own is rolled back, restored and forked with it.
    """


_MergeMemoryWords = TypedDict("_MergeMemoryWords", {"from": "str"})


class MergeMemory(_MergeMemoryWords, total=False):
    """`POST /v1/memory/{of}/merge`: brings what a fork remembered back."""

    dry_run: bool
    """Only say what would happen."""
    entries: EntryPolicy | None
    """Who wins where both changed an entry, or one forgot what the other changed; also of what an earlier merge
    listed. When absent what is here stays, and is listed until a merge says.
    """
    kv: KvPolicy | None
    """Who wins where both changed a key, a skill or an artifact; also of what an earlier merge listed. When
    absent what is here stays, and is listed until a merge says.
    """


MergeMemoryPolicy = Literal["none", "list", "ours", "theirs", "both", "fail"]


MergePolicy = Literal["fail", "ours", "theirs", "union", "text"]


class MergeRace(TypedDict, total=False):
    """`POST /v1/races/{race}/merge`."""

    dry_run: bool
    """Only say what would happen."""
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
    """Name or id of the sandbox whose work is brought."""


class MergeSandbox(_MergeSandbox, total=False):
    """`POST /v1/sandboxes/{sandbox}/merge`: brings what a fork did into the sandbox, three-way against the
    snapshot that both came from.
    """

    all: bool
    """Noise too: caches, temporary files, logs, pid files."""
    dry_run: bool
    """Only say what would happen."""
    memory: MergeMemoryPolicy
    """What becomes of what the child remembers."""
    policies: list[MergeRule]
    """What is done where both changed the same path, by pattern; the first that matches counts."""
    policy: MergePolicy
    """What is done where no pattern matches; `fail` when absent."""


MetadataOperator = Literal["eq", "ne", "in", "exists", "lt", "gt"]


class _MetadataTest(TypedDict):
    path: str
    """A key, or keys with dots between them for what lies deeper."""


class MetadataTest(_MetadataTest, total=False):
    """One test of an entry's metadata."""

    operator: MetadataOperator
    value: Any
    """What to compare with: a list for `in`, absent for `exists`."""


class _MountVolume(TypedDict):
    name: str
    """The volume's name or id."""
    path: str
    """Where in the sandbox: absolute, and not a directory of the system's."""


class MountVolume(_MountVolume, total=False):
    """A volume for a sandbox."""

    mode: VolumeMode
    """`rw` when absent."""


class _MoveFile(TypedDict):
    to: str


_MoveFileWords = TypedDict("_MoveFileWords", {"from": "str"})


class MoveFile(_MoveFile, _MoveFileWords, total=False):
    """`POST …/files/move`."""


NetworkMode = Literal["none", "allowlist", "open"]
"""How far a sandbox may reach."""


class NetworkRequest(TypedDict, total=False):
    """What a new sandbox may reach. What is absent takes the daemon's default; rules or sets without a mode mean
    `allowlist`.
    """

    allow: list[str] | None
    """Rules like `example.com`, `*.example.com:443`, `https://example.com`, `tcp://db.example.com:5432`."""
    deny: list[str] | None
    """Blocks of addresses that are not dialled, such as `203.0.113.0/24`, whatever name leads to them. A rule
    about an address or a block is an exception.
    """
    mode: NetworkMode | None
    requests: list[RuleDocument] | None
    """Rules about requests, as in a policy document: which are decrypted, and what is put into them."""
    sets: list[str] | None
    """Names of host sets in the daemon's configuration."""


class _NewEntry(TypedDict):
    text: str
    """Kept verbatim. 64 KiB at most; what is larger belongs in an artifact."""


class NewEntry(_NewEntry, total=False):
    """Something to remember."""

    agent: str | None
    artifacts: list[str]
    """Names or hashes of artifacts that belong to it."""
    at_ms: int | None
    """When it happened; now when absent."""
    importance: float
    """From 0 to 1; 0.5 when absent. Counts in the ranking."""
    key: str | None
    """Adding the same key again answers the entry that is there, whatever else is given."""
    kind: str
    """A lower-case word: `note` when absent; also `fact`, `decision`, `observation`, `turn`, …"""
    links: list[str]
    """Ids of entries that it has to do with."""
    metadata: dict[str, Any]
    """Anything to filter by. 16 KiB at most."""
    session: str | None
    """What was said or done together; the open session when absent."""
    source: str | None
    """Where it comes from: a file, an address, a program."""
    supersedes: list[str]
    """Ids of entries that this one replaces: they are found only by those who ask for them."""
    user: str | None
    valid_from_ms: int | None
    """From when it holds."""
    valid_to_ms: int | None
    """Until when it holds."""


class _NewSkill(TypedDict):
    description: str
    """What it does."""
    name: str
    """Lower-case letters, digits, `-`, `_` and `.`; not `search` or `promote`."""
    steps: list[SkillStep]


class NewSkill(_NewSkill, total=False):
    """`POST /v1/memory/{of}/skills`: a new skill, or a new version of one."""

    parameters: list[SkillParameter]
    source: str | None
    """Where it comes from."""
    when_to_use: str
    """When it is of use: what somebody would be looking for."""


Otherwise = Literal["deny", "allow"]


class PolicyDocument(TypedDict, total=False):
    """A sandbox's whole egress policy."""

    egress: EgressDocument | None
    egressAuth: list[EgressAuth]
    """The short form: each is one rule that puts a secret into the requests to one host."""


class _PromoteSkill(TypedDict):
    first: str
    """The first exec and the last: ids, or unique beginnings of them. All between them that ended well become
    steps.
    """
    name: str


class PromoteSkill(_PromoteSkill, total=False):
    """`POST /v1/memory/{of}/skills/promote`: a skill from commands that were run."""

    description: str
    """Made from the commands when empty."""
    include_failed: bool
    """Those that failed as well."""
    last: str | None
    """`first` when absent."""
    parameters: dict[str, str]
    """Each value given here becomes a parameter of that name, with the value as its default, wherever a step has
    it.
    """
    sandbox: str | None
    """The sandbox whose execs; the one in the path when absent."""
    when_to_use: str


class _RecallRequest(TypedDict):
    messages: list[TurnMessage]
    """The conversation so far, as it goes to the model."""


class RecallRequest(_RecallRequest, total=False):
    """`POST /v1/memory/{of}/recall`: what to put before a turn. Answers a `ContextBlock`."""

    budget_tokens: int | None
    """Tokens the block may take; 1000 when absent."""
    session: str | None
    """The session that goes on, if it has a name."""


class _RegistryCredentials(TypedDict):
    password: str
    username: str


class RegistryCredentials(_RegistryCredentials, total=False):
    """A name and a password or token for a registry."""


Remember = Literal["off", "errors", "all"]
"""Which execs become memories by themselves."""


RestartPolicy = Literal["always", "on-failure", "never"]


class _RestoreSandbox(TypedDict):
    snapshot: str
    """Name or id of a snapshot, of this sandbox or of another."""


class RestoreSandbox(_RestoreSandbox, total=False):
    """`POST /v1/sandboxes/{sandbox}/restore`: puts a sandbox back to where a snapshot is."""

    files_only: bool
    """Leave the snapshot's processes out: the sandbox boots from the files."""


class _RestoreVolume(TypedDict):
    snapshot: str
    """One of the volume's own snapshots, by id or name."""


class RestoreVolume(_RestoreVolume, total=False):
    """`POST /v1/volumes/{volume}/restore`."""


class _RotateRequest(TypedDict):
    every_seconds: int
    """At least 10; 0: no more."""


class RotateRequest(_RotateRequest, total=False):
    """Renewal from a known good state; replaces the policy there is."""

    snapshot: str | None
    """Name or id of the snapshot to go back to; needed unless `every_seconds` is 0."""


class _RotateSecret(TypedDict):
    value: str
    """The bytes of the secret, in base64: 8 to 65,536 of them."""


class RotateSecret(_RotateSecret, total=False):
    """`POST /v1/secrets/{secret}/rotate`."""


class _RuleDocument(TypedDict):
    host: str
    """`api.example.com` or `*.example.com`."""


class RuleDocument(_RuleDocument, total=False):
    """One rule about the requests to a host."""

    approve: Approve | None
    """A person must agree."""
    budget: BudgetDocument | None
    methods: list[str]
    """Every method when absent; with a secret, those its owner allows."""
    mode: RuleMode | None
    """`intercept` when absent."""
    paths: list[str]
    """Patterns such as `/v1/**`. Every path when absent; with a secret, those its owner allows."""
    port: int | None
    """443 when absent."""
    secret: str | None
    """The secret that is put into what it covers."""


RuleMode = Literal["sni", "intercept"]


class _RunCode(TypedDict):
    code: str


class RunCode(_RunCode, total=False):
    """`POST /v1/sandboxes/{sandbox}/contexts/{context}/run`."""

    env: dict[str, str]
    """Variables of the environment during this run."""
    output_bytes_max: int | None
    """Interrupt it when it has written more than this; 16 MiB when absent."""
    timeout_ms: int | None
    """Interrupt it after this time; never when absent. Time in a queue does not count."""
    wait: bool
    """Answer when it has ended ([`CodeRun`]) instead of line by line ([`CodeEvent`])."""


class RunSkill(TypedDict, total=False):
    """`POST /v1/memory/{of}/skills/{name}/run`."""

    parameters: dict[str, str]
    sandbox: str | None
    """The sandbox to run it in; the one in the path when absent."""
    stream: bool
    """Answer with one `SkillRunStep` per line as each step ends (`application/x-ndjson`), the last line saying
    how it went, instead of with all of it (`SkillRun`).
    """
    user: str | None
    """Wins over the user of the sandbox."""
    version: int | None
    """The newest when absent."""


class SandboxFromSnapshot(TypedDict, total=False):
    """`POST /v1/snapshots/{snapshot}/sandboxes`: a new sandbox that goes on where a snapshot is."""

    ephemeral: bool
    """Delete it, with all it holds, as soon as it stops."""
    files_only: bool
    """Leave the snapshot's processes out: the sandbox boots from the files."""
    labels: dict[str, str] | None
    """Its labels; those of the snapshot's sandbox when absent."""
    name: str | None
    ttl_seconds: int | None
    """Delete it this long after creation, whatever it does."""


Scope = Literal["read", "exec", "admin"]


class _SearchMemory(TypedDict):
    query: str
    """Words, a question, or a whole message."""


class SearchMemory(_SearchMemory, total=False):
    """`POST /v1/memory/{of}/search`."""

    explain: bool
    """Tell the terms and figures of each arm for each hit."""
    filter: EntryFilter | None
    half_life_seconds: int | None
    """Age that halves what recency adds to the score."""
    include_cold: bool
    """The cold tier too."""
    limit: int | None
    """Hits at most; 10 when absent."""
    min_score: float | None
    """Only hits with at least this score."""
    spaces: list[str]
    """Names or ids of the spaces to search, among the sandbox's own (`own`) and the attached ones; all when
    empty.
    """
    weights: SearchWeights | None


class SearchWeights(TypedDict, total=False):
    """What counts how much, relative to one another; what is absent keeps its default."""

    importance: float | None
    lexical: float | None
    """Words."""
    neighbours: float | None
    """What was said or done just before and after."""
    recency: float | None
    vector: float | None
    """Meaning."""


class _SecretPlaceholder(TypedDict):
    env: str
    """`OPENAI_API_KEY` and the like."""


class SecretPlaceholder(_SecretPlaceholder, total=False):
    """A variable inside that holds a fake token."""

    prefix: str
    """What the fake begins with, such as `sk-`."""


class _SecretScope(TypedDict):
    host: str
    """`api.example.com`, or `*.example.com` for all below it."""


class SecretScope(_SecretScope, total=False):
    """Requests to a host."""

    methods: list[str]
    """None: every method."""
    paths: list[str]
    """`/v1/**` and the like. None: every path."""
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
    """In requests of gRPC only."""

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
    """A certificate chain and its key in PEM, shown to a host that asks for one."""


SecretSlot = Union[
    "SecretSlotHeader", "SecretSlotGrpcMetadata", "SecretSlotQuery", "SecretSlotBasic", "SecretSlotClientCert"
]
"""Where in a request a secret stands. What a program put there itself is taken away before."""


class _SendSignal(TypedDict):
    signal: str
    """`TERM`, `SIGTERM` or `15`."""


class SendSignal(_SendSignal, total=False):
    """`POST …/signal`."""

    group: bool
    """The whole process group, as a terminal does, or its first process only."""


class _SetSecret(TypedDict):
    allow: list[SecretScope]
    """Where it may go at most, whatever a sandbox's rules say."""
    slot: SecretSlot
    value: str
    """The bytes of the secret, in base64: 8 to 65,536 of them."""


class SetSecret(_SetSecret, total=False):
    """`PUT /v1/secrets/{secret}`."""

    placeholder: SecretPlaceholder | None
    """What programs inside see instead of it."""


Size = Union["int", "str"]


class _SkillOutcome(TypedDict):
    ok: bool


class SkillOutcome(_SkillOutcome, total=False):
    """`POST /v1/memory/{of}/skills/{name}/outcome`: how a run went that Burrow did not make."""

    at_ms: int | None
    """When it was told; not to be given."""
    detail: str
    """What is worth knowing about it."""
    exit_code: int | None
    took_ms: int


class _SkillParameter(TypedDict):
    name: str


class SkillParameter(_SkillParameter, total=False):
    """What a skill wants to be told. Commands have it as `{{name}}`, as one quoted word; it is in the
    environment, too, as `PARAM_NAME`.
    """

    default: str | None
    description: str
    required: bool


class _SkillStepCommand(TypedDict):
    kind: Literal["command"]
    run: str


class SkillStepCommand(_SkillStepCommand, total=False):
    """A line for `/bin/sh -c`."""

    env: dict[str, str]
    timeout_seconds: int | None
    workdir: str | None


class _SkillStepToolCall(TypedDict):
    kind: Literal["tool-call"]
    tool: str


class SkillStepToolCall(_SkillStepToolCall, total=False):
    """A call of a tool, for whoever runs the skill to make: Burrow does not."""

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
"""A line for `/bin/sh -c`."""


class SleepRequest(TypedDict, total=False):
    """When to put a sandbox that does no work to sleep. What is absent stays, or takes the daemon's default; 0:
    never. Those that are set ascend.
    """

    hibernate_after_seconds: int | None
    """RAM to disk."""
    pause_after_seconds: int | None
    """Stand still, RAM kept."""
    stop_after_seconds: int | None
    """Files only."""


class _SnapshotPolicyRequest(TypedDict):
    every_seconds: int
    """At least 10; 0: no more."""


class SnapshotPolicyRequest(_SnapshotPolicyRequest, total=False):
    """Snapshots to take by themselves; replaces the policy there is."""

    files_only: bool
    keep: int
    """The oldest of the policy's own go beyond this many."""


SpaceAccess = Literal["read", "read-write"]


class _StartRace(TypedDict):
    attempts: int
    parent: str
    """Name or id of the sandbox whose forks race."""
    run: list[str]
    """The command of every attempt. It finds its number in `BURROW_ATTEMPT`."""


class StartRace(_StartRace, total=False):
    """`POST /v1/races`."""

    files_only: bool
    """The attempts boot from the parent's files, without its processes."""
    judge: list[str] | None
    """A command that is run in every attempt after its end, and whose last line of output is a number: the
    highest wins. It turns an attempt down by exiting with another code than 0. Without one, an attempt that
    exits 0 is good, and the quickest of them wins.
    """
    keep: bool
    """The attempts stay when all is over."""
    memory: MergeMemoryPolicy
    merge_winner: bool
    """Merge the winner into the parent."""
    parallel: int | None
    """How many run at once; all when absent."""
    policies: list[MergeRule]
    """How the winner is merged, as in a merge."""
    policy: MergePolicy
    timeout_seconds: int | None
    """How long an attempt may take."""


StdinMode = Literal["null", "pipe"]


class _StoreTurn(TypedDict):
    messages: list[TurnMessage]
    """What is new: what was asked and what was answered. What was stored just before is not stored again."""


class StoreTurn(_StoreTurn, total=False):
    """`POST /v1/memory/{of}/turns`: what to remember after a turn."""

    agent: str | None
    session: str | None
    """The open session when absent; one opens and closes by itself."""
    user: str | None


class _TagImage(TypedDict):
    name: str


class TagImage(_TagImage, total=False):
    """`POST /v1/images/{image}/tags`: gives an image one more name."""


class _TerminalSize(TypedDict):
    columns: int
    rows: int


class TerminalSize(_TerminalSize, total=False):
    pass


TurnMessage = dict[str, Any]
"""One message of a conversation, as model APIs write it: what goes to a model can be given as it is."""


class UpdateEntry(TypedDict, total=False):
    """`PATCH /v1/memory/{of}/entries/{id}`: a new version; the old one stays in the history. What is absent
    stays as it is.
    """

    artifacts: list[str] | None
    """Replaces what there is."""
    if_version: int | None
    """Only if this is its version still; else a conflict that says which it is."""
    importance: float | None
    kind: str | None
    links: list[str] | None
    """Replaces what there is."""
    metadata: dict[str, Any] | None
    """Replaces what there is."""
    text: str | None
    valid_from_ms: int | None
    valid_to_ms: int | None


class UpdateNetwork(TypedDict, total=False):
    """What a sandbox may reach from now on. What is absent stays; connections that are no longer allowed are
    cut.
    """

    add: list[str]
    """Rules to add; one that is there already stays."""
    add_deny: list[str]
    """Blocks to deny; one that is denied already stays so."""
    add_requests: list[RuleDocument]
    """Rules about requests to add; one that is there already stays."""
    add_sets: list[str]
    allow: list[str] | None
    """All rules there are afterwards, instead of those there were."""
    deny: list[str] | None
    """All blocks of addresses that are denied afterwards."""
    mode: NetworkMode | None
    remove: list[str]
    """Rules to remove; one that is not there is an error, since its remover believes it to be in force."""
    remove_deny: list[str]
    """Blocks to deny no longer; one that is not denied is an error."""
    remove_sets: list[str]
    requests: list[RuleDocument] | None
    """All rules about requests there are afterwards."""
    sets: list[str] | None
    """All host sets there are afterwards."""


class UpdateSandbox(TypedDict, total=False):
    """`PATCH /v1/sandboxes/{sandbox}`. What is absent stays as it is."""

    env: dict[str, str | None]
    """Variables to set; `null` removes one. Execs started from now on see them."""
    labels: dict[str, str | None]
    """Labels to set; `null` removes one."""
    limits: LimitsRequest | None
    memory: MemoryRequest | None
    """What it remembers and where."""
    name: str | None
    """A new name."""
    network: UpdateNetwork | None
    """What it may reach from now on, running connections included."""
    rotate: RotateRequest | None
    """Renewal from a known good state."""
    sleep: SleepRequest | None
    """When to put it to sleep if it does no work."""
    snapshot_policy: SnapshotPolicyRequest | None
    """Snapshots it takes by itself."""
    volumes: list[MountVolume] | None
    """All its volumes anew; only of one that is stopped."""


class UpdateSpace(TypedDict, total=False):
    """`PATCH /v1/spaces/{space}`. What is absent stays as it is."""

    description: str | None
    labels: dict[str, str | None]
    """Labels to set; `null` removes one."""
    name: str | None
    """A new name."""


VolumeMode = Literal["ro", "rw"]
"""Who may write to a volume: of all sandboxes that have it one at most, and any number reads beside it."""


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
