//! The first and only things done once: process settings, the boot message, the listener, the report.

#![expect(unsafe_code, reason = "the allocator's settings have no safe interface")]

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Rlimit};
use tokio::net::{TcpListener, TcpSocket};

use super::{clock, vm};
use crate::protocol::{Boot, BootReport, GENERATION};

/// Far above any set of services a person would write.
const BOOT_BYTES_MAX: usize = 4 << 20;

/// Connections the kernel may queue while the agent is busy: as many as it serves.
const BACKLOG: u32 = 512;

/// Two pipes and a connection for each of the 1024 execs, and room for files.
const OPEN_FILES_WANTED: u64 = 8192;

/// What is being done until the boot message is understood.
const READ: &str = "read the boot message";

/// What the rest of the agent needs to know of its boot.
pub(super) struct Booted {
    /// Who knows it is the host. Changes when the sandbox becomes another one.
    pub(super) token: RefCell<String>,
    pub(super) accept_from: IpAddr,
    pub(super) started_boot_ms: u64,
    pub(super) started_awake_ms: u64,
    /// The limit of open files the agent was started with, which its execs get back.
    pub(super) open_files: libc::rlimit,
}

impl Booted {
    pub(super) fn new(boot: &Boot, open_files: Rlimit) -> Self {
        let raw = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
        Self {
            token: RefCell::new(boot.token.clone()),
            accept_from: boot.accept_from,
            started_boot_ms: clock::boot_ms(),
            started_awake_ms: clock::awake_ms(),
            open_files: libc::rlimit { rlim_cur: raw(open_files.current), rlim_max: raw(open_files.maximum) },
        }
    }

    pub(super) fn uptime_ms(&self) -> u64 {
        clock::boot_ms().saturating_sub(self.started_boot_ms)
    }
}

/// Settings that hold for the life of the process. None is worth failing a boot for. Answers the limit of open
/// files as it was.
pub(super) fn tune_process() -> Rlimit {
    fill_standard_streams();
    // Nobody inside may trace the agent or read its memory, where the token is.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // As PID 1 orphans come here anyway; elsewhere (tests, a nested namespace) this asks for them.
    let _ = rustix::process::set_child_subreaper(Some(Pid::INIT));
    let _ = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES_WANTED, |maximum| maximum.min(OPEN_FILES_WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    }
    // One arena, and large blocks given back at once: an agent that once moved a gigabyte must be small again.
    for (parameter, value) in
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, 128 * 1024), (libc::M_TRIM_THRESHOLD, 128 * 1024)]
    {
        // SAFETY: mallopt takes two integers; no other thread exists yet.
        unsafe { libc::mallopt(parameter, value) };
    }
    limit
}

/// Descriptors 1 and 2 must not be given to something else when the launcher left them closed.
fn fill_standard_streams() {
    let flags = rustix::fs::OFlags::RDWR;
    while let Ok(null) = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()) {
        if null.as_raw_fd() > 2 {
            break;
        }
        std::mem::forget(null);
    }
}

/// Whoever asked for the boot, and is told how it went.
pub(super) enum Host {
    /// Standard input is a socket to it.
    Socket,
    /// The driver of a microVM.
    Driver(vm::Asked),
}

impl Host {
    /// Waits for the boot message. After a failure the host has been told.
    pub(super) async fn meet(machine: Option<vm::Machine>) -> Result<(Boot, Option<vm::Group>, Self), ()> {
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
            Ok((boot, group, asked)) => match check(&boot) {
                Ok(()) => Ok((boot, Some(group), Self::Driver(asked))),
                Err(message) => {
                    Self::Driver(asked).refuse(READ, &message).await;
                    Err(())
                }
            },
            Err((failure, mut asked)) => {
                asked.report(failure.report()).await;
                Err(())
            }
        }
    }

    pub(super) async fn report(&mut self, report: &BootReport) -> io::Result<()> {
        match self {
            Self::Socket => finish(report),
            Self::Driver(asked) => {
                asked.report(report.clone()).await;
                Ok(())
            }
        }
    }

    pub(super) async fn refuse(&mut self, step: &str, message: &str) -> ExitCode {
        let report = BootReport::Failed { step: step.to_owned(), message: message.to_owned() };
        // When even this fails, the launcher sees end-of-file without a report, which says the same.
        let _ = self.report(&report).await;
        ExitCode::FAILURE
    }
}

/// Before there is anything that could wait.
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
            return Err(format!("it is larger than {BOOT_BYTES_MAX} bytes"));
        }
    }
    let boot: Boot = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    check(&boot)?;
    Ok(boot)
}

fn check(boot: &Boot) -> Result<(), String> {
    if boot.generation > GENERATION {
        return Err(format!("the host speaks generation {}, this agent {GENERATION}", boot.generation));
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
    // The agent of an earlier boot may have left connections in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Writes the report and puts `/dev/null` in the socket's place.
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
