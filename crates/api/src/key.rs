//! API keys on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// For people.
    pub name: String,
    pub scope: Scope,
    /// Only this sandbox (name or id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Also the forks of that sandbox: the key can fork it, merge the forks and delete them, and reaches no other sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forks: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    Read,
    Exec,
    Admin,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    pub id: String,
    pub name: String,
    /// The first characters of the key, to recognise it.
    pub prefix: String,
    pub scope: Scope,
    pub sandbox_id: Option<String>,
    /// Whether it also reaches the forks of that sandbox.
    pub forks: bool,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
    pub revoked_ms: Option<u64>,
    pub last_used_ms: Option<u64>,
}

/// Returned once: the daemon stores only a hash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    pub key: Key,
    /// `e2b_` and 40 hexadecimal digits.
    pub secret: String,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).field("secret", &"***").finish()
    }
}
