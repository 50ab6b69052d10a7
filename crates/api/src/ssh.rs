//! The SSH gateway on the wire: its address, and who may log in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/ssh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ssh {
    /// The address it listens on, such as `127.0.0.1:2222`; absent if it is turned off or could not listen.
    pub address: Option<String>,
    /// `ssh-ed25519 AAAA…`, for a client's list of known hosts.
    pub host_key: Option<String>,
    /// `SHA256:…`, as clients show it.
    pub host_fingerprint: Option<String>,
}

/// `POST /v1/ssh/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSshKey {
    /// One line, as in `~/.ssh/id_ed25519.pub`.
    #[schema(max_length = 4096)]
    pub public_key: String,
    /// For people; the comment of the key when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub name: Option<String>,
}

/// A public key for SSH logins. It grants the rights of the API key that added it, for as long as that key is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshKey {
    pub id: String,
    pub name: String,
    /// `ssh-ed25519 AAAA…`.
    pub public_key: String,
    /// `SHA256:…`.
    pub fingerprint: String,
    /// The API key whose rights it grants.
    pub key_id: String,
    pub created_ms: u64,
    pub last_used_ms: Option<u64>,
}
