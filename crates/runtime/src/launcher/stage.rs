//! The forks between the launcher and a machine's PID 1.
//!
//! Stage A joins everything that must be joined before the machine's first process exists: the v1 cgroups, the user
//! namespace, the network namespace. Before that it creates mounts of the machine's files: only the host's root may map
//! the owners of a mount. Then it creates PID 1 as its own sibling, reports it to the launcher, and ends.

#![expect(unsafe_code, reason = "fork and clone3 have no safe interface")]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::message::{AdjustPlan, AtStep as _, EmulatorPlan, Failure, LauncherReply, Plan, receive, send};
use super::{confine, emulator, machine, mounts};
use crate::container::criu::{self, AppliedChanges};
use crate::container::seccomp::Instruction;

/// Beyond the 32 bits of libc's constant.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The descriptors of a launch, by purpose.
#[derive(Debug)]
pub(super) struct Descriptors {
    user: OwnedFd,
    net: OwnedFd,
    pub(super) boot: OwnedFd,
    ids: Option<OwnedFd>,
    unified: Option<OwnedFd>,
    tasks: Vec<OwnedFd>,
}

impl Descriptors {
    pub(super) fn sort(plan: &Plan, descriptors: Vec<OwnedFd>) -> Result<Self, Failure> {
        let mut next = descriptors.into_iter();
        let mut take = || next.next().ok_or(io::Error::from_raw_os_error(libc::EBADMSG)).at("read the plan");
        let (user, net, boot) = (take()?, take()?, take()?);
        let ids = plan.own_ids.then(&mut take).transpose()?;
        let unified = plan.unified.then(&mut take).transpose()?;
        Ok(Self { user, net, boot, ids, unified, tasks: next.collect() })
    }
}

/// Prepares this process: its own session, no zombies.
pub(super) fn become_launcher() {
    // A Ctrl-C for the daemon must not end its launcher while the daemon shuts down. Fails only for the leader of a
    // process group, which has no terminal to protect against.
    let _ = rustix::process::setsid();
    // SAFETY: ignoring a signal installs no handler. The kernel reaps children of a process that ignores SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let _ = rustix::thread::set_name(c"burrow-launcher");
}

/// Forks stage A, which replies over `answer` and always ends.
pub(super) fn fork_first(
    plan: &Plan,
    descriptors: Descriptors,
    filter: &[Instruction],
    answer: OwnedFd,
) -> io::Result<()> {
    in_child(|| {
        match first_stage(plan, descriptors, filter, &answer) {
            // The launcher owns the pidfd now. If sending fails, the launcher sees that there was no reply.
            Ok((pid, pidfd)) => drop(send(&answer, &LauncherReply::Launched { pid }, &[pidfd.as_fd()])),
            Err(failure) => drop(send(&answer, &LauncherReply::Failed(failure), &[])),
        }
    })
}

/// Forks the stage that creates an emulator's process, replies over `answer` and always ends.
pub(super) fn fork_emulator(
    plan: &EmulatorPlan,
    descriptors: Vec<OwnedFd>,
    answer: OwnedFd,
) -> io::Result<()> {
    in_child(|| match emulator_stage(plan, descriptors, &answer) {
        Ok((pid, pidfd)) => drop(send(&answer, &LauncherReply::Launched { pid }, &[pidfd.as_fd()])),
        Err(failure) => drop(send(&answer, &LauncherReply::Failed(failure), &[])),
    })
}

/// Forks the process that changes a machine's processes, and replies over the first of the descriptors.
pub(super) fn fork_adjuster(plan: &AdjustPlan, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    let mut next = descriptors.into_iter();
    let (Some(answer), Some(aside)) = (next.next(), next.next()) else {
        return Err(io::Error::from_raw_os_error(libc::EBADMSG));
    };
    in_child(|| {
        // A process that ignores SIGCHLD is not notified of the stops of its tracees.
        reset_signals();
        let outcome = adjust(plan, &answer, &aside).map_err(|error| error.to_string());
        drop(send(&answer, &outcome, &[]));
    })
}

/// Joins `aside` before it checks whether the daemon still exists. So the next daemon, which waits until that cgroup is
/// empty, either waits for this process or knows that it does nothing.
fn adjust(plan: &AdjustPlan, answer: &OwnedFd, aside: &OwnedFd) -> io::Result<AppliedChanges> {
    let procs = openat(aside, c"cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // `0` stands for the writing process.
    File::from(procs).write_all(b"0")?;
    let mut daemon = [PollFd::new(answer, PollFlags::empty())];
    if poll(&mut daemon, Some(&Timespec::default()))? != 0 {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the daemon has ended"));
    }
    criu::adjust(&plan.group, plan.adjustment.clone())
}

/// Returns in the stage only; the emulator's process never returns.
fn emulator_stage(
    plan: &EmulatorPlan,
    descriptors: Vec<OwnedFd>,
    answer: &OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let mut next = descriptors.into_iter();
    let mut take = || next.next().ok_or(io::Error::from_raw_os_error(libc::EBADMSG)).at("read the plan");
    let unified = plan.unified.then(&mut take).transpose()?;
    for _ in 0..plan.tasks {
        // `0` stands for the writing process.
        File::from(take()?).write_all(b"0").at("join a cgroup")?;
    }
    let told = take()?;
    let given: Vec<OwnedFd> = next.collect();
    reset_oom_score().at("reset the OOM score adjustment")?;
    match clone_machine(unified.as_ref(), libc::CLONE_NEWNET | libc::CLONE_NEWIPC)
        .at("start the emulator's process")?
    {
        Some(launched) => Ok(launched),
        None => {
            // SAFETY: nothing in this process uses the descriptor again; the stage has its own.
            unsafe { libc::close(answer.as_raw_fd()) };
            emulator::become_emulator(plan, told, given)
        }
    }
}

/// Returns in stage A only; PID 1 never returns.
fn first_stage(
    plan: &Plan,
    descriptors: Descriptors,
    filter: &[Instruction],
    answer: &OwnedFd,
) -> Result<(u32, OwnedFd), Failure> {
    let Descriptors { user, net, boot, ids, unified, tasks } = descriptors;
    for file in tasks {
        // `0` stands for the writing process.
        File::from(file).write_all(b"0").at("join a cgroup")?;
    }
    reset_oom_score().at("reset the OOM score adjustment")?;
    let files = mounts::Files::bind(plan, ids.as_ref().map(AsFd::as_fd))?;
    move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User)).at("join the user namespace")?;
    move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))
        .at("join the network namespace")?;
    match clone_machine(unified.as_ref(), 0).at("start the first process")? {
        Some(launched) => Ok(launched),
        None => {
            // If the machine kept it open, the launcher would not see stage A's end.
            // SAFETY: nothing in this process uses the descriptor again; stage A has its own.
            unsafe { libc::close(answer.as_raw_fd()) };
            machine::become_machine(plan, &files, boot, filter)
        }
    }
}

/// A daemon that is protected from the OOM killer passes that on to its children. When the host is out of memory, a
/// sandbox must not be the last to be killed.
fn reset_oom_score() -> io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let protected = fs::read_to_string(FILE)?.trim().parse::<i32>().is_ok_and(|score| score < 0);
    if protected { fs::write(FILE, "0") } else { Ok(()) }
}

/// Creates PID 1 with the additional namespaces `more`, in the v2 cgroup from the start. Returns `None` in the new
/// process.
///
/// The mount, pid and uts namespaces created here belong to the user namespace that was joined. The cgroup namespace is
/// created later, when the process is in the cgroup that becomes its root; so is the ipc namespace, which must not be
/// created by the host's uid.
fn clone_machine(unified: Option<&OwnedFd>, more: libc::c_int) -> io::Result<Option<(u32, OwnedFd)>> {
    let mut pidfd: libc::c_int = -1;
    let mut flags = (libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWUTS | more) as u64;
    flags |= (libc::CLONE_PARENT | libc::CLONE_PIDFD) as u64;
    if unified.is_some() {
        flags |= CLONE_INTO_CGROUP;
    }
    // SAFETY: a structure of integers, for which zero means "not wanted".
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = flags;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.cgroup = unified.map_or(0, |directory| directory.as_raw_fd() as u64);
    // SAFETY: without CLONE_VM this is a fork: the child continues with a copy of this stack. The process has one
    // thread, so no other thread holds a lock. `pidfd` outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match u32::try_from(pid) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(0) => Ok(None),
        // SAFETY: the call succeeded, so the kernel has put a new descriptor there, which has no other owner.
        Ok(pid) => Ok(Some((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

/// Tries every kernel feature that a machine needs, in a child, and reports the first step that failed.
pub(super) fn probe(filter: &[Instruction]) -> LauncherReply {
    let tried = || -> Result<LauncherReply, Failure> {
        let (ours, theirs) = super::socketpair(
            super::AddressFamily::UNIX,
            super::SocketType::SEQPACKET,
            super::SocketFlags::CLOEXEC,
            None,
        )
        .at("create a socket pair")?;
        in_child(move || {
            let answer = match try_namespaces(filter) {
                Ok(()) => LauncherReply::Able,
                Err(failure) => LauncherReply::Failed(failure),
            };
            drop(send(&theirs, &answer, &[]));
        })
        .at("fork")?;
        match receive::<LauncherReply>(&ours).at("receive from the probe")? {
            Some((answer, _)) => Ok(answer),
            None => Err(Failure { step: "run the probe".to_owned(), errno: libc::ECHILD }),
        }
    };
    tried().unwrap_or_else(LauncherReply::Failed)
}

fn try_namespaces(filter: &[Instruction]) -> Result<(), Failure> {
    let kinds = [
        (UnshareFlags::NEWUSER, "create a user namespace"),
        (UnshareFlags::NEWNS, "create a mount namespace"),
        (UnshareFlags::NEWNET, "create a network namespace"),
        (UnshareFlags::NEWIPC, "create an ipc namespace"),
        (UnshareFlags::NEWUTS, "create a uts namespace"),
        (UnshareFlags::NEWCGROUP, "create a cgroup namespace"),
        (UnshareFlags::NEWPID, "create a pid namespace"),
    ];
    for (kind, step) in kinds {
        // SAFETY: no file table is unshared, and the process has one thread.
        unsafe { unshare_unsafe(kind) }.at(step)?;
    }
    confine::load_filter(filter)
}

/// Runs `work` in a forked child, which then ends, also when `work` panics: a child that returned would be a second
/// launcher.
fn in_child(work: impl FnOnce()) -> io::Result<()> {
    // SAFETY: this process has one thread (`launcher_main` is called before any other starts), so the child may do
    // anything that the parent could do.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
            exit_now(status)
        }
        _ => Ok(()),
    }
}

/// Ends the process without running the launcher's exit handlers.
pub(super) fn exit_now(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Resets every signal to its default action and unblocks it: signals that the launcher, or the parent of the daemon,
/// ignores must not be ignored in the machine.
pub(super) fn reset_signals() {
    /// `struct sigaction` of the kernel, whose zeros mean the default action; it reads two to four words.
    static DEFAULT: [u64; 4] = [0; 4];
    /// One bit for each of the 64 signals, and an empty set of them.
    static NONE: u64 = 0;
    let set_bytes = size_of::<u64>();
    for signal in 1..=u64::BITS {
        // SAFETY: the default action is no handler, and the structure is as large as the kernel's. A direct system
        // call, since the C library rejects the two signals that it reserves for itself. The two signals that cannot be
        // changed return an error.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const DEFAULT,
                std::ptr::null_mut::<u64>(),
                set_bytes,
            )
        };
    }
    // SAFETY: the set has the given size, and the old one is not requested.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const NONE,
            std::ptr::null_mut::<u64>(),
            set_bytes,
        )
    };
}
