//! What every router has: its middleware, and the answers for unknown routes and methods.

use std::sync::Arc;

use axum::{Router, middleware};
use burrow_api::ErrorCode;

use crate::app::App;
use crate::error::ApiError;
use crate::{audited, observe};

/// Adds the middleware that every route has.
pub fn with_middleware(router: Router<Arc<App>>, app: &Arc<App>) -> Router {
    router
        .layer(middleware::from_fn_with_state(app.clone(), audited::audited))
        .layer(middleware::from_fn_with_state(app.clone(), observe::admit))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app.clone())
}

pub async fn no_such_route() -> ApiError {
    ApiError::new(ErrorCode::NoSuchRoute, "there is no such route")
        .hint("`/v1/openapi.json` lists all routes")
}

pub async fn method_not_allowed() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "this route does not support this method")
        .hint("the `Allow` header of this response lists the supported methods")
}
