//! The images of a dump, with some of them replaced for one restore.
//!
//! Several machines may be restored from one dump, so a restore never changes it. It writes modified copies of a few
//! images, and mounts them over the dump's in a private mount namespace.

#![expect(unsafe_code, reason = "leaving a shared file system view has no safe interface")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::launcher::{attach, bind_mapped};

#[derive(Debug)]
pub(super) struct ReplacedImages {
    images: OwnedFd,
    /// The mount namespace in which the copies are mounted; it ends with this.
    _view: OwnedFd,
}

impl ReplacedImages {
    /// `work` is a directory for the copies.
    pub(super) fn of(
        images: BorrowedFd<'_>,
        work: BorrowedFd<'_>,
        replacements: &[(String, Vec<u8>)],
    ) -> io::Result<Self> {
        let mut mounts = Vec::new();
        for (name, bytes) in replacements {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
            let mut file = File::from(openat(work, name.as_str(), flags, mode)?);
            file.write_all(bytes)?;
            mounts.push((name.as_str(), bind_mapped(file.as_fd(), None)?));
        }
        // On a separate thread, which ends afterwards: other threads must not end up in another mount namespace.
        thread::scope(|scope| {
            let showing = scope.spawn(|| show(images, &mounts));
            showing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.images.as_fd()
    }
}

/// Mounts each copy over the image of that name, in a mount namespace that this thread creates.
fn show(images: BorrowedFd<'_>, mounts: &[(&str, OwnedFd)]) -> io::Result<ReplacedImages> {
    // SAFETY: the thread shares its root and working directory with the others until here, and uses neither of theirs
    // afterwards. No file table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }?;
    // Only the working directory carries over into the new namespace.
    rustix::process::fchdir(images)?;
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for (name, image) in mounts {
        let place = openat(CWD, *name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        attach(image, &place)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let images = openat(CWD, ".", flags, Mode::empty())?;
    Ok(ReplacedImages { images, _view: File::open("/proc/thread-self/ns/mnt")?.into() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::links;
    use super::*;

    #[test]
    fn a_restore_uses_its_own_images_and_the_dump_is_unchanged() {
        let (images, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["one.img", "two.img", "three.img"] {
            fs::write(images.path().join(name), name).unwrap();
        }
        let dump = images.path();
        let [images, work] = [dump, work.path()].map(|path| File::open(path).unwrap());
        let replacements = ["one.img", "two.img"].map(|name| (name.to_owned(), b"replaced".to_vec()));
        let replaced = ReplacedImages::of(images.as_fd(), work.as_fd(), &replacements).unwrap();
        let seen =
            ["one.img", "two.img", "three.img"].map(|name| links::read(replaced.as_fd(), name).unwrap());
        assert_eq!(seen, [&b"replaced"[..], b"replaced", b"three.img"]);
        assert_eq!(fs::read(dump.join("one.img")).unwrap(), b"one.img");
    }
}
