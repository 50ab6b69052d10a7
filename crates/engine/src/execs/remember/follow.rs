//! Waits for the end of execs that no request waits for, and records them in memory.
//!
//! ```text
//!  started, detached ─► followed ─► ended ─► recorded in memory ─► its row is marked
//!  the daemon ended in between ─► the next one finds unmarked rows ─► followed, as above
//! ```
//!
//! So an exec that ends while no daemon runs is recorded by the next one. Its row is marked after memory has stored it, and
//! memory recognises it by its id: if a daemon is killed in between, the next one stores no duplicate.

use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::ExecRow;
use burrow_guest::protocol::{self, ExecInfo, Request};
use burrow_model::{ExecId, RememberMode, SandboxId, State, TenantId};

use super::super::rollbacks::RollbackGuard;
use super::tails::{Tails, tails_of};
use super::{GUEST_PATIENCE, remembered};
use crate::{Engine, EngineError, Guest};

/// The duration of one wait for the end of an exec, which is repeated until it has ended.
const END_PATIENCE: Duration = Duration::from_secs(300);

/// Clients that watch an exec are served this much earlier.
const WATCHERS_FIRST: Duration = Duration::from_secs(2);

/// Interval between checks of a sleeping sandbox.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Failed requests to a running sandbox's guest before the exec is given up.
const UNKNOWN_MAX: u32 = 15;

/// Execs of earlier daemons that are followed. If there are more, the oldest are skipped.
const RESUMED_MAX: u32 = 512;

/// Records an exec that no request waits for when it ends. Its sandbox may sleep in the meantime, and is not woken for
/// this. A possible rollback happens first.
pub(in crate::execs) fn remember_at_end(engine: &Engine, guest: &Guest, exec: &ExecId) {
    let of = guest.sandbox();
    if of.spec.memory.remember == RememberMode::Off {
        return;
    }
    let followed = FollowedExec { tenant: of.tenant.clone(), sandbox: of.id.clone(), exec: exec.clone() };
    followed.follow(engine, Some(guest.without_lease()));
}

/// Continues with the execs that earlier daemons have not recorded.
pub(in crate::execs) async fn resume(engine: &Engine) {
    engine.shared.flush_records().await;
    let left = match engine.catalog().unremembered_execs(RESUMED_MAX).await {
        Ok(left) => left,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return tracing::error!(
                error,
                "could not list the execs that have not been recorded in memory yet"
            );
        }
    };
    for ExecRow { tenant, sandbox, id, .. } in left {
        FollowedExec { tenant, sandbox, exec: id }.follow(engine, None);
    }
}

/// An exec whose end is awaited.
struct FollowedExec {
    tenant: TenantId,
    sandbox: SandboxId,
    exec: ExecId,
}

impl FollowedExec {
    /// Beyond a number of execs, no more are followed.
    fn follow(self, engine: &Engine, guest: Option<Guest>) {
        let Ok(slot) = engine.shared.remembering.followed.clone().try_acquire_owned() else { return };
        let promise = engine.shared.rollbacks.guard(&self.exec);
        let engine = engine.clone();
        engine.shared.background.tasks.clone().spawn(async move {
            let _slot = slot;
            let work = self.awaited(&engine, guest, promise);
            let ended = engine.shared.background.draining.run_until_cancelled(work).await;
            let Some(Some((guest, info, tails))) = ended else { return };
            match engine.get(&self.tenant, &self.sandbox).await {
                Ok(row) if row.spec.memory.remember != RememberMode::Off => {
                    remembered(&engine, &guest, &info, &tails).await;
                }
                Ok(_) => engine.shared.record_remembered(self.exec),
                Err(_) => {}
            }
        });
    }

    /// The exec once it has ended and was rolled back, if that was promised.
    async fn awaited(
        &self,
        engine: &Engine,
        guest: Option<Guest>,
        promise: Option<Arc<RollbackGuard>>,
    ) -> Option<(Guest, ExecInfo, Tails)> {
        engine.recovered(&self.sandbox).await;
        let (guest, info) = self.end(engine, guest).await?;
        let tails = tails_of(engine, &guest, &self.exec, &info).await.unwrap_or_default();
        if let Some(promise) = promise {
            promise.settled().await;
        }
        // Clients that watch the exec receive the entries about its failure first.
        tokio::time::sleep(WATCHERS_FIRST).await;
        Some((guest, info, tails))
    }

    /// The exec once it has ended; `None` if its end cannot be known.
    async fn end(&self, engine: &Engine, mut guest: Option<Guest>) -> Option<(Guest, ExecInfo)> {
        let timeout_ms = u64::try_from(END_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        let wait = Request::ExecWait { exec: self.exec.to_string(), timeout_ms };
        let mut unknown = 0;
        loop {
            if let Some(guest) = guest.take() {
                match guest.call_within::<ExecInfo>(END_PATIENCE + GUEST_PATIENCE, &wait).await {
                    Ok(info) if info.state != protocol::ExecState::Running => return Some((guest, info)),
                    Ok(_) => unknown = 0,
                    Err(_) => {
                        unknown += 1;
                        tokio::time::sleep(CHECK_INTERVAL).await;
                    }
                }
            }
            if unknown > UNKNOWN_MAX {
                return None;
            }
            // Its machine may sleep or be gone: the row tells which.
            match engine.get(&self.tenant, &self.sandbox).await.ok()?.state {
                State::Running => {
                    match engine.guest_if_awake(&self.tenant, &self.sandbox).await {
                        Ok(found) => guest = Some(found.without_lease()),
                        // It fell asleep after its row was read.
                        Err(EngineError::Asleep { .. }) => tokio::time::sleep(CHECK_INTERVAL).await,
                        Err(_) => return None,
                    }
                }
                State::Paused | State::Hibernating | State::Hibernated | State::Waking | State::Restoring => {
                    unknown = 0;
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
                State::Creating
                | State::Starting
                | State::Stopping
                | State::Stopped
                | State::Deleting
                | State::Failed => return None,
            }
        }
    }
}
