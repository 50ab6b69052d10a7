//! `burrow-guest sftp`: the SSH file transfer protocol, version 3, on standard input and output.
//!
//! Runs as an exec inside the sandbox, as the user that the client logged in as. Which files are accessible, and
//! where `..` or a link leads, is therefore decided by the sandbox's own kernel, as for any other program inside. It
//! knows nothing of SSH itself.
//!
//! ```text
//!   stdin ─► packet (bounded) ─► serve: one request, one answer ─► stdout, flushed when no request is waiting
//! ```
//!
//! Limits: the length of a packet, open handles, entries of one answer.

mod attributes;
mod handles;
mod listing;
mod packet;
mod serve;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use packet::{Inbox, Packet};
use serve::Server;

/// The argument that selects this role.
pub const ROLE: &str = "sftp";

/// The largest pipe without privileges: fewer context switches between this process and the agent.
const PIPE_BYTES: usize = 1 << 20;

/// Runs until the client is done.
pub fn run() -> ExitCode {
    let (input, output) = (io::stdin(), io::stdout());
    // A smaller pipe is only slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE_BYTES);
    let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE_BYTES);
    match converse(rustix_io(&input), rustix_io(&output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "sftp: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Without the buffers of the standard library, which would only add a copy.
fn rustix_io<T: std::os::fd::AsFd>(stream: &T) -> Raw<'_> {
    Raw(stream.as_fd())
}

struct Raw<'a>(std::os::fd::BorrowedFd<'a>);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(self.0, &mut *buffer))?)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(self.0, bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn converse(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut inbox = Inbox::new(input);
    let mut server = Server::default();
    let mut answers = Packet::default();
    loop {
        match inbox.waiting()? {
            Some(request) => server.answer(request, &mut answers),
            None => {
                answers.send(&mut output)?;
                if !inbox.fill()? {
                    return Ok(());
                }
            }
        }
        if answers.is_long() {
            answers.send(&mut output)?;
        }
    }
}

#[cfg(test)]
mod tests;
