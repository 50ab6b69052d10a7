//! The daemon's side of the launcher: starts it, asks it, and starts another when it is gone.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::message::{AdjustPlan, Answer, EmulatorPlan, Failure, Plan, Request, receive, send};
use crate::container::criu::{Adjustment, Opened};

/// A launch takes about a millisecond; a launcher silent for this long hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Holding the processes of a machine takes milliseconds; each step of it has a bound of its own, of ten seconds.
const ADJUST_TIMEOUT: Duration = Duration::from_secs(60);

/// A launcher that is found dead before it was asked anything costs one more attempt.
const CONNECT_ATTEMPTS: u32 = 2;

/// A launcher process, kept running.
#[derive(Debug)]
pub(crate) struct Launcher {
    argv: Vec<OsString>,
    /// Requests go one at a time: the launcher has one thread.
    connection: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    process: Child,
}

/// A machine's PID 1, just started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The launcher tried and could not.
    Refused(Failure),
    /// The launcher is gone, and may or may not have started something.
    Gone(io::Error),
}

impl Launcher {
    pub(crate) fn new(argv: Vec<OsString>) -> Self {
        Self { argv, connection: Mutex::new(None) }
    }

    /// Starts a machine. Blocks for about a millisecond, and while others launch.
    pub(crate) fn launch(&self, plan: Plan, descriptors: &[BorrowedFd<'_>]) -> Result<Launched, LaunchError> {
        self.start(&Request::Launch(plan), descriptors)
    }

    /// Starts an emulator. Blocks as [`Self::launch`] does.
    pub(crate) fn emulate(
        &self,
        plan: EmulatorPlan,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Launched, LaunchError> {
        self.start(&Request::Emulate(plan), descriptors)
    }

    /// Adjusts the processes of the machine in `group`, from the cgroup `aside`. Others can launch meanwhile.
    pub(crate) fn adjust(
        &self,
        group: &Path,
        adjustment: Adjustment,
        aside: BorrowedFd<'_>,
    ) -> io::Result<Opened> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(ADJUST_TIMEOUT))?;
        let plan = AdjustPlan { group: group.to_owned(), adjustment };
        let asked = self.ask(&Request::Adjust(plan), &[theirs.as_fd(), aside]);
        drop(theirs);
        // The process that does it answers by itself, also when the launcher is gone by then.
        match (receive::<Result<Opened, String>>(&ours)?, asked) {
            (Some((Ok(opened), _)), _) => Ok(opened),
            (Some((Err(reason), _)), _) => Err(io::Error::other(reason)),
            (None, Err(LaunchError::Refused(failure))) => Err(failure.source()),
            (None, Err(LaunchError::Gone(error))) => Err(error),
            (None, Ok(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn start(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Launched, LaunchError> {
        match self.ask(request, descriptors)? {
            (Answer::Launched { pid }, mut attached) if attached.len() == 1 => {
                Ok(Launched { pid, pidfd: attached.remove(0) })
            }
            (Answer::Failed(failure), _) => Err(LaunchError::Refused(failure)),
            (Answer::Able | Answer::Launched { .. }, _) => {
                Err(LaunchError::Gone(io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Whether this host can make machines, and if not, at which step it fails.
    pub(crate) fn probe(&self) -> Result<(), LaunchError> {
        match self.ask(&Request::Probe, &[])? {
            (Answer::Able, _) => Ok(()),
            (Answer::Failed(failure), _) => Err(LaunchError::Refused(failure)),
            (Answer::Launched { .. }, _) => Err(LaunchError::Gone(io::ErrorKind::InvalidData.into())),
        }
    }

    fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), LaunchError> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 1..=CONNECT_ATTEMPTS {
            let connection = match slot.take() {
                Some(connection) => connection,
                None => Connection::open(&self.argv).map_err(LaunchError::Gone)?,
            };
            // A failure to send means that nothing was started: another launcher may be asked. After that, it may
            // have been, and only whoever can clean up may try again.
            match send(connection.socket.as_fd(), request, descriptors) {
                Err(_) if attempt < CONNECT_ATTEMPTS => continue,
                other => other.map_err(LaunchError::Gone)?,
            }
            let answer = match receive(connection.socket.as_fd()) {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(LaunchError::Gone(io::ErrorKind::UnexpectedEof.into())),
                Err(error) => return Err(LaunchError::Gone(error)),
            };
            *slot = Some(connection);
            return Ok(answer);
        }
        Err(LaunchError::Gone(io::ErrorKind::NotConnected.into()))
    }
}

impl Connection {
    fn open(argv: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        set_socket_timeout(&ours, Timeout::Send, Some(ANSWER_TIMEOUT))?;
        let process = Command::new(program)
            .args(arguments)
            // Nothing of the daemon's environment, which may hold keys, is the launcher's business.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { socket: ours, process })
    }
}

impl Drop for Connection {
    /// Ends the launcher, not the machines it started, and leaves no zombie. It is ours until it is waited for, so its
    /// pid is still its own.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
