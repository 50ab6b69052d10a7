//! How large the pool's file may be: never larger than the host's disk can back.
//!
//! ```text
//!   host's disk   | other data | allocated of the pool's file | promised to the pool | reserve |
//!                                                              <------------- free ------------>
//! ```
//!
//! The pool's file is sparse, and btrfs turns read-only when a write to it fails. So the bytes that the file has but the disk
//! has not allocated yet are promised: every other writer on that disk must leave them free, and the pool grows only into
//! what is free beyond a reserve.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::pool::{POOL_BYTES_MIN, Pool};
use crate::{DiskError, Space, step};

/// The largest size a pool starts with.
const FIRST_BYTES_MAX: u64 = 16 << 30;

/// A pool is shrunk by so much at a time; no chunk of its file system is larger.
const SHRINK_BYTES: u64 = 1 << 30;

/// Sizes of the file are multiples of this.
const STEP_BYTES: u64 = 64 << 20;

/// A tenth more than the missing bytes is added, because the file system stores metadata twice.
const METADATA_PART: u64 = 10;

/// When and how far a pool grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// Grow when less than this part of the pool is free.
    pub(super) below_free_percent: u64,
    /// By how much, in parts of the size it has.
    pub(super) by_percent: u64,
    /// Bytes that stay free on the host's disk after growing.
    pub(super) host_reserve_bytes: u64,
}

pub(super) const GROWTH: Growth =
    Growth { below_free_percent: 20, by_percent: 50, host_reserve_bytes: HOST_RESERVE_BYTES };

const HOST_RESERVE_BYTES: u64 = 1 << 30;

/// The reserve on the host's disk for the catalog and the audit log. Below it the pool takes nothing new, and a pool
/// that promises more than the disk has is made smaller.
const STATE_RESERVE_BYTES: u64 = 256 << 20;

/// A pool's file and the disk that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backing {
    /// How long the file is.
    pub size_bytes: u64,
    /// How much of it is allocated on the disk.
    pub allocated_bytes: u64,
    /// Free bytes on the disk.
    pub disk_free_bytes: u64,
}

impl Backing {
    /// Reads the sizes of a loop-backed pool's file and its disk.
    pub fn of(file: &Path) -> Result<Self, DiskError> {
        let found = fs::metadata(file).map_err(step("inspect the pool's file", file))?;
        Ok(Self {
            size_bytes: found.len(),
            allocated_bytes: found.blocks().saturating_mul(512),
            disk_free_bytes: disk_of(file)?.free_bytes,
        })
    }

    /// Bytes of the pool's file that are not allocated yet.
    pub fn promised_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.allocated_bytes)
    }

    /// Free bytes of the disk that are not promised to the pool.
    pub fn unpromised_bytes(&self) -> u64 {
        self.disk_free_bytes.saturating_sub(self.promised_bytes())
    }

    /// Whether the pool may write more than the disk has.
    pub fn is_overcommitted(&self) -> bool {
        self.promised_bytes() > self.disk_free_bytes.saturating_sub(STATE_RESERVE_BYTES)
    }

    /// The size to grow to; `None` where the disk has no room for a step.
    fn larger(&self, growth: &Growth) -> Option<u64> {
        self.larger_by(0, growth)
    }

    /// The size to grow to so that at least `missing_bytes` and their metadata are added, or the usual step if that is more.
    fn larger_by(&self, missing_bytes: u64, growth: &Growth) -> Option<u64> {
        let size = self.size_bytes;
        let room = self.disk_free_bytes.saturating_sub(growth.host_reserve_bytes);
        let backed = self.allocated_bytes.saturating_add(room);
        let step = size.saturating_mul(growth.by_percent) / 100;
        let missing = missing_bytes.saturating_add(missing_bytes / METADATA_PART).saturating_add(STEP_BYTES);
        let missing = if missing_bytes == 0 { 0 } else { missing };
        let wanted = size.saturating_add(step.max(missing)).min(backed);
        let wanted = wanted / STEP_BYTES * STEP_BYTES;
        (wanted >= size.saturating_add(STEP_BYTES)).then_some(wanted)
    }

    /// The size to shrink to so that the disk can back all of it; `None` where it can.
    fn smaller(&self) -> Option<u64> {
        if !self.is_overcommitted() {
            return None;
        }
        let room = self.disk_free_bytes.saturating_sub(STATE_RESERVE_BYTES);
        let wanted = self.allocated_bytes.saturating_add(room) / STEP_BYTES * STEP_BYTES;
        let wanted = wanted.max(POOL_BYTES_MIN);
        (wanted < self.size_bytes).then_some(wanted)
    }

    /// Whether the disk has room for what shrinking moves at a time: a chunk of the file system is copied before its old
    /// location is free again. Without that room, shrinking could itself fill the disk.
    fn can_shrink(&self) -> bool {
        let chunk_bytes = (self.size_bytes / 10).min(SHRINK_BYTES);
        self.disk_free_bytes >= STATE_RESERVE_BYTES + chunk_bytes
    }
}

/// The size of a new pool that may grow to `size_bytes`, on the disk that `file` will be on.
pub(super) fn first_size_on_disk(file: &Path, size_bytes: u64) -> Result<u64, DiskError> {
    let free_bytes = disk_of(file)?.free_bytes;
    let needed_bytes = POOL_BYTES_MIN + STATE_RESERVE_BYTES;
    if free_bytes < needed_bytes {
        return Err(DiskError::NoRoomForPool { file: file.to_owned(), needed_bytes, free_bytes });
    }
    Ok(first_size(size_bytes, free_bytes))
}

/// A quarter of what it may become, and at most half of what is free: it grows when it fills.
fn first_size(size_bytes: u64, free_bytes: u64) -> u64 {
    (size_bytes / 4).min(free_bytes / 2).clamp(POOL_BYTES_MIN, FIRST_BYTES_MAX)
}

impl Pool {
    /// Free space: that of the file system, but not more than the host's disk can back.
    pub(super) fn space(&self) -> Result<Space, DiskError> {
        let own = statvfs(&self.root)?;
        let Some(file) = &self.file else { return Ok(own) };
        let backed = disk_of(file)?.free_bytes.saturating_sub(STATE_RESERVE_BYTES);
        Ok(Space { free_bytes: own.free_bytes.min(backed), ..own })
    }

    /// The size that the pool's file should grow to now; `None` if the pool has enough room or the host has none.
    pub(super) fn larger_size(&self, growth: &Growth) -> Result<Option<u64>, DiskError> {
        let Some(file) = &self.file else { return Ok(None) };
        let own = statvfs(&self.root)?;
        if own.free_bytes >= own.total_bytes / 100 * growth.below_free_percent {
            return Ok(None);
        }
        let backing = Backing::of(file)?;
        let larger = backing.larger(growth).map(|size| size.min(self.size_bytes_max));
        Ok(larger.filter(|size| *size > backing.size_bytes))
    }

    /// The size that the pool's file should grow to so that `needed_bytes` are free; `None` if they are free already, or if the
    /// host has no room.
    pub(super) fn size_for(&self, needed_bytes: u64, growth: &Growth) -> Result<Option<u64>, DiskError> {
        let Some(file) = &self.file else { return Ok(None) };
        let missing_bytes = needed_bytes.saturating_sub(statvfs(&self.root)?.free_bytes);
        if missing_bytes == 0 {
            return Ok(None);
        }
        let backing = Backing::of(file)?;
        let larger = backing.larger_by(missing_bytes, growth).map(|size| size.min(self.size_bytes_max));
        Ok(larger.filter(|size| *size > backing.size_bytes))
    }

    /// Shrinks a pool that may write more than its disk has: one created by an earlier release, or on a disk that other
    /// processes filled. If its data does not allow that, the pool keeps its size, and writes that would fill the disk are refused.
    pub(super) fn shrink_to_disk(&self) -> Result<(), DiskError> {
        let Some(file) = &self.file else { return Ok(()) };
        let backing = Backing::of(file)?;
        let Some(size_bytes) = backing.smaller() else { return Ok(()) };
        tracing::warn!(
            pool = %file.display(), size_bytes, promised_bytes = backing.promised_bytes(), free_bytes = backing.disk_free_bytes,
            "shrinking the pool: it may write more than its disk has free"
        );
        // Read again before each step, because other processes write to the disk.
        loop {
            let backing = Backing::of(file)?;
            let Some(size_bytes) = backing.smaller() else { return Ok(()) };
            if !backing.can_shrink() {
                tracing::warn!(
                    free_bytes = backing.disk_free_bytes,
                    "the pool is not shrunk further: its disk has too little free"
                );
                return Ok(());
            }
            self.shrink(size_bytes.max(backing.size_bytes.saturating_sub(SHRINK_BYTES)))?;
        }
    }
}

/// The disk that a file is on, or will be on: its folders may not exist yet.
fn disk_of(file: &Path) -> Result<Space, DiskError> {
    let folder = file.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    statvfs(folder)
}

fn statvfs(path: &Path) -> Result<Space, DiskError> {
    let found =
        rustix::fs::statvfs(path).map_err(|error| step("read the free space of", path)(error.into()))?;
    Ok(Space {
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn backing(size: u64, allocated: u64, free: u64) -> Backing {
        Backing { size_bytes: size * GIB, allocated_bytes: allocated * GIB, disk_free_bytes: free * GIB }
    }

    #[test]
    fn a_new_pool_starts_smaller_than_it_may_become_and_than_its_disk() {
        assert_eq!(first_size(64 * GIB, 500 * GIB), 16 * GIB);
        assert_eq!(first_size(8 * GIB, 500 * GIB), 2 * GIB);
        assert_eq!(first_size(1, 500 * GIB), POOL_BYTES_MIN);
        assert_eq!(first_size(64 * GIB, 3 * GIB), 3 * GIB / 2);
        assert_eq!(first_size(64 * GIB, 1), POOL_BYTES_MIN);
    }

    #[test]
    fn a_pool_grows_by_half_but_never_past_what_the_host_can_back() {
        assert_eq!(backing(8, 7, 100).larger(&GROWTH), Some(12 * GIB));
        // 7 GiB are backed already, and of the 4 GiB left one stays with the host.
        assert_eq!(backing(8, 7, 4).larger(&GROWTH), Some(10 * GIB));
        assert_eq!(backing(8, 7, 2).larger(&GROWTH), None);
        assert_eq!(backing(8, 7, 0).larger(&GROWTH), None);
    }

    #[test]
    fn bytes_that_a_pool_may_still_write_are_promised() {
        let fine = backing(8, 2, 10);
        assert_eq!((fine.promised_bytes(), fine.unpromised_bytes()), (6 * GIB, 4 * GIB));
        assert!(!fine.is_overcommitted());
        assert_eq!(fine.smaller(), None);
        let over = backing(16, 1, 3);
        assert!(over.is_overcommitted());
        assert_eq!(over.unpromised_bytes(), 0);
        assert_eq!(over.smaller(), Some(4 * GIB - STATE_RESERVE_BYTES));
        assert!(over.can_shrink());
        assert!(!backing(16, 1, 1).can_shrink(), "moving a chunk could fill the disk");
        // Nothing after the allocated part can be cut off.
        assert_eq!(backing(4, 4, 0).smaller(), None);
    }
}
