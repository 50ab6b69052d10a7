//! A directory of the host that is mounted in a machine.

use std::path::{Path, PathBuf};

/// Its path at the dump, and its present path.
#[derive(Clone, Debug)]
pub(crate) struct HostMount {
    /// The mount point in the machine.
    pub key: String,
    pub source: PathBuf,
    pub read_only: bool,
}

impl HostMount {
    /// The mount point relative to the root.
    pub(super) fn place(&self) -> &Path {
        Path::new(self.key.trim_start_matches('/'))
    }
}
