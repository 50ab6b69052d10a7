//! The packages of the SDKs that belong to this daemon: what a client installs from here fits this version.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{ErrorBody, ErrorCode};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};

use burrow_http::app::App;
use burrow_http::error::ApiError;

use crate::host::OwnHost;

struct Package {
    language: &'static str,
    /// In the daemon's folder of packages; see `scripts/build-sdks.sh`.
    file: &'static str,
    /// The name under which clients store it.
    name: &'static str,
}

const PYTHON: Package = Package {
    language: "Python",
    file: "python.tar.gz",
    name: concat!("burrow_sandbox-", env!("CARGO_PKG_VERSION"), ".tar.gz"),
};

const TYPESCRIPT: Package = Package {
    language: "TypeScript",
    file: "typescript.tgz",
    name: concat!("burrow-sandbox-", env!("CARGO_PKG_VERSION"), ".tgz"),
};

// For `pip install http://HOST:7700/sdk/python`.
#[utoipa::path(
    get, path = "/sdk/python", tag = "daemon", security(()),
    responses(
        (status = 200, description = "The source package of the Python SDK, for `pip install`", body = Vec<u8>, content_type = "application/gzip"),
        (status = 404, description = "This installation does not contain the package", body = ErrorBody),
    ),
)]
pub(crate) async fn python(State(app): State<Arc<App>>, _: OwnHost) -> Result<Response, ApiError> {
    send(&app, &PYTHON).await
}

// For `npm install http://HOST:7700/sdk/typescript`.
#[utoipa::path(
    get, path = "/sdk/typescript", tag = "daemon", security(()),
    responses(
        (status = 200, description = "The package of the TypeScript SDK, for `npm install`", body = Vec<u8>, content_type = "application/gzip"),
        (status = 404, description = "This installation does not contain the package", body = ErrorBody),
    ),
)]
pub(crate) async fn typescript(State(app): State<Arc<App>>, _: OwnHost) -> Result<Response, ApiError> {
    send(&app, &TYPESCRIPT).await
}

async fn send(app: &App, package: &Package) -> Result<Response, ApiError> {
    let path = folder(app).join(package.file);
    match tokio::fs::read(&path).await {
        Ok(content) => {
            let disposition = format!("attachment; filename=\"{}\"", package.name);
            let headers = [(CONTENT_TYPE, "application/gzip".to_owned()), (CONTENT_DISPOSITION, disposition)];
            Ok((headers, content).into_response())
        }
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(%error, path = %path.display(), "could not read the package of an SDK");
            }
            let message =
                format!("this installation does not contain the package of the {} SDK", package.language);
            Err(ApiError::new(ErrorCode::NotFound, message).hint(
                "`make up` builds both packages; the one for TypeScript needs Node.js 20 or newer with npm",
            ))
        }
    }
}

fn folder(app: &App) -> PathBuf {
    app.config.sdk_dir.clone().unwrap_or_else(|| {
        let program = std::env::current_exe().unwrap_or_default();
        program.with_file_name("sdk")
    })
}
