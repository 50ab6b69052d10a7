//! Differences between two file trees.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{Diff, DiffRequest, ErrorCode};
use burrow_engine::{EngineError, ObjectKind, TreeSource};
use http::Uri;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Caller, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, pairs, unknown_parameter};
use burrow_http::refusals::{Common, WithBody};

/// What to compare.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "read by `params`; declared here for the OpenAPI document")]
pub(crate) struct DiffParams {
    /// The tree to compare from: a sandbox, a snapshot or an image.
    #[param(max_length = 300)]
    from: String,
    /// The tree to compare to.
    #[param(max_length = 300)]
    to: String,
    /// Only paths that match this pattern; may be given several times.
    glob: Option<Vec<String>>,
    /// Include paths that are normally hidden as noise.
    all: Option<bool>,
    /// Include the changed lines of text files.
    content: Option<bool>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/diff", tag = "merges", params(DiffParams),
    responses(
        (status = 200, description = "The differences", body = Diff),
        (status = 404, description = "No such sandbox, snapshot or image, or not yours", body = burrow_api::ErrorBody),
        (status = 422, description = "There are more differences than can be compared", body = burrow_api::ErrorBody),
        Common,
    ),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    uri: Uri,
) -> Result<Json<Diff>, ApiError> {
    answer(&app, &caller, params(&uri)?).await
}

#[utoipa::path(
    post, path = "/v1/diff", tag = "merges", request_body = DiffRequest,
    responses(
        (status = 200, description = "The differences", body = Diff),
        (status = 404, description = "No such sandbox, snapshot or image, or not yours", body = burrow_api::ErrorBody),
        Common, WithBody,
    ),
)]
pub(crate) async fn post(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    body: JsonBody<DiffRequest>,
) -> Result<Json<Diff>, ApiError> {
    answer(&app, &caller, body.value).await
}

fn params(uri: &Uri) -> Result<DiffRequest, ApiError> {
    let mut request = DiffRequest::default();
    let flag = |name: &str, value: &str| {
        value.parse().map_err(|_| ApiError::invalid(format!("`{name}` must be `true` or `false`")))
    };
    for (key, value) in pairs(uri)? {
        match key.as_str() {
            "from" if request.from.is_empty() => request.from = value,
            "to" if request.to.is_empty() => request.to = value,
            "from" | "to" => return Err(ApiError::invalid(format!("`{key}` was given more than once"))),
            "glob" => request.globs.push(value),
            "all" => request.all = flag("all", &value)?,
            "content" => request.content = flag("content", &value)?,
            "limit" => {
                let limit = value.parse().map_err(|_| ApiError::invalid("`limit` must be a number"))?;
                request.limit = Some(limit);
            }
            _ => return Err(unknown_parameter(&key)),
        }
    }
    Ok(request)
}

async fn answer(app: &Arc<App>, caller: &Caller, request: DiffRequest) -> Result<Json<Diff>, ApiError> {
    let options = convert::diff_options(&request)?;
    let old = tree_of(app, caller, "from", &request.from).await?;
    let new = tree_of(app, caller, "to", &request.to).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    // Completed even if the client disconnects, so that snapshots created for it are removed.
    let diff = app
        .run_to_completion(async move {
            let diffed = engine.diff(&tenant, &old, &new, options).await?;
            Ok(convert::diff(&old, &new, diffed))
        })
        .await?;
    Ok(Json(diff))
}

/// Finds the tree that a text names, among those that the caller may see.
pub(crate) async fn tree_of(
    app: &App,
    caller: &Caller,
    field: &str,
    text: &str,
) -> Result<TreeSource, ApiError> {
    let (kind, rest) = match text.split_once(':') {
        Some((kind @ ("sandbox" | "snapshot" | "image"), rest)) => (Some(kind), rest),
        // An image's name may contain a `:`.
        Some(_) | None => (None, text),
    };
    if rest.is_empty() || rest.len() > 255 {
        return Err(ApiError::invalid(format!("`{field}` must name a sandbox, a snapshot or an image")));
    }
    let wants = |wanted: &str| kind.is_none_or(|kind| kind == wanted);
    // A text that cannot be an id or a name of a sandbox may still be the name of an image.
    let plain = burrow_http::auth::check_reference(rest).is_ok();
    if wants("sandbox") && plain {
        match found(sandbox(app, caller, rest).await)? {
            Some(found) => return Ok(found),
            None if kind.is_some() => {
                return Err(EngineError::NotFound { kind: ObjectKind::Sandbox, what: rest.to_owned() }.into());
            }
            None => {}
        }
    }
    if wants("snapshot")
        && plain
        && let Some(snapshot) = found(caller.snapshot(app, rest).await)?
    {
        return Ok(TreeSource::Snapshot(Box::new(snapshot)));
    }
    // A key that is bound to one sandbox sees only its sandbox's own image.
    if wants("image") && convert::image_reference(field, rest).is_ok() && caller.bound_to().is_none() {
        let image = app.engine.find_image(caller.tenant(), rest).await.map_err(ApiError::from);
        if let Some(image) = found(image)? {
            return Ok(TreeSource::Image(Box::new(image)));
        }
    }
    Err(EngineError::NotFound { kind: ObjectKind::Tree, what: rest.to_owned() }.into())
}

async fn sandbox(app: &App, caller: &Caller, text: &str) -> Result<TreeSource, ApiError> {
    let id = caller.sandbox(app, text).await?;
    Ok(TreeSource::Sandbox(Box::new(app.engine.get(caller.tenant(), &id).await?)))
}

/// `None` if it does not exist.
fn found<T>(looked_up: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match looked_up {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
