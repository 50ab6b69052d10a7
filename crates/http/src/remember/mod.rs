//! Records an exec that has ended in memory and, if it failed, finds the entries related to such failures.
//!
//! ```text
//!   exit recorded_execs ─► first to see it? ─► facts ─► [failed: related, 50 ms at most] ─► answer
//!                                        └──► in the background: changed files ─► record
//! ```
//!
//! None of this delays output, and only the response for a failure waits, briefly. If memory cannot be written, that is
//! counted and logged, but is not an error for the client; the next daemon tries again. An exec that was rolled back by
//! `rollback_on_failure` is recorded afterwards, on the restored branch.

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

use crate::app::App;
use crate::convert;
use crate::error::ApiError;

mod files;
mod follow;
mod recording;
mod tails;

use files::files_changed;
pub use follow::remember_at_end;
pub use follow::resume;
pub use recording::Remembering;
pub use tails::Tails;
use tails::tails_of;

/// How long the response for a failed exec waits for related entries.
const RELATED_PATIENCE: Duration = Duration::from_millis(50);

/// Timeout of background requests to the guest.
const GUEST_PATIENCE: Duration = Duration::from_secs(5);

/// Adds to an exec that has ended the entries related to its failure, and records it.
pub async fn remembered(app: &Arc<App>, guest: &Guest, mut exec: Exec, tails: &Tails) -> Exec {
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
    if mode == Remember::Errors && !failed && app.remembering.has_no_open_failure(guest.sandbox()) {
        app.remembering.note(&guest.sandbox().id, &facts);
        done(app, &exec);
        return exec;
    }
    let (send, related) = oneshot::channel();
    let (task_app, guest, ended) = (app.clone(), guest.clone(), exec.clone());
    app.tasks.spawn(async move {
        let _slot = slot;
        let kept = record(&task_app, &guest, (mode, &ended), facts, failed.then_some(send)).await;
        let kept = match kept {
            // The sandbox was deleted in the meantime, with its memory: an ephemeral one is, after its only exec.
            Err(EngineError::NotFound { .. } | EngineError::Gone { .. } | EngineError::ShuttingDown) => {
                return;
            }
            kept => kept,
        };
        task_app.metrics.memory.remembered(kept.is_ok());
        match kept {
            Ok(()) => done(&task_app, &ended),
            Err(EngineError::Memory(error)) if error.is_no_room() => {
                tracing::debug!(sandbox = %guest.sandbox().id, %error, "no space to record an exec in memory");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox = %guest.sandbox().id, error, "could not record an exec in memory");
            }
        }
    });
    if failed && let Ok(Ok(related)) = tokio::time::timeout(RELATED_PATIENCE, related).await {
        exec.related = related;
    }
    exec
}

/// Marks an exec as recorded. If the mark is lost, the next daemon processes the exec again, and stores no duplicate.
fn done(app: &App, exec: &Exec) {
    if let Ok(exec) = exec.id.parse() {
        app.engine.exec_remembered(exec);
    }
}

/// The end time is the time of the report, because the sandbox's clock cannot be trusted.
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

/// Finds related entries, then records the exec. The sandbox may have been restored to a snapshot: its row names its
/// present branch.
async fn record(
    app: &App,
    guest: &Guest,
    (mode, exec): (Remember, &Exec),
    mut facts: ExecFacts,
    tell: Option<oneshot::Sender<Vec<RelatedMemory>>>,
) -> Result<(), EngineError> {
    let row = app.engine.get(&guest.sandbox().tenant, &guest.sandbox().id).await?;
    let since_ms = row.started_ms;
    add_origin(app, &row, &exec.id, &mut facts).await?;
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
            scope.sandbox.iter().for_each(|row| remembering.set_no_open_failure(row, failures));
            return Ok(());
        }
    }
    // If the host's disk or the sandbox's quota is full, nothing is recorded.
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

/// Whether a success may resolve a failure. Most do not, and cost only this query.
async fn has_open_failures(view: &View) -> Result<bool, MemoryError> {
    let open = Condition { path: "open".to_owned(), op: Op::Eq, value: serde_json::Value::Bool(true) };
    let filter = Filter { kinds: vec!["error".to_owned()], metadata: vec![open], ..Filter::all() };
    Ok(!view.list(&filter, PageRequest::first(1)).await?.rows.is_empty())
}

/// Adds the working directory and the user of the exec, if the request named them.
async fn add_origin(
    app: &App,
    row: &SandboxRow,
    exec: &str,
    facts: &mut ExecFacts,
) -> Result<(), EngineError> {
    let Ok(id) = exec.parse::<ExecId>() else { return Ok(()) };
    let Some(stored) = app.engine.catalog().exec(&row.tenant, &id).await? else { return Ok(()) };
    let requested =
        |field: &str| stored.command.get(field).and_then(serde_json::Value::as_str).map(str::to_owned);
    facts.workdir = requested("workdir").or_else(|| requested("cwd")).or(facts.workdir.take());
    facts.user = requested("user").or(facts.user.take());
    Ok(())
}

/// The same for an exec whose output this daemon has not read: its end is fetched first.
pub async fn remembered_late(app: &Arc<App>, tenant: &TenantId, sandbox: &SandboxId, mut exec: Exec) -> Exec {
    if exec.outcome.is_none() {
        return exec;
    }
    if let Some(related) = app.remembering.known(&exec) {
        exec.related = related;
        return exec;
    }
    let fetched = async {
        let row = app.engine.get(tenant, sandbox).await?;
        // A sleeping sandbox is not woken for this.
        if row.state != State::Running || row.spec.memory.remember == Remember::Off {
            return Ok(None);
        }
        let guest = app.engine.guest_if_awake(tenant, sandbox).await?;
        let tails = tails_of(&guest, &exec).await?;
        Ok::<_, ApiError>(Some((guest, tails)))
    };
    match tokio::time::timeout(GUEST_PATIENCE, fetched).await {
        Ok(Ok(Some((guest, tails)))) => remembered(app, &guest, exec, &tails).await,
        Ok(Ok(None) | Err(_)) | Err(_) => exec,
    }
}
