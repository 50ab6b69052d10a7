//! The SSH gateway on the wire: where it is, and who may log in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/ssh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ssh {
    /// Where it listens, as `127.0.0.1:2222`; absent where it is turned off or could not listen.
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
    /// For people; the key's own comment when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub name: Option<String>,
}

/// A public key by which somebody logs in. It opens what the API key that added it opens, for as long as that one does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshKey {
    pub id: String,
    pub name: String,
    /// `ssh-ed25519 AAAA…`.
    pub public_key: String,
    /// `SHA256:…`.
    pub fingerprint: String,
    /// The API key that it stands for.
    pub key_id: String,
    pub created_ms: u64,
    pub last_used_ms: Option<u64>,
}
