//! Services: supervised processes of a sandbox.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{CreateService, Page, Service};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{Executor, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page_of_list};
use burrow_http::refusals::{Common, GuestRefusals, SandboxRefusals, WithBody};

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/services", tag = "services", params(SandboxPath, PageParams),
    responses((status = 200, description = "Sorted by name", body = Page<Service>), Common, GuestRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Service>>, ApiError> {
    let request = params.request()?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let services = app.engine.services(caller.tenant(), &id).await?;
    let services = services.into_iter().map(convert::service).collect();
    Ok(Json(page_of_list(services, &request, |service| &service.name)?))
}

/// Names a service.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ServicePath {
    /// The sandbox's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: String,
    /// The service's name.
    #[param(pattern = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
    name: String,
}

#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/services/{name}", tag = "services", params(ServicePath),
    request_body = CreateService,
    responses((status = 200, description = "Declared; started if the sandbox runs", body = Service),
        Common, SandboxRefusals, WithBody),
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ServicePath>,
    body: JsonBody<CreateService>,
) -> Result<Json<Service>, ApiError> {
    let name = convert::name("name", &path.name)?;
    let spec = convert::service_spec(body.value)?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let status =
        app.run_to_completion(async move { Ok(engine.set_service(&tenant, &id, name, spec).await?) }).await?;
    Ok(Json(convert::service(status)))
}

#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/services/{name}", tag = "services", params(ServicePath),
    responses((status = 204, description = "Stopped and removed"), Common, SandboxRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ServicePath>,
) -> Result<StatusCode, ApiError> {
    let name = convert::name("name", &path.name)?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.run_to_completion(async move { Ok(engine.remove_service(&tenant, &id, &name).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/services/{name}/restart", tag = "services", params(ServicePath),
    responses((status = 204, description = "Restarted"), Common, GuestRefusals),
)]
pub(crate) async fn restart(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ServicePath>,
) -> Result<StatusCode, ApiError> {
    let name = convert::name("name", &path.name)?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    app.engine.restart_service(caller.tenant(), &id, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
