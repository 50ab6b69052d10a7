//! Moves an upload from the connection into a file, within the kernel.
//!
//! Socket → pipe → file: the received bytes are copied once, into the page cache, and never into the agent's memory.
//! Files that do not support splice are written through a buffer.
//!
//! This runs on a thread of the pool, which other tasks need too: it returns the thread as soon as the host falls
//! behind, and after [`RUN_BYTES_MAX`] even if the host does not.

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

/// The pipe's capacity, if the kernel grants it: large enough to make the cost of system calls irrelevant.
const PIPE_BYTES: usize = 512 * 1024;

/// Bytes after which the thread is returned, so that many uploads at once share the pool.
const RUN_BYTES_MAX: usize = 16 << 20;

/// If a host has sent this much, the thread waits a moment for more, since switching threads would cost more than
/// others would gain. A slower host is not waited for.
const BYTES_BEFORE_WAIT: usize = 128 * 1024;
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Bytes moved at once if the file does not support splice.
const COPY_BYTES: usize = 64 * 1024;

/// A running upload. The pipe is empty between two runs.
pub(super) struct Intake {
    socket: OwnedFd,
    reader: OwnedFd,
    writer: OwnedFd,
    /// Bytes that are still to come of the current frame.
    rest: usize,
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    splices: bool,
}

/// Why a run ended.
pub(super) enum Stop {
    /// The host has sent nothing more yet.
    NoData,
    /// There may be more, but other uploads need the thread.
    Yield,
    /// The upload is complete.
    End,
}

pub(super) enum IntakeError {
    Wire(WireError),
    Disk(RequestError),
}

enum Step {
    Moved(usize),
    NoData,
    End,
}

impl Intake {
    /// Starts in the middle of a frame, of which `rest` bytes are still to come.
    pub(super) fn new(stream: &TcpStream, rest: usize) -> Result<Self, WireError> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let (reader, writer) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(io::Error::from)?;
        // The user may have used up the limit for all of their pipes; a small pipe is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
        let header = [0; HEADER_BYTES];
        Ok(Self { socket, reader, writer, rest, header, header_filled: 0, splices: true })
    }

    /// Moves the bytes that are available.
    pub(super) fn run(&mut self, target: &mut Target) -> Result<Stop, IntakeError> {
        let (mut moved, mut since_wait) = (0, 0);
        while moved < RUN_BYTES_MAX {
            let step = if self.rest == 0 { self.read_header() } else { self.move_bytes(target) };
            match step? {
                Step::Moved(count) => {
                    moved += count;
                    since_wait += count;
                }
                Step::End => return Ok(Stop::End),
                Step::NoData if since_wait >= BYTES_BEFORE_WAIT && self.wait()? => since_wait = 0,
                Step::NoData => return Ok(Stop::NoData),
            }
        }
        Ok(Stop::Yield)
    }

    fn read_header(&mut self) -> Result<Step, IntakeError> {
        let missing = &mut self.header[self.header_filled..];
        match rustix::net::recv(&self.socket, missing, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(IntakeError::Wire(WireError::HungUp)),
            Ok((count, _)) => self.header_filled += count,
            Err(Errno::AGAIN) => return Ok(Step::NoData),
            Err(Errno::INTR) => return Ok(Step::Moved(0)),
            Err(errno) => return Err(errno.into()),
        }
        if self.header_filled == HEADER_BYTES {
            self.header_filled = 0;
            let [a, b, c, d, kind] = self.header;
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(IntakeError::Wire(FrameError::TooLarge { length }.into()));
            }
            match kind {
                kind if kind == FrameKind::End as u8 => return Ok(Step::End),
                kind if kind == FrameKind::Bytes as u8 => self.rest = length,
                _ => return Err(IntakeError::Wire(WireError::HungUp)),
            }
        }
        // Headers count too: otherwise empty frames could keep the thread forever.
        Ok(Step::Moved(HEADER_BYTES))
    }

    fn move_bytes(&mut self, target: &mut Target) -> Result<Step, IntakeError> {
        let wanted = self.rest.min(PIPE_BYTES);
        let flags = SpliceFlags::NONBLOCK;
        let count = match rustix::pipe::splice(&self.socket, None, &self.writer, None, wanted, flags) {
            Ok(0) => return Err(IntakeError::Wire(WireError::HungUp)),
            Ok(count) => count,
            // The pipe is empty, so the socket has no data.
            Err(Errno::AGAIN) => return Ok(Step::NoData),
            Err(Errno::INTR) => return Ok(Step::Moved(0)),
            Err(errno) => return Err(errno.into()),
        };
        self.rest -= count;
        self.empty_pipe(count, target).map_err(IntakeError::Disk)?;
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
                    // The bytes that were just spliced into the pipe are there.
                    Err(errno) => return Err(crate::agent::failure::refused("read", "the pipe", errno)),
                };
                target.write(&buffer[..read])?;
                count -= read;
            }
        }
        Ok(())
    }

    /// Waits a moment for more bytes. Returns false if none arrived.
    fn wait(&self) -> Result<bool, IntakeError> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&WAIT)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl From<Errno> for IntakeError {
    fn from(errno: Errno) -> Self {
        Self::Wire(io::Error::from(errno).into())
    }
}
