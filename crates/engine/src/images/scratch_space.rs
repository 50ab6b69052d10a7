//! Reserves disk space for the temporary files of work with images, on the disk that the catalog and the pool share.

use std::io;
use std::sync::{Mutex, PoisonError};

use burrow_images::DiskSpace;
use burrow_memory::MemoryError;
use burrow_memory::artifacts::{DiskFloor, DiskLease, UploadLease};

use crate::{EngineError, ImagePolicy};

/// The reservation of one piece of work, which grows with its files.
#[derive(Debug)]
pub(super) struct ScratchSpace(Option<Mutex<UploadLease>>);

impl ScratchSpace {
    pub(super) fn new(policy: &ImagePolicy) -> Self {
        Self(policy.floor.as_ref().map(|floor| Mutex::new(UploadLease::new(floor))))
    }
}

impl DiskSpace for ScratchSpace {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let Some(lease) = &self.0 else { return Ok(()) };
        let taken = lease.lock().unwrap_or_else(PoisonError::into_inner).take(bytes);
        taken.map_err(|error| io::Error::new(io::ErrorKind::StorageFull, error))
    }
}

/// Reserves space for files whose size is known.
pub(super) fn reserve(policy: &ImagePolicy, bytes: u64) -> Result<Option<DiskLease>, EngineError> {
    let floor: Option<&DiskFloor> = policy.floor.as_ref();
    Ok(floor.map(|floor| floor.reserve(bytes)).transpose().map_err(MemoryError::from)?)
}
