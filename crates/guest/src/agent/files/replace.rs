//! Replaces a file with a finished one atomically.
//!
//! `rename` does this, and is used for small files. But some file systems (btrfs) then first write all of the new
//! file to the disk and free all of the old one: for a gigabyte that takes longer than the upload itself, and the
//! client did not request to wait for the disk. Large files are therefore exchanged with the old one, and the rest is
//! done after the answer.

#![expect(unsafe_code, reason = "sync_file_range has no safe wrapper")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Files up to this size are written to or removed from the disk within a moment.
const LARGE_BYTES: u64 = 8 << 20;

/// The work that is left once a large file is in place. If dropped instead, the kernel does the same later.
#[derive(Debug, Default)]
pub(super) struct PendingDiskWork {
    /// The replaced file, not freed yet.
    old: Option<OwnedFd>,
    /// The new file, if it is not being written to the disk yet.
    new: Option<Arc<OwnedFd>>,
}

impl PendingDiskWork {
    pub(super) fn is_none(&self) -> bool {
        self.old.is_none() && self.new.is_none()
    }

    /// Writes to the disk, perhaps for long.
    pub(super) fn settle(self) {
        if let Some(new) = &self.new {
            // As `rename` would: the new file must not be empty after a crash of the host soon afterwards. A client
            // that needs it to be durable requests `sync`. SAFETY: the descriptor is open for as long as `new` is
            // borrowed, and no memory is passed.
            unsafe { libc::sync_file_range(new.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
        drop(self.old);
    }
}

/// The file at the temporary name `from`.
pub(super) struct FinishedFile<'a> {
    pub(super) from: &'a Path,
    pub(super) file: &'a Arc<OwnedFd>,
    /// The size of the new file or of the one it replaces, whichever is larger.
    pub(super) size: u64,
    pub(super) synced: bool,
}

impl FinishedFile<'_> {
    /// Replaces the file at `to`. On success nothing is left at the temporary name; on error nothing has changed.
    pub(super) fn replace(&self, to: &Path) -> Result<PendingDiskWork, Errno> {
        if self.size < LARGE_BYTES {
            return rustix::fs::rename(self.from, to).map(|()| PendingDiskWork::default());
        }
        // With this order of names, a watcher sees the old file leave before the new one arrives.
        match swap(to, self.from) {
            Ok(()) => {}
            // The old file was removed meanwhile, or the file system does not support the exchange.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                return rustix::fs::rename(self.from, to).map(|()| PendingDiskWork::default());
            }
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let old = rustix::fs::open(self.from, flags, Mode::empty()).ok();
        match rustix::fs::unlink(self.from) {
            // Another process created a directory there meanwhile, which a file never replaces.
            Err(Errno::ISDIR) => swap(to, self.from).and(Err(Errno::ISDIR)),
            Ok(()) | Err(_) => {
                Ok(PendingDiskWork { old, new: (!self.synced).then(|| Arc::clone(self.file)) })
            }
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

    fn finished(directory: &Path, size: u64) -> Result<PendingDiskWork, Errno> {
        let from = directory.join("from");
        fs::write(&from, "new").unwrap();
        let file = Arc::new(OwnedFd::from(fs::File::open(&from).unwrap()));
        let finished = FinishedFile { from: &from, file: &file, size, synced: false };
        finished.replace(&directory.join("to"))
    }

    #[test]
    fn small_and_large_files_replace_existing_files() {
        for size in [3, LARGE_BYTES] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("to"), "old").unwrap();
            let pending = finished(directory.path(), size).unwrap();
            assert_eq!(pending.is_none(), size < LARGE_BYTES);
            assert_eq!(fs::read_to_string(directory.path().join("to")).unwrap(), "new");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            pending.settle();
        }
    }

    #[test]
    fn a_large_file_is_moved_into_place_after_the_old_one_was_removed() {
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
