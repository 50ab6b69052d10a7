//! Puts a finished file in the place of another, in one step that nobody can see the middle of.
//!
//! `rename` over a file would do, and does for small ones. But with it some file systems (btrfs) first send all of the
//! new file to the disk, and free all of the old one: for a gigabyte that takes longer than writing it took, and whoever
//! uploads did not ask to wait for the disk. So large files change places, and the rest is done when they were told.

#![expect(unsafe_code, reason = "sync_file_range has no safe wrapper")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Up to this size a file is on the disk, or gone from it, within a moment.
const LARGE_BYTES: u64 = 8 << 20;

/// What is left to do once a large file is in place. Dropped undone, the kernel does the same later by itself.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// The replaced file, kept from being freed.
    old: Option<OwnedFd>,
    /// The new one, if its way to the disk is yet to begin.
    new: Option<Arc<OwnedFd>>,
}

impl Aftermath {
    pub(super) fn is_none(&self) -> bool {
        self.old.is_none() && self.new.is_none()
    }

    /// Works on the disk, perhaps for long.
    pub(super) fn settle(self) {
        if let Some(new) = &self.new {
            // As `rename` would have: a crash of the host soon afterwards shall not find the new file empty. Whoever
            // needs to know that it is on the disk asks for `sync`.
            // SAFETY: the descriptor is open for as long as `new` is borrowed, and no memory is passed.
            unsafe { libc::sync_file_range(new.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
        drop(self.old);
    }
}

/// The file at the temporary name `from`.
pub(super) struct Finished<'a> {
    pub(super) from: &'a Path,
    pub(super) file: &'a Arc<OwnedFd>,
    /// Bytes of it, or of the one it replaces, whichever has more.
    pub(super) size: u64,
    pub(super) synced: bool,
}

impl Finished<'_> {
    /// Replaces the file at `to`. Afterwards nothing is left at the temporary name; after an error it is as before.
    pub(super) fn replace(&self, to: &Path) -> Result<Aftermath, Errno> {
        if self.size < LARGE_BYTES {
            return rustix::fs::rename(self.from, to).map(|()| Aftermath::default());
        }
        // In this order of names whoever watches the directory sees the old file leave and then the new one come.
        match swap(to, self.from) {
            Ok(()) => {}
            // It is gone meanwhile, or the file system does not know how.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                return rustix::fs::rename(self.from, to).map(|()| Aftermath::default());
            }
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let old = rustix::fs::open(self.from, flags, Mode::empty()).ok();
        match rustix::fs::unlink(self.from) {
            // Somebody put a directory there since we looked, which a file never replaces.
            Err(Errno::ISDIR) => swap(to, self.from).and(Err(Errno::ISDIR)),
            Ok(()) | Err(_) => Ok(Aftermath { old, new: (!self.synced).then(|| Arc::clone(self.file)) }),
        }
    }
}

fn swap(one: &Path, other: &Path) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn finished(directory: &Path, size: u64) -> Result<Aftermath, Errno> {
        let from = directory.join("from");
        fs::write(&from, "new").unwrap();
        let file = Arc::new(OwnedFd::from(fs::File::open(&from).unwrap()));
        let finished = Finished { from: &from, file: &file, size, synced: false };
        finished.replace(&directory.join("to"))
    }

    #[test]
    fn small_and_large_files_replace_what_was_there() {
        for size in [3, LARGE_BYTES] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("to"), "old").unwrap();
            let aftermath = finished(directory.path(), size).unwrap();
            assert_eq!(aftermath.is_none(), size < LARGE_BYTES);
            assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "new");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            aftermath.settle();
        }
    }

    #[test]
    fn a_large_file_takes_a_place_that_became_free() {
        let directory = tempfile::tempdir().unwrap();
        finished(directory.path(), LARGE_BYTES).unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "new");
    }

    #[test]
    fn a_directory_is_never_replaced() {
        for size in [3, LARGE_BYTES] {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir_all(directory.path().join("to/inner")).unwrap();
            assert_eq!(finished(directory.path(), size).unwrap_err(), Errno::ISDIR);
            assert!(directory.path().join("to/inner").is_dir());
            assert_eq!(fs::read_to_string(directory.path().join("from")).unwrap(), "new");
        }
    }
}
