//! API keys: create, list, show, revoke. For admins.
//!
//! Any key can show and revoke itself (`self`). One that is not bound can create keys that are bound to a sandbox, have no
//! more rights than itself, expire soon, and end with it: so a client can restrict itself to what it needs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{CreateKey, CreatedKey, Key, Page, defaults};
use burrow_catalog::{CatalogError, KeyRow, NewKey, PageRequest};
use burrow_model::{KeyId, ScopeSet};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use super::volumes::VolumePath;
use crate::ssh_link::Link;
use burrow_gateway::e2b::Lookups;
use burrow_http::app::App;
use burrow_http::auth::{Admin, Reader, UnboundExecutor, check_reference};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::idempotency::{IdempotentResponse, InProgressRecord, once, to_json};
use burrow_http::input::{JsonBody, NoParams, Params, Segments, idempotency_key};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, IdempotencyRefusals, ObjectRefusals, VolumeRefusals, WithBody};

/// Maximum length of a key's name.
const NAME_LENGTH_MAX: usize = 100;

/// The longest lifetime of a key that a key without the scope `admin` creates.
const DERIVED_SECONDS_MAX: u64 = 24 * 3600;

/// The key of the request, as a reference to a key. Ids of keys have another form, and names are not preferred to it.
const SELF: &str = "self";

#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", request_body = CreateKey,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests with the same key and body create one key; the response to a repeat does not contain its secret")),
    responses((status = 201, description = "Created; the secret is shown only in this response", body = CreatedKey),
        Common, ObjectRefusals, WithBody, IdempotencyRefusals),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    headers: HeaderMap,
    body: JsonBody<CreateKey>,
) -> Result<IdempotentResponse, ApiError> {
    // A caller that manages keys may create any, and these do not end with its own.
    let parent = match caller.manages() {
        Ok(()) => None,
        Err(_) if is_derived(&caller, &body.value) => Some(caller.key_id()?.clone()),
        Err(error) => return Err(error),
    };
    let CreateKey { name, scope, sandbox, forks, ttl_seconds } = body.value;
    if forks && sandbox.is_none() {
        return Err(ApiError::invalid("`forks` requires `sandbox`: the sandbox whose forks the key reaches"));
    }
    if name.is_empty() || name.chars().count() > NAME_LENGTH_MAX || name.chars().any(char::is_control) {
        let message = format!("`name` must be 1 to {NAME_LENGTH_MAX} characters without control characters");
        return Err(ApiError::invalid(message));
    }
    let now_ms = app.engine.now_ms();
    let expires_ms = convert::expires("ttl_seconds", ttl_seconds, now_ms)?;
    let sandbox = match sandbox {
        // Loads the row, because a key must not be bound to a sandbox that does not exist.
        Some(text) => {
            let id = caller.sandbox(&app, &text).await?;
            Some(app.engine.get(caller.tenant(), &id).await?.id)
        }
        None => None,
    };
    let tenant = caller.tenant().clone();
    let scope = convert::key_scope(scope);
    let tenant_of_key = tenant.clone();
    let new =
        NewKey { tenant: tenant_of_key, name, scope, sandbox, forks, parent, created_ms: now_ms, expires_ms };
    let catalog = app.engine.catalog().clone();
    let work = async move {
        let (row, secret) = catalog.create_key(new).await?;
        tracing::info!(key = %row.id, scope = %row.scope, "key created");
        let key = convert::key(row);
        let kept = to_json(&CreatedKey { key: key.clone(), secret: String::new() })?;
        let body = to_json(&CreatedKey { key, secret: secret.expose().to_owned() })?;
        Ok(IdempotentResponse { status: StatusCode::CREATED, body, kept: Some(kept) })
    };
    once(&app, &tenant, idempotency_key(&headers)?, "keys", &body.bytes, InProgressRecord::Durably, work)
        .await
}

/// Whether the requested key has less rights than the caller's, so that the caller needs no permission to create it. A bound
/// key may be inside its sandbox: it must not create keys that remain valid when it is revoked.
fn is_derived(caller: &Reader, request: &CreateKey) -> bool {
    let scope = convert::key_scope(request.scope);
    let expires = request.ttl_seconds.is_some_and(|seconds| seconds <= DERIVED_SECONDS_MAX);
    request.sandbox.is_some()
        && expires
        && caller.unbound().is_ok()
        && caller.key_id().is_ok()
        && ScopeSet::new(caller.scope()).allows(scope)
}

#[utoipa::path(
    get, path = "/v1/keys", tag = "keys", params(PageParams),
    responses((status = 200, description = "Newest first, including revoked keys", body = Page<Key>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Admin,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Key>>, ApiError> {
    let found = app.engine.catalog().list_keys(caller.tenant(), params.request()?).await?;
    Ok(Json(page(found, convert::key)))
}

/// Names a key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct KeyPath {
    /// The key's id, a unique prefix of its id, or its name; `self` for the key of the request.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    key: String,
}

#[utoipa::path(
    get, path = "/v1/keys/{key}", tag = "keys", params(KeyPath),
    responses((status = 200, description = "The key, without its secret", body = Key), Common, ObjectRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<KeyPath>,
) -> Result<Json<Key>, ApiError> {
    Ok(Json(convert::key(find(&app, &caller, &path.key).await?)))
}

#[utoipa::path(
    delete, path = "/v1/keys/{key}", tag = "keys", params(KeyPath),
    responses((status = 204, description = "Revoked, with immediate effect"), Common, ObjectRefusals,
        (status = 409, description = "The last admin key cannot be revoked", body = burrow_api::ErrorBody)),
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<KeyPath>,
) -> Result<StatusCode, ApiError> {
    let row = find(&app, &caller, &path.key).await?;
    if let Some(trace) = caller.trace() {
        trace.target(row.id.as_str());
    }
    app.engine.catalog().revoke_key(caller.tenant(), &row.id, app.engine.now_ms()).await?;
    app.part::<Link>().key_taken_away();
    tracing::info!(key = %row.id, "key revoked");
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/revoke-tokens", tag = "keys", params(SandboxPath),
    responses((status = 204, description = "Tokens and signed file URLs that E2B clients received for this sandbox are no longer \
        valid; open connections continue"), Common, ObjectRefusals),
)]
pub(crate) async fn revoke_tokens(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
) -> Result<StatusCode, ApiError> {
    let id = caller.sandbox(&app, &path.sandbox).await?;
    app.engine.catalog().revoke_tokens(caller.tenant(), &id).await?;
    app.part::<Lookups>().forget(&id);
    tracing::info!(sandbox = %id, "tokens revoked");
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/volumes/{volume}/revoke-tokens", tag = "keys", params(VolumePath),
    responses((status = 204, description = "Tokens that E2B clients received for the files of this volume are no longer valid; \
        transfers in progress continue"), Common, VolumeRefusals),
)]
pub(crate) async fn revoke_volume_tokens(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<VolumePath>,
) -> Result<StatusCode, ApiError> {
    let volume = path.resolve(&app, &caller).await?;
    app.engine.catalog().revoke_volume_tokens(caller.tenant(), &volume.id).await?;
    tracing::info!(volume = %volume.id, "tokens revoked");
    Ok(StatusCode::NO_CONTENT)
}

async fn find(app: &App, caller: &Reader, text: &str) -> Result<KeyRow, ApiError> {
    check_reference(text)?;
    let unknown = || ApiError::from(CatalogError::Unknown { kind: "key", id: text.to_owned() });
    let catalog = app.engine.catalog();
    if text == SELF {
        return catalog.key(caller.tenant(), caller.key_id()?).await?.ok_or_else(unknown);
    }
    caller.manages()?;
    if let Ok(id) = text.parse::<KeyId>() {
        return catalog.key(caller.tenant(), &id).await?.ok_or_else(unknown);
    }
    let newest = PageRequest { cursor: None, limit: defaults::PAGE_LIMIT_MAX };
    let known = catalog.list_keys(caller.tenant(), newest).await?.rows;
    let meant =
        |row: &KeyRow| row.id.as_str().starts_with(text) || (row.name == text && row.revoked_ms.is_none());
    let mut fitting = known.into_iter().filter(meant);
    match (fitting.next(), fitting.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => {
            Err(ApiError::invalid("this matches several keys")
                .hint("give the full id, or more characters of it"))
        }
        (None, _) => Err(unknown()),
    }
}
