//! Dumps in the pool: opened, removed, and the space for them.

use burrow_model::DumpId;

use super::dump_description::OpenedDump;
use crate::EngineError;
use crate::shared::Shared;

/// A sealed dump whose files were all verified.
pub(crate) async fn open(shared: &Shared, id: &DumpId) -> Result<OpenedDump, EngineError> {
    let dump = shared.seams.disks.open_dump(id).await?;
    let about =
        serde_json::from_str(&dump.about).map_err(|_| EngineError::DumpUnknown { dump: id.clone() })?;
    Ok(OpenedDump { images: dump.path, about })
}

/// Removes a dump that no snapshot and no sandbox names any more. If this fails, the next start removes it.
pub(crate) async fn remove_if_unused(shared: &Shared, id: &DumpId) {
    let removed = async {
        if !shared.seams.catalog.dump_in_use(id).await? {
            shared.seams.disks.remove_dump(id).await?;
        }
        Ok::<_, EngineError>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(dump = %id, error = &error as &dyn std::error::Error, "could not remove a dump");
    }
}

/// Checks that a dump of this size fits into the pool without using its reserve.
pub(crate) async fn check_room(shared: &Shared, needed_bytes: u64) -> Result<(), EngineError> {
    let reserve_bytes = shared.policy.pool_reserve_bytes;
    let wanted_bytes = needed_bytes.saturating_add(reserve_bytes);
    let free_bytes = shared.seams.disks.space_for(wanted_bytes).await?.free_bytes;
    if free_bytes < wanted_bytes {
        return Err(EngineError::NoRoom { needed_bytes, free_bytes, reserve_bytes });
    }
    Ok(())
}
