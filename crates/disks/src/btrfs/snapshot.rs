//! Snapshots, and disks that are replaced by snapshots.
//!
//! ```text
//!   replace:  snapshot ─► replacing/<disk>, with its quota ─► exchanged with <kind>/<disk> ─► commit ─► removed
//! ```
//!
//! Each step is one transaction, so after a crash either the old disk or the new one is in place. The next start removes
//! the other one, which a crash leaves in `replacing/`.
//!
//! Quotas: data that a sandbox wrote is charged to it for as long as the sandbox or a snapshot refers to it; see `quota.rs`.
//! When a disk is replaced, its group and its charges remain until the last snapshot that refers to the data is removed.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::fs::RenameFlags;

use super::ioctl::{self, Access};
use super::{Folder, Inner};
use crate::{DiskError, DiskId};

impl Inner {
    /// A read-only copy: the kernel writes the data in RAM to disk, and returns after its commit.
    pub(super) fn snapshot(&self, disk: &DiskId, of: &DiskId) -> Result<(), DiskError> {
        if self.holds(disk) {
            return Ok(());
        }
        let source = self.open(of)?;
        self.check_room()?;
        match ioctl::snapshot(&self.folder(disk).directory, disk.name(), &source, Access::ReadOnly, None) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(self.failed("snapshot the disk", &self.path(of))(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// See [`crate::Disks::replace`].
    pub(super) fn replace(&self, disk: DiskId, from: &DiskId, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        let source = self.open(from)?;
        self.check_room()?;
        self.remove(&self.replacing, disk.name())?;
        self.prepare_replacement(&disk, &source, disk_bytes)?;
        self.put_replacement(&disk)?;
        self.remove(&self.replacing, disk.name())?;
        Ok(self.path(&disk).join("rootfs"))
    }

    /// Creates the new disk under `replacing/`, with its limit.
    pub(super) fn prepare_replacement(
        &self,
        disk: &DiskId,
        source: &File,
        disk_bytes: u64,
    ) -> Result<(), DiskError> {
        let path = self.replacing.path.join(disk.name());
        self.copy_with_quota(&self.replacing, disk, source, disk_bytes)?
            .map_err(self.failed("make the disk", &path))
    }

    /// Puts the new disk in the place of the old one, durably. The old one, if any, is in `replacing/` afterwards.
    pub(super) fn put_replacement(&self, disk: &DiskId) -> Result<(), DiskError> {
        let (folder, name, path) = (self.folder(disk), disk.name(), self.path(disk));
        let flags = match folder.holds(name) {
            true => RenameFlags::EXCHANGE,
            false => RenameFlags::NOREPLACE,
        };
        rustix::fs::renameat_with(&self.replacing.directory, name, &folder.directory, name, flags)
            .map_err(|error| self.failed("install the disk", &path)(error.into()))?;
        ioctl::commit(&self.pool.directory).map_err(self.failed("install the disk", &path))
    }

    /// Records in a new disk which of its data is older than the disk, for [`Inner::snapshot_bytes`]. Only an estimate uses
    /// it, so it may fail, and need not be durable.
    pub(super) fn note_base(&self, folder: &Folder, name: &str) {
        let noted = File::open(folder.path.join(name)).and_then(|disk| {
            let made_in = ioctl::subvolume_info(&disk)?.made_in.to_le_bytes();
            Ok(rustix::fs::fsetxattr(&disk, BASE_ATTRIBUTE, &made_in, rustix::fs::XattrFlags::empty())?)
        });
        if let Err(error) = noted {
            tracing::debug!(name, %error, "could not record the origin of a disk");
        }
    }
}

/// Attribute of the top directory of a disk, which only the host sees: the transaction that created the sandbox's disk.
pub(super) const BASE_ATTRIBUTE: &str = "trusted.burrow.base";
