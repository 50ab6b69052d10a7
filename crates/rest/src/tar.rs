//! Whole directories as tar archives, in both directions.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_api::TarSummary;
use burrow_guest::protocol::{self, Request, TarIn, TarOut};
use http::header::CONTENT_TYPE;
use serde::Deserialize;
use utoipa::IntoParams;

use super::files::{PathParams, guest};
use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{Executor, Reader};
use burrow_http::convert::{check_path, check_text};
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals};
use burrow_http::stream::GuestBody;

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/tar", tag = "files", params(SandboxPath, PathParams),
    responses(
        (status = 200, description = "A tar archive of the file or directory", body = Vec<u8>,
         content_type = "application/x-tar"),
        Common, GuestRefusals,
    ),
)]
pub(crate) async fn download(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<PathParams>,
) -> Result<Response, ApiError> {
    check_path("path", &params.path)?;
    let guest = guest(&app, &caller, &path).await?;
    let mut connection = guest.open(&Request::TarOut(TarOut { path: params.path })).await?;
    guest.reply::<()>(&mut connection).await?;
    let body = GuestBody::new(guest, connection, None);
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/x-tar")
        .body(Body::from_stream(body.into_stream()))
        .expect("the header is a constant"))
}

/// Where and how to unpack.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnpackParams {
    /// A directory inside the sandbox, which is created if it does not exist.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Owner of all unpacked files; the ids from the archive when absent.
    user: Option<String>,
}

#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/files/tar", tag = "files", params(SandboxPath, UnpackParams),
    request_body(content = Vec<u8>, content_type = "application/x-tar"),
    responses(
        (status = 200, description = "Unpacked; an archive with unsafe entries is rejected as a whole", body = TarSummary),
        Common, GuestRefusals,
    ),
)]
pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<UnpackParams>,
    body: Body,
) -> Result<Json<TarSummary>, ApiError> {
    check_path("path", &params.path)?;
    if let Some(user) = &params.user {
        check_text("user", user)?;
    }
    let guest = guest(&app, &caller, &path).await?;
    let request = Request::TarIn(TarIn { path: params.path, user: params.user });
    let summary: protocol::TarSummary = burrow_http::upload::upload(&guest, &request, body).await?;
    Ok(Json(TarSummary { entries: summary.entries, bytes: summary.bytes }))
}
