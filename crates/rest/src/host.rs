//! The daemon itself: health, readiness, version, metrics, capabilities of the host, the configuration in effect.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use burrow_api::{Driver, ErrorCode, HostInfo, Readiness, Version};
use burrow_catalog::{PageRequest, SandboxFilter};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;

use burrow_gateway::{authority, is_own};
use burrow_http::app::App;
use burrow_http::auth::{Admin, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::NoParams;
use burrow_http::metrics::Gauges;
use burrow_http::refusals::Common;

/// Admits requests that a page of another site cannot have sent. Routes that need no key apply this check while the daemon
/// is reachable only from this machine: a foreign page could make its own name resolve to this machine (DNS rebinding) and
/// read the response. A usable key is sufficient too. If the daemon listens beyond loopback, it does not know its own host
/// names, and checks nothing.
#[derive(Debug)]
pub(crate) struct OwnHost;

impl FromRequestParts<Arc<App>> for OwnHost {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let own = match authority(&parts.uri, &parts.headers) {
            Some(host) => is_own(host, app.config.gateway.domain()),
            None => true,
        };
        if own
            || !app.config.listen.ip().is_loopback()
            || Reader::from_request_parts(parts, app).await.is_ok()
        {
            return Ok(Self);
        }
        let message = "the host name of this request is not one of the daemon's";
        Err(ApiError::new(ErrorCode::Forbidden, message)
            .hint("use `localhost` or an IP address, set `gateway.domain`, or send a key"))
    }
}

#[utoipa::path(
    get, path = "/healthz", tag = "daemon", security(()),
    responses((status = 200, description = "The daemon is alive", body = String, content_type = "text/plain")),
)]
pub(crate) async fn health(_: OwnHost) -> &'static str {
    "ok\n"
}

#[utoipa::path(
    get, path = "/readyz", tag = "daemon", security(()),
    responses(
        (status = 200, description = "The daemon accepts requests", body = Readiness),
        (status = 503, description = "The daemon is not ready", body = Readiness),
    ),
)]
pub(crate) async fn ready(State(app): State<Arc<App>>, _: OwnHost) -> (StatusCode, Json<Readiness>) {
    let mut waiting_for = Vec::new();
    if app.draining.is_cancelled() {
        waiting_for.push("the daemon is shutting down".to_owned());
    }
    let tenant = app.engine.catalog().default_tenant();
    if let Err(error) = app.engine.catalog().usable_admin_keys(&tenant, app.engine.now_ms()).await {
        tracing::warn!(%error, "not ready: the catalog does not respond");
        waiting_for.push("the catalog does not respond".to_owned());
    }
    if let Err(error) = app.engine.space().await {
        tracing::warn!(%error, "not ready: the pool does not respond");
        waiting_for.push("the pool does not respond".to_owned());
    }
    if let Err(error) = app.engine.egress_ready().await {
        tracing::warn!(%error, "not ready: the egress process does not respond");
        waiting_for.push(
            "the egress process does not respond; until it does, sandboxes cannot connect to any host"
                .to_owned(),
        );
    }
    let ready = waiting_for.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, waiting_for }))
}

#[utoipa::path(
    get, path = "/v1/version", tag = "daemon", security(()),
    responses((status = 200, description = "The versions of this daemon", body = Version), (status = 429,
        description = "Too many concurrent requests", body = burrow_api::ErrorBody)),
)]
pub(crate) async fn version(_: OwnHost) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        guest_generation: burrow_guest::protocol::GENERATION,
    })
}

/// The OpenAPI document; not listed in itself.
pub(crate) async fn openapi(_: OwnHost) -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| Bytes::from(crate::openapi::document()));
    ([(CONTENT_TYPE, "application/json")], document.clone()).into_response()
}

#[utoipa::path(
    get, path = "/metrics", tag = "daemon", security((), ("key" = []), ("bearer" = [])),
    responses(
        (status = 200, description = "Prometheus metrics; a key is needed only if the daemon is reachable from other machines",
         body = String, content_type = "application/openmetrics-text"),
        (status = 401, description = "The API key is missing, unknown, expired or revoked",
         body = burrow_api::ErrorBody),
        (status = 500, description = "An internal error of the daemon; see its log", body = burrow_api::ErrorBody),
    ),
)]
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    _: OwnHost,
    request: Request,
) -> Result<Response, ApiError> {
    if !app.config.metrics_open {
        let (mut parts, _) = request.into_parts();
        Reader::from_request_parts(&mut parts, &app).await?;
    }
    let gauges = gauges(&app).await?;
    let text = app.metrics.render(&gauges);
    Ok(([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}

async fn gauges(app: &App) -> Result<Gauges, ApiError> {
    let space = app.engine.space().await?;
    Ok(Gauges {
        sandboxes: sandboxes_by_state(app).await?,
        pool_total_bytes: space.total_bytes,
        pool_free_bytes: space.free_bytes,
        catalog_bytes: app.engine.catalog().size().database_bytes,
        warm_ready: app.engine.warm_ready() as u64,
        egress: app.engine.egress_totals(),
        snapshots: app.engine.catalog().snapshot_totals().await?,
    })
}

async fn sandboxes_by_state(app: &App) -> Result<Vec<(&'static str, u64)>, ApiError> {
    let mut counts: Vec<(&'static str, u64)> = Vec::new();
    let tenant = app.engine.catalog().default_tenant();
    let mut cursor = None;
    loop {
        let request = PageRequest { cursor, limit: burrow_catalog::PAGE_LIMIT_MAX };
        let page = app.engine.list(&tenant, SandboxFilter::default(), request).await?;
        for row in page.rows {
            let state = convert::sandbox(row).state.as_str();
            match counts.iter_mut().find(|(known, _)| *known == state) {
                Some((_, count)) => *count += 1,
                None => counts.push((state, 1)),
            }
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(counts),
        }
    }
}

#[utoipa::path(
    get, path = "/v1/host", tag = "daemon",
    responses((status = 200, description = "The capabilities of this host", body = HostInfo), Common),
)]
pub(crate) async fn host(
    State(app): State<Arc<App>>,
    _caller: Reader,
    _: NoParams,
) -> Result<Json<HostInfo>, ApiError> {
    let gauges = gauges(&app).await?;
    let count = |wanted: Option<&str>| {
        let fitting =
            gauges.sandboxes.iter().filter(|(state, _)| wanted.is_none_or(|wanted| *state == wanted));
        fitting.map(|(_, count)| count).sum()
    };
    let driver = |(name, capabilities): (&'static str, burrow_runtime::Capabilities)| Driver {
        name: name.to_owned(),
        available: convert::ability(capabilities.available),
        pause: convert::ability(capabilities.pause),
        hibernate: convert::ability(capabilities.hibernate),
        limits: convert::ability(capabilities.limits),
        disk_rate: Some(convert::ability(capabilities.disk_rate)),
        volumes: Some(convert::ability(capabilities.volumes)),
        note: capabilities.note,
    };
    Ok(Json(HostInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        drivers: app.engine.capabilities().into_iter().map(driver).collect(),
        default_driver: app.config.defaults.driver.clone(),
        pool_total_bytes: gauges.pool_total_bytes,
        pool_free_bytes: gauges.pool_free_bytes,
        sandboxes: count(None),
        sandboxes_running: count(Some("running")),
        sandboxes_recovering: app.engine.recovering_count() as u64,
    }))
}

#[utoipa::path(
    get, path = "/v1/config", tag = "daemon",
    responses((status = 200, description = "Every key with the value in effect", body = Object), Common),
)]
pub(crate) async fn config(
    State(app): State<Arc<App>>,
    _caller: Admin,
    _: NoParams,
) -> Json<serde_json::Value> {
    Json(app.config.effective().clone())
}
