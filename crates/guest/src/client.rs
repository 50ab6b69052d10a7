//! The host's side of one connection to a guest.
//!
//! Generic over the byte stream, so that the engine decides how a guest is reached. The guest is assumed to be
//! hostile: every length is limited, the caller limits every wait, and a malformed frame ends the connection.

use std::io;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::protocol::{Frame, FrameError, FrameKind, GENERATION, Hello, Reply, Request, RequestError};

#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("the guest refused the request: {0}")]
    Refused(#[from] RequestError),
    #[error("could not communicate with the guest")]
    Io(#[from] io::Error),
    #[error("the guest sent a malformed frame")]
    Frame(#[from] FrameError),
    #[error("the guest sent an invalid message")]
    Message(#[source] serde_json::Error),
    #[error("the guest closed the connection before the end of its answer")]
    HungUp,
    #[error("the guest sent an unexpected frame")]
    OutOfTurn,
}

/// One request and its answer.
#[derive(Debug)]
pub struct Connection<S> {
    reader: FrameReader<tokio::io::ReadHalf<S>>,
    writer: FrameWriter<tokio::io::WriteHalf<S>>,
}

/// The size of one read of an answer that consists of a few messages.
const READ_BYTES: usize = 16 << 10;

/// The size of one read of bulk data: large enough to be cheap, small enough to stay in the processor's cache.
const BULK_READ_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    /// Bytes still to come of a Bytes frame that is read in pieces.
    piece_left: usize,
}

#[derive(Debug)]
pub struct FrameWriter<W> {
    stream: W,
    buffer: BytesMut,
}

impl<S: AsyncRead + AsyncWrite> Connection<S> {
    /// Sends hello and request in one write.
    pub async fn open(stream: S, token: &str, request: &Request) -> Result<Self, GuestError> {
        let (read, write) = tokio::io::split(stream);
        let mut connection = Self { reader: FrameReader::new(read), writer: FrameWriter::new(write) };
        let hello = Hello { generation: GENERATION, token: token.to_owned() };
        connection.writer.push(&control(&hello)?);
        connection.writer.push(&control(request)?);
        connection.writer.flush().await?;
        Ok(connection)
    }

    /// Reads the Control frame with which every answer starts.
    pub async fn reply<T: DeserializeOwned>(&mut self) -> Result<T, GuestError> {
        self.reader.reply().await
    }

    pub async fn next(&mut self) -> Result<Option<Frame>, GuestError> {
        self.reader.next().await
    }

    pub async fn send(&mut self, frame: &Frame) -> Result<(), GuestError> {
        self.writer.send(frame).await
    }

    /// For answers after which the connection continues without frames: the stream, and the bytes already read from
    /// it.
    pub fn into_raw(self) -> (S, BytesMut)
    where
        S: Unpin,
    {
        (self.reader.stream.unsplit(self.writer.stream), self.reader.buffer)
    }

    /// For answers that stream in both directions at once.
    pub fn split(self) -> (FrameReader<tokio::io::ReadHalf<S>>, FrameWriter<tokio::io::WriteHalf<S>>) {
        (self.reader, self.writer)
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new(), piece_left: 0 }
    }

    pub async fn reply<T: DeserializeOwned>(&mut self) -> Result<T, GuestError> {
        match self.next().await? {
            Some(Frame::Control(json)) => match parse::<Reply<T>>(&json)? {
                Reply::Ok(value) => Ok(value),
                Reply::Err(error) => Err(error.into()),
            },
            Some(_) => Err(GuestError::OutOfTurn),
            None => Err(GuestError::HungUp),
        }
    }

    /// The next frame, or `None` if the other side hung up between frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, GuestError> {
        if self.piece_left > 0 {
            return Err(GuestError::OutOfTurn);
        }
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            if !self.fill(if self.buffer.is_empty() { READ_BYTES } else { BULK_READ_BYTES }).await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(GuestError::HungUp) };
            }
        }
    }

    /// Like [`FrameReader::next`], but a Bytes frame is returned in pieces, each as soon as it arrives and without
    /// copying. For passing on bulk data.
    pub async fn next_piece(&mut self) -> Result<Option<Frame>, GuestError> {
        loop {
            if self.piece_left > 0 && !self.buffer.is_empty() {
                let piece = self.buffer.split_to(self.piece_left.min(self.buffer.len())).freeze();
                self.piece_left -= piece.len();
                return Ok(Some(Frame::Bytes(piece)));
            }
            if self.piece_left == 0 {
                match Frame::take_bytes_header(&mut self.buffer)? {
                    Some(0) => return Ok(Some(Frame::Bytes(Bytes::new()))),
                    Some(length) => {
                        self.piece_left = length;
                        continue;
                    }
                    None => {}
                }
                if let Some(frame) = Frame::decode(&mut self.buffer)? {
                    return Ok(Some(frame));
                }
            }
            if !self.fill(BULK_READ_BYTES).await? {
                let between = self.piece_left == 0 && self.buffer.is_empty();
                return if between { Ok(None) } else { Err(GuestError::HungUp) };
            }
        }
    }

    /// Reads once; `false` if the other side has hung up.
    async fn fill(&mut self, room: usize) -> Result<bool, GuestError> {
        self.buffer.reserve(room);
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub fn new(stream: W) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    pub async fn send(&mut self, frame: &Frame) -> Result<(), GuestError> {
        self.push(frame);
        self.flush().await
    }

    /// Sends a Bytes frame without copying its payload. Callers split payloads at `FRAME_BYTES_MAX`.
    pub async fn send_bytes(&mut self, payload: &[u8]) -> Result<(), GuestError> {
        let header = Frame::header(FrameKind::Bytes, payload.len());
        let mut sent = 0;
        while sent < header.len() {
            let parts = [io::IoSlice::new(&header[sent..]), io::IoSlice::new(payload)];
            match self.stream.write_vectored(&parts).await? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                count => sent += count,
            }
        }
        self.stream.write_all(&payload[sent - header.len()..]).await?;
        Ok(self.stream.flush().await?)
    }

    pub async fn send_control<T: Serialize>(&mut self, message: &T) -> Result<(), GuestError> {
        self.send(&control(message)?).await
    }

    fn push(&mut self, frame: &Frame) {
        frame.encode(&mut self.buffer);
    }

    async fn flush(&mut self) -> Result<(), GuestError> {
        self.stream.write_all(&self.buffer).await?;
        self.buffer.clear();
        Ok(self.stream.flush().await?)
    }
}

fn control<T: Serialize>(message: &T) -> Result<Frame, GuestError> {
    Ok(Frame::Control(Bytes::from(serde_json::to_vec(message).map_err(GuestError::Message)?)))
}

/// Reads the JSON of a Control frame.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, GuestError> {
    serde_json::from_slice(json).map_err(GuestError::Message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All frames that arrive, whole or in pieces.
    async fn received(bytes: &[u8], pieces: bool) -> Result<Vec<Frame>, GuestError> {
        let mut reader = FrameReader::new(bytes);
        let mut frames = Vec::new();
        loop {
            match if pieces { reader.next_piece().await? } else { reader.next().await? } {
                Some(frame) => frames.push(frame),
                None => return Ok(frames),
            }
        }
    }

    #[tokio::test]
    async fn pieces_have_the_same_content_as_whole_frames() {
        let bulk = vec![7; 700_000];
        let mut writer = FrameWriter::new(Vec::new());
        writer.send(&Frame::Control(Bytes::from_static(b"{}"))).await.unwrap();
        writer.send_bytes(&bulk).await.unwrap();
        writer.send_bytes(&[]).await.unwrap();
        writer.send(&Frame::Stdout { offset: 1, bytes: Bytes::from_static(b"x") }).await.unwrap();
        writer.send(&Frame::End).await.unwrap();
        let sent = writer.stream;
        let whole = received(&sent, false).await.unwrap();
        assert_eq!(whole.len(), 5);
        assert_eq!(whole[1], Frame::Bytes(bulk.clone().into()));
        let mut joined = Vec::new();
        let mut others = Vec::new();
        for frame in received(&sent, true).await.unwrap() {
            match frame {
                Frame::Bytes(bytes) => joined.extend_from_slice(&bytes),
                other @ (Frame::Control(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End) => {
                    others.push(other);
                }
            }
        }
        assert_eq!((joined, others.len()), (bulk, 3));
    }

    #[tokio::test]
    async fn a_truncated_frame_is_an_error() {
        let mut writer = FrameWriter::new(Vec::new());
        writer.send_bytes(b"hello").await.unwrap();
        let sent = writer.stream;
        for cut in 1..sent.len() {
            for pieces in [false, true] {
                let result = received(&sent[..cut], pieces).await;
                assert!(matches!(result, Err(GuestError::HungUp)), "{cut} {pieces} {result:?}");
            }
        }
    }

    #[tokio::test]
    async fn an_excessive_length_is_refused_in_pieces_too() {
        let result = received(&[0xff, 0xff, 0xff, 0x7f, 1], true).await;
        assert!(matches!(result, Err(GuestError::Frame(FrameError::TooLarge { .. }))), "{result:?}");
    }
}
