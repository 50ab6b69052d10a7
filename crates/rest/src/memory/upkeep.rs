//! Statistics, merges, consolidation and checks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::memory::{
    ConsolidateMemory, ConsolidatedMemory, MemoryCheck, MemoryStats, MergeMemory, MergedMemory,
};
use tokio::time::Instant;

use super::access::{MemoryPath, MemoryReader, Principal, ReadParams, WriteParams};
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, UnboundExecutor};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, Params, Segments};
use burrow_http::refusals::{Common, MemoryRefusals, WithBody};

#[utoipa::path(
    get, path = "/v1/memory/{of}", tag = "memory", params(MemoryPath, ReadParams),
    responses((status = 200, description = "The statistics", body = MemoryStats), Common, MemoryRefusals),
)]
pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<MemoryStats>, ApiError> {
    let scope = caller.scope(&app, &path.of).await?;
    let space = caller.reading(&app, &path.of, &params).await?;
    let stats = space.view.stats().await?;
    Ok(Json(convert::memory_stats(&scope, &space, stats)))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/merge", tag = "memory", params(MemoryPath), request_body = MergeMemory,
    responses((status = 200, description = "The merged changes", body = MergedMemory), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn merge(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: burrow_http::input::NoParams,
    Segments(path): Segments<MemoryPath>,
    body: JsonBody<MergeMemory>,
) -> Result<Json<MergedMemory>, ApiError> {
    let principal = Principal::Key(Caller::clone(&caller));
    let into = principal.writing(&app, &path.of, &WriteParams::default()).await?;
    let from = principal.scope(&app, &body.value.from).await?.primary;
    let options = convert::merge_options(&body.value);
    let dry_run = body.value.dry_run;
    let merged =
        app.run_to_completion(async move { Ok(into.view.merge(&from.view, options).await?) }).await?;
    Ok(Json(convert::merged(merged, dry_run)))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/consolidate", tag = "memory", params(MemoryPath, WriteParams),
    request_body = ConsolidateMemory,
    responses((status = 200, description = "The consolidated entries", body = ConsolidatedMemory), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn consolidate(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    body: JsonBody<ConsolidateMemory>,
) -> Result<Json<ConsolidatedMemory>, ApiError> {
    let principal = Principal::Key(Caller::clone(&caller));
    let space = principal.writing(&app, &path.of, &params).await?;
    let plan = convert::consolidate_plan(&body.value, &app.config.memory.consolidate)?;
    let dry_run = body.value.dry_run;
    let work_app = app.clone();
    let done = app
        .run_to_completion(async move { Ok(work_app.memory.consolidate(&space.view, &plan).await?) })
        .await?;
    Ok(Json(convert::consolidated(done, dry_run)))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/check", tag = "memory", params(MemoryPath, WriteParams),
    responses((status = 200, description = "The result of the check", body = MemoryCheck), Common, MemoryRefusals),
)]
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
) -> Result<Json<MemoryCheck>, ApiError> {
    // The check reads the whole space, including other sandboxes' branches.
    let principal = Principal::Key(Caller::clone(&caller));
    let read = ReadParams { as_of: None, space: params.space };
    let space = principal.reading(&app, &path.of, &read).await?;
    let began = Instant::now();
    let report = space.view.check().await?;
    Ok(Json(convert::memory_check(report, began.elapsed())))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/rebuild", tag = "memory", params(MemoryPath, WriteParams),
    responses((status = 200, description = "The indices were rebuilt; the result of the check", body = MemoryCheck), Common, MemoryRefusals),
)]
pub(crate) async fn rebuild(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
) -> Result<Json<MemoryCheck>, ApiError> {
    let principal = Principal::Key(Caller::clone(&caller));
    let space = principal.writing(&app, &path.of, &params).await?;
    let began = Instant::now();
    let report = app.run_to_completion(async move { Ok(space.view.rebuild().await?) }).await?;
    Ok(Json(convert::memory_check(report, began.elapsed())))
}
