//! Layers: found, or made by exactly one.
//!
//! Whoever works with a layer holds its lock: for reading once it is there, so that it is not cleaned up under his
//! hands; for writing while he makes it, so that nobody makes it twice. Locks of a chain are taken from the lowest
//! layer up. Chains form a tree, whose shared part is taken in the same order by all, so nobody waits in a circle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_catalog::LayerRow;
use burrow_model::{ImageId, TenantId};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::EngineError;
use crate::shared::Shared;

/// Locks kept before those that nobody holds are forgotten.
const LOCKS_KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct LayerLocks {
    locks: Mutex<HashMap<(TenantId, String), Lock>>,
}

type Lock = Arc<RwLock<()>>;

/// Keeps a layer from being removed.
pub(crate) type Hold = OwnedRwLockReadGuard<()>;

/// The right to make a layer.
pub(crate) type Right = OwnedRwLockWriteGuard<()>;

#[derive(Debug)]
pub(crate) enum Claim {
    There(LayerRow, Hold),
    Missing(Right),
}

impl LayerLocks {
    fn of(&self, tenant: &TenantId, key: &str) -> Lock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if locks.len() > LOCKS_KEPT {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        locks.entry((tenant.clone(), key.to_owned())).or_default().clone()
    }

    /// For whoever makes a layer anew, whether or not there is one.
    pub(crate) async fn right(&self, tenant: &TenantId, key: &str) -> Right {
        self.of(tenant, key).write_owned().await
    }

    /// For whoever removes a layer: `None` while somebody works with it.
    pub(crate) fn try_right(&self, tenant: &TenantId, key: &str) -> Option<Right> {
        self.of(tenant, key).try_write_owned().ok()
    }
}

/// Finds a layer, or waits for the right to make it.
pub(crate) async fn claim(shared: &Shared, tenant: &TenantId, key: &str) -> Result<Claim, EngineError> {
    let lock = shared.images.locks.of(tenant, key);
    let hold = lock.clone().read_owned().await;
    if let Some(row) = find(shared, tenant, key).await? {
        return Ok(Claim::There(row, hold));
    }
    drop(hold);
    let right = lock.write_owned().await;
    Ok(match find(shared, tenant, key).await? {
        Some(row) => Claim::There(row, right.downgrade()),
        None => Claim::Missing(right),
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

/// A layer to be.
#[derive(Clone, Debug)]
pub(crate) struct NewLayer {
    pub(crate) tenant: TenantId,
    pub(crate) key: String,
    /// Volume of the layer it is made upon.
    pub(crate) parent: Option<ImageId>,
    pub(crate) what: String,
}

/// Makes a layer: `fill` stages the volume and answers the bytes it added. Whatever fails leaves nothing behind; after
/// a crash the next start removes what has no row.
pub(crate) async fn make(
    shared: &Shared,
    new: NewLayer,
    volume: ImageId,
    fill: impl Future<Output = Result<u64, EngineError>>,
) -> Result<LayerRow, EngineError> {
    let catalog = &shared.seams.catalog;
    let made = async {
        let size_bytes = fill.await?;
        shared.seams.volumes.seal_image(&volume).await?;
        let now_ms = shared.now_ms();
        let row = LayerRow {
            tenant: new.tenant.clone(),
            key: new.key.clone(),
            volume: volume.clone(),
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
        discard(shared, &volume).await;
    }
    made
}

/// Removes a volume that no row names. What stays behind is removed at the next start.
pub(crate) async fn discard(shared: &Shared, volume: &ImageId) {
    if let Err(error) = shared.seams.volumes.remove_image(volume).await {
        tracing::warn!(
            volume = %volume, error = &error as &dyn std::error::Error,
            "could not remove an image's volume; the next start does"
        );
    }
}
