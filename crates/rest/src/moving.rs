//! Moving snapshots between hosts: `GET /v1/snapshots/{snapshot}/export`, `POST /v1/snapshots`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::ImportedSnapshot;
use burrow_engine::{ExportOptions, ImportOptions};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::IntoParams;

use super::images::upload::receive;
use super::snapshots::SnapshotPath;
use burrow_http::app::App;
use burrow_http::auth::{Reader, UnboundExecutor};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, ObjectRefusals};

/// The header with the key that signs an export.
const SIGNER: &str = "x-burrow-signer";

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportParams {
    /// Export only the differences from this snapshot, which the receiver has: its id, a unique prefix of its id, or its
    /// name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    since: Option<String>,
    /// Leave the processes out.
    #[serde(default)]
    files_only: bool,
}

#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}/export", tag = "snapshots", params(SnapshotPath, ExportParams),
    responses(
        (status = 200, description = "One file with the files, processes and memory of the snapshot", body = Vec<u8>,
         content_type = "application/octet-stream",
         headers(("x-burrow-signer" = String, description = "The key that signs it"))),
        (status = 409, description = "No receiver can have the snapshot that `since` names", body = burrow_api::ErrorBody),
        (status = 422, description = "The stored snapshot is damaged, or cannot be exported", body = burrow_api::ErrorBody),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SnapshotPath>,
    Params(params): Params<ExportParams>,
) -> Result<Response, ApiError> {
    let snapshot = caller.snapshot(&app, path.name()).await?;
    let since = match &params.since {
        Some(since) => Some(caller.snapshot(&app, since).await?),
        None => None,
    };
    let options = ExportOptions { files_only: params.files_only, since };
    let exporting = app.engine.export_snapshot(caller.tenant(), &snapshot.id, options).await?;
    let body = stream::unfold(exporting.pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Bytes::from), pieces))
    });
    let mut response = Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_DISPOSITION, format!("attachment; filename=\"{}.burrow\"", snapshot.id));
    if let Some(signer) = exporting.signer {
        response = response.header(SIGNER, signer);
    }
    Ok(response.body(Body::from_stream(body)).expect("ids and keys are header values"))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportParams {
    /// The name of the snapshot on this host. When absent, its original name, if that is free.
    #[param(pattern = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
    name: Option<String>,
    /// Leave the processes out.
    #[serde(default)]
    files_only: bool,
    /// Accept processes signed by this key, for this import only. Requires an admin key, because processes are restored
    /// with root privileges.
    #[param(max_length = 128)]
    trust: Option<String>,
}

#[utoipa::path(
    post, path = "/v1/snapshots", tag = "snapshots", params(ImportParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "Imported durably", body = ImportedSnapshot),
        (status = 409, description = "The name is taken", body = burrow_api::ErrorBody),
        (status = 413, description = "The contents of the file exceed the limit", body = burrow_api::ErrorBody),
        (status = 422, description = "The file is not a valid export, is damaged, or requires features that this host lacks",
         body = burrow_api::ErrorBody),
        Common,
    ),
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    Params(params): Params<ImportParams>,
    body: Body,
) -> Result<Response, ApiError> {
    let trust = match &params.trust {
        Some(key) => {
            caller.manages()?;
            Some(key.parse().map_err(burrow_engine::EngineError::Moving)?)
        }
        None => None,
    };
    let name = params.name.as_deref().map(|name| convert::name("name", name)).transpose()?;
    let options = ImportOptions { name, files_only: params.files_only, trust };
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    // If the client disconnects, the import finds an incomplete body and undoes itself.
    let imported =
        receive(body, |stream| async move { engine.import_snapshot(&tenant, stream, options).await }).await?;
    if let Some(trace) = caller.trace() {
        trace.target(imported.snapshot.id.as_str());
    }
    let answer = ImportedSnapshot {
        snapshot: convert::snapshot(imported.snapshot),
        identity: imported.identity.to_string(),
        origin: imported.origin,
        entries: imported.entries,
        content_bytes: imported.content_bytes,
        bytes: imported.bytes,
    };
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}
