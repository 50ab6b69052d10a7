//! PID 1 of a machine, from its first instruction to the agent's.
//!
//! The order matters. The root is put in its place while the process still has the host's uid, since the pool is closed to
//! everybody else; mounts follow while it has all capabilities of its user namespace; the filter is loaded while it
//! may still load one; the capabilities go last. Nothing of the launcher survives but the boot socket.

#![expect(unsafe_code, reason = "unshare, dup2 and execve have no safe interface")]

use std::convert::Infallible;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::fs::{Gid, Mode, OFlags, Uid, open};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::thread::{
    UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};

use super::message::{At as _, Failure, Plan};
use super::mounts::Files;
use super::{confine, mounts, stage};
use crate::container::seccomp::Instruction;
use crate::report::Report;

const AGENT: &std::ffi::CStr = c"/.burrow/guest";
/// For the agent alone; execs get an environment of their own.
const PATH: &std::ffi::CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The daemon has just written the agent's copy. A process that it forked at that moment for something else holds the
/// file open for writing until it starts its own program, and till then the kernel does not execute it.
const BUSY_ATTEMPTS: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Turns this process into the agent, or reports over the boot socket why not, and ends.
pub(super) fn become_machine(plan: &Plan, files: &Files, boot: OwnedFd, filter: &[Instruction]) -> ! {
    let tried = catch_unwind(AssertUnwindSafe(|| take_steps(plan, files, &boot, filter)));
    let failure = match tried {
        Ok(Ok(never)) => match never {},
        Ok(Err(failure)) => failure,
        Err(_) => Failure { step: "prepare the machine".to_owned(), errno: libc::ENOTRECOVERABLE },
    };
    let report = Report::Failed { step: failure.step.clone(), message: failure.source().to_string() };
    if let Ok(report) = serde_json::to_vec(&report) {
        // If the daemon does not listen any more, nobody does.
        let _ = File::from(boot).write_all(&report);
    }
    stage::exit_now(1)
}

fn take_steps(
    plan: &Plan,
    files: &Files,
    boot: &OwnedFd,
    filter: &[Instruction],
) -> Result<Infallible, Failure> {
    mount_root(plan, &files.root)?;
    become_inner_root()?;
    mounts::mount_all(files.root.as_fd(), plan.shm_bytes)?;
    mounts::attach_volumes(files.root.as_fd(), &plan.mounts, &files.volumes)?;
    change_root(&files.root)?;
    rustix::system::sethostname(plan.hostname.as_bytes()).at("set the host name")?;
    confine::set_resource_limits()?;
    stage::reset_signals();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    arrange_descriptors(boot)?;
    confine::load_filter(filter)?;
    confine::drop_capabilities()?;
    execute_agent()
}

/// Mounts the root directory on itself, which makes it a mount of this namespace that can become `/`.
fn mount_root(plan: &Plan, tree: &OwnedFd) -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at("make mounts private")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = open(&plan.root, flags, Mode::empty()).at("open the root directory")?;
    mounts::attach(tree, &place).at("mount the root directory")
}

/// From the host's uid 0, which is nobody in this user namespace, to its root.
fn become_inner_root() -> Result<(), Failure> {
    // By system call: the C library's versions stop the other threads of the process, and this one is not sure of its
    // threads after a raw clone.
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).at("become the inner root's group")?;
    set_thread_groups(&[]).at("leave all groups")?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).at("become the inner root")?;
    rustix::process::setsid().at("start a session")?;
    // SAFETY: no file table is unshared, and the process has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP | UnshareFlags::NEWIPC) }
        .at("make the cgroup and ipc namespaces")
}

fn change_root(tree: &OwnedFd) -> Result<(), Failure> {
    rustix::process::fchdir(tree).at("enter the root directory")?;
    rustix::process::pivot_root(".", ".").at("change the root")?;
    // The old root now lies over the new one; without it, nothing of the host's files has a name here.
    unmount(".", UnmountFlags::DETACH).at("let go of the host's files")?;
    rustix::process::chdir("/").at("enter the new root")
}

/// Standard input is the boot socket, the others go nowhere, and all the rest closes with the agent's start.
fn arrange_descriptors(boot: &OwnedFd) -> Result<(), Failure> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .at("open `/dev/null`")?;
    let duplicate = |from: &OwnedFd, to: libc::c_int| {
        // SAFETY: the standard descriptors of this process belong to nobody: std's handles do not own them.
        let result = unsafe { libc::dup2(from.as_raw_fd(), to) };
        if result == to { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    duplicate(boot, 0).at("take the boot socket as standard input")?;
    duplicate(&null, 1).at("close standard output")?;
    duplicate(&null, 2).at("close standard error")?;
    // SAFETY: marks descriptors; closes none that anything here owns.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }.at("close all other descriptors")
}

fn execute_agent() -> Result<Infallible, Failure> {
    let arguments = [AGENT.as_ptr(), std::ptr::null()];
    let environment = [PATH.as_ptr(), std::ptr::null()];
    let mut attempt = 0;
    loop {
        // SAFETY: both arrays end with a null pointer, and their strings are static.
        unsafe { libc::execve(AGENT.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let error = std::io::Error::last_os_error();
        attempt += 1;
        if error.raw_os_error() != Some(libc::ETXTBSY) || attempt >= BUSY_ATTEMPTS {
            return Err(error).at("start the guest agent");
        }
        std::thread::sleep(BUSY_PAUSE);
    }
}
