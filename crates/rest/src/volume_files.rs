//! Files of volumes, accessed without a sandbox: read, write, list, remove.
//!
//! The host itself touches them, beneath the volume's root and following no link; see `volumes/src/volume_files.rs`. Bodies pass
//! through in pieces, handed to a thread that may block.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{FileEntry, FileList};
use burrow_disks::volume_files::Ownership;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::volumes::VolumePath;
use burrow_http::app::App;
use burrow_http::auth::{Executor, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, VolumeRefusals};
use burrow_http::volume_content::{download, off_thread, upload};

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
