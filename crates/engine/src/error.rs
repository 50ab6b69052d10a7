//! The errors of the engine.

use std::fmt;

use burrow_catalog::CatalogError;
use burrow_disks::DiskError;
use burrow_disks::volume_files::VolumeFileError;
use burrow_egress::{EgressError, PolicyError};
use burrow_guest::client::GuestError;
use burrow_images::ImageError;
use burrow_memory::MemoryError;
use burrow_model::network::TransformError;
use burrow_model::{
    Bytes, DumpId, LimitsError, MountError, Name, PolicyError as OwnPolicyError, RaceId, Refusal, SandboxId,
    SecretError, SnapshotId,
};
use burrow_network::NetworkError;
use burrow_portable::PortableError;
use burrow_runtime::RuntimeError;
use burrow_trees::TreeError;
use burrow_vault::VaultError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no {kind} `{what}`")]
    NotFound { kind: ObjectKind, what: String },
    #[error("no exec `{what}` in sandbox `{sandbox}`")]
    ExecNotFound { what: String, sandbox: SandboxId },
    #[error("no service `{what}` in sandbox `{sandbox}`")]
    ServiceNotFound { what: String, sandbox: SandboxId },
    #[error("nothing listens on port {port} of sandbox `{id}`")]
    PortClosed { id: SandboxId, port: u16 },
    #[error("port {port} is the sandbox's own and cannot be reached")]
    PortReserved { port: u16 },
    #[error("no runtime driver `{what}`")]
    DriverUnknown { what: String },
    #[error("runtime driver `{driver}` cannot run here: {reason}")]
    DriverUnavailable { driver: String, reason: String },
    #[error("the name `{name}` is taken by sandbox `{existing}`")]
    NameTaken { name: String, existing: SandboxId },
    #[error("could not {request} sandbox `{id}`: {refusal}")]
    Refused { id: SandboxId, request: &'static str, refusal: Refusal },
    #[error("sandbox `{id}` was deleted meanwhile")]
    Gone { id: SandboxId },
    #[error(transparent)]
    Limits(#[from] LimitsError),
    #[error("`{field}` is {given}, but this host allows a sandbox at most {max}")]
    LimitAboveMax { field: &'static str, given: u32, max: u32 },
    #[error("the driver `{driver}` cannot limit the disk rate of a sandbox: {reason}")]
    NoDiskRate { driver: &'static str, reason: String },
    #[error("the pool has {} left, less than its reserve of {}", Bytes(*.free_bytes), Bytes(*.reserve_bytes))]
    PoolReserve { free_bytes: u64, reserve_bytes: u64 },
    #[error("sandbox `{id}` already has {queued} requests waiting")]
    Busy { id: SandboxId, queued: usize },
    #[error("the guest of sandbox `{id}` does not answer")]
    GuestUnreachable { id: SandboxId, source: GuestError },
    #[error("the guest of sandbox `{id}` did not answer within {seconds} s")]
    GuestTimeout { id: SandboxId, seconds: u64 },
    #[error("{source}")]
    Guest { id: SandboxId, source: burrow_guest::protocol::RequestError },
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("unknown host set `{set}`; known host sets: {known}")]
    SetUnknown { set: Name, known: String },
    #[error("{source}")]
    NetworkPolicy { source: PolicyError },
    #[error("the headers for requests are not valid: {source}")]
    Transforms { source: TransformError },
    #[error("the sandbox has no rule or host set `{what}` of its own")]
    RuleNotFound { what: String },
    #[error("no request `{number}` waits for approval; it may have been answered or have timed out")]
    ApprovalNotFound { number: u64 },
    #[error(
        "rules `{earlier}` and `{later}` cover the same requests, but treat them differently or count them twice"
    )]
    RulesOverlap { earlier: String, later: String },
    #[error("sandbox `{id}` already exists, with a different network policy")]
    NetworkDiffers { id: SandboxId },
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("image `{name}` is already being built")]
    BuildInProgress { name: String },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("the driver `{driver}` cannot start the image: its files cannot be prepared")]
    ImageUnfit { driver: &'static str, source: std::io::Error },
    #[error("`{what}` is not a valid image name")]
    ImageNeedsName { what: String },
    #[error("invalid platform `{what}`")]
    PlatformUnknown { what: String },
    #[error("the archive contains {found} images, which cannot all have the same name")]
    ImagesInArchive { found: usize },
    #[error("{waiting} requests for images are already waiting")]
    ImagesBusy { waiting: usize },
    #[error("the step `{step}` {ended}: {tail}")]
    BuildStep { step: String, ended: String, tail: String },
    #[error(transparent)]
    Policy(#[from] OwnPolicyError),
    #[error("the name `{name}` is taken by snapshot `{existing}`")]
    SnapshotNameTaken { name: String, existing: SnapshotId },
    #[error("snapshot `{id}` is in use: sandbox `{by}` is periodically restored to it")]
    SnapshotInUse { id: SnapshotId, by: SandboxId },
    #[error("snapshot `{id}` is in use: a sandbox is being created from it or restored to it")]
    SnapshotBusy { id: SnapshotId },
    #[error("sandbox `{id}` was deleted, but its snapshot `{snapshot}` could not be removed")]
    SnapshotsLeft { id: SandboxId, snapshot: SnapshotId },
    #[error("snapshot `{snapshot}` was taken by another driver, `{driver}`")]
    OtherDriver { snapshot: SnapshotId, driver: String },
    #[error("the processes of sandbox `{id}` cannot be dumped on this host: {reason}")]
    NoHibernate { id: SandboxId, reason: String },
    #[error(
        "not enough space in the pool for {}: {} are free, {} of them reserved", Bytes(*.needed_bytes), Bytes(*.free_bytes), Bytes(*.reserve_bytes)
    )]
    NoRoom { needed_bytes: u64, free_bytes: u64, reserve_bytes: u64 },
    /// It still runs as before.
    #[error(
        "whether the processes of sandbox `{id}` can be restored is not known yet: the trial restores of other sandboxes take too long"
    )]
    TrialBusy { id: SandboxId },
    /// It still runs as before. The program that restores was killed or hung, which says nothing about the processes.
    #[error(
        "whether the processes of sandbox `{id}` can be restored is not known: their trial restore was interrupted twice: {reason}"
    )]
    TrialCut { id: SandboxId, reason: String },
    #[error("sandbox `{id}` is recovering: {reason}")]
    Recovering { id: SandboxId, reason: String },
    #[error("sandbox `{id}` was put to sleep")]
    Asleep { id: SandboxId },
    #[error("sandbox `{id}` was restored to a snapshot")]
    Replaced { id: SandboxId },
    /// The sandbox is still hibernated: the wake can be repeated, or the sandbox started from its files.
    #[error("{reason}")]
    Wake { id: SandboxId, reason: Box<EngineError> },
    #[error("the dump of the processes of sandbox `{id}` is missing")]
    DumpMissing { id: SandboxId },
    #[error("the description of dump `{dump}` is missing or invalid")]
    DumpUnknown { dump: DumpId },
    #[error("a fork creates 1 to {max} children, not {given}")]
    ForkCount { given: usize, max: usize },
    #[error("no snapshot `{what}` of volume `{volume}`")]
    VolumeSnapshotNotFound { what: String, volume: Name },
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    VolumeFile(#[from] VolumeFileError),
    #[error("memory space `{name}` is in use by sandbox `{by}`")]
    SpaceInUse { name: String, by: SandboxId },
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("secret `{name}` is used by the rules of {}", .by.join(", "))]
    SecretInUse { name: Name, by: Vec<String> },
    #[error("secret `{name}` could not be changed: other requests keep changing it")]
    SecretBusy { name: Name },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Moving(#[from] PortableError),
    #[error("the file requires something that this host does not have: {reason}")]
    ImportNeeds { reason: String },
    #[error(
        "the processes in the file are {signed}, and this host only imports processes that a trusted key signed"
    )]
    UntrustedProcesses { signed: String },
    #[error("the file contains only the differences from snapshot `{snapshot}`, which does not exist here")]
    BaseMissing { snapshot: String },
    #[error("snapshot `{id}` was never exported or imported here, so no receiver can have it")]
    NeverMoved { id: SnapshotId },
    #[error("snapshot `{id}` differs from `{base}` in too many paths for an incremental export")]
    ExportTooDifferent { id: SnapshotId, base: SnapshotId },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(
        "sandboxes `{one}` and `{other}` have no snapshot in common, so it is unknown which of them changed what"
    )]
    NoCommonSnapshot { one: SandboxId, other: SandboxId },
    #[error("sandbox `{id}` cannot be merged into itself")]
    MergeWithItself { id: SandboxId },
    #[error("both sandboxes changed the same {count} entries of memory, so nothing was merged")]
    MemoryContradicts { count: u64 },
    #[error("a race has from 1 to {max} attempts, not {given}")]
    RaceSize { given: usize, max: usize },
    #[error("race `{id}` is still running")]
    RaceRunning { id: RaceId },
    #[error("race `{id}` has no winner whose sandbox still exists")]
    NoWinner { id: RaceId },
    #[error("`{what}` has no disk of the driver `{driver}` to compare with")]
    OtherForm { what: String, driver: &'static str },
    #[error("the two differ in more than {changed} paths, which is too many to compare")]
    TooDifferent { changed: usize },
    #[error(transparent)]
    Restore(#[from] RestoreFailure),
    #[error(transparent)]
    Volumes(#[from] VolumeRefusal),
    #[error(transparent)]
    Maximum(#[from] Maximum),
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("injected failure at `{point}`")]
    Injected { point: String },
}

impl EngineError {
    /// Whether a sandbox whose processes could not be restored because of this error can be started from its files.
    pub(crate) fn leaves_files_usable(&self) -> bool {
        matches!(
            self,
            Self::DumpMissing { .. }
                | Self::DumpUnknown { .. }
                | Self::Disk(DiskError::Damaged { .. })
                | Self::Runtime(
                    RuntimeError::Restore { .. }
                        | RuntimeError::RestoreCut { .. }
                        | RuntimeError::Unfit { .. }
                )
        )
    }
}

/// What a request names that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Sandbox,
    Exec,
    Image,
    Snapshot,
    Volume,
    Space,
    Secret,
    Race,
    /// Something that has a memory.
    SandboxOrSpace,
    /// Something that has a tree of files.
    Tree,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandbox => "sandbox",
            Self::Exec => "exec",
            Self::Image => "image",
            Self::Snapshot => "snapshot",
            Self::Volume => "volume",
            Self::Space => "space",
            Self::Secret => "secret",
            Self::Race => "race",
            Self::SandboxOrSpace => "sandbox or space",
            Self::Tree => "sandbox, snapshot or image",
        })
    }
}

/// The state in which a failed restore left its sandbox.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailure {
    /// It still runs as before.
    #[error("sandbox `{id}` was not restored to snapshot `{snapshot}` and is unchanged: {reason}")]
    Refused { id: SandboxId, snapshot: SnapshotId, reason: String },
    #[error(
        "sandbox `{id}` could not be restored to snapshot `{snapshot}` and was returned to its state before the restore: {reason}"
    )]
    Undone { id: SandboxId, snapshot: SnapshotId, reason: String },
    /// The snapshot before the restore holds files only, since its processes could not be dumped or restored.
    #[error(
        "sandbox `{id}` could not be restored to snapshot `{snapshot}`; its files were returned to their state before the restore, and it was started from them, without its processes: {reason}"
    )]
    UndoneInFiles { id: SandboxId, snapshot: SnapshotId, reason: String },
    #[error(
        "sandbox `{id}` could neither be restored to snapshot `{snapshot}` nor returned to its state before the restore, which snapshot `{undo}` holds: {reason}"
    )]
    NotUndone { id: SandboxId, snapshot: SnapshotId, undo: SnapshotId, reason: String },
}

/// Why a sandbox cannot have, or use, its volumes.
#[derive(Debug, thiserror::Error)]
pub enum VolumeRefusal {
    #[error("sandboxes of the driver `{driver}` cannot have volumes: {reason}")]
    Unsupported { driver: &'static str, reason: String },
    #[error("sandbox `{id}` already exists, with different volumes")]
    Differ { id: SandboxId },
    #[error("the volumes of sandbox `{id}` cannot be changed: it is not stopped, and they are mounted")]
    InPlace { id: SandboxId },
    #[error("volume `{name}`, which the processes of the snapshot use, no longer exists")]
    Missing { name: Name },
    #[error("the processes of snapshot `{snapshot}` use different volumes from those of the sandbox")]
    Other { snapshot: SnapshotId },
    #[error("the processes of snapshot `{id}` use volumes, which cannot be exported")]
    NotExported { id: SnapshotId },
}

/// A limit on the number of something, which a request would exceed.
#[derive(Debug, thiserror::Error)]
pub enum Maximum {
    #[error("this host already has {max} sandboxes, the configured maximum")]
    Sandboxes { max: usize },
    #[error("sandbox `{id}` already has {max} public ports")]
    PublicPorts { id: SandboxId, max: usize },
    #[error("a sandbox has at most {rules} rules and {sets} host sets")]
    Rules { rules: usize, sets: usize },
    #[error("a sandbox has at most {max} request rules")]
    RequestRules { max: usize },
    #[error("a sandbox can have at most {max} memory spaces besides its own")]
    AttachedSpaces { max: usize },
    #[error("{max} races are already running")]
    Races { max: usize },
}
