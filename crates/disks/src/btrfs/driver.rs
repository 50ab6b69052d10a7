//! The methods of the trait, each run on a thread that may block.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::{Changes, DumpId, ImageId, SandboxId, SnapshotId, VolumeId, VolumeSnapshotId};

use super::quota::QuotaSupport;
use super::{BtrfsDisks, transfer};
use crate::{
    Chunks, Comparison, DiskError, DiskId, Disks, Dump, Effort, Inventory, Space, Times, Tree, dump, step,
};

#[async_trait]
impl Disks for BtrfsDisks {
    async fn stage_image(&self, id: &ImageId) -> Result<PathBuf, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.stage_image(&id)).await
    }

    async fn stage_image_from(&self, id: &ImageId, parent: &ImageId) -> Result<PathBuf, DiskError> {
        let (id, parent) = (id.clone(), parent.clone());
        self.blocking(move |inner| {
            let source = inner.open_image(&parent)?;
            inner.stage_copy(&id, &source)
        })
        .await
    }

    async fn stage_image_of_sandbox(&self, id: &ImageId, sandbox: &SandboxId) -> Result<PathBuf, DiskError> {
        let (id, sandbox) = (id.clone(), sandbox.clone());
        self.blocking(move |inner| {
            let path = inner.sandboxes.path.join(sandbox.as_str());
            inner.locate(&sandbox)?;
            let source = File::open(&path).map_err(step("open the disk", &path))?;
            inner.stage_copy(&id, &source)
        })
        .await
    }

    async fn locate_image(&self, id: &ImageId) -> Result<PathBuf, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.open_image(&id)?;
            Ok(inner.images.path.join(id.as_str()).join("rootfs"))
        })
        .await
    }

    async fn seal_image(&self, id: &ImageId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.seal_image(&id)).await
    }

    async fn remove_image(&self, id: &ImageId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.remove(&inner.staged, id.as_str())?;
            inner.remove(&inner.images, id.as_str())
        })
        .await
    }

    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        let (id, image) = (id.clone(), image.clone());
        self.blocking(move |inner| inner.make_sandbox(&id, disk_bytes, || inner.open_image(&image))).await
    }

    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.locate(&id)).await
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let rootfs = inner.locate(&id)?;
            inner
                .quotas
                .limit(&inner.pool.directory, &id, disk_bytes)
                .map_err(step("limit the disk", &rootfs))
        })
        .await
    }

    async fn used(&self, id: &SandboxId) -> Result<u64, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let rootfs = inner.locate(&id)?;
            match inner.quotas.support() {
                QuotaSupport::Enforced => {
                    inner.quotas.used(&inner.pool.directory, &id).map_err(step("read the usage of", &rootfs))
                }
                QuotaSupport::Unavailable { reason } => Err(DiskError::NoQuotas { reason: reason.clone() }),
            }
        })
        .await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            // The mark comes first: a crash after the removal must not leave a group that no mark names.
            inner.quotas.retire(&id);
            inner.remove(&inner.sandboxes, id.as_str())
        })
        .await
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

    async fn send(&self, disk: &DiskId) -> Result<Chunks, DiskError> {
        let (shared, disk) = (Arc::clone(&self.inner), disk.clone());
        self.blocking(move |_| transfer::send(&shared, &disk)).await
    }

    async fn receive(&self, disk: &DiskId, disk_bytes: u64, chunks: Chunks) -> Result<(), DiskError> {
        let disk = disk.clone();
        self.blocking(move |inner| transfer::receive(inner, &disk, disk_bytes, chunks)).await
    }

    async fn snapshot(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        let (id, of) = (id.clone(), of.clone());
        self.blocking(move |inner| inner.snapshot(&id, &of)).await
    }

    async fn create_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let (id, snapshot) = (id.clone(), snapshot.clone());
        self.blocking(move |inner| inner.make_sandbox(&id, disk_bytes, || inner.open_snapshot(&snapshot)))
            .await
    }

    async fn replace_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let (id, snapshot) = (id.clone(), snapshot.clone());
        self.blocking(move |inner| inner.replace(&id, &snapshot, disk_bytes)).await
    }

    async fn locate_snapshot(&self, id: &SnapshotId) -> Result<PathBuf, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.open_snapshot(&id)?;
            Ok(inner.snapshots.path.join(id.as_str()).join("rootfs"))
        })
        .await
    }

    async fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.snapshot_bytes(&id)).await
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

    async fn stage_snapshot(&self, id: &SnapshotId, base: Option<&SnapshotId>) -> Result<PathBuf, DiskError> {
        let (id, base) = (id.clone(), base.cloned());
        self.blocking(move |inner| inner.stage_snapshot(&id, base.as_ref())).await
    }

    async fn seal_snapshot(&self, id: &SnapshotId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.seal_snapshot(&id)).await
    }

    async fn freeze(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        let (id, of) = (id.clone(), of.clone());
        self.blocking(move |inner| inner.freeze(&id, &of)).await
    }

    async fn thaw(&self, id: &SnapshotId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.remove(&inner.transfer, id.as_str())).await
    }

    async fn locate_tree(&self, tree: &Tree) -> Result<PathBuf, DiskError> {
        let tree = tree.clone();
        self.blocking(move |inner| {
            inner.open_tree(&tree)?;
            Ok(inner.tree_path(&tree).join("rootfs"))
        })
        .await
    }

    async fn compare(&self, old: &Tree, new: &Tree, times: Times) -> Result<Comparison, DiskError> {
        let (old, new) = (old.clone(), new.clone());
        self.blocking(move |inner| inner.compare_trees(&old, &new, times)).await
    }

    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, DiskError> {
        let (tree, path) = (tree.clone(), path.to_vec());
        self.blocking(move |inner| inner.names_of(&tree, &path)).await
    }

    async fn sync(&self, id: &SandboxId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let path = inner.locate(&id)?;
            let disk = File::open(&path).map_err(step("open the disk", &path))?;
            // As `sync` does for a process: file contents too, not only the transaction.
            rustix::fs::syncfs(&disk).map_err(|error| inner.failed("sync the disk", &path)(error.into()))
        })
        .await
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.remove(&inner.arriving, id.as_str())?;
            inner.remove(&inner.snapshots, id.as_str())
        })
        .await
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

    async fn create_volume(
        &self,
        id: &VolumeId,
        from: Option<&VolumeSnapshotId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let (id, from) = (id.clone(), from.cloned());
        self.blocking(move |inner| inner.create_volume(&id, from.as_ref(), disk_bytes)).await
    }

    async fn locate_volume(&self, id: &VolumeId) -> Result<PathBuf, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.locate_volume(&id)).await
    }

    async fn volume_used(&self, id: &VolumeId) -> Result<u64, DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.volume_used(&id)).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.remove_volume(&id)).await
    }

    async fn snapshot_volume(&self, id: &VolumeSnapshotId, of: &VolumeId) -> Result<(), DiskError> {
        let (id, of) = (id.clone(), of.clone());
        self.blocking(move |inner| inner.snapshot_volume(&id, &of)).await
    }

    async fn replace_volume(
        &self,
        id: &VolumeId,
        from: &VolumeSnapshotId,
        disk_bytes: u64,
    ) -> Result<(), DiskError> {
        let (id, from) = (id.clone(), from.clone());
        self.blocking(move |inner| inner.replace_volume(&id, &from, disk_bytes)).await
    }

    async fn remove_volume_snapshot(&self, id: &VolumeSnapshotId) -> Result<(), DiskError> {
        let id = id.clone();
        self.blocking(move |inner| inner.remove(&inner.volume_snapshots, id.as_str())).await
    }
}
