//! The agent's side of one connection: frames in, frames out, both over a shared `&TcpStream`.
//!
//! Every future here is cancel-safe: bytes move only in a synchronous step after readiness, so a `select!` that drops
//! one loses nothing. A host that never reads costs one buffer, whose size its owner limits.

use std::io;

use bytes::{Buf, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::failure::fail;
use crate::protocol::{
    ErrorCode, FRAME_BYTES_MAX, Frame, FrameError, FrameKind, HEADER_BYTES, Reply, RequestError,
};

/// Bytes read at a time while the length of the next frame is unknown: most requests are smaller.
const READ_BYTES: usize = 4096;

/// The first piece of an upload. Most files are smaller, so that one task on another thread is enough.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("could not talk to the host")]
    Io(#[from] io::Error),
    #[error("the host sent a malformed frame")]
    Frame(#[from] FrameError),
    #[error("the host hung up in the middle of a frame")]
    HungUp,
    #[error("a message of {bytes} bytes fits no frame")]
    TooLarge { bytes: usize },
    #[error("could not write a message")]
    Message(#[from] serde_json::Error),
}

pub(super) struct Inbox<'s> {
    stream: &'s TcpStream,
    buffer: BytesMut,
    /// Bytes of the current Bytes frame that [`Inbox::fill`] has not returned yet.
    rest: usize,
}

/// A buffer for the first bytes of an upload.
pub(super) struct Piece {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Piece {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; PIECE_BYTES].into_boxed_slice(), filled: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

pub(super) struct Outbox<'s> {
    stream: &'s TcpStream,
    pub(super) buffer: BytesMut,
}

impl<'s> Inbox<'s> {
    pub(super) fn new(stream: &'s TcpStream) -> Self {
        Self { stream, buffer: BytesMut::new(), rest: 0 }
    }

    /// The next frame, or `None` when the host hung up between frames.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            self.stream.readable().await?;
            self.buffer.reserve(self.wanted());
            match self.stream.try_read_buf(&mut self.buffer) {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(WireError::HungUp),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Bytes that were read after the last frame, for a connection that continues without frames.
    pub(super) fn take_rest(&mut self) -> BytesMut {
        std::mem::take(&mut self.buffer)
    }

    /// Reads the JSON of the next frame, which must be Control.
    pub(super) async fn message<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Result<T, RequestError>, WireError> {
        match self.next().await? {
            Some(Frame::Control(json)) => Ok(serde_json::from_slice(&json).map_err(|error| {
                fail(ErrorCode::Invalid, format_args!("could not read the message: {error}"))
            })),
            Some(Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End) => {
                Ok(Err(fail(ErrorCode::Invalid, "expected a message, received another frame")))
            }
            None => Err(WireError::HungUp),
        }
    }

    /// The next piece of an upload; `None` at its End.
    pub(super) async fn upload(&mut self) -> Result<Option<bytes::Bytes>, WireError> {
        loop {
            match self.next().await? {
                Some(Frame::Bytes(bytes)) if bytes.is_empty() => {}
                Some(Frame::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Frame::End) => return Ok(None),
                Some(Frame::Control(_) | Frame::Stdout { .. } | Frame::Stderr { .. }) | None => {
                    return Err(WireError::HungUp);
                }
            }
        }
    }

    /// Fills `piece` with the next bytes of an upload, across frames; empty at its End.
    pub(super) async fn fill(&mut self, piece: &mut Piece) -> Result<(), WireError> {
        piece.filled = 0;
        while piece.filled < piece.bytes.len() {
            if self.rest == 0 && !self.next_bytes_frame(piece.filled == 0).await? {
                return Ok(());
            }
            let wanted = self.rest.min(piece.bytes.len() - piece.filled);
            let target = &mut piece.bytes[piece.filled..piece.filled + wanted];
            let count = if self.buffer.is_empty() {
                match self.stream.try_read(target) {
                    Ok(0) => return Err(WireError::HungUp),
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.stream.readable().await?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            } else {
                let count = wanted.min(self.buffer.len());
                self.buffer.copy_to_slice(&mut target[..count]);
                count
            };
            piece.filled += count;
            self.rest -= count;
        }
        Ok(())
    }

    /// Passes the rest of an upload to another reader of the stream, and returns how many bytes of the current frame
    /// are still to come. `None` while this inbox still holds bytes of the upload, which must be taken first.
    pub(super) fn hand_over(&mut self) -> Option<usize> {
        self.buffer.is_empty().then(|| std::mem::take(&mut self.rest))
    }

    /// Reads and drops everything that the host still sends, until it hangs up.
    pub(super) async fn discard(&mut self) -> Result<(), WireError> {
        self.buffer = BytesMut::zeroed(READ_BYTES);
        loop {
            match self.stream.try_read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.readable().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the header of the next Bytes frame that is not empty. Returns false at the upload's End, which is
    /// consumed only if `take_end` is set, so that the piece before it is returned first.
    async fn next_bytes_frame(&mut self, take_end: bool) -> Result<bool, WireError> {
        loop {
            while self.buffer.len() < HEADER_BYTES {
                // Only the header is read: the content is read directly into its destination.
                let mut header = [0; HEADER_BYTES];
                match self.stream.try_read(&mut header[self.buffer.len()..]) {
                    Ok(0) => return Err(WireError::HungUp),
                    Ok(count) => self.buffer.extend_from_slice(&header[self.buffer.len()..][..count]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.readable().await?,
                    Err(error) => return Err(error.into()),
                }
            }
            let length = self.length();
            if length > FRAME_BYTES_MAX {
                return Err(FrameError::TooLarge { length }.into());
            }
            if self.buffer[4] == FrameKind::End as u8 {
                if take_end {
                    self.buffer.advance(HEADER_BYTES);
                }
                return Ok(false);
            }
            if self.buffer[4] != FrameKind::Bytes as u8 {
                return Err(WireError::HungUp);
            }
            self.buffer.advance(HEADER_BYTES);
            self.rest = length;
            if length > 0 {
                return Ok(true);
            }
        }
    }

    fn length(&self) -> usize {
        u32::from_le_bytes([self.buffer[0], self.buffer[1], self.buffer[2], self.buffer[3]]) as usize
    }

    /// Space for the rest of the current frame: one allocation per frame, and none larger than a frame.
    fn wanted(&self) -> usize {
        if self.buffer.len() < HEADER_BYTES {
            return READ_BYTES;
        }
        let length = self.length();
        (HEADER_BYTES + length.min(FRAME_BYTES_MAX)).saturating_sub(self.buffer.len()).max(READ_BYTES)
    }
}

/// Waits until the socket is ready, after another thread found that it was not.
///
/// The runtime must detect that here, on its own thread and by a new check: with the other thread's result it could
/// discard an event that arrived in between, and wait forever.
pub(super) async fn until_ready(stream: &TcpStream, readiness: Readiness) -> Result<(), WireError> {
    let (interest, flags) = match readiness {
        Readiness::Readable => (Interest::READABLE, PollFlags::IN),
        Readiness::Writable => (Interest::WRITABLE, PollFlags::OUT),
    };
    loop {
        let looked = stream.try_io(interest, || {
            let mut fds = [PollFd::new(stream, flags)];
            match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        match looked {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.ready(interest).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What [`until_ready`] waits for.
#[derive(Clone, Copy)]
pub(super) enum Readiness {
    Readable,
    Writable,
}

impl<'s> Outbox<'s> {
    pub(super) fn new(stream: &'s TcpStream) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    pub(super) fn push(&mut self, frame: &Frame) {
        frame.encode(&mut self.buffer);
    }

    pub(super) fn push_control<T: Serialize>(&mut self, message: &T) -> Result<(), WireError> {
        let json = serde_json::to_vec(message)?;
        if json.len() > FRAME_BYTES_MAX {
            return Err(WireError::TooLarge { bytes: json.len() });
        }
        self.buffer.reserve(HEADER_BYTES + json.len());
        self.buffer.extend_from_slice(&Frame::header(FrameKind::Control, json.len()));
        self.buffer.extend_from_slice(&json);
        Ok(())
    }

    /// Queues the single answer to a request. An answer that does not fit into a frame becomes an error.
    pub(super) fn push_reply<T: Serialize>(
        &mut self,
        reply: Result<T, RequestError>,
    ) -> Result<(), WireError> {
        let json = serde_json::to_vec(&match reply {
            Ok(value) => Reply::Ok(value),
            Err(error) => Reply::Err(error),
        })?;
        if json.len() > FRAME_BYTES_MAX {
            let message = format!("the answer of {} bytes is larger than {FRAME_BYTES_MAX}", json.len());
            return self.push_control(&Reply::<()>::Err(fail(ErrorCode::TooLarge, message)));
        }
        self.buffer.reserve(HEADER_BYTES + json.len());
        self.buffer.extend_from_slice(&Frame::header(FrameKind::Control, json.len()));
        self.buffer.extend_from_slice(&json);
        Ok(())
    }

    pub(super) async fn reply<T: Serialize>(
        &mut self,
        reply: Result<T, RequestError>,
    ) -> Result<(), WireError> {
        self.push_reply(reply)?;
        self.flush().await
    }

    pub(super) async fn flush(&mut self) -> Result<(), WireError> {
        while !self.buffer.is_empty() {
            match self.stream.try_write(&self.buffer) {
                Ok(written) => self.buffer.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stream.writable().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
