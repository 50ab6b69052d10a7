//! Snapshots: take, list, inspect, remove; restoring them, creating sandboxes from them; forks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{
    CreateSnapshot, ErrorCode, ForkResult, ForkSandbox, Page, RestoreResult, RestoreSandbox, Sandbox,
    SandboxFromSnapshot, Snapshot, SnapshotKind,
};
use burrow_catalog::{FAMILY_MAX, Idempotency, SnapshotFilter};
use burrow_engine::{Engine, EngineError, ForkOptions};
use burrow_model::{SandboxId, SnapshotId, TenantId};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::egress;
use super::sandboxes::{LABELS_MAX, SandboxPath};
use burrow_gateway::e2b::RESERVED_LABELS;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, ForkingExecutor, Reader, UnboundExecutor};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::idempotency::{IdempotentResponse, InProgressRecord, once};
use burrow_http::input::{JsonBody, NoParams, Segments, idempotency_key, pairs, unknown_parameter};
use burrow_http::metrics::ProcessOperation;
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, IdempotencyRefusals, ObjectRefusals, SandboxRefusals, WithBody};

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/snapshots", tag = "snapshots", request_body = CreateSnapshot,
    params(SandboxPath, ("Idempotency-Key" = Option<String>, Header,
        description = "Requests with the same key and body take one snapshot")),
    responses(
        (status = 201, description = "Taken, and durable", body = Snapshot),
        Common, SandboxRefusals, WithBody, IdempotencyRefusals,
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    headers: HeaderMap,
    body: JsonBody<CreateSnapshot>,
) -> Result<IdempotentResponse, ApiError> {
    let options = convert::snapshot_options(body.value, app.engine.now_ms())?;
    let key = idempotency_key(&headers)?;
    let sandbox = caller.sandbox(&app, &path.sandbox).await?;
    let tenant = caller.tenant().clone();
    let scope = format!("snapshots of {sandbox}");
    let (work_app, work_tenant) = (app.clone(), tenant.clone());
    let bound = caller.bound_to().is_some();
    let work = async move {
        let (began, engine) = (Instant::now(), work_app.engine.clone());
        let taken = work_app
            .carry_out(async move {
                match engine.snapshot(&work_tenant, &sandbox, options).await {
                    Err(EngineError::SnapshotNameTaken { name, existing }) if bound => {
                        Err(name_taken(&engine, &work_tenant, &sandbox, name, existing).await)
                    }
                    taken => Ok(taken?),
                }
            })
            .await?;
        work_app.metrics.moved(ProcessOperation::Snapshot, began.elapsed());
        IdempotentResponse::json(StatusCode::CREATED, &convert::snapshot(taken))
    };
    once(&app, &tenant, key, &scope, &body.bytes, InProgressRecord::Durably, work).await
}

/// The error for a key that is bound to one sandbox. About another sandbox's snapshot it reveals only that the name is
/// taken, which cannot be hidden because names are shared.
async fn name_taken(
    engine: &Engine,
    tenant: &TenantId,
    sandbox: &SandboxId,
    name: String,
    existing: SnapshotId,
) -> ApiError {
    let own =
        engine.find_snapshot(tenant, existing.as_str()).await.is_ok_and(|found| found.sandbox == *sandbox);
    if own {
        return EngineError::SnapshotNameTaken { name, existing }.into();
    }
    ApiError::new(ErrorCode::Conflict, format!("the name `{name}` is taken")).hint("choose another name")
}

/// Filters for snapshots.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// Only snapshots of this sandbox: its id, or (while it exists) a unique prefix of its id, or its name.
    #[expect(dead_code, reason = "read by `list_params`; declared here for the OpenAPI document")]
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: Option<String>,
    /// Only snapshots with this label, written `key=value`; may be given several times.
    #[expect(dead_code, reason = "read by `list_params`; declared here for the OpenAPI document")]
    label: Option<Vec<String>>,
    /// Only snapshots of this kind; may be given several times.
    #[expect(dead_code, reason = "read by `list_params`; declared here for the OpenAPI document")]
    #[param(inline)]
    kind: Option<Vec<SnapshotKind>>,
}

#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots", params(ListParams, PageParams),
    responses(
        (status = 200, description = "Newest first, without the changed paths", body = Page<Snapshot>),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    uri: Uri,
) -> Result<Json<Page<Snapshot>>, ApiError> {
    let (mut filter, sandbox, params) = list_params(&uri)?;
    let request = params.request()?;
    filter.sandbox = match (&sandbox, caller.bound_to()) {
        (Some(text), _) => Some(caller.sandbox(&app, text).await?),
        (None, bound) => bound.cloned(),
    };
    let found = app.engine.snapshots(caller.tenant(), filter, request).await?;
    Ok(Json(page(found, convert::snapshot_listed)))
}

fn list_params(uri: &Uri) -> Result<(SnapshotFilter, Option<String>, PageParams), ApiError> {
    let (mut filter, mut sandbox, mut page) = (SnapshotFilter::default(), None, PageParams::default());
    for (key, value) in pairs(uri)? {
        match key.as_str() {
            "sandbox" if sandbox.is_none() => sandbox = Some(value),
            "sandbox" => return Err(ApiError::invalid("`sandbox` was given more than once")),
            "label" if filter.labels.len() < LABELS_MAX => {
                let label = value
                    .parse()
                    .map_err(|error| ApiError::invalid(format!("`label` is invalid: {error}")))?;
                filter.labels.push(label);
            }
            "label" => {
                return Err(ApiError::invalid(format!("`label` was given more than {LABELS_MAX} times")));
            }
            "kind" => {
                let kind = serde_json::from_value::<SnapshotKind>(serde_json::Value::String(value))
                    .map_err(|error| ApiError::invalid(format!("`kind` is invalid: {error}")))?;
                let kind = convert::snapshot_kind_of(kind);
                if !filter.kinds.contains(&kind) {
                    filter.kinds.push(kind);
                }
            }
            "cursor" => page.cursor = Some(value),
            "limit" => {
                let limit = value.parse().map_err(|_| ApiError::invalid("`limit` must be a number"))?;
                page.limit = Some(limit);
            }
            _ => return Err(unknown_parameter(&key)),
        }
    }
    Ok((filter, sandbox, page))
}

/// Names a snapshot.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SnapshotPath {
    /// The snapshot's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    snapshot: String,
}

impl SnapshotPath {
    pub(super) fn name(&self) -> &str {
        &self.snapshot
    }
}

#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}", tag = "snapshots", params(SnapshotPath),
    responses((status = 200, description = "The snapshot, with the changed paths", body = Snapshot), Common, ObjectRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SnapshotPath>,
) -> Result<Json<Snapshot>, ApiError> {
    Ok(Json(convert::snapshot(caller.snapshot(&app, &path.snapshot).await?)))
}

#[utoipa::path(
    delete, path = "/v1/snapshots/{snapshot}", tag = "snapshots", params(SnapshotPath),
    responses(
        (status = 204, description = "Removed, and its space is freed"),
        (status = 409, description = "The snapshot is in use", body = burrow_api::ErrorBody),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SnapshotPath>,
) -> Result<StatusCode, ApiError> {
    let snapshot = caller.snapshot(&app, &path.snapshot).await?.id;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.carry_out(async move { Ok(engine.delete_snapshot(&tenant, &snapshot).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/restore", tag = "snapshots", params(SandboxPath),
    request_body = RestoreSandbox,
    responses(
        (status = 200, description = "Restored to the snapshot; the snapshot `undo` contains the previous state", body = RestoreResult),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn restore(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<RestoreSandbox>,
) -> Result<Json<RestoreResult>, ApiError> {
    let began = Instant::now();
    let sandbox = caller.sandbox(&app, &path.sandbox).await?;
    let snapshot = caller.snapshot(&app, &body.value.snapshot).await?.id;
    let (engine, tenant, files_only) = (app.engine.clone(), caller.tenant().clone(), body.value.files_only);
    let restored = app
        .carry_out(async move { Ok(engine.restore(&tenant, &sandbox, &snapshot, files_only).await?) })
        .await?;
    app.metrics.moved(ProcessOperation::Restore, began.elapsed());
    Ok(Json(RestoreResult {
        sandbox: convert::sandbox(restored.row),
        undo: convert::snapshot(restored.undo),
    }))
}

#[utoipa::path(
    post, path = "/v1/snapshots/{snapshot}/sandboxes", tag = "snapshots", request_body = SandboxFromSnapshot,
    params(SnapshotPath, ("Idempotency-Key" = Option<String>, Header,
        description = "Requests with the same key and body create one sandbox")),
    responses(
        (status = 201, description = "Created, and running from the state of the snapshot", body = Sandbox),
        (status = 200, description = "The sandbox existed already", body = Sandbox),
        Common, SandboxRefusals, WithBody, IdempotencyRefusals,
    ),
)]
pub(crate) async fn become_sandbox(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<SnapshotPath>,
    headers: HeaderMap,
    body: JsonBody<SandboxFromSnapshot>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let mut options = convert::from_snapshot(body.value, app.engine.now_ms())?;
    if let Some(network) = options.change.as_ref().and_then(|change| change.network.as_ref()) {
        egress::policy::admit_change(&app, &caller, network).await?;
    }
    let snapshot = caller.snapshot(&app, &path.snapshot).await?.id;
    // The path is included: the same body for another snapshot is another request.
    let asked = [snapshot.as_str().as_bytes(), &body.bytes].concat();
    options.idempotency = idempotency_key(&headers)?.map(|key| Idempotency::of(&key, &asked));
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let created = app
        .carry_out(async move { Ok(engine.create_from_snapshot(&tenant, &snapshot, options).await?) })
        .await?;
    if created.fresh {
        app.metrics.created(began.elapsed());
    }
    let status = if created.fresh { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(convert::sandbox(created.row))).into_response())
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/fork", tag = "snapshots", request_body = ForkSandbox,
    params(SandboxPath, ("Idempotency-Key" = Option<String>, Header,
        description = "Requests with the same key and body fork once")),
    responses(
        (status = 201, description = "The children, and the errors of those that could not be created", body = ForkResult),
        Common, SandboxRefusals, WithBody, IdempotencyRefusals,
    ),
)]
pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    caller: ForkingExecutor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    headers: HeaderMap,
    body: JsonBody<ForkSandbox>,
) -> Result<IdempotentResponse, ApiError> {
    let mut options = convert::fork_options(body.value, app.engine.now_ms())?;
    let key = idempotency_key(&headers)?;
    let sandbox = caller.sandbox(&app, &path.sandbox).await?;
    if caller.reaches_forks() {
        bound_fork(&app, &caller, &sandbox, &mut options).await?;
    }
    let tenant = caller.tenant().clone();
    let scope = format!("forks of {sandbox}");
    let (work_app, work_tenant) = (app.clone(), tenant.clone());
    let work = async move {
        let (began, engine) = (Instant::now(), work_app.engine.clone());
        let forked = work_app
            .carry_out(async move { Ok(engine.fork(&work_tenant, &sandbox, options).await?) })
            .await?;
        work_app.metrics.moved(ProcessOperation::Fork, began.elapsed());
        IdempotentResponse::json(StatusCode::CREATED, &shown(forked)?)
    };
    once(&app, &tenant, key, &scope, &body.bytes, InProgressRecord::Durably, work).await
}

/// What a bound key may choose about a fork: not more than about its sandbox. The fork does not outlive its parent, and has
/// none of the labels with which settings of E2B's clients are stored.
async fn bound_fork(
    app: &App,
    caller: &Caller,
    parent: &SandboxId,
    options: &mut ForkOptions,
) -> Result<(), ApiError> {
    if options.labels.iter().flatten().any(|(label, _)| label.starts_with(RESERVED_LABELS)) {
        caller.unbound()?;
    }
    let family = caller.reach(app).await?.unwrap_or_default();
    for name in &options.names {
        let taken = app.engine.catalog().sandbox_by_name(caller.tenant(), name.as_str()).await?;
        if taken.is_some_and(|taken| family.iter().all(|row| row.id != taken.id)) {
            // Without the id: other sandboxes do not exist for this key. That a name is taken cannot be hidden.
            let message = format!("the name `{name}` is taken");
            return Err(ApiError::new(ErrorCode::Conflict, message).hint("choose another name"));
        }
    }
    if family.len() + options.count > FAMILY_MAX {
        let message = format!("a key that is bound to a sandbox reaches at most {FAMILY_MAX} sandboxes");
        return Err(
            ApiError::new(ErrorCode::Conflict, message).hint("delete forks that are no longer needed")
        );
    }
    let row = app.engine.get(caller.tenant(), parent).await?;
    if let (Some(end_ms), Some(lifetime)) = (row.spec.lifetime.expires_ms(), options.lifetime) {
        let own_ms = lifetime.expires_ms().unwrap_or(end_ms);
        options.lifetime = Some(lifetime.until(Some(own_ms.min(end_ms))));
    }
    Ok(())
}

/// If no child could be created, the response is the first error.
fn shown(forked: burrow_engine::ForkResult) -> Result<ForkResult, ApiError> {
    let burrow_engine::ForkResult { children, base, pause_us } = forked;
    let (mut alive, mut failed) = (Vec::new(), Vec::new());
    for child in children {
        match child {
            Ok(row) => alive.push(convert::sandbox(row)),
            Err(error) => failed.push(ApiError::from(error)),
        }
    }
    if alive.is_empty() && !failed.is_empty() {
        return Err(failed.swap_remove(0));
    }
    let failed = failed.into_iter().map(ApiError::into_detail).collect();
    Ok(ForkResult { children: alive, failed, snapshot: base.into(), pause_us })
}
