//! Finds programs and their versions, and runs them.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// The directories of system programs, also for users whose PATH lacks the administrator's directories.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A program that has not printed its version by then hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn find(name: &str) -> Option<PathBuf> {
    PATH.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// The first line it prints, on standard output or standard error.
pub(super) async fn first_line(program: &Path, argument: &str) -> Option<String> {
    let mut command = Command::new(program);
    command
        .arg(argument)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER_LIMIT, command.output()).await.ok()?.ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
}

/// Runs a program to its end; its output goes to standard error.
pub(super) async fn run(program: &Path, arguments: &[String], limit: Duration) -> io::Result<ExitStatus> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", PATH)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(io::stderr().as_fd().try_clone_to_owned()?)
        .kill_on_drop(true);
    let ended = tokio::time::timeout(limit, command.status()).await;
    ended.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))
}

/// The compared parts of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The first version in a text, such as `12.3`.
pub(super) fn version_in(text: &str) -> Option<Version> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
        let mut numbers = word.split('.');
        let (major, minor) = (numbers.next()?, numbers.next()?);
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        for (text, version) in [
            ("btrfs-progs v6.2", Some((6, 2))),
            ("nftables v1.0.6 (Lester Gooch #5)", Some((1, 0))),
            ("Version: 4.2.1", Some((4, 2))),
            ("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", Some((10, 0))),
            ("6.18.5-amd64", Some((6, 18))),
            ("no version here", None),
        ] {
            assert_eq!(version_in(text), version.map(|(major, minor)| Version { major, minor }), "{text}");
        }
    }
}
