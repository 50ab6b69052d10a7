//! What becomes of an exec that has ended: a memory of it, and, where it failed, what is remembered of such failures.
//!
//! ```text
//!   exit seen ─► first to see it? ─► facts ─► [failed: related, 50 ms at most] ─► answer
//!                                        └──► in the background: changed files ─► record
//! ```
//!
//! Nothing of it holds up output, and only the answer of a failure waits, briefly. A memory that cannot be written is
//! counted and logged, never the caller's trouble; the next daemon tries once more. What was undone by
//! `rollback_on_failure` is recorded afterwards, on the branch that goes on.

use std::sync::Arc;
use std::time::Duration;

use burrow_api::memory::RelatedMemory;
use burrow_api::{Exec, ExecOutcome};
use burrow_catalog::SandboxRow;
use burrow_engine::{EngineError, Guest};
use burrow_memory::remember::{self, ExecFacts, SessionOf};
use burrow_memory::{Condition, Filter, MemoryError, Op, PageRequest, View};
use burrow_model::{ExecId, Remember, SandboxId, State, TenantId};
use tokio::sync::oneshot;

use super::App;
use super::error::ApiError;
use crate::convert;

mod files;
mod follow;
mod known;
mod tails;

use files::files_changed;
pub(crate) use follow::remember_at_end;
pub(crate) use follow::resume;
pub(crate) use known::Remembering;
pub(crate) use tails::Tails;
use tails::tails_of;

/// How long the answer of a failed exec waits for what is related to it.
const RELATED_PATIENCE: Duration = Duration::from_millis(50);

/// For all that the guest is asked for behind the caller's back.
const GUEST_PATIENCE: Duration = Duration::from_secs(5);

/// An exec that has ended, with what is remembered of failures like it.
pub(crate) async fn remembered(app: &Arc<App>, guest: &Guest, mut exec: Exec, tails: &Tails) -> Exec {
    let mode = guest.sandbox().spec.memory.remember;
    let Some(outcome) = exec.outcome.clone() else { return exec };
    if mode == Remember::Off {
        app.remembering.take_secrets(&exec);
        return exec;
    }
    if !app.remembering.first(&exec) {
        exec.related = app.remembering.known(&exec).unwrap_or_default();
        return exec;
    }
    let Ok(slot) = app.remembering.slots.clone().try_acquire_owned() else {
        app.metrics.memory.remembered(false);
        return exec;
    };
    let mut facts = facts(guest.sandbox(), &exec, &outcome, tails, app.engine.now_ms());
    facts.secrets.extend(app.remembering.take_secrets(&exec));
    let failed = outcome.exit_code != Some(0);
    if mode == Remember::Errors && !failed && app.remembering.is_calm(guest.sandbox()) {
        app.remembering.note(&guest.sandbox().id, &facts);
        done(app, &exec);
        return exec;
    }
    let (send, related) = oneshot::channel();
    let (task_app, guest, ended) = (app.clone(), guest.clone(), exec.clone());
    app.tasks.spawn(async move {
        let _slot = slot;
        let kept = keep(&task_app, &guest, (mode, &ended), facts, failed.then_some(send)).await;
        let kept = match kept {
            // It went away meanwhile, and so did its memory: an ephemeral one does, with its only exec.
            Err(EngineError::NotFound { .. } | EngineError::Gone { .. } | EngineError::ShuttingDown) => {
                return;
            }
            kept => kept,
        };
        task_app.metrics.memory.remembered(kept.is_ok());
        match kept {
            Ok(()) => done(&task_app, &ended),
            Err(EngineError::Memory(error)) if error.is_no_room() => {
                tracing::debug!(sandbox = %guest.sandbox().id, %error, "no room to remember an exec");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox = %guest.sandbox().id, error, "could not remember an exec");
            }
        }
    });
    if failed && let Ok(Ok(related)) = tokio::time::timeout(RELATED_PATIENCE, related).await {
        exec.related = related;
    }
    exec
}

/// Notes that there is nothing left to remember of an exec. Where that is lost the next daemon looks at it once more, and
/// adds nothing.
fn done(app: &App, exec: &Exec) {
    if let Ok(exec) = exec.id.parse() {
        app.engine.exec_remembered(exec);
    }
}

/// When it ended is when we heard of it: a sandbox's clock is the sandbox's.
fn facts(row: &SandboxRow, exec: &Exec, outcome: &ExecOutcome, tails: &Tails, now_ms: u64) -> ExecFacts {
    let (stdout_tail, stderr_tail) = tails.texts();
    ExecFacts {
        exec: Some(exec.id.clone()),
        command: exec.argv.clone(),
        exit_code: outcome.exit_code,
        signal: outcome.signal.clone(),
        duration_ms: outcome.wall_us / 1000,
        stdout_tail,
        stderr_tail,
        files_changed: Vec::new(),
        user: row.spec.user.clone(),
        workdir: row.spec.workdir.clone(),
        at_ms: now_ms,
        earlier: Vec::new(),
        secrets: remember::secret_values(&row.spec.env),
    }
}

/// Looks for what is related, then records. The sandbox may have gone back to a snapshot: its row says on which branch
/// it remembers now.
async fn keep(
    app: &App,
    guest: &Guest,
    (mode, exec): (Remember, &Exec),
    mut facts: ExecFacts,
    tell: Option<oneshot::Sender<Vec<RelatedMemory>>>,
) -> Result<(), EngineError> {
    let row = app.engine.get(&guest.sandbox().tenant, &guest.sandbox().id).await?;
    let since_ms = row.started_ms;
    place(app, &row, &exec.id, &mut facts).await?;
    let scope = app.engine.memory_of_sandbox(row).await?;
    let view = &scope.primary.view;
    if let Some(tell) = tell {
        let related = remember::related(view, &facts, None).await?;
        let related: Vec<RelatedMemory> = related.into_iter().map(convert::related).collect();
        app.remembering.found(exec, &related);
        let _ = tell.send(related);
    }
    let failed = facts.exit_code != Some(0);
    let (remembering, sandbox) = (&app.remembering, &guest.sandbox().id);
    if mode == Remember::Errors && !failed {
        facts.earlier = remembering.went_well(sandbox);
        remembering.note(sandbox, &facts);
        let failures = remembering.failures();
        if !has_open_failures(view).await? {
            scope.sandbox.iter().for_each(|row| remembering.set_calm(row, failures));
            return Ok(());
        }
    }
    // What cannot be kept is not captured: neither the host's disk nor the sandbox's limit is there for it.
    app.memory.room()?;
    app.memory.room_in(&scope.primary.space)?;
    view.check_quota().await?;
    facts.files_changed = files_changed(guest, &facts, exec.started_ms).await;
    let of = SessionOf { name: scope.label, since_ms };
    let session = remember::current_session(view, &of, facts.at_ms).await?;
    if failed {
        remembering.failing(sandbox);
    }
    let recorded = remember::record(view, &facts, mode, &session).await;
    if failed {
        remembering.failing(sandbox);
    }
    recorded?;
    Ok(())
}

/// Whether a success may be the end of a failure. Most are not, and cost no more than this question.
async fn has_open_failures(view: &View) -> Result<bool, MemoryError> {
    let open = Condition { path: "open".to_owned(), op: Op::Eq, value: serde_json::Value::Bool(true) };
    let filter = Filter { kinds: vec!["error".to_owned()], metadata: vec![open], ..Filter::all() };
    Ok(!view.list(&filter, PageRequest::first(1)).await?.rows.is_empty())
}

/// Where it ran and as whom, as far as whoever started it said.
async fn place(app: &App, row: &SandboxRow, exec: &str, facts: &mut ExecFacts) -> Result<(), EngineError> {
    let Ok(id) = exec.parse::<ExecId>() else { return Ok(()) };
    let Some(stored) = app.engine.catalog().exec(&row.tenant, &id).await? else { return Ok(()) };
    let said = |field: &str| stored.command.get(field).and_then(serde_json::Value::as_str).map(str::to_owned);
    facts.workdir = said("workdir").or_else(|| said("cwd")).or(facts.workdir.take());
    facts.user = said("user").or(facts.user.take());
    Ok(())
}

/// The same for an exec whose output nobody here has read: its end is fetched first.
pub(super) async fn remembered_late(
    app: &Arc<App>,
    tenant: &TenantId,
    sandbox: &SandboxId,
    mut exec: Exec,
) -> Exec {
    if exec.outcome.is_none() {
        return exec;
    }
    if let Some(related) = app.remembering.known(&exec) {
        exec.related = related;
        return exec;
    }
    let fetched = async {
        let row = app.engine.get(tenant, sandbox).await?;
        // A sandbox that sleeps is not woken for this.
        if row.state != State::Running || row.spec.memory.remember == Remember::Off {
            return Ok(None);
        }
        let guest = app.engine.guest(tenant, sandbox).await?;
        let tails = tails_of(&guest, &exec).await?;
        Ok::<_, ApiError>(Some((guest, tails)))
    };
    match tokio::time::timeout(GUEST_PATIENCE, fetched).await {
        Ok(Ok(Some((guest, tails)))) => remembered(app, &guest, exec, &tails).await,
        Ok(Ok(None) | Err(_)) | Err(_) => exec,
    }
}
