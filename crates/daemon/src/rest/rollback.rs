//! Execs with a snapshot taken just before them, and the way back to it when they fail.
//!
//! ```text
//!   wake ─► snapshot ─► exec ─► its output reaches its readers ─► exit 0: nothing to undo
//!                                                              └─► else: restore in place, without a trace
//! ```
//!
//! A promise to roll back is kept by a task of its own, so a client that hangs up does not leave half of a failed command
//! behind. Going back takes the agent back too, and with it the output it still holds: so the task waits until whoever
//! reads the output has read it, for a while.
//!
//! What is promised is written down before the exec runs, and taken up again by the daemon that comes after this one
//! ([`resume`]): an exec that still runs is waited for, one that failed meanwhile is undone, and so is one that was cut
//! short because the host went down.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use burrow_api::{Exec, ExecOutcome, Rollback, RollbackState};
use burrow_engine::{EngineError, OpenPromise, Promise, SnapshotOptions};
use burrow_model::{
    DESCRIPTION_LENGTH_MAX, ExecId, SandboxId, SnapshotId, SnapshotKind, State, StopReason, TenantId,
};
use tokio::sync::watch;

use super::App;
use super::error::ApiError;
use crate::convert;

/// Execs whose snapshot is remembered; of older ones only the snapshot itself is left.
const REMEMBERED_MAX: usize = 1_000;

/// Who streams an exec asks for its output as soon as it knows of it; the guest keeps it for as long. Tests cannot wait.
const FIRST_READER_PATIENCE: Duration =
    if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(30) };

/// Readers of the output of a failed exec hold its undoing up for this long at most.
const READERS_PATIENCE: Duration = Duration::from_secs(60);

/// One wait for the end of an exec; asked again until it has ended.
const WAIT: Duration = Duration::from_secs(60);

/// Between two looks at a sandbox that sleeps, or whose guest does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Looks at a running sandbox whose guest says nothing of the exec before it is given up.
const UNKNOWN_MAX: u32 = 30;

/// What an exec asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    /// A snapshot that stays.
    Snapshot,
    /// A way back if it fails; `keep`: the snapshot stays whatever comes.
    Rollback {
        keep: bool,
    },
}

impl Wish {
    pub(super) fn of(request: &burrow_api::CreateExec) -> Result<Self, ApiError> {
        match (request.snapshot, request.rollback_on_failure) {
            (false, false) => return Ok(Self::Nothing),
            (true, false) => return Ok(Self::Snapshot),
            (_, true) => {}
        }
        if !request.wait && !request.hold {
            let message =
                "`rollback_on_failure` needs somebody who waits for the exec: give `wait` or `hold`";
            return Err(ApiError::invalid(message)
                .hint("a detached exec can be undone by hand: give `snapshot`, and restore that"));
        }
        if request.then_stop {
            return Err(ApiError::invalid("give either `then_stop` or `rollback_on_failure`, not both"));
        }
        Ok(Self::Rollback { keep: request.snapshot })
    }
}

/// All execs of this daemon's that had a snapshot taken before them, the newest of them.
#[derive(Debug, Default)]
pub(crate) struct Rollbacks {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_exec: HashMap<ExecId, Arc<Guarded>>,
    order: VecDeque<ExecId>,
}

/// An exec with a snapshot before it.
#[derive(Debug)]
pub(crate) struct Guarded {
    tenant: TenantId,
    sandbox: SandboxId,
    snapshot: SnapshotId,
    keep: bool,
    /// Once it has begun.
    exec: OnceLock<ExecId>,
    now: watch::Sender<Now>,
    readers: watch::Sender<Readers>,
}

/// Streams of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Readers {
    /// Those that have not come to its end.
    now: usize,
    /// There was one, or none is needed.
    ever: bool,
}

/// What is to be told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Now {
    /// The snapshot is there.
    kept: bool,
    rollback: Option<Rollback>,
}

impl Rollbacks {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Changed by whole entries: a panic elsewhere leaves it true.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, exec: ExecId, guarded: Arc<Guarded>) {
        let mut known = self.known();
        if known.order.len() >= REMEMBERED_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            // A promise that is still open is kept by its task, which holds its own part of it.
            known.by_exec.remove(&oldest);
        }
        known.order.push_back(exec.clone());
        known.by_exec.insert(exec, guarded);
    }

    fn find(&self, exec: &str) -> Option<Arc<Guarded>> {
        let exec: ExecId = exec.parse().ok()?;
        self.known().by_exec.get(&exec).cloned()
    }

    /// The way back of an exec, if it has one.
    pub(super) fn guarded(&self, exec: &ExecId) -> Option<Arc<Guarded>> {
        self.find(exec.as_str())
    }

    /// For whoever is about to read the output of an exec to its end. To be taken before the exec may run.
    pub(super) fn reader(&self, exec: &ExecId) -> Option<Reader> {
        let guarded = self.find(exec.as_str())?;
        guarded.readers.send_modify(|readers| *readers = Readers { now: readers.now + 1, ever: true });
        Some(Reader { guarded })
    }

    /// An exec with what is known of its snapshot.
    pub(super) fn told(&self, exec: Exec) -> Exec {
        match self.find(&exec.id) {
            Some(guarded) => guarded.told(exec),
            None => exec,
        }
    }
}

/// Holds the undoing of an exec up until it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    guarded: Arc<Guarded>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.guarded.readers.send_modify(|readers| readers.now = readers.now.saturating_sub(1));
    }
}

/// The last word on an exec whose output has been read to its end: answers when it was undone, if it has to be.
pub(super) async fn last_word(app: &App, reader: Option<Reader>, exec: Exec) -> Exec {
    let Some(reader) = reader else { return exec };
    let guarded = reader.guarded.clone();
    drop(reader);
    // The end of the daemon leaves it `pending`.
    let _ = app.draining.run_until_cancelled(guarded.settled()).await;
    guarded.told(exec)
}

impl Guarded {
    /// Wakes the sandbox and takes the snapshot. What cannot be used is refused before anything is taken of it.
    pub(super) async fn take(
        app: &App,
        tenant: &TenantId,
        sandbox: &SandboxId,
        argv: &[String],
        wish: Wish,
    ) -> Result<Option<Arc<Self>>, ApiError> {
        let (keep, rollback) = match wish {
            Wish::Nothing => return Ok(None),
            Wish::Snapshot => (true, None),
            Wish::Rollback { keep } => (keep, Some(in_state(RollbackState::Pending))),
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
            now: watch::Sender::new(Now { kept: true, rollback }),
            readers: watch::Sender::default(),
        })))
    }

    /// What is promised, if anything is: to be durable before the exec runs.
    pub(super) fn promise(&self) -> Option<Promise> {
        self.promised().then(|| Promise { snapshot: self.snapshot.clone(), keep: self.keep, undoing: None })
    }

    /// The exec runs: from here on it is known.
    pub(super) fn began(self: &Arc<Self>, app: &App, exec: &ExecId) {
        let _ = self.exec.set(exec.clone());
        app.rollbacks.remember(exec.clone(), self.clone());
    }

    /// The exec did not even start, so nothing needs a way back.
    pub(super) async fn not_needed(&self, app: &App) {
        self.remove_snapshot(app).await;
    }

    fn promised(&self) -> bool {
        self.now.borrow().rollback.is_some()
    }

    fn told(&self, mut exec: Exec) -> Exec {
        let now = self.now.borrow();
        exec.snapshot = now.kept.then(|| self.snapshot.to_string());
        exec.rollback.clone_from(&now.rollback);
        exec
    }

    /// Until it is known whether it had to be undone, and it was.
    pub(super) async fn settled(&self) {
        let open = |now: &Now| {
            now.rollback.as_ref().is_some_and(|rollback| rollback.state == RollbackState::Pending)
        };
        // Its sender lives as long as we do, so there is no error.
        let _ = self.now.subscribe().wait_for(|now| !open(now)).await;
    }

    /// Keeps the promise of an exec that somebody streams: a task of its own, which waits for its end.
    pub(super) fn keep_promise(self: &Arc<Self>, app: &Arc<App>, exec: ExecId) {
        if !self.promised() {
            return;
        }
        let (guarded, work_app) = (self.clone(), app.clone());
        app.tasks.spawn(async move {
            let ended = work_app.draining.run_until_cancelled(guarded.end_of(&work_app, &exec)).await;
            match ended {
                None => tracing::info!(%exec, "left to the next start to undo if it fails"),
                Some(Ok(success)) => guarded.settle(&work_app, success).await,
                Some(Err(error)) => guarded.give_up(&work_app, error).await,
            }
        });
    }

    /// Whether it went well, once it has ended. While its sandbox sleeps it has not.
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
                    // Taken for lost while its sandbox goes back to a snapshot that it is in: it may run again.
                    burrow_api::ExecState::Running | burrow_api::ExecState::Lost => {}
                }
            }
            // It sleeps, it is gone, or its guest does not answer or does not know it any more: its row says which.
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
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn lost(&self, exec: &ExecId) -> ApiError {
        EngineError::ExecNotFound { what: exec.to_string(), sandbox: self.sandbox.clone() }.into()
    }

    /// Undoes what failed, once its output was read; of what went well the way back is removed.
    pub(super) async fn settle(&self, app: &App, success: bool) {
        if !self.promised() {
            return;
        }
        if success {
            self.let_go(app).await;
            self.kept_promise(app).await;
            return self.now_is(RollbackState::Unneeded, None, None);
        }
        // The end of the daemon ends the streams too.
        let _ = app.draining.run_until_cancelled(self.was_read()).await;
        if let (Some(exec), Some(promise)) = (self.exec.get(), self.promise())
            && let Err(error) = app.engine.begin_undoing(&self.tenant, &self.sandbox, exec, &promise).await
        {
            return self.give_up(app, error.into()).await;
        }
        let (engine, tenant) = (app.engine.clone(), self.tenant.clone());
        let (sandbox, snapshot) = (self.sandbox.clone(), self.snapshot.clone());
        let restored = app
            .carry_out(async move { Ok(engine.restore(&tenant, &sandbox, &snapshot, false).await?) })
            .await;
        match restored {
            Ok(restored) => {
                let removed = app.engine.delete_snapshot(&self.tenant, &restored.undo.id).await;
                let left = removed.is_err().then_some(restored.undo.id);
                self.let_go(app).await;
                self.kept_promise(app).await;
                self.now_is(RollbackState::Done, left, None);
            }
            Err(error) => self.give_up(app, error).await,
        }
    }

    /// It cannot be undone; the snapshot stays as the way back.
    async fn give_up(&self, app: &App, error: ApiError) {
        self.kept_promise(app).await;
        self.now_is(RollbackState::Failed, None, Some(error));
    }

    async fn kept_promise(&self, app: &App) {
        if let Some(exec) = self.exec.get()
            && let Err(error) = app.engine.promise_kept(exec).await
        {
            // The next start looks at it once more, and finds nothing to do.
            tracing::warn!(%exec, error = &error as &dyn std::error::Error, "could not note that a promise was kept");
        }
    }

    /// Whoever wants to read the output has read it, or had the time to.
    async fn was_read(&self) {
        let mut readers = self.readers.subscribe();
        let _ = tokio::time::timeout(FIRST_READER_PATIENCE, readers.wait_for(|readers| readers.ever)).await;
        let _ = tokio::time::timeout(READERS_PATIENCE, readers.wait_for(|readers| readers.now == 0)).await;
    }

    /// The snapshot has done its service, unless it was asked for.
    async fn let_go(&self, app: &App) {
        if !self.keep {
            self.remove_snapshot(app).await;
        }
    }

    async fn remove_snapshot(&self, app: &App) {
        match app.engine.delete_snapshot(&self.tenant, &self.snapshot).await {
            Ok(()) => {
                self.now.send_modify(|now| now.kept = false);
            }
            // It is named in the answer, so whoever asked can remove it.
            Err(error) => {
                tracing::warn!(snapshot = %self.snapshot, %error, "could not remove an exec's snapshot")
            }
        }
    }

    fn now_is(&self, state: RollbackState, undo: Option<SnapshotId>, error: Option<ApiError>) {
        let rollback = Rollback {
            undo: undo.map(String::from),
            error: error.map(ApiError::into_detail),
            ..in_state(state)
        };
        self.now.send_modify(|now| now.rollback = Some(rollback));
    }

    /// The same for an exec that is waited for, whose output has been read. Answers how it came out.
    pub(super) async fn finish(&self, app: &App, exec: Exec) -> Exec {
        self.readers.send_modify(|readers| readers.ever = true);
        self.settle(app, exec.outcome.as_ref().is_some_and(went_well)).await;
        self.told(exec)
    }
}

/// Takes up what earlier daemons promised and did not get to.
pub(crate) async fn resume(app: &Arc<App>) {
    let open = match app.engine.open_promises().await {
        Ok(open) => open,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return tracing::error!(error, "could not look for execs that are to be undone on failure");
        }
    };
    for promised in open {
        let OpenPromise { tenant, sandbox, exec, generation, promise } = promised;
        tracing::info!(%exec, %sandbox, "an earlier daemon promised to undo this exec if it fails");
        let guarded = Arc::new(Guarded {
            tenant,
            sandbox,
            snapshot: promise.snapshot,
            keep: promise.keep,
            exec: OnceLock::new(),
            now: watch::Sender::new(Now { kept: true, rollback: Some(in_state(RollbackState::Pending)) }),
            // Whoever read the output was cut off with that daemon.
            readers: watch::Sender::new(Readers { now: 0, ever: true }),
        });
        guarded.began(app, &exec);
        let work_app = app.clone();
        app.tasks.spawn(async move {
            let how = async {
                work_app.engine.recovered(&guarded.sandbox).await;
                guarded.come_to(&work_app, &exec, generation, promise.undoing).await
            };
            match work_app.draining.run_until_cancelled(how).await {
                None => {}
                Some(Ok(Came::Ended { success })) => guarded.settle(&work_app, success).await,
                Some(Ok(Came::Back)) => {
                    guarded.let_go(&work_app).await;
                    guarded.kept_promise(&work_app).await;
                    guarded.now_is(RollbackState::Done, None, None);
                }
                Some(Err(error)) => guarded.give_up(&work_app, error).await,
            }
        });
    }
}

/// What became of an exec since the daemon that promised something of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Ended {
        success: bool,
    },
    /// Its sandbox is back already: the start finished what was under way.
    Back,
}

impl Guarded {
    async fn come_to(
        &self,
        app: &App,
        exec: &ExecId,
        generation: u64,
        undoing: Option<u64>,
    ) -> Result<Came, ApiError> {
        if let Some(before) = undoing {
            let row = app.engine.get(&self.tenant, &self.sandbox).await?;
            return Ok(if row.generation > before { Came::Back } else { Came::Ended { success: false } });
        }
        match self.end_of(app, exec).await {
            Ok(success) => Ok(Came::Ended { success }),
            Err(lost) => {
                let row = app.engine.get(&self.tenant, &self.sandbox).await?;
                let cut_short = row.stop_reason == Some(StopReason::HostRestarted);
                match row.state {
                    // It went down with the host.
                    State::Stopped | State::Failed if cut_short => Ok(Came::Ended { success: false }),
                    // The same machine, which never heard of it: the daemon ended before it asked.
                    State::Running if row.generation == generation => Ok(Came::Ended { success: true }),
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

/// What the snapshot was taken for, cut to what fits.
fn description(argv: &[String]) -> String {
    let text = format!("before `{}`", argv.join(" "));
    let printable = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    printable.take(DESCRIPTION_LENGTH_MAX).collect()
}
