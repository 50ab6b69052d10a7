//! Sandboxes: create, list, inspect, change, start, stop, pause, resume, delete.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{CreateSandbox, Page, Sandbox, SandboxState, Stats, UpdateSandbox, defaults};
use burrow_catalog::{Idempotency, SandboxFilter, SandboxRow};
use burrow_engine::{Engine, EngineError};
use burrow_model::{Label, SandboxId, TenantId};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Executor, Reader};
use super::error::ApiError;
use super::input::{JsonBody, NoParams, Params, idempotency_key, pairs, unknown_parameter};
use super::refusals::{ByGuest, Changing, Common, Idempotent, Named, WithBody};
use super::{App, PageParams, Segments, page};
use crate::convert;

/// Labels one list may be filtered by.
const LABELS_MAX: usize = 20;

/// The longest anybody waits for processes to end by themselves.
const GRACE_MS_MAX: u64 = 10 * 60 * 1000;

#[utoipa::path(
    post, path = "/v1/sandboxes", tag = "sandboxes", request_body = CreateSandbox,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key and body create one sandbox")),
    responses(
        (status = 201, description = "Created and running", body = Sandbox),
        (status = 200, description = "It existed already", body = Sandbox),
        Common, Changing, WithBody, Idempotent,
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    headers: HeaderMap,
    body: JsonBody<CreateSandbox>,
) -> Result<Response, ApiError> {
    caller.unbound()?;
    let began = Instant::now();
    let mut options = convert::create_options(
        body.value,
        &app.config.defaults,
        app.engine.default_network(),
        app.engine.now_ms(),
    )?;
    options.idempotency = idempotency_key(&headers)?.map(|key| Idempotency::of(&key, &body.bytes));
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let created = app.see_through(async move { Ok(engine.create(&tenant, options).await?) }).await?;
    if created.fresh {
        app.metrics.created(began.elapsed());
    }
    let status = if created.fresh { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(convert::sandbox(created.row))).into_response())
}

/// Which sandboxes.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Only those with this label, written `key=value`; may be given several times.
    #[expect(dead_code, reason = "read by `list_params`; here for the document")]
    label: Option<Vec<String>>,
    /// Only those in this state; may be given several times.
    #[expect(dead_code, reason = "read by `list_params`; here for the document")]
    #[param(inline)]
    state: Option<Vec<SandboxState>>,
}

#[utoipa::path(
    get, path = "/v1/sandboxes", tag = "sandboxes", params(ListParams, PageParams),
    responses((status = 200, description = "Newest first", body = Page<Sandbox>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    uri: Uri,
) -> Result<Json<Page<Sandbox>>, ApiError> {
    let (filter, params) = list_params(&uri)?;
    let request = params.request()?;
    if let Some(bound) = caller.bound_to() {
        let row = app.engine.get(caller.tenant(), bound).await?;
        let items = if fits(&filter, &row) { vec![convert::sandbox(row)] } else { Vec::new() };
        return Ok(Json(Page { items, next_cursor: None }));
    }
    let found = app.engine.list(caller.tenant(), filter, request).await?;
    Ok(Json(page(found, convert::sandbox)))
}

fn fits(filter: &SandboxFilter, row: &burrow_catalog::SandboxRow) -> bool {
    let labelled = |label: &Label| row.spec.labels.get(&label.key) == Some(&label.value);
    filter.labels.iter().all(labelled) && (filter.states.is_empty() || filter.states.contains(&row.state))
}

fn list_params(uri: &Uri) -> Result<(SandboxFilter, PageParams), ApiError> {
    let mut filter = SandboxFilter::default();
    let mut page = PageParams::default();
    for (key, value) in pairs(uri)? {
        match key.as_str() {
            "label" if filter.labels.len() < LABELS_MAX => {
                let label = value
                    .parse()
                    .map_err(|error| ApiError::invalid(format!("`label` does not fit: {error}")))?;
                filter.labels.push(label);
            }
            "label" => {
                return Err(ApiError::invalid(format!("`label` was given more than {LABELS_MAX} times")));
            }
            "state" => {
                let word = serde_json::Value::String(value);
                let state = serde_json::from_value::<SandboxState>(word)
                    .map_err(|error| ApiError::invalid(format!("`state` does not fit: {error}")))?;
                filter.states.push(convert::sandbox_state(state));
            }
            "cursor" => page.cursor = Some(value),
            "limit" => {
                let limit = value.parse().map_err(|_| ApiError::invalid("`limit` must be a number"))?;
                page.limit = Some(limit);
            }
            _ => return Err(unknown_parameter(&key)),
        }
    }
    Ok((filter, page))
}

/// Names a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SandboxPath {
    /// Its id, a unique beginning of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    pub(crate) sandbox: String,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "The sandbox", body = Sandbox), Common, Named),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    Ok(Json(convert::sandbox(app.engine.get(caller.tenant(), &id).await?)))
}

#[utoipa::path(
    patch, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath), request_body = UpdateSandbox,
    responses((status = 200, description = "As it is now", body = Sandbox), Common, Changing, WithBody),
)]
pub(crate) async fn update(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<UpdateSandbox>,
) -> Result<Json<Sandbox>, ApiError> {
    let update = convert::update_options(body.value)?;
    changed(
        &app,
        &caller,
        &path,
        |engine, tenant, id| async move { engine.update(&tenant, &id, update).await },
    )
    .await
}

#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath),
    responses((status = 204, description = "Gone, with all it held"), Common, Changing),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<StatusCode, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.see_through(async move { Ok(engine.delete(&tenant, &id).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/start", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "Running", body = Sandbox), Common, Changing),
)]
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    changed(
        &app,
        &caller,
        &path,
        |engine, tenant, id| async move { engine.start_sandbox(&tenant, &id).await },
    )
    .await
}

/// Sees a change through, and answers what the sandbox has become.
async fn changed<F>(
    app: &Arc<App>,
    caller: &Executor,
    path: &SandboxPath,
    change: impl FnOnce(Engine, TenantId, SandboxId) -> F,
) -> Result<Json<Sandbox>, ApiError>
where
    F: Future<Output = Result<SandboxRow, EngineError>> + Send + 'static,
{
    let id = caller.sandbox(app, &path.sandbox).await?;
    let change = change(app.engine.clone(), caller.tenant().clone(), id);
    let row = app.see_through(async move { Ok(change.await?) }).await?;
    Ok(Json(convert::sandbox(row)))
}

/// How to stop.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopParams {
    /// How long processes may take to end by themselves; 5000 when absent.
    #[param(maximum = 600_000)]
    grace_ms: Option<u64>,
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/stop", tag = "sandboxes", params(SandboxPath, StopParams),
    responses((status = 200, description = "Stopped; an ephemeral one is gone", body = Sandbox), Common, Changing),
)]
pub(crate) async fn stop(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<StopParams>,
) -> Result<Json<Sandbox>, ApiError> {
    let grace_ms = params.grace_ms.unwrap_or(defaults::STOP_GRACE_MS);
    if grace_ms > GRACE_MS_MAX {
        return Err(ApiError::invalid(format!("`grace_ms` must be at most {GRACE_MS_MAX}")));
    }
    let grace = Duration::from_millis(grace_ms);
    changed(&app, &caller, &path, |engine, tenant, id| async move {
        engine.stop_sandbox(&tenant, &id, grace).await
    })
    .await
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/pause", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "Paused: RAM kept, no CPU used", body = Sandbox), Common, Changing),
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    changed(&app, &caller, &path, |engine, tenant, id| async move { engine.pause(&tenant, &id).await }).await
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/resume", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "Running", body = Sandbox), Common, Changing),
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    changed(&app, &caller, &path, |engine, tenant, id| async move { engine.resume(&tenant, &id).await }).await
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/stats", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "What it uses now", body = Stats), Common, ByGuest),
)]
pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Stats>, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let (row, stats, incidents, disk_used_bytes) = app.engine.stats(caller.tenant(), &id).await?;
    Ok(Json(convert::stats(&row, &stats, incidents, disk_used_bytes)))
}
