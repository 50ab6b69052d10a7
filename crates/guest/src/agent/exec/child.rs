//! `fork` and what happens in the child up to `execve`.
//!
//! Not done with `std::process::Command`, because the host must learn *which* step failed, only the reaper may wait
//! for children, and the parent must not block: a hostile process inside may stop the child between `fork` and
//! `execve`.
//!
//! The child runs in a copy of a process with other threads: it allocates nothing, takes no lock, and makes only raw
//! system calls on memory prepared before the fork.

#![expect(unsafe_code, reason = "fork and execve, and the raw system calls between them")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// More likely to be killed than the agent (0) when the sandbox is out of memory.
const OOM_SCORE: &[u8] = b"500";

/// Everything the child needs, allocated before the fork.
pub(super) struct Plan {
    /// Candidate paths of the program, in the order of PATH.
    pub(super) candidates: Vec<CString>,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) cwd: OwnedFd,
    pub(super) terminal: bool,
    /// Soft limit of open files to restore, since the agent has raised its own.
    pub(super) open_files: libc::rlimit,
    /// A process that writes `0` to it joins the control group of execs. Stays open across the fork.
    pub(super) join: Option<RawFd>,
}

/// What descriptors 0 to 2 become.
pub(super) struct Stdio<'a> {
    pub(super) stdin: BorrowedFd<'a>,
    pub(super) stdout: BorrowedFd<'a>,
    pub(super) stderr: BorrowedFd<'a>,
}

/// The step at which the child failed, as sent over the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Prepare,
    Terminal,
    User,
    Directory,
    Execute,
}

/// A child that has not called `execve` yet.
#[derive(Debug)]
pub(super) struct ForkedChild {
    pub(super) pid: i32,
    /// End-of-file: the program runs. Eight bytes: the step that failed, and errno.
    pub(super) verdict: OwnedFd,
}

impl Step {
    fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Terminal,
            2 => Self::User,
            3 => Self::Directory,
            4 => Self::Execute,
            _ => Self::Prepare,
        }
    }
}

/// Reads the verdict's bytes.
pub(super) fn parse_verdict(bytes: [u8; 8]) -> (Step, Errno) {
    let [a, b, c, d, e, f, g, h] = bytes;
    let errno = i32::from_ne_bytes([e, f, g, h]);
    (Step::from_number(i32::from_ne_bytes([a, b, c, d])), Errno::from_raw_os_error(errno))
}

/// Forks. The caller must register the pid before it lets any other task run.
pub(super) fn fork(plan: &Plan, stdio: &Stdio<'_>) -> Result<ForkedChild, Errno> {
    let (verdict, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let argv = pointers(&plan.argv);
    let env = pointers(&plan.env);
    // The agent's handlers must not run in the child before they are reset there.
    let every = every_signal();
    // SAFETY: both sets are initialised; only this thread's mask changes, and it is restored below.
    let before = unsafe {
        let mut before = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
        before
    };
    // SAFETY: the child only calls `become_program`, which does only what is allowed after fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: this is the child; the pointers are into vectors that live in `plan`, `argv` and `env`.
        unsafe { become_program(plan, stdio, &argv, &env, report.as_raw_fd()) };
    }
    let failure = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN);
    // SAFETY: `before` was filled in by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    if pid < 0 { Err(failure) } else { Ok(ForkedChild { pid, verdict }) }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn every_signal() -> libc::sigset_t {
    // SAFETY: sigfillset initialises the set it is given.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    }
}

/// Reports the failure to the parent and ends the child.
///
/// # Safety
/// Only in a forked child.
unsafe fn give_up(report: RawFd, step: Step) -> ! {
    // SAFETY: errno is this thread's own; write and _exit are allowed after fork.
    unsafe {
        let message = [step as i32, *libc::__errno_location()];
        libc::write(report, (&raw const message).cast(), size_of_val(&message));
        libc::_exit(127)
    }
}

/// # Safety
/// Only in a forked child; `argv` and `env` must end in null and point to live strings.
unsafe fn become_program(
    plan: &Plan,
    stdio: &Stdio<'_>,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
    report: RawFd,
) -> ! {
    // SAFETY: raw system calls on memory of the caller, nothing that allocates or locks.
    unsafe {
        if libc::setsid() < 0 {
            give_up(report, Step::Prepare);
        }
        reset_signals();
        raise_oom_score();
        if plan.join.is_some_and(|tasks| libc::write(tasks, c"0".as_ptr().cast(), 1) < 0) {
            give_up(report, Step::Prepare);
        }
        // None of the three is 0, 1 or 2 itself: the agent's own are used by /dev/null or its launcher.
        for (from, to) in [(&stdio.stdin, 0), (&stdio.stdout, 1), (&stdio.stderr, 2)] {
            if libc::dup2(from.as_raw_fd(), to) < 0 {
                give_up(report, Step::Prepare);
            }
        }
        if plan.terminal && libc::ioctl(1, libc::TIOCSCTTY, 0) < 0 {
            give_up(report, Step::Terminal);
        }
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const plan.open_files);
        become_user(plan, report);
        if libc::fchdir(plan.cwd.as_raw_fd()) < 0 {
            give_up(report, Step::Directory);
        }
        // No other descriptor of the agent may reach the program, whether or not it was opened with CLOEXEC.
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            give_up(report, Step::Prepare);
        }
        execute(plan, argv, env);
        give_up(report, Step::Execute)
    }
}

/// # Safety
/// Only in a forked child.
unsafe fn reset_signals() {
    // The raw call, since glibc's refuses the two signals it reserves, and a parent may have ignored them.
    const SIGNAL_SET_BYTES: usize = 8;
    let default = [0u64; 4];
    // SAFETY: all-zero is the kernel's default action and fits the size given; signals that cannot be changed return
    // an error.
    unsafe {
        for signal in 1..=64 {
            let none: *mut u64 = ptr::null_mut();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SIGNAL_SET_BYTES);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// # Safety
/// Only in a forked child.
unsafe fn raise_oom_score() {
    // SAFETY: the path is a literal and the bytes are a constant. A failure does not prevent the program from
    // running.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
            libc::close(file);
        }
    }
}

/// # Safety
/// Only in a forked child.
unsafe fn become_user(plan: &Plan, report: RawFd) {
    // The raw calls, since glibc's wrappers would signal threads that the child does not have. SAFETY: `plan` owns
    // the list of groups.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, plan.groups.len(), plan.groups.as_ptr()) < 0
            || libc::syscall(libc::SYS_setresgid, plan.gid, plan.gid, plan.gid) < 0
            || libc::syscall(libc::SYS_setresuid, plan.uid, plan.uid, plan.uid) < 0
        {
            give_up(report, Step::User);
        }
    }
}

/// Tries each candidate as `execvp` does; returns, with errno set, when none could be executed.
///
/// # Safety
/// Only in a forked child.
unsafe fn execute(plan: &Plan, argv: &[*const libc::c_char], env: &[*const libc::c_char]) {
    let mut remembered = libc::ENOENT;
    for candidate in &plan.candidates {
        // SAFETY: all three are null-terminated and live.
        let errno = unsafe {
            libc::execve(candidate.as_ptr(), argv.as_ptr(), env.as_ptr());
            *libc::__errno_location()
        };
        match errno {
            libc::ENOENT | libc::ENOTDIR => {}
            // A file without permission is reported only if no later directory has one that can be executed.
            libc::EACCES => remembered = libc::EACCES,
            _ => {
                remembered = errno;
                break;
            }
        }
    }
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = remembered };
}
