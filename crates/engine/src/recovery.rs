//! After a start: makes the host hold exactly what the catalog says.
//!
//! ```text
//!   1. warm pool             remove: its machines ended with the daemon that made them
//!      volumes of their own  complete or undo: see `shelves`
//!   2. each sandbox, in a task of its own
//!      open operations       unwind, then settle the row: see `journal` for which are undone and which completed
//!      running, paused       adopt by pid + start time + boot id; else stopped (persistent) or gone (ephemeral)
//!      hibernated            remove what may be left of their machines
//!   3. inventories           remove what no row names: machines, listeners, networks, volumes, images, snapshots, dumps
//! ```
//!
//! The start waits for step 2, but not longer than `Policy::start_patience`: what is not recovered by then goes on in the
//! background. Such a sandbox has no actor yet, so every request for it is refused with [`EngineError::Recovering`], and
//! step 3 leaves its things alone. A step that fails is logged. A sandbox that cannot be recovered in [`RECOVERY_MAX`] is
//! failed and keeps its files.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::{OperationRow, SandboxChange, SandboxRow};
use burrow_guest::protocol::{Identity, Request};
use burrow_model::{OperationId, SandboxId, State, StopReason, TenantId};
use burrow_runtime::{Machine, RuntimeError};
use burrow_volumes::Inventory;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::activity::{Activity, Cut};
use crate::actor::{self, Live};
use crate::journal::{Detail, Operation, Settlement};
use crate::operations::unwind;
use crate::shared::Shared;
use crate::{
    EngineError, Guest, egress, forms, images, memory, merge, own, rates, shelves, snapshots, stock,
};

/// Sandboxes looked at side by side.
const PARALLEL: usize = 16;

/// An adopted guest answers within this time, or its machine is taken for dead.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pauses between attempts to recover a sandbox at one start.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];

/// No attempt takes longer. A dump that is still being written is waited for, and gigabytes on a slow disk take minutes;
/// what hangs ends earlier by bounds of its own.
const RECOVERY_MAX: Duration = Duration::from_mins(15);

/// Sandboxes that are still being recovered, and why.
#[derive(Debug, Default)]
pub(crate) struct Recovering {
    sandboxes: watch::Sender<HashMap<SandboxId, (TenantId, String)>>,
}

impl Recovering {
    pub(crate) fn reason(&self, id: &SandboxId) -> Option<String> {
        self.sandboxes.borrow().get(id).map(|(_, reason)| reason.clone())
    }

    pub(crate) fn owner(&self, id: &SandboxId) -> Option<TenantId> {
        self.sandboxes.borrow().get(id).map(|(tenant, _)| tenant.clone())
    }

    pub(crate) fn ids(&self) -> Vec<SandboxId> {
        self.sandboxes.borrow().keys().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.sandboxes.borrow().len()
    }

    /// Waits until a sandbox is recovered, or could not be.
    pub(crate) async fn wait_for(&self, id: &SandboxId) {
        // The sender is here as long as we are.
        let _ = self.sandboxes.subscribe().wait_for(|sandboxes| !sandboxes.contains_key(id)).await;
    }

    /// The same of all of them.
    pub(crate) async fn wait_for_all(&self) {
        let _ = self.sandboxes.subscribe().wait_for(HashMap::is_empty).await;
    }

    fn begin(&self, row: &SandboxRow, reason: String) {
        let entry = (row.tenant.clone(), reason);
        self.sandboxes.send_modify(|sandboxes| drop(sandboxes.insert(row.id.clone(), entry)));
    }
}

/// Ends a sandbox's recovery when it is dropped, also by a panic: nobody may wait for it for ever.
struct Underway(Arc<Shared>, SandboxId);

impl Drop for Underway {
    fn drop(&mut self) {
        let Self(shared, id) = self;
        shared.recovering.sandboxes.send_modify(|sandboxes| drop(sandboxes.remove(id)));
    }
}

pub(crate) async fn recover(shared: &Arc<Shared>) -> Result<(), EngineError> {
    stock::clear(shared).await?;
    shelves::recover(shared).await?;
    let is_import = |operation: &OperationRow| Operation::parse(&operation.kind) == Some(Operation::Import);
    let (imports, of_sandboxes): (Vec<_>, Vec<_>) =
        shared.seams.catalog.open_operations().await?.into_iter().partition(is_import);
    let mut operations: HashMap<SandboxId, Vec<OperationRow>> = HashMap::new();
    for operation in of_sandboxes {
        operations.entry(operation.sandbox.clone()).or_default().push(operation);
    }
    let slots = Arc::new(Semaphore::new(PARALLEL));
    let mut tasks = JoinSet::new();
    for row in shared.seams.catalog.all_sandboxes().await? {
        let open = operations.remove(&row.id).unwrap_or_default();
        let reason = open.first().map_or_else(
            || "its machine is being looked for".to_owned(),
            |operation| format!("its {} was interrupted, and is being finished or undone", operation.kind),
        );
        shared.recovering.begin(&row, reason);
        let underway = Underway(shared.clone(), row.id.clone());
        let (shared, slots) = (shared.clone(), slots.clone());
        tasks.spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            recover_one(&shared, row).await;
            drop(underway);
        });
    }
    // What concerns no sandbox, and snapshots of sandboxes that were deleted meanwhile.
    for operation in imports.into_iter().chain(operations.into_values().flatten()) {
        if let Err(error) = finish(shared, &operation).await {
            unfinished(&operation, &error);
        }
    }
    let in_time = tokio::time::timeout(shared.policy.start_patience, async {
        while tasks.join_next().await.is_some() {}
    })
    .await;
    if in_time.is_ok() {
        complete_merges(shared).await;
    } else {
        tracing::warn!(sandboxes = shared.recovering.len(), "serving before all sandboxes are recovered");
        let shared = shared.clone();
        tokio::spawn(async move {
            while tasks.join_next().await.is_some() {}
            tracing::info!("recovery is complete");
            complete_merges(&shared).await;
        });
    }
    let swept = async {
        snapshots::sweep_bases(shared).await?;
        sweep(shared).await
    };
    if let Err(error) = swept.await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "could not sweep the host; the next start tries again"
        );
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

/// Recovers one sandbox, and starts its actor. One that cannot be recovered is ended, and keeps its files.
async fn recover_one(shared: &Arc<Shared>, row: SandboxRow) {
    let mut pauses = PAUSES.into_iter();
    let failure = loop {
        let failure = match tokio::time::timeout(RECOVERY_MAX, try_recover(shared, &row)).await {
            Ok(Ok(())) => return keep(shared, &row).await,
            Ok(Err(error)) => in_words(&error),
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

/// Ends a sandbox that cannot be recovered. Its files stay, and it can be started from them.
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
        // Its processes are safe on disk; or its files are not what its row says, and it must not be started from them.
        tracing::error!(sandbox = %row.id, failure, "could not recover a sandbox; the next start tries again");
        return Ok(());
    }
    tracing::error!(sandbox = %row.id, failure, "ending a sandbox that cannot be recovered");
    unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
    // Nothing may stay open: the next start would finish it on a sandbox that was started again meanwhile.
    for operation in &open {
        remove_made(shared, operation, &Detail::of(operation)).await?;
        catalog.finish_operation(&operation.id).await?;
    }
    mark_failed(shared, &row, None, failure).await
}

/// Finishes what was under way for one sandbox, and brings its row and its machine together.
async fn try_recover(shared: &Arc<Shared>, row: &SandboxRow) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    // Asked anew: an attempt before this one may have finished some.
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

/// Whatever came of it: a sandbox that has a row has an actor, so that it can be started from its files or removed.
async fn keep(shared: &Arc<Shared>, row: &SandboxRow) {
    if shared.registry.get(&row.id).is_some() {
        return;
    }
    if let Ok(Some(row)) = shared.seams.catalog.sandbox(&row.tenant, &row.id).await {
        shared.registry.add(shared, row);
    }
}

fn unfinished(operation: &OperationRow, error: &EngineError) {
    tracing::error!(
        sandbox = %operation.sandbox, kind = operation.kind, error = error as &dyn std::error::Error,
        "could not finish an operation that was under way"
    );
}

/// Ends a sandbox whose processes cannot go on. Its files stay, and it can be started from them.
async fn give_up(
    shared: &Arc<Shared>,
    operation: &OperationRow,
    error: &EngineError,
) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let Some(row) = catalog.sandbox(&operation.tenant, &operation.sandbox).await? else { return Ok(()) };
    tracing::error!(sandbox = %row.id, error = error as &dyn std::error::Error, "ending a sandbox that cannot go on");
    unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
    remove_made(shared, operation, &Detail::of(operation)).await?;
    let failure = format!("its {} was interrupted: {}", operation.kind, in_words(error));
    mark_failed(shared, &row, Some(operation.id.clone()), failure).await
}

/// An error and what caused it, in one line.
fn in_words(error: &EngineError) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Unwinds one open operation and settles its sandbox's row.
async fn finish(shared: &Arc<Shared>, operation: &OperationRow) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    if Operation::parse(&operation.kind) == Some(Operation::Import) {
        // It concerns no sandbox, whatever its row names. The memory it filled is nobody's now, and goes with the sweep.
        tracing::info!(kind = operation.kind, "undoing an import that was under way");
        return remove_made(shared, operation, &Detail::of(operation)).await;
    }
    let Some(row) = catalog.sandbox(&operation.tenant, &operation.sandbox).await? else {
        // Its sandbox was deleted while a snapshot of it was still being made.
        remove_made(shared, operation, &Detail::of(operation)).await?;
        return Ok(catalog.finish_operation(&operation.id).await?);
    };
    // A kind of a newer version: removing the machine is what every operation can begin with.
    let kind = Operation::parse(&operation.kind).unwrap_or(Operation::Stop);
    tracing::info!(sandbox = %row.id, kind = kind.as_str(), "finishing an operation that was under way");
    unwind(shared, &row, kind, &mut |_| Ok(())).await?;
    let detail = Detail::of(operation);
    match kind.settlement() {
        Settlement::Gone => {
            catalog.delete_sandbox(&row.id, Some(operation.id.clone()), shared.now_ms()).await?
        }
        Settlement::Stopped => mark_stopped(shared, &row, Some(operation.id.clone())).await?,
        Settlement::AsBefore => take_back(shared, &row, operation, &detail).await?,
        Settlement::Hibernated => {
            let change =
                SandboxChange { state: Some(State::Hibernated), ..SandboxChange::at(shared.now_ms()) };
            catalog.update_sandbox(&row.id, change, Some(operation.id.clone())).await?;
        }
        Settlement::Restored => go_on_with_restore(shared, &row, operation, &detail).await?,
        Settlement::Unmerged => actor::unmerge(shared, &row, operation, &detail).await?,
    }
    Ok(())
}

/// A hibernate or a snapshot that was cut short: its machine, if it lives, goes on, and what was made is removed.
async fn take_back(
    shared: &Shared,
    row: &SandboxRow,
    operation: &OperationRow,
    detail: &Detail,
) -> Result<(), EngineError> {
    if let Some(machine) = row.machine.clone().and_then(|machine| serde_json::from_value(machine).ok())
        && let Ok(runtime) = shared.runtime(&row.spec.driver)
        && runtime.adopt(&row.id, &machine).await?
    {
        runtime.mend(&row.id, &machine, detail.paused).await?;
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

/// What a hibernate or a snapshot made beside its sandbox.
async fn remove_made(shared: &Shared, operation: &OperationRow, detail: &Detail) -> Result<(), EngineError> {
    let makes = [Operation::Hibernate, Operation::Snapshot, Operation::Import];
    if !Operation::parse(&operation.kind).is_some_and(|kind| makes.contains(&kind)) {
        return Ok(());
    }
    if let Some(dump) = &detail.dump {
        shared.seams.volumes.remove_dump(dump).await?;
    }
    if let Some(snapshot) = &detail.snapshot {
        shared.seams.volumes.remove_snapshot(snapshot).await?;
        shared.seams.catalog.delete_snapshot(snapshot, Some(operation.id.clone())).await?;
    }
    Ok(())
}

/// The state it replaces was kept before it began, so going on loses nothing.
async fn go_on_with_restore(
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
        // It was removed meanwhile, by hand: the files that are there are what there is.
        return mark_stopped(shared, row, Some(operation.id.clone())).await;
    };
    let disk_bytes = forms::volume_bytes(shared, &row.spec);
    shared.seams.volumes.replace_from_snapshot(&row.id, &snapshot.id, disk_bytes).await?;
    let now_ms = shared.now_ms();
    let change = actor::restored(row, &snapshot, detail, now_ms);
    catalog.update_sandbox(&row.id, change, Some(operation.id.clone())).await?;
    catalog.mark_execs_lost(&row.id, row.generation, now_ms).await?;
    Ok(())
}

/// Brings one row and its machine together, and starts its actor.
async fn try_settle(shared: &Arc<Shared>, row: SandboxRow) -> Result<(), EngineError> {
    match row.state {
        State::Running | State::Paused => {
            if let Some(live) = adopt(shared, &row).await? {
                shared.registry.keep(actor::spawn(shared, row, Some(live)));
                return Ok(());
            }
        }
        State::Hibernated => {
            // A crash between the commit and the machine's end leaves it standing still.
            unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
            shared.registry.add(shared, row);
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
                shared.registry.add(shared, row);
                return Ok(());
            }
        }
    }
    // The host was restarted, or the machine ended while no daemon watched.
    if row.spec.lifetime.is_ephemeral() {
        unwind(shared, &row, Operation::Delete, &mut |_| Ok(())).await?;
        return Ok(shared.seams.catalog.delete_sandbox(&row.id, None, shared.now_ms()).await?);
    }
    unwind(shared, &row, Operation::Stop, &mut |_| Ok(())).await?;
    mark_stopped(shared, &row, None).await?;
    if let Some(row) = shared.seams.catalog.sandbox(&row.tenant, &row.id).await? {
        shared.registry.add(shared, row);
    }
    Ok(())
}

async fn adopt(shared: &Shared, row: &SandboxRow) -> Result<Option<Live>, EngineError> {
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
        // A crash between freezing and writing it down leaves a frozen machine that is called running.
        runtime.resume(&row.id).await?;
        let activity = Activity::new(shared.seams.clock.clone(), row);
        let (cut, lease) = (Cut::default(), activity.lease());
        let guest = Guest { row: Arc::new(row.clone()), dial: dial.clone(), cut, lease };
        if let Err(error) = guest.call_within::<Identity>(ADOPT_TIMEOUT, &Request::Ping).await {
            // It may be out of RAM or swamped: it runs, so it is kept, and its callers are told.
            tracing::warn!(sandbox = %row.id, error = &error as &dyn std::error::Error, "an adopted guest did not respond");
        }
    }
    rates::adopt(shared, row, &*runtime).await;
    egress::adopt(shared, row).await;
    own::adopt(shared, row).await;
    Ok(Some(Live::new(dial, machine, runtime)))
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

/// Removes what no row names. Only things of ours are listed by the seams, so strangers are safe.
async fn sweep(shared: &Shared) -> Result<(), EngineError> {
    let seams = &shared.seams;
    let rows = seams.catalog.all_sandboxes().await?;
    let known: HashSet<&SandboxId> = rows.iter().map(|row| &row.id).collect();
    for runtime in &seams.runtimes {
        for id in runtime.inventory().await?.iter().filter(|id| !known.contains(id)) {
            tracing::warn!(sandbox = %id, "removing a machine that no sandbox has");
            runtime.destroy(id).await?;
        }
    }
    let up = |row: &SandboxRow| matches!(row.state, State::Running | State::Paused);
    for id in &seams.egress.attached().await? {
        if shared.recovering.reason(id).is_some() {
            continue;
        }
        // Read now: one that was recovered meanwhile runs.
        let row = match rows.iter().find(|row| row.id == *id) {
            Some(row) => seams.catalog.sandbox(&row.tenant, id).await?,
            None => None,
        };
        if row.as_ref().is_some_and(up) {
            continue;
        }
        tracing::warn!(sandbox = %id, "closing the doors of a sandbox that does not run");
        seams.egress.detach(id).await?;
    }
    for id in seams.network.inventory().await?.iter().filter(|id| !known.contains(id)) {
        tracing::warn!(sandbox = %id, "removing a network that no sandbox has");
        seams.network.release(id).await?;
    }
    let volumes = seams.volumes.inventory().await?;
    for id in volumes.sandboxes.iter().filter(|id| !known.contains(id)) {
        tracing::warn!(sandbox = %id, "removing a volume that no sandbox has");
        seams.volumes.destroy(id).await?;
    }
    sweep_snapshots(shared, &rows, &volumes).await?;
    shelves::sweep(shared, &volumes).await?;
    memory::sweep(shared).await?;
    let images = images::known_volumes(shared, &volumes.images).await?;
    for id in volumes.staged.iter().chain(volumes.images.iter().filter(|id| !images.contains(id))) {
        tracing::warn!(image = %id, "removing an image that was never finished");
        seams.volumes.remove_image(id).await?;
    }
    Ok(())
}

/// Snapshots without a row, and dumps that neither a snapshot nor a sandbox names.
async fn sweep_snapshots(shared: &Shared, rows: &[SandboxRow], found: &Inventory) -> Result<(), EngineError> {
    let seams = &shared.seams;
    let known = seams.catalog.all_snapshots().await?;
    // What is still being recovered removes its own.
    let open: Vec<Detail> = seams.catalog.open_operations().await?.iter().map(Detail::of).collect();
    let of_open = open.iter().filter_map(|detail| detail.snapshot.as_ref());
    let snapshots: HashSet<_> = known.iter().map(|row| &row.snapshot.id).chain(of_open).collect();
    for id in found.snapshots.iter().filter(|id| !snapshots.contains(id)) {
        tracing::warn!(snapshot = %id, "removing a snapshot that was never finished");
        seams.volumes.remove_snapshot(id).await?;
    }
    let of_snapshots = known.iter().filter_map(|row| row.snapshot.dump.as_ref());
    let of_sandboxes = rows.iter().filter_map(|row| row.dump.as_ref());
    let dumps: HashSet<_> = of_snapshots
        .chain(of_sandboxes)
        .chain(open.iter().filter_map(|detail| detail.dump.as_ref()))
        .collect();
    for id in found.dumps.iter().filter(|id| !dumps.contains(id)) {
        tracing::warn!(dump = %id, "removing a dump that nothing needs");
        seams.volumes.remove_dump(id).await?;
    }
    Ok(())
}
