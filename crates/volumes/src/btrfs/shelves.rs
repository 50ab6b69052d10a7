//! Volumes that outlive sandboxes ("shelves"), and their snapshots.
//!
//! ```text
//!   create:   an empty one, or a snapshot ─► shelves/<volume>, with its quota, in one transaction
//!   replace:  as of a sandbox: put together in replacing/, then exchanged
//! ```
//!
//! A shelf has a quota group of its own. What a sandbox writes to it is charged to the shelf, whoever the sandbox is.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use burrow_model::{ShelfId, ShelfSnapshotId};

use super::Inner;
use super::ioctl::{self, Access};
use super::quota::QuotaSupport;
use crate::{VolumeError, step};

impl Inner {
    /// See [`crate::Volumes::create_shelf`].
    pub(super) fn create_shelf(
        &self,
        id: &ShelfId,
        from: Option<&ShelfSnapshotId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError> {
        let path = self.shelves.path.join(id.as_str());
        if self.shelves.holds(id.as_str()) {
            return Ok(path.join("rootfs"));
        }
        self.check_room()?;
        let source = match from {
            Some(snapshot) => self.open_shelf_snapshot(snapshot)?,
            None => self.empty_shelf(id)?,
        };
        let made = self.quotas.with_group(&self.pool.directory, id, disk_bytes, |group| {
            ioctl::snapshot(&self.shelves.directory, id.as_str(), &source, Access::Writable, group)
        });
        drop(source);
        self.remove(&self.replacing, id.as_str())?;
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                self.quotas.retire(id);
                Err(self.failed("make the volume", &path)(error))
            }
            // Somebody else made it between our look and our call: they made the same.
            Ok(()) | Err(_) => Ok(path.join("rootfs")),
        }
    }

    /// An empty one, put together where the next start removes what a crash leaves: a volume is there whole or not at all.
    fn empty_shelf(&self, id: &ShelfId) -> Result<File, VolumeError> {
        self.remove(&self.replacing, id.as_str())?;
        let path = self.replacing.path.join(id.as_str());
        ioctl::create_subvolume(&self.replacing.directory, id.as_str())
            .map_err(self.failed("make the volume", &path))?;
        let rootfs = path.join("rootfs");
        crate::shelf_files::make_root(&rootfs).map_err(self.failed("make the directory", &rootfs))?;
        File::open(&path).map_err(step("open the volume", &path))
    }

    pub(super) fn locate_shelf(&self, id: &ShelfId) -> Result<PathBuf, VolumeError> {
        if self.shelves.holds(id.as_str()) {
            Ok(self.shelves.path.join(id.as_str()).join("rootfs"))
        } else {
            Err(VolumeError::ShelfNotFound { shelf: id.clone() })
        }
    }

    pub(super) fn shelf_used(&self, id: &ShelfId) -> Result<u64, VolumeError> {
        let rootfs = self.locate_shelf(id)?;
        match self.quotas.support() {
            QuotaSupport::Enforced => {
                self.quotas.used(&self.pool.directory, id).map_err(step("read the usage of", &rootfs))
            }
            QuotaSupport::Unavailable { reason } => Err(VolumeError::NoQuotas { reason: reason.clone() }),
        }
    }

    pub(super) fn remove_shelf(&self, id: &ShelfId) -> Result<(), VolumeError> {
        // Marked first: a crash after the removal must not leave a group that nobody knows of.
        self.quotas.retire(id);
        self.remove(&self.shelves, id.as_str())
    }

    pub(super) fn snapshot_shelf(&self, id: &ShelfSnapshotId, of: &ShelfId) -> Result<(), VolumeError> {
        if self.shelf_snapshots.holds(id.as_str()) {
            return Ok(());
        }
        self.locate_shelf(of)?;
        self.check_room()?;
        let path = self.shelves.path.join(of.as_str());
        let source = File::open(&path).map_err(step("open the volume", &path))?;
        let folder = &self.shelf_snapshots.directory;
        match ioctl::snapshot(folder, id.as_str(), &source, Access::ReadOnly, None) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.failed("snapshot the volume", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// See [`crate::Volumes::replace_shelf`].
    pub(super) fn replace_shelf(
        &self,
        id: &ShelfId,
        from: &ShelfSnapshotId,
        disk_bytes: u64,
    ) -> Result<(), VolumeError> {
        let source = self.open_shelf_snapshot(from)?;
        self.check_room()?;
        self.remove(&self.replacing, id.as_str())?;
        let made = self.quotas.with_group(&self.pool.directory, id, disk_bytes, |group| {
            ioctl::snapshot(&self.replacing.directory, id.as_str(), &source, Access::Writable, group)
        });
        made.map_err(self.failed("make the volume", &self.replacing.path.join(id.as_str())))?;
        self.put_in_place(&self.shelves, id.as_str())?;
        self.remove(&self.replacing, id.as_str())
    }

    fn open_shelf_snapshot(&self, id: &ShelfSnapshotId) -> Result<File, VolumeError> {
        if !self.shelf_snapshots.holds(id.as_str()) {
            return Err(VolumeError::ShelfSnapshotNotFound { snapshot: id.clone() });
        }
        let path = self.shelf_snapshots.path.join(id.as_str());
        File::open(&path).map_err(step("open the snapshot", &path))
    }
}
