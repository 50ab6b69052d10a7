//! What the agent does once at its start: process settings, the boot message, the listener, the report.

#![expect(unsafe_code, reason = "the allocator's settings have no safe interface")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit};
use tokio::net::{TcpListener, TcpSocket};

use super::vm;
use crate::protocol::{Boot, BootReport, GENERATION};

/// Far more than any reasonable set of services needs.
const BOOT_BYTES_MAX: usize = 4 << 20;

/// Connections that the kernel queues while the agent is busy: as many as it serves.
const BACKLOG: u32 = 512;

/// Two pipes and a connection for each of the 1024 execs, plus some for files.
const OPEN_FILES_WANTED: u64 = 8192;

/// The step named in errors until the boot message has been parsed.
const READ: &str = "read the boot message";

/// Applies settings for the lifetime of the process. A failure does not fail the boot. Returns the former limit
/// of open files.
pub(super) fn tune_process() -> Rlimit {
    fill_standard_streams();
    // No process inside may trace the agent or read its memory, which contains the token.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // PID 1 adopts orphans anyway; elsewhere (in tests, in a nested namespace) this requests it.
    let _ = rustix::process::set_child_subreaper(Some(Pid::INIT));
    let _ = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES_WANTED, |maximum| maximum.min(OPEN_FILES_WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    }
    // One arena, and large blocks are returned to the kernel at once: after transferring a gigabyte the agent must be
    // small again.
    for (parameter, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, 128 * 1024), (libc::M_TRIM_THRESHOLD, 128 * 1024)]
    {
        // SAFETY: mallopt takes two integers; no other thread exists yet.
        unsafe { libc::mallopt(parameter, value) };
    }
    limit
}

/// Prevents descriptors 1 and 2 from being reused if the launcher closed them.
fn fill_standard_streams() {
    let flags = rustix::fs::OFlags::RDWR;
    while let Ok(null) = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()) {
        if null.as_raw_fd() > 2 {
            break;
        }
        std::mem::forget(null);
    }
}

/// The sender of the boot message, which receives the report.
pub(super) enum Host {
    /// Standard input is a socket to the sender.
    Socket,
    /// The driver of a microVM.
    Driver(vm::DriverConnection),
}

impl Host {
    /// Waits for the boot message. On failure, the host has already received a report.
    pub(super) async fn receive_boot(
        machine: Option<vm::Machine>,
    ) -> Result<(Boot, Option<vm::Group>, Self), ()> {
        let Some(machine) = machine else {
            return match read() {
                Ok(boot) => Ok((boot, None, Self::Socket)),
                Err(message) => {
                    Self::Socket.refuse(READ, &message).await;
                    Err(())
                }
            };
        };
        match machine.boot().await {
            Ok((boot, group, driver)) => match check(&boot) {
                Ok(()) => Ok((boot, Some(group), Self::Driver(driver))),
                Err(message) => {
                    Self::Driver(driver).refuse(READ, &message).await;
                    Err(())
                }
            },
            Err((failure, mut driver)) => {
                driver.report(failure.report()).await;
                Err(())
            }
        }
    }

    pub(super) async fn report(&mut self, report: &BootReport) -> io::Result<()> {
        match self {
            Self::Socket => finish(report),
            Self::Driver(driver) => {
                driver.report(report.clone()).await;
                Ok(())
            }
        }
    }

    pub(super) async fn refuse(&mut self, step: &str, message: &str) -> ExitCode {
        let report = BootReport::Failed { step: step.to_owned(), message: message.to_owned() };
        // If even this fails, the launcher reads end-of-file without a report, which it treats as a failure.
        let _ = self.report(&report).await;
        ExitCode::FAILURE
    }
}

/// Reports a failure before the async runtime exists.
pub(super) fn refuse_at_once(step: &str, message: &str) {
    let _ = finish(&BootReport::Failed { step: step.to_owned(), message: message.to_owned() });
}

/// Reads [`Boot`] from standard input up to end-of-file.
fn read() -> Result<Boot, String> {
    let mut json = Vec::with_capacity(4096);
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut chunk) {
            Ok(0) => break,
            Ok(count) => json.extend_from_slice(&chunk[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).to_string()),
        }
        if json.len() > BOOT_BYTES_MAX {
            return Err(format!("the boot message is larger than {BOOT_BYTES_MAX} bytes"));
        }
    }
    let boot: Boot = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    check(&boot)?;
    Ok(boot)
}

fn check(boot: &Boot) -> Result<(), String> {
    if boot.generation > GENERATION {
        return Err(format!(
            "the host uses protocol generation {}, this agent uses {GENERATION}",
            boot.generation
        ));
    }
    if boot.token.is_empty() {
        return Err("the token is empty".to_owned());
    }
    Ok(())
}

pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of an earlier agent may still be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Writes the report and replaces the socket with `/dev/null`.
fn finish(report: &BootReport) -> io::Result<()> {
    let json = serde_json::to_vec(report)?;
    let mut rest = json.as_slice();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdin(), rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(())
}
