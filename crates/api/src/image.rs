//! Images on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    pub id: String,
    pub name: String,
    pub size_bytes: u64,
    pub created_ms: u64,
}

/// `POST /v1/images`: builds the default image from Debian packages. The answer is NDJSON of [`BuildProgress`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildImage {
    /// `debian` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Build again even if the name exists.
    #[serde(default)]
    pub rebuild: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum BuildProgress {
    Stage {
        stage: String,
        /// From 0 to 100, where known.
        percent: Option<u8>,
    },
    Done {
        image: Image,
    },
    Error {
        error: crate::ErrorDetail,
    },
}
