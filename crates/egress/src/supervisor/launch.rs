//! Starts the process, finds it, and ends it.

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
use crate::control::{Ask, Channel, Greeting, Incoming, Request};
use crate::process;

/// From being started to listening: it looks up a name meanwhile, which may have to time out.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A process that says nothing for this long when greeted hangs.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one may take to end when told to.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Between attempts to connect to a process that is starting or ending.
const PAUSE: Duration = Duration::from_millis(3);

/// Its standard error, in the run directory.
const ERRORS: &str = "egress.stderr";

/// A process that was found or started, greeted and understood.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) channel: Channel,
    pub(super) incoming: Incoming,
    /// Of one that we started.
    pub(super) child: Option<Child>,
}

/// Makes the run directory, for its owner only.
pub(super) fn prepare(run_dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(run_dir)?;
    std::fs::set_permissions(run_dir, std::fs::Permissions::from_mode(0o700))
}

/// The process that is there, if it is of our version; one of another version, or one that hangs, is ended.
pub(super) async fn find(run_dir: &Path) -> io::Result<Option<Found>> {
    let Some(channel) = connect(&socket_path(run_dir)).await? else { return Ok(None) };
    let mut incoming = Incoming::default();
    match greeting(&channel, &mut incoming).await {
        Some(greeting) if greeting == Greeting::ours() => Ok(Some(Found { channel, incoming, child: None })),
        other => {
            tracing::info!(found = ?other, "replacing the egress process of another version");
            quit(channel).await?;
            Ok(None)
        }
    }
}

/// Starts a process. It outlives us.
pub(super) async fn start(options: &Options) -> io::Result<Found> {
    let listener = bind_socket(&options.run_dir)?;
    let (program, arguments) = options.program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let owner = rustix::process::geteuid().as_raw();
    let ours = process::Options { uid: options.uid, gid: options.gid, owner };
    let errors =
        std::fs::File::options().create(true).append(true).mode(0o600).open(options.run_dir.join(ERRORS))?;
    // What an earlier process had to say was told when it died.
    errors.set_len(0)?;
    let mut child = Command::new(program)
        .args(arguments)
        .args(ours.arguments())
        // Nothing of the daemon's environment, which may hold keys, is its business. Without this variable, names that
        // do not exist would be looked up again under the host's own domain.
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
                return Err(io::Error::other(format!("it ended with {status}: {}", last_words(options))));
            }
            sleep(PAUSE).await;
        }
    });
    let silent = || io::Error::new(io::ErrorKind::TimedOut, "it did not listen in time");
    let greeted = match connected.await.unwrap_or_else(|_| Err(silent())) {
        Err(error) => Err(error),
        Ok(channel) => {
            let mut incoming = Incoming::default();
            match greeting(&channel, &mut incoming).await {
                Some(greeting) if greeting == Greeting::ours() => Ok((channel, incoming)),
                other => {
                    Err(io::Error::other(format!("it greeted us with {other:?}: {}", last_words(options))))
                }
            }
        }
    };
    match greeted {
        Ok((channel, incoming)) => Ok(Found { channel, incoming, child: Some(child) }),
        Err(error) => {
            // One that does not work must not be found by the next attempt.
            let _ = child.kill().await;
            Err(error)
        }
    }
}

/// What a process that died had to say, for the daemon's log.
fn last_words(options: &Options) -> String {
    let said = std::fs::read_to_string(options.run_dir.join(ERRORS)).unwrap_or_default();
    said.trim().chars().take(500).collect()
}

/// Ends whatever process serves from `run_dir`.
pub(super) async fn end(run_dir: &Path) -> io::Result<()> {
    match connect(&socket_path(run_dir)).await? {
        Some(channel) => {
            let _ = greeting(&channel, &mut Incoming::default()).await;
            quit(channel).await
        }
        None => Ok(()),
    }
}

fn socket_path(run_dir: &Path) -> PathBuf {
    run_dir.join("control.sock")
}

/// A socket in the run directory that nobody but its owner may connect to, and that does not listen yet: the process
/// does that when it is ready, and is then whom those see who connect.
fn bind_socket(run_dir: &Path) -> io::Result<OwnedFd> {
    let path = socket_path(run_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The directory is closed to others, so nobody comes in between here.
    bind(&socket, &SocketAddrUnix::new(&path)?)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// `None` when nobody listens.
async fn connect(path: &Path) -> io::Result<Option<Channel>> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(Channel::new(stream))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn greeting(channel: &Channel, incoming: &mut Incoming) -> Option<Greeting> {
    let greeting = timeout(GREETING_TIMEOUT, channel.receive::<Greeting>(incoming)).await;
    greeting.ok()?.ok()?.map(|(greeting, _)| greeting)
}

/// Tells a process to end, and sees to it.
async fn quit(channel: Channel) -> io::Result<()> {
    let peer = channel.stream().peer_cred().ok().and_then(|peer| peer.pid()).and_then(Pid::from_raw);
    // Opened while the connection says that it is this very process; after that, the pid could be anybody's.
    let process = peer.and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
    let asked = channel.send(&Request { number: 0, ask: Ask::Quit }, &[]).await;
    let Some(process) = process else { return asked };
    if timeout(QUIT_TIMEOUT, ended(&process)).await.is_ok() {
        return Ok(());
    }
    pidfd_send_signal(&process, Signal::KILL)?;
    let gone = timeout(QUIT_TIMEOUT, ended(&process)).await;
    gone.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it would not end"))
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
