//! Artifacts: uploads and downloads at constant memory, with ranges and tags.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::memory::Artifact;
use burrow_api::{ErrorCode, Page};
use burrow_memory::artifacts::{NewArtifact, Part};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    RANGE,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::timeout;
use utoipa::IntoParams;

use super::access::{MemoryPath, MemoryReader, MemoryWriter, ReadParams, WriteParams};
use super::page::{memory_page, page_request};
use burrow_http::app::App;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments, parse};
use burrow_http::refusals::{Common, MemoryRefusals};
use burrow_http::upload::{SILENCE_MAX, linger};
use burrow_http::{convert, range};

/// The media type of an artifact that was stored without one.
const MEDIA_TYPE: &str = "application/octet-stream";

/// The header that contains its metadata.
const METADATA: &str = "x-burrow-metadata";

/// Names an artifact.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ArtifactPath {
    /// A sandbox or a space: its id, a unique prefix of its id, or its name. A sandbox takes precedence; use
    /// `sandbox:NAME` or `space:NAME` to be explicit.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    of: String,
    /// The artifact's name, which may contain slashes.
    #[param(min_length = 1, max_length = 512)]
    name: String,
}

/// Which version of it, and at which time.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionParams {
    /// The newest when absent.
    version: Option<u64>,
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
}

impl VersionParams {
    fn split(self) -> (Option<u64>, ReadParams) {
        (self.version, ReadParams { as_of: self.as_of, space: self.space })
    }
}

#[utoipa::path(
    put, path = "/v1/memory/{of}/artifacts/{name}", tag = "memory",
    params(
        ArtifactPath, WriteParams,
        ("X-Burrow-Metadata" = Option<String>, Header, description = "A JSON object, in ASCII"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream",
        description = "The bytes; `Content-Type` is stored as the media type"),
    responses((status = 201, description = "Stored as a new version", body = Artifact), Common, MemoryRefusals),
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<ArtifactPath>,
    Params(params): Params<WriteParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Artifact>), ApiError> {
    let new =
        NewArtifact { name: path.name, media_type: media_type(&headers)?, metadata: metadata(&headers)? };
    let bytes_max = app.config.memory.artifact_bytes;
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    // If `Content-Length` is already too large, the body is not read.
    let admitted = async {
        if length.is_some_and(|length| length > bytes_max) {
            return Err(too_large(bytes_max));
        }
        let space = caller.growing(&app, &path.of, &params).await?;
        space.view.artifact_room(length.unwrap_or(0)).await?;
        Ok(space)
    };
    let space = match admitted.await {
        Ok(space) => space,
        Err(error) => {
            linger(body);
            return Err(error);
        }
    };
    let over = Arc::new(AtomicBool::new(false));
    let body = bounded(body, bytes_max, over.clone());
    match space.view.artifact_put(new, body.boxed()).await {
        Ok(artifact) => Ok((StatusCode::CREATED, Json(convert::artifact(artifact)))),
        Err(_) if over.load(Ordering::Relaxed) => Err(too_large(bytes_max)),
        Err(error) => Err(error.into()),
    }
}

fn too_large(bytes_max: u64) -> ApiError {
    ApiError::new(ErrorCode::TooLarge, format!("the artifact is larger than {bytes_max} bytes"))
        .hint("`memory.artifact` in the configuration sets the limit")
}

/// The body's bytes. `over` is set when there are more than the limit.
fn bounded(
    body: Body,
    bytes_max: u64,
    over: Arc<AtomicBool>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold((body, 0_u64), move |(mut body, mut taken)| {
        let over = over.clone();
        async move {
            loop {
                let frame = timeout(SILENCE_MAX, body.frame()).await;
                let Some(frame) = frame.map_err(|_| io::Error::other("the client stopped sending"))? else {
                    return Ok::<_, io::Error>(None);
                };
                let Ok(data) = frame.map_err(io::Error::other)?.into_data() else { continue };
                taken += data.len() as u64;
                if taken > bytes_max {
                    over.store(true, Ordering::Relaxed);
                    return Err(io::Error::other("the body is too large"));
                }
                return Ok(Some((data, (body, taken))));
            }
        }
    })
}

fn media_type(headers: &HeaderMap) -> Result<String, ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(MEDIA_TYPE.to_owned()) };
    let text = value.to_str().map_err(|_| ApiError::invalid("`Content-Type` must be ASCII"))?;
    let essence = text.split(';').next().unwrap_or_default().trim();
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    match essence.split_once('/') {
        Some((kind, part)) if word(kind) && word(part) && text.len() <= 255 => Ok(text.to_owned()),
        Some(_) | None => Err(ApiError::invalid("`Content-Type` must be a media type, such as `text/plain`")),
    }
}

fn metadata(headers: &HeaderMap) -> Result<Map<String, Value>, ApiError> {
    let Some(value) = headers.get(METADATA) else { return Ok(Map::new()) };
    parse(value.as_bytes()).map_err(|error| {
        let message = error.into_detail().message.replacen("the body", "`X-Burrow-Metadata`", 1);
        ApiError::invalid(message).hint("it must be a JSON object")
    })
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/artifacts/{name}", tag = "memory",
    params(
        ArtifactPath, VersionParams,
        ("Range" = Option<String>, Header, description = "One range of bytes"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of the client's copy"),
    ),
    responses(
        (status = 200, description = "The bytes", body = Vec<u8>, content_type = "application/octet-stream",
         headers(("etag" = String, description = "BLAKE3 of the bytes"),
                 ("x-burrow-version" = u64), ("x-burrow-metadata" = String))),
        (status = 206, description = "The range", body = Vec<u8>, content_type = "application/octet-stream",
         headers(("content-range" = String))),
        (status = 304, description = "The client's copy is current"),
        (status = 416, description = "The range is outside the artifact", body = burrow_api::ErrorBody),
        Common, MemoryRefusals,
    ),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<ArtifactPath>,
    Params(params): Params<VersionParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let (version, read) = params.split();
    let space = caller.reading(&app, &path.of, &read).await?;
    let artifact = space.view.artifact(&path.name, version).await?;
    if at_hand(&headers, &artifact) {
        return Ok(answer(StatusCode::NOT_MODIFIED, &artifact, None, Body::empty()));
    }
    let asked = headers.get(RANGE).and_then(|value| range::parse(value.to_str().ok()?));
    let size = artifact.bytes;
    let (offset, length) = match asked.map(|asked| asked.within(size)) {
        None => (0, size),
        Some(Some(part)) => part,
        Some(None) => {
            let message = format!("the range is outside the artifact, which has {size} bytes");
            let mut response = ApiError::new(ErrorCode::RangeNotSatisfiable, message).into_response();
            let value = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are a header value");
            response.headers_mut().insert(CONTENT_RANGE, value);
            return Ok(response);
        }
    };
    // The version that was inspected: a newer one may exist by now.
    let part = match asked {
        None => Part::All,
        Some(_) => Part::Through(offset, offset + length - 1),
    };
    let read = space.view.artifact_get(&path.name, Some(artifact.version), part).await?;
    let (artifact, body) = (read.artifact, Body::from_stream(read.content));
    if asked.is_none() {
        return Ok(answer(StatusCode::OK, &artifact, Some(size), body));
    }
    let mut response = answer(StatusCode::PARTIAL_CONTENT, &artifact, Some(length), body);
    let value = format!("bytes {offset}-{}/{size}", offset + length - 1);
    let value = HeaderValue::try_from(value).expect("digits are a header value");
    response.headers_mut().insert(CONTENT_RANGE, value);
    Ok(response)
}

#[utoipa::path(
    head, path = "/v1/memory/{of}/artifacts/{name}", tag = "memory", params(ArtifactPath, VersionParams),
    responses((status = 200, description = "As `GET`, without the bytes"), Common, MemoryRefusals),
)]
pub(crate) async fn head(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<ArtifactPath>,
    Params(params): Params<VersionParams>,
) -> Result<Response, ApiError> {
    let (version, read) = params.split();
    let space = caller.reading(&app, &path.of, &read).await?;
    let artifact = space.view.artifact(&path.name, version).await?;
    Ok(answer(StatusCode::OK, &artifact, Some(artifact.bytes), Body::empty()))
}

/// Whether the client already has these bytes.
fn at_hand(headers: &HeaderMap, artifact: &burrow_memory::artifacts::Artifact) -> bool {
    let Some(tags) = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()) else { return false };
    let hash = artifact.hash.as_str();
    tags.split(',').map(str::trim).any(|tag| tag.trim_start_matches("W/").trim_matches('"') == hash)
}

fn answer(
    status: StatusCode,
    artifact: &burrow_memory::artifacts::Artifact,
    length: Option<u64>,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let value = |text: String| HeaderValue::try_from(text).ok();
    let kind = value(artifact.media_type.clone()).unwrap_or(HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // A browser must not interpret stored bytes as a page of the daemon.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    if let Some(tag) = value(format!("\"{}\"", artifact.hash)) {
        headers.insert(ETAG, tag);
    }
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    headers.insert("x-burrow-version", artifact.version.into());
    if let Some(json) = value(ascii(&artifact.metadata)) {
        headers.insert(METADATA, json);
    }
    response
}

/// JSON with all characters beyond ASCII escaped, as a header requires.
fn ascii(metadata: &Map<String, Value>) -> String {
    let json = Value::Object(metadata.clone()).to_string();
    let mut escaped = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if c.is_ascii() && !c.is_ascii_control() {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
}

#[utoipa::path(
    delete, path = "/v1/memory/{of}/artifacts/{name}", tag = "memory", params(ArtifactPath, WriteParams),
    responses((status = 204, description = "Forgotten; still available through `as_of` and snapshots"), Common, MemoryRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<ArtifactPath>,
    Params(params): Params<WriteParams>,
) -> Result<StatusCode, ApiError> {
    let space = caller.writing(&app, &path.of, &params).await?;
    space.view.artifact_forget(&path.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Filters for artifacts.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Only names with this prefix.
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
    /// Maximum number of artifacts; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/artifacts", tag = "memory", params(MemoryPath, ListParams),
    responses((status = 200, description = "The newest version of each artifact, sorted by name", body = Page<Artifact>), Common, MemoryRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Artifact>>, ApiError> {
    let request = page_request(params.cursor, params.limit)?;
    let read = ReadParams { as_of: params.as_of, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    let found = space.view.artifact_list(params.prefix.as_deref().unwrap_or_default(), request).await?;
    Ok(Json(memory_page(found, convert::artifact)))
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/artifact-versions/{name}", tag = "memory", params(ArtifactPath, ReadParams),
    responses((status = 200, description = "The versions of the artifact", body = Vec<Artifact>), Common, MemoryRefusals),
)]
pub(crate) async fn versions(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<ArtifactPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<Vec<Artifact>>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    let versions = space.view.artifact_versions(&path.name).await?;
    Ok(Json(versions.into_iter().map(convert::artifact).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_escaped_to_ascii_without_loss() {
        let metadata: Map<String, Value> =
            serde_json::from_str("{\"who\": \"café 🦊\", \"line\": \"a\\nb\"}").unwrap();
        let header = ascii(&metadata);
        assert!(header.is_ascii() && HeaderValue::try_from(header.as_str()).is_ok(), "{header}");
        assert_eq!(serde_json::from_str::<Map<String, Value>>(&header).unwrap(), metadata);
    }

    #[test]
    fn invalid_media_types_are_rejected() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, text.parse().unwrap());
            media_type(&headers).ok()
        };
        assert_eq!(of("text/plain; charset=utf-8").as_deref(), Some("text/plain; charset=utf-8"));
        for bad in ["text", "/", "text/", "te xt/plain", "text/pl<ain", ""] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
