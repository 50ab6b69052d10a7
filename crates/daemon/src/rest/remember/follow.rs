//! Execs that nobody waits for: their end is waited for here, and remembered.
//!
//! ```text
//!  started, detached ─► followed ─► ended ─► remembered ─► its row says so
//!  the daemon ended meanwhile ─► the next one finds rows that do not say so ─► followed, as above
//! ```
//!
//! So one that ends while no daemon runs is remembered by the next. Its row is told after memory has it, and memory knows it by
//! its id: a daemon that is killed in between leaves it to the next one, which adds nothing.

use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::ExecRow;
use burrow_engine::Guest;
use burrow_guest::protocol::{self, ExecInfo, Request};
use burrow_model::{ExecId, Remember, SandboxId, State, TenantId};
use tokio::sync::OwnedSemaphorePermit;

use super::tails::tails_of;
use super::{GUEST_PATIENCE, remembered};
use crate::convert;
use crate::rest::App;
use crate::rest::rollback::Guarded;

/// One wait for the end of an exec; asked again until it has ended.
const END_PATIENCE: Duration = Duration::from_secs(300);

/// How much earlier they are told who watch an exec.
const WATCHERS_FIRST: Duration = Duration::from_secs(2);

/// Between two looks at a sandbox that sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Looks at a running sandbox whose guest says nothing of the exec before it is given up.
const UNKNOWN_MAX: u32 = 15;

/// Execs of earlier daemons that are taken up. Of more than these the oldest are left.
const TAKEN_UP_MAX: u32 = 512;

/// Remembers an exec that nobody waits for, when it ends. Its sandbox may sleep meanwhile, and is not woken for this.
/// `promise` undoes what failed: that comes first.
pub(crate) fn remember_at_end(app: &Arc<App>, guest: &Guest, exec: &ExecId, promise: Option<Arc<Guarded>>) {
    if guest.sandbox().spec.memory.remember == Remember::Off {
        return;
    }
    let Ok(slot) = app.remembering.followed.clone().try_acquire_owned() else { return };
    let of = guest.sandbox();
    let followed = Followed { tenant: of.tenant.clone(), sandbox: of.id.clone(), exec: exec.clone() };
    follow(app, followed, Some(guest.looked_at()), promise, slot);
}

/// Takes up what earlier daemons were to remember and did not get to.
pub(crate) async fn resume(app: &Arc<App>) {
    let left = match app.engine.unremembered_execs(TAKEN_UP_MAX).await {
        Ok(left) => left,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            return tracing::error!(error, "could not look for execs that are still to be remembered");
        }
    };
    for ExecRow { tenant, sandbox, id, .. } in left {
        let Ok(slot) = app.remembering.followed.clone().try_acquire_owned() else { return };
        let promise = app.rollbacks.guarded(&id);
        follow(app, Followed { tenant, sandbox, exec: id }, None, promise, slot);
    }
}

/// An exec whose end is waited for.
struct Followed {
    tenant: TenantId,
    sandbox: SandboxId,
    exec: ExecId,
}

fn follow(
    app: &Arc<App>,
    followed: Followed,
    guest: Option<Guest>,
    promise: Option<Arc<Guarded>>,
    slot: OwnedSemaphorePermit,
) {
    let work_app = app.clone();
    app.tasks.spawn(async move {
        let _slot = slot;
        let app = &work_app;
        let work = async {
            app.engine.recovered(&followed.sandbox).await;
            let (guest, info) = followed.end(app, guest).await?;
            let ended = convert::exec_started(&guest.sandbox().id, info);
            let tails = tails_of(&guest, &ended).await.unwrap_or_default();
            if let Some(promise) = promise {
                promise.settled().await;
            }
            // Whoever watches it is told what is related to its failure.
            tokio::time::sleep(WATCHERS_FIRST).await;
            Some((guest, ended, tails))
        };
        let Some(Some((guest, ended, tails))) = app.draining.run_until_cancelled(work).await else { return };
        match app.engine.get(&followed.tenant, &followed.sandbox).await {
            Ok(row) if row.spec.memory.remember != Remember::Off => {
                remembered(app, &guest, ended, &tails).await;
            }
            Ok(_) => super::done(app, &ended),
            Err(_) => {}
        }
    });
}

impl Followed {
    /// The exec once it has ended; `None` where nobody can tell any more.
    async fn end(&self, app: &App, mut guest: Option<Guest>) -> Option<(Guest, ExecInfo)> {
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
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                }
            }
            if unknown > UNKNOWN_MAX {
                return None;
            }
            // Its machine may have gone to sleep, or away: the row says which.
            match app.engine.get(&self.tenant, &self.sandbox).await.ok()?.state {
                State::Running => {
                    guest = Some(app.engine.guest(&self.tenant, &self.sandbox).await.ok()?.looked_at());
                }
                State::Paused | State::Hibernating | State::Hibernated | State::Waking | State::Restoring => {
                    unknown = 0;
                    tokio::time::sleep(LOOK_AGAIN).await;
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
