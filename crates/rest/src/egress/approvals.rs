//! `…/egress/approvals`: requests that wait for approval.
//!
//! A key that is bound to one sandbox can list them but not answer them, because it may be inside that sandbox.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::policy::Approve;
use burrow_api::{AnswerApproval, EgressApproval, Page};
use burrow_egress::PendingApproval;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{Reader, UnboundExecutor};
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Segments};
use burrow_http::refusals::{Common, ObjectRefusals, SandboxRefusals, WithBody};

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/egress/approvals", tag = "egress", params(SandboxPath),
    responses(
        (status = 200, description = "The waiting requests, oldest first, on one page", body = Page<EgressApproval>),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Page<EgressApproval>>, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let waiting = app.engine.egress_waiting(caller.tenant(), &id).await?;
    let items = waiting.into_iter().map(approval).collect();
    Ok(Json(Page { items, next_cursor: None }))
}

/// Names a waiting request.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ApprovalPath {
    /// The sandbox's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: String,
    /// The id from the list of approvals.
    approval: u64,
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/egress/approvals/{approval}", tag = "egress", params(ApprovalPath),
    request_body = AnswerApproval,
    responses(
        (status = 204, description = "The request continues, or is refused"),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<ApprovalPath>,
    body: JsonBody<AnswerApproval>,
) -> Result<StatusCode, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    app.engine.answer_waiting(caller.tenant(), &id, path.approval, body.value.allow).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn approval(waiting: PendingApproval) -> EgressApproval {
    let PendingApproval { number, rule, approve, method, host, port, path, secret, since_ms } = waiting;
    EgressApproval {
        id: number,
        rule,
        approve: match approve {
            burrow_model::network::Approve::Once => Approve::Once,
            burrow_model::network::Approve::Session => Approve::Session,
        },
        method,
        host,
        port,
        path,
        secret,
        since_ms,
    }
}
