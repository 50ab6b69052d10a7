//! `GET /v1/images/{image}/export`: an image as an archive that Docker, Podman and others can load.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_images::Compression;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::ImagePath;
use burrow_http::app::App;
use burrow_http::auth::Reader;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, ObjectRefusals};

/// Compression of the layer.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LayerCompression {
    /// Uncompressed.
    None,
    #[default]
    Gzip,
    Zstd,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportParams {
    /// `gzip` when absent, which all programs support.
    #[serde(default)]
    #[param(inline)]
    compression: LayerCompression,
}

#[utoipa::path(
    get, path = "/v1/images/{image}/export", tag = "images", params(ImagePath, ExportParams),
    responses(
        (status = 200, description = "An OCI archive, which `docker load` also accepts", body = Vec<u8>,
         content_type = "application/x-tar"),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn export(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<ImagePath>,
    Params(params): Params<ExportParams>,
) -> Result<Response, ApiError> {
    caller.unbound()?;
    let image = path.find(&app, &caller).await?;
    let compression = match params.compression {
        LayerCompression::None => Compression::None,
        LayerCompression::Gzip => Compression::Gzip,
        LayerCompression::Zstd => Compression::Zstd,
    };
    let chunks = app.engine.export_image(&image, compression).await?;
    let body = stream::unfold(chunks, |mut chunks| async move {
        let chunk = chunks.recv().await?;
        Some((chunk.map(Bytes::from), chunks))
    });
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/x-tar")
        .header(CONTENT_DISPOSITION, format!("attachment; filename=\"{}.tar\"", image.id))
        .body(Body::from_stream(body))
        .expect("an id is a header value"))
}
