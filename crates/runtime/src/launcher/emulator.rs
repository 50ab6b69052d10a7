//! The process that emulates a microVM, from its first instruction to the emulator's.
//!
//! ```text
//!   its own pid, mount, network, ipc and uts namespaces
//!   /           an empty, read-only file system
//!   /<name>     the files that it reads: its program and libraries, its kernel, the RAM it starts from; read-only too
//!   descriptors 3, 4, …: those it was given; 0 and 1 are /dev/null, 2 is a pipe to the daemon until that closes it
//! ```
//!
//! No capability, no way to gain one, a uid that no other process has, no visible processes, no network but the tap. A
//! guest that breaks out of its machine gains no more than this.

#![expect(unsafe_code, reason = "prctl, dup2 and execve have no safe interface")]

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::{Gid, Mode, OFlags, Uid, mkdirat, open, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_change, unmount,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::message::{AtStep as _, EmulatorPlan, Failure};
use super::{confine, mounts, stage};

/// The first descriptor that is passed to the emulator.
pub(crate) const FIRST_DESCRIPTOR: RawFd = 3;

/// Above all descriptors that are passed, so that arranging them closes no other.
const ASIDE_DESCRIPTOR: RawFd = 100;

/// Turns this process into the emulator, or reports the failure over `errors`, and ends.
pub(super) fn become_emulator(plan: &EmulatorPlan, errors: OwnedFd, given: Vec<OwnedFd>) -> ! {
    let tried = catch_unwind(AssertUnwindSafe(|| take_steps(plan, &errors, given)));
    let failure = match tried {
        Ok(Ok(never)) => match never {},
        Ok(Err(failure)) => failure,
        Err(_) => Failure { step: "prepare the emulator".to_owned(), errno: libc::ENOTRECOVERABLE },
    };
    // If the daemon does not listen any more, the report is lost.
    let _ = File::from(errors)
        .write_all(format!("could not {}: {}\n", failure.step, failure.source()).as_bytes());
    stage::exit_now(1)
}

fn take_steps(plan: &EmulatorPlan, errors: &OwnedFd, given: Vec<OwnedFd>) -> Result<Infallible, Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at("make mounts private")?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).at("open `/dev/null`")?;
    change_root(plan)?;
    rustix::system::sethostname(b"microvm").at("set the host name")?;
    confine::set_resource_limits()?;
    stage::reset_signals();
    rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::setsid().at("start a session")?;
    if plan.small_pages {
        // SAFETY: changes a setting of this process; takes no pointers.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    }
    let count = given.len();
    arrange_descriptors(&null, errors, given)?;
    drop_privileges(plan.uid)?;
    close_others(count)?;
    execute(&plan.argv)
}

/// An empty file system that contains only the files that the emulator reads.
fn change_root(plan: &EmulatorPlan) -> Result<(), Failure> {
    let place = open(&plan.place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("open the directory of the emulator's root")?;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).at("create the emulator's root")?;
    for (name, value) in [("size", "65536"), ("mode", "0555")] {
        fsconfig_set_string(&context, name, value).at("create the emulator's root")?;
    }
    fsconfig_create(&context).at("create the emulator's root")?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags).at("mount the emulator's root")?;
    mounts::attach(&root, &place).at("mount the emulator's root")?;
    for (source, name) in &plan.shown {
        let source =
            open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("open the emulator's files")?;
        let is_directory = rustix::fs::fstat(&source).at("inspect the emulator's files")?.st_mode
            & libc::S_IFMT
            == libc::S_IFDIR;
        if is_directory {
            mkdirat(&root, name.as_str(), Mode::from_raw_mode(0o755)).at("create a mount point")?;
        } else {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            openat(&root, name.as_str(), flags, Mode::from_raw_mode(0o444)).at("create a mount point")?;
        }
        let target = openat(&root, name.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .at("open a mount point")?;
        let mount = mounts::bind(source.as_fd()).at("bind the emulator's files")?;
        mounts::set_read_only(&mount).at("make the emulator's files read-only")?;
        mounts::attach(&mount, &target).at("mount the emulator's files")?;
    }
    mounts::set_read_only(&root).at("make the emulator's root read-only")?;
    rustix::process::fchdir(&root).at("enter the emulator's root")?;
    rustix::process::pivot_root(".", ".").at("change the root")?;
    // The old root is now mounted over the new one. Without it, none of the host's files are reachable here.
    unmount(".", UnmountFlags::DETACH).at("unmount the host's files")?;
    rustix::process::chdir("/").at("enter the new root")
}

fn arrange_descriptors(null: &OwnedFd, errors: &OwnedFd, given: Vec<OwnedFd>) -> Result<(), Failure> {
    let mut aside = Vec::new();
    for descriptor in &given {
        aside.push(
            rustix::io::fcntl_dupfd_cloexec(descriptor, ASIDE_DESCRIPTOR).at("duplicate a descriptor")?,
        );
    }
    // Descriptors below `ASIDE_DESCRIPTOR` are overwritten; this process uses none of them again.
    std::mem::forget(given);
    for (to, from) in [(0, null), (1, null), (2, errors)] {
        duplicate(from, to).at("arrange the standard streams")?;
    }
    for (number, from) in aside.iter().enumerate() {
        let to = FIRST_DESCRIPTOR + RawFd::try_from(number).unwrap_or(RawFd::MAX - FIRST_DESCRIPTOR);
        duplicate(from, to).at("pass a descriptor")?;
    }
    std::mem::forget(aside);
    Ok(())
}

fn duplicate(from: &OwnedFd, to: RawFd) -> io::Result<()> {
    // SAFETY: a previous descriptor with this number was forgotten, or has no owner: std's handles do not own the
    // standard streams.
    let result = unsafe { libc::dup2(from.as_raw_fd(), to) };
    if result == to { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Close-on-exec, so that a failure can still be reported.
fn close_others(given: usize) -> Result<(), Failure> {
    let first = libc::c_uint::try_from(given).unwrap_or(0) + FIRST_DESCRIPTOR.unsigned_abs();
    // SAFETY: only marks descriptors to be closed on exec; closes none that anything here owns.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }.at("close all other descriptors")
}

fn drop_privileges(uid: u32) -> Result<(), Failure> {
    confine::drop_bounding_set(CapabilitySet::empty())?;
    set_thread_groups(&[]).at("leave all groups")?;
    let (gid, uid) = (Gid::from_raw(uid), Uid::from_raw(uid));
    set_thread_res_gid(gid, gid, gid).at("set the emulator's group")?;
    set_thread_res_uid(uid, uid, uid).at("set the emulator's user")?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .at("drop capabilities")?;
    rustix::thread::set_no_new_privs(true).at("set no_new_privs")
}

fn execute(argv: &[String]) -> Result<Infallible, Failure> {
    let strings: Result<Vec<CString>, _> = argv.iter().map(|word| CString::new(word.as_str())).collect();
    let strings = strings.map_err(io::Error::other).at("read the plan")?;
    let program = strings.first().ok_or(io::ErrorKind::InvalidInput).at("read the plan")?;
    let arguments: Vec<_> = strings.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect();
    let environment = [std::ptr::null()];
    // SAFETY: both arrays end with a null pointer, and the strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Err(io::Error::last_os_error()).at("start the emulator")
}
