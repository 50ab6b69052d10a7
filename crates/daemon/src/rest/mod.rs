//! The REST API under `/v1`, one file per noun; and `/mcp`, which uses it.
//!
//! ```text
//!   request ─► observe (id, log line, metrics, panics) ─► admit (request slots) ─► audited ─► route ─► handler
//!                                                                                                │
//!                               auth: Reader · Executor · Admin ── input: JsonBody · Params ◄────┘
//! ```
//!
//! Handlers translate requests and call the engine, which decides what is allowed. Streams are polled directly from the
//! guest's connection, so a slow client holds one frame and nothing else.

pub(crate) mod attach;
pub(crate) mod audit;
mod audited;
pub(crate) mod auth;
pub(crate) mod backup;
pub(crate) mod contexts;
pub(crate) mod diff;
pub(crate) mod egress;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod exec_trace;
pub(crate) mod execs;
pub(crate) mod files;
pub(crate) mod host;
mod idempotency;
pub(crate) mod images;
pub(crate) mod input;
pub(crate) mod keys;
pub(crate) mod lineage;
pub(crate) mod listing;
mod mcp;
pub(crate) mod memory;
pub(crate) mod merges;
pub(crate) mod moving;
mod observe;
pub(crate) mod output;
pub(crate) mod ports;
pub(crate) mod power;
pub(crate) mod races;
mod range;
pub(crate) mod refusals;
pub(crate) mod remember;
mod rollback;
pub(crate) mod routes;
pub(crate) mod sandboxes;
pub(crate) mod secrets;
pub(crate) mod services;
pub(crate) mod snapshots;
pub(crate) mod ssh;
pub(crate) mod stream;
pub(crate) mod tar;
#[cfg(test)]
mod tests;
pub(crate) mod upload;
pub(crate) mod volume_files;
pub(crate) mod volumes;
pub(crate) mod watch;
pub(crate) mod within;

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::{Router, middleware};
use burrow_api::ErrorCode;
use burrow_catalog::PageRequest;
use burrow_engine::Engine;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa::IntoParams;

use crate::audit::Audit;
use crate::code::Bridges;
use crate::config::Config;
use crate::e2b;
use crate::gateway::{Front, Gateway, InnerRouters};
use crate::memory::Keeper;
use crate::metrics::Metrics;
use error::ApiError;
use routes::{Routes, delete, get, post, put};

/// The state that all handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) gateway: Gateway,
    /// The verifiable audit log.
    pub(crate) audit: Audit,
    /// Limits concurrent requests.
    requests: Arc<Semaphore>,
    /// Work that continues when its client disconnects; joined at shutdown.
    pub(crate) tasks: TaskTracker,
    /// Of these, the operations on sandboxes, which may take as long as it takes to write or read their RAM.
    pub(crate) operations: TaskTracker,
    /// Requests with an `Idempotency-Key` that are in progress.
    idempotent_requests: idempotency::IdempotentRequests,
    /// Execs with a snapshot for a rollback.
    rollbacks: rollback::Rollbacks,
    /// Execs that will be recorded in memory.
    pub(crate) remembering: remember::Remembering,
    /// Templates that E2B clients have built.
    pub(crate) builds: e2b::builds::Builds,
    pub(crate) copies: e2b::copies::Copies,
    /// Changes of files that E2B clients poll for.
    pub(crate) watchers: e2b::envd::Watchers,
    /// Signed file URLs whose sandbox has to be found.
    pub(crate) lookups: e2b::Lookups,
    /// Sandboxes that contain the marks by which programs inside recognise E2B.
    pub(crate) marks: e2b::envd::Marks,
    /// Resource usage of sandboxes, for E2B's metrics.
    pub(crate) histories: e2b::metrics::Histories,
    /// The bridges that run code inside sandboxes.
    pub(crate) bridges: Bridges,
    /// Quotas, disk reserve and consolidation of memory.
    pub(crate) memory: Keeper,
    /// The connection to the SSH gateway.
    pub(crate) ssh: crate::ssh::Link,
    /// Cancelled when the daemon is about to shut down: streams report that and end.
    pub(crate) draining: CancellationToken,
}

impl App {
    pub(crate) fn new(
        engine: Engine,
        config: Config,
        memory: Keeper,
        audit: Audit,
        draining: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            gateway: Gateway::new(&engine, &config.gateway),
            metrics: Metrics::new(),
            requests: Arc::new(Semaphore::new(config.bounds.requests)),
            tasks: TaskTracker::new(),
            operations: TaskTracker::new(),
            idempotent_requests: idempotency::IdempotentRequests::default(),
            rollbacks: rollback::Rollbacks::default(),
            remembering: remember::Remembering::new(),
            builds: e2b::builds::Builds::default(),
            copies: e2b::copies::Copies::default(),
            watchers: e2b::envd::Watchers::default(),
            lookups: e2b::Lookups::default(),
            marks: e2b::envd::Marks::default(),
            histories: e2b::metrics::Histories::default(),
            bridges: Bridges::default(),
            memory,
            audit,
            ssh: crate::ssh::Link::default(),
            draining,
            config,
            engine,
        })
    }

    /// Completes work even if the client disconnects in the meantime: operations are then completed or undone.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        use tracing::Instrument as _;
        let task = self.tasks.spawn(work.in_current_span());
        task.await.map_err(|error| ApiError::internal("could not complete the request", error))?
    }

    /// The same for an operation on a sandbox, for which shutdown waits longer.
    pub(crate) async fn carry_out<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.run_to_completion(self.operations.track_future(work)).await
    }
}

pub(crate) use memory::own_listener_router;
pub(crate) use remember::resume as resume_remembering;
pub(crate) use rollback::resume as resume_promises;

/// All routes of the daemon.
pub(crate) fn router(app: Arc<App>) -> Front {
    let api = api(&app);
    let models = with_middleware(mcp::router(app.clone(), api.clone()), &app);
    let of_sandbox = with_middleware(mcp::sandbox_router(app.clone(), api.clone()), &app);
    let for_gone = || axum::middleware::from_fn_with_state(app.clone(), e2b::reach::answer_for_gone);
    let envd = with_middleware(e2b::envd::router().layer(for_gone()), &app);
    let interpreter = with_middleware(e2b::interpreter::router().layer(for_gone()), &app);
    // Before all routes: on the host name of a sandbox, every path belongs to the sandbox.
    Front::new(app, InnerRouters { routes: api.merge(models), envd, interpreter, mcp: of_sandbox })
}

/// The routes for scripts, with their middleware.
pub(crate) fn api(app: &Arc<App>) -> Router {
    let router = api_routes().into_router();
    with_middleware(router.fallback(no_such_route).method_not_allowed_fallback(method_not_allowed), app)
}

/// The routes for scripts: Burrow's own and those of E2B's control plane.
pub(crate) fn api_routes() -> Routes<Arc<App>> {
    let open = Routes::new()
        .route("/healthz", get(host::health))
        .route("/readyz", get(host::ready))
        .route("/metrics", get(host::metrics))
        .route("/v1/version", get(host::version))
        .route("/v1/openapi.json", get(host::openapi));
    let daemon = Routes::new()
        .route("/v1/host", get(host::host))
        .route("/v1/config", get(host::config))
        .route("/v1/backup", get(backup::backup))
        .route("/v1/events", get(events::events))
        .route("/v1/keys", get(keys::list).post(keys::create))
        .route("/v1/keys/{key}", get(keys::get).delete(keys::revoke))
        .route("/v1/ssh", get(ssh::show))
        .route("/v1/ssh/keys", get(ssh::list).post(ssh::add))
        .route("/v1/ssh/keys/{key}", delete(ssh::remove))
        .route("/v1/secrets", get(secrets::list))
        .route("/v1/secrets/{secret}", get(secrets::get).put(secrets::set).delete(secrets::remove))
        .route("/v1/secrets/{secret}/rotate", post(secrets::rotate));
    open.merge(daemon)
        .merge(sandbox_routes())
        .merge(snapshot_routes())
        .merge(exec_routes())
        .merge(code_routes())
        .merge(file_routes())
        .merge(volume_routes())
        .merge(image_routes())
        .merge(memory::routes())
        .merge(audit_routes())
        .merge(e2b::routes())
}

/// Adds the middleware that every route has.
fn with_middleware(router: Router<Arc<App>>, app: &Arc<App>) -> Router {
    router
        .layer(middleware::from_fn_with_state(app.clone(), audited::audited))
        .layer(middleware::from_fn_with_state(app.clone(), observe::admit))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app.clone())
}

fn sandbox_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/sandboxes/{sandbox}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    Routes::new()
        .route("/v1/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .route(ONE, get(sandboxes::get).patch(sandboxes::update).delete(sandboxes::delete))
        .route(&under("start"), post(power::start))
        .route(&under("stop"), post(power::stop))
        .route(&under("pause"), post(power::pause))
        .route(&under("resume"), post(power::resume))
        .route(&under("hibernate"), post(power::hibernate))
        .route(&under("wake"), post(power::wake))
        .route(&under("snapshots"), post(snapshots::create))
        .route(&under("restore"), post(snapshots::restore))
        .route(&under("fork"), post(snapshots::fork))
        .route(&under("merge"), post(merges::merge))
        .route(&under("merges"), get(merges::list))
        .route(&under("stats"), get(sandboxes::stats))
        .route(&under("revoke-tokens"), post(keys::revoke_tokens))
        .route(&under("ports"), get(ports::list))
        .route(&under("ports/{port}"), put(ports::publish).delete(ports::unpublish))
        .route(&under("ports/{port}/url"), post(ports::url))
        .route(&under("ports/{port}/connect"), get(ports::connect))
        .route(&under("egress"), get(egress::show))
        .route(&under("egress/log"), get(egress::log))
        .route(&under("egress/explain"), post(egress::explain::explain))
        .route(&under("egress/policy"), put(egress::policy::replace))
        .route(&under("egress/approvals"), get(egress::approvals::list))
        .route(&under("egress/approvals/{approval}"), post(egress::approvals::answer))
        .route(&under("egress/test"), post(egress::test))
        .route(&under("services"), get(services::list))
        .route(&under("services/{name}"), put(services::set).delete(services::remove))
        .route(&under("services/{name}/restart"), post(services::restart))
}

fn snapshot_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/snapshots/{snapshot}";
    Routes::new()
        .route("/v1/snapshots", get(snapshots::list).post(moving::import))
        .route(ONE, get(snapshots::get).delete(snapshots::delete))
        .route(&format!("{ONE}/sandboxes"), post(snapshots::become_sandbox))
        .route("/v1/diff", get(diff::get).post(diff::post))
        .route("/v1/races", get(races::list).post(races::start))
        .route("/v1/races/{race}", get(races::get).delete(races::remove))
        .route("/v1/races/{race}/merge", post(races::merge))
        .route(&format!("{ONE}/export"), get(moving::export))
        .route("/v1/tree", get(lineage::tree))
        .route("/v1/gc", get(lineage::stale).post(lineage::collect))
}

fn volume_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/volumes/{volume}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    let files = get(volume_files::read).put(volume_files::write).delete(volume_files::remove);
    Routes::new()
        .route("/v1/volumes", get(volumes::list).post(volumes::create))
        .route(ONE, get(volumes::get).delete(volumes::remove))
        .route(&under("snapshots"), get(volumes::snapshots).post(volumes::snapshot))
        .route(&under("snapshots/{snapshot}"), delete(volumes::remove_snapshot))
        .route(&under("restore"), post(volumes::restore))
        .route(&under("files"), files)
        .route(&under("files/list"), get(volume_files::list))
}

fn image_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/images/{image}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    Routes::new()
        .route("/v1/images", get(images::list).post(images::make::make))
        .route("/v1/images/import", put(images::upload::import))
        .route("/v1/images/build", put(images::upload::build))
        .route("/v1/images/prune", post(images::prune))
        .route(ONE, get(images::get).delete(images::remove))
        .route(&under("export"), get(images::export::export))
        .route(&under("tags"), post(images::tag))
        .route(&under("tags/{tag}"), delete(images::untag))
}

fn audit_routes() -> Routes<Arc<App>> {
    Routes::new()
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/follow", get(audit::follow))
        .route("/v1/audit/checkpoint", get(audit::checkpoint))
        .route("/v1/audit/proof/inclusion", get(audit::inclusion))
        .route("/v1/audit/proof/consistency", get(audit::consistency))
        .route("/v1/audit/export", get(audit::export))
}

fn exec_routes() -> Routes<Arc<App>> {
    const ALL: &str = "/v1/sandboxes/{sandbox}/execs";
    let under = |rest: &str| format!("{ALL}/{{exec}}{rest}");
    Routes::new()
        .route("/v1/execs/{exec}", get(execs::find))
        .route(ALL, get(execs::list).post(execs::create))
        .route(&under(""), get(execs::get))
        .route(&under("/wait"), get(execs::wait))
        .route(&under("/signal"), post(execs::signal))
        .route(&under("/resize"), post(execs::resize))
        .route(&under("/stdin"), post(execs::stdin))
        .route(&under("/output"), get(output::output))
        .route(&under("/attach"), get(attach::attach))
}

fn code_routes() -> Routes<Arc<App>> {
    const ALL: &str = "/v1/sandboxes/{sandbox}/contexts";
    let under = |rest: &str| format!("{ALL}/{{context}}{rest}");
    Routes::new()
        .route(ALL, get(contexts::list).post(contexts::create))
        .route(&under(""), get(contexts::get).delete(contexts::remove))
        .route(&under("/interrupt"), post(contexts::interrupt))
        .route(&under("/restart"), post(contexts::restart))
        .route(&under("/run"), post(contexts::run))
}

fn file_routes() -> Routes<Arc<App>> {
    const FILES: &str = "/v1/sandboxes/{sandbox}/files";
    let under = |rest: &str| format!("{FILES}/{rest}");
    Routes::new()
        .route(FILES, get(files::read).put(files::write).delete(files::remove))
        .route(&under("stat"), get(files::stat))
        .route(&under("list"), get(listing::list))
        .route(&under("mkdir"), post(files::make_directory))
        .route(&under("move"), post(files::rename))
        .route(&under("chmod"), post(files::change_mode))
        .route(&under("tar"), get(tar::download).put(tar::upload))
        .route(&under("watch"), get(watch::watch))
}

async fn no_such_route() -> ApiError {
    ApiError::new(ErrorCode::NoSuchRoute, "there is no such route")
        .hint("`/v1/openapi.json` lists all routes")
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "this route does not support this method")
        .hint("the `Allow` header of this response lists the supported methods")
}

/// The variable parts of a path.
#[derive(Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Segments<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let refused = |_: PathRejection| ApiError::invalid("the path is not UTF-8");
        Path::from_request_parts(parts, app).await.map(|Path(value)| Self(value)).map_err(refused)
    }
}

/// The requested page of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    /// `next_cursor` of the previous page.
    #[param(max_length = 256)]
    cursor: Option<String>,
    /// Maximum number of entries; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl PageParams {
    fn request(self) -> Result<PageRequest, ApiError> {
        use burrow_api::defaults::{PAGE_LIMIT, PAGE_LIMIT_MAX};
        let limit = self.limit.unwrap_or(PAGE_LIMIT);
        if !(1..=PAGE_LIMIT_MAX).contains(&limit) {
            return Err(ApiError::invalid(format!(
                "`limit` must be from 1 to {PAGE_LIMIT_MAX}, not {limit}"
            )));
        }
        Ok(PageRequest { cursor: self.cursor, limit })
    }
}

/// Converts the items of a page.
pub(crate) fn page<R, T>(page: burrow_catalog::Page<R>, convert: impl FnMut(R) -> T) -> burrow_api::Page<T> {
    burrow_api::Page { items: page.rows.into_iter().map(convert).collect(), next_cursor: page.next_cursor }
}

/// A page of a list that is complete in memory. The cursor is the id of the last entry of the previous page.
pub(crate) fn page_of_list<T>(
    mut items: Vec<T>,
    request: &PageRequest,
    id: impl Fn(&T) -> &str,
) -> Result<burrow_api::Page<T>, ApiError> {
    if let Some(cursor) = &request.cursor {
        let place = items.iter().position(|item| id(item) == cursor);
        let place = place.ok_or(burrow_catalog::CatalogError::BadCursor)?;
        items.drain(..=place);
    }
    let limit = request.limit as usize;
    let more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|item| id(item).to_owned());
    Ok(burrow_api::Page { items, next_cursor })
}
