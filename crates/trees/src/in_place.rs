//! Writes new content into an existing file, if no process could notice that it is the same file.
//!
//! Creating a file, moving it over another one and freeing that one takes three times as long. Whether a process has a file open
//! in any way (a descriptor, a mapping, a message in transit) is asked of the kernel: it grants a write lease only to the only
//! opener of a file.

#![expect(unsafe_code, reason = "leases have no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use crate::apply::{FileAge, set_attributes, set_times};
use crate::{Kind, Node};

/// `F_SETSIG`, which is missing in the libc crate.
const SET_SIGNAL: libc::c_int = 10;

/// Mode bits that a write clears.
const SET_ID: u32 = 0o6000;

/// Gives the existing file at `name` the content of `source` and the metadata of `node`. Returns false if that was not possible; its
/// content may be changed then, and the caller must move a new file over it. No process may open anything in the tree meanwhile.
pub(crate) fn renew(folder: BorrowedFd<'_>, name: &[u8], node: &Node, source: &File) -> io::Result<bool> {
    let Kind::File { bytes } = node.kind else { return Ok(false) };
    // Checked first: opening a pipe waits for its other end, and opening a device has side effects.
    let Ok(found) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(false) };
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
        return Ok(false);
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::openat(folder, name, flags, Mode::empty()) else { return Ok(false) };
    if !is_exclusive(&opened) {
        return Ok(false);
    }
    if u64::try_from(found.st_size).is_ok_and(|size| size > bytes) {
        rustix::fs::ftruncate(&opened, bytes)?;
    }
    if rustix::fs::ioctl_ficlone(&opened, source).is_err() {
        return Ok(false);
    }
    let mode = found.st_mode & 0o7777;
    let plain = (found.st_uid, found.st_gid, mode) == (node.uid, node.gid, node.mode) && mode & SET_ID == 0;
    if !plain || !node.attributes.is_empty() || has_attributes(&opened) {
        set_attributes(&opened, node, FileAge::Old)?;
    }
    set_times(opened.as_fd(), b"", node)?;
    Ok(true)
}

/// Whether no other descriptor or mapping refers to the file.
fn is_exclusive(opened: &OwnedFd) -> bool {
    let fd = opened.as_raw_fd();
    // SAFETY: fcntl on an open descriptor, with integers as arguments. The signal for a broken lease ends
    // a process by default, so another one is set, which is ignored by default. The lease is released at once.
    unsafe {
        libc::fcntl(fd, SET_SIGNAL, libc::SIGURG) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) == 0
            && libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}

fn has_attributes(opened: &OwnedFd) -> bool {
    // An error counts as yes.
    rustix::fs::flistxattr(opened, &mut [0; 0][..]) != Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use super::*;
    use crate::Root;

    /// Copies the content of `new` into `old`, as a merge does, and returns whether it is still the same file.
    fn renewed(folder: &Path) -> bool {
        let before = std::fs::metadata(folder.join("old")).unwrap().ino();
        let root = Root::open(folder).unwrap();
        let node = root.node(b"/new").unwrap().unwrap();
        let content = crate::plan::Content::Theirs { path: b"/new".to_vec() };
        let action = crate::plan::Action::Put { path: b"/old".to_vec(), node, content };
        let sources = crate::apply::Sources { ours: &root, theirs: &root };
        crate::apply::apply(&root, sources, &[action], &mut |_| Ok(())).unwrap();
        assert_eq!(std::fs::read(folder.join("old")).unwrap(), std::fs::read(folder.join("new")).unwrap());
        std::fs::metadata(folder.join("old")).unwrap().ino() == before
    }

    fn pair() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("old"), "old and longer than that").unwrap();
        std::fs::write(folder.path().join("new"), "new").unwrap();
        folder
    }

    #[test]
    fn open_and_mapped_files_are_not_exclusive() {
        let folder = pair();
        let path = folder.path().join("old");
        let alone = || is_exclusive(&File::options().write(true).open(&path).unwrap().into());
        assert!(alone());
        let reader = File::open(&path).unwrap();
        assert!(!alone(), "one that reads");
        // SAFETY: a mapping of an existing file, unmapped below; its content is not accessed.
        let mapped = unsafe {
            let fd = reader.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0)
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        drop(reader);
        assert!(!alone(), "one that is mapped");
        // SAFETY: the mapping that was created above.
        assert_eq!(unsafe { libc::munmap(mapped, 4096) }, 0);
        assert!(alone());
        let writer = File::options().append(true).open(&path).unwrap();
        assert!(!alone(), "one that writes");
        drop(writer);
        assert!(alone());
    }

    #[test]
    fn a_process_with_an_open_file_keeps_the_old_content() {
        let folder = pair();
        let mut reader = File::open(folder.path().join("old")).unwrap();
        assert!(!renewed(folder.path()));
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "old and longer than that");
    }

    #[test]
    fn another_name_of_a_file_keeps_its_content() {
        let folder = pair();
        std::fs::hard_link(folder.path().join("old"), folder.path().join("other")).unwrap();
        assert!(!renewed(folder.path()));
        assert_eq!(std::fs::read_to_string(folder.path().join("other")).unwrap(), "old and longer than that");
    }

    #[test]
    fn mode_attributes_and_times_are_replaced_completely() {
        let folder = pair();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        xattr::set(&old, "user.old", b"x").unwrap();
        xattr::set(&new, "user.new", b"y").unwrap();
        std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o4755)).unwrap();
        // Whether it is still the same file depends on whether the file system shares extents.
        renewed(folder.path());
        let root = Root::open(folder.path()).unwrap();
        let (old, new) = (root.node(b"/old").unwrap().unwrap(), root.node(b"/new").unwrap().unwrap());
        assert!(old.is_alike(&new), "{old:?} {new:?}");
        assert_eq!(old.modified, new.modified);
    }
}
