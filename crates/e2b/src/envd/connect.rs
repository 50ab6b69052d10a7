//! Connect's message framing, JSON only: one byte of flags, four bytes of length, a message.
//!
//! ```text
//!   00 | 0000001a | {"event":{"start":{"pid":42}}}      a message
//!   02 | 00000002 | {}                                  the end, with `error` in it if there was one
//! ```
//!
//! Lengths are limited; compressed messages are rejected, because no client sends them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use burrow_model::SandboxId;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::error::{RpcCode, RpcError};
use burrow_gateway::e2b::reach::{self, gone};
use burrow_http::app::App;
use burrow_http::input::{JsonBody, parse};

const HEADER_BYTES: usize = 5;
const COMPRESSED: u8 = 1;
const END: u8 = 2;

/// Maximum time without data in the middle of a message.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A call with one message and one response.
#[derive(Debug)]
pub(super) struct UnaryCall<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for UnaryCall<T> {
    type Rejection = RpcError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, RpcError> {
        let JsonBody { value, .. } = JsonBody::from_request(request, app).await?;
        Ok(Self(value))
    }
}

/// A call with one message and a streamed response. Errors are sent as the end of the stream.
#[derive(Debug)]
pub(super) struct StreamedCall<T>(pub(super) Result<T, RpcError>);

impl<T: DeserializeOwned + Send> FromRequest<Arc<App>> for StreamedCall<T> {
    type Rejection = RpcError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, RpcError> {
        check_type(&request)?;
        let mut messages = Messages::new(request.into_body(), app.config.bounds.json_body_bytes);
        Ok(Self(messages.only().await))
    }
}

pub(super) fn check_type(request: &Request) -> Result<(), RpcError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim() == "application/connect+json" {
        return Ok(());
    }
    Err(RpcError::new(
        RpcCode::Unimplemented,
        "Burrow supports Connect with JSON only: `application/connect+json`",
    ))
}

/// Incoming messages.
pub(super) struct Messages {
    body: Body,
    decoder: Decoder,
}

impl Messages {
    pub(super) fn new(body: Body, bytes_max: usize) -> Self {
        Self { body, decoder: Decoder { buffer: BytesMut::new(), bytes_max } }
    }

    /// `None` at the end.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RpcError> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(parse(&message)?));
            }
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            match frame
                .map_err(|_| RpcError::invalid("the client stopped sending in the middle of a message"))?
            {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.decoder.push(&bytes)?;
                    }
                }
                Some(Err(_)) => return Err(RpcError::invalid("the body was interrupted")),
                None if self.decoder.buffer.is_empty() => return Ok(None),
                None => return Err(RpcError::invalid("the body ends in the middle of a message")),
            }
        }
    }

    async fn only<T: DeserializeOwned + Send>(&mut self) -> Result<T, RpcError> {
        let first = self.next().await?.ok_or_else(|| RpcError::invalid("the body contains no message"))?;
        match self.next::<serde_json::Value>().await? {
            None => Ok(first),
            Some(_) => Err(RpcError::invalid("the body contains more than one message")),
        }
    }
}

/// Splits bytes into messages.
struct Decoder {
    buffer: BytesMut,
    bytes_max: usize,
}

impl Decoder {
    /// At most one message is buffered, and the bytes that arrived with its end.
    fn push(&mut self, bytes: &[u8]) -> Result<(), RpcError> {
        self.buffer.extend_from_slice(bytes);
        self.length().map(|_| ())
    }

    fn next(&mut self) -> Result<Option<Bytes>, RpcError> {
        let Some(length) = self.length()? else { return Ok(None) };
        if self.buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        let flags = self.buffer[0];
        self.buffer.advance(HEADER_BYTES);
        let message = self.buffer.split_to(length).freeze();
        match flags {
            0 => Ok(Some(message)),
            COMPRESSED => {
                Err(RpcError::new(RpcCode::Unimplemented, "Burrow does not support compressed messages"))
            }
            _ => Err(RpcError::invalid("a message has unknown flags")),
        }
    }

    /// The length field of the next message, once it was received.
    fn length(&self) -> Result<Option<usize>, RpcError> {
        let Some(bytes) = self.buffer.get(1..HEADER_BYTES).and_then(|bytes| bytes.first_chunk::<4>()) else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*bytes)).unwrap_or(usize::MAX);
        if length > self.bytes_max {
            return Err(RpcError::invalid(format!("a message is longer than {} bytes", self.bytes_max)));
        }
        Ok(Some(length))
    }
}

/// One message of a response.
pub(super) fn message(value: &impl Serialize) -> Bytes {
    // A serialisation failure is a bug in Burrow, and an empty message is harmless.
    enveloped(0, &serde_json::to_vec(value).unwrap_or_else(|_| b"{}".to_vec()))
}

pub(super) fn enveloped(flags: u8, payload: &[u8]) -> Bytes {
    let length = u32::try_from(payload.len()).expect("no message of ours is that long");
    let mut bytes = BytesMut::with_capacity(HEADER_BYTES + payload.len());
    bytes.put_u8(flags);
    bytes.put_u32(length);
    bytes.put_slice(payload);
    bytes.freeze()
}

/// The last message.
pub(super) fn end(error: Option<&RpcError>) -> Bytes {
    match error {
        None => enveloped(END, b"{}"),
        Some(error) => enveloped(END, error.as_end().to_string().as_bytes()),
    }
}

pub(super) fn streamed(messages: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    cuttable(messages.map(Ok))
}

/// The stream is interrupted: the client sees a closed connection, and no last message.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox is gone")]
pub(super) struct StreamCut;

/// The same for a stream that may be interrupted.
pub(super) fn cuttable(messages: impl Stream<Item = Result<Bytes, StreamCut>> + Send + 'static) -> Response {
    Response::builder()
        .header(CONTENT_TYPE, "application/connect+json")
        .header(CACHE_CONTROL, "no-store")
        // Buffering proxies would hold a message back until the next one.
        .header("x-accel-buffering", "no")
        .body(Body::from_stream(messages))
        .expect("the headers are constants")
}

/// The response for a stream that failed before it began.
pub(super) fn failed(error: &RpcError) -> Response {
    streamed(futures_util::stream::iter([end(Some(error))])).into_response()
}

/// The response to a streaming call that failed before its stream began. The status of [`failed`] is 200,
/// which [`reach::answer_for_gone`] does not recognise as a failure.
pub(super) async fn broken(app: &App, sandbox: &SandboxId, error: &RpcError) -> Response {
    match reach::is_ended(app, sandbox).await {
        true => gone(sandbox.as_str()),
        false => failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder(bytes_max: usize) -> Decoder {
        Decoder { buffer: BytesMut::new(), bytes_max }
    }

    #[test]
    fn messages_are_decoded_from_chunks_of_any_size() {
        let bytes = [enveloped(0, b"{}"), enveloped(0, b""), enveloped(0, b"[1,2]")].concat();
        for size in 1..=bytes.len() {
            let (mut decoder, mut seen) = (decoder(64), Vec::new());
            for piece in bytes.chunks(size) {
                decoder.push(piece).unwrap();
                while let Some(message) = decoder.next().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, [&b"{}"[..], b"", b"[1,2]"], "in pieces of {size}");
            assert!(decoder.buffer.is_empty());
        }
    }

    #[test]
    fn too_large_lengths_are_rejected() {
        for length in [65u32, 1 << 20, u32::MAX] {
            let mut header = vec![0];
            header.extend_from_slice(&length.to_be_bytes());
            assert!(decoder(64).push(&header).is_err(), "{length}");
        }
        let mut decoder = decoder(64);
        decoder.push(&[0, 0, 0, 0]).unwrap();
        assert!(decoder.next().unwrap().is_none(), "an incomplete header");
    }

    #[test]
    fn compressed_messages_and_unknown_flags_are_rejected() {
        for flags in [COMPRESSED, END, 4, 0xff] {
            let mut decoder = decoder(64);
            decoder.push(&enveloped(flags, b"{}")).unwrap();
            assert!(decoder.next().is_err(), "{flags}");
        }
    }

    #[tokio::test]
    async fn a_call_has_exactly_one_message() {
        let only = async |bytes: Vec<u8>| {
            let mut messages = Messages::new(Body::from(bytes), 64);
            messages.only::<serde_json::Value>().await.ok()
        };
        assert!(only(enveloped(0, b"{}").to_vec()).await.is_some());
        for bad in [
            Vec::new(),
            enveloped(0, b"not json").to_vec(),
            enveloped(0, b"{}")[..4].to_vec(),
            [enveloped(0, b"{}"), enveloped(0, b"{}")].concat(),
            [enveloped(0, b"{}"), Bytes::from_static(b"x")].concat(),
        ] {
            assert!(only(bad.clone()).await.is_none(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_message_contains_the_error() {
        assert_eq!(&end(None)[..], b"\x02\x00\x00\x00\x02{}");
        let last_message = end(Some(&RpcError::new(RpcCode::NotFound, "gone")));
        assert_eq!(&last_message[5..], br#"{"error":{"code":"not_found","message":"gone"}}"#);
    }
}
