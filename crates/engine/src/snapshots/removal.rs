//! Removes snapshots with everything that only they hold.

use burrow_model::{Origin, Snapshot, SnapshotKind, TenantId};

use super::dump;
use super::pins::Pins;
use crate::shared::Shared;
use crate::{EngineError, memory};

/// Removes a snapshot's row, then its resources: what a crash in between leaves is named by no row, and the next start removes it.
pub(crate) async fn remove_snapshot(shared: &Shared, snapshot: &Snapshot) -> Result<(), EngineError> {
    let busy = || EngineError::SnapshotBusy { id: snapshot.id.clone() };
    let _removal = Pins::remove(&shared.pins, &snapshot.id).ok_or_else(busy)?;
    if let Some(by) = shared.seams.catalog.rotating_to(&snapshot.id).await?.into_iter().next() {
        return Err(EngineError::SnapshotInUse { id: snapshot.id.clone(), by });
    }
    shared.seams.catalog.delete_snapshot(&snapshot.id, None).await?;
    shared.seams.disks.remove((&snapshot.id).into()).await?;
    if let Some(dump) = &snapshot.dump {
        dump::remove_if_unused(shared, dump).await;
    }
    if let Some(memory) = &snapshot.memory {
        memory::remove_if_unused(shared, &memory.space).await;
    }
    Ok(())
}

/// A child was deleted: the snapshot it had in common with its siblings is removed with the last of them.
pub(crate) async fn release_base(shared: &Shared, tenant: &TenantId, origin: &Origin) {
    let released = async {
        let catalog = &shared.seams.catalog;
        match catalog.snapshot(tenant, &origin.snapshot).await? {
            Some(base)
                if base.kind == SnapshotKind::Fork
                    && catalog.children_of_snapshot(&base.id).await?.is_empty() =>
            {
                remove_snapshot(shared, &base).await
            }
            _ => Ok(()),
        }
    };
    if let Err(error) = released.await {
        tracing::warn!(
            snapshot = %origin.snapshot, error = &error as &dyn std::error::Error,
            "could not remove the common snapshot of a fork's children"
        );
    }
}

/// Common snapshots of forks of which a crash left no children.
pub(crate) async fn unused_bases(shared: &Shared) -> Result<Vec<Snapshot>, EngineError> {
    let mut idle = Vec::new();
    for row in shared.seams.catalog.all_snapshots().await? {
        let base = row.snapshot;
        if row.ready
            && base.kind == SnapshotKind::Fork
            && shared.seams.catalog.children_of_snapshot(&base.id).await?.is_empty()
        {
            idle.push(base);
        }
    }
    Ok(idle)
}
