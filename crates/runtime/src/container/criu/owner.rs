//! Whose the user namespaces of machines are, and how CRIU becomes that user.
//!
//! Each machine's user namespace belongs to a uid of its own, since the kernel counts inotify instances and the like for
//! the owner too. CRIU must be that user, though with all of root's powers: to make a namespace that belongs to it, and to
//! have every power over one that does, also on hosts whose root lacks some. But CRIU refuses to start as anybody but root.
//! So it is changed after it has looked: at its first notification, by a call made as it.

#![expect(unsafe_code, reason = "asking a namespace for its owner has no safe interface")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;

use super::trace::{CallSite, IfWeDie, Tracee};

const DUMPABLE: u64 = libc::PR_SET_DUMPABLE as u64;

const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// The owner of the user namespace that a process is in.
pub(super) fn of_machine(pid: u32) -> io::Result<u32> {
    let namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    let mut uid = 0_u32;
    // SAFETY: the kernel writes one uid to where it is told to.
    match unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, ptr::from_mut(&mut uid)) } {
        0 => Ok(uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Changes the effective uid of CRIU, which waits for us. It was started such that this takes none of its powers.
pub(super) fn become_owner(criu: u32, owner: u32) -> io::Result<()> {
    if owner == 0 {
        return Ok(());
    }
    let site = CallSite::find(criu)?;
    let mut thread = Tracee::seize(criu, IfWeDie::ItGoesOn)?.ok_or(io::ErrorKind::BrokenPipe)?;
    change(&mut thread, &site, owner)?;
    // A change of uid makes a process's own `/proc` entries the host's root's, whom nobody in a new user namespace is.
    thread.call(&site, libc::SYS_prctl, [DUMPABLE, 1, 0, 0, 0, 0]).map(drop)
}

/// Makes CRIU root again, once the namespace is there, and with it those helpers of CRIU's among `processes` that stayed
/// outside: the kernel lets nobody but root set a host name by way of `/proc`, whatever their powers.
pub(super) fn become_root(processes: &[u32]) -> io::Result<()> {
    let ours = fs::read_link("/proc/self/ns/user")?;
    for &pid in processes {
        if fs::read_link(format!("/proc/{pid}/ns/user"))? != ours {
            continue;
        }
        let site = CallSite::find(pid)?;
        let mut thread = Tracee::seize(pid, IfWeDie::ItGoesOn)?.ok_or(io::ErrorKind::BrokenPipe)?;
        change(&mut thread, &site, 0)?;
    }
    Ok(())
}

fn change(thread: &mut Tracee, site: &CallSite, uid: u32) -> io::Result<()> {
    let unchanged = u64::MAX;
    thread.call(site, libc::SYS_setresuid, [unchanged, uid.into(), unchanged, 0, 0, 0]).map(drop)
}
