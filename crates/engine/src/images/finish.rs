//! The last step of every image: a volume of its own, prepared for the drivers, sealed, recorded.
//!
//! A sandbox starts from an image's own volume and from nothing else. It is a copy-on-write child of the topmost layer,
//! so it costs next to nothing, and layers stay free of what drivers put into files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_catalog::SandboxRow;
use burrow_model::{Image, ImageConfig, ImageId, ImageName, ImageOrigin, SandboxId, TenantId};
use burrow_volumes::inside;

use super::layers::discard;
use crate::frozen::{self, Held, TreeOf};
use crate::shared::Shared;
use crate::{Engine, EngineError, disks, faults};

/// An image to be.
#[derive(Clone, Debug)]
pub(super) struct NewImage {
    pub(super) names: Vec<ImageName>,
    pub(super) config: ImageConfig,
    pub(super) origin: ImageOrigin,
    pub(super) layer: Option<ImageId>,
    pub(super) size_bytes: u64,
    pub(super) files: Files,
}

/// Where its files are.
#[derive(Clone, Debug)]
pub(super) enum Files {
    None,
    /// A layer's volume, or another image's.
    Volume(ImageId),
    /// A sandbox's, as they are now.
    Sandbox(SandboxId),
    /// The same, of one whose files are on a disk of its own.
    Disk(Box<SandboxRow>),
}

impl Engine {
    pub(super) async fn finish_image(
        &self,
        tenant: &TenantId,
        new: NewImage,
        event: &'static str,
    ) -> Result<Image, EngineError> {
        let shared = &self.shared;
        let id = ImageId::generate();
        let made = async {
            prepare(shared, &id, &new).await?;
            shared.seams.volumes.seal_image(&id).await?;
            faults::hit("image.sealed")?;
            let image = Image {
                id: id.clone(),
                names: new.names.clone(),
                config: new.config.clone(),
                origin: new.origin.clone(),
                layer: new.layer.clone(),
                size_bytes: new.size_bytes,
                created_ms: shared.now_ms(),
            };
            shared.seams.catalog.insert_image(tenant, image.clone()).await?;
            Ok::<_, EngineError>(image)
        };
        match made.await {
            Ok(image) => {
                let detail = serde_json::json!({ "image": image.id, "name": image.names.first() });
                shared.event(tenant, event, None, detail);
                Ok(image)
            }
            Err(error) => {
                discard(shared, &id).await;
                Err(error)
            }
        }
    }
}

async fn prepare(shared: &Arc<Shared>, id: &ImageId, new: &NewImage) -> Result<(), EngineError> {
    let volumes = &shared.seams.volumes;
    let root = match &new.files {
        Files::None => volumes.stage_image(id).await?,
        Files::Volume(volume) => volumes.stage_image_from(id, volume).await?,
        Files::Sandbox(sandbox) => frozen::stage_image(shared, id, sandbox).await?,
        Files::Disk(row) => {
            let root = volumes.stage_image(id).await?;
            unpack(shared, row, &root).await?;
            root
        }
    };
    faults::hit("image.staged")?;
    let (path, workdir) = (root.clone(), new.config.workdir.clone());
    let fresh = matches!(new.files, Files::None);
    let copied = matches!(new.files, Files::Sandbox(_) | Files::Disk(_));
    blocking(move || {
        if fresh {
            inside::own_root(&path)?;
        }
        if copied {
            inside::forget_machine_id(&path)?;
        }
        if let Some(workdir) = workdir {
            inside::make_directories(&path, &workdir)?;
        }
        Ok(())
    })
    .await?;
    prepare_for_drivers(shared, &root).await
}

/// Fills a staged root with what is on a sandbox's disk.
async fn unpack(shared: &Arc<Shared>, row: &SandboxRow, root: &Path) -> Result<(), EngineError> {
    let driver = shared.runtime(&row.spec.driver)?;
    let disk = Held::hold(shared, &TreeOf::Sandbox(Box::new(row.clone()))).await?;
    let unpacked = disks::unpack(shared, &driver, &disk, root).await;
    disk.let_go().await;
    unpacked
}

/// Refuses what no driver could start safely: a stranger made these files.
pub(super) async fn prepare_for_drivers(shared: &Shared, root: &Path) -> Result<(), EngineError> {
    for runtime in &shared.seams.runtimes {
        let unfit = |source| EngineError::ImageUnfit { driver: runtime.name(), source };
        runtime.prepare_image(root).await.map_err(unfit)?;
    }
    Ok(())
}

/// Runs work on files off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // Only a panic ends it without a result; it goes on in the caller.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The staged root of a volume, for those who fill it themselves.
pub(super) async fn stage_upon(
    shared: &Shared,
    volume: &ImageId,
    parent: Option<&ImageId>,
) -> Result<PathBuf, EngineError> {
    let volumes = &shared.seams.volumes;
    match parent {
        Some(parent) => Ok(volumes.stage_image_from(volume, parent).await?),
        None => {
            let root = volumes.stage_image(volume).await?;
            let path = root.clone();
            blocking(move || Ok(inside::own_root(&path)?)).await?;
            Ok(root)
        }
    }
}
