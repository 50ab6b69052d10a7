//! Finds, starts and ends the egress process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::Options;
use crate::control::{Channel, Greeting, ReceiveBuffer, Request, RequestKind};
use crate::process;

/// From the start until it listens: it resolves a name first, which may time out.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A process that sends no greeting within this time is considered hung.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a process may take to end on request.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between attempts to connect to a process that is starting or ending.
const PAUSE: Duration = Duration::from_millis(3);

/// The file for its standard error, in the run directory.
const ERRORS: &str = "egress.stderr";

/// A running process that has sent a greeting of our version.
#[derive(Debug)]
pub(super) struct RunningProcess {
    pub(super) channel: Channel,
    pub(super) incoming: ReceiveBuffer,
    /// Present if this daemon started it.
    pub(super) child: Option<Child>,
}

/// Creates the run directory, accessible only to its owner.
pub(super) fn prepare(run_dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(run_dir)?;
    std::fs::set_permissions(run_dir, std::fs::Permissions::from_mode(0o700))
}

/// Returns the running process, if it has our version. A process of another version, or one that hangs, is ended.
pub(super) async fn find(run_dir: &Path) -> io::Result<Option<RunningProcess>> {
    let Some(channel) = connect(&socket_path(run_dir)).await? else { return Ok(None) };
    let mut incoming = ReceiveBuffer::default();
    match greeting(&channel, &mut incoming).await {
        Some(greeting) if greeting == Greeting::ours() => {
            Ok(Some(RunningProcess { channel, incoming, child: None }))
        }
        other => {
            tracing::info!(found = ?other, "replacing the egress process of another version");
            quit(channel).await?;
            Ok(None)
        }
    }
}

/// Starts a process, which outlives the daemon.
pub(super) async fn start(options: &Options) -> io::Result<RunningProcess> {
    let listener = bind_socket(&options.run_dir)?;
    let (program, arguments) = options.program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let owner = rustix::process::geteuid().as_raw();
    let ours = process::Options { uid: options.uid, gid: options.gid, owner };
    let errors =
        std::fs::File::options().create(true).append(true).mode(0o600).open(options.run_dir.join(ERRORS))?;
    // The output of an earlier process was logged when it ended.
    errors.set_len(0)?;
    let mut child = Command::new(program)
        .args(arguments)
        .args(ours.arguments())
        // The environment of the daemon may contain keys and is not inherited. `LOCALDOMAIN` is set so that
        // nonexistent names are not looked up again under the host's own domain.
        .env_clear()
        .env("LOCALDOMAIN", "")
        .current_dir("/")
        .stdin(Stdio::from(listener))
        .stdout(Stdio::null())
        .stderr(Stdio::from(errors))
        .spawn()?;
    let connected = timeout(START_TIMEOUT, async {
        loop {
            if let Some(channel) = connect(&socket_path(&options.run_dir)).await? {
                return Ok(channel);
            }
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("it exited with {status}: {}", last_words(options))));
            }
            sleep(PAUSE).await;
        }
    });
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "it did not listen within the time limit");
    let greeted = match connected.await.unwrap_or_else(|_| Err(silent())) {
        Err(error) => Err(error),
        Ok(channel) => {
            let mut incoming = ReceiveBuffer::default();
            match greeting(&channel, &mut incoming).await {
                Some(greeting) if greeting == Greeting::ours() => Ok((channel, incoming)),
                other => {
                    Err(io::Error::other(format!("unexpected greeting {other:?}: {}", last_words(options))))
                }
            }
        }
    };
    match greeted {
        Ok((channel, incoming)) => Ok(RunningProcess { channel, incoming, child: Some(child) }),
        Err(error) => {
            // A process that does not work must not be found by the next attempt.
            let _ = child.kill().await;
            Err(error)
        }
    }
}

/// The error output of a process that ended, for the daemon's log.
fn last_words(options: &Options) -> String {
    let said = std::fs::read_to_string(options.run_dir.join(ERRORS)).unwrap_or_default();
    said.trim().chars().take(500).collect()
}

/// Ends the process that serves from `run_dir`.
pub(super) async fn end(run_dir: &Path) -> io::Result<()> {
    match connect(&socket_path(run_dir)).await? {
        Some(channel) => {
            let _ = greeting(&channel, &mut ReceiveBuffer::default()).await;
            quit(channel).await
        }
        None => Ok(()),
    }
}

fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join("control.sock")
}

/// Creates a socket in the run directory to which only its owner may connect, and which does not listen yet: the
/// process calls `listen` when it is ready, so that clients see its credentials.
fn bind_socket(run_dir: &Path) -> io::Result<OwnedFd> {
    let path = socket_path(run_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Others have no access to the directory, so no process can replace the socket in between.
    bind(&socket, &SocketAddrUnix::new(&path)?)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// `None` if no process listens.
async fn connect(path: &Path) -> io::Result<Option<Channel>> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(Channel::new(stream))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn greeting(channel: &Channel, incoming: &mut ReceiveBuffer) -> Option<Greeting> {
    let greeting = timeout(GREETING_TIMEOUT, channel.receive::<Greeting>(incoming)).await;
    greeting.ok()?.ok()?.map(|(greeting, _)| greeting)
}

/// Requests a process to end, and waits until it has.
async fn quit(channel: Channel) -> io::Result<()> {
    let peer = channel.stream().peer_cred().ok().and_then(|peer| peer.pid()).and_then(Pid::from_raw);
    // Opened while the connection proves the identity of the process; later the pid could have been reused.
    let process = peer.and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
    let asked = channel.send(&Request { number: 0, ask: RequestKind::Quit }, &[]).await;
    let Some(process) = process else { return asked };
    if timeout(QUIT_TIMEOUT, ended(&process)).await.is_ok() {
        return Ok(());
    }
    pidfd_send_signal(&process, Signal::KILL)?;
    let gone = timeout(QUIT_TIMEOUT, ended(&process)).await;
    gone.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it did not end within the time limit"))
}

/// Waits until a process has ended.
async fn ended(process: &OwnedFd) {
    loop {
        let mut wait = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut wait, Some(&now)).is_ok_and(|count| count > 0) {
            return;
        }
        sleep(PAUSE).await;
    }
}
