//! Files of volumes, accessed without a sandbox: read, write, list, remove.
//!
//! The host itself touches them, beneath the volume's root and following no link; see `volumes/src/volume_files.rs`. Bodies pass
//! through in pieces, handed to a thread that may block.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{ErrorCode, FileEntry, FileList};
use burrow_disks::volume_files::{Ownership, VolumeEntry, VolumeFileError};
use burrow_engine::{EngineError, OpenVolume};
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
use super::refusals::{Common, VolumeRefusals};
use super::upload::{SILENCE_MAX, linger};
use super::volumes::VolumePath;
use super::{App, Segments};
use crate::convert;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Pieces of a body that may wait for the disk.
const PIECES_MAX: usize = 4;

/// Concurrent uploads of all tenants, so that some threads remain for other work.
const UPLOADS_MAX: usize = 64;
static UPLOADS: Semaphore = Semaphore::const_new(UPLOADS_MAX);

/// Runs work on files in a thread that may block.
pub(crate) async fn off_thread<T: Send + 'static>(
    volume: &OpenVolume,
    work: impl FnOnce(&OpenVolume) -> Result<T, VolumeFileError> + Send + 'static,
) -> Result<T, ApiError> {
    let volume = volume.clone();
    match tokio::task::spawn_blocking(move || work(&volume)).await {
        Ok(done) => Ok(done.map_err(EngineError::from)?),
        Err(error) => Err(ApiError::internal("could not use the volume's files", error)),
    }
}

/// A file as a response body.
pub(crate) async fn download(volume: OpenVolume, path: String) -> Result<Response, ApiError> {
    let (file, entry) = off_thread(&volume, move |volume| volume.files.read(&path)).await?;
    let file = tokio::fs::File::from_std(file);
    // No more than was announced, even if the file grows in the meantime. The volume stays open until the last byte is
    // sent.
    let pieces = stream::unfold((file, entry.bytes, volume), |(mut file, left, volume)| async move {
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
            Ok(read) => Some((Ok(piece.freeze()), (file, left - read as u64, volume))),
            Err(error) => Some((Err(error), (file, 0, volume))),
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A browser must not interpret a volume's file as a page of the daemon.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_LENGTH, entry.bytes.into());
    let mode = HeaderValue::try_from(format!("{:04o}", entry.mode)).expect("digits are a header value");
    headers.insert("x-burrow-mode", mode);
    Ok(response)
}

/// Writes a body to a file, which is replaced atomically.
pub(crate) async fn upload(
    volume: OpenVolume,
    path: String,
    owner: Ownership,
    parents: bool,
    mut body: Body,
) -> Result<VolumeEntry, ApiError> {
    // Each upload occupies a thread for as long as its client sends.
    let Ok(_place) = UPLOADS.try_acquire() else {
        linger(body);
        let message = format!("{UPLOADS_MAX} uploads to volumes are already in progress");
        return Err(ApiError::new(ErrorCode::TooMany, message).hint("try again when one of them has ended"));
    };
    let (sender, mut pieces) = mpsc::channel::<Option<Bytes>>(PIECES_MAX);
    let writing = tokio::task::spawn_blocking(move || {
        let mut incoming = volume.files.begin(&path, parents)?;
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Some(bytes) => incoming.write(&bytes)?,
                None => return volume.files.finish(incoming, owner).map(Some),
            }
        }
        // The body was interrupted: the unnamed temporary file is discarded.
        Ok::<_, VolumeFileError>(None)
    });
    let sent = feed(&sender, &mut body).await;
    drop(sender);
    let written = writing.await.map_err(|error| ApiError::internal("could not write the file", error))?;
    if written.is_err() {
        linger(body);
    }
    let written = written.map_err(EngineError::from)?;
    sent?;
    written.ok_or_else(|| ApiError::invalid("could not read the body: it was interrupted"))
}

async fn feed(sender: &mpsc::Sender<Option<Bytes>>, body: &mut Body) -> Result<(), ApiError> {
    loop {
        let frame = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(frame) => frame,
            Err(_) => return Err(ApiError::invalid("could not read the body: the client stopped sending")),
        };
        let piece = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Some(bytes),
                // Trailers contain nothing that is used.
                Err(_) => continue,
            },
            Some(Err(error)) => {
                return Err(ApiError::invalid("could not read the body: it was interrupted").cause(error));
            }
            None => None,
        };
        let last = piece.is_none();
        // If the writer has failed, it returns its error when it ends.
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
    /// Path relative to the volume's root.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
}

#[utoipa::path(
    get, path = "/v1/volumes/{volume}/files", tag = "volumes", params(VolumePath, FileParams),
    responses(
        (status = 200, description = "The content of the file", body = Vec<u8>, content_type = "application/octet-stream"),
        Common, VolumeRefusals,
    ),
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<FileParams>,
) -> Result<Response, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    download(app.engine.open_volume(caller.tenant(), &volume.id).await?, params.path).await
}

/// Where and how to write.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteParams {
    /// Path relative to the volume's root.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Octal permission bits; `0644` when absent.
    #[param(pattern = "^[0-7]{1,4}$")]
    mode: Option<String>,
    /// The owner's uid inside sandboxes; root when absent.
    uid: Option<u32>,
    /// The group's gid inside sandboxes; root's when absent.
    gid: Option<u32>,
    /// Create missing parent directories; false when absent.
    #[serde(default)]
    #[param(required = false)]
    parents: bool,
}

#[utoipa::path(
    put, path = "/v1/volumes/{volume}/files", tag = "volumes", params(VolumePath, WriteParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file was replaced atomically", body = FileEntry),
        Common, VolumeRefusals,
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
    let volume = path.resolve(&app, &caller).await?;
    let volume = app.engine.open_volume(caller.tenant(), &volume.id).await?;
    Ok(Json(convert::volume_entry(upload(volume, params.path, owner, params.parents, body).await?)))
}

#[utoipa::path(
    delete, path = "/v1/volumes/{volume}/files", tag = "volumes", params(VolumePath, FileParams),
    responses((status = 204, description = "Removed; a directory with its contents"), Common, VolumeRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<FileParams>,
) -> Result<StatusCode, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    let volume = app.engine.open_volume(caller.tenant(), &volume.id).await?;
    off_thread(&volume, move |volume| volume.files.remove(&params.path)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A directory, relative to the volume's root; the root when absent.
    #[param(max_length = 4096)]
    path: Option<String>,
    /// Depth of the listing; 1 when absent.
    #[param(minimum = 1, maximum = 64)]
    depth: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/volumes/{volume}/files/list", tag = "volumes", params(VolumePath, ListParams),
    responses((status = 200, description = "Sorted by path", body = FileList), Common, VolumeRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<VolumePath>,
    Params(params): Params<ListParams>,
) -> Result<Json<FileList>, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    let volume = app.engine.open_volume(caller.tenant(), &volume.id).await?;
    let (path, depth) = (params.path.unwrap_or_default(), params.depth.unwrap_or(1));
    let entries = off_thread(&volume, move |volume| volume.files.list(&path, depth)).await?;
    Ok(Json(FileList { entries: entries.into_iter().map(convert::volume_entry).collect() }))
}
