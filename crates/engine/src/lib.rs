//! Orchestration: one task per sandbox, journaled operations with undo, recovery.
//!
//! ```text
//!   Engine ──► Registry ──► one Actor task per sandbox (bounded inbox, owns the row and its State)
//!                              │ operations: create · start · stop · delete · hibernate · wake · snapshot · restore ·
//!                              │ merge (journaled); pause · resume · update
//!                              ▼
//!        catalog   disks   network   egress   runtime     (the seams; the caller passes them)
//! ```
//!
//! Invariant 2, "intent before resource": an operation's whole plan, with its undo, is durable before its first step; see
//! [`journal`]. Invariant 3, "sandboxes outlive the daemon": [`recovery`] adopts the machines that still run.
//!
//! Does not contain: syscalls, SQL, HTTP, a clock (the caller passes one).

mod actor;
mod checks;
mod clock;
mod egress;
mod engine;
mod error;
mod events;
mod execs;
pub mod faults;
mod guest;
mod images;
mod memory;
mod moving;
mod new_row;
mod operations;
mod options;
mod race;
mod recovery;
mod sandboxes;
mod shared;
mod shown;
mod sleep;
mod snapshots;
mod start;
mod trees;
mod upkeep;
mod volumes;
mod warm_pool;

pub use clock::{Clock, ManualClock, SteadyClock, SystemClock, TimeSource};
pub use egress::secret_changes::SecretChanged;
pub use egress::secrets::{SecretStatus, SecretUser};
pub use egress::{DENIED_MAX, DeniedTraffic, EgressInForce, EgressSettings, EgressTotals};
pub use engine::Engine;
pub use error::{EngineError, Maximum, ObjectKind, RestoreFailure, VolumeRefusal};
pub use execs::{
    ExecCall, ExecEvent, ExecKind, ExecMoment, ExecObserver, ExecOptions, ExecOrigin, ExecRecord, ExecReport,
    ExecSession, NoExecObserver, ObservedExec, OutputStream, Rollback, RollbackMode, RollbackStatus,
};
pub use guest::own_api::{NoOwnApi, OwnApi};
pub use guest::ports::{PortList, PortStream};
pub use guest::services::ServiceStatus;
pub use guest::{Guest, GuestReader, GuestWriter};
pub use images::{
    BuildContext, BuildOptions, BuildSource, BuildStage, CommitOptions, ConfigChange, DockerSource,
    ImageBuilder, ImageDetail, ImageItem, ImageProgress, ImageProgressSink, ItemState, OpenedArchive,
    PruneReport, PullOptions, RemoveResult, packages_recipe,
};
pub use memory::{MemoryScope, ScopedView};
pub use moving::{ExportOptions, ExportStream, ImportOptions, ImportedSnapshot, MovingPolicy};
pub use operations::journal;
pub use options::{
    CreateOptions, IdlePolicy, ImagePolicy, LeaseChange, LimitsChange, MemoryChange, NetworkChange, Policy,
    RatesChange, Seams, UpdateOptions, WarmPoolPolicy,
};
pub use race::{
    ATTEMPTS_MAX, Attempt, AttemptChanges, AttemptState, RACE_LABEL, Race, RaceMergeSpec, RaceMerged,
    RaceSpec, RaceStage,
};
pub use sandboxes::CreateResult;
pub use shared::Background;
pub use sleep::activity::GuestStream;
pub use snapshots::{
    FORK_MAX, ForkOptions, ForkResult, FromSnapshot, RestoreResult, SnapshotOptions, TreeItem, TreeNode,
};
pub use trees::diff::{DiffCounts, DiffEntry, DiffOptions, DiffResult};
pub use trees::held_trees::TreeSource;
pub use trees::merge::PastMerge;
pub use trees::merge_work::{MemoryPolicy, MergeChanges, MergeOptions, MergeReport, OpenFile};
pub use upkeep::gc::{GcAction, GcItem, GcObject, GcOptions, GcReport};
pub use volumes::{MountRequest, OpenVolume, VolumeOptions};
