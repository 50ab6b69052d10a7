//! The power state of a sandbox: start, stop, pause, resume, hibernate, wake.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use burrow_api::{Sandbox, defaults};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::sandboxes::{SandboxPath, changed};
use burrow_http::app::App;
use burrow_http::auth::Executor;
use burrow_http::error::ApiError;
use burrow_http::input::{NoParams, Params, Segments};
use burrow_http::metrics::ProcessOperation;
use burrow_http::refusals::{Common, SandboxRefusals};

/// The longest grace period for processes to end by themselves.
const GRACE_MS_MAX: u64 = 10 * 60 * 1000;

/// How to start.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartParams {
    /// Boot from the files, and discard the processes of a hibernated sandbox; false when absent.
    #[serde(default)]
    #[param(required = false)]
    files_only: bool,
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/start", tag = "sandboxes", params(SandboxPath, StartParams),
    responses((status = 200, description = "Running", body = Sandbox), Common, SandboxRefusals),
)]
pub(crate) async fn start(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<StartParams>,
) -> Result<Json<Sandbox>, ApiError> {
    changed(&app, &caller, &path, move |engine, tenant, id| async move {
        match params.files_only {
            true => engine.start_fresh(&tenant, &id).await,
            false => engine.start_sandbox(&tenant, &id).await,
        }
    })
    .await
}

/// How to stop.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopParams {
    /// How long processes may take to end by themselves, in milliseconds; 5000 when absent.
    #[param(maximum = 600_000)]
    grace_ms: Option<u64>,
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/stop", tag = "sandboxes", params(SandboxPath, StopParams),
    responses((status = 200, description = "Stopped; an ephemeral sandbox was deleted", body = Sandbox), Common, SandboxRefusals),
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
    responses((status = 200, description = "Paused: RAM is kept, no CPU is used", body = Sandbox), Common, SandboxRefusals),
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
    responses((status = 200, description = "Running", body = Sandbox), Common, SandboxRefusals),
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    changed(&app, &caller, &path, |engine, tenant, id| async move { engine.resume(&tenant, &id).await }).await
}

/// How to hibernate.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct HibernateParams {
    /// Hibernate also where no trial can show whether the processes can be restored, because the host has too little RAM for one or other
    /// trials take too long; false when absent.
    #[serde(default)]
    #[param(required = false)]
    untried: bool,
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/hibernate", tag = "sandboxes", params(SandboxPath, HibernateParams),
    responses(
        (status = 200, description = "Hibernated: processes are on disk, RAM is freed", body = Sandbox),
        Common, SandboxRefusals,
    ),
)]
pub(crate) async fn hibernate(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<HibernateParams>,
) -> Result<Json<Sandbox>, ApiError> {
    let hibernated = changed(&app, &caller, &path, move |engine, tenant, id| async move {
        match params.untried {
            true => engine.hibernate_untried(&tenant, &id).await,
            false => engine.hibernate(&tenant, &id).await,
        }
    });
    timed(&app, ProcessOperation::Hibernate, hibernated).await
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/wake", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "Running, with its processes if they were kept", body = Sandbox),
        Common, SandboxRefusals,
    ),
)]
pub(crate) async fn wake(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<Json<Sandbox>, ApiError> {
    let woken =
        changed(&app, &caller, &path, |engine, tenant, id| async move { engine.wake(&tenant, &id).await });
    timed(&app, ProcessOperation::Wake, woken).await
}

/// Records the duration of a transition in the metrics, if it succeeds.
async fn timed(
    app: &App,
    which: ProcessOperation,
    work: impl Future<Output = Result<Json<Sandbox>, ApiError>>,
) -> Result<Json<Sandbox>, ApiError> {
    let began = Instant::now();
    let answer = work.await?;
    app.metrics.moved(which, began.elapsed());
    Ok(answer)
}
