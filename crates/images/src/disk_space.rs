//! The limit on temporary files: the caller is asked before they grow, since other files are on the same disk.

use std::fmt;
use std::io;

/// Space for temporary files.
pub trait DiskSpace: fmt::Debug + Sync {
    /// Called before `bytes` are written. An error ends the operation.
    fn take(&self, bytes: u64) -> io::Result<()>;
}

/// No limit except that of the disk.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl DiskSpace for Unlimited {
    fn take(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}
