//! Reservations of disk space, which every writer to the state disk makes before it writes.
//!
//! ```text
//!   the disk   | data | promised to the pool | reserve | leased | available |
//!                     <---------------------- free ------------------------>
//! ```
//!
//! If writers only checked the free bytes, any number of them could pass at the same time, each counting on the same bytes. So a
//! writer takes a [`DiskLease`] first, writes, and drops the lease when the bytes are written and count as used. All floors
//! of a process share one [`DiskLeases`], which counts per disk.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_model::Bytes;

/// The first reservation of an upload: most uploads are small, and many may arrive at the same time.
const FIRST_LEASE_BYTES: u64 = 64 << 10;

/// The largest reservation of an upload: a part of it, the most that is written at a time.
const LEASE_BYTES_MAX: u64 = 8 << 20;

/// A disk that is written to, and the space that must stay free on it.
#[derive(Clone, Debug)]
pub struct DiskFloor {
    pub folder: PathBuf,
    pub reserve_bytes: u64,
    pub free: Arc<dyn FreeSpace>,
    /// The reservations of all writers.
    pub leases: Arc<DiskLeases>,
}

/// Reports the free space of a disk.
pub trait FreeSpace: fmt::Debug + Send + Sync {
    /// Bytes of the disk under a folder that are free and not promised to the pool; `None` if that is unknown: then writes
    /// fail only when the disk is full.
    fn free_bytes(&self, folder: &Path) -> Option<u64>;
}

/// A write would not leave the reserve free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough disk space: {} are free beyond what was promised to the pool and reserved by other writes, and {} must stay free",
    Bytes(*.free), Bytes(*.reserve)
)]
pub struct NoDiskSpace {
    pub free: u64,
    pub reserve: u64,
}

/// The bytes that writers have reserved and not written yet, by disk.
#[derive(Debug, Default)]
pub struct DiskLeases(Mutex<HashMap<u64, u64>>);

impl DiskLeases {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFloor {
    /// Refuses `more` bytes that would use the reserve. Reserves nothing: for an early refusal.
    pub fn check(&self, more: u64) -> Result<(), NoDiskSpace> {
        let leased = self.leases.lock().get(&disk(&self.folder)).copied().unwrap_or(0);
        self.available(leased, more)
    }

    /// Reserves `bytes` until the lease is dropped, or refuses them.
    pub fn reserve(&self, bytes: u64) -> Result<DiskLease, NoDiskSpace> {
        let disk = disk(&self.folder);
        // The lock is held while the free space is read, so no two writers are given the same bytes.
        let mut leased = self.leases.lock();
        let of_disk = leased.entry(disk).or_default();
        self.available(*of_disk, bytes)?;
        *of_disk = of_disk.saturating_add(bytes);
        Ok(DiskLease { leases: Arc::clone(&self.leases), disk, bytes })
    }

    fn available(&self, leased: u64, more: u64) -> Result<(), NoDiskSpace> {
        let reserve = self.reserve_bytes;
        let Some(free) = self.free.free_bytes(&self.folder) else { return Ok(()) };
        let free = free.saturating_sub(leased);
        if free < reserve.saturating_add(more) { Err(NoDiskSpace { free, reserve }) } else { Ok(()) }
    }
}

/// The device number of the disk that a folder is on. Folders that cannot be read share one count.
fn disk(folder: &Path) -> u64 {
    fs::metadata(folder).map_or(0, |found| found.dev())
}

/// Reserved bytes of a disk. Drop it when they are written, or when they will not be written.
#[derive(Debug)]
pub struct DiskLease {
    leases: Arc<DiskLeases>,
    disk: u64,
    bytes: u64,
}

impl Drop for DiskLease {
    fn drop(&mut self) {
        let mut leased = self.leases.lock();
        let left = leased.get(&self.disk).map_or(0, |of_disk| of_disk.saturating_sub(self.bytes));
        if left == 0 {
            leased.remove(&self.disk);
        } else {
            leased.insert(self.disk, left);
        }
    }
}

/// Reserves disk space for an upload of unknown length, part by part, as it arrives.
#[derive(Debug)]
pub struct UploadLease {
    floor: DiskFloor,
    /// The reservation that arriving bytes use now.
    current: Option<DiskLease>,
    /// The previous reservation, whose bytes may still be in a buffer.
    before: Option<DiskLease>,
    left: u64,
    next: u64,
}

impl UploadLease {
    pub fn new(floor: &DiskFloor) -> Self {
        Self { floor: floor.clone(), current: None, before: None, left: 0, next: FIRST_LEASE_BYTES }
    }

    /// Counts bytes that have arrived and are about to be written.
    pub fn take(&mut self, bytes: u64) -> Result<(), NoDiskSpace> {
        if bytes > self.left || self.current.is_none() {
            let reserved = self.next.max(bytes);
            let lease = self.floor.reserve(reserved)?;
            self.before = self.current.replace(lease);
            self.left = reserved;
            self.next = self.next.saturating_mul(2).min(LEASE_BYTES_MAX);
        }
        self.left -= bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with this much free space, which does not shrink.
    #[derive(Debug)]
    struct FixedFreeSpace(u64);

    impl FreeSpace for FixedFreeSpace {
        fn free_bytes(&self, _: &Path) -> Option<u64> {
            Some(self.0)
        }
    }

    fn floor(free: u64) -> DiskFloor {
        let leases = Arc::default();
        DiskFloor { folder: "/".into(), reserve_bytes: 100, free: Arc::new(FixedFreeSpace(free)), leases }
    }

    #[test]
    fn no_two_writers_are_given_the_same_bytes() {
        let floor = floor(1000);
        floor.check(900).unwrap();
        let first = floor.reserve(500).unwrap();
        assert_eq!(floor.reserve(500).unwrap_err(), NoDiskSpace { free: 500, reserve: 100 });
        let second = floor.clone().reserve(400).unwrap();
        assert!(floor.check(1).is_err());
        drop(first);
        let third = floor.reserve(500).unwrap();
        drop((second, third));
        floor.reserve(900).unwrap();
        assert!(floor.leases.lock().is_empty());
    }

    #[test]
    fn concurrent_uploads_never_reserve_more_than_is_free() {
        const MIB: u64 = 1 << 20;
        let floor = DiskFloor { reserve_bytes: 256 * MIB, ..floor(512 * MIB) };
        let mut uploads: Vec<_> = (0..200).map(|_| UploadLease::new(&floor)).collect();
        let mut refused = 0;
        // The free space does not shrink meanwhile, as if every byte were still in a buffer.
        for _ in 0..1000 {
            for upload in &mut uploads {
                refused += u32::from(upload.take(64 << 10).is_err());
            }
            let held: u64 = floor.leases.lock().values().sum();
            assert!(held <= 256 * MIB, "{held}");
        }
        assert!(refused > 0);
        drop(uploads);
        floor.reserve(256 * MIB).unwrap();
    }
}
