//! The conductor: one task per sandbox, journaled operations with undo, recovery.
//!
//! ```text
//!   Engine ──► Registry ──► one Actor task per sandbox (bounded inbox, owns the row and its State)
//!                              │ operations: create · start · stop · delete · hibernate · wake · snapshot · restore ·
//!                              │ merge (journaled); pause · resume · update
//!                              ▼
//!        catalog   volumes   network   egress   runtime     (the seams; handed in)
//! ```
//!
//! Invariant 2, "intent before resource": an operation's whole plan, with its undo, is durable before its first
//! step; see [`journal`]. Invariant 4, "sandboxes outlive the daemon": [`recovery`] adopts what still runs.
//!
//! What is absent: syscalls, SQL, HTTP, a clock it was not given.

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
mod forms;
mod frozen;
mod gc;
mod guest;
mod idle;
mod images;
pub mod journal;
mod memory;
mod merge;
mod moving;
mod operations;
mod options;
mod own;
mod pins;
mod ports;
mod promises;
mod race;
mod rates;
mod recovery;
mod registry;
mod secrets;
mod services;
mod shared;
mod shelves;
mod snapshots;
mod stock;
mod upkeep;

pub use activity::GuestStream;
pub use clock::{Clock, ManualClock, SteadyClock, SystemClock, Times};
pub use diff::{DiffCounts, DiffEntry, DiffOptions, Diffed};
pub use egress::{DENIED_MAX, Denied, EgressInForce, EgressSettings, EgressTotals};
pub use engine::{Created, Engine};
pub use error::EngineError;
pub use execs::{ExecOptions, ExecRecord, StartedExec};
pub use frozen::TreeOf;
pub use gc::{GcAction, GcItem, GcOptions, GcReport, GcThing};
pub use guest::Guest;
pub use images::{
    BuildContext, BuildOptions, BuildStage, CommitOptions, ConfigChange, ImageBuilder, ImageDetail,
    ImageItem, ImageProgress, ItemState, OpenedArchive, Pruned, PullOptions, Removed, Tell, packages_recipe,
};
pub use memory::{MemoryScope, ScopedView};
pub use merge::{MemoryPolicy, MergeChanges, MergeOptions, Merged, OpenFile, PastMerge};
pub use moving::{ExportOptions, Exporting, ImportOptions, ImportedSnapshot, MovingPolicy};
pub use options::{
    CreateOptions, IdlePolicy, ImagePolicy, LeaseChange, LimitsChange, MemoryChange, NetworkChange, Policy,
    RatesChange, Seams, StockPolicy, UpdateOptions,
};
pub use own::{NoOwnApi, OwnApi};
pub use ports::{PortList, PortStream};
pub use promises::{OpenPromise, Promise};
pub use race::{
    ATTEMPTS_MAX, Attempt, AttemptChanges, AttemptState, RACE_LABEL, Race, RaceMergeSpec, RaceMerged,
    RaceSpec, RaceStage,
};
pub use secrets::{SecretChanged, SecretStatus, SecretUser};
pub use services::ServiceStatus;
pub use shelves::{MountWish, OpenShelf, ShelfOptions};
pub use snapshots::{
    FORK_MAX, ForkOptions, Forked, FromSnapshot, Restored, SnapshotOptions, TreeItem, TreeNode,
};
