//! Sandboxes: create, list, inspect, change, delete.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{
    CreateSandbox, ErrorCode, Page, RotateRequest, Sandbox, SandboxState, Stats, UpdateSandbox,
};
use burrow_catalog::{Idempotency, SandboxFilter, SandboxRow};
use burrow_engine::{Engine, EngineError};
use burrow_model::{Label, RotatePolicy, SandboxId, TenantId};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::egress;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, UnboundExecutor};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments, idempotency_key, pairs, unknown_parameter};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{
    Common, GuestRefusals, IdempotencyRefusals, ObjectRefusals, SandboxRefusals, WithBody,
};

/// Labels by which one list may be filtered.
pub(super) const LABELS_MAX: usize = 20;

#[utoipa::path(
    post, path = "/v1/sandboxes", tag = "sandboxes", request_body = CreateSandbox,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests with the same key and body create one sandbox")),
    responses(
        (status = 201, description = "Created and running", body = Sandbox),
        (status = 200, description = "The sandbox existed already", body = Sandbox),
        Common, SandboxRefusals, WithBody, IdempotencyRefusals,
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    headers: HeaderMap,
    body: JsonBody<CreateSandbox>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let (rotate, memory) = (body.value.rotate.clone(), body.value.memory.clone());
    let volumes = convert::mount_requests(body.value.volumes.clone())?;
    let mut options = convert::create_options(
        body.value,
        &app.config.defaults,
        app.engine.default_network(),
        app.engine.now_ms(),
    )?;
    if let Some(network) = &options.network {
        let places = convert::request_places("requests", network.requests.len());
        egress::policy::admit(&app, &caller, &network.requests, &places).await?;
    }
    options.idempotency = idempotency_key(&headers)?.map(|key| Idempotency::of(&key, &body.bytes));
    if let Some(request) = rotate {
        options.rotate = rotate_policy(&app, &caller, request).await?;
    }
    let remember = app.config.memory.remember;
    options.memory = convert::memory_spec(&app.engine, caller.tenant(), memory, remember).await?;
    options.volumes = app.engine.find_mounts(caller.tenant(), volumes).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let created = app.run_to_completion(async move { Ok(engine.create(&tenant, options).await?) }).await?;
    if created.fresh {
        app.metrics.created(began.elapsed());
    }
    let status = if created.fresh { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(convert::sandbox(created.row))).into_response())
}

/// Filters for sandboxes.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Only sandboxes with this label, written `key=value`; may be given several times.
    #[expect(dead_code, reason = "read by `list_params`; declared here for the OpenAPI document")]
    label: Option<Vec<String>>,
    /// Only sandboxes in this state; may be given several times.
    #[expect(dead_code, reason = "read by `list_params`; declared here for the OpenAPI document")]
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
    if let Some(rows) = caller.reach(&app).await? {
        let items = rows.into_iter().filter(|row| fits(&filter, row)).map(|row| shown(&app, row)).collect();
        return Ok(Json(Page { items, next_cursor: None }));
    }
    let found = app.engine.list(caller.tenant(), filter, request).await?;
    Ok(Json(page(found, |row| shown(&app, row))))
}

/// A sandbox with the state that only the engine knows.
fn shown(app: &App, row: SandboxRow) -> Sandbox {
    let recovering = app.engine.recovering(&row.id);
    Sandbox { recovering, ..convert::sandbox(row) }
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
                    .map_err(|error| ApiError::invalid(format!("`label` is invalid: {error}")))?;
                filter.labels.push(label);
            }
            "label" => {
                return Err(ApiError::invalid(format!("`label` was given more than {LABELS_MAX} times")));
            }
            "state" => {
                let word = serde_json::Value::String(value);
                let state = serde_json::from_value::<SandboxState>(word)
                    .map_err(|error| ApiError::invalid(format!("`state` is invalid: {error}")))?;
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
    /// The sandbox's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    pub(crate) sandbox: String,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "The sandbox", body = Sandbox), Common, ObjectRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    Ok(Json(shown(&app, app.engine.get(caller.tenant(), &id).await?)))
}

#[utoipa::path(
    patch, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath), request_body = UpdateSandbox,
    responses((status = 200, description = "The changed sandbox", body = Sandbox), Common, SandboxRefusals, WithBody),
)]
pub(crate) async fn update(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<UpdateSandbox>,
) -> Result<Json<Sandbox>, ApiError> {
    if let Some(trace) = caller.trace().filter(|_| body.value.network.is_some()) {
        trace.is(burrow_audit::Action::PolicyChange);
    }
    let (sleep, rotate) = (body.value.sleep, body.value.rotate.clone());
    if changes_boundaries(&body.value) {
        caller.unbound()?;
    }
    let memory = body.value.memory.clone();
    let volumes = body.value.volumes.clone().map(convert::mount_requests).transpose()?;
    let mut update = convert::update_options(body.value)?;
    if let Some(network) = &update.network {
        egress::policy::admit_change(&app, &caller, network).await?;
    }
    if let Some(request) = sleep {
        // Fields that the request omits are not changed.
        let id = caller.sandbox(&app, &path.sandbox).await?;
        let now = app.engine.get(caller.tenant(), &id).await?.spec.sleep;
        update.sleep = Some(convert::sleep_policy(request, now)?);
    }
    if let Some(request) = rotate {
        update.rotate = Some(rotate_policy(&app, &caller, request).await?);
    }
    if let Some(wishes) = volumes {
        update.volumes = Some(app.engine.find_mounts(caller.tenant(), wishes).await?);
    }
    if let Some(request) = memory {
        update.memory = Some(convert::memory_change(&app.engine, caller.tenant(), request).await?);
    }
    changed(
        &app,
        &caller,
        &path,
        |engine, tenant, id| async move { engine.update(&tenant, &id, update).await },
    )
    .await
}

/// Whether the change needs a key that is not bound to the sandbox. A bound key may be inside the sandbox: it must not
/// change what the sandbox may reach and use, or when it is put to sleep, woken or rotated. Every field is named, so that
/// a new one is decided here.
fn changes_boundaries(update: &UpdateSandbox) -> bool {
    let UpdateSandbox {
        name: _,
        limits,
        labels,
        env: _,
        network,
        sleep,
        snapshot_policy: _,
        rotate,
        memory,
        volumes,
    } = update;
    // With these labels, settings of E2B's clients are stored: when the sandbox is woken, which host name its ports see, and
    // the token of its MCP address.
    let reserved = labels.keys().any(|label| label.starts_with(burrow_gateway::e2b::RESERVED_LABELS));
    // Other spaces, like volumes, are beyond the one sandbox that a bound key sees.
    let spaces = memory.as_ref().is_some_and(|memory| memory.space.is_some() || memory.attached.is_some());
    let volumes = volumes.is_some();
    limits.is_some()
        || network.is_some()
        || sleep.is_some()
        || rotate.is_some()
        || reserved
        || spaces
        || volumes
}

/// The snapshot is looked up now: the policy stores its id, so later changes of its name have no effect.
async fn rotate_policy(
    app: &App,
    caller: &Caller,
    request: RotateRequest,
) -> Result<Option<RotatePolicy>, ApiError> {
    if request.every_seconds == 0 {
        return Ok(None);
    }
    let Some(text) = &request.snapshot else {
        return Err(ApiError::invalid("`rotate` is invalid: a `snapshot` to restore is required"));
    };
    let snapshot = caller.snapshot(app, text).await?;
    convert::rotate_policy(request.every_seconds, snapshot.id).map(Some)
}

/// What to delete with the sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParams {
    /// Delete its snapshots too, except those that others need. When false or absent, the snapshots are kept.
    #[serde(default)]
    #[param(required = false)]
    snapshots: bool,
}

#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath, DeleteParams),
    responses((status = 204, description = "Deleted, with its contents"), Common, SandboxRefusals),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<DeleteParams>,
) -> Result<StatusCode, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    if caller.reaches_forks() && caller.bound_to() != Some(&id) {
        keep_forks_reachable(&app, &caller, &id).await?;
    }
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.carry_out(async move {
        match params.snapshots {
            true => engine.delete_with_snapshots(&tenant, &id).await?,
            false => engine.delete(&tenant, &id).await?,
        }
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A fork is reached through the sandboxes from which it descends: without them, the caller could not delete it any more.
async fn keep_forks_reachable(app: &App, caller: &Caller, id: &SandboxId) -> Result<(), ApiError> {
    let rows = caller.reach(app).await?.unwrap_or_default();
    let forked = |row: &SandboxRow| row.origin.as_ref().is_some_and(|origin| origin.sandbox == *id);
    let Some(fork) = rows.iter().find(|row| forked(row)) else { return Ok(()) };
    let message = format!("sandbox `{id}` has forks, such as `{}`", fork.id);
    Err(ApiError::new(ErrorCode::Conflict, message).hint("delete its forks first"))
}

/// Completes a change even if the client disconnects, and returns the changed sandbox.
pub(super) async fn changed<F>(
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
    let row = app.carry_out(async move { Ok(change.await?) }).await?;
    Ok(Json(convert::sandbox(row)))
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/stats", tag = "sandboxes", params(SandboxPath),
    responses((status = 200, description = "The current resource usage", body = Stats), Common, GuestRefusals),
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
