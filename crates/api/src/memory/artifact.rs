//! Artifacts: named blobs that memories refer to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One version of an artifact. `PUT /v1/memory/{of}/artifacts/{name}` takes the bytes as its body, the media type as
/// `Content-Type` and the metadata as a JSON object in `X-Burrow-Metadata`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Artifact {
    pub name: String,
    /// 1, and one more with each new version.
    pub version: u64,
    /// BLAKE3 of the bytes, in hexadecimal; also the `ETag`.
    pub hash: String,
    pub bytes: u64,
    pub media_type: String,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// Its position in the log.
    pub seq: u64,
    pub at_ms: u64,
}
