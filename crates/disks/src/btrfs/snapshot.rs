//! Snapshots of sandboxes, and sandboxes from snapshots.
//!
//! ```text
//!   replace:  snapshot ─► replacing/<sandbox>, with its quota ─► exchanged with sandboxes/<sandbox> ─► commit ─► removed
//! ```
//!
//! Each step is one transaction, so after a crash either the old disk or the new one is in place. The next start removes
//! the other one, which a crash leaves in `replacing/`.
//!
//! Quotas: data that a sandbox wrote is charged to it for as long as the sandbox or a snapshot refers to it; see `quota.rs`.
//! When a disk is replaced, its group and its charges remain until the last snapshot that refers to the data is removed.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use burrow_model::{SandboxId, SnapshotId};
use rustix::fs::RenameFlags;

use super::ioctl::{self, Access};
use super::{Folder, Inner};
use crate::{DiskError, Tree, step};

impl Inner {
    /// A read-only snapshot: the kernel writes the sandbox's data in RAM to disk, and returns after its commit.
    pub(super) fn snapshot(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        self.copy_into(&self.snapshots, id, of)
    }

    /// The same, among the temporary disks.
    pub(super) fn freeze(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        self.copy_into(&self.transfer, id, of)
    }

    fn copy_into(&self, folder: &Folder, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        if folder.holds(id.as_str()) {
            return Ok(());
        }
        self.locate(of)?;
        self.check_room()?;
        let path = self.sandboxes.path.join(of.as_str());
        let source = File::open(&path).map_err(step("open the disk", &path))?;
        match ioctl::snapshot(&folder.directory, id.as_str(), &source, Access::ReadOnly, None) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.failed("snapshot the disk", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// See [`crate::Disks::stage_snapshot`]. It joins no quota group, because only the data of sandboxes is charged.
    pub(super) fn stage_snapshot(
        &self,
        id: &SnapshotId,
        base: Option<&SnapshotId>,
    ) -> Result<PathBuf, DiskError> {
        self.check_room()?;
        self.remove(&self.arriving, id.as_str())?;
        let path = self.arriving.path.join(id.as_str());
        let rootfs = path.join("rootfs");
        match base {
            Some(base) => {
                let source = self.open_snapshot(base)?;
                ioctl::snapshot(&self.arriving.directory, id.as_str(), &source, Access::Writable, None)
                    .map_err(self.failed("stage the snapshot", &path))?;
            }
            None => {
                ioctl::create_subvolume(&self.arriving.directory, id.as_str())
                    .map_err(self.failed("stage the snapshot", &path))?;
                DirBuilder::new()
                    .mode(0o755)
                    .create(&rootfs)
                    .map_err(self.failed("make the directory", &rootfs))?;
            }
        }
        Ok(rootfs)
    }

    /// The kernel writes the content to disk and returns after its commit: the snapshot exists completely or not at all.
    pub(super) fn seal_snapshot(&self, id: &SnapshotId) -> Result<(), DiskError> {
        if !self.snapshots.holds(id.as_str()) {
            let path = self.arriving.path.join(id.as_str());
            let staged = match File::open(&path) {
                Ok(staged) => staged,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(DiskError::SnapshotNotFound { snapshot: id.clone() });
                }
                Err(error) => return Err(step("open the staged snapshot", &path)(error)),
            };
            ioctl::snapshot(&self.snapshots.directory, id.as_str(), &staged, Access::ReadOnly, None)
                .map_err(self.failed("seal the snapshot", &path))?;
        }
        self.remove(&self.arriving, id.as_str())
    }

    pub(super) fn open_snapshot(&self, id: &SnapshotId) -> Result<File, DiskError> {
        open_in(&self.snapshots, id)
    }

    pub(super) fn open_tree(&self, tree: &Tree) -> Result<File, DiskError> {
        match tree {
            Tree::Image(id) => self.open_image(id),
            Tree::Snapshot(id) => open_in(&self.snapshots, id),
            Tree::Frozen(id) => open_in(&self.transfer, id),
        }
    }

    pub(super) fn tree_path(&self, tree: &Tree) -> PathBuf {
        match tree {
            Tree::Image(id) => self.images.path.join(id.as_str()),
            Tree::Snapshot(id) => self.snapshots.path.join(id.as_str()),
            Tree::Frozen(id) => self.transfer.path.join(id.as_str()),
        }
    }

    /// See [`crate::Disks::replace_from_snapshot`].
    pub(super) fn replace(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let source = self.open_snapshot(snapshot)?;
        self.check_room()?;
        self.remove(&self.replacing, id.as_str())?;
        self.prepare_replacement(id, &source, disk_bytes)?;
        self.put_replacement(id)?;
        self.remove(&self.replacing, id.as_str())?;
        Ok(self.sandboxes.path.join(id.as_str()).join("rootfs"))
    }

    /// Creates the new disk under `replacing/`, with its limit.
    pub(super) fn prepare_replacement(
        &self,
        id: &SandboxId,
        source: &File,
        disk_bytes: u64,
    ) -> Result<(), DiskError> {
        let made = self.quotas.with_group(&self.pool.directory, id, disk_bytes, |group| {
            ioctl::snapshot(&self.replacing.directory, id.as_str(), source, Access::Writable, group)
        });
        let path = self.replacing.path.join(id.as_str());
        made.map_err(self.failed("make the disk", &path))?;
        self.note_base(&self.replacing, id);
        Ok(())
    }

    /// Puts the new disk in the place of the old one, durably. The old one, if any, is in `replacing/` afterwards.
    pub(super) fn put_replacement(&self, id: &SandboxId) -> Result<(), DiskError> {
        self.put_in_place(&self.sandboxes, id.as_str())
    }

    /// The same in any folder.
    pub(super) fn put_in_place(&self, folder: &Folder, name: &str) -> Result<(), DiskError> {
        let path = folder.path.join(name);
        let flags = match folder.holds(name) {
            true => RenameFlags::EXCHANGE,
            false => RenameFlags::NOREPLACE,
        };
        rustix::fs::renameat_with(&self.replacing.directory, name, &folder.directory, name, flags)
            .map_err(|error| self.failed("put in place the disk", &path)(error.into()))?;
        ioctl::commit(&self.pool.directory).map_err(self.failed("put in place the disk", &path))
    }

    /// Records in a new disk which of its data is older than the disk, for [`Inner::snapshot_bytes`]. Only an estimate uses
    /// it, so it may fail, and need not be durable.
    pub(super) fn note_base(&self, folder: &Folder, id: &SandboxId) {
        let noted = File::open(folder.path.join(id.as_str())).and_then(|disk| {
            let made_in = ioctl::subvolume_info(&disk)?.made_in.to_le_bytes();
            Ok(rustix::fs::fsetxattr(&disk, BASE_ATTRIBUTE, &made_in, rustix::fs::XattrFlags::empty())?)
        });
        if let Err(error) = noted {
            tracing::debug!(%id, %error, "could not record the origin of a disk");
        }
    }
}

fn open_in(folder: &Folder, id: &SnapshotId) -> Result<File, DiskError> {
    if !folder.holds(id.as_str()) {
        return Err(DiskError::SnapshotNotFound { snapshot: id.clone() });
    }
    let path = folder.path.join(id.as_str());
    File::open(&path).map_err(step("open the snapshot", &path))
}

/// Attribute of the top directory of a disk, which only the host sees: the transaction that created the sandbox's disk.
pub(super) const BASE_ATTRIBUTE: &str = "trusted.burrow.base";
