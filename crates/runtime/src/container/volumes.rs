//! Volumes in a machine: host directories that are mounted beside its own files.
//!
//! ```text
//!   boot      a mount point in the root is created ─► the launcher binds the directory there, with its access mode
//!   dump      CRIU does not dump its contents: it is an external mount, identified by its path
//!   restore   CRIU binds it again ─► the access mode is set again, while all processes are frozen
//! ```
//!
//! The restoring side decides the access mode, not the dump: a child of a machine that writes may only read. If a
//! process has a file there open for writing, that is impossible, and the restore fails. Until then CRIU could write:
//! if it would, to create a socket again, it is not even started (`criu::sockets`).

#![expect(unsafe_code, reason = "leaving a shared file system view has no safe interface")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::thread;

use burrow_model::MountMode;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::criu::HostMount;
use super::root::Root;
use crate::Mount;
use crate::launcher::{MountPlan, open_beneath, set_access};

/// The launcher's plan; creates the mount points.
pub(super) fn plan(root: &Root, mounts: &[Mount]) -> io::Result<Vec<MountPlan>> {
    let mut plans = Vec::with_capacity(mounts.len());
    for mount in mounts {
        root.make_place(mount.target.relative())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = open(&mount.source, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&source)?;
        plans.push(MountPlan {
            source: mount.source.clone(),
            source_identity: (stat.st_dev, stat.st_ino),
            target: mount.target.relative().to_owned(),
            read_only: mount.mode == MountMode::Ro,
        });
    }
    Ok(plans)
}

/// The mounts that CRIU must leave out of a dump, each identified by its path.
pub(super) fn excluded_mounts(mounts: &[Mount]) -> Vec<String> {
    mounts.iter().map(|mount| format!("mnt[{}]:{}", mount.target, mount.target)).collect()
}

/// As identified by CRIU: by their paths.
pub(super) fn outside(mounts: &[Mount]) -> Vec<HostMount> {
    let outside = |mount: &Mount| HostMount {
        key: mount.target.to_string(),
        source: mount.source.clone(),
        read_only: mount.mode == MountMode::Ro,
    };
    mounts.iter().map(outside).collect()
}

/// Sets the access modes again, in a paused machine.
pub(super) fn set_modes(pid: u32, mounts: &[Mount]) -> io::Result<()> {
    if mounts.is_empty() {
        return Ok(());
    }
    let view = File::open(format!("/proc/{pid}/ns/mnt"))?;
    // On a separate thread, which ends afterwards: other threads must not end up in another mount namespace.
    thread::scope(|scope| {
        let setting = scope.spawn(|| {
            // SAFETY: the thread shares its root and working directory with the others until here, and uses neither of
            // theirs afterwards. No file table is unshared.
            unsafe { unshare_unsafe(UnshareFlags::FS) }?;
            move_into_link_name_space(view.as_fd(), Some(LinkNameSpaceType::Mount))?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
            mounts.iter().try_for_each(|mount| {
                let place = open_beneath(root.as_fd(), mount.target.relative())?;
                set_access(place.as_fd(), mount.mode == MountMode::Ro).map_err(|error| busy(error, mount))
            })
        });
        setting.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// Translates the kernel's error for a file that is open for writing into a useful message.
fn busy(error: io::Error, mount: &Mount) -> io::Error {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return error;
    }
    io::Error::other(format!(
        "a process has a file open for writing in `{}`, which is read-only here",
        mount.target
    ))
}
