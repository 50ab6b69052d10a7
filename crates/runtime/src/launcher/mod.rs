//! The helper process that starts machines.
//!
//! ```text
//!   daemon ──plan, descriptors──► launcher ──fork──► stage A ──clone3──► PID 1 of the machine ──execve──► agent
//!          ◄────pid, pidfd──────            ◄─pid──  (exits)             (a child of the launcher)
//!                                                     or an emulator
//! ```
//!
//! A separate process, because the cost of a fork grows with the caller's RAM, and a fork in a process with threads may
//! not allocate: this process is small and has one thread. It lives as long as the daemon's end of its socket. Machines
//! outlive it, and the next launcher does not know them. It keeps no state between requests.
//!
//! It also forks the process that changes a machine's processes before and after a dump (see `container::criu`). That
//! process is not interrupted by the end of the daemon, and replies to the daemon itself.
//!
//! What is absent: decisions, retries, clean-up. The remains of a failed start are in the sandbox's cgroup, which the
//! daemon destroys.

mod client;
mod confine;
mod emulator;
mod machine;
mod message;
mod mounts;
mod stage;

use std::io;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub(crate) use client::{LaunchError, LaunchedProcess, Launcher};
pub(crate) use confine::raise_core_limit;
pub(crate) use emulator::FIRST_DESCRIPTOR;
use message::{AtStep as _, LauncherReply, Request, receive, send};
pub(crate) use message::{EmulatorPlan, Failure, MountPlan, Plan};
pub(crate) use mounts::{MountAttributes, attach, bind_mapped, open_beneath, set_access};

use crate::container::seccomp::{self, Reflinks};

/// The launcher role: call it first in `main`, before any thread starts. The daemon's socket is standard input.
pub fn launcher_main() -> ! {
    let status = match serve() {
        Ok(()) => 0,
        Err(error) => {
            // The daemon is gone or sent an invalid message, so stderr is the only place to report it.
            eprintln!("burrow launcher: {error}");
            1
        }
    };
    std::process::exit(status)
}

/// Answers requests until the daemon closes the connection.
fn serve() -> io::Result<()> {
    stage::become_launcher();
    let plain = seccomp::program(Reflinks::Allowed);
    let with_volumes = seccomp::program(Reflinks::Refused);
    let daemon = io::stdin();
    while let Some((request, descriptors)) = receive::<Request>(daemon.as_fd())? {
        let (answer, pidfd) = match request {
            Request::Probe => (stage::probe(&plain), None),
            Request::Launch(plan) => {
                let filter = if plan.mounts.is_empty() { &plain } else { &with_volumes };
                match launch(&plan, descriptors, filter) {
                    Ok((pid, pidfd)) => (LauncherReply::Launched { pid }, Some(pidfd)),
                    Err(failure) => (LauncherReply::Failed(failure), None),
                }
            }
            Request::Emulate(plan) => match emulate(&plan, descriptors) {
                Ok((pid, pidfd)) => (LauncherReply::Launched { pid }, Some(pidfd)),
                Err(failure) => (LauncherReply::Failed(failure), None),
            },
            Request::Adjust(plan) => match stage::fork_adjuster(&plan, descriptors).at("fork") {
                Ok(()) => (LauncherReply::Able, None),
                Err(failure) => (LauncherReply::Failed(failure), None),
            },
        };
        let attached: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
        send(daemon.as_fd(), &answer, &attached)?;
    }
    Ok(())
}

/// Starts one machine; its PID 1 continues by itself and reports over the boot socket.
fn launch(
    plan: &Plan,
    descriptors: Vec<std::os::fd::OwnedFd>,
    filter: &[seccomp::Instruction],
) -> Result<(u32, std::os::fd::OwnedFd), Failure> {
    let descriptors = stage::Descriptors::sort(plan, descriptors)?;
    first_stage(|answer| stage::fork_first(plan, descriptors, filter, answer))
}

/// Starts one emulator, which continues by itself.
fn emulate(
    plan: &EmulatorPlan,
    descriptors: Vec<std::os::fd::OwnedFd>,
) -> Result<(u32, std::os::fd::OwnedFd), Failure> {
    first_stage(|answer| stage::fork_emulator(plan, descriptors, answer))
}

/// Forks a first stage, and receives its reply.
fn first_stage(
    fork: impl FnOnce(std::os::fd::OwnedFd) -> io::Result<()>,
) -> Result<(u32, std::os::fd::OwnedFd), Failure> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .at("create a socket pair")?;
    fork(theirs).at("fork")?;
    // A first stage that was killed without a reply, for example by the OOM killer, leaves end-of-file.
    match receive::<LauncherReply>(&ours).at("receive from the first stage")? {
        Some((LauncherReply::Launched { pid }, mut attached)) if attached.len() == 1 => {
            Ok((pid, attached.remove(0)))
        }
        Some((LauncherReply::Failed(failure), _)) => Err(failure),
        Some((LauncherReply::Able | LauncherReply::Launched { .. }, _)) | None => {
            Err(Failure { step: "start the first process".to_owned(), errno: libc::ECHILD })
        }
    }
}
