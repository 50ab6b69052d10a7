//! The snapshot before an exec, and the rollback to it if the exec fails.
//!
//! ```text
//!   wake ─► snapshot ─► exec ─► its output reaches its readers ─► exit 0: nothing to undo
//!                                                              └─► else: restore in place, without a trace
//! ```
//!
//! The rollback runs in a separate task, so a client that disconnects does not leave the effects of a failed command
//! behind. A restore also resets the agent, which holds the output: so the task waits for a while until the clients have
//! read the output.

use std::sync::Arc;
use std::time::Duration;

use burrow_guest::protocol::ExecOutcome;
use burrow_model::{DESCRIPTION_LENGTH_MAX, ExecId, SandboxId, SnapshotKind, State, TenantId};
use tokio::sync::watch;

use super::rollback_promises::{OpenPromise, RollbackPromise};
use super::rollbacks::{Readers, Rollback, RollbackGuard, RollbackMode, RollbackStatus};
use crate::{Engine, EngineError, SnapshotOptions};

/// The duration of one wait for the end of an exec, which is repeated until it has ended.
const WAIT: Duration = Duration::from_secs(60);

/// Interval between checks of a sandbox that sleeps, or whose guest does not respond.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Failed requests to a running sandbox's guest before the exec is given up.
const UNKNOWN_MAX: u32 = 30;

impl RollbackGuard {
    /// Wakes the sandbox and takes the snapshot. If the sandbox cannot be used, no snapshot is taken.
    pub(super) async fn take(
        engine: &Engine,
        (tenant, sandbox, exec): (&TenantId, &SandboxId, &ExecId),
        argv: &[String],
        mode: RollbackMode,
    ) -> Result<Option<Arc<Self>>, EngineError> {
        let (keep, rollback) = match mode {
            RollbackMode::Nothing => return Ok(None),
            RollbackMode::Snapshot => (true, None),
            RollbackMode::Rollback { keep } => (keep, Some(Rollback::Pending)),
        };
        engine.guest(tenant, sandbox).await?;
        let options = SnapshotOptions {
            description: description(argv),
            ..SnapshotOptions::automatic(SnapshotKind::Exec, false)
        };
        let taken = engine.snapshot(tenant, sandbox, options);
        let snapshot = engine.shared.background.operations.track_future(taken).await?.id;
        Ok(Some(Arc::new(Self {
            tenant: tenant.clone(),
            sandbox: sandbox.clone(),
            exec: exec.clone(),
            status: watch::Sender::new(RollbackStatus { snapshot: Some(snapshot.clone()), rollback }),
            snapshot,
            keep,
            readers: watch::Sender::default(),
        })))
    }

    /// The guard of an exec that an earlier daemon started.
    pub(super) fn resumed(open: OpenPromise) -> Arc<Self> {
        let OpenPromise { tenant, sandbox, exec, promise, .. } = open;
        let snapshot = Some(promise.snapshot.clone());
        Arc::new(Self {
            tenant,
            sandbox,
            exec,
            snapshot: promise.snapshot,
            keep: promise.keep,
            status: watch::Sender::new(RollbackStatus { snapshot, rollback: Some(Rollback::Pending) }),
            // The readers of the output were disconnected when that daemon ended.
            readers: watch::Sender::new(Readers { now: 0, ever: true }),
        })
    }

    /// The promise of a rollback, if there is one. Must be durable before the exec runs.
    pub(super) fn promise(&self) -> Option<RollbackPromise> {
        let promised = self.status.borrow().rollback.is_some();
        promised.then(|| RollbackPromise { snapshot: self.snapshot.clone(), keep: self.keep, undoing: None })
    }

    /// The exec is running now: registers it, and starts the task that keeps its promise.
    pub(super) fn began(self: &Arc<Self>, engine: &Engine) {
        engine.shared.rollbacks.add(self);
        if self.promise().is_none() {
            return;
        }
        let (guard, engine) = (self.clone(), engine.clone());
        engine.shared.background.tasks.clone().spawn(async move {
            let ended = engine.shared.background.draining.run_until_cancelled(guard.end(&engine)).await;
            match ended {
                None => {
                    tracing::info!(exec = %guard.exec, "the next daemon rolls this exec back if it fails")
                }
                Some(Ok(success)) => guard.settle(&engine, success).await,
                Some(Err(error)) => guard.give_up(&engine, error).await,
            }
        });
    }

    /// Whether the exec succeeded, once it has ended. It cannot end while its sandbox sleeps.
    pub(super) async fn end(&self, engine: &Engine) -> Result<bool, EngineError> {
        let mut unknown = 0;
        loop {
            if let Ok(record) = engine.wait_exec(&self.tenant, &self.sandbox, &self.exec, WAIT).await {
                if let Some(outcome) = record.outcome() {
                    return Ok(succeeded(&outcome));
                }
                if record.info.is_some() {
                    unknown = 0;
                    continue;
                }
            }
            // The sandbox sleeps or is gone, or its guest does not respond or does not know the exec: its row shows
            // which. An exec is also lost while its sandbox is restored to a snapshot that contains it: it may run again.
            match engine.get(&self.tenant, &self.sandbox).await?.state {
                State::Running => unknown += 1,
                State::Paused | State::Hibernating | State::Hibernated | State::Waking | State::Restoring => {
                    unknown = 0
                }
                State::Creating
                | State::Starting
                | State::Stopping
                | State::Stopped
                | State::Deleting
                | State::Failed => return Err(self.lost()),
            }
            if unknown > UNKNOWN_MAX {
                return Err(self.lost());
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    fn lost(&self) -> EngineError {
        EngineError::ExecNotFound { what: self.exec.to_string(), sandbox: self.sandbox.clone() }
    }

    /// Rolls a failed exec back, once its output was read. After a success, removes the snapshot.
    pub(super) async fn settle(&self, engine: &Engine, success: bool) {
        if success {
            return self.fulfilled(engine, Rollback::Unneeded).await;
        }
        let Some(promise) = self.promise() else { return };
        // The shutdown of the daemon ends the streams too.
        let background = &engine.shared.background;
        let _ = background.draining.run_until_cancelled(self.wait_for_readers()).await;
        if let Err(error) = engine.begin_rollback(&self.tenant, &self.sandbox, &self.exec, &promise).await {
            return self.give_up(engine, error).await;
        }
        // The promise is kept even where no trial restore is possible: the present processes are kept too.
        let restored = engine.restore_untried(&self.tenant, &self.sandbox, &self.snapshot);
        match background.operations.track_future(restored).await {
            Ok(restored) => {
                let removed = engine.delete_snapshot(&self.tenant, &restored.undo.id).await;
                let undo = removed.is_err().then_some(restored.undo.id);
                self.fulfilled(engine, Rollback::Done { undo }).await;
            }
            Err(error) => self.give_up(engine, error).await,
        }
    }

    /// Removes the promise, and the snapshot unless it was requested.
    pub(super) async fn fulfilled(&self, engine: &Engine, rollback: Rollback) {
        if !self.keep {
            self.remove_snapshot(engine).await;
        }
        self.close(engine, rollback).await;
    }

    /// The rollback failed; the snapshot is kept for a manual restore.
    pub(super) async fn give_up(&self, engine: &Engine, error: EngineError) {
        tracing::warn!(exec = %self.exec, error = &error as &dyn std::error::Error, "could not roll an exec back");
        self.close(engine, Rollback::Failed { error: Arc::new(error) }).await;
    }

    async fn close(&self, engine: &Engine, rollback: Rollback) {
        if let Err(error) = engine.remove_promise(&self.exec).await {
            // The next start checks it again, and finds nothing to do.
            tracing::warn!(exec = %self.exec, error = &error as &dyn std::error::Error, "could not record that a promised rollback was handled");
        }
        self.status.send_modify(|status| status.rollback = Some(rollback));
    }

    /// Also called if the exec did not start.
    pub(super) async fn remove_snapshot(&self, engine: &Engine) {
        match engine.delete_snapshot(&self.tenant, &self.snapshot).await {
            Ok(()) => {
                self.status.send_modify(|status| status.snapshot = None);
            }
            // The response names it, so the client can remove it.
            Err(error) => {
                tracing::warn!(snapshot = %self.snapshot, %error, "could not remove an exec's snapshot")
            }
        }
    }
}

fn succeeded(outcome: &ExecOutcome) -> bool {
    outcome.exit_code == Some(0) && !outcome.timed_out
}

/// The description of the snapshot, cut to the maximum length.
fn description(argv: &[String]) -> String {
    let text = format!("before `{}`", argv.join(" "));
    let printable = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    printable.take(DESCRIPTION_LENGTH_MAX).collect()
}
