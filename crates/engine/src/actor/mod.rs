//! One task per sandbox, which alone changes the sandbox.
//!
//! ```text
//!   create · power (start, stop, pause, resume, delete) · update · sleep (hibernate, wake) · snapshot · restore · merge
//! ```
//!
//! Requests wait in a bounded inbox and are carried out one after the other, so two operations of a sandbox never run concurrently.
//! The task owns the row and, while the sandbox runs, its [`LiveMachine`] machine. A request is completed even if its caller disconnects.

mod create;
mod merge;
mod power;
pub(crate) mod registry;
mod restore;
mod sleep;
mod snapshot;
mod trial;
mod update;

pub(crate) use merge::unmerge;
pub(crate) use restore::settled as restored;
pub(crate) use trial::{TRIALS_MAX, remove as remove_trial};
pub(crate) use update::apply as apply_update;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use burrow_catalog::{CatalogError, Idempotency, OperationRow, SandboxChange, SandboxRow};
use burrow_model::{Admission, ImageId, OperationId, Request, SandboxId, Snapshot, State, TenantId, admit};
use burrow_network::Dial;
use burrow_runtime::{Machine, Runtime};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::images::starting_points;
use crate::operations::journal::{Detail, Operation};
use crate::shared::Shared;
use crate::sleep::activity::{Activity, Cut};
use crate::snapshots::dump::OpenedDump;
use crate::trees::held_trees::HeldTree;
use crate::trees::merge::{MergeWork, Merged};
use crate::warm_pool::WarmSandbox;
use crate::{EngineError, Guest, Restored, SnapshotOptions, UpdateOptions, egress};

/// Requests of one sandbox that may wait. Two hundred execs at once must fit; a flood must not.
const INBOX_MAX: usize = 1024;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

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
        /// Wakes a sleeping sandbox; otherwise it is refused as asleep.
        wake: bool,
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
        reply: Reply<Restored>,
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
        reply: Reply<Merged>,
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

/// Other tasks' access to an actor.
#[derive(Clone, Debug)]
pub(crate) struct ActorHandle {
    id: SandboxId,
    tenant: TenantId,
    inbox: mpsc::Sender<Command>,
    running_generation: RunningGeneration,
    activity: Arc<Activity>,
}

/// Whether the sandbox runs, for readers that must not wait in its queue: the generation it runs as, or 0. It may change right
/// after it was read.
#[derive(Clone, Debug, Default)]
struct RunningGeneration(Arc<AtomicU64>);

impl RunningGeneration {
    fn set(&self, row: &SandboxRow, live: bool) {
        let runs = live && row.state == State::Running;
        self.0.store(if runs { row.generation } else { 0 }, Ordering::Release);
    }
}

/// A machine that runs or is paused.
#[derive(Debug)]
pub(crate) struct LiveMachine {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) machine: Machine,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) cut: Cut,
}

impl LiveMachine {
    pub(crate) fn new(dial: Arc<dyn Dial>, machine: Machine, runtime: Arc<dyn Runtime>) -> Self {
        Self { dial, machine, runtime, cut: Cut::default() }
    }
}

#[derive(Debug)]
struct Actor {
    shared: Arc<Shared>,
    row: Arc<SandboxRow>,
    live: Option<LiveMachine>,
    watcher: Option<tokio::task::JoinHandle<()>>,
    running_generation: RunningGeneration,
    activity: Arc<Activity>,
    inbox: mpsc::Receiver<Command>,
    /// For the machine's watcher; weak, so that an actor that is no longer reachable ends.
    own_inbox: mpsc::WeakSender<Command>,
    _alive: Option<mpsc::Sender<()>>,
}

/// Whether the sandbox still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Gone,
}

// === impl ActorHandle ===

impl ActorHandle {
    pub(crate) fn id(&self) -> &SandboxId {
        &self.id
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The generation it runs as, if it runs.
    pub(crate) fn running(&self) -> Option<u64> {
        Some(self.running_generation.0.load(Ordering::Acquire)).filter(|generation| *generation > 0)
    }

    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let gone = || EngineError::Gone { id: self.id.clone() };
        match self.inbox.try_send(command(reply)) {
            Ok(()) => answer.await.map_err(|_| gone())?,
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(EngineError::Busy { id: self.id.clone(), queued: INBOX_MAX })
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(gone()),
        }
    }

    /// For commands without an answer. Their sender repeats them if they are important.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.inbox.try_send(command);
    }
}

// === impl Actor ===

/// Starts the task of a sandbox, with the machine that it was found with.
pub(crate) fn spawn(shared: &Arc<Shared>, row: SandboxRow, live: Option<LiveMachine>) -> ActorHandle {
    let (inbox, commands) = mpsc::channel(INBOX_MAX);
    let running_generation = RunningGeneration::default();
    let activity = Activity::new(shared.seams.clock.clone(), &row);
    let handle = ActorHandle {
        id: row.id.clone(),
        tenant: row.tenant.clone(),
        inbox,
        running_generation: running_generation.clone(),
        activity: activity.clone(),
    };
    let span = tracing::info_span!("sandbox", id = %row.id);
    let mut actor = Actor {
        shared: shared.clone(),
        row: Arc::new(row),
        live: None,
        watcher: None,
        running_generation,
        activity,
        inbox: commands,
        own_inbox: handle.inbox.downgrade(),
        _alive: shared.actor_guard(),
    };
    if let Some(live) = live {
        actor.watch(live);
    }
    tokio::spawn(actor.run().instrument(span));
    handle
}

impl Actor {
    async fn run(mut self) {
        while let Some(command) = self.inbox.recv().await {
            if self.handle(command).await == Fate::Gone {
                self.shared.registry.remove(&self.row.id);
                self.shared.egress.forget(&self.row.id);
                return;
            }
        }
    }

    async fn handle(&mut self, command: Command) -> Fate {
        match command {
            Command::Create { idempotency, source, reply } => self.create(idempotency, source, reply).await,
            Command::Settled { reply } => self.answer(reply, Ok(())),
            Command::Use { wake, reply } => {
                let guest = if wake { self.guest().await } else { self.guest_if_awake() };
                let _ = reply.send(guest);
                Fate::Stays
            }
            Command::Start { fresh, reply } => {
                let result = if fresh { self.start_fresh().await } else { self.start().await };
                self.answer(reply, result)
            }
            Command::Stop { grace, reply } => self.stop_or_remove(grace, reply).await,
            Command::Pause { reply } => {
                let result = self.pause().await;
                self.answer(reply, result)
            }
            Command::Resume { reply } => {
                let result = self.resume().await;
                self.answer(reply, result)
            }
            Command::Hibernate { untried, reply } => {
                let result = self.hibernate(untried).await;
                self.answer(reply, result)
            }
            Command::Update { update, reply } => {
                let result = self.update(*update).await;
                self.answer(reply, result)
            }
            Command::Delete { reply } => self.delete(Some(reply), "sandbox.deleted").await,
            Command::State(command) => {
                self.handle_state(command).await;
                Fate::Stays
            }
            Command::MachineEnded { generation } => self.machine_ended(generation).await,
            Command::Expire => self.expire().await,
            Command::Sleep { depth, idle_since_ms } => self.fall_asleep(depth, idle_since_ms).await,
            Command::Stamp { snapshotted_ms, rotated_ms } => {
                let (snapshotted_ms, rotated_ms) = (snapshotted_ms.map(Some), rotated_ms.map(Some));
                let change = SandboxChange { snapshotted_ms, rotated_ms, ..self.change() };
                if let Err(error) = self.store(change, None).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not record when a policy acted"
                    );
                }
                Fate::Stays
            }
            Command::ApplyPolicy => {
                if self.live.is_some() {
                    egress::adopt(&self.shared, &self.row).await;
                } else {
                    // It receives its policy with its network when it starts.
                    self.shared.egress.settle(&self.row.id);
                }
                Fate::Stays
            }
        }
    }

    async fn handle_state(&mut self, command: StateCommand) {
        match command {
            StateCommand::Snapshot { options, reply } => self.snapshot(*options, reply).await,
            StateCommand::ForkBase { files_only, reply } => {
                let base = self.fork_base(files_only).await;
                let _ = reply.send(base);
            }
            StateCommand::Restore { snapshot, files_only, untried, undo, reply } => {
                let restored = self.restore(*snapshot, files_only, untried, *undo).await;
                let _ = reply.send(restored);
            }
            StateCommand::Freeze { reply } => {
                let held = HeldTree::freeze(&self.shared, &self.row).await;
                // If the receiver is gone, it is removed when it is dropped.
                let _ = reply.send(held);
            }
            StateCommand::StageImage { image, reply } => {
                let staged =
                    self.shared.seams.disks.stage((&image).into(), Some((&self.row.id).into())).await;
                let _ = reply.send(staged.map_err(EngineError::from));
            }
            StateCommand::Merge { work, reply } => {
                let merged = self.merge(*work).await;
                let _ = reply.send(merged);
            }
        }
    }

    fn answer(&self, reply: Reply<SandboxRow>, result: Result<(), EngineError>) -> Fate {
        let _ = reply.send(result.map(|()| SandboxRow::clone(&self.row)));
        Fate::Stays
    }

    // === Parts ===

    fn admit(&self, request: Request, verb: &'static str) -> Result<Admission, EngineError> {
        let refused = |refusal| EngineError::Refused { id: self.row.id.clone(), request: verb, refusal };
        admit(self.row.state, request).map_err(refused)
    }

    fn live(&self) -> Result<&LiveMachine, EngineError> {
        self.live
            .as_ref()
            .ok_or_else(|| burrow_runtime::RuntimeError::NoMachine { id: self.row.id.clone() }.into())
    }

    /// The guest of the running or paused machine, without checking whether it may be used.
    fn guest_of(&self, live: &LiveMachine) -> Guest {
        Guest {
            row: self.row.clone(),
            dial: live.dial.clone(),
            cut: live.cut.clone(),
            lease: self.activity.lease(),
        }
    }

    /// The path of its files.
    async fn root(&self) -> Result<PathBuf, EngineError> {
        Ok(self.shared.seams.disks.locate((&self.row.id).into()).await?)
    }

    fn disk_bytes(&self) -> u64 {
        starting_points::disk_bytes(&self.shared, &self.row.spec)
    }

    fn change(&self) -> SandboxChange {
        SandboxChange::at(self.shared.now_ms())
    }

    /// Stores an operation and the state it leads through, before any resource is touched.
    async fn begin(&mut self, operation: Operation, state: State) -> Result<OperationRow, EngineError> {
        self.begin_with(operation, state, &Detail::default()).await
    }

    async fn begin_with(
        &mut self,
        operation: Operation,
        state: State,
        detail: &Detail,
    ) -> Result<OperationRow, EngineError> {
        let row = operation.row(&self.row.tenant, &self.row.id, detail, self.shared.now_ms());
        let change = SandboxChange { state: Some(state), ..self.change() };
        self.shared.seams.catalog.begin_operation(row.clone(), Some(change.clone())).await?;
        self.note(change);
        Ok(row)
    }

    async fn store(&mut self, change: SandboxChange, finish: Option<OperationId>) -> Result<(), EngineError> {
        let stored = self.shared.seams.catalog.update_sandbox(&self.row.id, change.clone(), finish).await;
        match stored {
            Ok(()) => {
                self.note(change);
                Ok(())
            }
            Err(CatalogError::NameTaken { existing }) => {
                let name = change.name.flatten().map_or_else(String::new, String::from);
                Err(EngineError::NameTaken { name, existing })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Applies a stored change to the row in RAM.
    fn note(&mut self, change: SandboxChange) {
        follow(Arc::make_mut(&mut self.row), change);
        self.running_generation.set(&self.row, self.live.is_some());
        self.activity.follow(&self.row);
    }

    fn watch(&mut self, live: LiveMachine) {
        let (runtime, machine) = (live.runtime.clone(), live.machine.clone());
        let (inbox, generation) = (self.own_inbox.clone(), self.row.generation);
        self.watcher = Some(tokio::spawn(async move {
            if let Err(error) = runtime.ended(&machine).await {
                tracing::error!(error = &error as &dyn std::error::Error, "could not watch a machine");
                return;
            }
            if let Some(inbox) = inbox.upgrade() {
                let _ = inbox.send(Command::MachineEnded { generation }).await;
            }
        }));
        self.live = Some(live);
        self.running_generation.set(&self.row, true);
    }

    fn unwatch(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }

    fn event(&self, kind: &str, detail: serde_json::Value) {
        self.shared.event(&self.row.tenant, kind, Some(&self.row.id), detail);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.unwatch();
    }
}

/// Must match the catalog's own `apply`: `None` leaves a field unchanged.
fn follow(row: &mut SandboxRow, change: SandboxChange) {
    fn set<T>(into: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *into = value;
        }
    }
    let SandboxChange {
        updated_ms,
        state,
        stop_reason,
        name,
        spec,
        image,
        token,
        machine,
        started_ms,
        stopped_ms,
        failure,
        generation,
        dump,
        origin,
        active_ms,
        slept_ms,
        rotated_ms,
        snapshotted_ms,
        branch,
    } = change;
    row.updated_ms = updated_ms;
    set(&mut row.state, state);
    set(&mut row.stop_reason, stop_reason);
    set(&mut row.name, name);
    set(&mut row.spec, spec);
    set(&mut row.image, image);
    set(&mut row.token, token);
    set(&mut row.machine, machine);
    set(&mut row.started_ms, started_ms);
    set(&mut row.stopped_ms, stopped_ms);
    set(&mut row.failure, failure);
    set(&mut row.generation, generation);
    set(&mut row.dump, dump);
    set(&mut row.origin, origin);
    set(&mut row.active_ms, active_ms);
    set(&mut row.slept_ms, slept_ms);
    set(&mut row.rotated_ms, rotated_ms);
    set(&mut row.snapshotted_ms, snapshotted_ms);
    set(&mut row.branch, branch);
}
