//! Which dumps were verified a moment ago, so that a dump with twenty children is not read and hashed twenty times.
//!
//! A dump counts as verified while each of its files has the same inode, size and time of last change as when its content
//! was hashed: the kernel sets that time at every write, and no process can set it. Damage to the disk below is not
//! detected this way; btrfs detects it by its own checksums when the file is read. For old dumps neither is
//! relied on: after [`AGE_MAX`] everything is hashed again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burrow_model::DumpId;

/// How long a verified dump counts as verified.
const AGE_MAX: Duration = Duration::from_secs(600);

/// How many dumps are remembered.
const DUMPS_MAX: usize = 256;

/// How many files a dump may have to be remembered, at about 100 bytes each.
const FILES_MAX: usize = 2_000;

/// From this kernel on, two writes never leave the same time if the time was read in between ("multigrain timestamps").
/// In earlier kernels, the time of files advanced only every few milliseconds.
const KERNEL_MIN: (u32, u32) = (6, 13);

/// One file as it was when it was hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(super) name: String,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    /// Seconds and nanoseconds.
    pub(super) changed: (i64, u64),
}

#[derive(Debug)]
pub(crate) struct RecentlyVerified {
    verified: Mutex<HashMap<DumpId, (Instant, Vec<Stamp>)>>,
    /// Whether this kernel's times can be relied on.
    usable: bool,
}

impl Default for RecentlyVerified {
    fn default() -> Self {
        let release = rustix::system::uname();
        let usable = kernel(&release.release().to_string_lossy()).is_some_and(|kernel| kernel >= KERNEL_MIN);
        Self { verified: Mutex::default(), usable }
    }
}

impl RecentlyVerified {
    /// A record that never remembers.
    pub(crate) fn never() -> Self {
        Self { verified: Mutex::default(), usable: false }
    }

    /// Remembers a dump whose files were hashed after `files` had been read.
    pub(super) fn remember(&self, id: &DumpId, files: Vec<Stamp>) {
        if !self.usable || files.len() > FILES_MAX {
            return;
        }
        let mut verified = self.verified();
        verified.retain(|_, (at, _)| at.elapsed() < AGE_MAX);
        if verified.len() < DUMPS_MAX {
            verified.insert(id.clone(), (Instant::now(), files));
        }
    }

    /// Whether exactly these files were verified recently.
    pub(super) fn knows(&self, id: &DumpId, files: &[Stamp]) -> bool {
        let verified = self.verified();
        verified.get(id).is_some_and(|(at, known)| at.elapsed() < AGE_MAX && known == files)
    }

    pub(crate) fn forget(&self, id: &DumpId) {
        self.verified().remove(id);
    }

    fn verified(&self) -> MutexGuard<'_, HashMap<DumpId, (Instant, Vec<Stamp>)>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first two numbers of a kernel's release.
fn kernel(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_known_by_its_first_two_numbers() {
        assert_eq!(kernel("6.18.44-fc"), Some((6, 18)));
        assert_eq!(kernel("6.1-rc3"), Some((6, 1)));
        assert_eq!(kernel("unknown"), None);
        assert!(kernel("6.9.0").unwrap() < KERNEL_MIN);
    }

    #[test]
    fn only_the_very_same_files_are_known_and_a_forgotten_dump_is_not() {
        let recent = RecentlyVerified { usable: true, ..RecentlyVerified::never() };
        let (id, stamp) =
            (DumpId::generate(), Stamp { name: "x".to_owned(), inode: 1, bytes: 2, changed: (3, 4) });
        recent.remember(&id, vec![stamp.clone()]);
        assert!(recent.knows(&id, std::slice::from_ref(&stamp)));
        assert!(!recent.knows(&DumpId::generate(), std::slice::from_ref(&stamp)));
        let others = [
            Stamp { inode: 2, ..stamp.clone() },
            Stamp { bytes: 3, ..stamp.clone() },
            Stamp { changed: (3, 5), ..stamp.clone() },
        ];
        assert!(others.iter().all(|other| !recent.knows(&id, std::slice::from_ref(other))));
        assert!(!recent.knows(&id, &[]));
        recent.forget(&id);
        assert!(!recent.knows(&id, &[stamp]));
    }
}
