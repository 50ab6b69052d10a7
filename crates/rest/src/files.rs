//! Files: read, write, stat, mkdir, move, remove, chmod. The guest resolves every path inside the sandbox.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{ChangeMode, FileEntry, MakeDirectory, MoveFile};
use burrow_engine::Guest;
use burrow_guest::protocol::{Request, WriteFile};
use http::header::RANGE;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader};
use burrow_http::convert::{self, check_path, check_text, parse_mode};
use burrow_http::error::ApiError;
use burrow_http::guest_files::read_file;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals, WithBody};
use burrow_http::upload::upload;

/// Names a file.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    pub(super) path: String,
}

/// The guest agent of the sandbox that a path names.
pub(super) async fn guest(app: &App, caller: &Caller, path: &SandboxPath) -> Result<Guest, ApiError> {
    let id = caller.sandbox(app, &path.sandbox).await?;
    Ok(app.engine.guest(caller.tenant(), &id).await?)
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files", tag = "files",
    params(SandboxPath, PathParams, ("Range" = Option<String>, Header, description = "One range of bytes")),
    responses(
        (status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream",
         headers(("x-burrow-mode" = String, description = "Octal permission bits"))),
        (status = 206, description = "The range", body = Vec<u8>, content_type = "application/octet-stream",
         headers(("content-range" = String))),
        (status = 416, description = "The range is outside the file", body = burrow_api::ErrorBody),
        Common, GuestRefusals,
    ),
)]
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<PathParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_path("path", &params.path)?;
    let guest = guest(&app, &caller, &path).await?;
    read_file(guest, params.path, headers.get(RANGE).and_then(|value| value.to_str().ok())).await
}

/// Where and how to write.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Octal permission bits. When absent, an existing file keeps its own, and a new file gets `0644`.
    #[param(pattern = "^[0-7]{1,4}$")]
    mode: Option<String>,
    /// Owner. When absent, an existing file keeps its own, and a new file belongs to root.
    user: Option<String>,
    /// Create missing parent directories; false when absent.
    #[serde(default)]
    #[param(required = false)]
    parents: bool,
    /// Write at this offset of the existing file instead of replacing the whole file.
    offset: Option<u64>,
    /// Sync the file to disk before responding; false when absent.
    #[serde(default)]
    #[param(required = false)]
    sync: bool,
}

#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/files", tag = "files", params(SandboxPath, WriteParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The file was replaced atomically", body = FileEntry), Common, GuestRefusals),
)]
pub(crate) async fn write(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<WriteParams>,
    body: Body,
) -> Result<Json<FileEntry>, ApiError> {
    check_path("path", &params.path)?;
    if let Some(user) = &params.user {
        check_text("user", user)?;
    }
    let mode = params.mode.as_deref().map(|text| parse_mode("mode", text)).transpose()?;
    // Offsets are signed in the kernel's interface.
    if params.offset.is_some_and(|offset| i64::try_from(offset).is_err()) {
        return Err(ApiError::invalid("`offset` is too large"));
    }
    let guest = guest(&app, &caller, &path).await?;
    let WriteParams { path, user, parents, offset, sync, .. } = params;
    let (in_place, metadata) = (false, None);
    let request = Request::Write(WriteFile { path, mode, user, parents, offset, sync, in_place, metadata });
    Ok(Json(convert::file_entry(upload(&guest, &request, body).await?)))
}

/// What to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Remove a directory with its contents; false when absent.
    #[serde(default)]
    #[param(required = false)]
    recursive: bool,
}

#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/files", tag = "files", params(SandboxPath, RemoveParams),
    responses((status = 204, description = "Removed"), Common, GuestRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<RemoveParams>,
) -> Result<StatusCode, ApiError> {
    check_path("path", &params.path)?;
    let guest = guest(&app, &caller, &path).await?;
    guest.call::<()>(&Request::Remove { path: params.path, recursive: params.recursive }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which file to inspect.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// For a symbolic link: inspect its target (`true`) or the link itself (`false`, the default).
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/stat", tag = "files", params(SandboxPath, StatParams),
    responses((status = 200, description = "The file", body = FileEntry), Common, GuestRefusals),
)]
pub(crate) async fn stat(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<StatParams>,
) -> Result<Json<FileEntry>, ApiError> {
    check_path("path", &params.path)?;
    let guest = guest(&app, &caller, &path).await?;
    let entry = guest.call(&Request::Stat { path: params.path, follow: params.follow }).await?;
    Ok(Json(convert::file_entry(entry)))
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/mkdir", tag = "files", params(SandboxPath),
    request_body = MakeDirectory,
    responses((status = 200, description = "The directory", body = FileEntry), Common, GuestRefusals, WithBody),
)]
pub(crate) async fn make_directory(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<MakeDirectory>,
) -> Result<Json<FileEntry>, ApiError> {
    let MakeDirectory { path: directory, parents, mode, user } = body.value;
    check_path("path", &directory)?;
    if let Some(user) = &user {
        check_text("user", user)?;
    }
    let mode = mode.as_deref().map(|text| parse_mode("mode", text)).transpose()?;
    let guest = guest(&app, &caller, &path).await?;
    let entry = guest.call(&Request::MakeDir { path: directory, parents, mode, user }).await?;
    Ok(Json(convert::file_entry(entry)))
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/move", tag = "files", params(SandboxPath), request_body = MoveFile,
    responses((status = 200, description = "The file at its new path", body = FileEntry), Common, GuestRefusals, WithBody),
)]
pub(crate) async fn rename(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<MoveFile>,
) -> Result<Json<FileEntry>, ApiError> {
    let MoveFile { from, to } = body.value;
    check_path("from", &from)?;
    check_path("to", &to)?;
    let guest = guest(&app, &caller, &path).await?;
    Ok(Json(convert::file_entry(guest.call(&Request::Move { from, to }).await?)))
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/chmod", tag = "files", params(SandboxPath), request_body = ChangeMode,
    responses((status = 200, description = "The changed file", body = FileEntry), Common, GuestRefusals, WithBody),
)]
pub(crate) async fn change_mode(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<ChangeMode>,
) -> Result<Json<FileEntry>, ApiError> {
    check_path("path", &body.value.path)?;
    let mode = parse_mode("mode", &body.value.mode)?;
    let guest = guest(&app, &caller, &path).await?;
    let entry = guest.call(&Request::ChangeMode { path: body.value.path, mode }).await?;
    Ok(Json(convert::file_entry(entry)))
}
