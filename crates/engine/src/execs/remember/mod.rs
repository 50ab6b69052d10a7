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

use std::time::Duration;

use burrow_catalog::SandboxRow;
use burrow_guest::protocol::{ExecInfo, ExecOutcome, ExecState, signal_name};
use burrow_memory::remember::{self, ExecFacts, RelatedMemory, SessionOwner};
use burrow_memory::{Condition, Filter, MemoryError, Op, PageRequest, View};
use burrow_model::{ExecId, RememberMode, State};
use tokio::sync::oneshot;

use super::record::ExecRecord;
use crate::{Engine, EngineError, Guest, ObjectKind};

mod files;
mod follow;
mod recording;
mod tails;

use files::files_changed;
pub(super) use follow::{remember_at_end, resume};
pub(crate) use recording::ExecRecorder;
pub(super) use tails::Tails;
use tails::tails_of;

/// How long the response for a failed exec waits for related entries.
const RELATED_PATIENCE: Duration = Duration::from_millis(50);

/// Timeout of background requests to the guest.
const GUEST_PATIENCE: Duration = Duration::from_secs(5);

/// Records an exec that has ended. Returns the entries related to its failure.
pub(super) async fn remembered(
    engine: &Engine,
    guest: &Guest,
    info: &ExecInfo,
    tails: &Tails,
) -> Vec<RelatedMemory> {
    let (mode, remembering) = (guest.sandbox().spec.memory.remember, &engine.shared.remembering);
    let ExecState::Ended(outcome) = &info.state else { return Vec::new() };
    let Ok(exec) = info.exec.parse::<ExecId>() else { return Vec::new() };
    if mode == RememberMode::Off {
        remembering.take_secrets(&exec);
        return Vec::new();
    }
    if !remembering.first(&exec) {
        return remembering.known(&exec).unwrap_or_default();
    }
    let Ok(slot) = remembering.slots.clone().try_acquire_owned() else {
        engine.shared.seams.execs.remembered(false);
        return Vec::new();
    };
    let mut facts = facts(guest.sandbox(), info, outcome, tails, engine.now_ms());
    facts.secrets.extend(remembering.take_secrets(&exec));
    let failed = outcome.exit_code != Some(0);
    if mode == RememberMode::Errors && !failed && remembering.has_no_open_failure(guest.sandbox()) {
        remembering.note(&guest.sandbox().id, &facts);
        engine.shared.record_remembered(exec);
        return Vec::new();
    }
    let (send, related) = oneshot::channel();
    let (engine, guest, started_ms) = (engine.clone(), guest.clone(), info.started_ms);
    engine.shared.background.tasks.clone().spawn(async move {
        let _slot = slot;
        let tell = failed.then_some(send);
        let kept = match record(&engine, &guest, (mode, &exec, started_ms), facts, tell).await {
            // The sandbox was deleted in the meantime, with its memory: an ephemeral one is, after its only exec.
            Err(EngineError::NotFound { kind: ObjectKind::Sandbox, .. } | EngineError::Gone { .. } | EngineError::ShuttingDown) => {
                return;
            }
            kept => kept,
        };
        engine.shared.seams.execs.remembered(kept.is_ok());
        match kept {
            Ok(()) => engine.shared.record_remembered(exec),
            Err(EngineError::Memory(error)) if error.is_no_room() => {
                tracing::debug!(sandbox = %guest.sandbox().id, %error, "no space to record an exec in memory");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox = %guest.sandbox().id, error, "could not record an exec in memory");
            }
        }
    });
    match failed {
        true => tokio::time::timeout(RELATED_PATIENCE, related)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default(),
        false => Vec::new(),
    }
}

/// The end time is the time of the report, because the sandbox's clock cannot be trusted.
fn facts(row: &SandboxRow, info: &ExecInfo, outcome: &ExecOutcome, tails: &Tails, now_ms: u64) -> ExecFacts {
    let (stdout_tail, stderr_tail) = tails.texts();
    ExecFacts {
        exec: Some(info.exec.clone()),
        command: info.argv.clone(),
        exit_code: outcome.exit_code,
        signal: outcome.signal.map(signal_name),
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
    engine: &Engine,
    guest: &Guest,
    (mode, exec, started_ms): (RememberMode, &ExecId, u64),
    mut facts: ExecFacts,
    tell: Option<oneshot::Sender<Vec<RelatedMemory>>>,
) -> Result<(), EngineError> {
    let row = engine.get(&guest.sandbox().tenant, &guest.sandbox().id).await?;
    let since_ms = row.started_ms;
    add_origin(engine, &row, exec, &mut facts).await?;
    let scope = engine.memory_of_sandbox(row).await?;
    let view = &scope.primary.view;
    let (remembering, sandbox) = (&engine.shared.remembering, &guest.sandbox().id);
    if let Some(tell) = tell {
        let related = remember::related(view, &facts, None).await?;
        remembering.found(exec, &related);
        let _ = tell.send(related);
    }
    let failed = facts.exit_code != Some(0);
    if mode == RememberMode::Errors && !failed {
        facts.earlier = remembering.went_well(sandbox);
        remembering.note(sandbox, &facts);
        let failures = remembering.failures();
        if !has_open_failures(view).await? {
            scope.sandbox.iter().for_each(|row| remembering.set_no_open_failure(row, failures));
            return Ok(());
        }
    }
    // If the sandbox's quota is full, nothing is recorded.
    view.check_quota().await?;
    facts.files_changed = files_changed(guest, &facts, started_ms).await;
    let of = SessionOwner { name: scope.label, since_ms };
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
    engine: &Engine,
    row: &SandboxRow,
    exec: &ExecId,
    facts: &mut ExecFacts,
) -> Result<(), EngineError> {
    let Some(stored) = engine.catalog().exec(&row.tenant, exec).await? else { return Ok(()) };
    let requested =
        |field: &str| stored.command.get(field).and_then(serde_json::Value::as_str).map(str::to_owned);
    facts.workdir = requested("workdir").or_else(|| requested("cwd")).or(facts.workdir.take());
    facts.user = requested("user").or(facts.user.take());
    Ok(())
}

/// The same for an exec whose output this daemon has not read: its end is fetched first.
pub(super) async fn remembered_late(engine: &Engine, record: &ExecRecord) -> Vec<RelatedMemory> {
    let ExecRecord { row, info } = record;
    if record.outcome().is_none() {
        return Vec::new();
    }
    if let Some(related) = engine.shared.remembering.known(&row.id) {
        return related;
    }
    let Some(info) = info else { return Vec::new() };
    let fetched = async {
        let sandbox = engine.get(&row.tenant, &row.sandbox).await?;
        // A sleeping sandbox is not woken for this.
        if sandbox.state != State::Running || sandbox.spec.memory.remember == RememberMode::Off {
            return Ok(None);
        }
        let guest = engine.guest_if_awake(&row.tenant, &row.sandbox).await?;
        let tails = tails_of(engine, &guest, &row.id, info).await?;
        Ok::<_, EngineError>(Some((guest, tails)))
    };
    match tokio::time::timeout(GUEST_PATIENCE, fetched).await {
        Ok(Ok(Some((guest, tails)))) => remembered(engine, &guest, info, &tails).await,
        Ok(Ok(None) | Err(_)) | Err(_) => Vec::new(),
    }
}
