//! What other tasks request of the task of a sandbox.

use std::path::PathBuf;
use std::time::Duration;

use burrow_catalog::{Idempotency, SandboxRow};
use burrow_model::{ImageId, SandboxId, Snapshot};
use tokio::sync::oneshot;

use crate::snapshots::dump_description::OpenedDump;
use crate::trees::held_tree::HeldTree;
use crate::trees::merge_work::{MergeReport, MergeWork};
use crate::warm_pool::pool::WarmSandbox;
use crate::{EngineError, Guest, RestoreResult, SnapshotOptions, UpdateOptions};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// What a use of a sandbox that does not run may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseMode {
    /// Nothing: it is refused.
    Observe,
    /// Wake it from sleep. For uses of processes, which a stopped sandbox does not have.
    Wake,
    /// Wake it, or boot it if its policy permits this.
    Start,
}

#[derive(Debug)]
pub(crate) enum Command {
    /// Always the first command: no other task can know of the sandbox before this one has stored the row.
    Create {
        idempotency: Option<Idempotency>,
        /// What the sandbox is created from.
        source: Source,
        reply: Reply<Creation>,
    },
    /// Answered when all earlier commands have ended.
    Settled {
        reply: Reply<SandboxRow>,
    },
    Use {
        mode: UseMode,
        reply: Reply<Guest>,
    },
    Start {
        /// Discards dumped processes and boots from the files.
        fresh: bool,
        reply: Reply<SandboxRow>,
    },
    Hibernate {
        /// Also where it cannot be tried whether the dump can be restored.
        untried: bool,
        reply: Reply<SandboxRow>,
    },
    State(StateCommand),
    /// The sleep policy found the sandbox idle. This is checked again, since it may have been used in the meantime.
    Sleep {
        depth: SleepDepth,
        /// When the policy checked it.
        idle_since_ms: u64,
    },
    Stop {
        grace: Duration,
        reply: Reply<SandboxRow>,
    },
    Pause {
        reply: Reply<SandboxRow>,
    },
    Resume {
        reply: Reply<SandboxRow>,
    },
    Update {
        update: Box<UpdateOptions>,
        reply: Reply<SandboxRow>,
    },
    Delete {
        reply: Reply<SandboxRow>,
    },
    /// From the task that watches the machine that was started as this generation.
    MachineEnded {
        generation: u64,
    },
    Expire,
    /// Records when its policies last acted.
    Stamp {
        snapshotted_ms: Option<u64>,
        rotated_ms: Option<u64>,
    },
    /// Its network policy could not be applied when it was due.
    ApplyPolicy,
}

/// Commands that capture or restore the state of a sandbox.
#[derive(Debug)]
pub(crate) enum StateCommand {
    Snapshot {
        options: Box<SnapshotOptions>,
        reply: Reply<Snapshot>,
    },
    /// Captures what the children of a fork are created from.
    ForkBase {
        files_only: bool,
        reply: Reply<ForkBase>,
    },
    Restore {
        snapshot: Box<Snapshot>,
        files_only: bool,
        /// Also where neither the snapshot's processes nor the present ones can be tried.
        untried: bool,
        /// The options of the snapshot that keeps the replaced state.
        undo: Box<SnapshotOptions>,
        reply: Reply<RestoreResult>,
    },
    /// Copies its files, for a merge into another sandbox or a comparison.
    Freeze {
        reply: Reply<HeldTree>,
    },
    /// Copies its files, for an image; returns the path of the copy.
    StageImage {
        image: ImageId,
        reply: Reply<PathBuf>,
    },
    /// Merges the work of another sandbox into this one.
    Merge {
        work: Box<MergeWork>,
        reply: Reply<MergeReport>,
    },
}

/// What a sandbox is created from.
#[derive(Debug)]
pub(crate) enum Source {
    Image,
    /// A pre-created sandbox with the same id.
    Ready(Box<WarmSandbox>),
    /// A snapshot's disk, and its processes if requested.
    Snapshot(Box<SnapshotSource>),
}

#[derive(Clone, Debug)]
pub(crate) struct SnapshotSource {
    pub(crate) snapshot: burrow_model::SnapshotId,
    pub(crate) kept: Option<OpenedDump>,
}

/// The captured state of a sandbox from which others can be created.
#[derive(Debug)]
pub(crate) struct ForkBase {
    pub(crate) row: SandboxRow,
    pub(crate) snapshot: Snapshot,
    pub(crate) kept: Option<OpenedDump>,
    /// Created for this fork only, and removed after it.
    pub(crate) passing_dump: Option<burrow_model::DumpId>,
}

/// How deeply a sandbox is to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SleepDepth {
    Pause,
    Hibernate,
    Stop,
}

/// The result of a create.
#[derive(Debug)]
pub(crate) enum Creation {
    Fresh(Box<SandboxRow>),
    /// An earlier request with the same idempotency key created this sandbox.
    Repeated(SandboxId),
    NameTaken(SandboxId),
}
