//! Secrets: set, rotate, list, show, remove. Only admins change them, and no response contains a value.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{Page, RotateSecret, Secret, SetSecret};
use burrow_model::Name;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Admin, Reader, check_reference};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{NoParams, Params, SecretBody, Segments};
use burrow_http::pages::{PageParams, page_of_list};
use burrow_http::refusals::{Common, SecretRefusals, WithBody};

/// Names a secret.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SecretPath {
    /// The secret's name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    secret: String,
}

impl SecretPath {
    fn name(&self) -> Result<Name, ApiError> {
        check_reference(&self.secret)?;
        self.secret.parse().map_err(|_| ApiError::invalid("this is not a valid name of a secret"))
    }
}

#[utoipa::path(
    put, path = "/v1/secrets/{secret}", tag = "secrets", params(SecretPath), request_body = SetSecret,
    responses((status = 200, description = "The secret, without its value", body = Secret),
        Common, SecretRefusals, WithBody),
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    Segments(path): Segments<SecretPath>,
    SecretBody(body): SecretBody<SetSecret>,
) -> Result<Json<Secret>, ApiError> {
    let SetSecret { allow, slot, placeholder, value } = body;
    let spec = convert::secret_spec(path.name()?, allow, slot, placeholder)?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let work = async move { Ok(engine.set_secret(&tenant, spec, value).await?) };
    let status = app.run_to_completion(work).await?;
    tracing::info!(secret = %status.row.spec.name, version = status.row.version, "secret set");
    Ok(Json(convert::secret(status)))
}

#[utoipa::path(
    post, path = "/v1/secrets/{secret}/rotate", tag = "secrets", params(SecretPath), request_body = RotateSecret,
    responses((status = 200, description = "The secret, without its value", body = Secret),
        Common, SecretRefusals, WithBody),
)]
pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    Segments(path): Segments<SecretPath>,
    SecretBody(body): SecretBody<RotateSecret>,
) -> Result<Json<Secret>, ApiError> {
    let (engine, tenant, name) = (app.engine.clone(), caller.tenant().clone(), path.name()?);
    let work = async move { Ok(engine.rotate_secret(&tenant, &name, body.value).await?) };
    let status = app.run_to_completion(work).await?;
    tracing::info!(secret = %status.row.spec.name, version = status.row.version, "secret rotated");
    Ok(Json(convert::secret(status)))
}

#[utoipa::path(
    get, path = "/v1/secrets", tag = "secrets", params(PageParams),
    responses((status = 200, description = "Sorted by name, without values", body = Page<Secret>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Secret>>, ApiError> {
    let request = params.request()?;
    caller.unbound()?;
    let all = app.engine.secrets(caller.tenant()).await?;
    let all = all.into_iter().map(convert::secret).collect();
    Ok(Json(page_of_list(all, &request, |secret: &Secret| &secret.name)?))
}

#[utoipa::path(
    get, path = "/v1/secrets/{secret}", tag = "secrets", params(SecretPath),
    responses((status = 200, description = "The secret, without its value", body = Secret), Common, SecretRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<SecretPath>,
) -> Result<Json<Secret>, ApiError> {
    let name = path.name()?;
    caller.unbound()?;
    Ok(Json(convert::secret(app.engine.secret(caller.tenant(), &name).await?)))
}

/// How to remove a secret.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveParams {
    /// Remove the secret even if rules of sandboxes use it; requests that these rules cover are then refused. False when
    /// absent.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

#[utoipa::path(
    delete, path = "/v1/secrets/{secret}", tag = "secrets", params(SecretPath, RemoveParams),
    responses((status = 204, description = "Removed"), Common, SecretRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Admin,
    Segments(path): Segments<SecretPath>,
    Params(params): Params<RemoveParams>,
) -> Result<StatusCode, ApiError> {
    let (engine, tenant, name) = (app.engine.clone(), caller.tenant().clone(), path.name()?);
    tracing::info!(secret = %name, "removing a secret");
    app.run_to_completion(async move { Ok(engine.delete_secret(&tenant, &name, params.force).await?) })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
