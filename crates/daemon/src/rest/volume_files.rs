//! Files of volumes, without a sandbox: read, write, list, remove.
//!
//! The host itself touches them, beneath the volume's root and following no link; see `volumes/src/shelf_files.rs`. Bodies pass
//! through in pieces, handed to a thread that may block.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{ErrorCode, FileEntry, FileList};
use burrow_engine::{EngineError, OpenShelf};
use burrow_volumes::shelf_files::{Ownership, ShelfEntry, ShelfFileError};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use utoipa::IntoParams;

use super::auth::{Executor, Reader};
use super::error::ApiError;
use super::input::Params;
use super::refusals::{Common, Shelving};
use super::upload::{SILENCE_MAX, linger};
use super::volumes::VolumePath;
use super::{App, Segments};
use crate::convert;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Pieces of a body that may wait for the disk.
const PIECES_MAX: usize = 4;

/// Uploads at once, of all tenants: some threads are for others.
const UPLOADS_MAX: usize = 64;
static UPLOADS: Semaphore = Semaphore::const_new(UPLOADS_MAX);

/// Runs work on files where it may block.
pub(crate) async fn off_thread<T: Send + 'static>(
    shelf: &OpenShelf,
    work: impl FnOnce(&OpenShelf) -> Result<T, ShelfFileError> + Send + 'static,
) -> Result<T, ApiError> {
    let shelf = shelf.clone();
    match tokio::task::spawn_blocking(move || work(&shelf)).await {
        Ok(done) => Ok(done.map_err(EngineError::from)?),
        Err(error) => Err(ApiError::internal("could not use the volume's files", error)),
    }
}

/// A file as a body of its own.
pub(crate) async fn download(shelf: OpenShelf, path: String) -> Result<Response, ApiError> {
    let (file, entry) = off_thread(&shelf, move |shelf| shelf.files.read(&path)).await?;
    let file = tokio::fs::File::from_std(file);
    // No more than was announced, whoever writes to it meanwhile; and the volume stays until the last byte is out.
    let pieces = stream::unfold((file, entry.bytes, shelf), |(mut file, left, shelf)| async move {
        if left == 0 {
            return None;
        }
        let wanted = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut piece = BytesMut::with_capacity(wanted);
        let read = match (&mut file).take(wanted as u64).read_buf(&mut piece).await {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            other => other,
        };
        match read {
            Ok(read) => Some((Ok(piece.freeze()), (file, left - read as u64, shelf))),
            Err(error) => Some((Err(error), (file, 0, shelf))),
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Nobody's page: a browser must not take a volume's file for one of ours.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_LENGTH, entry.bytes.into());
    let mode = HeaderValue::try_from(format!("{:04o}", entry.mode)).expect("digits are a header value");
    headers.insert("x-burrow-mode", mode);
    Ok(response)
}

/// A body as a file: replaced as a whole, or not at all.
pub(crate) async fn upload(
    shelf: OpenShelf,
    path: String,
    owner: Ownership,
    parents: bool,
    mut body: Body,
) -> Result<ShelfEntry, ApiError> {
    // Each holds a thread for as long as its client sends.
    let Ok(_place) = UPLOADS.try_acquire() else {
        linger(body);
        let message = format!("{UPLOADS_MAX} uploads to volumes are under way already");
        return Err(ApiError::new(ErrorCode::TooMany, message).hint("try again when one of them has ended"));
    };
    let (sender, mut pieces) = mpsc::channel::<Option<Bytes>>(PIECES_MAX);
    let writing = tokio::task::spawn_blocking(move || {
        let mut incoming = shelf.files.begin(&path, parents)?;
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Some(bytes) => incoming.write(&bytes)?,
                None => return shelf.files.finish(incoming, owner).map(Some),
            }
        }
        // The body broke off: what was written has no name, and goes.
        Ok::<_, ShelfFileError>(None)
    });
    let sent = feed(&sender, &mut body).await;
    drop(sender);
    let written = writing.await.map_err(|error| ApiError::internal("could not write the file", error))?;
    if written.is_err() {
        linger(body);
    }
    let written = written.map_err(EngineError::from)?;
    sent?;
    written.ok_or_else(|| ApiError::invalid("could not read the body: it broke off"))
}

async fn feed(sender: &mpsc::Sender<Option<Bytes>>, body: &mut Body) -> Result<(), ApiError> {
    loop {
        let frame = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(frame) => frame,
            Err(_) => return Err(ApiError::invalid("could not read the body: the client fell silent")),
        };
        let piece = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Some(bytes),
                // Trailers carry nothing we know.
                Err(_) => continue,
            },
            Some(Err(error)) => {
                return Err(ApiError::invalid("could not read the body: it broke off").cause(error));
            }
            None => None,
        };
        let last = piece.is_none();
        // Whoever writes has failed; its error comes with its end.
        if sender.send(piece).await.is_err() || last {
            return Ok(());
        }
    }
}

/// Which file of a volume.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileParams {
    /// From the volume's root on.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
}

#[utoipa::path(
    get, path = "/v1/volumes/{volume}/files", tag = "volumes", params(VolumePath, FileParams),
    responses(
        (status = 200, description = "Its content", body = Vec<u8>, content_type = "application/octet-stream"),
        Common, Shelving,
    ),
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<FileParams>,
) -> Result<Response, ApiError> {
    let shelf = path.resolve(&app, &caller).await?;
    download(app.engine.open_shelf(caller.tenant(), &shelf.id).await?, params.path).await
}

/// Where and how to write.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteParams {
    /// From the volume's root on.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Octal permission bits; `0644` when absent.
    #[param(pattern = "^[0-7]{1,4}$")]
    mode: Option<String>,
    /// Owner, as sandboxes number users; root when absent.
    uid: Option<u32>,
    /// Owning group; root's when absent.
    gid: Option<u32>,
    /// Make missing parent directories; false when absent.
    #[serde(default)]
    #[param(required = false)]
    parents: bool,
}

#[utoipa::path(
    put, path = "/v1/volumes/{volume}/files", tag = "volumes", params(VolumePath, WriteParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "Replaced as a whole, or not at all", body = FileEntry),
        Common, Shelving,
    ),
)]
pub(crate) async fn write(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<WriteParams>,
    body: Body,
) -> Result<Json<FileEntry>, ApiError> {
    let mode = params.mode.as_deref().map(|text| convert::parse_mode("mode", text)).transpose()?;
    let owner = Ownership { uid: params.uid, gid: params.gid, mode };
    let shelf = path.resolve(&app, &caller).await?;
    let shelf = app.engine.open_shelf(caller.tenant(), &shelf.id).await?;
    Ok(Json(convert::volume_entry(upload(shelf, params.path, owner, params.parents, body).await?)))
}

#[utoipa::path(
    delete, path = "/v1/volumes/{volume}/files", tag = "volumes", params(VolumePath, FileParams),
    responses((status = 204, description = "Gone; a directory with all in it"), Common, Shelving),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<FileParams>,
) -> Result<StatusCode, ApiError> {
    let shelf = path.resolve(&app, &caller).await?;
    let shelf = app.engine.open_shelf(caller.tenant(), &shelf.id).await?;
    off_thread(&shelf, move |shelf| shelf.files.remove(&params.path)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A directory, from the volume's root on; the root when absent.
    #[param(max_length = 4096)]
    path: Option<String>,
    /// Levels; 1 when absent.
    #[param(minimum = 1, maximum = 64)]
    depth: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/volumes/{volume}/files/list", tag = "volumes", params(VolumePath, ListParams),
    responses((status = 200, description = "By path", body = FileList), Common, Shelving),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<ListParams>,
) -> Result<Json<FileList>, ApiError> {
    let shelf = path.resolve(&app, &caller).await?;
    let shelf = app.engine.open_shelf(caller.tenant(), &shelf.id).await?;
    let (path, depth) = (params.path.unwrap_or_default(), params.depth.unwrap_or(1));
    let entries = off_thread(&shelf, move |shelf| shelf.files.list(&path, depth)).await?;
    Ok(Json(FileList { entries: entries.into_iter().map(convert::volume_entry).collect() }))
}
