//! The methods of the trait, each run on a thread that may block.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::{Changes, DumpId, ImageId, SandboxId, SnapshotId};

use super::{BtrfsDisks, transfer};
use crate::{
    Chunks, Comparison, DiskError, DiskId, Disks, Dump, Effort, Inventory, Space, TimeComparison, Tree, dump,
};

#[async_trait]
impl Disks for BtrfsDisks {
    async fn stage(&self, disk: DiskId, from: Option<DiskId>) -> Result<PathBuf, DiskError> {
        self.blocking(move |inner| inner.stage(disk, from.as_ref())).await
    }

    async fn seal(&self, disk: DiskId) -> Result<(), DiskError> {
        self.blocking(move |inner| inner.seal(disk)).await
    }

    async fn create(
        &self,
        disk: DiskId,
        from: Option<DiskId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        self.blocking(move |inner| inner.create(disk, from.as_ref(), disk_bytes)).await
    }

    async fn replace(&self, disk: DiskId, from: DiskId, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        self.blocking(move |inner| inner.replace(disk, &from, disk_bytes)).await
    }

    async fn snapshot(&self, disk: DiskId, of: DiskId) -> Result<(), DiskError> {
        self.blocking(move |inner| inner.snapshot(&disk, &of)).await
    }

    async fn locate(&self, disk: DiskId) -> Result<PathBuf, DiskError> {
        self.blocking(move |inner| Ok(inner.find(&disk)?.join("rootfs"))).await
    }

    async fn remove(&self, disk: DiskId) -> Result<(), DiskError> {
        self.blocking(move |inner| inner.remove_disk(&disk)).await
    }

    async fn used(&self, disk: DiskId) -> Result<u64, DiskError> {
        self.blocking(move |inner| {
            if let DiskId::Snapshot(id) = &disk { inner.snapshot_bytes(id) } else { inner.charged(disk) }
        })
        .await
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.set_quota(&id, disk_bytes)).await
    }

    async fn sync(&self, id: &SandboxId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.sync(&id)).await
    }

    async fn inventory(&self) -> Result<Inventory, DiskError> {
        self.blocking(|inner| {
            Ok(Inventory {
                sandboxes: inner.sandboxes.ids()?,
                images: inner.images.ids()?,
                staged: inner.staged.ids()?,
                snapshots: inner.snapshots.ids()?,
                dumps: dump::inventory(&inner.dumps.path)?,
                volumes: inner.volumes.ids()?,
                volume_snapshots: inner.volume_snapshots.ids()?,
            })
        })
        .await
    }

    async fn space(&self) -> Result<Space, DiskError> {
        self.blocking(|inner| inner.pool.space()).await
    }

    async fn space_for(&self, needed_bytes: u64) -> Result<Space, DiskError> {
        self.blocking(move |inner| inner.space_for(needed_bytes)).await
    }

    async fn send(&self, disk: DiskId, base: Option<DiskId>) -> Result<Chunks, DiskError> {
        let shared = Arc::clone(&self.inner);
        self.blocking(move |_| transfer::send(&shared, &disk, base.as_ref())).await
    }

    async fn receive(&self, disk: DiskId, disk_bytes: u64, chunks: Chunks) -> Result<(), DiskError> {
        self.blocking(move |inner| transfer::receive(inner, disk, disk_bytes, chunks)).await
    }

    async fn changes(
        &self,
        from: Option<&SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, DiskError> {
        let (from, to, image) = (from.cloned(), to.clone(), image.clone());
        self.blocking(move |inner| inner.changes(from, &to, &image, paths_max, effort)).await
    }

    async fn compare(&self, old: &Tree, new: &Tree, times: TimeComparison) -> Result<Comparison, DiskError> {
        let (old, new) = (old.clone(), new.clone());
        self.blocking(move |inner| inner.compare_trees(&old, &new, times)).await
    }

    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, DiskError> {
        let (tree, path) = (tree.clone(), path.to_vec());
        self.blocking(move |inner| inner.names_of(&tree, &path)).await
    }

    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.stage_dump(&id)).await
    }

    async fn seal_dump(&self, id: &DumpId, about: &str, evict: bool) -> Result<u64, DiskError> {
        let (sealed, about) = (id.clone(), about.to_owned());
        let bytes = self.blocking(move |inner| inner.seal_dump(&sealed, &about)).await?;
        if evict {
            self.inner.dumping.evict(&self.inner.dumps.path, id);
        }
        Ok(bytes)
    }

    async fn open_dump(&self, id: &DumpId) -> Result<Dump, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.open_dump(&id)).await
    }

    async fn remove_dump(&self, id: &DumpId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.remove_dump(&id)).await
    }
}
