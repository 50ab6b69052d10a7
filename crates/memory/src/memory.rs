//! All spaces of this host.

use std::path::PathBuf;
use std::sync::Arc;

use burrow_model::{MemoryRef, SpaceId};
use tokio::sync::Semaphore;

use crate::artifacts::{Blobs, DiskFloor, UploadBudget};
use crate::clock::Clock;
use crate::embed::Embedder;
use crate::limits::Limits;
use crate::space::growth::FileLimits;
use crate::space::slots::Slots;
use crate::view::{View, ViewPosition};
use crate::{MemoryError, blocking};

/// The resources that memory needs.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The folder for the files of spaces.
    pub folder: PathBuf,
    /// The store for the contents of artifacts.
    pub artifacts: Arc<dyn object_store::ObjectStore>,
    /// The disk of the contents, and its reserve; `None` if they are not stored on a disk of this host.
    pub artifact_disk: Option<DiskFloor>,
    /// The disk of `folder`, and its reserve; `None` in tests of something else.
    pub disk: Option<DiskFloor>,
    pub embedder: Arc<dyn Embedder>,
    pub clock: Arc<dyn Clock>,
    pub limits: Limits,
}

/// All spaces of this host. A cheap handle.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    pub(crate) artifacts: Blobs,
    /// The size limits of the files of spaces.
    pub(crate) file_limits: Arc<FileLimits>,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) readers: Arc<Semaphore>,
}

impl Memory {
    pub async fn open(options: MemoryOptions) -> Result<Self, MemoryError> {
        let MemoryOptions { folder, artifacts, artifact_disk, disk, embedder, clock, limits } = options;
        let made = folder.clone();
        blocking(move || {
            std::fs::create_dir_all(&made)
                .map_err(|source| MemoryError::Folder { path: made.clone(), source })
        })
        .await?;
        let readers = Arc::new(Semaphore::new(limits.readers_max.max(1)));
        let room = UploadBudget::new(limits.space_artifact_bytes_max, artifact_disk);
        let file_limits =
            FileLimits { space_bytes_max: limits.space_bytes_max, disk, room: Arc::clone(&room) };
        let file_limits = Arc::new(file_limits);
        let slots = Slots::new(folder, Arc::clone(&clock), Arc::clone(&embedder), limits);
        let artifacts = Blobs::new(artifacts, room);
        let shared = Shared { slots, artifacts, file_limits, embedder, clock, readers };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The present of a branch. Does no IO.
    pub fn view(&self, of: &MemoryRef) -> View {
        View { shared: Arc::clone(&self.shared), of: of.clone(), cut: ViewPosition::Now, quota_bytes: None }
    }

    /// The current embedder.
    pub fn embedder(&self) -> &Arc<dyn Embedder> {
        &self.shared.embedder
    }

    /// Spaces that have a file.
    pub async fn spaces(&self) -> Result<Vec<SpaceId>, MemoryError> {
        let folder = self.shared.slots.folder.clone();
        blocking(move || {
            let failed = |source| MemoryError::Folder { path: folder.clone(), source };
            let mut spaces = Vec::new();
            for file in std::fs::read_dir(&folder).map_err(failed)? {
                let name = file.map_err(failed)?.file_name();
                let id = name.to_str().and_then(|name| name.strip_suffix(".db"));
                spaces.extend(id.and_then(|id| id.parse::<SpaceId>().ok()));
            }
            spaces.sort();
            Ok(spaces)
        })
        .await
    }

    /// Closes a space and removes its file. Can be repeated.
    pub async fn remove(&self, space: &SpaceId) -> Result<(), MemoryError> {
        let path = self.shared.slots.path(space);
        let remove =
            move || {
                // The file first: without it the journals are ignored, and a crash in between leaves no partial space.
                for suffix in ["", "-wal", "-shm"] {
                    let mut name = path.clone().into_os_string();
                    name.push(suffix);
                    let removed = std::fs::remove_file(&name);
                    removed
                        .or_else(|error| {
                            if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
                        })
                        .map_err(|source| MemoryError::Folder { path: name.into(), source })?;
                }
                Ok(())
            };
        self.shared.slots.closed_for(space, remove).await?;
        self.shared.slots.forget(space);
        Ok(())
    }

    /// Waits for running work, then closes every file.
    pub async fn close(&self) {
        self.shared.slots.close().await;
    }
}
