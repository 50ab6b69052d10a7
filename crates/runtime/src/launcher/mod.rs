//! The helper process that starts machines.
//!
//! ```text
//!   daemon ──plan, descriptors──► launcher ──fork──► stage A ──clone3──► PID 1 of the machine ──execve──► agent
//!          ◄────pid, pidfd──────            ◄─pid──  (exits)             (a child of the launcher)
//!                                                     or of an emulator of one
//! ```
//!
//! A process of its own, since the cost of a fork follows the caller's RAM and a fork in a process with threads may
//! not allocate: this one is small and has one thread. It lives as long as the daemon's end of its socket; machines
//! outlive it, and the next one does not know them. It holds no state between requests.
//!
//! It also forks the process that changes a machine's processes around a dump (see `container::criu`): one that the end of
//! the daemon does not interrupt, and that answers the daemon by itself.
//!
//! What is absent: decisions, retries, clean-up. Whatever half-made thing a failure leaves is in the sandbox's cgroup,
//! and the daemon destroys that.

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

pub(crate) use client::{LaunchError, Launched, Launcher};
pub(crate) use confine::raise_core_limit;
pub(crate) use emulator::FIRST_DESCRIPTOR;
use message::{Answer, At as _, Request, receive, send};
pub(crate) use message::{EmulatorPlan, Failure, MountPlan, Plan};
pub(crate) use mounts::{MountAttributes, attach, bind_mapped, open_beneath, set_access};

use crate::container::seccomp::{self, Reflinks};

/// The launcher role: call it first thing in `main`, before any thread starts. The daemon's socket is standard input.
pub fn launcher_main() -> ! {
    let status = match serve() {
        Ok(()) => 0,
        Err(error) => {
            // The daemon is gone or talks nonsense; there is nobody else to tell.
            eprintln!("burrow launcher: {error}");
            1
        }
    };
    std::process::exit(status)
}

/// Answers requests until the daemon hangs up.
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
                    Ok((pid, pidfd)) => (Answer::Launched { pid }, Some(pidfd)),
                    Err(failure) => (Answer::Failed(failure), None),
                }
            }
            Request::Emulate(plan) => match emulate(&plan, descriptors) {
                Ok((pid, pidfd)) => (Answer::Launched { pid }, Some(pidfd)),
                Err(failure) => (Answer::Failed(failure), None),
            },
            Request::Adjust(plan) => match stage::fork_adjuster(&plan, descriptors).at("fork") {
                Ok(()) => (Answer::Able, None),
                Err(failure) => (Answer::Failed(failure), None),
            },
        };
        let attached: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
        send(daemon.as_fd(), &answer, &attached)?;
    }
    Ok(())
}

/// Starts one machine; its PID 1 goes on by itself and reports over the boot socket.
fn launch(
    plan: &Plan,
    descriptors: Vec<std::os::fd::OwnedFd>,
    filter: &[seccomp::Instruction],
) -> Result<(u32, std::os::fd::OwnedFd), Failure> {
    let descriptors = stage::Descriptors::sort(plan, descriptors)?;
    first_stage(|answer| stage::fork_first(plan, descriptors, filter, answer))
}

/// Starts one emulator, which goes on by itself.
fn emulate(
    plan: &EmulatorPlan,
    descriptors: Vec<std::os::fd::OwnedFd>,
) -> Result<(u32, std::os::fd::OwnedFd), Failure> {
    first_stage(|answer| stage::fork_emulator(plan, descriptors, answer))
}

/// Has a first stage forked, and hears from it.
fn first_stage(
    fork: impl FnOnce(std::os::fd::OwnedFd) -> io::Result<()>,
) -> Result<(u32, std::os::fd::OwnedFd), Failure> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .at("make a socket pair")?;
    fork(theirs).at("fork")?;
    // A first stage that died without a word, killed for want of RAM say, leaves end-of-file.
    match receive::<Answer>(&ours).at("hear from the first stage")? {
        Some((Answer::Launched { pid }, mut attached)) if attached.len() == 1 => {
            Ok((pid, attached.remove(0)))
        }
        Some((Answer::Failed(failure), _)) => Err(failure),
        Some((Answer::Able | Answer::Launched { .. }, _)) | None => {
            Err(Failure { step: "start the first process".to_owned(), errno: libc::ECHILD })
        }
    }
}
