//! Trials: whether a dump can be restored, tested while the dumped machine is still frozen in RAM.
//!
//! Obstacles that CRIU refuses at a dump are found before it ([`super::criu::obstacles`]). A trial finds those that
//! CRIU refuses only at a restore. It costs as much as a wake, so it is made for kinds of state
//! ([`super::criu::kinds`]) that this driver has not restored. The engine keeps the record of those across restarts of the
//! daemon; it applies only to the same kernel, processor, CRIU and version of this program.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burrow_model::{MIB, SandboxId};
use rustix::fs::{AtFlags, Dir, statat};

use super::compatibility::DumpOrigin;
use super::criu;
use super::hibernate::Tool;
use super::shared_state::{Shared, step};
use crate::{RestoredKinds, RuntimeError};

/// There are some dozens of kinds for the programs of a host. The limit protects against programs with endlessly many
/// names in `/proc`.
const KINDS_MAX: usize = 10_000;

/// RAM that must remain free on the host during a trial.
const RESERVE_BYTES: u64 = 256 * MIB;

/// The size of a record of kinds. A host has some dozens of kinds of some dozens of bytes each.
const RECORD_BYTES_MAX: usize = 64 * 1024;

/// Kinds that a trial has restored.
#[derive(Debug, Default)]
pub(super) struct TriedKinds {
    /// See [`DumpOrigin::restore_conditions`]; `None`: unknown, so no record is made or read.
    host: Option<String>,
    kinds: Mutex<BTreeSet<String>>,
}

impl TriedKinds {
    pub(super) fn of_host(tool: Option<&Tool>) -> Self {
        let here = tool.map(|tool| DumpOrigin::here(&tool.version));
        let host = match here.transpose() {
            Ok(here) => here.map(|here| here.restore_conditions()),
            Err(error) => {
                tracing::warn!(%error, "could not inspect this host; restored kinds of state will not be recorded");
                None
            }
        };
        Self { host, kinds: Mutex::default() }
    }

    fn missing(&self, images: BorrowedFd<'_>) -> io::Result<Vec<String>> {
        let found = criu::kinds(images)?;
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(found.difference(&kinds).cloned().collect())
    }

    pub(super) fn add(&self, images: BorrowedFd<'_>) -> io::Result<()> {
        self.extend(criu::kinds(images)?);
        Ok(())
    }

    fn remove(&self, images: BorrowedFd<'_>) -> io::Result<()> {
        let found = criu::kinds(images)?;
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.retain(|kind| !found.contains(kind));
        Ok(())
    }

    fn extend(&self, found: BTreeSet<String>) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() + found.len() > KINDS_MAX {
            kinds.clear();
        }
        kinds.extend(found);
    }

    /// Kinds beyond the size of a record are tried again after a restart.
    pub(super) fn record(&self) -> Option<RestoredKinds> {
        let host = self.host.clone()?;
        let all = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        let fits = |kind: &&String| {
            bytes += kind.len();
            bytes <= RECORD_BYTES_MAX
        };
        let kinds = all.iter().take_while(fits).cloned().collect();
        Some(RestoredKinds { host, kinds })
    }

    pub(super) fn recall(&self, record: RestoredKinds) -> bool {
        let applies = self.host.as_ref() == Some(&record.host);
        if applies {
            self.extend(record.kinds);
        }
        applies
    }
}

impl Shared {
    pub(super) fn untried(&self, id: &SandboxId, images: &Path) -> Result<Vec<String>, RuntimeError> {
        let missing = File::open(images).and_then(|images| self.tried.missing(images.as_fd()));
        missing.map_err(step("read the dump", id))
    }

    /// After a restore that failed: something in this dump cannot be restored, although a trial may have passed. So dumps
    /// with the same kinds are tried again.
    pub(super) fn try_again(&self, id: &SandboxId, images: BorrowedFd<'_>) {
        if let Err(error) = self.tried.remove(images) {
            tracing::warn!(sandbox = %id, %error, "could not read the kinds of state in a dump");
        }
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

    fn tried_on(host: &str) -> TriedKinds {
        TriedKinds { host: Some(host.to_owned()), kinds: Mutex::default() }
    }

    #[test]
    fn a_record_of_kinds_applies_only_to_the_same_host() {
        let kinds = BTreeSet::from(["file 0o1".to_owned(), "type 17".to_owned()]);
        let tried = tried_on("6.1, CRIU 4.2");
        tried.extend(kinds.clone());
        let record = tried.record().unwrap();
        let (same, other) = (tried_on("6.1, CRIU 4.2"), tried_on("6.2, CRIU 4.2"));
        assert!(same.recall(record.clone()));
        assert_eq!(same.record().unwrap().kinds, kinds);
        assert!(!other.recall(record.clone()));
        assert!(other.record().unwrap().kinds.is_empty());
        let unknown = TriedKinds::default();
        assert!(!unknown.recall(record));
        assert_eq!(unknown.record(), None);
    }

    #[test]
    fn a_record_of_kinds_has_a_limited_size() {
        let tried = tried_on("6.1");
        tried.extend((0..2_000).map(|n| format!("file 0o1 /proc/{n:0>100}")).collect());
        let kinds = tried.record().unwrap().kinds;
        assert!((100..1_000).contains(&kinds.len()), "{}", kinds.len());
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
