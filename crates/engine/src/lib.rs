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

mod activity;
mod actor;
mod clock;
mod diff;
mod disks;
mod dump;
mod egress;
mod engine;
mod error;
mod events;
mod execs;
pub mod faults;
mod former_secrets;
mod gc;
mod guest;
mod held_trees;
mod idle;
mod images;
pub mod journal;
mod memory;
mod merge;
mod moving;
mod operations;
mod options;
mod own_listener;
mod pins;
mod ports;
mod race;
mod rates;
mod recovery;
mod registry;
mod restored_kinds;
mod rollback_promises;
mod secrets;
mod services;
mod shared;
mod snapshots;
mod starting_points;
mod sweep;
mod transforms;
mod upkeep;
mod volumes;
mod warm_pool;

pub use activity::GuestStream;
pub use clock::{Clock, ManualClock, SteadyClock, SystemClock, Times};
pub use diff::{DiffCounts, DiffEntry, DiffOptions, DiffResult};
pub use egress::{DENIED_MAX, Denied, EgressInForce, EgressSettings, EgressTotals};
pub use engine::{Created, Engine};
pub use error::EngineError;
pub use execs::{ExecOptions, ExecRecord, StartedExec};
pub use gc::{GcAction, GcItem, GcOptions, GcReport, GcThing};
pub use guest::Guest;
pub use held_trees::TreeOf;
pub use images::{
    BuildContext, BuildOptions, BuildStage, CommitOptions, ConfigChange, ImageBuilder, ImageDetail,
    ImageItem, ImageProgress, ItemState, OpenedArchive, Pruned, PullOptions, Removed, Tell, packages_recipe,
};
pub use memory::{MemoryScope, ScopedView};
pub use merge::{MemoryPolicy, MergeChanges, MergeOptions, Merged, OpenFile, PastMerge};
pub use moving::{ExportOptions, ExportStream, ImportOptions, ImportedSnapshot, MovingPolicy};
pub use options::{
    CreateOptions, IdlePolicy, ImagePolicy, LeaseChange, LimitsChange, MemoryChange, NetworkChange, Policy,
    RatesChange, Seams, UpdateOptions, WarmPoolPolicy,
};
pub use own_listener::{NoOwnApi, OwnApi};
pub use ports::{PortList, PortStream};
pub use race::{
    ATTEMPTS_MAX, Attempt, AttemptChanges, AttemptState, RACE_LABEL, Race, RaceMergeSpec, RaceMerged,
    RaceSpec, RaceStage,
};
pub use rollback_promises::{OpenPromise, Promise};
pub use secrets::{SecretChanged, SecretStatus, SecretUser};
pub use services::ServiceStatus;
pub use snapshots::{
    FORK_MAX, ForkOptions, Forked, FromSnapshot, Restored, SnapshotOptions, TreeItem, TreeNode,
};
pub use volumes::{MountRequest, OpenVolume, VolumeOptions};
