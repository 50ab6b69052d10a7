//! How much room artifacts may take: so much per space, for a sandbox's own space no more than its disk limit, and never the
//! last of the disk.
//!
//! ```text
//!  used   contents that rows of the space refer to, each counted once, whatever branch or version has them
//!  + in flight   bytes that have arrived of uploads to the space, and have no row yet
//!  ≤ quota of artifacts
//!
//!  used + in flight + the space's file ≤ disk limit of the sandbox
//! ```
//!
//! An upload counts its bytes as they come, so it is refused at the byte that is too many and not after the disk is
//! full. **Nothing slips through between two uploads:** an upload adds its bytes before it asks what is used a last
//! time, and gives them back only after its row is committed; so of two that end together at least one sees both.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_model::SpaceId;
use rusqlite::Connection;

use crate::MemoryError;
use crate::space::load::unsigned;

/// Bytes between two looks at the disk: a part of an upload, which is what is written at a time.
const LOOK_BYTES: u64 = 8 << 20;

/// The disk that contents are on, and what must stay free of it.
#[derive(Clone, Debug)]
pub struct DiskFloor {
    pub folder: PathBuf,
    pub reserve_bytes: u64,
    pub free: Arc<dyn FreeSpace>,
}

/// Knows how much of a disk is free.
pub trait FreeSpace: fmt::Debug + Send + Sync {
    /// Bytes of the disk under a folder that are free and not promised to the pool; `None` where that is unknown: writes then
    /// fail by themselves when the disk is full.
    fn free_bytes(&self, folder: &Path) -> Option<u64>;
}

/// What a space takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Contents of its artifacts.
    pub(crate) artifacts: u64,
    /// Its file.
    pub(crate) file: u64,
    /// What both may take together: the disk limit of the sandbox whose own space it is.
    pub(crate) sandbox_max: Option<u64>,
}

impl Used {
    /// Refuses `more` bytes that a sandbox may not store.
    pub(crate) fn check_sandbox(&self, more: u64) -> Result<(), MemoryError> {
        let used = self.artifacts.saturating_add(self.file);
        match self.sandbox_max {
            Some(max) if used.saturating_add(more) > max => Err(MemoryError::SandboxFull { used, max }),
            Some(_) | None => Ok(()),
        }
    }
}

impl DiskFloor {
    /// Refuses `more` bytes that would not leave the reserve.
    pub fn check(&self, more: u64) -> Result<(), MemoryError> {
        match self.free.free_bytes(&self.folder) {
            Some(free) if free < self.reserve_bytes.saturating_add(more) => {
                Err(MemoryError::DiskReserve { free, reserve: self.reserve_bytes })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// What uploads are measured by.
#[derive(Debug)]
pub(crate) struct Room {
    space_bytes_max: u64,
    floor: Option<DiskFloor>,
    /// Bytes of uploads that have no row yet.
    in_flight: Mutex<HashMap<SpaceId, u64>>,
}

impl Room {
    pub(crate) fn new(space_bytes_max: u64, floor: Option<DiskFloor>) -> Arc<Self> {
        Arc::new(Self { space_bytes_max, floor, in_flight: Mutex::default() })
    }

    /// Whether `more` bytes would fit now. Reserves nothing.
    pub(crate) fn check(&self, space: &SpaceId, used: Used, more: u64) -> Result<(), MemoryError> {
        self.quota(used, self.lock().get(space).copied().unwrap_or(0).saturating_add(more))?;
        self.floor.as_ref().map_or(Ok(()), |floor| floor.check(more))
    }

    /// An upload to a space that begins, and what the space uses at that moment.
    pub(crate) fn arriving(self: &Arc<Self>, space: &SpaceId, used: Used) -> Arriving {
        Arriving { room: Arc::clone(self), space: space.clone(), used, bytes: 0, looked_at: None }
    }

    fn quota(&self, used: Used, in_flight: u64) -> Result<(), MemoryError> {
        if used.artifacts.saturating_add(in_flight) > self.space_bytes_max {
            return Err(MemoryError::SpaceFull { used: used.artifacts, max: self.space_bytes_max });
        }
        used.check_sandbox(in_flight)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SpaceId, u64>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An upload on its way. Dropped once its row is committed, or when it came to nothing.
#[derive(Debug)]
pub(crate) struct Arriving {
    room: Arc<Room>,
    space: SpaceId,
    used: Used,
    bytes: u64,
    /// How much had arrived when the disk was last looked at.
    looked_at: Option<u64>,
}

impl Arriving {
    /// Counts bytes that have come and are about to be written.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), MemoryError> {
        self.bytes += bytes;
        let in_flight = {
            let mut all = self.room.lock();
            let of_space = all.entry(self.space.clone()).or_default();
            *of_space += bytes;
            *of_space
        };
        self.room.quota(self.used, in_flight)?;
        let due = self.looked_at.is_none_or(|looked_at| self.bytes - looked_at >= LOOK_BYTES);
        if let Some(floor) = self.room.floor.as_ref().filter(|_| due) {
            floor.check(bytes)?;
            self.looked_at = Some(self.bytes);
        }
        Ok(())
    }

    /// How much of the space is in flight, this upload included. To be asked before what is used, see above.
    pub(crate) fn in_flight(&self) -> u64 {
        self.room.lock().get(&self.space).copied().unwrap_or(0)
    }

    /// Whether all of it fits, with what is used by now.
    pub(crate) fn settle(&self, used: Used, in_flight: u64) -> Result<(), MemoryError> {
        self.room.quota(used, in_flight)
    }
}

impl Drop for Arriving {
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

/// Bytes of all contents that a space refers to, on whichever branch, each counted once.
pub(super) fn used(connection: &Connection) -> Result<u64, MemoryError> {
    let sql = "SELECT coalesce(sum(bytes), 0) FROM
        (SELECT DISTINCT hash, bytes FROM artifacts WHERE released = 0 AND hash IS NOT NULL)";
    Ok(connection.prepare_cached(sql)?.query_row((), |row| unsigned(row, 0))?)
}
