//! The SSH gateway, and the public keys that users log in with. A login has the rights of the API key that added its public
//! key.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{AddSshKey, Page, Ssh, SshKey, defaults};
use burrow_catalog::{CatalogError, PageRequest, SshKeyRow};
use burrow_model::{KeyId, SshKeyId};
use burrow_ssh::Login;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::ssh_link::{LIFE_MS, Link};
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, check_reference};
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, ObjectRefusals, WithBody};

/// Maximum length of a key's name.
const NAME_LENGTH_MAX: usize = 100;

#[utoipa::path(
    get, path = "/v1/ssh", tag = "ssh",
    responses((status = 200, description = "The address of the gateway, and its host key", body = Ssh), Common),
)]
pub(crate) async fn show(State(app): State<Arc<App>>, _: Reader, _: NoParams) -> Json<Ssh> {
    Json(app.part::<Link>().status())
}

#[utoipa::path(
    post, path = "/v1/ssh/keys", tag = "ssh", request_body = AddSshKey,
    responses((status = 201, description = "Added, or existed already", body = SshKey), Common, WithBody,
        (status = 409, description = "The key was already added with another API key, or there are too many keys", body = burrow_api::ErrorBody)),
)]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    body: JsonBody<AddSshKey>,
) -> Result<(StatusCode, Json<SshKey>), ApiError> {
    let AddSshKey { public_key, name } = body.value;
    let login =
        Login::parse(&public_key).map_err(|bad| ApiError::invalid(bad.to_string()).hint(bad.hint()))?;
    let name = name.unwrap_or(login.comment);
    if name.chars().count() > NAME_LENGTH_MAX || name.chars().any(char::is_control) {
        let message =
            format!("`name` must be at most {NAME_LENGTH_MAX} characters without control characters");
        return Err(ApiError::invalid(message));
    }
    let row = SshKeyRow {
        id: SshKeyId::generate(),
        tenant: caller.tenant().clone(),
        api_key: caller.key_id()?.clone(),
        name,
        public_key: login.key,
        fingerprint: login.fingerprint,
        created_ms: app.engine.now_ms(),
        last_used_ms: None,
    };
    let row = match app.engine.catalog().insert_ssh_key(row.clone()).await {
        Err(CatalogError::SshKeyTaken) => return Err(taken(&app, row)),
        outcome => outcome?,
    };
    if let Some(trace) = caller.trace() {
        trace.target(row.id.as_str());
    }
    tracing::info!(key = %row.id, fingerprint = row.fingerprint, "SSH key added");
    Ok((StatusCode::CREATED, Json(to_api(row))))
}

/// The public key belongs to another API key. The owner of its private key can take it over, by a login that proves
/// ownership.
fn taken(app: &App, row: SshKeyRow) -> ApiError {
    let error = ApiError::from(CatalogError::SshKeyTaken);
    let Some(address) = app.part::<Link>().status().address.and_then(|text| text.parse::<SocketAddr>().ok())
    else {
        return error;
    };
    let code = app.part::<Link>().claims.begin(row, app.engine.now_ms());
    // An address such as `0.0.0.0` is not one to connect to.
    let host = if address.ip().is_unspecified() { "HOST".to_owned() } else { address.ip().to_string() };
    let minutes = LIFE_MS / 60_000;
    error.hint(format!(
        "to take it over, prove within {minutes} minutes that you have its private key: `ssh -p {} claim+{code}@{host}`",
        address.port()
    ))
}

#[utoipa::path(
    get, path = "/v1/ssh/keys", tag = "ssh", params(PageParams),
    responses((status = 200, description = "Newest first: all keys for admins, and their own keys for others",
        body = Page<SshKey>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<SshKey>>, ApiError> {
    let found =
        app.engine.catalog().list_ssh_keys(caller.tenant(), seen_by(&caller)?, params.request()?).await?;
    Ok(Json(page(found, to_api)))
}

/// Names an SSH key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SshKeyPath {
    /// The SSH key's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    key: String,
}

#[utoipa::path(
    delete, path = "/v1/ssh/keys/{key}", tag = "ssh", params(SshKeyPath),
    responses((status = 204, description = "Removed: logins with it fail, and its connections are closed"), Common, ObjectRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SshKeyPath>,
) -> Result<StatusCode, ApiError> {
    let row = find(&app, &caller, &path.key).await?;
    if let Some(trace) = caller.trace() {
        trace.target(row.id.as_str());
    }
    app.engine.catalog().remove_ssh_key(caller.tenant(), &row.id).await?;
    app.part::<Link>().key_taken_away();
    tracing::info!(key = %row.id, fingerprint = row.fingerprint, "SSH key removed");
    Ok(StatusCode::NO_CONTENT)
}

/// Restricts a list to the keys that belong to the caller's API key, unless it is an admin key.
fn seen_by(caller: &Caller) -> Result<Option<KeyId>, ApiError> {
    if caller.manages().is_ok() { Ok(None) } else { Ok(Some(caller.key_id()?.clone())) }
}

async fn find(app: &App, caller: &Caller, text: &str) -> Result<SshKeyRow, ApiError> {
    check_reference(text)?;
    let all = PageRequest { cursor: None, limit: defaults::PAGE_LIMIT_MAX };
    let known = app.engine.catalog().list_ssh_keys(caller.tenant(), seen_by(caller)?, all).await?.rows;
    let begun = |row: &SshKeyRow| text.len() > SshKeyId::PREFIX.len() && row.id.as_str().starts_with(text);
    let mut fitting = known.into_iter().filter(|row| begun(row) || row.name == text);
    match (fitting.next(), fitting.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => {
            Err(ApiError::invalid("this matches several keys")
                .hint("give the full id, or more characters of it"))
        }
        (None, _) => Err(CatalogError::Unknown { kind: "SSH key", id: text.to_owned() }.into()),
    }
}

fn to_api(row: SshKeyRow) -> SshKey {
    SshKey {
        id: row.id.to_string(),
        name: row.name,
        public_key: row.public_key,
        fingerprint: row.fingerprint,
        key_id: row.api_key.to_string(),
        created_ms: row.created_ms,
        last_used_ms: row.last_used_ms,
    }
}
