//! Layers: found, or made by exactly one task.
//!
//! A task that works with a layer holds its lock: shared once the layer exists, so that it is not removed; exclusive while the task
//! makes it, so that it is not made twice. Locks of a chain are taken from the lowest layer up. Chains form a tree, whose shared
//! part is locked in the same order by all tasks, so there is no deadlock.

use burrow_catalog::LayerRow;
use burrow_model::{ImageId, TenantId};

use super::layer_locks::{LayerReadLock, LayerWriteLock};
use crate::EngineError;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) enum LayerClaim {
    There(LayerRow, LayerReadLock),
    Missing(LayerWriteLock),
}

/// Finds a layer, or waits for the exclusive lock to make it.
pub(crate) async fn claim(shared: &Shared, tenant: &TenantId, key: &str) -> Result<LayerClaim, EngineError> {
    let lock = shared.images.locks.of(tenant, key);
    let hold = lock.clone().read_owned().await;
    if let Some(row) = find(shared, tenant, key).await? {
        return Ok(LayerClaim::There(row, hold));
    }
    drop(hold);
    let layer_lock = lock.write_owned().await;
    Ok(match find(shared, tenant, key).await? {
        Some(row) => LayerClaim::There(row, layer_lock.downgrade()),
        None => LayerClaim::Missing(layer_lock),
    })
}

async fn find(shared: &Shared, tenant: &TenantId, key: &str) -> Result<Option<LayerRow>, EngineError> {
    let catalog = &shared.seams.catalog;
    let row = catalog.layer(tenant, key).await?;
    if row.is_some() {
        catalog.touch_layer(tenant, key, shared.now_ms()).await?;
    }
    Ok(row)
}

/// A layer to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewLayer {
    pub(crate) tenant: TenantId,
    pub(crate) key: String,
    /// The disk of the layer below.
    pub(crate) parent: Option<ImageId>,
    pub(crate) what: String,
}

/// Makes a layer: `fill` stages the disk and returns the bytes it added. A failure leaves nothing behind; after a crash the next start
/// removes disks without a row.
pub(crate) async fn make(
    shared: &Shared,
    new: NewLayer,
    disk: ImageId,
    fill: impl Future<Output = Result<u64, EngineError>>,
) -> Result<LayerRow, EngineError> {
    let catalog = &shared.seams.catalog;
    let made = async {
        let size_bytes = fill.await?;
        shared.seams.disks.seal((&disk).into()).await?;
        let now_ms = shared.now_ms();
        let row = LayerRow {
            tenant: new.tenant.clone(),
            key: new.key.clone(),
            disk: disk.clone(),
            parent: new.parent.clone(),
            what: new.what.clone(),
            size_bytes,
            created_ms: now_ms,
            used_ms: now_ms,
        };
        catalog.insert_layer(row.clone()).await?;
        Ok::<_, EngineError>(row)
    };
    let made = made.await;
    if made.is_err() {
        discard(shared, &disk).await;
    }
    made
}

/// Removes a disk that no row names. If this fails, the next start removes it.
pub(crate) async fn discard(shared: &Shared, disk: &ImageId) {
    if let Err(error) = shared.seams.disks.remove(disk.into()).await {
        tracing::warn!(
            disk = %disk, error = &error as &dyn std::error::Error,
            "could not remove an image's disk; the next start tries again"
        );
    }
}
