//! After a start: makes the host hold exactly what the catalog lists.
//!
//! ```text
//!   1. warm pool             remove: its machines ended with the daemon that created them
//!      volumes               complete or undo: see `volumes`
//!   2. each sandbox, in a task of its own
//!      open operations       unwind, then settle the row: see `journal` for which are undone and which completed
//!      running, paused       adopt by pid + start time + boot id; else stopped (persistent) or gone (ephemeral)
//!      hibernated            remove what may be left of their machines
//!   3. inventories           remove what no row names: see `sweep`
//! ```
//!
//! Each pre-created sandbox, each volume, each sandbox and each import has its own task. The start waits for all of steps 1 and 2, but
//! not longer than `Policy::start_patience`, and for step 3 not longer than that again: the rest continues in the background. A
//! sandbox that is not recovered by then has no actor yet, so every request for it is refused with [`EngineError::Recovering`], and
//! step 3 does not touch its resources. A volume that is not settled by then is busy. Resources that are removed in the background
//! are named by no row, so nothing that is created in the meantime is removed. A step that fails is logged. A sandbox that cannot be
//! recovered in [`RECOVERY_MAX`] is failed and keeps its files.

pub(crate) mod recovering;
pub(crate) mod sweep;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::{OperationRow, SandboxChange, SandboxRow};
use burrow_guest::protocol::{Identity, Request};
use burrow_model::{OperationId, SandboxId, State, StopReason};
use burrow_runtime::{Machine, RuntimeError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::actor;
use crate::actor::live_machine::LiveMachine;
use crate::egress::{self, rates};
use crate::guest::own_listener;
use crate::images::starting_points;
use crate::operations::journal::{Detail, Operation, Settlement};
use crate::operations::{forget, unwind};
use crate::shared::Shared;
use crate::sleep::activity::{Activity, StreamCutter};
use crate::snapshots::dump;
use crate::trees::merge;
use crate::{EngineError, Guest, volumes, warm_pool};

/// Sandboxes that are recovered concurrently.
const PARALLEL: usize = 16;

/// An adopted guest answers within this time, or its machine is taken for dead.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pauses between attempts to recover a sandbox at one start.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];

/// The time limit of each attempt. It includes waiting for a dump that is still being written, and gigabytes on a slow disk take
/// minutes; steps that hang end earlier by their own limits.
const RECOVERY_MAX: Duration = Duration::from_mins(15);

/// Listing the resources on the host takes milliseconds, and is done before the engine serves. A driver that hangs must not prevent that.
const PLAN_MAX: Duration = Duration::from_secs(60);

/// Marks a sandbox's recovery as ended when it is dropped, also by a panic, so that no task waits forever.
struct RecoveryGuard(Arc<Shared>, SandboxId);

impl Drop for RecoveryGuard {
    fn drop(&mut self) {
        let Self(shared, id) = self;
        shared.recovering.end(id);
    }
}

/// Work of a start that may continue in the background. It ends when this is dropped.
struct StartWorkGuard(Arc<Shared>);

impl StartWorkGuard {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.recovering.begin_work();
        Self(shared.clone())
    }
}

impl Drop for StartWorkGuard {
    fn drop(&mut self) {
        self.0.recovering.end_work();
    }
}

pub(crate) async fn recover(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let deadline = Instant::now() + shared.policy.start_patience;
    let mut tasks = JoinSet::new();
    warm_pool::clear(shared, &mut tasks).await?;
    volumes::recover(shared, &mut tasks).await?;
    recover_sandboxes(shared, &mut tasks).await?;
    let in_time = timeout_at(deadline, async { while tasks.join_next().await.is_some() {} }).await.is_ok();
    if !in_time {
        tracing::warn!(sandboxes = shared.recovering.len(), "serving before all sandboxes are recovered");
    }
    let swept_by = Instant::now() + shared.policy.start_patience;
    let finishing = StartWorkGuard::begin(shared);
    let finished = tokio::spawn(async move {
        let shared = &finishing.0;
        while tasks.join_next().await.is_some() {}
        complete_merges(shared).await;
        if !in_time {
            tracing::info!("recovery is complete");
        }
    });
    if in_time {
        // Failures are logged, and late work continues.
        let _ = timeout_at(swept_by, finished).await;
    }
    let plan = match timeout(PLAN_MAX, sweep::plan(shared)).await {
        Ok(Ok(plan)) => plan,
        Ok(Err(error)) => {
            not_swept(&error);
            return Ok(());
        }
        Err(_) => {
            tracing::error!(
                "could not list the resources on the host within {} s; the next start tries again",
                PLAN_MAX.as_secs()
            );
            return Ok(());
        }
    };
    let sweeping = StartWorkGuard::begin(shared);
    let swept = tokio::spawn(async move {
        plan.carry_out(&sweeping.0).await;
    });
    // The same.
    let _ = timeout_at(swept_by, swept).await;
    Ok(())
}

fn not_swept(error: &EngineError) {
    let error = error as &dyn std::error::Error;
    tracing::error!(error, "could not remove unused resources from the host; the next start tries again");
}

/// Recovers all sandboxes, and finishes operations without a sandbox, in tasks.
async fn recover_sandboxes(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> Result<(), EngineError> {
    let is_import = |operation: &OperationRow| Operation::parse(&operation.kind) == Some(Operation::Import);
    let (imports, of_sandboxes): (Vec<_>, Vec<_>) =
        shared.seams.catalog.open_operations().await?.into_iter().partition(is_import);
    let mut operations: HashMap<SandboxId, Vec<OperationRow>> = HashMap::new();
    for operation in of_sandboxes {
        operations.entry(operation.sandbox.clone()).or_default().push(operation);
    }
    let slots = Arc::new(Semaphore::new(PARALLEL));
    for row in shared.seams.catalog.all_sandboxes().await? {
        let open = operations.remove(&row.id).unwrap_or_default();
        let reason = open.first().map_or_else(
            || "its machine is being located".to_owned(),
            |operation| format!("its {} was interrupted, and is being completed or undone", operation.kind),
        );
        shared.recovering.begin(&row, reason);
        let underway = RecoveryGuard(shared.clone(), row.id.clone());
        let (shared, slots) = (shared.clone(), slots.clone());
        tasks.spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            recover_one(&shared, row).await;
            drop(underway);
        });
    }
    // Operations without a sandbox, and snapshots of sandboxes that were deleted in the meantime.
    for operation in imports.into_iter().chain(operations.into_values().flatten()) {
        let shared = shared.clone();
        tasks.spawn(async move {
            if let Err(error) = finish(&shared, &operation).await {
                unfinished(&operation, &error);
            }
        });
    }
    Ok(())
}

async fn complete_merges(shared: &Arc<Shared>) {
    if let Err(error) = merge::complete(shared).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "could not merge the memory of a merged child; the next start tries again"
        );
    }
}

/// Recovers one sandbox, and starts its actor. If it cannot be recovered, its machine is ended, and it keeps its files.
async fn recover_one(shared: &Arc<Shared>, row: SandboxRow) {
    let mut pauses = PAUSES.into_iter();
    let failure = loop {
        let failure = match tokio::time::timeout(RECOVERY_MAX, try_recover(shared, &row)).await {
            Ok(Ok(())) => return keep(shared, &row).await,
            Ok(Err(error)) => with_causes(&error),
            Err(_) => break format!("recovery took longer than {} s", RECOVERY_MAX.as_secs()),
        };
        tracing::warn!(sandbox = %row.id, failure, "could not recover a sandbox");
        match pauses.next() {
            Some(pause) => tokio::time::sleep(pause).await,
            None => break failure,
        }
    };
    match tokio::time::timeout(RECOVERY_MAX, end_unrecovered(shared, &row, failure)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(sandbox = %row.id, error, "could not end a sandbox; the next start tries again");
        }
        Err(_) => {
            tracing::error!(sandbox = %row.id, "could not end a sandbox in time; the next start tries again")
        }
    }
    keep(shared, &row).await;
}

/// Ends the machine of a sandbox that cannot be recovered. Its files are kept, and it can be started from them; if a wake was
/// interrupted, its dump is kept, too, and it can be woken again.
async fn end_unrecovered(shared: &Arc<Shared>, row: &SandboxRow, failure: String) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    // The attempts may have changed it.
    let Some(row) = catalog.sandbox(&row.tenant, &row.id).await? else { return Ok(()) };
    let mut open = catalog.open_operations().await?;
    open.retain(|operation| {
        operation.sandbox == row.id && Operation::parse(&operation.kind) != Some(Operation::Import)
    });
    let settles_files = |operation: &OperationRow| {
        let settlement = Operation::parse(&operation.kind).map(Operation::settlement);
        matches!(settlement, Some(Settlement::Gone | Settlement::Restored))
    };
    if row.state == State::Hibernated || open.iter().any(settles_files) {
        // Its processes are safe on disk; or its files do not match its row, and it must not be started from them.
        tracing::error!(sandbox = %row.id, failure, "could not recover a sandbox; the next start tries again");
        return Ok(());
    }
    tracing::error!(sandbox = %row.id, failure, "ending a sandbox that cannot be recovered");
    unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
    // No operation may stay open: the next start would finish it on a sandbox that was started again in the meantime.
    let mut wake = None;
    for operation in &open {
        remove_made(shared, operation, &Detail::of(operation)).await?;
        if Operation::parse(&operation.kind) == Some(Operation::Wake) {
            wake = Some(operation.id.clone());
        } else {
            catalog.finish_operation(&operation.id).await?;
        }
    }
    match wake {
        // Its dump is as it was before the wake.
        Some(wake) => mark_hibernated(shared, &row, &wake, Some(failure)).await,
        None => mark_failed(shared, &row, None, failure).await,
    }
}

/// Finishes the open operations of one sandbox, and makes its row and its machine match.
async fn try_recover(shared: &Arc<Shared>, row: &SandboxRow) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    // Read again: an earlier attempt may have finished some.
    let open = catalog.open_operations().await?;
    for operation in open.iter().filter(|operation| operation.sandbox == row.id) {
        if Operation::parse(&operation.kind) == Some(Operation::Import) {
            continue;
        }
        match finish(shared, operation).await {
            Ok(()) => {}
            Err(error @ EngineError::Runtime(RuntimeError::DumpHangs { .. })) => {
                return give_up(shared, operation, &error).await;
            }
            // It stays in the journal for the next start, or until the sandbox is deleted.
            Err(error) => unfinished(operation, &error),
        }
    }
    match catalog.sandbox(&row.tenant, &row.id).await? {
        Some(row) => try_settle(shared, row).await,
        None => Ok(()),
    }
}

/// In any case, a sandbox with a row gets an actor, so that it can be started from its files or deleted.
async fn keep(shared: &Arc<Shared>, row: &SandboxRow) {
    if shared.registry.get(&row.id).is_some() {
        return;
    }
    if let Ok(Some(row)) = shared.seams.catalog.sandbox(&row.tenant, &row.id).await {
        actor::add(shared, row);
    }
}

fn unfinished(operation: &OperationRow, error: &EngineError) {
    tracing::error!(
        sandbox = %operation.sandbox, kind = operation.kind, error = error as &dyn std::error::Error,
        "could not finish an operation that was interrupted"
    );
}

/// Ends a sandbox whose processes cannot continue. Its files are kept, and it can be started from them.
async fn give_up(
    shared: &Arc<Shared>,
    operation: &OperationRow,
    error: &EngineError,
) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let Some(row) = catalog.sandbox(&operation.tenant, &operation.sandbox).await? else { return Ok(()) };
    tracing::error!(sandbox = %row.id, error = error as &dyn std::error::Error, "ending a sandbox whose processes cannot continue");
    unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
    remove_made(shared, operation, &Detail::of(operation)).await?;
    let failure = format!("its {} was interrupted: {}", operation.kind, with_causes(error));
    mark_failed(shared, &row, Some(operation.id.clone()), failure).await
}

/// An error and its causes, in one line.
fn with_causes(error: &EngineError) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Unwinds one open operation and settles its sandbox's row.
async fn finish(shared: &Arc<Shared>, operation: &OperationRow) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    if Operation::parse(&operation.kind) == Some(Operation::Import) {
        // It belongs to no sandbox, whatever its row names. The memory it filled is unused now, and the sweep removes it.
        tracing::info!(kind = operation.kind, "undoing an import that was interrupted");
        return remove_made(shared, operation, &Detail::of(operation)).await;
    }
    let Some(row) = catalog.sandbox(&operation.tenant, &operation.sandbox).await? else {
        // Its sandbox was deleted while a snapshot of it was still being completed.
        remove_made(shared, operation, &Detail::of(operation)).await?;
        return Ok(catalog.finish_operation(&operation.id).await?);
    };
    // An operation of a newer version: removing the machine is safe for every operation.
    let kind = Operation::parse(&operation.kind).unwrap_or(Operation::Stop);
    tracing::info!(sandbox = %row.id, kind = kind.as_str(), "finishing an operation that was interrupted");
    unwind(shared, &row, kind, &mut |_| Ok(())).await?;
    let detail = Detail::of(operation);
    match kind.settlement() {
        Settlement::Gone => {
            catalog.delete_sandbox(&row.id, Some(operation.id.clone()), shared.now_ms()).await?;
            forget(shared, &row).await;
        }
        Settlement::Stopped => mark_stopped(shared, &row, Some(operation.id.clone())).await?,
        Settlement::AsBefore => undo_interrupted(shared, &row, operation, &detail).await?,
        Settlement::Hibernated => mark_hibernated(shared, &row, &operation.id, None).await?,
        Settlement::Restored => complete_restore(shared, &row, operation, &detail).await?,
        Settlement::Unmerged => actor::unmerge(shared, &row, operation, &detail).await?,
    }
    // The row may have lost its dump, and the sweep may have been planned while the row still had it.
    if let Some(dump) = &row.dump {
        dump::remove_if_unused(shared, dump).await;
    }
    Ok(())
}

/// A hibernate or a snapshot that was interrupted: its machine, if it still runs, resumes, and what was created is removed.
async fn undo_interrupted(
    shared: &Shared,
    row: &SandboxRow,
    operation: &OperationRow,
    detail: &Detail,
) -> Result<(), EngineError> {
    if let Some(machine) = row.machine.clone().and_then(|machine| serde_json::from_value(machine).ok())
        && let Ok(runtime) = shared.runtime(&row.spec.driver)
        && runtime.adopt(&row.id, &machine).await?
    {
        runtime.recover(&row.id, &machine, detail.paused).await?;
    }
    remove_made(shared, operation, detail).await?;
    let catalog = &shared.seams.catalog;
    if row.state == State::Hibernating {
        let state = if detail.paused { State::Paused } else { State::Running };
        let change = SandboxChange { state: Some(state), ..SandboxChange::at(shared.now_ms()) };
        catalog.update_sandbox(&row.id, change, Some(operation.id.clone())).await?;
    } else if detail.snapshot.is_none() {
        catalog.finish_operation(&operation.id).await?;
    }
    Ok(())
}

/// Removes what a hibernate, a snapshot or a trial created beside its sandbox.
async fn remove_made(shared: &Shared, operation: &OperationRow, detail: &Detail) -> Result<(), EngineError> {
    let makes = [Operation::Hibernate, Operation::Snapshot, Operation::Import, Operation::Trial];
    if !Operation::parse(&operation.kind).is_some_and(|kind| makes.contains(&kind)) {
        return Ok(());
    }
    if let Some(trial) = &detail.trial {
        actor::remove_trial(shared, trial).await;
    }
    if let Some(dump) = &detail.dump {
        shared.seams.disks.remove_dump(dump).await?;
    }
    if let Some(snapshot) = &detail.snapshot {
        shared.seams.disks.remove(snapshot.into()).await?;
        shared.seams.catalog.delete_snapshot(snapshot, Some(operation.id.clone())).await?;
    }
    Ok(())
}

/// The replaced state was kept before the restore began, so completing it loses nothing.
async fn complete_restore(
    shared: &Shared,
    row: &SandboxRow,
    operation: &OperationRow,
    detail: &Detail,
) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let snapshot = match &detail.snapshot {
        Some(snapshot) => catalog.snapshot(&row.tenant, snapshot).await?,
        None => None,
    };
    let Some(snapshot) = snapshot else {
        // The snapshot was removed in the meantime, by hand: the present files are kept.
        return mark_stopped(shared, row, Some(operation.id.clone())).await;
    };
    let disk_bytes = starting_points::disk_bytes(shared, &row.spec);
    shared.seams.disks.replace((&row.id).into(), (&snapshot.id).into(), disk_bytes).await?;
    let now_ms = shared.now_ms();
    let change = actor::restored(row, &snapshot, detail, now_ms);
    catalog.update_sandbox(&row.id, change, Some(operation.id.clone())).await?;
    catalog.mark_execs_lost(&row.id, row.generation, now_ms).await?;
    Ok(())
}

/// Makes one row and its machine match, and starts its actor.
async fn try_settle(shared: &Arc<Shared>, row: SandboxRow) -> Result<(), EngineError> {
    match row.state {
        State::Running | State::Paused => {
            if let Some(live) = adopt(shared, &row).await? {
                shared.registry.keep(actor::spawn(shared, row, Some(live)));
                return Ok(());
            }
        }
        State::Hibernated => {
            // A crash between the commit and the end of the machine leaves the machine frozen.
            unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
            actor::add(shared, row);
            return Ok(());
        }
        // Their operation could not be finished above: they wait for a delete or the next start.
        State::Hibernating
        | State::Waking
        | State::Restoring
        | State::Creating
        | State::Starting
        | State::Stopping
        | State::Deleting
        | State::Stopped
        | State::Failed => {
            if !(row.spec.lifetime.is_ephemeral() && row.state == State::Stopped) {
                actor::add(shared, row);
                return Ok(());
            }
        }
    }
    // The host was restarted, or the machine ended while no daemon watched it.
    if row.spec.lifetime.is_ephemeral() {
        unwind(shared, &row, Operation::Delete, &mut |_| Ok(())).await?;
        shared.seams.catalog.delete_sandbox(&row.id, None, shared.now_ms()).await?;
        forget(shared, &row).await;
        return Ok(());
    }
    unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
    mark_stopped(shared, &row, None).await?;
    if let Some(row) = shared.seams.catalog.sandbox(&row.tenant, &row.id).await? {
        actor::add(shared, row);
    }
    Ok(())
}

async fn adopt(shared: &Shared, row: &SandboxRow) -> Result<Option<LiveMachine>, EngineError> {
    let Some(machine) = row.machine.clone() else { return Ok(None) };
    let Ok(machine) = serde_json::from_value::<Machine>(machine) else { return Ok(None) };
    let runtime = shared.runtime(&row.spec.driver)?;
    if !runtime.adopt(&row.id, &machine).await? {
        return Ok(None);
    }
    let Some(dial) = shared.seams.network.adopt(&row.id).await? else { return Ok(None) };
    if row.state == State::Paused {
        runtime.pause(&row.id).await?;
    } else {
        // A crash after freezing and before the commit leaves a frozen machine whose row says `running`.
        runtime.resume(&row.id).await?;
        let activity = Activity::new(shared.seams.clock.clone(), row);
        let (cut, lease) = (StreamCutter::default(), activity.lease());
        let guest = Guest { row: Arc::new(row.clone()), dial: dial.clone(), cut, lease };
        if let Err(error) = guest.call_within::<Identity>(ADOPT_TIMEOUT, &Request::Ping).await {
            // It may be out of RAM or overloaded: it runs, so it is kept, and its callers get errors.
            tracing::warn!(sandbox = %row.id, error = &error as &dyn std::error::Error, "an adopted guest did not respond");
        }
    }
    rates::adopt(shared, row, &*runtime).await;
    egress::adopt(shared, row).await;
    own_listener::adopt(shared, row).await;
    Ok(Some(LiveMachine::new(dial, machine, runtime)))
}

async fn mark_stopped(
    shared: &Shared,
    row: &SandboxRow,
    finish: Option<OperationId>,
) -> Result<(), EngineError> {
    let now = shared.now_ms();
    let change = SandboxChange {
        state: Some(State::Stopped),
        stop_reason: Some(Some(StopReason::HostRestarted)),
        machine: Some(None),
        stopped_ms: Some(Some(now)),
        // Of a sandbox that was hibernated when the stop began.
        dump: Some(None),
        slept_ms: Some(None),
        ..SandboxChange::at(now)
    };
    shared.seams.catalog.update_sandbox(&row.id, change, finish).await?;
    shared.seams.catalog.mark_execs_lost(&row.id, row.generation, now).await?;
    shared.event(
        &row.tenant,
        "sandbox.stopped",
        Some(&row.id),
        serde_json::json!({ "reason": "host-restarted" }),
    );
    Ok(())
}

async fn mark_hibernated(
    shared: &Shared,
    row: &SandboxRow,
    wake: &OperationId,
    failure: Option<String>,
) -> Result<(), EngineError> {
    let state = Some(State::Hibernated);
    let change = SandboxChange { state, failure: failure.map(Some), ..SandboxChange::at(shared.now_ms()) };
    shared.seams.catalog.update_sandbox(&row.id, change, Some(wake.clone())).await?;
    Ok(())
}

async fn mark_failed(
    shared: &Shared,
    row: &SandboxRow,
    finish: Option<OperationId>,
    failure: String,
) -> Result<(), EngineError> {
    let now_ms = shared.now_ms();
    let change = SandboxChange {
        state: Some(State::Failed),
        failure: Some(Some(failure)),
        machine: Some(None),
        stopped_ms: Some(Some(now_ms)),
        ..SandboxChange::at(now_ms)
    };
    shared.seams.catalog.update_sandbox(&row.id, change, finish).await?;
    shared.seams.catalog.mark_execs_lost(&row.id, row.generation, now_ms).await?;
    Ok(())
}
