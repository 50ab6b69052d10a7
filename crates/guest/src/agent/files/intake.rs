//! Moves an upload from the connection into a file, within the kernel.
//!
//! Socket → pipe → file: what came through the network is copied once, into the page cache, and never through memory of
//! ours. A file that takes nothing from a pipe gets it by way of a buffer.
//!
//! This runs on a thread of the pool, which others need too: it goes back as soon as the host falls behind, and after
//! a turn even when it does not.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::net::TcpStream;

use super::upload::Target;
use crate::agent::wire::WireError;
use crate::protocol::{FRAME_BYTES_MAX, FrameError, FrameKind, HEADER_BYTES, RequestError};

/// What the pipe holds at most, if the kernel grants it: enough that system calls do not count.
const PIPE_BYTES: usize = 512 * 1024;

/// Until the thread is given back, so that many uploads at once share the pool.
const TURN_BYTES: usize = 16 << 20;

/// A host that keeps up with this is worth waiting for on the thread, for a moment, since going back and forth costs
/// more than it would save others. A slower one is not.
const WAIT_EARNED_BY_BYTES: usize = 128 * 1024;
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// What is moved at once where splicing into the file is impossible.
const COPY_BYTES: usize = 64 * 1024;

/// An upload on its way. Between two runs nothing is in the pipe.
pub(super) struct Intake {
    socket: OwnedFd,
    reader: OwnedFd,
    writer: OwnedFd,
    /// Of the frame at the front: bytes still to come.
    rest: usize,
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    splices: bool,
}

/// Why a run ended.
pub(super) enum Stop {
    /// The host has sent nothing more yet.
    Dry,
    /// There may be more; it is others' turn.
    Turn,
    /// All has come.
    End,
}

pub(super) enum Trouble {
    Wire(WireError),
    Disk(RequestError),
}

enum Step {
    Moved(usize),
    Dry,
    End,
}

impl Intake {
    /// Goes on in the middle of a frame of which `rest` bytes are to come.
    pub(super) fn new(stream: &TcpStream, rest: usize) -> Result<Self, WireError> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let (reader, writer) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io::Error::from)?;
        // A user inside may have used up what all his pipes may hold; a small one is slower, no more.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
        let header = [0; HEADER_BYTES];
        Ok(Self { socket, reader, writer, rest, header, header_filled: 0, splices: true })
    }

    /// Moves what there is.
    pub(super) fn run(&mut self, target: &mut Target) -> Result<Stop, Trouble> {
        let (mut moved, mut since_wait) = (0, 0);
        while moved < TURN_BYTES {
            let step = if self.rest == 0 { self.read_header() } else { self.move_bytes(target) };
            match step? {
                Step::Moved(count) => {
                    moved += count;
                    since_wait += count;
                }
                Step::End => return Ok(Stop::End),
                Step::Dry if since_wait >= WAIT_EARNED_BY_BYTES && self.wait()? => since_wait = 0,
                Step::Dry => return Ok(Stop::Dry),
            }
        }
        Ok(Stop::Turn)
    }

    fn read_header(&mut self) -> Result<Step, Trouble> {
        let missing = &mut self.header[self.header_filled..];
        match rustix::net::recv(&self.socket, missing, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Trouble::Wire(WireError::HungUp)),
            Ok((count, _)) => self.header_filled += count,
            Err(Errno::AGAIN) => return Ok(Step::Dry),
            Err(Errno::INTR) => return Ok(Step::Moved(0)),
            Err(errno) => return Err(errno.into()),
        }
        if self.header_filled == HEADER_BYTES {
            self.header_filled = 0;
            let [a, b, c, d, kind] = self.header;
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(Trouble::Wire(FrameError::TooLarge { length }.into()));
            }
            match kind {
                kind if kind == FrameKind::End as u8 => return Ok(Step::End),
                kind if kind == FrameKind::Bytes as u8 => self.rest = length,
                _ => return Err(Trouble::Wire(WireError::HungUp)),
            }
        }
        // Headers count too: frames of nothing would otherwise make an endless turn.
        Ok(Step::Moved(HEADER_BYTES))
    }

    fn move_bytes(&mut self, target: &mut Target) -> Result<Step, Trouble> {
        let wanted = self.rest.min(PIPE_BYTES);
        let flags = SpliceFlags::NONBLOCK;
        let count = match rustix::pipe::splice(&self.socket, None, &self.writer, None, wanted, flags) {
            Ok(0) => return Err(Trouble::Wire(WireError::HungUp)),
            Ok(count) => count,
            // The pipe is empty, so it is the socket that has nothing.
            Err(Errno::AGAIN) => return Ok(Step::Dry),
            Err(Errno::INTR) => return Ok(Step::Moved(0)),
            Err(errno) => return Err(errno.into()),
        };
        self.rest -= count;
        self.empty_pipe(count, target).map_err(Trouble::Disk)?;
        Ok(Step::Moved(count))
    }

    fn empty_pipe(&mut self, mut count: usize, target: &mut Target) -> Result<(), RequestError> {
        while count > 0 && self.splices {
            match target.splice(&self.reader, count)? {
                0 => self.splices = false,
                moved => count -= moved,
            }
        }
        if count > 0 {
            let mut buffer = vec![0; COPY_BYTES.min(count)];
            while count > 0 {
                let read = match rustix::io::read(&self.reader, &mut buffer) {
                    Ok(read) => read,
                    Err(Errno::INTR) => continue,
                    // What was put in a moment ago is there.
                    Err(errno) => return Err(crate::agent::failure::refused("read", "the pipe", errno)),
                };
                target.write(&buffer[..read])?;
                count -= read;
            }
        }
        Ok(())
    }

    /// Waits a moment for more; false when none came.
    fn wait(&self) -> Result<bool, Trouble> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&WAIT)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Wire(io::Error::from(errno).into())
    }
}
