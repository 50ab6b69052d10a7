//! Joins the interfaces: one router for the daemon's address, and the routers for the addresses of sandboxes.

use std::sync::Arc;

use axum::Router;
use burrow_http::app::App;
use burrow_http::middleware::{method_not_allowed, no_such_route, with_middleware};
use burrow_http::routes::Routes;

use crate::front::{FrontService, InnerRouters};
use crate::mcp;

/// All routes of the daemon.
pub(crate) fn router(app: Arc<App>) -> FrontService {
    let api = api(&app);
    let models = with_middleware(mcp::router(app.clone(), api.clone()), &app);
    let of_sandbox = with_middleware(mcp::sandbox_router(app.clone(), api.clone()), &app);
    let for_gone =
        || axum::middleware::from_fn_with_state(app.clone(), burrow_gateway::e2b::reach::answer_for_gone);
    let envd = with_middleware(burrow_e2b::envd::router().layer(for_gone()), &app);
    let interpreter = with_middleware(burrow_e2b::interpreter::router().layer(for_gone()), &app);
    // Before all routes: on the host name of a sandbox, every path belongs to the sandbox.
    FrontService::new(app, InnerRouters { routes: api.merge(models), envd, interpreter, mcp: of_sandbox })
}

/// The routes for scripts, with their middleware.
pub(crate) fn api(app: &Arc<App>) -> Router {
    let router = api_routes().into_router();
    with_middleware(router.fallback(no_such_route).method_not_allowed_fallback(method_not_allowed), app)
}

/// The routes for scripts: Burrow's own and those of E2B's control plane.
pub(crate) fn api_routes() -> Routes<Arc<App>> {
    burrow_rest::routes().merge(burrow_e2b::routes())
}
