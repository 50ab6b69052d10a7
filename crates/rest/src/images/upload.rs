//! Uploaded archives: images to import, and files for a build.

use std::io::{self, Read};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::ImageFrom;
use burrow_engine::{EngineError, ImageProgressSink};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::make::{self, Progress};
use super::work::Work;
use burrow_http::app::App;
use burrow_http::auth::Admin;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{NoParams, Params};
use burrow_http::refusals::{Common, SandboxRefusals, WithBody};
use burrow_http::upload::{SILENCE_MAX, linger};

/// Pieces of a body that may wait for the disk.
const PIECES_MAX: usize = 16;

/// The name of an imported image.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportParams {
    /// Name of the image. When absent, each image keeps the names from the archive.
    #[param(max_length = 255)]
    name: Option<String>,
}

#[utoipa::path(
    put, path = "/v1/images/import", tag = "images", params(ImportParams),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 200, description = "One `BuildProgress` per line; the last is `done` or `error`", body = Progress,
         content_type = "application/x-ndjson"),
        (status = 413, description = "The archive is larger than the limit", body = burrow_api::ErrorBody),
        (status = 422, description = "The archive does not contain a valid image", body = burrow_api::ErrorBody),
        Common,
    ),
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    caller: Admin,
    Params(params): Params<ImportParams>,
    body: Body,
) -> Result<Response, ApiError> {
    let name = params.name.as_deref().map(|name| convert::image_name("name", name)).transpose()?;
    let engine = app.engine.clone();
    let opened =
        receive(body, |stream| async move { engine.open_archive(stream, &ImageProgressSink::none()).await })
            .await?;
    let tenant = caller.tenant().clone();
    let work =
        Work::spawn(
            &app,
            |engine, tell| async move { engine.import_images(&tenant, opened, name, tell).await },
        );
    work.answer().await
}

#[utoipa::path(
    put, path = "/v1/images/build", tag = "images",
    request_body(
        content = Vec<u8>, content_type = "application/x-tar",
        description = "`request`: a `BuildImage` with `from` being `recipe` or `dockerfile`; `context/`: the files that it copies",
    ),
    responses(
        (status = 200, description = "One `BuildProgress` per line; the last is `done` or `error`", body = Progress,
         content_type = "application/x-ndjson"),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn build(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    body: Body,
) -> Result<Response, ApiError> {
    let engine = app.engine.clone();
    let context = receive(body, |stream| async move { engine.open_context(stream).await }).await?;
    let request = make::parse_request(&context.request, app.config.bounds.json_body_bytes)?;
    if !matches!(request.from, ImageFrom::Recipe | ImageFrom::Dockerfile) {
        return Err(ApiError::invalid("`from` must be `recipe` or `dockerfile` for a build with files"));
    }
    make::start(&app, caller.tenant(), &caller, request, Some(context)).await
}

/// Feeds a body to blocking code that reads it.
pub(crate) async fn receive<T, F>(
    mut body: Body,
    read: impl FnOnce(Box<dyn Read + Send>) -> F,
) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, EngineError>> + Send,
{
    let (pieces, receiver) = mpsc::channel(PIECES_MAX);
    let stream = Pieces { receiver, piece: Bytes::new() };
    let reading = read(Box::new(stream));
    tokio::pin!(reading);
    let mut broken = None;
    let early = tokio::select! {
        done = &mut reading => Some(done),
        fed = feed(&mut body, pieces) => {
            broken = fed;
            None
        }
    };
    match early {
        // The reader has stopped early because it rejects the archive. Keep reading the body while the client receives the
        // error.
        Some(done) => {
            if done.is_err() {
                linger(body);
            }
            Ok(done?)
        }
        None => match (reading.await, broken) {
            // If the body was interrupted, that is the error to report, whatever the reader made of the rest.
            (Err(_), Some(reason)) => Err(ApiError::invalid(format!("could not read the body: {reason}"))),
            (done, _) => Ok(done?),
        },
    }
}

/// Passes the body on until its end. If it is interrupted, returns why.
async fn feed(body: &mut Body, pieces: mpsc::Sender<io::Result<Bytes>>) -> Option<&'static str> {
    loop {
        let reason = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(None) => return None,
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => match pieces.send(Ok(data)).await {
                    Ok(()) => continue,
                    Err(_) => return None,
                },
                // Trailers contain nothing that is used.
                Err(_) => continue,
            },
            Ok(Some(Err(_))) => "it was interrupted",
            Err(_) => "the client stopped sending",
        };
        // The reader must not mistake a part for the whole.
        let _ = pieces.send(Err(io::ErrorKind::UnexpectedEof.into())).await;
        return Some(reason);
    }
}

/// A body, for blocking readers.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
