//! Merges: the changes of a fork are applied to the sandbox that it was forked from.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{MergeReport, MergeSandbox, PastMerges};

use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{ForkingExecutor, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Segments};
use burrow_http::refusals::{Common, ObjectRefusals, SandboxRefusals, WithBody};

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/merge", tag = "merges", params(SandboxPath), request_body = MergeSandbox,
    responses(
        (status = 200, description = "The changes that were merged, or would be; if there are conflicts, nothing was merged", body = MergeReport),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn merge(
    State(app): State<Arc<App>>,
    caller: ForkingExecutor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<MergeSandbox>,
) -> Result<Json<MergeReport>, ApiError> {
    // A merge reads one sandbox and changes another.
    let options = convert::merge_sandbox_options(&body.value)?;
    if body.value.child.contains([',', ' ']) {
        return Err(ApiError::invalid("`child` must name one sandbox")
            .hint("merge several sandboxes one after the other: each merge includes the results of the previous ones"));
    }
    // The audit event is about the first sandbox that is named: the one that changes.
    let parent = caller.sandbox(&app, &path.sandbox).await?;
    let child = caller.sandbox(&app, &body.value.child).await?;
    if let Some(trace) = caller.trace() {
        trace.target(child.as_str());
    }
    let (engine, tenant, dry_run) = (app.engine.clone(), caller.tenant().clone(), options.dry_run);
    let merged =
        app.carry_out(async move { Ok(engine.merge(&tenant, &parent, &child, options).await?) }).await?;
    Ok(Json(convert::merged_sandbox(merged, dry_run)))
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/merges", tag = "merges", params(SandboxPath),
    responses((status = 200, description = "The merges into this sandbox", body = PastMerges), Common, ObjectRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<PastMerges>, ApiError> {
    let sandbox = caller.sandbox(&app, &path.sandbox).await?;
    let sandbox = app.engine.get(caller.tenant(), &sandbox).await?.id;
    let merges = app.engine.merges(caller.tenant(), &sandbox).await?;
    Ok(Json(PastMerges { merges: merges.into_iter().map(convert::past_merge).collect() }))
}
