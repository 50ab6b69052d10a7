//! Spaces that outlive sandboxes: create, list, inspect, change, remove.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::Page;
use burrow_api::memory::{CreateSpace, Space, UpdateSpace};
use burrow_catalog::SpaceChange;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, UnboundExecutor, check_reference};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, MemoryRefusals, WithBody};

/// Names a space.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SpacePath {
    /// The space's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    space: String,
}

impl SpacePath {
    /// For a key that is bound to one sandbox, no spaces exist here; it accesses them through its sandbox.
    async fn resolve(&self, app: &App, caller: &Caller) -> Result<burrow_catalog::SpaceRow, ApiError> {
        check_reference(&self.space)?;
        let unknown = || burrow_engine::EngineError::NotFound {
            kind: burrow_engine::ObjectKind::Space,
            what: self.space.clone(),
        };
        if caller.bound_to().is_some() {
            return Err(unknown().into());
        }
        Ok(app.engine.find_space(caller.tenant(), &self.space).await?)
    }
}

#[utoipa::path(
    post, path = "/v1/spaces", tag = "memory", request_body = CreateSpace,
    responses((status = 201, description = "Created", body = Space), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    body: JsonBody<CreateSpace>,
) -> Result<(StatusCode, Json<Space>), ApiError> {
    let CreateSpace { name, description, labels } = body.value;
    let name = convert::space_name(&name)?;
    convert::check_description(&description)?;
    convert::check_labels(labels.iter().map(|(key, value)| (key, Some(value))))?;
    let row = app.engine.create_space(caller.tenant(), name, description, labels).await?;
    Ok((StatusCode::CREATED, Json(convert::space(row, Vec::new()))))
}

#[utoipa::path(
    get, path = "/v1/spaces", tag = "memory", params(PageParams),
    responses((status = 200, description = "Newest first", body = Page<Space>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Space>>, ApiError> {
    let request = params.request()?;
    caller.unbound()?;
    let found = app.engine.spaces(caller.tenant(), request).await?;
    Ok(Json(page(found, |row| convert::space(row, Vec::new()))))
}

#[utoipa::path(
    get, path = "/v1/spaces/{space}", tag = "memory", params(SpacePath),
    responses((status = 200, description = "The space, and the sandboxes that use it", body = Space), Common, MemoryRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SpacePath>,
) -> Result<Json<Space>, ApiError> {
    let row = path.resolve(&app, &caller).await?;
    let users = app.engine.catalog().users_of_space(&row.id).await?;
    Ok(Json(convert::space(row, users)))
}

#[utoipa::path(
    patch, path = "/v1/spaces/{space}", tag = "memory", params(SpacePath), request_body = UpdateSpace,
    responses((status = 200, description = "The changed space", body = Space), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn update(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SpacePath>,
    body: JsonBody<UpdateSpace>,
) -> Result<Json<Space>, ApiError> {
    let UpdateSpace { name, description, labels } = body.value;
    let name = name.as_deref().map(convert::space_name).transpose()?;
    convert::check_description(description.as_deref().unwrap_or_default())?;
    convert::check_labels(labels.iter().map(|(key, value)| (key, value.as_ref())))?;
    let row = path.resolve(&app, &caller).await?;
    let labels = (!labels.is_empty()).then(|| merged(row.labels, labels));
    convert::check_labels(labels.iter().flatten().map(|(key, value)| (key, Some(value))))?;
    let change = SpaceChange { name, description, labels };
    let row = app.engine.update_space(caller.tenant(), &row.id, change).await?;
    let users = app.engine.catalog().users_of_space(&row.id).await?;
    Ok(Json(convert::space(row, users)))
}

/// `None` removes a label.
fn merged(
    mut labels: BTreeMap<String, String>,
    change: BTreeMap<String, Option<String>>,
) -> BTreeMap<String, String> {
    for (key, value) in change {
        match value {
            Some(value) => labels.insert(key, value),
            None => labels.remove(&key),
        };
    }
    labels
}

/// How to remove a space.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveParams {
    /// Remove the space even if sandboxes use it, which then write to their own space again; false when absent.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

#[utoipa::path(
    delete, path = "/v1/spaces/{space}", tag = "memory", params(SpacePath, RemoveParams),
    responses((status = 204, description = "Removed, with its contents"), Common, MemoryRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SpacePath>,
    Params(params): Params<RemoveParams>,
) -> Result<StatusCode, ApiError> {
    let row = path.resolve(&app, &caller).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.run_to_completion(async move { Ok(engine.delete_space(&tenant, &row.id, params.force).await?) })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
