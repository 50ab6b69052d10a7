//! The policy document: what a sandbox's requests may do, as people write it in a file and as the API takes it.
//!
//! ```text
//!   file (YAML, JSON) ─► document ─► check ─► rules          a fault names its place; the CLI finds its line
//!   body (JSON)       ─┘                                     in the file, the API tells it as a pointer
//! ```
//!
//! One definition for both: [`check`] is all there is to judge by. `secrets` is for files alone: whoever applies one
//! reads the values where they are and hands them to the daemon as secrets, never as part of a policy.

pub mod check;
mod size;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::{Checked, Fault, Step};
pub use size::Size;

/// A sandbox's whole egress policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PolicyDocument {
    /// In a file: secrets to set before. Not taken by the API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub secrets: Vec<SecretDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressDocument>,
    /// The short form: each is one rule that puts a secret into the requests to one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub egress_auth: Vec<EgressAuth>,
}

/// What may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EgressDocument {
    /// Of what no rule names; `deny` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Otherwise>,
    /// Rules about requests. No request may be covered by two of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub rules: Vec<RuleDocument>,
    /// Rules about connections, such as `tcp://db.example.com:5432`: not decrypted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub allow: Vec<String>,
    /// Names of host sets in the daemon's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub sets: Vec<String>,
    /// Blocks of addresses that are not dialled, such as `203.0.113.0/24`, unless `allow` names the address or its block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub deny: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Otherwise {
    Deny,
    /// Any public host, not decrypted.
    Allow,
}

/// One rule about the requests to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RuleDocument {
    /// `api.example.com` or `*.example.com`.
    #[schema(max_length = 256)]
    pub host: String,
    /// 443 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub port: Option<u16>,
    /// Every method when absent; with a secret, those its owner allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub methods: Vec<String>,
    /// Patterns such as `/v1/**`. Every path when absent; with a secret, those its owner allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub paths: Vec<String>,
    /// `intercept` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RuleMode>,
    /// The secret that is put into what it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetDocument>,
    /// A person must agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<Approve>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleMode {
    /// Allowed by name, and not decrypted.
    Sni,
    /// Decrypted, judged request by request, encrypted again.
    Intercept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// Each request.
    Once,
    /// The first request; the others follow its answer until the sandbox's network is opened anew.
    Session,
}

/// How much of a rule may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BudgetDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub requests_per_minute: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub requests_per_day: Option<u64>,
    /// Bytes, or a size such as `50MB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out_per_day: Option<Size>,
}

/// The short form of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EgressAuth {
    /// A host, as in a rule.
    #[schema(max_length = 256)]
    pub destination: String,
    /// A secret's name.
    #[schema(max_length = 64)]
    pub auth_ref: String,
}

/// A secret in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecretDocument {
    pub name: String,
    /// Absent: its value stays as it is, and the rest is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SecretSource>,
    /// The ceiling.
    pub allow: Vec<ScopeDocument>,
    pub slot: SlotDocument,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<PlaceholderDocument>,
}

/// Where the value is read, by whoever applies the file. One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecretSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Run by a shell; its standard output, without a final line break.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// Requests, in a ceiling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScopeDocument {
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Where in a request a secret stands. One of `header`, `grpcMetadata`, `query`, `basic`, `clientCert`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SlotDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The user; the secret is the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic: Option<String>,
    /// `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<bool>,
    /// Of `header` and `grpcMetadata`: `Bearer {}`; the secret alone when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// What programs inside see instead of a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlaceholderDocument {
    pub env: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}
