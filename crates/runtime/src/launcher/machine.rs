//! PID 1 of a machine, from its first instruction until it executes the agent.
//!
//! The order matters. The root is mounted while the process still has the host's uid, since other users cannot access
//! the pool. Mounts follow while it has all capabilities of its user namespace. The filter is loaded while it may still
//! load one. The capabilities are dropped last. Only the boot socket of the launcher remains.

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

use super::message::{AtStep as _, Failure, Plan};
use super::mounts::Files;
use super::{confine, mounts, stage};
use crate::container::apparmor;
use crate::container::seccomp::Instruction;
use crate::report::Report;

const AGENT: &std::ffi::CStr = c"/.burrow/guest";
/// For the agent alone; execs get their own environment.
const PATH: &std::ffi::CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The daemon has just written the agent's copy. Another process that the daemon forked at that moment has the file
/// open for writing until it executes its own program, and until then the kernel refuses to execute the file.
const BUSY_ATTEMPTS: u32 = 1000;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Turns this process into the agent, or reports the failure over the boot socket, and ends.
pub(super) fn become_machine(plan: &Plan, files: &Files, boot: OwnedFd, filter: &[Instruction]) -> ! {
    let tried = catch_unwind(AssertUnwindSafe(|| take_steps(plan, files, &boot, filter)));
    let failure = match tried {
        Ok(Ok(never)) => match never {},
        Ok(Err(failure)) => failure,
        Err(_) => Failure { step: "prepare the machine".to_owned(), errno: libc::ENOTRECOVERABLE },
    };
    let report = Report::Failed { step: failure.step.clone(), message: failure.source().to_string() };
    if let Ok(report) = serde_json::to_vec(&report) {
        // If the daemon does not listen any more, the report is lost.
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
    if plan.profile {
        apparmor::enter_by_exec().at("enter the AppArmor profile")?;
    }
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

/// From the host's uid 0, which has no id in this user namespace, to the root of the namespace.
fn become_inner_root() -> Result<(), Failure> {
    // Direct system calls: the C library's versions signal the other threads of the process, and its list of threads is
    // not reliable after a raw clone.
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).at("set the group to root inside")?;
    set_thread_groups(&[]).at("leave all groups")?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).at("set the user to root inside")?;
    rustix::process::setsid().at("start a session")?;
    // SAFETY: no file table is unshared, and the process has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP | UnshareFlags::NEWIPC) }
        .at("create the cgroup and ipc namespaces")
}

fn change_root(tree: &OwnedFd) -> Result<(), Failure> {
    rustix::process::fchdir(tree).at("enter the root directory")?;
    rustix::process::pivot_root(".", ".").at("change the root")?;
    // The old root is now mounted over the new one. Without it, none of the host's files are reachable here.
    unmount(".", UnmountFlags::DETACH).at("unmount the host's files")?;
    rustix::process::chdir("/").at("enter the new root")
}

/// Standard input is the boot socket, the other streams are `/dev/null`, and all other descriptors close when the agent
/// is executed.
fn arrange_descriptors(boot: &OwnedFd) -> Result<(), Failure> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .at("open `/dev/null`")?;
    let duplicate = |from: &OwnedFd, to: libc::c_int| {
        // SAFETY: the standard descriptors of this process have no owner: std's handles do not own them.
        let result = unsafe { libc::dup2(from.as_raw_fd(), to) };
        if result == to { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    duplicate(boot, 0).at("set the boot socket as standard input")?;
    duplicate(&null, 1).at("close standard output")?;
    duplicate(&null, 2).at("close standard error")?;
    // SAFETY: only marks descriptors to be closed on exec; closes none that anything here owns.
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
