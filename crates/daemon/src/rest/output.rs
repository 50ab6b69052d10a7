//! `GET …/output`: what an exec wrote, from an offset on, as NDJSON with offsets or as plain bytes.
//!
//! Readers here never slow the process down: one that falls behind the ring is told of a gap.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_api::{OutputChunk, OutputStream};
use burrow_engine::Guest;
use burrow_guest::client::parse;
use burrow_guest::protocol::{Attach, AttachNotice, ExecInfo, Frame, ReadMode, Request};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::auth::Reader;
use super::egress::with_denials;
use super::error::ApiError;
use super::execs::ExecPath;
use super::input::Params;
use super::refusals::{ByGuest, Common};
use super::remember::{Tails, remembered};
use super::stream::{
    GuestReader, GuestWriter, broken, hung_up, lines, next_frame, out_of_turn, shutting_down,
};
use super::{App, Segments, rollback};
use crate::convert;

/// Which part of the output, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputParams {
    /// First byte wanted; 0 when absent.
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// Go on until the exec ends; false when absent: end when all there is has been sent.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
    /// `ndjson` when absent.
    #[serde(default)]
    #[param(required = false, inline)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    #[default]
    Ndjson,
    Raw,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}/output", tag = "execs", params(ExecPath, OutputParams),
    responses(
        (status = 200, description = "One `OutputChunk` per line, or the bytes of both streams as they came",
         content((OutputChunk = "application/x-ndjson"), (Vec<u8> = "application/octet-stream"))),
        Common, ByGuest,
    ),
)]
pub(crate) async fn output(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<ExecPath>,
    Params(params): Params<OutputParams>,
) -> Result<Response, ApiError> {
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    // First of all: what failed already is undone as soon as nobody reads what it had to say.
    let held = app.rollbacks.reader(&exec).filter(|_| params.follow);
    let guest = app.engine.guest(caller.tenant(), &sandbox).await?;
    let request = Request::Attach(Attach {
        exec: exec.to_string(),
        offset: params.offset,
        mode: ReadMode::Lossy,
        follow: params.follow,
    });
    let mut connection = guest.open(&request).await?;
    let _info: ExecInfo = guest.reply(&mut connection).await?;
    let (reader, writer) = connection.split();
    let source = Source { app, guest, reader, _writer: writer, held, tails: Tails::default(), ended: false };
    Ok(match params.format {
        Format::Ndjson => lines(chunks(source)),
        Format::Raw => raw(source),
    })
}

/// An attached connection.
pub(super) struct Source {
    app: Arc<App>,
    guest: Guest,
    reader: GuestReader,
    /// Kept open: a guest takes its closing for the reader's hanging up.
    _writer: GuestWriter,
    /// Of an exec that is undone if it fails, which waits for us.
    held: Option<rollback::Reader>,
    tails: Tails,
    ended: bool,
}

impl Source {
    /// The next part; an error is a part too, the last one.
    async fn next(&mut self) -> OutputChunk {
        let chunk = match next_frame(&self.app, &self.guest, &mut self.reader).await {
            None => OutputChunk::Error { error: shutting_down() },
            Some(Err(error)) => OutputChunk::Error { error: error.into_detail() },
            Some(Ok(None)) => OutputChunk::Error { error: hung_up(&self.guest).into_detail() },
            Some(Ok(Some(frame))) => {
                if let Some((stream, _, bytes)) = convert::stream_of(&frame) {
                    self.tails.push(stream, bytes);
                }
                chunk(&self.guest, &frame)
            }
        };
        let chunk = match chunk {
            OutputChunk::Exit { exec } => {
                let tenant = &self.guest.sandbox().tenant;
                let exec = with_denials(&self.app, tenant, *exec).await;
                let exec = rollback::last_word(&self.app, self.held.take(), exec).await;
                let exec = remembered(&self.app, &self.guest, exec, &self.tails).await;
                OutputChunk::Exit { exec: Box::new(exec) }
            }
            chunk @ (OutputChunk::Output { .. }
            | OutputChunk::Gap { .. }
            | OutputChunk::Drained { .. }
            | OutputChunk::Error { .. }) => chunk,
        };
        self.ended = match &chunk {
            OutputChunk::Output { .. } | OutputChunk::Gap { .. } => false,
            OutputChunk::Exit { .. } | OutputChunk::Drained { .. } | OutputChunk::Error { .. } => true,
        };
        chunk
    }
}

fn chunks(source: Source) -> impl futures_util::Stream<Item = OutputChunk> + Send + 'static {
    stream::unfold(source, |mut source| async move {
        if source.ended {
            return None;
        }
        let chunk = source.next().await;
        Some((chunk, source))
    })
}

fn chunk(guest: &Guest, frame: &Frame) -> OutputChunk {
    if let Some((stream, offset, bytes)) = convert::stream_of(frame) {
        return shown(stream, offset, bytes);
    }
    match notice(guest, frame) {
        Ok(AttachNotice::Gap { from, to }) => OutputChunk::Gap { from, to },
        Ok(AttachNotice::Exit(info)) => {
            OutputChunk::Exit { exec: Box::new(convert::exec_started(&guest.sandbox().id, info)) }
        }
        Ok(AttachNotice::Drained { offset }) => OutputChunk::Drained { offset },
        Err(error) => OutputChunk::Error { error: error.into_detail() },
    }
}

/// What a frame that is no output says.
pub(crate) fn notice(guest: &Guest, frame: &Frame) -> Result<AttachNotice, ApiError> {
    match frame {
        Frame::Control(json) => parse(json).map_err(|error| guest.error(error).into()),
        Frame::Bytes(_) | Frame::Stdout { .. } | Frame::Stderr { .. } | Frame::End => Err(out_of_turn(guest)),
    }
}

fn shown(stream: OutputStream, offset: u64, bytes: &Bytes) -> OutputChunk {
    match std::str::from_utf8(bytes) {
        Ok(text) => OutputChunk::Output { stream, offset, text: Some(text.to_owned()), base64: None },
        Err(_) => OutputChunk::Output { stream, offset, text: None, base64: Some(STANDARD.encode(bytes)) },
    }
}

/// The bytes alone. What breaks the stream breaks the answer.
fn raw(source: Source) -> Response {
    let bytes = stream::try_unfold(source, |mut source| async move {
        loop {
            let frame = next_frame(&source.app, &source.guest, &mut source.reader).await;
            let frame = frame.ok_or_else(|| io::Error::other("the daemon is shutting down"))?;
            let frame =
                frame.and_then(|frame| frame.ok_or_else(|| hung_up(&source.guest))).map_err(broken)?;
            if let Some((_, _, bytes)) = convert::stream_of(&frame) {
                let bytes = bytes.clone();
                return Ok(Some((bytes, source)));
            }
            match notice(&source.guest, &frame).map_err(broken)? {
                AttachNotice::Gap { .. } => {}
                AttachNotice::Exit(_) | AttachNotice::Drained { .. } => return Ok::<_, io::Error>(None),
            }
        }
    });
    Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CACHE_CONTROL, "no-store")
        .body(Body::from_stream(bytes))
        .expect("the headers are constants")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_text_where_it_can_be_and_base64_where_not() {
        let chunk = shown(OutputStream::Stdout, 3, &Bytes::from_static(b"caf\xc3\xa9"));
        assert!(
            matches!(chunk, OutputChunk::Output { text: Some(text), base64: None, .. } if text == "café")
        );
        let chunk = shown(OutputStream::Stdout, 3, &Bytes::from_static(b"caf\xc3"));
        assert!(
            matches!(chunk, OutputChunk::Output { text: None, base64: Some(text), .. } if text == "Y2Fmww==")
        );
    }
}
