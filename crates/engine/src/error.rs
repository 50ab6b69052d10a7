//! The errors of the engine, with a hint for each.

use burrow_catalog::CatalogError;
use burrow_disks::DiskError;
use burrow_disks::volume_files::VolumeFileError;
use burrow_egress::{EgressError, PolicyError};
use burrow_guest::client::GuestError;
use burrow_images::ImageError;
use burrow_memory::MemoryError;
use burrow_model::network::TransformError;
use burrow_model::{
    DumpId, LimitsError, MountError, Name, PolicyError as OwnPolicyError, RaceId, Refusal, SandboxId,
    SecretError, SnapshotId,
};
use burrow_network::NetworkError;
use burrow_portable::PortableError;
use burrow_runtime::RuntimeError;
use burrow_trees::TreeError;
use burrow_vault::VaultError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no sandbox `{what}`")]
    NotFound { what: String },
    #[error("no exec `{what}` in sandbox `{sandbox}`")]
    ExecNotFound { what: String, sandbox: SandboxId },
    #[error("no exec `{what}`")]
    NoExec { what: String },
    #[error("no service `{what}` in sandbox `{sandbox}`")]
    ServiceNotFound { what: String, sandbox: SandboxId },
    #[error("nothing listens on port {port} of sandbox `{id}`")]
    PortClosed { id: SandboxId, port: u16 },
    #[error("port {port} is the sandbox's own and cannot be reached")]
    PortReserved { port: u16 },
    #[error("sandbox `{id}` already has {max} public ports")]
    PublishedMax { id: SandboxId, max: usize },
    #[error("no image `{what}`")]
    ImageNotFound { what: String },
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
    #[error("this host already has {max} sandboxes, the configured maximum")]
    SandboxesMax { max: usize },
    #[error("the pool has {free_bytes} bytes left, less than its reserve of {reserve_bytes}")]
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
    #[error("a sandbox has at most {rules} rules and {sets} host sets")]
    RulesMax { rules: usize, sets: usize },
    #[error("no request `{number}` waits for approval; it may have been answered or have timed out")]
    ApprovalNotFound { number: u64 },
    #[error("a sandbox has at most {max} request rules")]
    RequestRulesMax { max: usize },
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
    #[error("no snapshot `{what}`")]
    SnapshotNotFound { what: String },
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
        "not enough space in the pool for {needed_bytes} bytes: {free_bytes} bytes are free, {reserve_bytes} of them reserved"
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
    /// It still runs as before.
    #[error("sandbox `{id}` was not restored to snapshot `{snapshot}` and is unchanged: {reason}")]
    RestoreRefused { id: SandboxId, snapshot: SnapshotId, reason: String },
    #[error(
        "sandbox `{id}` could not be restored to snapshot `{snapshot}` and was returned to its state before the restore: {reason}"
    )]
    RestoreUndone { id: SandboxId, snapshot: SnapshotId, reason: String },
    /// The snapshot before the restore holds files only, since its processes could not be dumped or restored.
    #[error(
        "sandbox `{id}` could not be restored to snapshot `{snapshot}`; its files were returned to their state before the restore, and it was started from them, without its processes: {reason}"
    )]
    RestoreUndoneInFiles { id: SandboxId, snapshot: SnapshotId, reason: String },
    #[error(
        "sandbox `{id}` could neither be restored to snapshot `{snapshot}` nor returned to its state before the restore, which snapshot `{undo}` holds: {reason}"
    )]
    RestoreNotUndone { id: SandboxId, snapshot: SnapshotId, undo: SnapshotId, reason: String },
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
    #[error("no sandbox or space `{what}`")]
    MemoryNotFound { what: String },
    #[error("no volume `{what}`")]
    VolumeNotFound { what: String },
    #[error("no snapshot `{what}` of volume `{volume}`")]
    VolumeSnapshotNotFound { what: String, volume: Name },
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    VolumeFile(#[from] VolumeFileError),
    #[error("sandboxes of the driver `{driver}` cannot have volumes: {reason}")]
    NoVolumes { driver: &'static str, reason: String },
    #[error("sandbox `{id}` already exists, with different volumes")]
    VolumesDiffer { id: SandboxId },
    #[error("the volumes of sandbox `{id}` cannot be changed: it is not stopped, and they are mounted")]
    VolumesInPlace { id: SandboxId },
    #[error("volume `{name}`, which the processes of the snapshot use, no longer exists")]
    VolumeMissing { name: Name },
    #[error("the processes of snapshot `{snapshot}` use different volumes from those of the sandbox")]
    OtherVolumes { snapshot: SnapshotId },
    #[error("the processes of snapshot `{id}` use volumes, which cannot be exported")]
    VolumesStay { id: SnapshotId },
    #[error("no space `{what}`")]
    SpaceNotFound { what: String },
    #[error("memory space `{name}` is in use by sandbox `{by}`")]
    SpaceInUse { name: String, by: SandboxId },
    #[error("a sandbox can have at most {max} memory spaces besides its own")]
    AttachedMax { max: usize },
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("no secret `{name}`")]
    SecretNotFound { name: Name },
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
    #[error("no sandbox, snapshot or image `{what}`")]
    TreeNotFound { what: String },
    #[error(
        "sandboxes `{one}` and `{other}` have no snapshot in common, so it is unknown which of them changed what"
    )]
    NoCommonSnapshot { one: SandboxId, other: SandboxId },
    #[error("sandbox `{id}` cannot be merged into itself")]
    MergeWithItself { id: SandboxId },
    #[error("both sandboxes changed the same {count} entries of memory, so nothing was merged")]
    MemoryContradicts { count: u64 },
    #[error("no race `{id}`")]
    RaceNotFound { id: RaceId },
    #[error("a race has from 1 to {max} attempts, not {given}")]
    RaceSize { given: usize, max: usize },
    #[error("{max} races are already running")]
    RacesMax { max: usize },
    #[error("race `{id}` is still running")]
    RaceGoesOn { id: RaceId },
    #[error("race `{id}` has no winner whose sandbox still exists")]
    NoWinner { id: RaceId },
    #[error("`{what}` has no disk of the driver `{driver}` to compare with")]
    OtherForm { what: String, driver: &'static str },
    #[error("the two differ in more than {changed} paths, which is too many to compare")]
    TooDifferent { changed: usize },
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("injected failure at `{point}`")]
    Injected { point: String },
}

const WITHOUT_PROCESSES: &str = "the files are intact: use `--files-only` to omit the processes";

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

    /// What the user can do about the error.
    #[expect(clippy::too_many_lines, reason = "one arm for each error, each with one sentence")]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("`burrow ls` lists the sandboxes"),
            Self::ExecNotFound { .. } => {
                Some("the agent remembers the last 1,000 execs since the sandbox started")
            }
            Self::PortClosed { .. } => Some("`burrow port ls` lists the ports on which the sandbox listens"),
            Self::PublishedMax { .. } => Some("make one private again first: `burrow port unpublish`"),
            Self::NoExec { .. } => Some("`burrow ps SANDBOX` lists the execs of a sandbox"),
            Self::ImageNotFound { .. } => {
                Some("`burrow image ls` lists images; `burrow up` builds the default one")
            }
            Self::DriverUnknown { .. } | Self::DriverUnavailable { .. } => {
                Some("`burrow doctor` lists the drivers of this host")
            }
            Self::NameTaken { .. } => {
                Some("choose another name, or use that sandbox (`create` does with `--if-not-exists`)")
            }
            Self::Refused { refusal: Refusal::Stopped | Refusal::Failed, .. } => {
                Some("`burrow start` brings it up")
            }
            Self::LimitAboveMax { .. } => Some("`limits.max` in the configuration sets the maximum"),
            Self::Limits(error) if error.field.ends_with("_per_second") => {
                Some("omit it for no limit; in an update, 0 removes the limit")
            }
            Self::NoDiskRate { .. } => Some("omit the rate, or create a microVM (`--isolation microvm`)"),
            Self::SandboxesMax { .. } => {
                Some("delete sandboxes, or raise `limits.sandboxes` in the configuration")
            }
            Self::PoolReserve { .. } => Some("delete sandboxes or images, or enlarge the pool"),
            Self::Busy { .. } | Self::ImagesBusy { .. } => Some("try again in a moment"),
            Self::Image(error) => error.hint(),
            Self::ImageUnfit { .. } => {
                Some("the image's `/dev`, `/proc`, `/sys` or `/etc` may be of the wrong type")
            }
            Self::ImageNeedsName { .. } => Some("choose another name with `--name`"),
            Self::PlatformUnknown { .. } => Some("write it like `linux/amd64`"),
            Self::ImagesInArchive { .. } => Some("omit the name: each image keeps its own"),
            Self::BuildStep { .. } => Some("see the output above; fix the step and build again"),
            Self::GuestUnreachable { .. } | Self::GuestTimeout { .. } => Some(
                "the sandbox may be out of RAM or processes; `burrow stop` and `burrow start` restart it",
            ),
            Self::SetUnknown { .. } => Some("`egress.sets` in the configuration defines them"),
            Self::RuleNotFound { .. } => Some("`burrow egress show` lists its rules and host sets"),
            Self::ApprovalNotFound { .. } => Some("`burrow egress approvals` lists the waiting requests"),
            Self::RulesOverlap { .. } => {
                Some("narrow methods or paths until each request is covered by one rule")
            }
            Self::RulesMax { .. } | Self::RequestRulesMax { .. } => {
                Some("a wildcard rule or a host set can replace many rules")
            }
            Self::NetworkDiffers { .. } => {
                Some("`burrow update` changes its network policy; or omit the policy from the request")
            }
            Self::Runtime(error) => runtime_hint(error),
            Self::SnapshotNotFound { .. } => Some("`burrow snapshot ls` lists the snapshots"),
            Self::SnapshotNameTaken { .. } => Some("choose another name, or remove that snapshot first"),
            Self::SnapshotInUse { .. } => Some("`burrow update SANDBOX --rotate-every never` stops that"),
            Self::SnapshotBusy { .. } => Some("try again in a moment"),
            Self::Recovering { .. } => {
                Some("try again in a moment; `burrow inspect` shows when it is recovered")
            }
            Self::SnapshotsLeft { .. } => Some(
                "`burrow snapshot ls --all` lists the remaining snapshots; `burrow snapshot rm` removes them",
            ),
            Self::OtherDriver { .. } => Some("create a new sandbox from the snapshot instead"),
            Self::NoHibernate { .. } => {
                Some("`burrow stop` keeps its files; `burrow doctor` reports what is missing")
            }
            Self::NoRoom { .. } => {
                Some("`burrow gc` lists what can be removed; `--files-only` needs no space for processes")
            }
            Self::TrialBusy { .. } | Self::TrialCut { .. } => {
                Some("try again in a moment; `burrow hibernate --untried` does without a trial restore")
            }
            Self::RestoreNotUndone { .. } => {
                Some("that state is saved; `burrow wake` tries again to return to it")
            }
            Self::RestoreUndoneInFiles { .. } => {
                Some("`--files-only` restores the files without the processes")
            }
            Self::RestoreRefused { .. } | Self::RestoreUndone { .. } => Some(
                "`--files-only` restores the files without the processes; `burrow stop` first ends the present processes",
            ),
            Self::Asleep { .. } => Some("`burrow attach` wakes it and continues where the output stopped"),
            Self::Replaced { .. } => Some("`burrow ps` lists its present execs"),
            Self::Wake { reason, .. } => reason.hint(),
            Self::DumpMissing { .. } | Self::DumpUnknown { .. } => Some(WITHOUT_PROCESSES),
            Self::MemoryNotFound { .. } => {
                Some("`burrow ls` lists the sandboxes, `burrow space ls` the memory spaces")
            }
            Self::VolumeNotFound { .. } => Some("`burrow volume ls` lists the volumes"),
            Self::VolumeSnapshotNotFound { .. } => {
                Some("`burrow volume snapshot ls` lists the snapshots of a volume")
            }
            Self::NoVolumes { .. } => Some("sandboxes with `--isolation container` support volumes"),
            Self::VolumesDiffer { .. } => {
                Some("omit the volumes, or stop the sandbox and change them with `burrow update`")
            }
            Self::VolumesInPlace { .. } => Some("stop it first: `burrow stop SANDBOX`"),
            Self::VolumeMissing { .. } | Self::OtherVolumes { .. } | Self::VolumesStay { .. } => {
                Some("use `--files-only` to omit the processes")
            }
            Self::SpaceNotFound { .. } => Some("`burrow space ls` lists the memory spaces"),
            Self::SpaceInUse { .. } => {
                Some("`burrow update SANDBOX --memory own` detaches it; or delete it with `--force`")
            }
            Self::SecretNotFound { .. } => Some("`burrow secret ls` lists the secrets"),
            Self::SecretInUse { .. } => Some(
                "remove it from their rules first; or delete it with `--force`: requests that they cover are then denied",
            ),
            Self::SecretBusy { .. } => Some("try again in a moment"),
            Self::Vault(error) => error.hint(),
            Self::Memory(error) => error.hint(),
            Self::Disk(error) => error.hint(),
            Self::NetworkPolicy { source } => source.hint(),
            Self::Egress(source) => source.hint(),
            Self::Moving(error) => error.hint(),
            Self::ImportNeeds { .. } => Some("`--files-only` imports files and memory without the processes"),
            Self::UntrustedProcesses { .. } => {
                Some("`--trust KEY` accepts them from a host you know; `--files-only` omits them")
            }
            Self::BaseMissing { .. } => Some("import that snapshot first, or export without `--since`"),
            Self::ExportTooDifferent { .. } => Some("export all of it, without `--since`"),
            Self::NeverMoved { .. } => Some("export all of it first: `burrow export SNAPSHOT FILE`"),
            Self::TreeNotFound { .. } => {
                Some("`burrow ls`, `burrow snapshot ls --all` and `burrow image ls` list them")
            }
            Self::OtherForm { .. } => Some(
                "compare sandboxes of the same driver, or create an image with `burrow image commit`: it can be compared with both",
            ),
            Self::TooDifferent { .. } => {
                Some("compare it with a closer ancestor: `burrow tree` shows the ancestors")
            }
            Self::NoCommonSnapshot { .. } => Some(
                "a fork (`burrow fork`) or a sandbox created from a snapshot can be merged into the sandbox it came from",
            ),
            Self::MemoryContradicts { .. } => {
                Some("`--memory list`, `ours`, `theirs` or `both` resolves them")
            }
            Self::MergeWithItself { .. } => Some("name the child first: `burrow merge CHILD --into PARENT`"),
            Self::RaceNotFound { .. } => Some("`burrow race ls` lists the races"),
            Self::RacesMax { .. } => Some("wait for one of them, or end one: `burrow race rm`"),
            Self::RaceGoesOn { .. } => Some("`burrow race wait` waits for its end"),
            Self::NoWinner { .. } => Some("`burrow race show` shows the results of its attempts"),
            Self::RaceSize { .. }
            | Self::Mount(_)
            | Self::VolumeFile(_)
            | Self::Tree(_)
            | Self::ServiceNotFound { .. }
            | Self::PortReserved { .. }
            | Self::Refused { .. }
            | Self::Gone { .. }
            | Self::Limits(_)
            | Self::Guest { .. }
            | Self::Catalog(_)
            | Self::Policy(_)
            | Self::ForkCount { .. }
            | Self::AttachedMax { .. }
            | Self::Secret(_)
            | Self::Network(_)
            | Self::BuildInProgress { .. }
            | Self::ShuttingDown
            | Self::Transforms { .. }
            | Self::Injected { .. } => None,
        }
    }
}

fn runtime_hint(error: &RuntimeError) -> Option<&'static str> {
    match error {
        RuntimeError::Obstacles { .. } => {
            Some("end that process, or use `--files-only`, `burrow pause` or `burrow stop`")
        }
        RuntimeError::TrialFailed { .. } => {
            Some("it still runs: end that process, or use `burrow pause` or `burrow stop`")
        }
        RuntimeError::NoRoomForTrial { .. } => Some(
            "it still runs: free RAM on the host, or use `burrow hibernate --untried` to do without a trial restore",
        ),
        RuntimeError::Restore { .. } | RuntimeError::RestoreCut { .. } | RuntimeError::Unfit { .. } => {
            Some(WITHOUT_PROCESSES)
        }
        RuntimeError::Step { .. }
        | RuntimeError::Boot { .. }
        | RuntimeError::BootTimeout { .. }
        | RuntimeError::NoMachine { .. }
        | RuntimeError::Launcher { .. }
        | RuntimeError::Host { .. }
        | RuntimeError::NotAhead { .. }
        | RuntimeError::DumpHangs { .. }
        | RuntimeError::Dump { .. }
        | RuntimeError::Disks { .. }
        | RuntimeError::NoDiskRate { .. }
        | RuntimeError::Injected => None,
    }
}
