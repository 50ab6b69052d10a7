//! Volumes in a machine: directories of the host that it sees beside its own files.
//!
//! ```text
//!   boot      a place in the root is made ─► the launcher binds the directory there, as harmless as it is given
//!   dump      CRIU is told not to look into it: it is external, under the place it is at
//!   restore   CRIU binds it again ─► who may write is set anew, while everything stands still
//! ```
//!
//! Who may write is the restoring side's to say, not the dump's: a child of a machine that writes only reads. Where a process
//! has a file there open for writing, that cannot be, and the restore fails. Until then CRIU could write: where it would, to
//! make a socket anew, it is not even started (`criu::sockets`).

#![expect(unsafe_code, reason = "leaving a shared file system view has no safe interface")]

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::thread;

use burrow_model::MountMode;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::criu::Outside;
use super::root::Root;
use crate::Mount;
use crate::launcher::{MountPlan, open_beneath, set_access};

/// What the launcher needs to know; the places are there afterwards.
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

/// What CRIU is told when it writes a machine down: each is known by its place.
pub(super) fn left_out(mounts: &[Mount]) -> Vec<String> {
    mounts.iter().map(|mount| format!("mnt[{}]:{}", mount.target, mount.target)).collect()
}

/// As CRIU knows them: by their places.
pub(super) fn outside(mounts: &[Mount]) -> Vec<Outside> {
    let outside = |mount: &Mount| Outside {
        key: mount.target.to_string(),
        source: mount.source.clone(),
        read_only: mount.mode == MountMode::Ro,
    };
    mounts.iter().map(outside).collect()
}

/// Says anew who may write, in a machine that stands still.
pub(super) fn set_modes(pid: u32, mounts: &[Mount]) -> io::Result<()> {
    if mounts.is_empty() {
        return Ok(());
    }
    let view = File::open(format!("/proc/{pid}/ns/mnt"))?;
    // On a thread of its own, which ends there: no other thread may find itself among other files.
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

/// The kernel's word for a file that is open for writing says nothing to whoever reads it.
fn busy(error: io::Error, mount: &Mount) -> io::Error {
    if error.kind() != io::ErrorKind::ResourceBusy {
        return error;
    }
    io::Error::other(format!(
        "a process has a file open for writing in `{}`, which is read-only here",
        mount.target
    ))
}
