//! Everything that can go wrong when a sandbox is asked for something.

use burrow_catalog::CatalogError;
use burrow_egress::{EgressError, PolicyError};
use burrow_guest::client::GuestError;
use burrow_images::ImageError;
use burrow_memory::MemoryError;
use burrow_model::{
    DumpId, LimitsError, MountError, Name, PolicyError as OwnPolicyError, RaceId, Refusal, SandboxId,
    SecretError, SnapshotId,
};
use burrow_network::NetworkError;
use burrow_portable::PortableError;
use burrow_runtime::RuntimeError;
use burrow_trees::TreeError;
use burrow_vault::VaultError;
use burrow_volumes::VolumeError;
use burrow_volumes::shelf_files::ShelfFileError;

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
    #[error("sandbox `{id}` has {max} public ports already")]
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
    #[error("`{field}` of {given} is more than this host gives one sandbox ({max})")]
    LimitAboveMax { field: &'static str, given: u32, max: u32 },
    #[error("the disk of a sandbox of the driver `{driver}` cannot be held to a rate: {reason}")]
    NoDiskRate { driver: &'static str, reason: String },
    #[error("this host holds {max} sandboxes already")]
    SandboxesMax { max: usize },
    #[error("the pool has {free_bytes} bytes left, less than its reserve of {reserve_bytes}")]
    PoolReserve { free_bytes: u64, reserve_bytes: u64 },
    #[error("sandbox `{id}` has {queued} requests waiting already")]
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
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("no host set `{set}`; there are {known}")]
    SetUnknown { set: Name, known: String },
    #[error("{source}")]
    NetworkPolicy { source: PolicyError },
    #[error("the sandbox has no rule or host set `{what}` of its own")]
    RuleNotFound { what: String },
    #[error("a sandbox has at most {rules} rules and {sets} host sets")]
    RulesMax { rules: usize, sets: usize },
    #[error("no request waits as `{number}`; it may have been answered, or have waited too long")]
    ApprovalNotFound { number: u64 },
    #[error("a sandbox has at most {max} rules about requests")]
    RequestRulesMax { max: usize },
    #[error(
        "`{later}` covers requests that `{earlier}` covers too, and treats them differently or counts them again"
    )]
    RulesOverlap { earlier: String, later: String },
    #[error("sandbox `{id}` exists and may reach something else than was asked for")]
    NetworkDiffers { id: SandboxId },
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("an image `{name}` is being built already")]
    BuildInProgress { name: String },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error("the image cannot be started by the driver `{driver}`: its files cannot be prepared")]
    ImageUnfit { driver: &'static str, source: std::io::Error },
    #[error("`{what}` cannot be a name here")]
    ImageNeedsName { what: String },
    #[error("`{what}` is not a platform")]
    PlatformUnknown { what: String },
    #[error("the archive holds {found} images, which cannot all have the same name")]
    ImagesInArchive { found: usize },
    #[error("{waiting} requests for images are waiting already")]
    ImagesBusy { waiting: usize },
    #[error("the step `{step}` {ended}: {tail}")]
    BuildStep { step: String, ended: String, tail: String },
    #[error(transparent)]
    Policy(#[from] OwnPolicyError),
    #[error("no snapshot `{what}`")]
    SnapshotNotFound { what: String },
    #[error("the name `{name}` is taken by snapshot `{existing}`")]
    SnapshotNameTaken { name: String, existing: SnapshotId },
    #[error("snapshot `{id}` is what sandbox `{by}` is put back to from time to time")]
    SnapshotInUse { id: SnapshotId, by: SandboxId },
    #[error("snapshot `{id}` is being used: a sandbox is made from it or goes back to it")]
    SnapshotBusy { id: SnapshotId },
    #[error("sandbox `{id}` is gone, but its snapshot `{snapshot}` could not be removed")]
    SnapshotsLeft { id: SandboxId, snapshot: SnapshotId },
    #[error("snapshot `{snapshot}` was taken by the driver `{driver}`")]
    OtherDriver { snapshot: SnapshotId, driver: String },
    #[error("sandbox `{id}` cannot keep its processes on this host: {reason}")]
    NoHibernate { id: SandboxId, reason: String },
    #[error(
        "{needed_bytes} bytes do not fit into the pool: it has {free_bytes} left, {reserve_bytes} of them its reserve"
    )]
    NoRoom { needed_bytes: u64, free_bytes: u64, reserve_bytes: u64 },
    #[error("sandbox `{id}` is recovering: {reason}")]
    Recovering { id: SandboxId, reason: String },
    #[error("sandbox `{id}` was put to sleep")]
    Asleep { id: SandboxId },
    #[error("sandbox `{id}` went back to a snapshot")]
    Replaced { id: SandboxId },
    #[error("the processes of sandbox `{id}` are not where they were kept")]
    DumpMissing { id: SandboxId },
    #[error("dump `{dump}` was made by something that says too little about it")]
    DumpUnknown { dump: DumpId },
    #[error("a fork has from 1 to {max} children, not {given}")]
    ForkCount { given: usize, max: usize },
    #[error("no sandbox or space `{what}`")]
    MemoryNotFound { what: String },
    #[error("no volume `{what}`")]
    ShelfNotFound { what: String },
    #[error("no snapshot `{what}` of volume `{volume}`")]
    ShelfSnapshotNotFound { what: String, volume: Name },
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    ShelfFile(#[from] ShelfFileError),
    #[error("sandboxes of the driver `{driver}` cannot have volumes: {reason}")]
    NoVolumes { driver: &'static str, reason: String },
    #[error("sandbox `{id}` exists and has other volumes than were asked for")]
    VolumesDiffer { id: SandboxId },
    #[error("sandbox `{id}` is not stopped, and its volumes are mounted")]
    VolumesInPlace { id: SandboxId },
    #[error("volume `{name}`, which the processes of the snapshot use, is gone")]
    VolumeMissing { name: Name },
    #[error("the processes of snapshot `{snapshot}` use other volumes than the sandbox has")]
    OtherVolumes { snapshot: SnapshotId },
    #[error("the processes of snapshot `{id}` use volumes, which do not travel")]
    VolumesStay { id: SnapshotId },
    #[error("no space `{what}`")]
    SpaceNotFound { what: String },
    #[error("space `{name}` is what sandbox `{by}` remembers with")]
    SpaceInUse { name: String, by: SandboxId },
    #[error("a sandbox is given at most {max} spaces beside its own")]
    AttachedMax { max: usize },
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("no secret `{name}`")]
    SecretNotFound { name: Name },
    #[error("secret `{name}` is used by the rules of {}", .by.join(", "))]
    SecretInUse { name: Name, by: Vec<String> },
    #[error("secret `{name}` is being changed by others all the time")]
    SecretBusy { name: Name },
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Moving(#[from] PortableError),
    #[error("the file needs what this host lacks: {reason}")]
    ImportNeeds { reason: String },
    #[error("the processes in the file are {signed}, and this host takes none from there")]
    UntrustedProcesses { signed: String },
    #[error("the file holds only what differs from snapshot `{snapshot}`, which is not here")]
    BaseMissing { snapshot: String },
    #[error("snapshot `{id}` was never exported or imported here, so no receiver can have it")]
    NeverMoved { id: SnapshotId },
    #[error("snapshot `{id}` differs from `{base}` in more places than can be listed")]
    ExportTooDifferent { id: SnapshotId, base: SnapshotId },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("no sandbox, snapshot or image `{what}`")]
    TreeNotFound { what: String },
    #[error("sandboxes `{one}` and `{other}` have no snapshot in common, so nobody can say who changed what")]
    NoCommonSnapshot { one: SandboxId, other: SandboxId },
    #[error("sandbox `{id}` cannot be merged into itself")]
    MergeWithItself { id: SandboxId },
    #[error("both sandboxes changed {count} things they remember, and nothing was to be merged then")]
    MemoryContradicts { count: u64 },
    #[error("no race `{id}`")]
    RaceNotFound { id: RaceId },
    #[error("a race has from 1 to {max} attempts, not {given}")]
    RaceSize { given: usize, max: usize },
    #[error("{max} races go on already")]
    RacesMax { max: usize },
    #[error("race `{id}` is not over")]
    RaceGoesOn { id: RaceId },
    #[error("race `{id}` has no winner whose sandbox is there")]
    NoWinner { id: RaceId },
    #[error("`{what}` has no disk of the driver `{driver}` to compare with")]
    OtherForm { what: String, driver: &'static str },
    #[error("the two differ in more than {changed} paths, which is too much to look at")]
    TooDifferent { changed: usize },
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("the engine was told to fail at `{point}`")]
    Injected { point: String },
}

impl EngineError {
    /// What to do about it.
    #[expect(clippy::too_many_lines, reason = "one arm for each error, and no more in them than a sentence")]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("`burrow ls` lists the sandboxes there are"),
            Self::ExecNotFound { .. } => {
                Some("the agent remembers the last 1,000 execs since the sandbox started")
            }
            Self::PortClosed { .. } => Some("`burrow port ls` lists what listens inside"),
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
            Self::LimitAboveMax { .. } => Some("`limits.max` in the configuration sets the bound"),
            Self::Limits(error) if error.field.ends_with("_per_second") => {
                Some("leave it out for no bound; in an update, 0 takes the bound away")
            }
            Self::NoDiskRate { .. } => {
                Some("leave the rate out, or make it a microVM (`--isolation microvm`)")
            }
            Self::SandboxesMax { .. } => {
                Some("delete some, or raise `limits.sandboxes` in the configuration")
            }
            Self::PoolReserve { .. } => Some("delete sandboxes or images, or enlarge the pool"),
            Self::Busy { .. } | Self::ImagesBusy { .. } => Some("try again in a moment"),
            Self::Image(error) => error.hint(),
            Self::ImageUnfit { .. } => Some("its `/dev`, `/proc`, `/sys` or `/etc` is not what it should be"),
            Self::ImageNeedsName { .. } => Some("give it a name of its own with `--name`"),
            Self::PlatformUnknown { .. } => Some("write it like `linux/amd64`"),
            Self::ImagesInArchive { .. } => Some("leave the name out: each image keeps its own"),
            Self::BuildStep { .. } => Some("the output above says more; fix the step and build again"),
            Self::GuestUnreachable { .. } | Self::GuestTimeout { .. } => {
                Some("the sandbox may be out of RAM or processes; `burrow stop` and `burrow start` renew it")
            }
            Self::SetUnknown { .. } => Some("`egress.sets` in the configuration names them"),
            Self::RuleNotFound { .. } => Some("`burrow egress show` lists what it has"),
            Self::ApprovalNotFound { .. } => Some("`burrow egress approvals` lists what waits"),
            Self::RulesOverlap { .. } => {
                Some("narrow methods or paths until each request is covered by one rule")
            }
            Self::RulesMax { .. } | Self::RequestRulesMax { .. } => {
                Some("a wildcard rule, or a host set, may stand for many")
            }
            Self::NetworkDiffers { .. } => {
                Some("`burrow update` changes what it may reach; or leave out what you want it to reach")
            }
            Self::Runtime(error) => runtime_hint(error),
            Self::SnapshotNotFound { .. } => Some("`burrow snapshot ls` lists the snapshots there are"),
            Self::SnapshotNameTaken { .. } => Some("choose another name, or remove that snapshot first"),
            Self::SnapshotInUse { .. } => Some("`burrow update --rotate-every never` ends that"),
            Self::SnapshotBusy { .. } => Some("try again in a moment"),
            Self::Recovering { .. } => {
                Some("try again in a moment; `burrow inspect` shows when it is recovered")
            }
            Self::SnapshotsLeft { .. } => {
                Some("`burrow snapshot ls --all` lists what is left; `snapshot rm` removes it")
            }
            Self::OtherDriver { .. } => Some("make a new sandbox of it instead"),
            Self::NoHibernate { .. } => {
                Some("`burrow stop` keeps its files; `burrow doctor` says what is missing")
            }
            Self::NoRoom { .. } => {
                Some("`burrow gc` says what could go; `--files-only` needs no room for processes")
            }
            Self::Asleep { .. } => Some("`burrow attach` goes on where it was, and wakes it"),
            Self::Replaced { .. } => Some("`burrow ps` lists what runs in it now"),
            Self::DumpMissing { .. } | Self::DumpUnknown { .. } => {
                Some("`burrow start --files-only` starts it without them")
            }
            Self::MemoryNotFound { .. } => {
                Some("`burrow ls` lists the sandboxes there are, `burrow space ls` the spaces")
            }
            Self::ShelfNotFound { .. } => Some("`burrow volume ls` lists the volumes there are"),
            Self::ShelfSnapshotNotFound { .. } => Some("`burrow volume snapshot ls` lists those of a volume"),
            Self::NoVolumes { .. } => Some("`--isolation container` can have them"),
            Self::VolumesDiffer { .. } => Some("leave them out, or stop it and `burrow update` them"),
            Self::VolumesInPlace { .. } => Some("`burrow stop` it first"),
            Self::VolumeMissing { .. } | Self::OtherVolumes { .. } | Self::VolumesStay { .. } => {
                Some("`--files-only` leaves the processes out")
            }
            Self::SpaceNotFound { .. } => Some("`burrow space ls` lists the spaces there are"),
            Self::SpaceInUse { .. } => {
                Some("`burrow update SANDBOX --memory own` takes it away; or remove it with `--force`")
            }
            Self::SecretNotFound { .. } => Some("`burrow secret ls` lists the secrets there are"),
            Self::SecretInUse { .. } => Some(
                "take it out of their rules first; or remove it with `--force`: what they cover is refused then",
            ),
            Self::SecretBusy { .. } => Some("try again in a moment"),
            Self::Vault(error) => error.hint(),
            Self::Memory(error) => error.hint(),
            Self::Volume(error) => error.hint(),
            Self::NetworkPolicy { source } => source.hint(),
            Self::Egress(source) => source.hint(),
            Self::Moving(error) => error.hint(),
            Self::ImportNeeds { .. } => Some("`--files-only` takes files and memory without the processes"),
            Self::UntrustedProcesses { .. } => {
                Some("`--trust KEY` takes them from a host you know; `--files-only` leaves them out")
            }
            Self::BaseMissing { .. } => Some("import that one first, or export without `--since`"),
            Self::ExportTooDifferent { .. } => Some("export it whole, without `--since`"),
            Self::NeverMoved { .. } => Some("export it whole first: `burrow export SNAPSHOT FILE`"),
            Self::TreeNotFound { .. } => {
                Some("`burrow ls`, `burrow snapshot ls --all` and `burrow image ls` list what there is")
            }
            Self::OtherForm { .. } => Some(
                "compare sandboxes of one driver; `burrow image commit` makes an image of one, which can be compared with both",
            ),
            Self::TooDifferent { .. } => {
                Some("compare with something nearer to it: `burrow tree` shows what came from what")
            }
            Self::NoCommonSnapshot { .. } => Some(
                "a fork (`burrow fork`) or a sandbox made from a snapshot can be merged into where it came from",
            ),
            Self::MemoryContradicts { .. } => {
                Some("`--memory list`, `ours`, `theirs` or `both` decides them")
            }
            Self::MergeWithItself { .. } => Some("name the child first: `burrow merge CHILD --into PARENT`"),
            Self::RaceNotFound { .. } => Some("`burrow race ls` lists the races there are"),
            Self::RacesMax { .. } => Some("wait for one of them, or end one: `burrow race rm`"),
            Self::RaceGoesOn { .. } => Some("`burrow race wait` waits for its end"),
            Self::NoWinner { .. } => Some("`burrow race show` tells what became of its attempts"),
            Self::RaceSize { .. }
            | Self::Mount(_)
            | Self::ShelfFile(_)
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
            | Self::Injected { .. } => None,
        }
    }
}

fn runtime_hint(error: &RuntimeError) -> Option<&'static str> {
    match error {
        RuntimeError::Obstacles { .. } => {
            Some("end that process, or use `--files-only`, `burrow pause` or `burrow stop`")
        }
        RuntimeError::Restore { .. } | RuntimeError::RestoreCut { .. } | RuntimeError::Unfit { .. } => {
            Some("`burrow start --files-only` starts it without them; its files are whole")
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
