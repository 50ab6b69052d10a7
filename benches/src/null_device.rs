//! Guards the host's `/dev/null`.
//!
//! crun 1.8 changes the owner of its standard streams. Here it gets pipes; if a change ever passed it the host's
//! `/dev/null`, unprivileged programs of the whole host could not use that any more.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use crate::error::BenchError;

const PATH: &str = "/dev/null";
/// The mode that the kernel gives it.
const MODE: u32 = 0o666;

/// Fails if it is no longer owned by root or accessible to all users; it is repaired first.
pub(crate) fn check_untouched() -> Result<(), BenchError> {
    let found = fs::metadata(PATH).map_err(BenchError::io("look at", PATH))?;
    if (found.uid(), found.gid(), found.mode() & 0o7777) == (0, 0, MODE) {
        return Ok(());
    }
    chown(PATH, Some(0), Some(0)).map_err(BenchError::io("give back to root", PATH))?;
    fs::set_permissions(PATH, Permissions::from_mode(MODE))
        .map_err(BenchError::io("set the mode of", PATH))?;
    let found = format!("{}:{} {:o}", found.uid(), found.gid(), found.mode() & 0o7777);
    Err(BenchError::NullDevice { found })
}
