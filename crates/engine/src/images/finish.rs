//! The last step of every image: its own disk, prepared for the drivers, sealed, recorded.
//!
//! A sandbox is only ever created from an image's own disk. That disk is a copy-on-write child of the topmost layer, so it uses
//! almost no space, and layers stay free of the files that drivers add.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_catalog::SandboxRow;
use burrow_disks::inside;
use burrow_model::{Image, ImageConfig, ImageId, ImageName, ImageOrigin, SandboxId, TenantId};

use super::layers::discard;
use crate::shared::Shared;
use crate::trees::disks;
use crate::trees::held_trees::{self, TreeSource};
use crate::{Engine, EngineError, faults};

/// An image to be created.
#[derive(Clone, Debug)]
pub(super) struct NewImage {
    pub(super) names: Vec<ImageName>,
    pub(super) config: ImageConfig,
    pub(super) origin: ImageOrigin,
    pub(super) layer: Option<ImageId>,
    pub(super) size_bytes: u64,
    pub(super) files: Files,
}

/// Where its files come from.
#[derive(Clone, Debug)]
pub(super) enum Files {
    None,
    /// A layer's disk, or another image's.
    Image(ImageId),
    /// A sandbox's files, in their present state.
    Sandbox(SandboxId),
    /// The same, for a sandbox whose files are on its machine's own disk.
    MachineDisk(Box<SandboxRow>),
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
            shared.seams.disks.seal((&id).into()).await?;
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
    let disks = &shared.seams.disks;
    let root = match &new.files {
        Files::None => disks.stage(id.into(), None).await?,
        Files::Image(disk) => disks.stage(id.into(), Some(disk.into())).await?,
        Files::Sandbox(sandbox) => held_trees::stage_image(shared, id, sandbox).await?,
        Files::MachineDisk(row) => {
            let root = disks.stage(id.into(), None).await?;
            unpack(shared, row, &root).await?;
            root
        }
    };
    faults::hit("image.staged")?;
    let (path, workdir) = (root.clone(), new.config.workdir.clone());
    let fresh = matches!(new.files, Files::None);
    let copied = matches!(new.files, Files::Sandbox(_) | Files::MachineDisk(_));
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

/// Fills a staged root with the files on a sandbox's disk.
async fn unpack(shared: &Arc<Shared>, row: &SandboxRow, root: &Path) -> Result<(), EngineError> {
    let driver = shared.runtime(&row.spec.driver)?;
    let disk = held_trees::hold(shared, &TreeSource::Sandbox(Box::new(row.clone()))).await?;
    let unpacked = disks::unpack(shared, &driver, &disk, root).await;
    disk.release().await;
    unpacked
}

/// Refuses files that no driver could start safely: they are untrusted.
pub(super) async fn prepare_for_drivers(shared: &Shared, root: &Path) -> Result<(), EngineError> {
    for runtime in &shared.seams.runtimes {
        let unfit = |source| EngineError::ImageUnfit { driver: runtime.name(), source };
        runtime.prepare_image(root).await.map_err(unfit)?;
    }
    Ok(())
}

/// Runs work on files outside the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // The task only ends without a result by a panic, which continues in the caller.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The staged root of a disk, to be filled by the caller.
pub(super) async fn stage_from(
    shared: &Shared,
    disk: &ImageId,
    parent: Option<&ImageId>,
) -> Result<PathBuf, EngineError> {
    let disks = &shared.seams.disks;
    match parent {
        Some(parent) => Ok(disks.stage(disk.into(), Some(parent.into())).await?),
        None => {
            let root = disks.stage(disk.into(), None).await?;
            let path = root.clone();
            blocking(move || Ok(inside::own_root(&path)?)).await?;
            Ok(root)
        }
    }
}
