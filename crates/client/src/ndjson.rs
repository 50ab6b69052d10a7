//! Streams of JSON values, one per line.

use std::marker::PhantomData;

use bytes::{Buf, BytesMut};
use http::Method;
use serde::de::DeserializeOwned;

use crate::{ByteStream, ClientError};

/// Longest line: an output chunk in base64 or an event with its details is far smaller.
const LINE_BYTES_MAX: usize = 8 << 20;

/// Values as they arrive.
#[derive(Debug)]
pub struct NdjsonStream<T> {
    bytes: ByteStream,
    buffer: BytesMut,
    /// The buffer contains no newline up to here, so that a long line is searched only once.
    searched: usize,
    values: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> NdjsonStream<T> {
    pub(crate) fn new(bytes: ByteStream) -> Self {
        Self { bytes, buffer: BytesMut::new(), searched: 0, values: PhantomData }
    }

    /// The next value; `None` when the daemon has ended the stream.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(line) = self.line() {
                if line.iter().all(u8::is_ascii_whitespace) {
                    // An empty line keeps an idle stream alive.
                    continue;
                }
                return serde_json::from_slice(&line).map(Some).map_err(|source| ClientError::Decode {
                    method: Method::GET,
                    path: self.bytes.path().to_owned(),
                    source,
                });
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(ClientError::AnswerTooLarge {
                    method: Method::GET,
                    path: self.bytes.path().to_owned(),
                    max: LINE_BYTES_MAX,
                });
            }
            match self.bytes.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None if self.buffer.iter().all(u8::is_ascii_whitespace) => return Ok(None),
                None => return Err(ClientError::Truncated { path: self.bytes.path().to_owned() }),
            }
        }
    }

    fn line(&mut self) -> Option<BytesMut> {
        let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + at);
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }
}
