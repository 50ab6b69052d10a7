//! Limits the size of artifacts: by the quota of a space, by the disk limit of the sandbox that owns the space, and by the reserve
//! of the disk.
//!
//! ```text
//!  used   contents that rows of the space refer to, each counted once, on any branch and in any version
//!  + in flight   bytes of uploads to the space that have arrived and have no row yet
//!  ≤ quota of artifacts
//!
//!  used + in flight + the space's file ≤ disk limit of the sandbox
//! ```
//!
//! An upload counts its bytes as they arrive, and reserves disk space for the next ones before they are written. So it is
//! refused at the byte that exceeds a limit and not after the disk is full, however many uploads arrive at the same time.
//! Commits of a space's file are subject to the same limits (`space/growth.rs`).
//!
//! **Concurrent uploads cannot exceed the quota together:** an upload adds its bytes before it reads the used bytes a last
//! time, and subtracts them only after its row is committed. So of two uploads that end together, at least one counts both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_model::SpaceId;
use rusqlite::Connection;

use super::disk_floor::{DiskFloor, UploadLease};
use crate::MemoryError;
use crate::space::load::unsigned;

/// The size of a space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceUsage {
    /// The contents of its artifacts.
    pub(crate) artifacts: u64,
    /// Its file.
    pub(crate) file: u64,
    /// The limit of both together: the disk limit of the sandbox that owns the space.
    pub(crate) sandbox_max: Option<u64>,
}

impl SpaceUsage {
    /// Refuses `more` bytes that a sandbox may not store.
    pub(crate) fn check_sandbox(&self, more: u64) -> Result<(), MemoryError> {
        let used = self.artifacts.saturating_add(self.file);
        match self.sandbox_max {
            Some(max) if used.saturating_add(more) > max => Err(MemoryError::SandboxFull { used, max }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The limits and counters of uploads.
#[derive(Debug)]
pub(crate) struct UploadBudget {
    space_bytes_max: u64,
    floor: Option<DiskFloor>,
    /// Bytes of uploads that have no row yet.
    in_flight: Mutex<HashMap<SpaceId, u64>>,
}

impl UploadBudget {
    pub(crate) fn new(space_bytes_max: u64, floor: Option<DiskFloor>) -> Arc<Self> {
        Arc::new(Self { space_bytes_max, floor, in_flight: Mutex::default() })
    }

    /// Whether `more` bytes would fit now. Reserves nothing.
    pub(crate) fn check(&self, space: &SpaceId, used: SpaceUsage, more: u64) -> Result<(), MemoryError> {
        self.quota(used, self.in_flight(space).saturating_add(more))?;
        self.floor.as_ref().map_or(Ok(()), |floor| Ok(floor.check(more)?))
    }

    /// Registers a new upload to a space, given what the space uses now.
    pub(crate) fn arriving(self: &Arc<Self>, space: &SpaceId, used: SpaceUsage) -> UploadInProgress {
        let lease = self.floor.as_ref().map(UploadLease::new);
        UploadInProgress { room: Arc::clone(self), space: space.clone(), used, bytes: 0, lease }
    }

    fn quota(&self, used: SpaceUsage, in_flight: u64) -> Result<(), MemoryError> {
        if used.artifacts.saturating_add(in_flight) > self.space_bytes_max {
            return Err(MemoryError::SpaceFull { used: used.artifacts, max: self.space_bytes_max });
        }
        used.check_sandbox(in_flight)
    }

    /// Bytes of uploads to a space that have no row yet.
    pub(crate) fn in_flight(&self, space: &SpaceId) -> u64 {
        self.lock().get(space).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SpaceId, u64>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An upload in progress. Drop it when its row is committed, or when the upload failed.
#[derive(Debug)]
pub(crate) struct UploadInProgress {
    room: Arc<UploadBudget>,
    space: SpaceId,
    used: SpaceUsage,
    bytes: u64,
    /// The disk space reserved for it; `None` if contents are not stored on a disk of this host.
    lease: Option<UploadLease>,
}

impl UploadInProgress {
    /// Counts bytes that have arrived and are about to be written.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), MemoryError> {
        self.bytes += bytes;
        let in_flight = {
            let mut all = self.room.lock();
            let of_space = all.entry(self.space.clone()).or_default();
            *of_space += bytes;
            *of_space
        };
        self.room.quota(self.used, in_flight)?;
        self.lease.as_mut().map_or(Ok(()), |lease| lease.take(bytes).map_err(MemoryError::from))
    }

    /// Bytes in flight to the space, this upload included. Read it before the used bytes, see the module documentation.
    pub(crate) fn in_flight(&self) -> u64 {
        self.room.in_flight(&self.space)
    }

    /// Whether the complete upload fits, given what is used now.
    pub(crate) fn settle(&self, used: SpaceUsage, in_flight: u64) -> Result<(), MemoryError> {
        self.room.quota(used, in_flight)
    }
}

impl Drop for UploadInProgress {
    fn drop(&mut self) {
        let mut all = self.room.lock();
        let left = all.get(&self.space).map_or(0, |in_flight| in_flight.saturating_sub(self.bytes));
        if left == 0 {
            all.remove(&self.space);
        } else {
            all.insert(self.space.clone(), left);
        }
    }
}

/// Bytes of all contents that a space refers to, on any branch, each counted once.
pub(crate) fn used(connection: &Connection) -> Result<u64, MemoryError> {
    let sql = "SELECT coalesce(sum(bytes), 0) FROM
        (SELECT DISTINCT hash, bytes FROM artifacts WHERE released = 0 AND hash IS NOT NULL)";
    Ok(connection.prepare_cached(sql)?.query_row((), |row| unsigned(row, 0))?)
}
