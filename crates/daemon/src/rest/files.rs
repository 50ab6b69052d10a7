//! Files: read, write, stat, mkdir, move, remove, chmod. The guest resolves every path inside the sandbox.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{ChangeMode, ErrorCode, FileEntry, MakeDirectory, MoveFile};
use burrow_engine::Guest;
use burrow_guest::protocol::{self, ReadFile, Request, WriteFile};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Caller, Executor, Reader};
use super::error::ApiError;
use super::input::{JsonBody, NoParams, Params};
use super::range::{self, ByteRange};
use super::refusals::{Common, GuestRefusals, WithBody};
use super::sandboxes::SandboxPath;
use super::stream::GuestBody;
use super::upload::upload;
use super::{App, Segments};
use crate::convert::{self, check_path, check_text, parse_mode};

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

/// A file, or the range of it that a `Range` header requests.
pub(crate) async fn read_file(guest: Guest, path: String, range: Option<&str>) -> Result<Response, ApiError> {
    match range.and_then(range::parse) {
        None => read_whole(guest, path).await,
        Some(asked) => read_range(guest, path, asked).await,
    }
}

async fn read_whole(guest: Guest, path: String) -> Result<Response, ApiError> {
    let mut connection = guest.open(&Request::Read(ReadFile { path, offset: 0, length: None })).await?;
    let entry: protocol::FileEntry = guest.reply(&mut connection).await?;
    if entry.size > 0 {
        let body = GuestBody::new(guest, connection, Some(entry.size));
        return Ok(answer(StatusCode::OK, &entry, Some(entry.size), Body::from_stream(body.into_stream())));
    }
    // A file of size 0 may have contents: files in `/proc` do.
    let mut body = GuestBody::new(guest, connection, None);
    let first = body.next().await.map_err(|error| ApiError::internal("could not read the file", error))?;
    Ok(match first {
        None => answer(StatusCode::OK, &entry, Some(0), Body::empty()),
        Some(first) => {
            let first = futures_util::stream::iter([Ok(first)]);
            let whole = futures_util::StreamExt::chain(first, body.into_stream());
            answer(StatusCode::OK, &entry, None, Body::from_stream(whole))
        }
    })
}

async fn read_range(guest: Guest, path: String, asked: ByteRange) -> Result<Response, ApiError> {
    let stat = Request::Stat { path: path.clone(), follow: true };
    let size = guest.call::<protocol::FileEntry>(&stat).await?.size;
    let Some((offset, length)) = asked.within(size) else {
        let message = format!("the range is outside the file, which has {size} bytes");
        let mut response = ApiError::new(ErrorCode::RangeNotSatisfiable, message).into_response();
        let value = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are a header value");
        response.headers_mut().insert(CONTENT_RANGE, value);
        return Ok(response);
    };
    let mut connection = guest.open(&Request::Read(ReadFile { path, offset, length: Some(length) })).await?;
    let entry: protocol::FileEntry = guest.reply(&mut connection).await?;
    let body = GuestBody::new(guest, connection, Some(length));
    let body = Body::from_stream(body.into_stream());
    let mut response = answer(StatusCode::PARTIAL_CONTENT, &entry, Some(length), body);
    let value = format!("bytes {offset}-{}/{size}", offset + length - 1);
    let value = HeaderValue::try_from(value).expect("digits are a header value");
    response.headers_mut().insert(CONTENT_RANGE, value);
    Ok(response)
}

fn answer(status: StatusCode, entry: &protocol::FileEntry, length: Option<u64>, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // A browser must not interpret a sandbox's file as a page of the daemon.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    let mode =
        HeaderValue::try_from(format!("{:04o}", entry.mode & 0o7777)).expect("digits are a header value");
    headers.insert("x-burrow-mode", mode);
    response
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
