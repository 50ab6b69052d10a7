//! The daemon process of this host: found by its pid file, started with or without systemd.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};

use crate::commands::prelude::*;
use crate::log_file;
use crate::print::escape::escape_lines;

const UNIT: &str = "burrow.service";
const UNIT_DIRECTORIES: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
/// Bytes of the log shown when the daemon does not start.
const LOG_TAIL_BYTES: u64 = 2048;

pub(super) fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether systemd runs this host and knows our unit.
pub(super) fn has_unit() -> bool {
    Path::new("/run/systemd/system").is_dir()
        && UNIT_DIRECTORIES.iter().any(|directory| Path::new(directory).join(UNIT).exists())
}

pub(super) async fn systemctl(verb: &str) -> io::Result<()> {
    let output = Command::new("systemctl").args([verb, UNIT]).stdin(Stdio::null()).output().await?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(text.trim().to_owned()))
}

/// Whether the unit is active; false also when that is unknown.
pub(super) async fn unit_is_active() -> bool {
    let status =
        Command::new("systemctl").args(["is-active", "--quiet", UNIT]).stdin(Stdio::null()).status().await;
    status.is_ok_and(|status| status.success())
}

/// A daemon started by this command, in its own session.
#[derive(Debug)]
pub(super) struct BackgroundDaemon {
    pub(super) child: Child,
    pub(super) log: PathBuf,
    /// Size of the log when the daemon was started.
    log_start: u64,
}

impl BackgroundDaemon {
    pub(super) fn start(config: Option<&Path>, state_dir: &Path) -> io::Result<Self> {
        let (log, file) = log_file::open(state_dir)?;
        let log_start = file.metadata()?.len();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--new-session", "--log-file"]).arg(&log);
        if let Some(config) = config {
            // Absolute, since the daemon starts in another directory.
            command.arg("--config").arg(std::path::absolute(config)?);
        }
        // Not the caller's directory, which the daemon would keep busy for as long as it runs.
        command.current_dir("/").stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn()?;
        Ok(Self { child, log, log_start })
    }

    /// The end of its log, with control characters escaped.
    pub(super) fn log_tail(&self) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            let end = file.seek(SeekFrom::End(0))?;
            let start = self.log_start.max(end.saturating_sub(LOG_TAIL_BYTES));
            file.seek(SeekFrom::Start(start))?;
            file.take(LOG_TAIL_BYTES).read_to_end(&mut text)
        });
        if read.is_err() {
            return String::new();
        }
        escape_lines(&text).trim_end().to_owned()
    }
}

/// The running daemon, referenced by a pidfd, so that its pid cannot be reused by another process.
#[derive(Debug)]
pub(super) struct RunningDaemon {
    handle: OwnedFd,
}

impl RunningDaemon {
    /// `None`: it does not run.
    pub(super) fn find(pid_file: &Path) -> Option<Self> {
        let pid: i32 = fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // In a stale file, the pid may be that of another process. The pidfd is opened first, so the check is about
        // its process.
        is_daemon(pid).then_some(Self { handle })
    }

    pub(super) fn terminate(&self) -> io::Result<()> {
        pidfd_send_signal(&self.handle, Signal::TERM).map_err(io::Error::from)
    }

    /// Whether it has ended within `limit`.
    pub(super) async fn ended(self, limit: Duration) -> io::Result<bool> {
        let waiting = tokio::task::spawn_blocking(move || {
            // The pidfd becomes readable when its process ends.
            let limit =
                Timespec::try_from(limit).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            let mut handles = [PollFd::new(&self.handle, PollFlags::IN)];
            Ok(poll(&mut handles, Some(&limit))? > 0)
        });
        waiting.await.expect("waiting does not panic")
    }
}

fn is_daemon(pid: i32) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    program.rsplit(|byte| *byte == b'/').next() == Some(b"burrow") && words.next() == Some(b"serve")
}
