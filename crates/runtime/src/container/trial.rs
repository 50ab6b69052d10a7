//! Trials: whether a dump can be restored, tested while the dumped machine is still frozen in RAM.
//!
//! Obstacles that CRIU refuses at a dump are found before it ([`super::criu::obstacles`]). A trial finds those that
//! CRIU refuses only at a restore. It costs as much as a wake, so it is made for kinds of state
//! ([`super::criu::kinds`]) that this driver has not restored since it was opened.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burrow_model::{MIB, SandboxId};
use rustix::fs::{AtFlags, Dir, statat};

use super::{Shared, criu, step};
use crate::RuntimeError;

/// There are some dozens of kinds for the programs of a host. The limit protects against programs with endlessly many
/// names in `/proc`.
const KINDS_MAX: usize = 10_000;

/// RAM that must remain free on the host during a trial.
const RESERVE_BYTES: u64 = 256 * MIB;

/// Kinds that a trial or a restore has restored.
#[derive(Debug, Default)]
pub(super) struct RestoredKinds {
    kinds: Mutex<BTreeSet<String>>,
}

impl RestoredKinds {
    fn missing(&self, images: BorrowedFd<'_>) -> io::Result<Vec<String>> {
        let found = criu::kinds(images)?;
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(found.difference(&kinds).cloned().collect())
    }

    pub(super) fn add(&self, images: BorrowedFd<'_>) -> io::Result<()> {
        let found = criu::kinds(images)?;
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() + found.len() > KINDS_MAX {
            kinds.clear();
        }
        kinds.extend(found);
        Ok(())
    }
}

impl Shared {
    pub(super) fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError> {
        let missing = File::open(images).and_then(|images| self.tried.missing(images.as_fd()));
        missing.map_err(step("read the dump", id))
    }
}

/// Whether the host has the RAM for a second copy of the dumped machine.
pub(super) fn check_room(id: &SandboxId, images: BorrowedFd<'_>) -> Result<(), RuntimeError> {
    let needed_bytes = pages_bytes(images).map_err(step("read the dump", id))?.saturating_add(RESERVE_BYTES);
    let meminfo = fs::read_to_string("/proc/meminfo").map_err(step("read the free RAM of the host", id))?;
    let available_bytes = available(&meminfo).unwrap_or(u64::MAX);
    if needed_bytes > available_bytes {
        return Err(RuntimeError::NoRoomForTrial { id: id.clone(), needed_bytes, available_bytes });
    }
    Ok(())
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The size of the pages in a dump.
fn pages_bytes(images: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in Dir::read_from(images)? {
        let entry = entry?;
        if entry.file_name().to_bytes().starts_with(b"pages-") {
            let found = statat(images, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            bytes += u64::try_from(found.st_size).unwrap_or(0);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_ram_of_a_host_is_parsed() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:     421888 kB\n"), Some(421_888 * 1024));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn the_bytes_of_pages_are_added_up() {
        let images = tempfile::tempdir().unwrap();
        for (name, length) in [("pages-1.img", 4096), ("pages-2.img", 8192), ("mm-1.img", 100)] {
            fs::write(images.path().join(name), vec![0; length]).unwrap();
        }
        assert_eq!(pages_bytes(File::open(images.path()).unwrap().as_fd()).unwrap(), 12_288);
    }
}
