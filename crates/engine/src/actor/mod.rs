//! One task per sandbox, which alone changes the sandbox.
//!
//! ```text
//!   create · power (start, stop, pause, resume, delete) · update · sleep (hibernate, wake) · snapshot · restore · merge
//! ```
//!
//! Requests wait in a bounded inbox and are carried out one after the other, so two operations of a sandbox never run concurrently.
//! The task owns the row and, while the sandbox runs, its [`LiveMachine`] machine. A request is completed even if its caller disconnects.

pub(crate) mod command;
mod create;
pub(crate) mod handle;
pub(crate) mod live_machine;
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
pub(crate) use trial::remove as remove_trial;
pub(crate) use update::apply as apply_update;

use std::path::PathBuf;
use std::sync::Arc;

use burrow_catalog::{CatalogError, OperationRow, SandboxChange, SandboxRow};
use burrow_model::{Admission, OperationId, Request, State, admit};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::images::starting_points;
use crate::operations::journal::{Detail, Operation};
use crate::shared::Shared;
use crate::sleep::activity::Activity;
use crate::trees::held_trees;
use crate::{EngineError, Guest, egress};
use command::{Command, Reply, StateCommand};
use handle::{ActorHandle, RunningGeneration};
use live_machine::LiveMachine;

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
enum SandboxFate {
    Stays,
    Gone,
}

/// Starts the task of a sandbox that does not run, and registers it.
pub(crate) fn add(shared: &Arc<Shared>, row: SandboxRow) -> ActorHandle {
    shared.registry.keep(spawn(shared, row, None))
}

/// Starts the task of a sandbox, with the machine that it was found with.
pub(crate) fn spawn(shared: &Arc<Shared>, row: SandboxRow, live: Option<LiveMachine>) -> ActorHandle {
    let running_generation = RunningGeneration::default();
    let activity = Activity::new(shared.seams.clock.clone(), &row);
    let (handle, commands) = ActorHandle::new(&row, running_generation.clone(), activity.clone());
    let span = tracing::info_span!("sandbox", id = %row.id);
    let mut actor = Actor {
        shared: shared.clone(),
        row: Arc::new(row),
        live: None,
        watcher: None,
        running_generation,
        activity,
        inbox: commands,
        own_inbox: handle.weak_inbox(),
        _alive: shared.actor_guard(),
    };
    if let Some(live) = live {
        actor.watch(live);
    }
    // Ends with its sandbox, or when no handle is left. The shutdown waits for it, since it holds a guard.
    drop(tokio::spawn(actor.run().instrument(span)));
    handle
}

impl Actor {
    async fn run(mut self) {
        while let Some(command) = self.inbox.recv().await {
            if self.handle(command).await == SandboxFate::Gone {
                self.shared.registry.remove(&self.row.id);
                self.shared.egress.forget(&self.row.id);
                return;
            }
        }
    }

    async fn handle(&mut self, command: Command) -> SandboxFate {
        match command {
            Command::Create { idempotency, source, reply } => self.create(idempotency, source, reply).await,
            Command::Settled { reply } => self.answer(reply, Ok(())),
            Command::Use { mode, reply } => {
                let _ = reply.send(self.guest(mode).await);
                SandboxFate::Stays
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
                SandboxFate::Stays
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
                SandboxFate::Stays
            }
            Command::ApplyPolicy => {
                if self.live.is_some() {
                    egress::adopt(&self.shared, &self.row).await;
                } else {
                    // It receives its policy with its network when it starts.
                    self.shared.egress.settle(&self.row.id);
                }
                SandboxFate::Stays
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
                held_trees::settle(&self.shared, &self.row).await;
                let held = self.while_paused(held_trees::freeze(&self.shared, &self.row)).await;
                // If the receiver is gone, it is removed when it is dropped.
                let _ = reply.send(held);
            }
            StateCommand::StageImage { image, reply } => {
                let disks = &self.shared.seams.disks;
                let stage = disks.stage((&image).into(), Some((&self.row.id).into()));
                let staged = self.while_paused(async { Ok(stage.await?) }).await;
                let _ = reply.send(staged);
            }
            StateCommand::Merge { work, reply } => {
                let merged = self.merge(*work).await;
                let _ = reply.send(merged);
            }
        }
    }

    /// Copies the files of a sandbox while none of its processes writes. Without the pause, the copy may contain a file with a new name
    /// but not all of its content: the file system copies names that are younger than the data it has flushed. A machine with a disk of
    /// its own is not paused; see [`held_trees::settle`].
    async fn while_paused<T>(
        &self,
        copy: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let running = self.live.as_ref().filter(|_| self.row.state == State::Running);
        let Some(live) = running.filter(|live| live.runtime.own_disks().is_none()) else {
            return copy.await;
        };
        live.runtime.pause(&self.row.id).await?;
        let copied = copy.await;
        live.runtime.resume(&self.row.id).await?;
        copied
    }

    fn answer(&self, reply: Reply<SandboxRow>, result: Result<(), EngineError>) -> SandboxFate {
        let _ = reply.send(result.map(|()| SandboxRow::clone(&self.row)));
        SandboxFate::Stays
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
        change.apply(Arc::make_mut(&mut self.row));
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
