//! After a start: removes resources that no row names.
//!
//! ```text
//!   plan       before the engine serves: lists the drivers' resources, and selects those that no row names
//!   carry out  removes them, also while the engine serves
//! ```
//!
//! Everything in a plan was left by an earlier daemon: resources that are created later have new ids. So none of them can come into
//! use between the two steps, with two exceptions: the listeners of sandboxes that do not run, which the plan closes itself, and the
//! common snapshots of forks' children, which are checked again.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

use burrow_catalog::SandboxRow;
use burrow_disks::{DiskId, Inventory};
use burrow_model::{DumpId, SandboxId, Snapshot, SnapshotId, State};
use burrow_runtime::Runtime;

use crate::operations::journal::{Detail, Trial};
use crate::shared::Shared;
use crate::snapshots::removal;
use crate::{EngineError, images, memory, volumes};

/// The resources to remove.
#[derive(Debug)]
pub(crate) struct SweepPlan {
    /// Snapshots of forks without children.
    bases: Vec<Snapshot>,
    machines: Vec<(Arc<dyn Runtime>, SandboxId)>,
    networks: Vec<SandboxId>,
    disks: Vec<DiskId>,
    dumps: Vec<DumpId>,
}

/// Lists resources that no row names. The seams list only resources that Burrow created, so no others are affected.
pub(crate) async fn plan(shared: &Shared) -> Result<SweepPlan, EngineError> {
    let seams = &shared.seams;
    let bases = removal::unused_bases(shared).await?;
    // What is still being recovered removes its own resources. Read before the rows, which recovery changes when it ends.
    let open: Vec<Detail> = seams.catalog.open_operations().await?.iter().map(Detail::of).collect();
    // So does what is left of the warm pool.
    let warm_pool = seams.catalog.all_warm().await?;
    let rows = seams.catalog.all_sandboxes().await?;
    let trials: Vec<&Trial> = open.iter().filter_map(|detail| detail.trial.as_ref()).collect();
    let known: HashSet<&SandboxId> = rows
        .iter()
        .map(|row| &row.id)
        .chain(warm_pool.iter().map(|row| &row.id))
        .chain(trials.iter().map(|trial| &trial.sandbox))
        .collect();
    let unknown = |ids: Vec<SandboxId>| ids.into_iter().filter(|id| !known.contains(id)).collect::<Vec<_>>();
    let mut machines = Vec::new();
    for runtime in &seams.runtimes {
        let found = unknown(runtime.inventory().await?);
        machines.extend(found.into_iter().map(|id| (runtime.clone(), id)));
    }
    close_listeners(shared, &rows).await?;
    let networks = unknown(seams.network.inventory().await?);
    let found = seams.disks.inventory().await?;
    let (unnamed_snapshots, dumps) = unnamed_snapshots(shared, &rows, &open, &found).await?;
    let (mut unnamed_volumes, mut volume_snapshots) = volumes::unnamed(shared, &found).await?;
    let copies = || trials.iter().flat_map(|trial| &trial.volumes);
    unnamed_volumes.retain(|id| copies().all(|copy| copy.copy != *id));
    volume_snapshots.retain(|id| copies().all(|copy| copy.snapshot != *id));
    let known_images = images::known_volumes(shared, &found.images).await?;
    let unnamed_images = found.images.into_iter().filter(|id| !known_images.contains(id));
    Ok(SweepPlan {
        bases,
        machines,
        networks,
        disks: unknown(found.sandboxes)
            .iter()
            .map(DiskId::from)
            .chain(unnamed_snapshots.iter().map(DiskId::from))
            .chain(unnamed_volumes.iter().map(DiskId::from))
            .chain(volume_snapshots.iter().map(DiskId::from))
            .chain(found.staged.into_iter().chain(unnamed_images).map(DiskId::Image))
            .collect(),
        dumps,
    })
}

impl SweepPlan {
    /// Removes them. Failures are logged and left to the next start.
    pub(crate) async fn carry_out(self, shared: &Shared) {
        let seams = &shared.seams;
        for base in &self.bases {
            // A base has a row, and a sandbox may have been created from it since.
            remove_logged("an unused common snapshot of a fork", &base.id, async {
                match seams.catalog.children_of_snapshot(&base.id).await?.is_empty() {
                    true => removal::remove_snapshot(shared, base).await,
                    false => Ok(()),
                }
            })
            .await;
        }
        for (runtime, id) in &self.machines {
            remove_logged("an unused machine", id, async { Ok(runtime.destroy(id).await?) }).await;
        }
        for id in &self.networks {
            remove_logged("an unused network", id, async { Ok(seams.network.release(id).await?) }).await;
        }
        for disk in self.disks {
            let what = match disk {
                DiskId::Sandbox(_) => "an unused disk",
                DiskId::Image(_)
                | DiskId::Snapshot(_)
                | DiskId::Frozen(_)
                | DiskId::Volume(_)
                | DiskId::VolumeSnapshot(_) => "an unfinished disk",
            };
            let id = disk.to_string();
            remove_logged(what, &id, async { Ok(seams.disks.remove(disk).await?) }).await;
        }
        for id in &self.dumps {
            remove_logged("an unused dump", id, async { Ok(seams.disks.remove_dump(id).await?) }).await;
        }
        if let Err(error) = memory::sweep(shared).await {
            tracing::error!(error = &error as &dyn std::error::Error, "could not remove unused memory");
        }
    }
}

/// Removes one thing.
async fn remove_logged(
    what: &str,
    id: &(dyn Display + Sync),
    removed: impl Future<Output = Result<(), EngineError>>,
) {
    tracing::warn!(%id, "removing {what}");
    if let Err(error) = removed.await {
        let error = &error as &dyn std::error::Error;
        tracing::error!(%id, error, "could not remove {what}; the next start tries again");
    }
}

/// Closes the listeners of sandboxes that do not run.
async fn close_listeners(shared: &Shared, rows: &[SandboxRow]) -> Result<(), EngineError> {
    let seams = &shared.seams;
    let up = |row: &SandboxRow| matches!(row.state, State::Running | State::Paused);
    for id in &seams.egress.attached().await? {
        if shared.recovering.reason(id).is_some() {
            continue;
        }
        // Read now: a sandbox that was recovered in the meantime runs.
        let row = match rows.iter().find(|row| row.id == *id) {
            Some(row) => seams.catalog.sandbox(&row.tenant, id).await?,
            None => None,
        };
        if row.as_ref().is_some_and(up) {
            continue;
        }
        tracing::warn!(sandbox = %id, "closing the listeners of a sandbox that does not run");
        seams.egress.detach(id).await?;
    }
    Ok(())
}

/// Snapshots without a row, and dumps that neither a snapshot nor a sandbox names.
async fn unnamed_snapshots(
    shared: &Shared,
    rows: &[SandboxRow],
    open: &[Detail],
    found: &Inventory,
) -> Result<(Vec<SnapshotId>, Vec<DumpId>), EngineError> {
    let known = shared.seams.catalog.all_snapshots().await?;
    let of_open = open.iter().filter_map(|detail| detail.snapshot.as_ref());
    let of_trials = open.iter().filter_map(|detail| Some(&detail.trial.as_ref()?.snapshot));
    let named: HashSet<_> =
        known.iter().map(|row| &row.snapshot.id).chain(of_open).chain(of_trials).collect();
    let snapshots = found.snapshots.iter().filter(|id| !named.contains(id)).cloned().collect();
    let of_snapshots = known.iter().filter_map(|row| row.snapshot.dump.as_ref());
    let of_sandboxes = rows.iter().filter_map(|row| row.dump.as_ref());
    let of_open = open.iter().filter_map(|detail| detail.dump.as_ref());
    let named: HashSet<_> = of_snapshots.chain(of_sandboxes).chain(of_open).collect();
    let dumps = found.dumps.iter().filter(|id| !named.contains(id)).cloned().collect();
    Ok((snapshots, dumps))
}
