//! One task per sandbox: the only one who changes it.
//!
//! Requests wait in a bounded inbox and are carried out one after the other, so no two operations of one sandbox ever
//! meet. The task owns the row and, while the sandbox runs, its [`Live`] machine. A caller that goes away does not stop
//! what it asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use burrow_catalog::{CatalogError, Idempotency, Inserted, OperationRow, SandboxChange, SandboxRow};
use burrow_guest::protocol::Request as GuestRequest;
use burrow_model::{Admission, OperationId, Request, SandboxId, State, StopReason, TenantId, admit};
use burrow_network::Dial;
use burrow_runtime::{Machine, Runtime};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::engine::check_limits;
use crate::journal::{Operation, Resource};
use crate::operations::{bring_up, bring_up_ready, unwind};
use crate::shared::Shared;
use crate::stock::Ready;
use crate::{EngineError, Guest, UpdateOptions, egress, execs, faults, services, stock};

/// Requests of one sandbox that may wait. Two hundred execs at once must fit; a flood must not.
const INBOX_MAX: usize = 1024;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

#[derive(Debug)]
pub(crate) enum Command {
    /// Always the first: nobody else can know of the sandbox before it has made the row.
    Create {
        idempotency: Option<Idempotency>,
        /// What was made ahead under the sandbox's id.
        ready: Option<Box<Ready>>,
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
        reply: Reply<SandboxRow>,
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
    /// Its network policy could not be put in force when it was due.
    PutInForce,
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
}

#[derive(Debug)]
struct Actor {
    shared: Arc<Shared>,
    row: Arc<SandboxRow>,
    live: Option<Live>,
    watcher: Option<tokio::task::JoinHandle<()>>,
    pulse: Pulse,
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
    let handle = ActorHandle { id: row.id.clone(), tenant: row.tenant.clone(), inbox, pulse: pulse.clone() };
    let span = tracing::info_span!("sandbox", id = %row.id);
    let mut actor = Actor {
        shared: shared.clone(),
        row: Arc::new(row),
        live: None,
        watcher: None,
        pulse,
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
            Command::Create { idempotency, ready, reply } => self.create(idempotency, ready, reply).await,
            Command::Settled { reply } => self.answer(reply, Ok(())),
            Command::Use { reply } => {
                let guest = self.guest().await;
                let _ = reply.send(guest);
                Fate::Stays
            }
            Command::Start { reply } => {
                let result = self.start().await;
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
            Command::Update { update, reply } => {
                let result = self.update(*update).await;
                self.answer(reply, result)
            }
            Command::Delete { reply } => self.delete(Some(reply), "sandbox.deleted").await,
            Command::MachineEnded { generation } => self.machine_ended(generation).await,
            Command::Expire => self.expire().await,
            Command::PutInForce => {
                if self.live.is_some() {
                    egress::adopt(&self.shared, &self.row).await;
                }
                Fate::Stays
            }
        }
    }

    fn answer(&self, reply: Reply<SandboxRow>, result: Result<(), EngineError>) -> Fate {
        let _ = reply.send(result.map(|()| SandboxRow::clone(&self.row)));
        Fate::Stays
    }

    // === Create, start ===

    async fn create(
        &mut self,
        idempotency: Option<Idempotency>,
        ready: Option<Box<Ready>>,
        reply: Reply<Creation>,
    ) -> Fate {
        let created = match ready {
            Some(ready) => self.create_from_stock(*ready, idempotency.as_ref()).await,
            None => None,
        };
        let created = match created {
            Some(created) => created,
            None => self.create_anew(idempotency).await,
        };
        let (created, fate) = match created {
            Ok(Creation::Fresh(_)) => {
                self.event("sandbox.created", serde_json::json!({ "image": self.row.spec.image }));
                (created, Fate::Stays)
            }
            Ok(Creation::Repeated(_) | Creation::NameTaken(_)) => (created, Fate::Gone),
            // What could not be undone stays, for a delete or the next start to finish.
            Err(_) if self.row.state == State::Failed => (created, Fate::Stays),
            Err(_) => (created, Fate::Gone),
        };
        let _ = reply.send(created);
        fate
    }

    /// Journals the create, then makes all that the sandbox needs.
    async fn create_anew(&mut self, idempotency: Option<Idempotency>) -> Result<Creation, EngineError> {
        let operation = Operation::Create.row(&self.row.tenant, &self.row.id, self.row.created_ms);
        let row = SandboxRow::clone(&self.row);
        let catalog = &self.shared.seams.catalog;
        match catalog.insert_sandbox_with_operation(row, operation.clone(), idempotency).await {
            Ok(Inserted::New) => {}
            Ok(Inserted::Existing(existing)) => return Ok(Creation::Repeated(existing)),
            Err(CatalogError::NameTaken { existing }) => return Ok(Creation::NameTaken(existing)),
            Err(error) => return Err(error.into()),
        }
        match self.try_create(&operation.id).await {
            Ok(()) => Ok(self.fresh()),
            Err(error) => {
                self.undo_create(Some(&operation.id), &error).await;
                Err(error)
            }
        }
    }

    /// Makes a sandbox of what was made ahead. One commit is enough: until it, what there is is named by its row in
    /// stock, which a crash would have removed; from it on, by the sandbox's, which says `running`. `None`: what was
    /// made ahead was of no use, and is gone.
    async fn create_from_stock(
        &mut self,
        ready: Ready,
        idempotency: Option<&Idempotency>,
    ) -> Option<Result<Creation, EngineError>> {
        let taken = async {
            let live = bring_up_ready(&self.shared, &self.row, ready).await?;
            faults::hit("create.taken")?;
            Ok::<_, EngineError>(live)
        };
        let live = match taken.await {
            Ok(live) => live,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "what was made ahead is of no use");
                stock::discard_id(&self.shared, &self.row.id).await;
                return None;
            }
        };
        let change = self.running(&live);
        let mut row = SandboxRow::clone(&self.row);
        follow(&mut row, change);
        let catalog = &self.shared.seams.catalog;
        let refused = match catalog.insert_running_sandbox(row.clone(), idempotency.cloned()).await {
            Ok(Inserted::New) => {
                self.row = Arc::new(row);
                self.watch(live);
                return Some(self.claimed().await);
            }
            Ok(Inserted::Existing(existing)) => Ok(Creation::Repeated(existing)),
            Err(CatalogError::NameTaken { existing }) => Ok(Creation::NameTaken(existing)),
            Err(error) => Err(error.into()),
        };
        stock::discard_id(&self.shared, &self.row.id).await;
        Some(refused)
    }

    async fn claimed(&mut self) -> Result<Creation, EngineError> {
        match faults::hit("create.claimed") {
            Ok(()) => Ok(self.fresh()),
            Err(error) => {
                self.undo_create(None, &error).await;
                Err(error)
            }
        }
    }

    fn fresh(&self) -> Creation {
        Creation::Fresh(Box::new(SandboxRow::clone(&self.row)))
    }

    async fn try_create(&mut self, operation: &OperationId) -> Result<(), EngineError> {
        faults::hit("create.begun")?;
        let disk_bytes = u64::from(self.row.spec.limits.disk_mib) * burrow_model::MIB;
        let root = self.shared.seams.volumes.create(&self.row.id, &self.row.image, disk_bytes).await?;
        faults::hit("create.volume")?;
        let live = bring_up(&self.shared, &self.row, root, Operation::Create).await?;
        self.settle_running(operation, live).await?;
        faults::hit("create.settled")
    }

    /// Leaves the sandbox `failed` where that does not work.
    async fn undo_create(&mut self, operation: Option<&OperationId>, error: &EngineError) {
        tracing::warn!(error = error as &dyn std::error::Error, "could not create the sandbox; undoing");
        self.unwatch();
        let undone = async {
            unwind(&self.shared, &self.row, Operation::Create, &mut |_| Ok(())).await?;
            Ok::<_, EngineError>(
                self.shared
                    .seams
                    .catalog
                    .delete_sandbox(&self.row.id, operation.cloned(), self.shared.now_ms())
                    .await?,
            )
        };
        if let Err(undo_error) = undone.await {
            // The operation stays in the journal: a delete now, or the next start, finishes the undoing.
            tracing::error!(error = &undo_error as &dyn std::error::Error, "could not undo a failed create");
            self.note(SandboxChange { state: Some(State::Failed), ..self.change() });
        }
    }

    async fn start(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Start, "start")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume if self.row.state == State::Paused => {
                self.do_resume().await
            }
            Admission::Now | Admission::AfterResume => self.do_start().await,
        }
    }

    async fn do_start(&mut self) -> Result<(), EngineError> {
        let root = self.shared.seams.volumes.locate(&self.row.id).await?;
        let operation = self.begin(Operation::Start, State::Starting).await?;
        let started = async {
            faults::hit("start.begun")?;
            bring_up(&self.shared, &self.row, root, Operation::Start).await
        };
        match started.await {
            Ok(live) => {
                self.settle_running(&operation.id, live).await?;
                faults::hit("start.settled")?;
                self.event("sandbox.started", serde_json::json!({}));
                Ok(())
            }
            Err(error) => {
                unwind(&self.shared, &self.row, Operation::Start, &mut |_| Ok(())).await?;
                let failure = Some(Some(error.to_string()));
                let change = SandboxChange { state: Some(State::Failed), failure, ..self.change() };
                self.store(change, Some(operation.id)).await?;
                Err(error)
            }
        }
    }

    async fn settle_running(&mut self, operation: &OperationId, live: Live) -> Result<(), EngineError> {
        self.store(self.running(&live), Some(operation.clone())).await?;
        self.watch(live);
        Ok(())
    }

    fn running(&self, live: &Live) -> SandboxChange {
        let machine = serde_json::to_value(&live.machine).expect("a machine is JSON");
        SandboxChange {
            state: Some(State::Running),
            stop_reason: Some(None),
            failure: Some(None),
            machine: Some(Some(machine)),
            started_ms: Some(Some(self.shared.now_ms())),
            generation: Some(self.row.generation + 1),
            ..self.change()
        }
    }

    // === Stop, delete ===

    async fn stop_or_remove(&mut self, grace: Duration, reply: Reply<SandboxRow>) -> Fate {
        match self.admit(Request::Stop, "stop") {
            Ok(Admission::Already) => self.answer(reply, Ok(())),
            Ok(Admission::Now | Admission::AfterResume) => {
                self.shut_down_guest(grace).await;
                if self.row.spec.lifetime.is_ephemeral() {
                    return self.delete(Some(reply), "sandbox.deleted").await;
                }
                let result = self.stop(StopReason::Requested).await;
                self.answer(reply, result)
            }
            Err(error) => self.answer(reply, Err(error)),
        }
    }

    /// Lets processes end by themselves. Whatever fails here, the machine is ended next anyway.
    async fn shut_down_guest(&mut self, grace: Duration) {
        if self.row.state == State::Paused
            && let Err(error) = self.do_resume().await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not resume the sandbox to stop it"
            );
            return;
        }
        let Ok(guest) = self.guest().await else { return };
        execs::settle(&self.shared, &guest).await;
        self.unwatch();
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let bound = grace + Duration::from_secs(5);
        if let Err(error) = guest.call_within::<()>(bound, &GuestRequest::Shutdown { grace_ms }).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the guest did not shut down by itself");
        }
    }

    async fn stop(&mut self, reason: StopReason) -> Result<(), EngineError> {
        let operation = self.begin(Operation::Stop, State::Stopping).await?;
        faults::hit("stop.begun")?;
        self.unwatch();
        unwind(&self.shared, &self.row, Operation::Stop, &mut |resource| match resource {
            Resource::Machine => faults::hit("stop.machine"),
            Resource::Network => faults::hit("stop.network"),
            Resource::Volume => Ok(()),
        })
        .await?;
        // A stopped sandbox has no machine: an update must not look for one to enforce its limits on.
        self.live = None;
        let change = SandboxChange {
            state: Some(State::Stopped),
            stop_reason: Some(Some(reason)),
            machine: Some(None),
            stopped_ms: Some(Some(self.shared.now_ms())),
            ..self.change()
        };
        self.store(change, Some(operation.id)).await?;
        self.shared
            .seams
            .catalog
            .mark_execs_lost(&self.row.id, self.row.generation, self.shared.now_ms())
            .await?;
        faults::hit("stop.settled")?;
        self.event("sandbox.stopped", serde_json::json!({ "reason": reason }));
        Ok(())
    }

    async fn delete(&mut self, reply: Option<Reply<SandboxRow>>, event: &'static str) -> Fate {
        let result = self.try_delete().await;
        let fate = if result.is_ok() { Fate::Gone } else { Fate::Stays };
        match &result {
            Ok(()) => self.event(event, serde_json::json!({ "name": self.row.name })),
            Err(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "could not delete the sandbox");
            }
        }
        if let Some(reply) = reply {
            let _ = reply.send(result.map(|()| SandboxRow::clone(&self.row)));
        }
        fate
    }

    async fn try_delete(&mut self) -> Result<(), EngineError> {
        self.admit(Request::Delete, "delete")?;
        let operation = self.begin(Operation::Delete, State::Deleting).await?;
        faults::hit("delete.begun")?;
        self.unwatch();
        unwind(&self.shared, &self.row, Operation::Delete, &mut |resource| match resource {
            Resource::Machine => faults::hit("delete.machine"),
            Resource::Network => faults::hit("delete.network"),
            Resource::Volume => faults::hit("delete.volume"),
        })
        .await?;
        self.shared
            .seams
            .catalog
            .delete_sandbox(&self.row.id, Some(operation.id), self.shared.now_ms())
            .await?;
        faults::hit("delete.settled")
    }

    async fn machine_ended(&mut self, generation: u64) -> Fate {
        if self.row.generation != generation || self.live.is_none() {
            return Fate::Stays;
        }
        tracing::info!("the sandbox's machine ended by itself");
        if self.row.spec.lifetime.is_ephemeral() {
            return self.delete(None, "sandbox.deleted").await;
        }
        if let Err(error) = self.stop(StopReason::GuestExited).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "could not settle a machine that ended"
            );
        }
        Fate::Stays
    }

    async fn expire(&mut self) -> Fate {
        let due =
            self.row.spec.lifetime.expires_ms().is_some_and(|expires_ms| expires_ms <= self.shared.now_ms());
        if due { self.delete(None, "sandbox.expired").await } else { Fate::Stays }
    }

    // === Pause, resume, use ===

    async fn pause(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Pause, "pause")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume => {
                self.live()?.runtime.pause(&self.row.id).await?;
                let change = SandboxChange { state: Some(State::Paused), ..self.change() };
                if let Err(error) = self.store(change, None).await {
                    // Not written down is not paused: a crash would otherwise bring back another state than answered.
                    self.live()?.runtime.resume(&self.row.id).await?;
                    return Err(error);
                }
                self.event("sandbox.paused", serde_json::json!({}));
                Ok(())
            }
        }
    }

    async fn resume(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Resume, "resume")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume => self.do_resume().await,
        }
    }

    async fn do_resume(&mut self) -> Result<(), EngineError> {
        self.store(SandboxChange { state: Some(State::Running), ..self.change() }, None).await?;
        if let Err(error) = self.live()?.runtime.resume(&self.row.id).await {
            self.store(SandboxChange { state: Some(State::Paused), ..self.change() }, None).await?;
            return Err(error.into());
        }
        self.event("sandbox.resumed", serde_json::json!({}));
        Ok(())
    }

    async fn guest(&mut self) -> Result<Guest, EngineError> {
        match self.admit(Request::Use, "use")? {
            Admission::AfterResume => self.do_resume().await?,
            Admission::Now | Admission::Already => {}
        }
        Ok(Guest { row: self.row.clone(), dial: self.live()?.dial.clone() })
    }

    // === Update ===

    async fn update(&mut self, update: UpdateOptions) -> Result<(), EngineError> {
        self.admit(Request::Update, "update")?;
        let mut next = SandboxRow::clone(&self.row);
        apply(&mut next, &update);
        if let Some(change) = &update.network {
            next.spec.network = change.apply(&next.spec.network)?;
            self.shared.policy.egress.check(&next.spec.network)?;
        }
        check_limits(&next.spec.limits, &self.shared.policy.limits_max)?;
        let before = self.row.clone();
        let change =
            SandboxChange { name: update.name.map(Some), spec: Some(next.spec.clone()), ..self.change() };
        let changed = async {
            self.enforce(&before, &next).await?;
            self.store(change, None).await
        };
        if let Err(error) = changed.await {
            if let Err(error) = self.enforce(&next, &before).await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not take back a failed update"
                );
            }
            return Err(error);
        }
        self.event("sandbox.updated", serde_json::json!({}));
        if before.spec.network != self.row.spec.network && self.live.is_some() {
            // Durable first: what is in force is never more than what is written down.
            egress::follow(&self.shared, &self.row).await?;
        }
        Ok(())
    }

    /// Makes the host and the guest follow a new specification.
    async fn enforce(&self, before: &SandboxRow, after: &SandboxRow) -> Result<(), EngineError> {
        let (old, new) = (&before.spec, &after.spec);
        if old.limits.disk_mib != new.limits.disk_mib {
            let disk_bytes = u64::from(new.limits.disk_mib) * burrow_model::MIB;
            self.shared.seams.volumes.set_quota(&self.row.id, disk_bytes).await?;
        }
        let Some(live) = &self.live else { return Ok(()) };
        if old.limits != new.limits {
            live.runtime.set_limits(&self.row.id, &new.limits).await?;
        }
        if self.row.state != State::Running {
            // A frozen guest cannot answer; it is told when it is started next.
            return Ok(());
        }
        let guest = Guest { row: self.row.clone(), dial: live.dial.clone() };
        if old.limits.ram_mib != new.limits.ram_mib {
            let ram_bytes = u64::from(new.limits.ram_mib) * burrow_model::MIB;
            guest.call::<()>(&GuestRequest::SetRam { ram_bytes }).await?;
        }
        if old.services != new.services {
            let image = self.shared.image_config(&self.row.tenant, &self.row.image).await?;
            let services = services::for_guest(after, &image);
            guest.call::<()>(&GuestRequest::SetServices { services }).await?;
        }
        Ok(())
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

    fn change(&self) -> SandboxChange {
        SandboxChange::at(self.shared.now_ms())
    }

    /// Makes an operation and the state it leads through durable, before any resource is touched.
    async fn begin(&mut self, operation: Operation, state: State) -> Result<OperationRow, EngineError> {
        let row = operation.row(&self.row.tenant, &self.row.id, self.shared.now_ms());
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
}

fn apply(row: &mut SandboxRow, update: &UpdateOptions) {
    row.spec.limits = update.limits.apply(row.spec.limits);
    merge(&mut row.spec.labels, &update.labels);
    merge(&mut row.spec.env, &update.env);
    merge(&mut row.spec.services, &update.services);
}

/// Sets what has a value and removes what has none.
fn merge<K: Ord + Clone, V: Clone>(
    into: &mut std::collections::BTreeMap<K, V>,
    changes: &std::collections::BTreeMap<K, Option<V>>,
) {
    for (key, value) in changes {
        match value {
            Some(value) => into.insert(key.clone(), value.clone()),
            None => into.remove(key),
        };
    }
}
