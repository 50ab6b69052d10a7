//! The host ids of machines: their ranges, and whether this host supports separate ranges.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_model::SandboxId;
use burrow_network::linux::{HostIds, IdRange};

use crate::launcher::bind_mapped;

/// Whether machines whose files are on the file system of `directory` can have their own ids on the host: it must
/// support idmapped mounts, and these ids must exist here. Blocks for a millisecond; needs root.
pub fn probe_own_ids(directory: &Path) -> io::Result<()> {
    let ids = HostIds::reserve().map_err(|error| error.source)?;
    let directory = File::open(directory)?;
    bind_mapped(directory.as_fd(), Some(ids.mounts.as_fd())).map(drop)
}

/// The ranges of existing machines.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    held: Mutex<HashMap<SandboxId, Arc<IdRange>>>,
}

impl Ranges {
    /// Keeps a range for a machine until [`Self::release`].
    pub(super) fn keep(&self, id: &SandboxId, range: &Arc<IdRange>) {
        self.held().insert(id.clone(), Arc::clone(range));
    }

    /// The same for a running machine.
    pub(super) fn adopt(&self, id: &SandboxId, pid: u32) -> io::Result<()> {
        if let Some(range) = IdRange::of_process(pid)? {
            self.keep(id, &Arc::new(range));
        }
        Ok(())
    }

    pub(super) fn release(&self, id: &SandboxId) {
        self.held().remove(id);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<IdRange>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
