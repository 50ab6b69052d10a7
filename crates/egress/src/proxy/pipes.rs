//! Moves bytes from socket to socket without copying them.
//!
//! `splice` moves pages from a socket into a pipe and from there into the other socket. A pipe is taken only while
//! there is something to move and given back empty, so that an idle connection costs two sockets and a small task.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Pipes kept for the next flow that has something to say.
const IDLE_PIPES_MAX: usize = 64;

/// What a pipe holds, if the kernel grants it: more per call is less to do per byte. Moved at a time as well, though a
/// pipe would take more: programs that do not read what they asked for keep it all from the host's memory. (The kernel
/// makes the pipes of a user that has some 256 of this size tiny.)
const PIPE_BYTES: usize = 256 * 1024;

/// Moves after which other tasks of the thread get their turn.
const MOVES_PER_TURN: u32 = 16;

#[derive(Debug)]
pub(crate) struct Pipes {
    idle: Mutex<Vec<Pipe>>,
}

#[derive(Debug)]
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipes {
    pub(crate) fn new() -> Self {
        Self { idle: Mutex::default() }
    }

    fn take(&self) -> io::Result<Pipe> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(pipe) = idle {
            return Ok(pipe);
        }
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Refused when the user has many pipes already; a small one works too.
        let _ = fcntl_setpipe_size(&into, PIPE_BYTES);
        Ok(Pipe { out, into })
    }

    /// Takes back a pipe that is empty.
    fn give(&self, pipe: Pipe) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_PIPES_MAX {
            idle.push(pipe);
        }
    }

    /// Moves all that `from` says to `to`, until it ends. `moved` is told of every piece, and says how long to wait
    /// before the next.
    pub(crate) async fn pump(
        &self,
        from: &TcpStream,
        to: &TcpStream,
        moved: impl Fn(usize) -> std::time::Duration,
    ) -> io::Result<()> {
        loop {
            from.readable().await?;
            let pipe = self.take()?;
            let ended = drain(from, to, &pipe, &moved).await?;
            // Only here is it known to be empty; after an error it goes with the flow.
            self.give(pipe);
            if ended {
                return Ok(());
            }
        }
    }
}

/// Moves what there is now; `true` at the end of the stream.
async fn drain(
    from: &TcpStream,
    to: &TcpStream,
    pipe: &Pipe,
    moved: &impl Fn(usize) -> std::time::Duration,
) -> io::Result<bool> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    for turn in 1u32.. {
        let read =
            from.try_io(Interest::READABLE, || Ok(splice(from, None, &pipe.into, None, PIPE_BYTES, flags)?));
        let mut left = match read {
            Ok(0) => return Ok(true),
            Ok(count) => count,
            // The pipe is empty, so it is the socket that has nothing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let wait = moved(left);
        while left > 0 {
            let written =
                to.try_io(Interest::WRITABLE, || Ok(splice(&pipe.out, None, to, None, left, flags)?));
            match written {
                Ok(count) => left -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        } else if turn % MOVES_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(false)
}
