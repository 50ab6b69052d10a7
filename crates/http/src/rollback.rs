//! Execs with a snapshot that is taken just before them, and the rollback to it if they fail.
//!
//! ```text
//!   wake ─► snapshot ─► exec ─► its output reaches its readers ─► exit 0: nothing to undo
//!                                                              └─► else: restore in place, without a trace
//! ```
//!
//! The rollback runs in a separate task, so a client that disconnects does not leave the effects of a failed command
//! behind. A restore also resets the agent, which holds the output: so the task waits for a while until the clients have
//! read the output.
//!
//! The promise of a rollback is recorded in the catalog before the exec runs, and the next daemon keeps it ([`resume`]): it
//! waits for an exec that still runs, and rolls back one that has failed in the meantime or was interrupted by a restart of
//! the host.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use burrow_api::{Exec, ExecOutcome, Rollback, RollbackState};
use burrow_engine::{EngineError, OpenPromise, Promise, SnapshotOptions};
use burrow_model::{
    DESCRIPTION_LENGTH_MAX, ExecId, SandboxId, SnapshotId, SnapshotKind, State, StopReason, TenantId,
};
use tokio::sync::watch;

use crate::app::App;
use crate::convert;
use crate::error::ApiError;

/// Execs whose rollback state is kept; for older ones only the snapshot itself remains.
const REMEMBERED_MAX: usize = 1_000;

/// A client that streams an exec requests its output as soon as it knows the id; the guest keeps it for as long. Short in
/// tests.
const FIRST_READER_PATIENCE: Duration =
    if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(30) };

/// Readers of the output of a failed exec delay its rollback by at most this.
const READERS_PATIENCE: Duration = Duration::from_secs(60);

/// The duration of one wait for the end of an exec, which is repeated until it has ended.
const WAIT: Duration = Duration::from_secs(60);

/// Interval between checks of a sandbox that sleeps, or whose guest does not respond.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Failed requests to a running sandbox's guest before the exec is given up.
const UNKNOWN_MAX: u32 = 30;

/// The kind of snapshot that an exec requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackMode {
    Nothing,
    /// A snapshot that is kept.
    Snapshot,
    /// A rollback on failure. `keep`: the snapshot is kept in any case.
    Rollback {
        keep: bool,
    },
}

impl RollbackMode {
    pub fn of(request: &burrow_api::CreateExec) -> Result<Self, ApiError> {
        match (request.snapshot, request.rollback_on_failure) {
            (false, false) => return Ok(Self::Nothing),
            (true, false) => return Ok(Self::Snapshot),
            (_, true) => {}
        }
        if !request.wait && !request.hold {
            let message =
                "`rollback_on_failure` needs a client that waits for the exec: set `wait` or `hold`";
            return Err(ApiError::invalid(message)
                .hint("to roll back a detached exec manually, set `snapshot`, and restore that snapshot"));
        }
        if request.then_stop {
            return Err(ApiError::invalid("`then_stop` and `rollback_on_failure` cannot be combined"));
        }
        Ok(Self::Rollback { keep: request.snapshot })
    }
}

/// The newest execs of this daemon that have a snapshot.
#[derive(Debug, Default)]
pub struct Rollbacks {
    known: Mutex<RollbackGuards>,
}

#[derive(Debug, Default)]
struct RollbackGuards {
    by_exec: HashMap<ExecId, Arc<RollbackGuard>>,
    order: VecDeque<ExecId>,
}

/// An exec with a snapshot that was taken before it.
#[derive(Debug)]
pub struct RollbackGuard {
    tenant: TenantId,
    sandbox: SandboxId,
    snapshot: SnapshotId,
    keep: bool,
    /// Set once the exec has started.
    exec: OnceLock<ExecId>,
    now: watch::Sender<RollbackStatus>,
    readers: watch::Sender<Readers>,
}

/// The clients that stream the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Readers {
    /// Readers that have not reached the end.
    now: usize,
    /// Whether there was a reader, or none is needed.
    ever: bool,
}

/// The state that is reported with the exec.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RollbackStatus {
    /// Whether the snapshot exists.
    kept: bool,
    rollback: Option<Rollback>,
}

impl Rollbacks {
    fn known(&self) -> MutexGuard<'_, RollbackGuards> {
        // Entries are changed as a whole, so the state is consistent even after a panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, exec: ExecId, guarded: Arc<RollbackGuard>) {
        let mut known = self.known();
        if known.order.len() >= REMEMBERED_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            // An open promise is kept by its task, which holds its own reference.
            known.by_exec.remove(&oldest);
        }
        known.order.push_back(exec.clone());
        known.by_exec.insert(exec, guarded);
    }

    fn find(&self, exec: &str) -> Option<Arc<RollbackGuard>> {
        let exec: ExecId = exec.parse().ok()?;
        self.known().by_exec.get(&exec).cloned()
    }

    /// The guard of an exec, if it has one.
    pub fn guarded(&self, exec: &ExecId) -> Option<Arc<RollbackGuard>> {
        self.find(exec.as_str())
    }

    /// Registers a client that will read the output of an exec to its end. Must be called before the exec may run.
    pub fn reader(&self, exec: &ExecId) -> Option<Reader> {
        let guarded = self.find(exec.as_str())?;
        guarded.readers.send_modify(|readers| *readers = Readers { now: readers.now + 1, ever: true });
        Some(Reader { guarded })
    }

    /// Adds to an exec the state of its snapshot.
    pub fn with_status(&self, exec: Exec) -> Exec {
        match self.find(&exec.id) {
            Some(guarded) => guarded.with_status(exec),
            None => exec,
        }
    }
}

/// Delays the rollback of an exec until it is dropped.
#[derive(Debug)]
pub struct Reader {
    guarded: Arc<RollbackGuard>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.guarded.readers.send_modify(|readers| readers.now = readers.now.saturating_sub(1));
    }
}

/// The final state of an exec whose output was read to its end: returns after the rollback, if there is one.
pub async fn final_exec(app: &App, reader: Option<Reader>, exec: Exec) -> Exec {
    let Some(reader) = reader else { return exec };
    let guarded = reader.guarded.clone();
    drop(reader);
    // If the daemon shuts down, the state remains `pending`.
    let _ = app.draining.run_until_cancelled(guarded.settled()).await;
    guarded.with_status(exec)
}

impl RollbackGuard {
    /// Wakes the sandbox and takes the snapshot. If the sandbox cannot be used, no snapshot is taken.
    pub async fn take(
        app: &App,
        tenant: &TenantId,
        sandbox: &SandboxId,
        argv: &[String],
        wish: RollbackMode,
    ) -> Result<Option<Arc<Self>>, ApiError> {
        let (keep, rollback) = match wish {
            RollbackMode::Nothing => return Ok(None),
            RollbackMode::Snapshot => (true, None),
            RollbackMode::Rollback { keep } => (keep, Some(in_state(RollbackState::Pending))),
        };
        app.engine.guest(tenant, sandbox).await?;
        let options = SnapshotOptions {
            description: description(argv),
            ..SnapshotOptions::automatic(SnapshotKind::Exec, false)
        };
        let (engine, owner, id) = (app.engine.clone(), tenant.clone(), sandbox.clone());
        let snapshot =
            app.carry_out(async move { Ok(engine.snapshot(&owner, &id, options).await?) }).await?.id;
        Ok(Some(Arc::new(Self {
            tenant: tenant.clone(),
            sandbox: sandbox.clone(),
            snapshot,
            keep,
            exec: OnceLock::new(),
            now: watch::Sender::new(RollbackStatus { kept: true, rollback }),
            readers: watch::Sender::default(),
        })))
    }

    /// The promise of a rollback, if there is one. Must be durable before the exec runs.
    pub fn promise(&self) -> Option<Promise> {
        self.promised().then(|| Promise { snapshot: self.snapshot.clone(), keep: self.keep, undoing: None })
    }

    /// Registers the exec, which is running now.
    pub fn began(self: &Arc<Self>, app: &App, exec: &ExecId) {
        let _ = self.exec.set(exec.clone());
        app.rollbacks.remember(exec.clone(), self.clone());
    }

    /// The exec did not start, so no rollback is needed.
    pub async fn not_needed(&self, app: &App) {
        self.remove_snapshot(app).await;
    }

    fn promised(&self) -> bool {
        self.now.borrow().rollback.is_some()
    }

    fn with_status(&self, mut exec: Exec) -> Exec {
        let now = self.now.borrow();
        exec.snapshot = now.kept.then(|| self.snapshot.to_string());
        exec.rollback.clone_from(&now.rollback);
        exec
    }

    /// Waits until the exec has succeeded, or its rollback has ended.
    pub async fn settled(&self) {
        let open = |now: &RollbackStatus| {
            now.rollback.as_ref().is_some_and(|rollback| rollback.state == RollbackState::Pending)
        };
        // The sender lives as long as `self`, so there is no error.
        let _ = self.now.subscribe().wait_for(|now| !open(now)).await;
    }

    /// Starts a task that waits for the end of a streamed exec and keeps its promise.
    pub fn keep_promise(self: &Arc<Self>, app: &Arc<App>, exec: ExecId) {
        if !self.promised() {
            return;
        }
        let (guarded, work_app) = (self.clone(), app.clone());
        app.tasks.spawn(async move {
            let ended = work_app.draining.run_until_cancelled(guarded.end_of(&work_app, &exec)).await;
            match ended {
                None => tracing::info!(%exec, "the next daemon rolls this exec back if it fails"),
                Some(Ok(success)) => guarded.settle(&work_app, success).await,
                Some(Err(error)) => guarded.give_up(&work_app, error).await,
            }
        });
    }

    /// Whether the exec succeeded, once it has ended. It cannot end while its sandbox sleeps.
    async fn end_of(&self, app: &App, exec: &ExecId) -> Result<bool, ApiError> {
        let mut unknown = 0;
        loop {
            if let Ok(record) = app.engine.wait_exec(&self.tenant, &self.sandbox, exec, WAIT).await {
                let heard = record.info.is_some();
                let now = convert::exec(record);
                match now.state {
                    burrow_api::ExecState::Ended => return Ok(now.outcome.as_ref().is_some_and(went_well)),
                    burrow_api::ExecState::Running if heard => {
                        unknown = 0;
                        continue;
                    }
                    // `Lost` while its sandbox is restored to a snapshot that contains it: it may run again.
                    burrow_api::ExecState::Running | burrow_api::ExecState::Lost => {}
                }
            }
            // The sandbox sleeps or is gone, or its guest does not respond or does not know the exec: its row tells which.
            match app.engine.get(&self.tenant, &self.sandbox).await?.state {
                State::Running => unknown += 1,
                State::Paused | State::Hibernating | State::Hibernated | State::Waking | State::Restoring => {
                    unknown = 0
                }
                State::Creating
                | State::Starting
                | State::Stopping
                | State::Stopped
                | State::Deleting
                | State::Failed => return Err(self.lost(exec)),
            }
            if unknown > UNKNOWN_MAX {
                return Err(self.lost(exec));
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn lost(&self, exec: &ExecId) -> ApiError {
        EngineError::ExecNotFound { what: exec.to_string(), sandbox: self.sandbox.clone() }.into()
    }

    /// Rolls a failed exec back, once its output was read. After a success, removes the snapshot.
    pub async fn settle(&self, app: &App, success: bool) {
        if !self.promised() {
            return;
        }
        if success {
            self.drop_snapshot(app).await;
            self.kept_promise(app).await;
            return self.set_state(RollbackState::Unneeded, None, None);
        }
        // The shutdown of the daemon ends the streams too.
        let _ = app.draining.run_until_cancelled(self.wait_for_readers()).await;
        if let (Some(exec), Some(promise)) = (self.exec.get(), self.promise())
            && let Err(error) = app.engine.begin_rollback(&self.tenant, &self.sandbox, exec, &promise).await
        {
            return self.give_up(app, error.into()).await;
        }
        let (engine, tenant) = (app.engine.clone(), self.tenant.clone());
        let (sandbox, snapshot) = (self.sandbox.clone(), self.snapshot.clone());
        // The promise is kept even where no trial restore is possible: the present processes are kept too.
        let restored = app
            .carry_out(async move { Ok(engine.restore_untried(&tenant, &sandbox, &snapshot).await?) })
            .await;
        match restored {
            Ok(restored) => {
                let removed = app.engine.delete_snapshot(&self.tenant, &restored.undo.id).await;
                let left = removed.is_err().then_some(restored.undo.id);
                self.drop_snapshot(app).await;
                self.kept_promise(app).await;
                self.set_state(RollbackState::Done, left, None);
            }
            Err(error) => self.give_up(app, error).await,
        }
    }

    /// The rollback failed; the snapshot is kept for a manual restore.
    async fn give_up(&self, app: &App, error: ApiError) {
        self.kept_promise(app).await;
        self.set_state(RollbackState::Failed, None, Some(error));
    }

    async fn kept_promise(&self, app: &App) {
        if let Some(exec) = self.exec.get()
            && let Err(error) = app.engine.remove_promise(exec).await
        {
            // The next start checks it again, and finds nothing to do.
            tracing::warn!(%exec, error = &error as &dyn std::error::Error, "could not record that a promised rollback was handled");
        }
    }

    /// Waits until the clients have read the output, or the time for that is over.
    async fn wait_for_readers(&self) {
        let mut readers = self.readers.subscribe();
        let _ = tokio::time::timeout(FIRST_READER_PATIENCE, readers.wait_for(|readers| readers.ever)).await;
        let _ = tokio::time::timeout(READERS_PATIENCE, readers.wait_for(|readers| readers.now == 0)).await;
    }

    /// Removes the snapshot, unless it was requested.
    async fn drop_snapshot(&self, app: &App) {
        if !self.keep {
            self.remove_snapshot(app).await;
        }
    }

    async fn remove_snapshot(&self, app: &App) {
        match app.engine.delete_snapshot(&self.tenant, &self.snapshot).await {
            Ok(()) => {
                self.now.send_modify(|now| now.kept = false);
            }
            // The response names it, so the client can remove it.
            Err(error) => {
                tracing::warn!(snapshot = %self.snapshot, %error, "could not remove an exec's snapshot")
            }
        }
    }

    fn set_state(&self, state: RollbackState, undo: Option<SnapshotId>, error: Option<ApiError>) {
        let rollback = Rollback {
            undo: undo.map(String::from),
            error: error.map(ApiError::into_detail),
            ..in_state(state)
        };
        self.now.send_modify(|now| now.rollback = Some(rollback));
    }

    /// The same for an exec that was waited for and whose output was read. Returns the final state.
    pub async fn finish(&self, app: &App, exec: Exec) -> Exec {
        self.readers.send_modify(|readers| readers.ever = true);
        self.settle(app, exec.outcome.as_ref().is_some_and(went_well)).await;
        self.with_status(exec)
    }
}

/// Keeps the open promises of earlier daemons.
pub async fn resume(app: &Arc<App>) {
    let open = match app.engine.open_promises().await {
        Ok(open) => open,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return tracing::error!(error, "could not list the execs with a promised rollback");
        }
    };
    for promised in open {
        let OpenPromise { tenant, sandbox, exec, generation, promise } = promised;
        tracing::info!(%exec, %sandbox, "an earlier daemon promised to roll this exec back if it fails");
        let guarded = Arc::new(RollbackGuard {
            tenant,
            sandbox,
            snapshot: promise.snapshot,
            keep: promise.keep,
            exec: OnceLock::new(),
            now: watch::Sender::new(RollbackStatus {
                kept: true,
                rollback: Some(in_state(RollbackState::Pending)),
            }),
            // The readers of the output were disconnected when that daemon ended.
            readers: watch::Sender::new(Readers { now: 0, ever: true }),
        });
        guarded.began(app, &exec);
        let work_app = app.clone();
        app.tasks.spawn(async move {
            let how = async {
                work_app.engine.recovered(&guarded.sandbox).await;
                guarded.fate(&work_app, &exec, generation, promise.undoing).await
            };
            match work_app.draining.run_until_cancelled(how).await {
                None => {}
                Some(Ok(ExecFate::Ended { success })) => guarded.settle(&work_app, success).await,
                Some(Ok(ExecFate::Restored)) => {
                    guarded.drop_snapshot(&work_app).await;
                    guarded.kept_promise(&work_app).await;
                    guarded.set_state(RollbackState::Done, None, None);
                }
                Some(Err(error)) => guarded.give_up(&work_app, error).await,
            }
        });
    }
}

/// What happened to an exec since its daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExecFate {
    Ended {
        success: bool,
    },
    /// Its sandbox was already restored: the start completed the operation.
    Restored,
}

impl RollbackGuard {
    async fn fate(
        &self,
        app: &App,
        exec: &ExecId,
        generation: u64,
        undoing: Option<u64>,
    ) -> Result<ExecFate, ApiError> {
        if let Some(before) = undoing {
            let row = app.engine.get(&self.tenant, &self.sandbox).await?;
            return Ok(if row.generation > before {
                ExecFate::Restored
            } else {
                ExecFate::Ended { success: false }
            });
        }
        match self.end_of(app, exec).await {
            Ok(success) => Ok(ExecFate::Ended { success }),
            Err(lost) => {
                let row = app.engine.get(&self.tenant, &self.sandbox).await?;
                let cut_short = row.stop_reason == Some(StopReason::HostRestarted);
                match row.state {
                    // It was interrupted by a restart of the host.
                    State::Stopped | State::Failed if cut_short => Ok(ExecFate::Ended { success: false }),
                    // The machine is the same but does not know the exec: the daemon ended before it sent the request.
                    State::Running if row.generation == generation => Ok(ExecFate::Ended { success: true }),
                    State::Running
                    | State::Paused
                    | State::Hibernating
                    | State::Hibernated
                    | State::Waking
                    | State::Restoring
                    | State::Creating
                    | State::Starting
                    | State::Stopping
                    | State::Stopped
                    | State::Deleting
                    | State::Failed => Err(lost),
                }
            }
        }
    }
}

fn went_well(outcome: &ExecOutcome) -> bool {
    outcome.exit_code == Some(0) && !outcome.timed_out
}

fn in_state(state: RollbackState) -> Rollback {
    Rollback { state, undo: None, error: None }
}

/// The description of the snapshot, cut to the maximum length.
fn description(argv: &[String]) -> String {
    let text = format!("before `{}`", argv.join(" "));
    let printable = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    printable.take(DESCRIPTION_LENGTH_MAX).collect()
}
