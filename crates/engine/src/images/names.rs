//! Names of images, and the removal of images.

use burrow_model::{Image, ImageId, ImageName, ImageRef, TenantId};

use super::layers::discard;
use super::starting_points;
use crate::warm_pool;
use crate::{Engine, EngineError, ObjectKind};

/// The result of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoveResult {
    /// The image was removed, with all its names.
    Image,
    /// Only the name was removed: the image has others.
    Name,
}

/// What a prune removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub images: Vec<ImageId>,
    pub layers: usize,
    pub freed_bytes: u64,
}

impl Engine {
    /// Gives an image one more name; another image that had it loses it.
    pub async fn tag_image(
        &self,
        tenant: &TenantId,
        image: &Image,
        name: ImageName,
    ) -> Result<Image, EngineError> {
        let shared = &self.shared;
        shared.seams.catalog.tag_image(tenant, &image.id, name.clone()).await?;
        let detail = serde_json::json!({ "image": image.id, "name": name });
        shared.event(tenant, "image.tagged", None, detail);
        self.find_image(tenant, image.id.as_str()).await
    }

    /// Removes a name; the image stays, even without names.
    pub async fn untag_image(
        &self,
        tenant: &TenantId,
        image: &Image,
        name: &ImageName,
    ) -> Result<(), EngineError> {
        let unknown = || EngineError::NotFound { kind: ObjectKind::Image, what: name.to_string() };
        if !image.names.contains(name) {
            return Err(unknown());
        }
        let id = self.shared.seams.catalog.untag_image(tenant, name).await?.ok_or_else(unknown)?;
        self.shared.event(tenant, "image.untagged", None, serde_json::json!({ "image": id, "name": name }));
        Ok(())
    }

    /// By a name: removes the name, and the image if that was its last. By id: removes the image with all names. Sandboxes created from
    /// it have their own files, and keep its configuration.
    pub async fn remove_image(&self, tenant: &TenantId, text: &str) -> Result<RemoveResult, EngineError> {
        let image = self.find_image(tenant, text).await?;
        if let Ok(ImageRef::Name(name)) = text.parse()
            && image.names.len() > 1
        {
            self.untag_image(tenant, &image, &name).await?;
            return Ok(RemoveResult::Name);
        }
        self.remove_image_itself(tenant, &image).await?;
        Ok(RemoveResult::Image)
    }

    pub(crate) async fn remove_image_itself(
        &self,
        tenant: &TenantId,
        image: &Image,
    ) -> Result<bool, EngineError> {
        let shared = &self.shared;
        warm_pool::forget_image(shared, &image.id).await;
        // The row first: a crash in between leaves a disk without one, which the next start removes.
        let removed = shared.seams.catalog.remove_image(tenant, &image.id, shared.now_ms()).await?;
        if removed {
            discard(shared, &image.id).await;
            starting_points::forget_image(shared, tenant, &image.id).await?;
            let detail = serde_json::json!({ "image": image.id, "name": image.names.first() });
            shared.event(tenant, "image.removed", None, detail);
        }
        Ok(removed)
    }

    /// Removes images without names and sandboxes, then layers that no image uses. Layers in use stay.
    pub async fn prune_images(&self, tenant: &TenantId) -> Result<PruneReport, EngineError> {
        let shared = &self.shared;
        let catalog = &shared.seams.catalog;
        let mut pruned = PruneReport::default();
        for row in catalog.unused_images(tenant).await? {
            if self.remove_image_itself(tenant, &row.image).await? {
                // The sizes of its layers are counted with the layers.
                let own = if row.image.layer.is_some() { 0 } else { row.image.size_bytes };
                pruned.freed_bytes += own;
                pruned.images.push(row.image.id);
            }
        }
        for row in catalog.unused_layers(tenant).await? {
            let Some(_right) = shared.images.locks.try_lock_exclusive(tenant, &row.key) else { continue };
            // A new image may use it since the list was read.
            let still = catalog.unused_layers(tenant).await?.into_iter().any(|unused| unused.key == row.key);
            if still && catalog.delete_layer(tenant, &row.key).await? {
                discard(shared, &row.disk).await;
                pruned.layers += 1;
                pruned.freed_bytes += row.size_bytes;
            }
        }
        let detail = serde_json::json!({
            "images": pruned.images.len(), "layers": pruned.layers, "freed_bytes": pruned.freed_bytes,
        });
        shared.event(tenant, "image.pruned", None, detail);
        Ok(pruned)
    }
}
