//! Volumes, which outlive sandboxes, and their snapshots.
//!
//! ```text
//!   create:   an empty volume, or a snapshot ─► volumes/<volume>, with its quota, in one transaction
//!   replace:  as for a sandbox: prepared in replacing/, then exchanged
//! ```
//!
//! A volume has its own quota group. Data that a sandbox writes to it is charged to the volume, not to the sandbox.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use burrow_model::{VolumeId, VolumeSnapshotId};

use super::Inner;
use super::ioctl::{self, Access};
use super::quota::QuotaSupport;
use crate::{DiskError, step};

impl Inner {
    /// See [`crate::Disks::create_volume`].
    pub(super) fn create_volume(
        &self,
        id: &VolumeId,
        from: Option<&VolumeSnapshotId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let path = self.volumes.path.join(id.as_str());
        if self.volumes.holds(id.as_str()) {
            return Ok(path.join("rootfs"));
        }
        self.check_room()?;
        let source = match from {
            Some(snapshot) => self.open_volume_snapshot(snapshot)?,
            None => self.empty_volume(id)?,
        };
        let made = self.quotas.with_group(&self.pool.directory, id, disk_bytes, |group| {
            ioctl::snapshot(&self.volumes.directory, id.as_str(), &source, Access::Writable, group)
        });
        drop(source);
        self.remove(&self.replacing, id.as_str())?;
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                self.quotas.retire(id);
                Err(self.failed("make the volume", &path)(error))
            }
            // Another caller created the same volume since the check.
            Ok(()) | Err(_) => Ok(path.join("rootfs")),
        }
    }

    /// Creates an empty volume, first in a directory that the next start empties: a volume exists completely or not at all.
    fn empty_volume(&self, id: &VolumeId) -> Result<File, DiskError> {
        self.remove(&self.replacing, id.as_str())?;
        let path = self.replacing.path.join(id.as_str());
        ioctl::create_subvolume(&self.replacing.directory, id.as_str())
            .map_err(self.failed("make the volume", &path))?;
        let rootfs = path.join("rootfs");
        crate::volume_files::make_root(&rootfs).map_err(self.failed("make the directory", &rootfs))?;
        File::open(&path).map_err(step("open the volume", &path))
    }

    pub(super) fn locate_volume(&self, id: &VolumeId) -> Result<PathBuf, DiskError> {
        if self.volumes.holds(id.as_str()) {
            Ok(self.volumes.path.join(id.as_str()).join("rootfs"))
        } else {
            Err(DiskError::VolumeNotFound { volume: id.clone() })
        }
    }

    pub(super) fn volume_used(&self, id: &VolumeId) -> Result<u64, DiskError> {
        let rootfs = self.locate_volume(id)?;
        match self.quotas.support() {
            QuotaSupport::Enforced => {
                self.quotas.used(&self.pool.directory, id).map_err(step("read the usage of", &rootfs))
            }
            QuotaSupport::Unavailable { reason } => Err(DiskError::NoQuotas { reason: reason.clone() }),
        }
    }

    pub(super) fn remove_volume(&self, id: &VolumeId) -> Result<(), DiskError> {
        // The mark comes first: a crash after the removal must not leave a group that no mark names.
        self.quotas.retire(id);
        self.remove(&self.volumes, id.as_str())
    }

    pub(super) fn snapshot_volume(&self, id: &VolumeSnapshotId, of: &VolumeId) -> Result<(), DiskError> {
        if self.volume_snapshots.holds(id.as_str()) {
            return Ok(());
        }
        self.locate_volume(of)?;
        self.check_room()?;
        let path = self.volumes.path.join(of.as_str());
        let source = File::open(&path).map_err(step("open the volume", &path))?;
        let folder = &self.volume_snapshots.directory;
        match ioctl::snapshot(folder, id.as_str(), &source, Access::ReadOnly, None) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.failed("snapshot the volume", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// See [`crate::Disks::replace_volume`].
    pub(super) fn replace_volume(
        &self,
        id: &VolumeId,
        from: &VolumeSnapshotId,
        disk_bytes: u64,
    ) -> Result<(), DiskError> {
        let source = self.open_volume_snapshot(from)?;
        self.check_room()?;
        self.remove(&self.replacing, id.as_str())?;
        let made = self.quotas.with_group(&self.pool.directory, id, disk_bytes, |group| {
            ioctl::snapshot(&self.replacing.directory, id.as_str(), &source, Access::Writable, group)
        });
        made.map_err(self.failed("make the volume", &self.replacing.path.join(id.as_str())))?;
        self.put_in_place(&self.volumes, id.as_str())?;
        self.remove(&self.replacing, id.as_str())
    }

    fn open_volume_snapshot(&self, id: &VolumeSnapshotId) -> Result<File, DiskError> {
        if !self.volume_snapshots.holds(id.as_str()) {
            return Err(DiskError::VolumeSnapshotNotFound { snapshot: id.clone() });
        }
        let path = self.volume_snapshots.path.join(id.as_str());
        File::open(&path).map_err(step("open the snapshot", &path))
    }
}
