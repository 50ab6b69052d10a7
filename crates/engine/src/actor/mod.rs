//! One task per sandbox: the only one who changes it.
//!
//! ```text
//!   create · power (start, stop, pause, resume, delete) · update · sleep (hibernate, wake) · snapshot · restore · merge
//! ```
//!
//! Requests wait in a bounded inbox and are carried out one after the other, so no two operations of one sandbox ever
//! meet. The task owns the row and, while the sandbox runs, its [`Live`] machine. A caller that goes away does not stop
//! what it asked for.

mod create;
mod merge;
mod power;
mod restore;
mod sleep;
mod snapshot;
mod update;

pub(crate) use merge::unmerge;
pub(crate) use restore::settled as restored;

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

use crate::activity::{Activity, Cut};
use crate::dump::Kept;
use crate::frozen::Held;
use crate::journal::{Detail, Operation};
use crate::merge::{MergeWork, Merged};
use crate::shared::Shared;
use crate::stock::Ready;
use crate::{EngineError, Guest, Restored, SnapshotOptions, UpdateOptions, egress, forms};

/// Requests of one sandbox that may wait. Two hundred execs at once must fit; a flood must not.
const INBOX_MAX: usize = 1024;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

#[derive(Debug)]
pub(crate) enum Command {
    /// Always the first: nobody else can know of the sandbox before it has made the row.
    Create {
        idempotency: Option<Idempotency>,
        /// What it is made of.
        source: Source,
        reply: Reply<Creation>,
    },
    /// Answers when nothing asked before is under way any more.
    Settled {
        reply: Reply<SandboxRow>,
    },
    Use {
        reply: Reply<Guest>,
    },
    Start {
        /// Gives up processes that are kept: boots from the files.
        fresh: bool,
        reply: Reply<SandboxRow>,
    },
    Hibernate {
        reply: Reply<SandboxRow>,
    },
    State(StateCommand),
    /// The sleep policy finds it idle: to be checked again, since somebody may have come meanwhile.
    Sleep {
        depth: Depth,
        /// When the policy looked.
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
    /// From the watcher of the machine that was started as this generation.
    MachineEnded {
        generation: u64,
    },
    Expire,
    /// What its policies did last.
    Stamp {
        snapshotted_ms: Option<u64>,
        rotated_ms: Option<u64>,
    },
    /// Its network policy could not be put in force when it was due.
    PutInForce,
}

/// What takes or brings back all that a sandbox is.
#[derive(Debug)]
pub(crate) enum StateCommand {
    Snapshot {
        options: Box<SnapshotOptions>,
        reply: Reply<Snapshot>,
    },
    /// What the children of a fork are made of.
    ForkBase {
        files_only: bool,
        reply: Reply<ForkBase>,
    },
    Restore {
        snapshot: Box<Snapshot>,
        files_only: bool,
        /// What the state that is replaced is kept as.
        undo: Box<SnapshotOptions>,
        reply: Reply<Restored>,
    },
    /// Copies its files, for a merge into another or a comparison.
    Freeze {
        reply: Reply<Held>,
    },
    /// Copies its files, for an image; answers where the copy is.
    StageImage {
        image: ImageId,
        reply: Reply<PathBuf>,
    },
    /// Brings the work of another into this one.
    Merge {
        work: Box<MergeWork>,
        reply: Reply<Merged>,
    },
}

/// What a sandbox is made of.
#[derive(Debug)]
pub(crate) enum Source {
    Image,
    /// What was made ahead under the sandbox's id.
    Ready(Box<Ready>),
    /// A snapshot's disk, and its processes if they are to come along.
    Snapshot(Box<FromBase>),
}

#[derive(Clone, Debug)]
pub(crate) struct FromBase {
    pub(crate) snapshot: burrow_model::SnapshotId,
    pub(crate) kept: Option<Kept>,
}

/// A moment of a sandbox that others can be made of.
#[derive(Debug)]
pub(crate) struct ForkBase {
    pub(crate) row: SandboxRow,
    pub(crate) snapshot: Snapshot,
    pub(crate) kept: Option<Kept>,
    /// Made for this fork only, to be removed after it.
    pub(crate) passing_dump: Option<burrow_model::DumpId>,
}

/// How deep a sandbox is to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Pause,
    Hibernate,
    Stop,
}

/// What a create came to.
#[derive(Debug)]
pub(crate) enum Creation {
    Fresh(Box<SandboxRow>),
    /// The same idempotency key made this one before.
    Repeated(SandboxId),
    NameTaken(SandboxId),
}

/// How others reach an actor.
#[derive(Clone, Debug)]
pub(crate) struct ActorHandle {
    id: SandboxId,
    tenant: TenantId,
    inbox: mpsc::Sender<Command>,
    pulse: Pulse,
    activity: Arc<Activity>,
}

/// Whether the sandbox runs, for those who must know without waiting for their turn: the generation it runs as, or 0.
/// It may change the moment it was read.
#[derive(Clone, Debug, Default)]
struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn set(&self, row: &SandboxRow, live: bool) {
        let runs = live && row.state == State::Running;
        self.0.store(if runs { row.generation } else { 0 }, Ordering::Release);
    }
}

/// A machine that runs or is paused.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) machine: Machine,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) cut: Cut,
}

impl Live {
    pub(crate) fn new(dial: Arc<dyn Dial>, machine: Machine, runtime: Arc<dyn Runtime>) -> Self {
        Self { dial, machine, runtime, cut: Cut::default() }
    }
}

#[derive(Debug)]
struct Actor {
    shared: Arc<Shared>,
    row: Arc<SandboxRow>,
    live: Option<Live>,
    watcher: Option<tokio::task::JoinHandle<()>>,
    pulse: Pulse,
    activity: Arc<Activity>,
    inbox: mpsc::Receiver<Command>,
    /// For the watcher; weak, so that an actor nobody can reach any more ends.
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
        Some(self.pulse.0.load(Ordering::Acquire)).filter(|generation| *generation > 0)
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

    /// For what nobody waits for; repeated by its sender if it matters.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.inbox.try_send(command);
    }
}

// === impl Actor ===

/// Starts the task of a sandbox, with the machine it was found with.
pub(crate) fn spawn(shared: &Arc<Shared>, row: SandboxRow, live: Option<Live>) -> ActorHandle {
    let (inbox, commands) = mpsc::channel(INBOX_MAX);
    let pulse = Pulse::default();
    let activity = Activity::new(shared.seams.clock.clone(), &row);
    let handle = ActorHandle {
        id: row.id.clone(),
        tenant: row.tenant.clone(),
        inbox,
        pulse: pulse.clone(),
        activity: activity.clone(),
    };
    let span = tracing::info_span!("sandbox", id = %row.id);
    let mut actor = Actor {
        shared: shared.clone(),
        row: Arc::new(row),
        live: None,
        watcher: None,
        pulse,
        activity,
        inbox: commands,
        own_inbox: handle.inbox.downgrade(),
        _alive: shared.sign_of_life(),
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
            Command::Use { reply } => {
                let guest = self.guest().await;
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
            Command::Hibernate { reply } => {
                let result = self.hibernate().await;
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
                        "could not note what a policy did"
                    );
                }
                Fate::Stays
            }
            Command::PutInForce => {
                if self.live.is_some() {
                    egress::adopt(&self.shared, &self.row).await;
                } else {
                    // It is given its policy with its network when it starts.
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
            StateCommand::Restore { snapshot, files_only, undo, reply } => {
                let restored = self.restore(*snapshot, files_only, *undo).await;
                let _ = reply.send(restored);
            }
            StateCommand::Freeze { reply } => {
                let held = Held::freeze(&self.shared, &self.row).await;
                // Where nobody waits for it any more, it is removed when it is dropped.
                let _ = reply.send(held);
            }
            StateCommand::StageImage { image, reply } => {
                let staged = self.shared.seams.volumes.stage_image_of_sandbox(&image, &self.row.id).await;
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

    fn live(&self) -> Result<&Live, EngineError> {
        self.live
            .as_ref()
            .ok_or_else(|| burrow_runtime::RuntimeError::NoMachine { id: self.row.id.clone() }.into())
    }

    /// The guest of the machine that is up, without asking whether it may be used.
    fn guest_of(&self, live: &Live) -> Guest {
        Guest {
            row: self.row.clone(),
            dial: live.dial.clone(),
            cut: live.cut.clone(),
            lease: self.activity.lease(),
        }
    }

    /// Where its files are.
    async fn root(&self) -> Result<PathBuf, EngineError> {
        Ok(self.shared.seams.volumes.locate(&self.row.id).await?)
    }

    fn disk_bytes(&self) -> u64 {
        forms::volume_bytes(&self.shared, &self.row.spec)
    }

    fn change(&self) -> SandboxChange {
        SandboxChange::at(self.shared.now_ms())
    }

    /// Makes an operation and the state it leads through durable, before any resource is touched.
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

    /// Follows in memory what the catalog holds.
    fn note(&mut self, change: SandboxChange) {
        follow(Arc::make_mut(&mut self.row), change);
        self.pulse.set(&self.row, self.live.is_some());
        self.activity.follow(&self.row);
    }

    fn watch(&mut self, live: Live) {
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
        self.pulse.set(&self.row, true);
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

/// Keep in step with the catalog's own `apply`: what is `None` stays.
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
