//! The owner of a machine's user namespace, and how CRIU becomes that user.
//!
//! Each machine's user namespace is owned by a separate uid, since the kernel counts inotify instances and similar
//! resources for the owner too. CRIU must be that user, but with all of root's capabilities: to create a namespace with
//! that owner, and to have every capability over an existing one, also on hosts whose root lacks some. But CRIU refuses
//! to start as any user but root. So its uid is changed after that check: at its first notification, by a system call
//! made in it.

#![expect(unsafe_code, reason = "asking a namespace for its owner has no safe interface")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;

use super::trace::{CallSite, OnTracerExit, Tracee};

const DUMPABLE: u64 = libc::PR_SET_DUMPABLE as u64;

const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;

/// The owner of the user namespace of a process.
pub(super) fn of_machine(pid: u32) -> io::Result<u32> {
    let namespace = File::open(format!("/proc/{pid}/ns/user"))?;
    let mut uid = 0_u32;
    // SAFETY: the kernel writes one uid to the given address.
    match unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, ptr::from_mut(&mut uid)) } {
        0 => Ok(uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Changes the effective uid of CRIU, which waits for us. It was started such that it keeps its capabilities.
pub(super) fn become_owner(criu: u32, owner: u32) -> io::Result<()> {
    if owner == 0 {
        return Ok(());
    }
    let site = CallSite::find(criu)?;
    let mut thread = Tracee::seize(criu, OnTracerExit::Continues)?.ok_or(io::ErrorKind::BrokenPipe)?;
    change(&mut thread, &site, owner)?;
    // After a change of uid, a process's own `/proc` entries belong to the host's root, which has no id in a new user
    // namespace.
    thread.call(&site, libc::SYS_prctl, [DUMPABLE, 1, 0, 0, 0, 0]).map(drop)
}

/// Makes CRIU root again, once the namespace exists, and with it those helpers of CRIU among `processes` that stayed
/// outside: the kernel allows only root to set a host name through `/proc`, whatever the capabilities.
pub(super) fn become_root(processes: &[u32]) -> io::Result<()> {
    let ours = fs::read_link("/proc/self/ns/user")?;
    for &pid in processes {
        if fs::read_link(format!("/proc/{pid}/ns/user"))? != ours {
            continue;
        }
        let site = CallSite::find(pid)?;
        let mut thread = Tracee::seize(pid, OnTracerExit::Continues)?.ok_or(io::ErrorKind::BrokenPipe)?;
        change(&mut thread, &site, 0)?;
    }
    Ok(())
}

fn change(thread: &mut Tracee, site: &CallSite, uid: u32) -> io::Result<()> {
    let unchanged = u64::MAX;
    thread.call(site, libc::SYS_setresuid, [unchanged, uid.into(), unchanged, 0, 0, 0]).map(drop)
}
