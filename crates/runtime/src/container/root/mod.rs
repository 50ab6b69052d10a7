//! Prepares a directory as the root of a sandbox.
//!
//! Runs on the host, as root, before the machine starts, on files that a hostile machine may have left behind. All
//! operations use descriptors below the root directory and follow no link: see [`entry`]. Correct entries are not
//! changed, so preparing an image once makes each boot from it fast.

mod agent;
mod devices;
mod entry;
mod etc;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, open};

/// A sandbox's root directory, as the host sees it.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    directory: OwnedFd,
}

/// The failed step, and its error.
#[derive(Debug)]
pub(crate) struct RootError {
    pub(crate) step: &'static str,
    pub(crate) source: io::Error,
}

impl Root {
    /// The path of the root itself belongs to the daemon and is trusted; everything below it is not.
    pub(crate) fn open(path: &Path) -> Result<Self, RootError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())
            .map_err(|source| RootError { step: "open the root directory", source: source.into() })?;
        Ok(Self { path: path.to_owned(), directory })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode: the launcher opens the path again, in the machine's own view, and checks that it finds the
    /// same directory.
    pub(crate) fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.directory)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// The part that is the same for all boots from one image.
    pub(crate) fn prepare(&self, guest_binary: &Path, ram_bytes: u64) -> Result<(), RootError> {
        let root = self.directory.as_fd();
        let at = |step| move |source| RootError { step, source };
        devices::prepare(root).map_err(at("prepare `/dev` and the mount points"))?;
        devices::prepare_scratch(root).map_err(at("prepare `/tmp` and `/run`"))?;
        agent::prepare(root, guest_binary, ram_bytes).map_err(at("install the guest agent"))
    }

    /// Makes each boot from an image fast; done once while the image is created.
    pub(crate) fn prepare_image(&self, guest_binary: &Path) -> Result<(), RootError> {
        // A placeholder size of RAM; a boot writes its own.
        self.prepare(guest_binary, 0)?;
        etc::prepare_image(self.directory.as_fd())
            .map_err(|source| RootError { step: "write the name in `/etc`", source })
    }

    /// Adds what an imported tree cannot contain; see [`crate::Runtime::prepare_moved`].
    pub(crate) fn prepare_moved(&self, guest_binary: &Path, keeps_agent: bool) -> Result<(), RootError> {
        if !keeps_agent {
            return self.prepare(guest_binary, 0);
        }
        let root = self.directory.as_fd();
        let at = |step| move |source| RootError { step, source };
        devices::prepare(root).map_err(at("prepare `/dev` and the mount points"))?;
        agent::own(root).map_err(at("set the owner of the guest agent"))
    }

    /// Creates the mount point of a volume. An existing entry that is not a directory belongs to the owner, and is
    /// kept.
    pub(crate) fn make_place(&self, path: &str) -> io::Result<()> {
        let mut folder = self.directory.try_clone()?;
        for name in path.split('/') {
            folder = entry::directory_if_free(folder.as_fd(), name)?;
        }
        Ok(())
    }

    /// The part that differs between sandboxes.
    pub(crate) fn name(&self, hostname: &str) -> Result<(), RootError> {
        etc::prepare(self.directory.as_fd(), hostname)
            .map_err(|source| RootError { step: "write the name in `/etc`", source })
    }
}

#[cfg(test)]
mod tests;
