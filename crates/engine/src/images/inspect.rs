//! Inspects one image.

use std::collections::{HashMap, HashSet};

use burrow_catalog::LayerRow;
use burrow_disks::inside;
use burrow_model::{Image, ImageId, SandboxId, TenantId};

use super::finish::blocking;
use crate::{Engine, EngineError};

#[derive(Clone, Debug)]
pub struct ImageDetail {
    pub image: Image,
    /// Lowest first.
    pub layers: Vec<LayerRow>,
    /// Bytes of layers that no other image uses; of the whole image if it has no layers.
    pub unique_bytes: u64,
    pub used_by: Vec<SandboxId>,
}

/// Bytes of `/etc/passwd` that are read.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

impl Engine {
    /// Whether `/etc/passwd` of an image has a user of this name.
    pub async fn image_has_user(&self, image: &Image, user: &str) -> Result<bool, EngineError> {
        let root = self.shared.seams.disks.locate((&image.id).into()).await?;
        let user = user.to_owned();
        blocking(move || {
            let passwd = inside::read_file(&root, "etc/passwd", PASSWD_BYTES_MAX)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&passwd);
            Ok(text.lines().any(|line| line.split(':').next() == Some(user.as_str())))
        })
        .await
    }

    pub async fn inspect_image(&self, tenant: &TenantId, text: &str) -> Result<ImageDetail, EngineError> {
        let image = self.find_image(tenant, text).await?;
        let catalog = &self.shared.seams.catalog;
        let all: HashMap<ImageId, LayerRow> =
            catalog.list_layers(tenant).await?.into_iter().map(|row| (row.disk.clone(), row)).collect();
        let layers = chain(&all, image.layer.as_ref());
        let others = catalog.list_images(tenant).await?;
        let shared: HashSet<ImageId> = others
            .into_iter()
            .filter(|row| row.image.id != image.id)
            .flat_map(|row| chain(&all, row.image.layer.as_ref()))
            .map(|row| row.disk)
            .collect();
        let unique = layers.iter().filter(|row| !shared.contains(&row.disk));
        let unique_bytes = match image.layer {
            Some(_) => unique.map(|row| row.size_bytes).sum(),
            None => image.size_bytes,
        };
        let used_by = catalog.image_users(tenant, &image.id).await?;
        Ok(ImageDetail { image, layers, unique_bytes, used_by })
    }
}

/// From the lowest layer up to `top`. The number of steps is limited by the number of layers, so a cycle ends too.
fn chain(all: &HashMap<ImageId, LayerRow>, top: Option<&ImageId>) -> Vec<LayerRow> {
    let mut found = Vec::new();
    let mut next = top.and_then(|disk| all.get(disk));
    while let Some(row) = next.filter(|_| found.len() < all.len()) {
        found.push(row.clone());
        next = row.parent.as_ref().and_then(|disk| all.get(disk));
    }
    found.reverse();
    found
}
