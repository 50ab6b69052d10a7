//! The agent's side of one connection: frames in, frames out, both over a shared `&TcpStream`.
//!
//! Every future here is cancel-safe: bytes move only in a synchronous step after readiness, so a `select!` that
//! drops one loses nothing. A host that never reads costs one buffer, which its owner bounds before filling.

use std::io;

use bytes::{Buf, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::failure::fail;
use crate::protocol::{
    ErrorCode, FRAME_BYTES_MAX, Frame, FrameError, FrameKind, HEADER_BYTES, Reply, RequestError,
};

/// What is read at a time while the length of the next frame is not known: most requests are smaller.
const READ_BYTES: usize = 4096;

/// A piece of a bulk upload: large enough that handing it to another thread costs little beside copying it.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("could not talk to the host")]
    Io(#[from] io::Error),
    #[error("the host sent a malformed frame")]
    Frame(#[from] FrameError),
    #[error("the host hung up in the middle of a frame")]
    HungUp,
    #[error("could not write a message")]
    Message(#[from] serde_json::Error),
}

pub(super) struct Inbox<'s> {
    stream: &'s TcpStream,
    buffer: BytesMut,
    /// Bytes of the Bytes frame at the front that [`Inbox::fill`] has yet to hand out.
    rest: usize,
}

/// A buffer for bulk uploads, used again and again: fresh memory for each frame would cost as much as the copying.
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

    /// What was read beyond the last frame, for a connection that goes on without frames.
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
                Ok(Err(fail(ErrorCode::Invalid, "a message was due, and other bytes came")))
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

    /// Takes the header of the next Bytes frame that is not empty. False at the upload's End, which is taken only
    /// when `take_end` is set, so that the piece before it is handed out first.
    async fn next_bytes_frame(&mut self, take_end: bool) -> Result<bool, WireError> {
        loop {
            while self.buffer.len() < HEADER_BYTES {
                self.buffer.reserve(READ_BYTES);
                match self.stream.try_read_buf(&mut self.buffer) {
                    Ok(0) => return Err(WireError::HungUp),
                    Ok(_) => {}
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

    /// Room for the rest of the frame at the front: one allocation per frame, and none larger than a frame.
    fn wanted(&self) -> usize {
        if self.buffer.len() < HEADER_BYTES {
            return READ_BYTES;
        }
        let length = self.length();
        (HEADER_BYTES + length.min(FRAME_BYTES_MAX)).saturating_sub(self.buffer.len()).max(READ_BYTES)
    }
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
        self.buffer.reserve(HEADER_BYTES + json.len());
        self.buffer.extend_from_slice(&Frame::header(FrameKind::Control, json.len()));
        self.buffer.extend_from_slice(&json);
        Ok(())
    }

    /// Queues the one answer of a request. An answer that fits no frame becomes a refusal that says so.
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
