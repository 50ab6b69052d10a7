//! Export and import: memory as JSON Lines, streamed in both directions.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_api::memory::{ImportedMemory, MemoryLine};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::access::{MemoryPath, MemoryReader, MemoryWriter, ReadParams, WriteParams};
use burrow_http::app::App;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments, parse};
use burrow_http::refusals::{Common, MemoryRefusals};
use burrow_http::upload::{SILENCE_MAX, linger};

/// Lines that may wait for a slow client.
const LINES_WAITING_MAX: usize = 64;

/// Lines per transaction of an import.
const LINES_AT_ONCE: usize = 500;

/// A transaction gets no more lines once their length exceeds this: the size of the space is checked in every transaction.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Maximum length of a line: the largest object of a memory, with every character escaped.
const LINE_BYTES_MAX: usize = 4 << 20;

#[utoipa::path(
    get, path = "/v1/memory/{of}/export", tag = "memory", params(MemoryPath, ReadParams),
    responses(
        (status = 200, description = "The whole memory, one object per line", body = MemoryLine,
         content_type = "application/x-ndjson"),
        Common, MemoryRefusals,
    ),
)]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<ReadParams>,
) -> Result<Response, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    let (sender, mut lines) = mpsc::channel::<String>(LINES_WAITING_MAX);
    let mut work = app.tasks.spawn(async move { space.view.export(sender).await });
    // An error before the first line becomes an error response; a later one interrupts the response.
    let first = lines.recv().await;
    if first.is_none() {
        ended(&mut work).await?;
    }
    let state = (first, lines, Some(work));
    let body = stream::try_unfold(state, |(first, mut lines, work)| async move {
        let line = match first {
            Some(line) => Some(line),
            None => lines.recv().await,
        };
        let Some(mut line) = line else {
            if let Some(mut work) = work {
                ended(&mut work).await.map_err(burrow_http::stream::broken)?;
            }
            return Ok(None);
        };
        line.push('\n');
        Ok::<_, io::Error>(Some((Bytes::from(line), (None, lines, work))))
    });
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/x-ndjson")
        .header(CACHE_CONTROL, "no-store")
        .body(Body::from_stream(body))
        .expect("the headers are constants"))
}

async fn ended<T>(
    work: &mut tokio::task::JoinHandle<Result<T, burrow_memory::MemoryError>>,
) -> Result<(), ApiError> {
    match work.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => Err(ApiError::internal("could not complete the export", error)),
    }
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/import", tag = "memory", params(MemoryPath, WriteParams),
    request_body(content = MemoryLine, content_type = "application/x-ndjson",
        description = "The lines of an export, one object per line"),
    responses((status = 200, description = "Counts of what was stored", body = ImportedMemory), Common, MemoryRefusals),
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    body: Body,
) -> Result<Json<ImportedMemory>, ApiError> {
    let space = caller.growing(&app, &path.of, &params).await?;
    let mut lines = Lines::new(body);
    let mut total = ImportedMemory { lines: 0, added: 0, updated: 0, existed: 0, erased: 0 };
    loop {
        let batch = match lines.batch().await {
            Ok(batch) => batch,
            Err(error) => {
                linger(lines.body);
                return Err(error);
            }
        };
        if batch.is_empty() {
            app.metrics.memory.added(total.added);
            return Ok(Json(total));
        }
        total.lines += batch.len() as u64;
        let view = space.view.clone();
        let done = match view.import(batch).await {
            Ok(done) => done,
            Err(error) => {
                linger(lines.body);
                return Err(error.into());
            }
        };
        total.added += done.added;
        total.updated += done.updated;
        total.existed += done.existed;
        total.erased += done.erased;
    }
}

/// Reads a body line by line.
struct Lines {
    body: Body,
    rest: BytesMut,
    /// Number of lines read, for messages.
    number: u64,
    ended: bool,
}

impl Lines {
    fn new(body: Body) -> Self {
        Self { body, rest: BytesMut::new(), number: 0, ended: false }
    }

    /// The next lines; empty at the end.
    async fn batch(&mut self) -> Result<Vec<burrow_memory::ExportLine>, ApiError> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < LINES_AT_ONCE && bytes < BATCH_BYTES_MAX {
            let Some(line) = self.next().await? else { break };
            bytes += line.len();
            self.number += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let number = self.number;
            let refused = |error: ApiError| {
                let message = format!("line {number}: {}", error.into_detail().message);
                ApiError::invalid(message)
                    .hint("the lines before it were stored; importing them again stores no duplicates")
            };
            if std::str::from_utf8(&line).is_err() {
                return Err(refused(ApiError::invalid("it is not UTF-8")));
            }
            batch.push(parse(&line).map_err(refused)?);
        }
        Ok(batch)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.rest[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.rest.split_to(searched + at + 1);
                line.truncate(searched + at);
                return Ok(Some(line.freeze()));
            }
            if self.rest.len() > LINE_BYTES_MAX {
                let message = format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number + 1);
                return Err(ApiError::new(ErrorCode::TooLarge, message));
            }
            if self.ended {
                return Ok((!self.rest.is_empty()).then(|| self.rest.split().freeze()));
            }
            searched = self.rest.len();
            match timeout(SILENCE_MAX, self.body.frame()).await {
                Err(_) => {
                    return Err(ApiError::invalid("could not read the body: the client stopped sending"));
                }
                Ok(None) => self.ended = true,
                Ok(Some(Err(error))) => {
                    return Err(ApiError::invalid("could not read the body: it was interrupted").cause(error));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
