//! The daemon's side of the launcher: starts it, sends it requests, and restarts it if it has ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::message::{AdjustPlan, EmulatorPlan, Failure, LauncherReply, Plan, Request, receive, send};
use crate::container::criu::{Adjustment, AppliedChanges};

/// A launch takes about a millisecond; a launcher without an answer for this long hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Changing the processes of a machine takes milliseconds; each of its steps has its own limit of ten seconds.
const ADJUST_TIMEOUT: Duration = Duration::from_secs(60);

/// If the launcher is found dead before a request was sent, one more attempt is made.
const CONNECT_ATTEMPTS: u32 = 2;

/// A launcher process, kept running.
#[derive(Debug)]
pub(crate) struct Launcher {
    argv: Vec<OsString>,
    /// One request at a time: the launcher has one thread.
    connection: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    process: Child,
}

/// A machine's PID 1, just started.
#[derive(Debug)]
pub(crate) struct LaunchedProcess {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

#[derive(Debug)]
pub(crate) enum LaunchError {
    /// The launcher tried and failed.
    Refused(Failure),
    /// The launcher has ended, and may or may not have started something.
    Gone(io::Error),
}

impl Launcher {
    pub(crate) fn new(argv: Vec<OsString>) -> Self {
        Self { argv, connection: Mutex::new(None) }
    }

    /// Starts a machine. Blocks for about a millisecond, and while others launch.
    pub(crate) fn launch(
        &self,
        plan: Plan,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<LaunchedProcess, LaunchError> {
        self.start(&Request::Launch(plan), descriptors)
    }

    /// Starts an emulator. Blocks as [`Self::launch`] does.
    pub(crate) fn emulate(
        &self,
        plan: EmulatorPlan,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<LaunchedProcess, LaunchError> {
        self.start(&Request::Emulate(plan), descriptors)
    }

    /// Changes the processes of the machine in `group`, from the cgroup `aside`. Others can launch meanwhile.
    pub(crate) fn adjust(
        &self,
        group: &Path,
        adjustment: Adjustment,
        aside: BorrowedFd<'_>,
    ) -> io::Result<AppliedChanges> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(ADJUST_TIMEOUT))?;
        let plan = AdjustPlan { group: group.to_owned(), adjustment };
        let asked = self.ask(&Request::Adjust(plan), &[theirs.as_fd(), aside]);
        drop(theirs);
        // The process that does it answers by itself, even if the launcher has ended by then.
        match (receive::<Result<AppliedChanges, String>>(&ours)?, asked) {
            (Some((Ok(opened), _)), _) => Ok(opened),
            (Some((Err(reason), _)), _) => Err(io::Error::other(reason)),
            (None, Err(LaunchError::Refused(failure))) => Err(failure.source()),
            (None, Err(LaunchError::Gone(error))) => Err(error),
            (None, Ok(_)) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn start(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<LaunchedProcess, LaunchError> {
        match self.ask(request, descriptors)? {
            (LauncherReply::Launched { pid }, mut attached) if attached.len() == 1 => {
                Ok(LaunchedProcess { pid, pidfd: attached.remove(0) })
            }
            (LauncherReply::Failed(failure), _) => Err(LaunchError::Refused(failure)),
            (LauncherReply::Able | LauncherReply::Launched { .. }, _) => {
                Err(LaunchError::Gone(io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Whether this host can run machines, and if not, the step that fails.
    pub(crate) fn probe(&self) -> Result<(), LaunchError> {
        match self.ask(&Request::Probe, &[])? {
            (LauncherReply::Able, _) => Ok(()),
            (LauncherReply::Failed(failure), _) => Err(LaunchError::Refused(failure)),
            (LauncherReply::Launched { .. }, _) => Err(LaunchError::Gone(io::ErrorKind::InvalidData.into())),
        }
    }

    fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(LauncherReply, Vec<OwnedFd>), LaunchError> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 1..=CONNECT_ATTEMPTS {
            let connection = match slot.take() {
                Some(connection) => connection,
                None => Connection::open(&self.argv).map_err(LaunchError::Gone)?,
            };
            // If sending fails, nothing was started, so another launcher may be asked. After sending, something may
            // have been started, and only a caller that can clean up may retry.
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
            // The daemon's environment may contain keys, and the launcher needs nothing from it.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { socket: ours, process })
    }
}

impl Drop for Connection {
    /// Ends the launcher, but not the machines that it started, and leaves no zombie. It is our unreaped child, so its
    /// pid is still its own.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
