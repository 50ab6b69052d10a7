//! A tree that is held unchanged, for a comparison or a merge.

use std::path::PathBuf;
use std::sync::Arc;

use burrow_disks::{DiskError, DiskId, Disks, Tree};
use burrow_model::SnapshotId;

use crate::snapshots::pins::Pin;

/// A tree that stays unchanged, and in its place, until it is released.
#[derive(Debug)]
pub(crate) struct HeldTree {
    pub(crate) tree: Tree,
    pub(crate) path: PathBuf,
    disks: Arc<dyn Disks>,
    _pin: Option<Pin>,
    /// The copy of a sandbox's tree, to be removed.
    frozen: Option<SnapshotId>,
}

impl HeldTree {
    /// The copy of a sandbox's tree, which is removed when it is released.
    pub(super) async fn frozen(disks: Arc<dyn Disks>, frozen: SnapshotId) -> Result<Self, DiskError> {
        let (tree, path) = (Tree::Frozen(frozen.clone()), PathBuf::new());
        let mut held = Self { tree, path, disks: disks.clone(), _pin: None, frozen: Some(frozen) };
        held.path = disks.locate((&held.tree).into()).await?;
        Ok(held)
    }

    /// A tree that does not change by itself.
    pub(super) fn pinned(tree: Tree, path: PathBuf, disks: Arc<dyn Disks>, pin: Option<Pin>) -> Self {
        Self { tree, path, disks, _pin: pin, frozen: None }
    }

    pub(crate) async fn release(mut self) {
        if let Some(frozen) = self.frozen.take() {
            remove_copy(&*self.disks, &frozen).await;
        }
    }
}

impl Drop for HeldTree {
    fn drop(&mut self) {
        // After a failure, or if the caller disconnected.
        if let (Some(frozen), Ok(runtime)) = (self.frozen.take(), tokio::runtime::Handle::try_current()) {
            let disks = self.disks.clone();
            // Ends with the copy. If the shutdown interrupts it, the next start removes the copy.
            drop(runtime.spawn(async move { remove_copy(&*disks, &frozen).await }));
        }
    }
}

async fn remove_copy(disks: &dyn Disks, frozen: &SnapshotId) {
    if let Err(error) = disks.remove(DiskId::Frozen(frozen.clone())).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not remove the copy of a tree after a comparison; the next start removes it"
        );
    }
}
