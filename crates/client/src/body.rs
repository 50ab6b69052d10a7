//! Request bodies and streamed responses, both in constant memory.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::ClientError;
use crate::client::innermost;

pub(crate) type RequestBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// Size of reads from a local source: large enough that system calls cost little, small enough that memory does not.
const CHUNK_BYTES: usize = 256 << 10;

pub(crate) fn empty() -> RequestBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn full(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body to send, of known or unknown length.
pub struct UploadBody {
    pub(crate) body: RequestBody,
    pub(crate) length: Option<u64>,
}

impl fmt::Debug for UploadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadBody").field("length", &self.length).finish_non_exhaustive()
    }
}

impl UploadBody {
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { length: Some(bytes.len() as u64), body: full(bytes) }
    }

    /// If a `length` is given, the stream must have exactly this length.
    pub fn from_stream(
        stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        length: Option<u64>,
    ) -> Self {
        let frames = stream.map_ok(Frame::data).map_err(Box::from);
        Self { length, body: BodyExt::boxed_unsync(StreamBody::new(frames)) }
    }

    /// Calls `see` with each chunk as it is sent, for progress.
    pub fn inspect(self, mut see: impl FnMut(&Bytes) + Send + 'static) -> Self {
        let body = self.body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                see(data);
            }
            frame
        });
        Self { body: body.boxed_unsync(), length: self.length }
    }

    pub fn from_reader(reader: impl AsyncRead + Send + 'static, length: Option<u64>) -> Self {
        let reader = Box::pin(reader);
        let chunks = futures_util::stream::try_unfold(reader, |mut reader| async move {
            let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
            let count = reader.read_buf(&mut chunk).await?;
            Ok((count > 0).then(|| (chunk.freeze(), reader)))
        });
        // A file that grows during the upload would exceed the announced length.
        match length {
            Some(length) => Self::from_stream(truncate_at(chunks, length), Some(length)),
            None => Self::from_stream(chunks, None),
        }
    }
}

fn truncate_at(
    chunks: impl Stream<Item = io::Result<Bytes>>,
    length: u64,
) -> impl Stream<Item = io::Result<Bytes>> {
    let mut left = length;
    chunks
        .map_ok(move |mut chunk| {
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= chunk.len() as u64;
            chunk
        })
        .try_take_while(|chunk| std::future::ready(Ok(!chunk.is_empty())))
}

/// The bytes of a response, in chunks as they arrive. Dropping it early closes the connection.
pub struct ByteStream {
    body: Incoming,
    path: String,
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteStream").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ByteStream {
    pub(crate) fn new(body: Incoming, path: String) -> Self {
        Self { body, path }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The next chunk; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.next().await.transpose()
    }

    /// Writes the whole stream, calling `progress` with the size of each chunk. Returns the number of bytes.
    pub async fn copy_to(
        mut self,
        into: &mut (impl AsyncWrite + Unpin),
        mut progress: impl FnMut(u64),
    ) -> Result<u64, ClientError> {
        let mut total = 0;
        while let Some(chunk) = self.chunk().await? {
            into.write_all(&chunk).await.map_err(|source| ClientError::Local { source })?;
            total += chunk.len() as u64;
            progress(chunk.len() as u64);
        }
        into.flush().await.map_err(|source| ClientError::Local { source })?;
        Ok(total)
    }
}

impl Stream for ByteStream {
    type Item = Result<Bytes, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(ctx)) {
                None => return Poll::Ready(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    let source = innermost(&error);
                    return Poll::Ready(Some(Err(ClientError::Stream { path: self.path.clone(), source })));
                }
            };
            // The daemon sends no trailers.
            if let Ok(data) = frame.into_data() {
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}
