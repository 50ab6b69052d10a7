//! `Idempotency-Key`: a create that comes twice happens once, and is answered the same.
//!
//! Sandboxes have it built into their insertion; this is for the other creates. The work is seen through even if its
//! client hangs up, so that a key is never left "under way" by a client that gave up.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_catalog::{Begun, Idempotency};
use burrow_model::TenantId;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::App;
use super::error::ApiError;

/// What a create answers, and what is kept of it for a repeat.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    /// When it must differ from `body`: secrets are not kept.
    pub(super) kept: Option<Vec<u8>>,
}

impl Answer {
    pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Self, ApiError> {
        Ok(Self { status, body: to_json(value)?, kept: None })
    }
}

pub(super) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| ApiError::internal("could not write the answer", error))
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

/// Does `work` once per key. `scope` tells creates on different things apart.
pub(super) async fn once(
    app: &Arc<App>,
    tenant: &TenantId,
    key: Option<String>,
    scope: &str,
    body: &[u8],
    work: impl Future<Output = Result<Answer, ApiError>> + Send + 'static,
) -> Result<Answer, ApiError> {
    let Some(key) = key else { return work.await };
    let catalog = app.engine.catalog().clone();
    let idempotency = Idempotency::of(&key, body);
    match catalog.idempotency_begin(tenant, idempotency, scope, app.engine.now_ms()).await? {
        Begun::Fresh => {}
        Begun::Done { status, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            return Ok(Answer { status, body, kept: None });
        }
        Begun::InFlight => {
            let message = "a request with the same `Idempotency-Key` is under way";
            return Err(ApiError::new(ErrorCode::IdempotencyInFlight, message).hint("ask again in a moment"));
        }
        Begun::Mismatch => return Err(burrow_catalog::CatalogError::IdempotencyMismatch.into()),
    }
    let tenant = tenant.clone();
    app.see_through(async move {
        let result = work.await;
        let settled = match &result {
            Ok(answer) => {
                let kept = answer.kept.clone().unwrap_or_else(|| answer.body.clone());
                catalog.idempotency_finish(&tenant, &key, answer.status.as_u16(), kept).await
            }
            Err(_) => catalog.idempotency_abandon(&tenant, &key).await,
        };
        if let Err(error) = settled {
            // The work is done and said to be: only a repeat would find out, and meets "under way" until a restart.
            tracing::warn!(%error, "could not record the outcome of an idempotent request");
        }
        result
    })
    .await
}
