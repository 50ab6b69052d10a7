//! After a start: makes the host hold exactly what the catalog says.
//!
//! ```text
//!   1. open operations      unwind, then settle the row (undo create and start, complete stop and delete)
//!      stock                remove: its machines ended with the daemon that made them
//!   2. running, paused      adopt by pid + start time + boot id; else stopped (persistent) or gone (ephemeral)
//!   3. inventories          remove what no row names: machines, open doors, networks, volumes, images
//! ```
//!
//! A step that fails is logged and leaves its row as it is: one broken sandbox must not keep the daemon down.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::{OperationRow, SandboxChange, SandboxRow};
use burrow_guest::protocol::{Identity, Request};
use burrow_model::{OperationId, SandboxId, State, StopReason};
use burrow_runtime::Machine;
use futures_util::{StreamExt as _, stream};

use crate::actor::{self, Live};
use crate::journal::{Operation, Settlement};
use crate::operations::unwind;
use crate::shared::Shared;
use crate::{EngineError, Guest, egress, images, stock};

/// Sandboxes looked at side by side.
const PARALLEL: usize = 16;

/// An adopted guest answers within this time, or its machine is taken for dead.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn recover(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let operations = shared.seams.catalog.open_operations().await?;
    for operation in operations {
        if let Err(error) = finish(shared, &operation).await {
            tracing::error!(
                sandbox = %operation.sandbox, kind = operation.kind, error = &error as &dyn std::error::Error,
                "could not finish an operation that was under way"
            );
        }
    }
    stock::clear(shared).await?;
    let rows = shared.seams.catalog.all_sandboxes().await?;
    stream::iter(rows).for_each_concurrent(PARALLEL, |row| settle(shared, row)).await;
    if let Err(error) = sweep(shared).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "could not sweep the host; the next start tries again"
        );
    }
    Ok(())
}

/// Unwinds one open operation and settles its sandbox's row.
async fn finish(shared: &Shared, operation: &OperationRow) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let Some(row) = catalog.sandbox(&operation.tenant, &operation.sandbox).await? else {
        return Ok(catalog.finish_operation(&operation.id).await?);
    };
    // A kind of a newer version: removing the machine is what every operation can begin with.
    let kind = Operation::parse(&operation.kind).unwrap_or(Operation::Stop);
    tracing::info!(sandbox = %row.id, kind = kind.as_str(), "finishing an operation that was under way");
    unwind(shared, &row, kind, &mut |_| Ok(())).await?;
    match kind.settlement() {
        Settlement::Gone => {
            catalog.delete_sandbox(&row.id, Some(operation.id.clone()), shared.now_ms()).await?
        }
        Settlement::Stopped => mark_stopped(shared, &row, Some(operation.id.clone())).await?,
    }
    Ok(())
}

/// Brings one row and its machine together, and starts its actor.
async fn settle(shared: &Arc<Shared>, row: SandboxRow) {
    let id = row.id.clone();
    match try_settle(shared, row).await {
        Ok(()) => {}
        Err(error) => {
            tracing::error!(sandbox = %id, error = &error as &dyn std::error::Error, "could not take up a sandbox");
        }
    }
}

async fn try_settle(shared: &Arc<Shared>, row: SandboxRow) -> Result<(), EngineError> {
    match row.state {
        State::Running | State::Paused => {
            if let Some(live) = adopt(shared, &row).await? {
                shared.registry.keep(actor::spawn(shared, row, Some(live)));
                return Ok(());
            }
        }
        // Their operation could not be finished above: they wait for a delete or the next start.
        State::Creating
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
        let guest = Guest { row: Arc::new(row.clone()), dial: dial.clone() };
        if let Err(error) = guest.call_within::<Identity>(ADOPT_TIMEOUT, &Request::Ping).await {
            // It may be out of RAM or swamped: it runs, so it is kept, and its callers are told.
            tracing::warn!(sandbox = %row.id, error = &error as &dyn std::error::Error, "an adopted guest is silent");
        }
    }
    egress::adopt(shared, row).await;
    Ok(Some(Live { dial, machine, runtime }))
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
    let up = |row: &&SandboxRow| matches!(row.state, State::Running | State::Paused);
    let running: HashSet<&SandboxId> = rows.iter().filter(up).map(|row| &row.id).collect();
    for id in seams.egress.attached().await?.iter().filter(|id| !running.contains(id)) {
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
    let images = images::known_volumes(shared, &volumes.images).await?;
    for id in volumes.staged.iter().chain(volumes.images.iter().filter(|id| !images.contains(id))) {
        tracing::warn!(image = %id, "removing an image that was never finished");
        seams.volumes.remove_image(id).await?;
    }
    Ok(())
}
