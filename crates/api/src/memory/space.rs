//! Spaces that outlive sandboxes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/spaces`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSpace {
    /// Lower-case letters, digits and hyphens; unique among spaces. Can be used instead of the id.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub description: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// `PATCH /v1/spaces/{space}`. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateSpace {
    /// A new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 4096)]
    pub description: Option<String>,
    /// Labels to set; `null` removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
}

/// A space that outlives sandboxes. A sandbox's own space is not listed: it is created and deleted with the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    pub id: String,
    pub name: String,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub created_ms: u64,
    /// Ids of the sandboxes that write to it or have it attached. Empty in lists.
    #[serde(default)]
    pub used_by: Vec<String>,
}
