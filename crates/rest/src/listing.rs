//! `GET …/files/list`: a directory's entries, passed on as the guest sends them.
//!
//! A hundred thousand entries take tens of megabytes, so the response is written piece by piece: no more than one frame is
//! held in memory.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use burrow_api::FileList;
use serde::Deserialize;
use utoipa::IntoParams;

use super::files::guest;
use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::convert::{self, check_path};
use burrow_http::error::ApiError;
use burrow_http::guest_listing::{DEPTH_MAX, listed};
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals};

/// What to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Absolute path inside the sandbox.
    #[param(min_length = 1, max_length = 4096)]
    path: String,
    /// Depth of the listing; 1, only the directory's own entries, when absent.
    #[param(minimum = 1, maximum = 64)]
    depth: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/list", tag = "files", params(SandboxPath, ListParams),
    responses((status = 200, description = "The directory's entries", body = FileList), Common, GuestRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    check_path("path", &params.path)?;
    let depth = params.depth.unwrap_or(1);
    if !(1..=DEPTH_MAX).contains(&depth) {
        return Err(ApiError::invalid(format!("`depth` must be from 1 to {DEPTH_MAX}")));
    }
    let guest = guest(&app, &caller, &path).await?;
    listed(guest, params.path, depth, convert::file_entry).await
}
