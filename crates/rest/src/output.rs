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
use burrow_engine::{ExecEvent, ExecSession};
use burrow_guest::protocol::{Attach, ReadMode};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::execs::ExecPath;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals};
use burrow_http::stream::{broken, lines, shutting_down};

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
    let attach = Attach {
        exec: exec.to_string(),
        offset: params.offset,
        mode: ReadMode::Lossy,
        follow: params.follow,
    };
    let session = app.engine.attach_exec(caller.tenant(), &sandbox, attach).await?;
    let source = Source { app, session, ended: false };
    Ok(match params.format {
        Format::Ndjson => lines(chunks(source)),
        Format::Raw => raw(source),
    })
}

/// An attached connection.
pub(super) struct Source {
    app: Arc<App>,
    session: ExecSession,
    ended: bool,
}

impl Source {
    /// The next chunk. An error is the last chunk.
    async fn next(&mut self) -> OutputChunk {
        let chunk = match self.app.draining.run_until_cancelled(self.session.next()).await {
            None => OutputChunk::Error { error: shutting_down() },
            Some(Err(error)) => OutputChunk::Error { error: ApiError::from(error).into_detail() },
            Some(Ok(ExecEvent::Output { stream, offset, bytes })) => {
                return shown(convert::output_stream(stream), offset, &bytes);
            }
            Some(Ok(ExecEvent::Gap { from, to })) => return OutputChunk::Gap { from, to },
            Some(Ok(ExecEvent::Drained { offset })) => OutputChunk::Drained { offset },
            Some(Ok(ExecEvent::Exit(info))) => {
                OutputChunk::Exit { exec: Box::new(convert::exec_report(self.session.ended(info).await)) }
            }
        };
        self.ended = true;
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
            let event = source.app.draining.run_until_cancelled(source.session.next()).await;
            let event = event.ok_or_else(|| io::Error::other("the daemon is shutting down"))?;
            match event.map_err(|error| broken(error.into()))? {
                ExecEvent::Output { bytes, .. } => return Ok(Some((bytes, source))),
                ExecEvent::Gap { .. } => {}
                ExecEvent::Exit(_) | ExecEvent::Drained { .. } => return Ok::<_, io::Error>(None),
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
