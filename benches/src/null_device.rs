//! Watches over the host's `/dev/null`.
//!
//! crun 1.8 changes the owner of whatever it finds as its standard streams. It is given pipes here; should anything
//! ever hand it the host's `/dev/null` again, unprivileged programs of the whole host would lose it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use crate::error::BenchError;

const PATH: &str = "/dev/null";
/// What the kernel makes it with.
const MODE: u32 = 0o666;

/// An error if it is not root's any more, or not everybody's to use; it is put right first.
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
