//! The input of a process: its standard input, or the other end of its terminal.
//!
//! Nothing is buffered here: if a process does not read, the writer waits, and through TCP the host waits too.

use std::rc::Rc;

use rustix::io::Errno;
use rustix::termios::SpecialCodeIndex;

use super::Exec;
use crate::agent::failure::{fail, invalid, refused};
use crate::agent::watched_fd::WatchedFd;
use crate::agent::wire::{Inbox, WireError};
use crate::protocol::{ErrorCode, RequestError};

/// Ctrl-D, if the terminal's own setting cannot be read.
const EOF_CHARACTER: u8 = 4;

pub(super) enum Stdin {
    Pipe(WatchedFd),
    Terminal(Rc<WatchedFd>),
}

/// Carries out [`crate::protocol::Request::ExecStdin`]: writes the upload to the exec's input, then optionally ends
/// the input.
pub(in crate::agent) async fn feed(
    exec: &Exec,
    inbox: &mut Inbox<'_>,
    close: bool,
) -> Result<Result<(), RequestError>, WireError> {
    while let Some(bytes) = inbox.upload().await? {
        if let Err(error) = exec.write_stdin(&bytes).await {
            return Ok(Err(error));
        }
    }
    Ok(if close { exec.close_stdin().await } else { Ok(()) })
}

impl Exec {
    /// Writes all of `bytes`, and waits as long as the process does not read.
    pub(super) async fn write_stdin(&self, bytes: &[u8]) -> Result<(), RequestError> {
        let stdin = self.stdin.lock().await;
        let Some(stdin) = stdin.as_ref() else { return Err(self.no_input()) };
        self.note_active();
        let fd = match stdin {
            Stdin::Pipe(fd) => fd,
            Stdin::Terminal(fd) => fd.as_ref(),
        };
        tokio::select! {
            written = write_all(fd, bytes) => written.map_err(|errno| match errno {
                Errno::PIPE | Errno::IO => fail(
                    ErrorCode::Ended,
                    format_args!("exec `{}` has closed its standard input", self.id),
                ),
                _ => refused("write to exec", &self.id, errno),
            }),
            () = self.wait_ended() => Err(self.no_input()),
        }
    }

    /// Ends the input of the process. Calling it twice is allowed.
    pub(super) async fn close_stdin(&self) -> Result<(), RequestError> {
        let mut stdin = self.stdin.lock().await;
        match stdin.as_ref() {
            None => Ok(()),
            Some(Stdin::Pipe(_)) => {
                *stdin = None;
                Ok(())
            }
            // A terminal stays open: its end-of-file is a character, whose meaning the program decides.
            Some(Stdin::Terminal(fd)) => {
                let character = [rustix::termios::tcgetattr(fd.get_ref())
                    .map_or(EOF_CHARACTER, |termios| termios.special_codes[SpecialCodeIndex::VEOF])];
                tokio::select! {
                    written = write_all(fd, &character) => {
                        written.map_err(|errno| refused("write to exec", &self.id, errno))
                    }
                    () = self.wait_ended() => Ok(()),
                }
            }
        }
    }

    fn no_input(&self) -> RequestError {
        if self.ended() {
            return fail(ErrorCode::Ended, format_args!("exec `{}` is no longer running", self.id));
        }
        invalid(format_args!("the standard input of exec `{}` is closed", self.id))
    }
}

async fn write_all(fd: &WatchedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let mut ready = fd.writable().await.map_err(|_| Errno::IO)?;
        match rustix::io::write(fd.get_ref(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
