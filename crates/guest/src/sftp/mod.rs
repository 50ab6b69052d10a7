//! `burrow-guest sftp`: the file transfer of SSH, version 3, on standard input and output.
//!
//! Runs as an exec inside the sandbox, as the user the client logged in as: so what it may touch, and what `..` or a link
//! leads to, is decided by the sandbox's own kernel, as for any other program in there. It knows nothing of SSH itself.
//!
//! ```text
//!   stdin ─► packet (bounded) ─► serve: one request, one answer ─► stdout, flushed when no request is waiting
//! ```
//!
//! Bounds: the length of a packet, open handles, entries of one answer.

mod attributes;
mod handles;
mod listing;
mod packet;
mod serve;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use packet::{Inbox, Packet};
use serve::Server;

/// The argument that asks for it.
pub const ROLE: &str = "sftp";

/// What a pipe holds at most without rights: fewer switches between us and the agent.
const PIPE_BYTES: usize = 1 << 20;

/// Until the client is done.
pub fn run() -> ExitCode {
    let (input, output) = (io::stdin(), io::stdout());
    // Smaller ones are only slower.
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

/// Without the buffers of the standard library, which would only copy once more.
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
