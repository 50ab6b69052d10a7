//! Starts the `criu swrk` process of one operation, with the cgroups and mounts that it needs.
//!
//! ```text
//! clone3 (into the v2 cgroup) ─► v1 cgroups ─► own session ─► own mounts ─► own cgroup namespace ─► execve criu swrk 3
//! ```
//!
//! The processes that CRIU restores are its children and inherit its cgroups and cgroup namespace. So it is put into
//! the machine's cgroups before its first instruction. One process per operation: CRIU keeps state that it never
//! resets.
//!
//! The child only makes system calls on data prepared before the clone. It neither allocates nor locks, so this is safe
//! in a process with threads. Its cost grows with the caller's RAM, as with any fork, so it is called from the small
//! launcher process.

#![expect(unsafe_code, reason = "clone3 and what follows it in the child have no safe interface")]

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use burrow_network::linux::HostIds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::error::{CriuError, Operation};
use super::host_mount::HostMount;
use crate::launcher::MountAttributes;

/// Where CRIU, and so everything that it restores, runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CriuPlacement<'a> {
    /// The v2 cgroup directory; `None` on a host without one.
    pub unified: Option<BorrowedFd<'a>>,
    /// The `tasks` files of v1 cgroups.
    pub tasks: &'a [BorrowedFd<'a>],
    /// A directory on a tmpfs that is mounted over `/run`, where CRIU caches the kernel features that it has detected:
    /// the detection costs 30 ms each time. `None` if `/run` is a tmpfs itself.
    pub run: Option<&'a Path>,
}

/// The files of a machine that is to be restored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    pub(super) root: &'a Path,
    pub(super) outside: &'a [HostMount],
    /// The host ids of their owners; `None`: those that they have on disk.
    pub(super) ids: Option<&'a HostIds>,
}

/// The programs that CRIU runs to save and restore the contents of a tmpfs.
const HELPERS: [&str; 2] = ["tar", "gzip"];

/// CRIU finds [`HELPERS`] with this.
const PATH: &CStr = c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The first of [`HELPERS`] that is not installed.
pub(crate) fn missing_helper() -> Option<&'static str> {
    let path = PATH.to_str().unwrap_or_default().trim_start_matches("PATH=");
    let exists = |name: &str| path.split(':').any(|folder| Path::new(folder).join(name).is_file());
    HELPERS.into_iter().find(|name| !exists(name))
}

/// The descriptor on which CRIU listens.
const SOCKET: libc::c_int = 3;

/// The OOM killer never selects such a process.
const OOM_NEVER: &str = "-1000";

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The steps of the child before it becomes CRIU. If one fails, its exit status is the index of the step plus
/// [`FIRST_STATUS`].
const STEPS: [&str; 11] = [
    "join a cgroup",
    "start a session",
    "keep root's capabilities after a change of user",
    "create a mount namespace",
    "make mounts private",
    "mount CRIU's run directory",
    "bind the root directory",
    "cover `/tmp`",
    "bind a volume",
    "create a cgroup namespace",
    "execute CRIU",
];

/// Higher than any exit status of CRIU itself.
const FIRST_STATUS: i32 = 100;

/// A running CRIU.
pub(super) struct Process {
    pub(super) pid: u32,
    operation: Operation,
    pidfd: OwnedFd,
    /// Whether it sees host directories below a private `/tmp`.
    covers_tmp: bool,
}

/// All data that the child needs, prepared before it exists.
struct ChildPlan {
    program: CString,
    run: Option<CString>,
    /// Bound on itself: it must be a mount, so that CRIU can make it the root of the restored processes.
    root: Option<CString>,
    /// Whether it gets a private `/tmp`: CRIU creates a directory there, and leaves it behind when it is killed.
    covers_tmp: bool,
    /// Host directories, and their paths below the private `/tmp`: the user that CRIU becomes may have no access to
    /// their original paths.
    outside: Vec<(CString, CString)>,
    /// A user namespace that maps the owners of both.
    ids: Option<libc::c_int>,
    tasks: Vec<libc::c_int>,
    /// Both above the descriptors to which they are copied.
    socket: libc::c_int,
    null: libc::c_int,
}

impl Process {
    /// Starts CRIU, and returns our end of its socket. With `files`, it is started for a restore.
    pub(super) fn start(
        program: &Path,
        place: CriuPlacement<'_>,
        files: Option<Files<'_>>,
    ) -> Result<(Self, OwnedFd), CriuError> {
        let root = files.map(|files| files.root);
        let outside = files.map_or(&[][..], |files| files.outside);
        let operation = if root.is_some() { Operation::Restore } else { Operation::Dump };
        let at = |step| move |source: io::Error| CriuError::Start { operation, step, source };
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| at("create a socket pair")(error.into()))?;
        let above = |descriptor: OwnedFd| fcntl_dupfd_cloexec(descriptor, SOCKET + 1);
        let theirs = above(theirs).map_err(|error| at("duplicate a socket")(error.into()))?;
        let null =
            File::options().read(true).write(true).open("/dev/null").map_err(at("open `/dev/null`"))?;
        let null = above(null.into()).map_err(|error| at("keep `/dev/null`")(error.into()))?;
        let text = |path: &Path| {
            CString::new(path.as_os_str().as_bytes()).map_err(|error| at("read a path")(error.into()))
        };
        // Not if that would hide files that it needs.
        let covers_tmp = root.is_some_and(|root| !root.starts_with("/tmp") && !program.starts_with("/tmp"));
        let mut bound = Vec::new();
        for (index, directory) in outside.iter().enumerate().filter(|_| covers_tmp) {
            bound.push((text(&directory.source)?, text(Path::new(&below_tmp(index)))?));
        }
        let child_plan = ChildPlan {
            program: text(program)?,
            run: place.run.map(text).transpose()?,
            root: root.map(text).transpose()?,
            covers_tmp,
            outside: bound,
            ids: files.and_then(|files| files.ids).map(|ids| ids.mounts.as_raw_fd()),
            tasks: place.tasks.iter().map(|file| file.as_raw_fd()).collect(),
            socket: theirs.as_raw_fd(),
            null: null.as_raw_fd(),
        };
        let (pid, pidfd) = clone_into(place.unified, &child_plan).map_err(at("clone"))?;
        if operation == Operation::Dump {
            // If it dies while it infects a process, that process ends too, so the kernel should kill other processes
            // when out of memory. If the daemon may not set this, the dump continues without it. Not for a restore: the
            // restored processes would inherit it.
            let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_NEVER);
        }
        Ok((Self { pid, operation, pidfd, covers_tmp }, ours))
    }

    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether it ends by itself within `patience`.
    pub(super) fn ends_within(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let mut ready = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // If a signal interrupts the wait, it is killed, and its status shows whether it was dead.
        matches!(poll(&mut ready, Some(&patience)), Ok(1..))
    }

    /// Its paths of host directories, in CRIU's syntax for external mounts.
    pub(super) fn external(&self, outside: &[HostMount]) -> Vec<String> {
        let place = |(index, directory): (usize, &HostMount)| match self.covers_tmp {
            true => format!("mnt[{}]:{}", directory.key, below_tmp(index)),
            false => format!("mnt[{}]:{}", directory.key, directory.source.display()),
        };
        outside.iter().enumerate().map(place).collect()
    }

    /// Waits for its end, and returns the failed step if it did not start. Nothing else may reap it.
    pub(super) fn end(self) -> Result<ExitStatus, CriuError> {
        let operation = self.operation;
        // SAFETY: an all-zero structure is valid, and the kernel fills it in.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: waits for our child, identified by a descriptor that we own; `info` outlives the call.
            let waited = unsafe {
                libc::waitid(
                    libc::P_PIDFD,
                    self.pidfd.as_raw_fd().cast_unsigned(),
                    &raw mut info,
                    libc::WEXITED | libc::__WALL,
                )
            };
            let error = io::Error::last_os_error();
            match waited {
                0 => break,
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                // Killed while we traced it to change its user (see [`super::namespace_owner`]): the kernel reports that end to
                // the tracer.
                _ if error.raw_os_error() == Some(libc::ECHILD) => {
                    return Ok(ExitStatus::Signal(libc::SIGKILL));
                }
                _ => return Err(CriuError::Start { operation, step: "wait for CRIU", source: error }),
            }
        }
        // SAFETY: `waitid` succeeded, so these fields are those of a child's end.
        let (code, status) = (info.si_code, unsafe { info.si_status() });
        let step = usize::try_from(status - FIRST_STATUS).ok().and_then(|step| STEPS.get(step));
        match step {
            Some(step) if code == libc::CLD_EXITED => {
                let source = io::Error::other("the process ended before it executed CRIU");
                Err(CriuError::Start { operation, step, source })
            }
            _ if code == libc::CLD_EXITED => Ok(ExitStatus::Code(status)),
            _ => Ok(ExitStatus::Signal(status)),
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish_non_exhaustive()
    }
}

fn below_tmp(index: usize) -> String {
    format!("/tmp/outside-{index}")
}

/// How CRIU ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitStatus {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "CRIU exited with status {code}"),
            Self::Signal(signal) => write!(f, "CRIU was killed by signal {signal}"),
        }
    }
}

fn clone_into(unified: Option<BorrowedFd<'_>>, child_plan: &ChildPlan) -> io::Result<(u32, OwnedFd)> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: a structure of integers, for which zero means "not wanted".
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = libc::CLONE_PIDFD as u64 | unified.map_or(0, |_| CLONE_INTO_CGROUP);
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.cgroup = unified.map_or(0, |directory| directory.as_fd().as_raw_fd() as u64);
    // SAFETY: without CLONE_VM this is a fork; the child only runs `become_criu`, which makes system calls on memory of
    // which it has a copy. `pidfd` outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => become_criu(child_plan),
        // SAFETY: the call succeeded, so the kernel has put a new descriptor there, which has no other owner.
        Ok(pid) => Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
    }
}

/// The code of the child. Exits with the number of the step that failed.
fn become_criu(child_plan: &ChildPlan) -> ! {
    let mut step = 0;
    let mut check = |result: libc::c_long| {
        if result < 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(FIRST_STATUS + step) };
        }
        step += 1;
    };
    let none = ptr::null::<libc::c_char>();
    let bind = |from: &CStr, to: &CStr| {
        // SAFETY: the strings live in the plan of the child; no data is passed.
        unsafe { libc::syscall(libc::SYS_mount, from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none) }
    };
    let bind_files = |from: &CStr, to: &CStr| match child_plan.ids {
        Some(ids) => bind_mapped(from, to, ids),
        None => bind(from, to),
    };
    // SAFETY: system calls on numbers and on strings of the plan, which outlives this function. `execve` only returns
    // if it failed, and `check` ends the process then.
    unsafe {
        let join = |&file: &libc::c_int| libc::syscall(libc::SYS_write, file, c"0".as_ptr(), 1);
        check(child_plan.tasks.iter().map(join).min().unwrap_or(0));
        // A Ctrl-C in the terminal in which the daemon was started must not end a dump: that can kill the machine.
        check(libc::syscall(libc::SYS_setsid));
        check(libc::syscall(libc::SYS_prctl, libc::PR_SET_SECUREBITS, libc::SECBIT_NO_SETUID_FIXUP, 0, 0, 0));
        check(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNS));
        let private = libc::MS_PRIVATE | libc::MS_REC;
        check(libc::syscall(libc::SYS_mount, none, c"/".as_ptr(), none, private, none));
        check(child_plan.run.as_deref().map_or(0, |run| bind(run, c"/run")));
        check(child_plan.root.as_deref().map_or(0, |root| bind_files(root, root)));
        let cover = |place: &CStr| {
            let (kind, options) = (c"tmpfs".as_ptr(), c"mode=1777,size=1m".as_ptr());
            libc::syscall(libc::SYS_mount, kind, place.as_ptr(), kind, 0, options)
        };
        check(if child_plan.covers_tmp { cover(c"/tmp") } else { 0 });
        let find = |(source, place): &(CString, CString)| {
            let made = libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, place.as_ptr(), 0o755);
            made.min(bind_files(source, place))
        };
        check(child_plan.outside.iter().map(find).min().unwrap_or(0));
        let unshare = || libc::syscall(libc::SYS_unshare, libc::CLONE_NEWCGROUP);
        check(child_plan.root.as_ref().map_or(0, |_| unshare()));
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        for standard in 0..SOCKET {
            libc::syscall(libc::SYS_dup3, child_plan.null, standard, 0);
        }
        libc::syscall(libc::SYS_dup3, child_plan.socket, SOCKET, 0);
        let arguments = [child_plan.program.as_ptr(), c"swrk".as_ptr(), c"3".as_ptr(), none];
        let environment = [PATH.as_ptr(), none];
        check(libc::syscall(
            libc::SYS_execve,
            child_plan.program.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
        ));
    }
    unreachable!("`execve` does not return on success, and `check` ends the process on failure")
}

/// Binds a directory with other owners, with system calls alone. Its descriptors close when CRIU is executed.
fn bind_mapped(from: &CStr, to: &CStr, ids: libc::c_int) -> libc::c_long {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // SAFETY: the string lives in the plan of the child.
    let mount = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, from.as_ptr(), clone.bits()) };
    let Ok(mount) = libc::c_int::try_from(mount) else { return -1 };
    if mount < 0 || MountAttributes::mapping(ids).apply_raw(mount) < 0 {
        return -1;
    }
    let detached = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH.bits();
    // SAFETY: the string lives in the plan of the child, and the empty one is static.
    unsafe { libc::syscall(libc::SYS_move_mount, mount, c"".as_ptr(), libc::AT_FDCWD, to.as_ptr(), detached) }
}
