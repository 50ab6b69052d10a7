//! The host's side of one connection to a guest.
//!
//! Generic over the byte stream, so that the engine decides how a guest is reached. A guest is hostile until proven
//! otherwise: every length is bounded, every wait is the caller's to bound, and a malformed frame ends the connection.

use std::io;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::protocol::{Frame, FrameError, GENERATION, Hello, Reply, Request, RequestError};

#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("the guest refused: {0}")]
    Refused(#[from] RequestError),
    #[error("could not talk to the guest")]
    Io(#[from] io::Error),
    #[error("the guest sent a malformed frame")]
    Frame(#[from] FrameError),
    #[error("the guest sent a message that does not parse")]
    Message(#[source] serde_json::Error),
    #[error("the guest hung up in the middle of an answer")]
    HungUp,
    #[error("the guest sent a frame out of turn")]
    OutOfTurn,
}

/// One request and its answer.
#[derive(Debug)]
pub struct Connection<S> {
    reader: FrameReader<tokio::io::ReadHalf<S>>,
    writer: FrameWriter<tokio::io::WriteHalf<S>>,
}

#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
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

    /// The one Control frame every answer starts with.
    pub async fn reply<T: DeserializeOwned>(&mut self) -> Result<T, GuestError> {
        self.reader.reply().await
    }

    pub async fn next(&mut self) -> Result<Option<Frame>, GuestError> {
        self.reader.next().await
    }

    pub async fn send(&mut self, frame: &Frame) -> Result<(), GuestError> {
        self.writer.send(frame).await
    }

    /// For answers that stream both ways at once.
    pub fn split(self) -> (FrameReader<tokio::io::ReadHalf<S>>, FrameWriter<tokio::io::WriteHalf<S>>) {
        (self.reader, self.writer)
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: BytesMut::new() }
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

    /// The next frame, or `None` when the other side hung up between frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, GuestError> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            // Room for a whole bulk frame at once: fewer, larger reads are what makes gigabytes cheap.
            self.buffer.reserve(256 * 1024);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(GuestError::HungUp) };
            }
        }
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
