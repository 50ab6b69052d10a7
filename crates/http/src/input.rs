//! Reading requests: bodies, query parameters and headers. An error names the invalid part.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use burrow_api::ErrorCode;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Uri};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::activity::CloseAfterResponse;
use crate::app::App;
use crate::error::ApiError;

/// A JSON body is small: a client that needs longer than this to send one would occupy a request slot for no reason.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of an `Idempotency-Key`.
const IDEMPOTENCY_KEY_LENGTH_MAX: usize = 255;

/// A JSON body of type `T`, with its original bytes.
#[derive(Debug)]
pub struct JsonBody<T> {
    pub value: T,
    pub bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let bytes = read_json(request, app.config.bounds.json_body_bytes, "limits.json_body").await?;
        let value = parse(&bytes)?;
        Ok(Self { value, bytes })
    }
}

/// A JSON body for memory, which may be larger than others.
#[derive(Debug)]
pub struct MemoryBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for MemoryBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let RawMemoryBody(bytes) = RawMemoryBody::from_request(request, app).await?;
        parse(&bytes).map(Self)
    }
}

/// The same, unparsed, for handlers that inspect it before they know its type.
#[derive(Debug)]
pub struct RawMemoryBody(pub Bytes);

impl FromRequest<Arc<App>> for RawMemoryBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let bytes = read_json(request, app.config.memory.body_bytes, "memory.body").await?;
        if std::str::from_utf8(&bytes).is_err() {
            let error = ApiError::invalid("could not read the body: it is not UTF-8");
            return Err(error.hint("store binary data as an artifact"));
        }
        Ok(Self(bytes))
    }
}

/// A JSON body that contains a secret: errors quote nothing of it, and the connection is closed after the response. Its
/// buffers, which no other code can clear, are cleared as they are freed (`clearing`).
#[derive(Debug)]
pub struct SecretBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for SecretBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        if let Some(farewell) = request.extensions().get::<CloseAfterResponse>() {
            farewell.request();
        }
        let bytes = read_json(request, app.config.bounds.json_body_bytes, "limits.json_body").await?;
        parse_quietly(&bytes).map(Self)
    }
}

/// Parses JSON. An error gives the position and quotes nothing but names of fields.
fn parse_quietly<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        let harmless = ["missing field", "unknown field", "an encoded secret must be base64"];
        if harmless.iter().any(|start| text.starts_with(start)) {
            return ApiError::invalid(format!("the body is invalid: {text}"));
        }
        let (line, column) = (error.line(), error.column());
        ApiError::invalid(format!("the body is invalid, at line {line} column {column}"))
    })
}

/// The bytes of a JSON body; `key` is the configuration key of its limit.
async fn read_json(request: Request, bytes_max: usize, key: &str) -> Result<Bytes, ApiError> {
    if !is_json(request.headers()) {
        let message = "could not read the body: its `Content-Type` must be `application/json`";
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large(bytes_max, key));
    }
    match tokio::time::timeout(BODY_TIMEOUT, collect(request.into_body(), bytes_max, key)).await {
        Ok(bytes) => bytes,
        Err(_) => Err(ApiError::invalid("could not read the body: it did not arrive in time")),
    }
}

async fn collect(mut body: Body, bytes_max: usize, key: &str) -> Result<Bytes, ApiError> {
    let mut first: Option<Bytes> = None;
    let mut more = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::invalid("could not read the body").cause(error))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.as_ref().map_or(0, Bytes::len) + more.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max, key));
        }
        match &first {
            None => first = Some(data),
            Some(_) => more.extend_from_slice(&data),
        }
    }
    let first = first.unwrap_or_default();
    if more.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + more.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&more);
    Ok(whole.freeze())
}

fn too_large(bytes_max: usize, key: &str) -> ApiError {
    let message = format!("could not read the body: it is larger than {bytes_max} bytes");
    ApiError::new(ErrorCode::TooLarge, message).hint(format!("`{key}` in the configuration sets the limit"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Parses JSON. An error names the field.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    match Json::<T>::from_bytes(bytes) {
        Ok(Json(value)) => Ok(value),
        Err(JsonRejection::JsonSyntaxError(error)) => {
            Err(ApiError::invalid(format!("the body is not JSON: {}", innermost(&error))))
        }
        Err(JsonRejection::JsonDataError(error)) => {
            Err(ApiError::invalid(format!("the body is invalid: {}", innermost(&error))))
        }
        Err(error) => Err(ApiError::invalid(format!("could not read the body: {error}"))),
    }
}

/// serde's own message, with the path of the field, without the words that axum adds.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Query parameters of type `T`; the types reject unknown names.
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &Arc<App>) -> Result<Self, ApiError> {
        check_text(&parts.uri)?;
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => Err(ApiError::invalid(format!("the query is invalid: {}", innermost(&error)))),
        }
    }
}

/// For routes without query parameters: a mistyped parameter must be an error, not ignored.
#[derive(Debug)]
pub struct NoParams;

impl FromRequestParts<Arc<App>> for NoParams {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _app: &Arc<App>) -> Result<Self, ApiError> {
        match pairs(&parts.uri)?.first() {
            None => Ok(Self),
            Some((name, _)) => Err(unknown_parameter(name)),
        }
    }
}

pub fn unknown_parameter(name: &str) -> ApiError {
    ApiError::invalid(format!("the query is invalid: unknown parameter `{name}`"))
}

/// All query parameters, for names that may occur several times.
pub fn pairs(uri: &Uri) -> Result<Vec<(String, String)>, ApiError> {
    check_text(uri)?;
    let Query(pairs) = Query::try_from_uri(uri)
        .map_err(|error| ApiError::invalid(format!("the query is invalid: {}", innermost(&error))))?;
    Ok(pairs)
}

/// Rejects bytes that are not UTF-8: decoding would replace them, and a path would then name another file.
fn check_text(uri: &Uri) -> Result<(), ApiError> {
    let query = uri.query().unwrap_or_default().as_bytes();
    if !query.contains(&b'%') {
        return Ok(());
    }
    let mut decoded = Vec::with_capacity(query.len());
    let mut rest = query;
    while let [byte, after @ ..] = rest {
        let escaped = (*byte == b'%').then(|| after.first_chunk::<2>()).flatten();
        match escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()) {
            Some(value) => {
                decoded.push(value);
                rest = &after[2..];
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    match std::str::from_utf8(&decoded) {
        Ok(_) => Ok(()),
        Err(_) => Err(ApiError::invalid("the query is invalid: it is not UTF-8")),
    }
}

/// The `Idempotency-Key` header, if present.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=IDEMPOTENCY_KEY_LENGTH_MAX).contains(&key.len()) => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => {
            Err(ApiError::invalid("`Idempotency-Key` must be 1 to 255 visible ASCII characters"))
        }
    }
}

/// The variable parts of a path.
#[derive(Debug)]
pub struct Segments<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Segments<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let refused = |_: PathRejection| ApiError::invalid("the path is not UTF-8");
        Path::from_request_parts(parts, app).await.map(|Path(value)| Self(value)).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use burrow_api::CreateSandbox;

    use super::*;

    #[track_caller]
    fn refused(json: &str, expected: &str) {
        let error = parse::<CreateSandbox>(json.as_bytes()).expect_err(json);
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        let detail = error.into_detail();
        assert!(detail.message.contains(expected), "{}", detail.message);
    }

    #[test]
    fn errors_about_a_body_name_the_invalid_field() {
        refused("{\"limits\": {\"ram_mib\": -1}}", "limits.ram_mib");
        refused("{\"limits\": {\"ram_mib\": 99999999999}}", "limits.ram_mib");
        refused("{\"env\": {\"A\": 1}}", "env.A");
        refused("{\"nmae\": \"x\"}", "unknown field `nmae`");
        refused("{\"name\": ", "not JSON");
        refused("", "not JSON");
        refused("[]x", "the body");
        refused(&"[".repeat(100_000), "the body");
    }

    #[test]
    fn errors_about_a_body_with_a_secret_quote_nothing_of_it() {
        for json in [
            r#"{"value": "canary-1234"}"#,
            r#"{"value": ["canary-1234"]}"#,
            r#"{"value": 1, "x": "canary-1234"}"#,
            r#"{"value": "canary-1234"#,
            r#""canary-1234""#,
        ] {
            let error = parse_quietly::<burrow_api::RotateSecret>(json.as_bytes()).expect_err(json);
            let shown = format!("{error:?}");
            assert!(!shown.contains("canary"), "{shown}");
        }
    }

    #[test]
    fn queries_that_are_not_utf8_are_rejected() {
        for (query, good) in
            [("/?path=/a%20b", true), ("/?path=/%C3%A9", true), ("/?path=/%ff", false), ("/?a=%", true)]
        {
            assert_eq!(check_text(&query.parse().unwrap()).is_ok(), good, "{query}");
        }
    }
}
