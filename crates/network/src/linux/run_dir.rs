//! The directory in which sandboxes' gateway namespaces outlive the daemon.
//!
//! Each namespace is bind-mounted on a file that is named by its sandbox's id. Without the mount, the namespace would
//! end with the daemon, and with it the sandbox's interface. The directory is a mount itself with private propagation,
//! so that these mounts are not propagated to every other mount namespace of the host. Only root can access it.
//!
//! A mount namespace that is copied at that time (for example of a sandbox that is starting) still gets a copy of each
//! mount, and would keep it after ours is gone. Removing the *file* ends those mounts too: the kernel detaches all
//! mounts on a name that is removed, in every mount namespace.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use burrow_model::SandboxId;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

/// `NSFS_MAGIC` of <linux/magic.h>: the file system of namespaces.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// We mount once on each file. More mounts come from other software, and never more than this.
const STACKED_MOUNTS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Prepares the directory. A directory that is already prepared is not changed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // If links were followed, any user who can write to the parent directory could choose where root mounts.
        if !fs::symlink_metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        if !is_mount_point(path)? {
            rustix::mount::mount_bind(path, path)?;
        }
        rustix::mount::mount_change(path, MountPropagationFlags::PRIVATE)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Keeps `gateway` alive under `id`'s name, in place of an earlier one.
    pub(super) fn keep(&self, id: &SandboxId, gateway: BorrowedFd<'_>) -> io::Result<()> {
        self.remove(id)?;
        let file = self.file(id);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
        let source = format!("/proc/self/fd/{}", gateway.as_raw_fd());
        Ok(rustix::mount::mount_bind(source, &file)?)
    }

    /// The namespace that is kept for `id`. `None` also if only the file exists: after a reboot, or after a crash
    /// between creating the file and mounting on it.
    pub(super) fn find(&self, id: &SandboxId) -> io::Result<Option<OwnedFd>> {
        let file = match File::open(self.file(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_namespace = u64::try_from(rustix::fs::fstatfs(&file)?.f_type) == Ok(NSFS_MAGIC);
        Ok(is_namespace.then(|| file.into()))
    }

    pub(super) fn remove(&self, id: &SandboxId) -> io::Result<()> {
        remove_kept(&self.file(id))
    }

    pub(super) fn ids(&self) -> io::Result<Vec<SandboxId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            match name.to_str().and_then(|name| name.parse().ok()) {
                Some(id) => ids.push(id),
                None => {
                    tracing::warn!(?name, directory = %self.path.display(), "ignored an unknown file")
                }
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn file(&self, id: &SandboxId) -> PathBuf {
        self.path.join(id.as_str())
    }
}

/// Undoes everything that [`RunDir::open`] and [`RunDir::keep`] did. A missing directory is not an error.
pub(super) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => (),
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let directory = RunDir { path: path.to_owned() };
    for id in directory.ids()? {
        directory.remove(&id)?;
    }
    unmount_all(path)?;
    fs::remove_dir(path)
}

fn remove_kept(file: &Path) -> io::Result<()> {
    unmount_all(file)?;
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn unmount_all(path: &Path) -> io::Result<()> {
    for _ in 0..STACKED_MOUNTS_MAX {
        match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => (),
            // Nothing is mounted here (any more).
            Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("too many mounts on this path"))
}

fn is_mount_point(path: &Path) -> io::Result<bool> {
    let status = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())?;
    Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
