//! Streamed responses: lines of JSON, and bytes directly from a guest's connection.

use std::io;

use axum::body::Body;
use axum::response::Response;
use burrow_api::{ErrorCode, ErrorDetail};
use burrow_engine::{Guest, GuestStream};
use burrow_guest::client::Connection;
use burrow_guest::protocol::Frame;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;

pub use burrow_engine::{GuestReader, GuestWriter};

/// A response with one JSON value per line, each sent as soon as it is available.
pub fn lines<T: Serialize>(values: impl Stream<Item = T> + Send + 'static) -> Response {
    let lines = values.map(|value| {
        let mut line = serde_json::to_vec(&value).map_err(io::Error::other)?;
        line.push(b'\n');
        Ok::<_, io::Error>(Bytes::from(line))
    });
    Response::builder()
        .header(CONTENT_TYPE, "application/x-ndjson")
        .header(CACHE_CONTROL, "no-store")
        // A buffering proxy would hold a line back until the next one arrives.
        .header("x-accel-buffering", "no")
        .body(Body::from_stream(lines))
        .expect("the headers are constants")
}

/// The last line of a stream when the daemon shuts down.
pub fn shutting_down() -> ErrorDetail {
    ApiError::new(ErrorCode::Busy, "the daemon is shutting down")
        .hint("try again shortly, and continue where this stream ended; the sandbox keeps running")
        .into_detail()
}

/// The guest's next frame; `None` when the daemon shuts down.
pub async fn next_frame(
    app: &App,
    guest: &Guest,
    reader: &mut GuestReader,
) -> Option<Result<Option<Frame>, ApiError>> {
    let frame = app.draining.run_until_cancelled(reader.next()).await?;
    Some(frame.map_err(|error| guest.error(error).into()))
}

/// The guest closed the connection before the end.
pub fn hung_up(guest: &Guest) -> ApiError {
    guest.error(burrow_guest::client::GuestError::HungUp).into()
}

/// The guest violated the protocol.
pub fn out_of_turn(guest: &Guest) -> ApiError {
    guest.error(burrow_guest::client::GuestError::OutOfTurn).into()
}

/// A body made of the `Bytes` frames up to `End`, at most `length` bytes.
///
/// Frames are passed on without a copy. If the connection breaks, the response is interrupted too, so that no client takes
/// a part for the whole. A transfer ends by itself: shutdown lets it continue for as long as it waits.
#[derive(Debug)]
pub struct GuestBody {
    guest: Guest,
    reader: GuestReader,
    /// Kept open: the guest would take its closing for a disconnected reader.
    _writer: GuestWriter,
    /// Bytes that are still announced; `None` if their number is unknown.
    left: Option<u64>,
}

impl GuestBody {
    pub fn new(guest: Guest, connection: Connection<GuestStream>, left: Option<u64>) -> Self {
        let (reader, writer) = connection.split();
        Self { guest, reader, _writer: writer, left }
    }

    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::try_unfold(self, |mut body| async move {
            let next = body.next().await;
            next.map(|bytes| bytes.map(|bytes| (bytes, body)))
        })
    }

    /// The next bytes, or `None` at the end.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let frame =
                self.reader.next_piece().await.map_err(|error| broken(self.guest.error(error).into()))?;
            match frame {
                Some(Frame::Bytes(bytes)) if bytes.is_empty() => {}
                Some(Frame::Bytes(bytes)) => return Ok(Some(self.within(bytes))),
                // Fewer bytes than announced: the file shrank while it was read.
                Some(Frame::End) if self.left.is_some() => return Err(broken(hung_up(&self.guest))),
                Some(Frame::End) => return Ok(None),
                Some(Frame::Control(_) | Frame::Stdout { .. } | Frame::Stderr { .. }) => {
                    return Err(broken(out_of_turn(&self.guest)));
                }
                None => return Err(broken(hung_up(&self.guest))),
            }
        }
    }

    /// Cuts the bytes to what was announced: the file may have grown.
    fn within(&mut self, mut bytes: Bytes) -> Bytes {
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
        }
        bytes
    }
}

/// The error that interrupts a response whose status has been sent.
pub fn broken(error: ApiError) -> io::Error {
    io::Error::other(error.into_detail().message)
}
