//! `GET …/output`: the output of an exec from an offset on, as NDJSON with offsets or as plain bytes.
//!
//! Readers never slow the process down: if one falls behind the ring buffer, it receives a gap.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_api::{OutputChunk, OutputStream};
use burrow_engine::Guest;
use burrow_guest::protocol::{Attach, AttachNotice, ExecInfo, Frame, ReadMode, Request};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::egress::with_denials;
use super::execs::ExecPath;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals};
use burrow_http::remember::{Tails, remembered};
use burrow_http::stream::{
    GuestReader, GuestWriter, broken, hung_up, lines, next_frame, notice, shutting_down,
};
use burrow_http::{convert, rollback};

/// Which part of the output, and in which format.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputParams {
    /// The offset of the first byte to send; 0 when absent.
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// Continue until the exec ends. When false or absent, end after all existing output was sent.
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
        (status = 200, description = "One `OutputChunk` per line, or the raw bytes of both streams, in the order of their arrival",
         content((OutputChunk = "application/x-ndjson"), (Vec<u8> = "application/octet-stream"))),
        Common, GuestRefusals,
    ),
)]
pub(crate) async fn output(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<ExecPath>,
    Params(params): Params<OutputParams>,
) -> Result<Response, ApiError> {
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    // First of all: a failed command is rolled back as soon as no client reads its output any more.
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
    /// Kept open: the guest would take its closing for a disconnected reader.
    _writer: GuestWriter,
    /// For an exec with a rollback, which waits for its readers.
    held: Option<rollback::Reader>,
    tails: Tails,
    ended: bool,
}

impl Source {
    /// The next chunk. An error is the last chunk.
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
                let exec = rollback::final_exec(&self.app, self.held.take(), exec).await;
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

fn shown(stream: OutputStream, offset: u64, bytes: &Bytes) -> OutputChunk {
    match std::str::from_utf8(bytes) {
        Ok(text) => OutputChunk::Output { stream, offset, text: Some(text.to_owned()), base64: None },
        Err(_) => OutputChunk::Output { stream, offset, text: None, base64: Some(STANDARD.encode(bytes)) },
    }
}

/// The bytes only. An error interrupts the response.
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
    fn output_is_text_if_it_is_utf8_and_base64_otherwise() {
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
