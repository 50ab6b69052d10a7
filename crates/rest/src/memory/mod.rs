//! Memory: spaces, entries, working memory, skills, artifacts.
//!
//! ```text
//!   /v1/spaces …                 keys only
//!   /v1/memory/{of}/…            keys: a sandbox or a space      mounted by [`routes`]
//!   /v1/memory/self/…            a sandbox, through its own listener  mounted by [`own_listener_router`]
//! ```
//!
//! The same handlers serve both mounts. The caller is an [`access::Principal`]; the router of the own listener sets it in
//! an extension that no client can set. Functions that reach beyond a sandbox's own branch (spaces, erasing, checks,
//! merges, execs) are not available on the own listener.

mod access;
pub(crate) mod artifacts;
pub(crate) mod entries;
pub(crate) mod kv;
pub(crate) mod kv_watch;
mod moment;
mod page;
pub(crate) mod search;
pub(crate) mod skill_run;
pub(crate) mod skills;
pub(crate) mod spaces;
pub(crate) mod transfer;
pub(crate) mod upkeep;

use std::sync::Arc;

use axum::{Extension, Router, middleware};
use burrow_model::{SandboxId, TenantId};

use burrow_http::app::App;
use burrow_http::middleware::{method_not_allowed, no_such_route};
use burrow_http::observe;
use burrow_http::own_listener::OwnListener;
use burrow_http::routes::{Routes, get, post};

/// All routes, for keys.
pub(super) fn routes() -> Routes<Arc<App>> {
    let under = |rest: &str| format!("/v1/memory/{{of}}/{rest}");
    Routes::new()
        .route("/v1/spaces", get(spaces::list).post(spaces::create))
        .route("/v1/spaces/{space}", get(spaces::get).patch(spaces::update).delete(spaces::remove))
        .route(&under("erase"), post(entries::erase))
        .route(&under("merge"), post(upkeep::merge))
        .route(&under("consolidate"), post(upkeep::consolidate))
        .route(&under("check"), post(upkeep::check))
        .route(&under("rebuild"), post(upkeep::rebuild))
        .route(&under("skills/promote"), post(skills::promote))
        .route(&under("skills/{name}/run"), post(skill_run::run))
        .merge(own_routes())
}

/// The routes that a sandbox may use for its own memory.
pub fn own_routes() -> Routes<Arc<App>> {
    let under = |rest: &str| format!("/v1/memory/{{of}}/{rest}");
    Routes::new()
        .route("/v1/memory/{of}", get(upkeep::stats))
        .route(&under("entries"), get(entries::list).post(entries::add))
        .route(&under("entries/{entry}"), get(entries::get).patch(entries::update).delete(entries::remove))
        .route(&under("entries/{entry}/history"), get(entries::history))
        .route(&under("search"), post(search::search))
        .route(&under("context"), post(search::context))
        .route(&under("recall"), post(search::recall))
        .route(&under("turns"), post(search::turns))
        .route(&under("forget"), post(entries::forget))
        .route(&under("sessions"), get(entries::sessions))
        .route(&under("export"), get(transfer::export))
        .route(&under("import"), post(transfer::import))
        .route(&under("kv"), get(kv::list))
        .route(&under("kv/{*key}"), get(kv::get).put(kv::set).delete(kv::remove))
        .route(&under("kv-history/{*key}"), get(kv::history))
        .route(&under("kv-batch"), post(kv::batch))
        .route(&under("kv-increment"), post(kv::increment))
        .route(&under("kv-watch"), get(kv_watch::watch))
        .route(&under("skills"), get(skills::list).post(skills::put))
        .route(&under("skills/search"), post(skills::search))
        .route(&under("skills/{name}"), get(skills::get).delete(skills::remove))
        .route(&under("skills/{name}/versions"), get(skills::versions))
        .route(&under("skills/{name}/outcome"), post(skills::outcome))
        .route(&under("artifacts"), get(artifacts::list))
        .route(
            &under("artifacts/{*name}"),
            get(artifacts::get).head(artifacts::head).put(artifacts::put).delete(artifacts::remove),
        )
        .route(&under("artifact-versions/{*name}"), get(artifacts::versions))
}

/// The router of the own listener of one sandbox: every request is made by that sandbox, whatever key it contains.
pub fn own_listener_router(app: Arc<App>, tenant: TenantId, sandbox: SandboxId) -> Router {
    own_routes()
        .into_router()
        .fallback(no_such_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), observe::admit))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        // The outermost layer, so that all others know the caller.
        .layer(Extension(OwnListener::new(tenant, sandbox, app.engine.now_ms())))
        .with_state(app)
}
