//! Working memory: get, set, delete, list, history, batches.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::memory::{KvBatch, KvChanged, KvIncrement, KvItem, KvOperation, KvSet, KvVersion};
use burrow_api::{ErrorCode, Page, defaults};
use burrow_memory::kv::KvOp;
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::access::{MemoryPath, MemoryReader, MemoryWriter, ReadParams, WriteParams};
use super::page::{memory_page, page_request};
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{MemoryBody, Params, Segments};
use burrow_http::refusals::{Common, MemoryRefusals, WithBody};

/// Names a key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct KeyPath {
    /// A sandbox or a space: its id, a unique prefix of its id, or its name. A sandbox takes precedence; use
    /// `sandbox:NAME` or `space:NAME` to be explicit.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    of: String,
    /// The key, at most 512 bytes, which may contain slashes.
    #[param(min_length = 1, max_length = 512)]
    key: String,
}

/// Filters for keys.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Only keys with this prefix.
    #[param(max_length = 512)]
    prefix: Option<String>,
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// `next_cursor` of the previous page.
    #[param(max_length = 1024)]
    cursor: Option<String>,
    /// Maximum number of keys; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/kv", tag = "memory", params(MemoryPath, ListParams),
    responses((status = 200, description = "Sorted by key", body = Page<KvItem>), Common, MemoryRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<KvItem>>, ApiError> {
    let request = page_request(params.cursor, params.limit)?;
    let read = ReadParams { as_of: params.as_of, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    let found = space.view.kv_list(params.prefix.as_deref().unwrap_or_default(), request).await?;
    Ok(Json(memory_page(found, convert::kv_item)))
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/kv/{key}", tag = "memory", params(KeyPath, ReadParams),
    responses((status = 200, description = "The key and its value", body = KvItem), Common, MemoryRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<KeyPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<KvItem>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    match space.view.kv_get(&path.key).await? {
        Some(item) => Ok(Json(convert::kv_item(item))),
        None => Err(no_key(&path.key)),
    }
}

fn no_key(key: &str) -> ApiError {
    let shown: String = key.chars().take(80).collect();
    ApiError::new(ErrorCode::NotFound, format!("no key `{shown}`")).hint("`burrow kv ls` lists all keys")
}

#[utoipa::path(
    put, path = "/v1/memory/{of}/kv/{key}", tag = "memory", params(KeyPath, WriteParams), request_body = KvSet,
    responses((status = 200, description = "Stored durably", body = KvItem), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<KeyPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<KvSet>,
) -> Result<Json<KvItem>, ApiError> {
    let KvSet { value, ttl_seconds, if_version, if_absent } = body;
    let op = KvOperation::Set { key: path.key, value, ttl_seconds, if_version, if_absent };
    let space = caller.growing(&app, &path.of, &params).await?;
    Ok(Json(one(space.view.kv_batch(vec![convert::kv_operation(op)?]).await?)?))
}

/// The result of a single change.
fn one(mut items: Vec<Option<burrow_memory::kv::KvItem>>) -> Result<KvItem, ApiError> {
    match items.pop().flatten() {
        Some(item) => Ok(convert::kv_item(item)),
        // The key was set, but has expired before it was read.
        None => Err(ApiError::new(ErrorCode::NotFound, "the key has already expired")),
    }
}

/// How to delete a key.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteParams {
    /// The name or id of a space that is attached read-write; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// Delete the key only if this is still its version.
    if_version: Option<u64>,
}

#[utoipa::path(
    delete, path = "/v1/memory/{of}/kv/{key}", tag = "memory", params(KeyPath, DeleteParams),
    responses((status = 204, description = "Deleted, or did not exist"), Common, MemoryRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<KeyPath>,
    Params(params): Params<DeleteParams>,
) -> Result<StatusCode, ApiError> {
    let write = WriteParams { space: params.space };
    let space = caller.writing(&app, &path.of, &write).await?;
    let op = KvOperation::Delete { key: path.key, if_version: params.if_version };
    space.view.kv_batch(vec![convert::kv_operation(op)?]).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/kv-history/{key}", tag = "memory", params(KeyPath, ReadParams),
    responses((status = 200, description = "The changes of the key", body = Vec<KvVersion>), Common, MemoryRefusals),
)]
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<KeyPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<Vec<KvVersion>>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    let versions = space.view.kv_history(&path.key).await?;
    if versions.is_empty() {
        return Err(no_key(&path.key));
    }
    Ok(Json(versions.into_iter().map(convert::kv_version).collect()))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/kv-batch", tag = "memory", params(MemoryPath, WriteParams), request_body = KvBatch,
    responses((status = 200, description = "All operations were executed", body = KvChanged), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn batch(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<KvBatch>,
) -> Result<Json<KvChanged>, ApiError> {
    match body.ops.len() {
        0 => return Err(ApiError::invalid("`ops` is empty")),
        1..=defaults::KV_BATCH_MAX => {}
        more => {
            let message =
                format!("`ops` contains {more} operations; the limit is {}", defaults::KV_BATCH_MAX);
            return Err(ApiError::new(ErrorCode::TooLarge, message)
                .hint("split it; each part is executed atomically"));
        }
    }
    let ops = body.ops.into_iter().map(convert::kv_operation).collect::<Result<Vec<KvOp>, _>>()?;
    let space = caller.growing(&app, &path.of, &params).await?;
    let items = space.view.kv_batch(ops).await?;
    Ok(Json(KvChanged { items: items.into_iter().map(|item| item.map(convert::kv_item)).collect() }))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/kv-increment", tag = "memory", params(MemoryPath, WriteParams),
    request_body = KvIncrement,
    responses((status = 200, description = "The new value", body = KvItem), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn increment(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<KvIncrement>,
) -> Result<Json<KvItem>, ApiError> {
    let KvIncrement { key, by, ttl_seconds } = body;
    let op = convert::kv_operation(KvOperation::Increment { key, by, ttl_seconds })?;
    let space = caller.growing(&app, &path.of, &params).await?;
    Ok(Json(one(space.view.kv_batch(vec![op]).await?)?))
}
