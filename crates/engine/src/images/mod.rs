//! Images: pull, import, build, commit, names, inspection, export, removal.
//!
//! ```text
//!   pull ────┐  chain ids                      ┌─► finish: its own disk, prepared, sealed, ONE row
//!   import ──┼────────────► layers ────────────┤
//!   build ───┘  step keys   (cached, shared)   └─► names
//!   commit ─────────────────────────────────────►
//! ```
//!
//! Crash-safe without a journal: a disk is filled while it is *staged*, completed by one seal, and used only after the commit of its
//! row. After a crash at any step the next start removes disks that no row names, and sandboxes of builds. Each layer and image
//! belongs to one tenant: knowing a digest gives no access to its content.
//!
//! A request is completed even if its client disconnects, but not if the daemon ends.

mod build;
mod build_stages;
mod builder;
mod commit;
mod config;
mod context;
mod export;
mod finish;
mod import;
mod inspect;
pub(crate) mod layer_locks;
pub(crate) mod layers;
mod names;
mod progress;
mod pull;
mod scratch_space;
mod sources;
mod stack;
pub(crate) mod starting_points;
mod step;
mod tree_steps;
mod work;

use burrow_model::{BUILD_LABEL, Image, ImageId, ImageName, ImageOrigin, ImageRef, ImageStep, TenantId};
use tokio::sync::mpsc;

use crate::shared::Shared;
use crate::shown::shown;
use crate::{Engine, EngineError, ObjectKind};
use finish::{Files, prepare_for_drivers};
use layers::discard;

pub use build::{BuildOptions, packages_recipe};
pub use build_stages::{BuildSource, DockerSource};
pub use builder::{BuildStage, ImageBuilder};
pub use commit::{CommitOptions, ConfigChange};
pub use context::BuildContext;
pub use import::OpenedArchive;
pub use inspect::ImageDetail;
pub use names::{PruneReport, RemoveResult};
pub use progress::{ImageItem, ImageProgress, ImageProgressSink, ItemState};
pub use pull::PullOptions;
pub(crate) use work::ImageWork;

/// Progress messages that may wait, from the builder of the default image.
const STAGES_QUEUED: usize = 16;

impl Engine {
    pub async fn images(&self, tenant: &TenantId) -> Result<Vec<Image>, EngineError> {
        let rows = self.shared.seams.catalog.list_images(tenant).await?;
        Ok(rows.into_iter().map(|row| row.image).collect())
    }

    /// By name or id.
    pub async fn find_image(&self, tenant: &TenantId, text: &str) -> Result<Image, EngineError> {
        let catalog = &self.shared.seams.catalog;
        let found = match text.parse::<ImageRef>() {
            Ok(ImageRef::Id(id)) => catalog.image(tenant, &id).await?,
            Ok(ImageRef::Name(name)) => catalog.image_by_name(tenant, &name).await?,
            Err(_) => None,
        };
        found
            .map(|row| row.image)
            .ok_or_else(|| EngineError::NotFound { kind: ObjectKind::Image, what: shown(text) })
    }

    /// Builds the default image from packages under `name`, which an older image loses. Sandboxes created from that image keep their
    /// files.
    pub async fn build_image(
        &self,
        tenant: &TenantId,
        name: ImageName,
        tell: ImageProgressSink,
    ) -> Result<Image, EngineError> {
        let _only = self
            .shared
            .builds
            .try_lock()
            .map_err(|_| EngineError::BuildInProgress { name: name.to_string() })?;
        let _slot = self.shared.images.permit(&tell).await?;
        let shared = &self.shared;
        let id = ImageId::generate();
        let (stages, mut reported) = mpsc::channel::<BuildStage>(STAGES_QUEUED);
        let telling = tokio::spawn(async move {
            while let Some(BuildStage { stage, percent }) = reported.recv().await {
                tell.stage(&stage, percent);
            }
        });
        let made = async {
            let disk = shared.seams.disks.stage((&id).into(), None).await?;
            let (config, size_bytes) = shared.seams.images.build(&id, disk.clone(), stages).await?;
            prepare_for_drivers(shared, &disk).await?;
            shared.seams.disks.seal((&id).into()).await?;
            let history = vec![ImageStep { what: "Debian packages".to_owned(), size_bytes, layer: None }];
            let origin = ImageOrigin { kind: "debian".to_owned(), of: None, history };
            let (names, created_ms) = (vec![name], shared.now_ms());
            let image = Image { id: id.clone(), names, config, origin, layer: None, size_bytes, created_ms };
            shared.seams.catalog.insert_image(tenant, image.clone()).await?;
            Ok::<_, EngineError>(image)
        };
        let made = made.await;
        // All progress is reported before the end is.
        let _ = telling.await;
        match made {
            Ok(image) => {
                let detail = serde_json::json!({ "image": image.id, "name": image.names.first() });
                shared.event(tenant, "image.built", None, detail);
                Ok(image)
            }
            Err(error) => {
                discard(shared, &id).await;
                Err(error)
            }
        }
    }

    /// Cancels work on images, and accepts no more: for a daemon about to end.
    pub fn stop_image_work(&self) {
        self.shared.images.close();
    }

    /// Removes the sandboxes of builds that an earlier daemon did not finish.
    pub(crate) async fn clear_builds(&self) -> Result<(), EngineError> {
        for row in self.shared.seams.catalog.all_sandboxes().await? {
            if row.spec.labels.contains_key(BUILD_LABEL)
                && let Err(error) = self.delete(&row.tenant, &row.id).await
            {
                tracing::warn!(
                    sandbox = %row.id, error = &error as &dyn std::error::Error,
                    "could not remove the sandbox of an unfinished build"
                );
            }
        }
        Ok(())
    }
}

/// Disks that a row names, after removing the rows of layers whose disk is missing: a backup contains images only.
pub(crate) async fn known_volumes(
    shared: &Shared,
    there: &[ImageId],
) -> Result<std::collections::HashSet<ImageId>, EngineError> {
    let catalog = &shared.seams.catalog;
    let there: std::collections::HashSet<&ImageId> = there.iter().collect();
    let mut known: std::collections::HashSet<ImageId> =
        catalog.all_images().await?.into_iter().map(|row| row.image.id).collect();
    for row in catalog.all_layers().await? {
        if there.contains(&row.disk) {
            known.insert(row.disk);
        } else {
            tracing::info!(key = row.key, "removing the row of a layer whose disk is missing");
            catalog.delete_layer(&row.tenant, &row.key).await?;
        }
    }
    Ok(known)
}
