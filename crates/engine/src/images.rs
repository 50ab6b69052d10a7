//! Images: found by name or id, built in a staging volume, sealed, then recorded.

use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{Image, ImageConfig, ImageId, Name, TenantId};
use burrow_volumes::VolumeError;
use tokio::sync::mpsc;

use crate::engine::shown;
use crate::{Engine, EngineError};

/// Fills a staged volume's `rootfs/`.
#[async_trait]
pub trait ImageBuilder: fmt::Debug + Send + Sync {
    /// Returns when the files are complete, with uids already shifted. Stages are for people; dropping the receiver
    /// does not stop the build.
    async fn build(
        &self,
        image: &ImageId,
        volume: PathBuf,
        stages: mpsc::Sender<BuildStage>,
    ) -> Result<(ImageConfig, u64), VolumeError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildStage {
    pub stage: String,
    pub percent: Option<u8>,
}

impl Engine {
    pub async fn images(&self, tenant: &TenantId) -> Result<Vec<Image>, EngineError> {
        let rows = self.shared.seams.catalog.list_images(tenant).await?;
        Ok(rows.into_iter().map(|row| row.image).collect())
    }

    /// By name or id.
    pub async fn find_image(&self, tenant: &TenantId, text: &str) -> Result<Image, EngineError> {
        let catalog = &self.shared.seams.catalog;
        let found = if let Ok(id) = text.parse::<ImageId>() {
            catalog.image(tenant, &id).await?
        } else if let Ok(name) = text.parse::<Name>() {
            catalog.image_by_name(tenant, &name).await?
        } else {
            None
        };
        found.map(|row| row.image).ok_or_else(|| EngineError::ImageNotFound { what: shown(text) })
    }

    /// Builds an image from Debian packages under `name`, replacing an older one of that name. Sandboxes made from
    /// the older one keep what they have.
    pub async fn build_image(
        &self,
        tenant: &TenantId,
        name: Name,
        stages: mpsc::Sender<BuildStage>,
    ) -> Result<Image, EngineError> {
        let _only = self
            .shared
            .builds
            .try_lock()
            .map_err(|_| EngineError::BuildInProgress { name: name.to_string() })?;
        let seams = &self.shared.seams;
        let id = ImageId::generate();
        let volume = seams.volumes.stage_image(&id).await?;
        let built = async {
            let built = seams.images.build(&id, volume.clone(), stages).await?;
            for runtime in &seams.runtimes {
                let what = id.to_string();
                let failed =
                    |source| VolumeError::Step { step: "prepare for its driver the image", what, source };
                runtime.prepare_image(&volume).await.map_err(failed)?;
            }
            seams.volumes.seal_image(&id).await?;
            Ok::<_, VolumeError>(built)
        };
        let built = built.await;
        let (config, size_bytes) = match built {
            Ok(built) => built,
            Err(error) => {
                // A staged image that stays behind is removed at the next start: it has no row.
                if let Err(error) = seams.volumes.remove_image(&id).await {
                    tracing::warn!(image = %id, %error, "could not remove a half-built image");
                }
                return Err(error.into());
            }
        };
        let image = Image { id, name, config, size_bytes, created_ms: self.shared.now_ms() };
        seams.catalog.insert_image(tenant, image.clone()).await?;
        self.shared.event(
            tenant,
            "image.built",
            None,
            serde_json::json!({"image": image.id, "name": image.name}),
        );
        Ok(image)
    }
}
