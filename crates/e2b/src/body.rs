//! Requests of E2B's clients, parsed with our own extractors; errors have E2B's format.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::Refusal;
use burrow_http::app::App;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, parse};

/// One of our own extractors.
#[derive(Debug)]
pub(super) struct E2bExtractor<T>(pub(super) T);

impl<T> FromRequestParts<Arc<App>> for E2bExtractor<T>
where
    T: FromRequestParts<Arc<App>, Rejection = ApiError>,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        Ok(Self(T::from_request_parts(parts, app).await?))
    }
}

/// A JSON body. An empty body is parsed as `{}`, because several client versions leave it out.
#[derive(Debug)]
pub(super) struct JsonInput<T> {
    pub(super) value: T,
    pub(super) bytes: Bytes,
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<App>> for JsonInput<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        let chunked = request.headers().contains_key(http::header::TRANSFER_ENCODING);
        let empty = match request.headers().get(CONTENT_LENGTH) {
            Some(length) => length.as_bytes() == b"0",
            None => !chunked && hyper::body::Body::is_end_stream(request.body()),
        };
        if empty {
            return Ok(Self { value: parse(b"{}")?, bytes: Bytes::new() });
        }
        let JsonBody { value, bytes } = JsonBody::<T>::from_request(request, app).await?;
        Ok(Self { value, bytes })
    }
}

/// Unknown fields. They are ignored if their value is empty.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct UnknownFields(BTreeMap<String, Value>);

impl UnknownFields {
    /// Rejects a request with a field that this daemon does not support.
    pub(super) fn refuse(&self) -> Result<(), Refusal> {
        match self.0.iter().find(|(_, value)| asks(value)) {
            None => Ok(()),
            Some((name, _)) => {
                let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
                Err(Refusal::absent(format!("Burrow does not support `{shown}`; leave it out")))
            }
        }
    }
}

pub(super) fn asks(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_rejected_unless_they_are_empty() {
        let fields = |json: &str| serde_json::from_str::<UnknownFields>(json).unwrap();
        for harmless in ["{}", r#"{"x": null, "y": false, "z": [], "a": {}, "b": ""}"#] {
            assert!(fields(harmless).refuse().is_ok(), "{harmless}");
        }
        for wish in [r#"{"x": true}"#, r#"{"x": 0}"#, r#"{"x": ["a"]}"#, r#"{"x": {"y": null}}"#] {
            assert!(fields(wish).refuse().is_err(), "{wish}");
        }
    }
}
