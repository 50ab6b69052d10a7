//! The policy document: what requests of a sandbox may do, as people write it in a file and as the API accepts it.
//!
//! ```text
//!   file (YAML, JSON) ─► document ─► check ─► rules          a fault names its place; the CLI finds its line
//!   file (YAML, JSON) ─► document ─► check ─► rules          a fault has a place; the CLI finds its line
//!   body (JSON)       ─┘                                     in the file, the API returns it as a JSON pointer
//!
//! Files and bodies share one definition and one validation, [`check`]. `secrets` exists in files only: the client that
//! applies a file reads the values and stores them in the daemon as secrets, never as part of a policy.

pub mod check;
mod size;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::{CheckedPolicy, Fault, Step};
pub use size::Size;

/// A sandbox's whole egress policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PolicyDocument {
    /// Only in files: secrets to store first. Not accepted by the API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub secrets: Vec<SecretDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressDocument>,
    /// The short form: each item is one rule that inserts a secret into the requests to one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub egress_auth: Vec<EgressAuth>,
}

/// What may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EgressDocument {
    /// For hosts that no rule names; `deny` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<PolicyDefault>,
    /// Request rules. Two of them must not cover the same request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub rules: Vec<RuleDocument>,
    /// Connection rules, such as `tcp://db.example.com:5432`: not decrypted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub allow: Vec<String>,
    /// Names of host sets, such as `pypi`; `GET /v1/egress/sets` lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub sets: Vec<String>,
    /// Address blocks that are denied, such as `203.0.113.0/24`, unless `allow` contains the address or its block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub deny: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Otherwise)]
pub enum PolicyDefault {
    Deny,
    /// Any public host, not decrypted.
    Allow,
}

/// A rule for the requests to a host.
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
    /// Every method when absent; with a secret, those that its owner allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub methods: Vec<String>,
    /// Patterns such as `/v1/**`. Every path when absent; with a secret, those that its owner allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub paths: Vec<String>,
    /// `intercept` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<RuleMode>,
    /// The secret that is inserted into the requests that the rule covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetDocument>,
    /// Requests require approval by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<Approve>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleMode {
    /// Allowed by host name, and not decrypted.
    Sni,
    /// Decrypted, checked request by request, and encrypted again.
    Intercept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// Every request requires approval.
    Once,
    /// The first request requires approval; the decision applies to the others until the sandbox's network is started
    /// again.
    Session,
}

/// Limits on the use of a rule.
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

/// The short form of a rule.
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
    /// The source of the value; when absent, the stored value stays, and the rest is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SecretSource>,
    /// The ceiling: where the secret may be sent at most.
    pub allow: Vec<ScopeDocument>,
    pub slot: SlotDocument,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<PlaceholderDocument>,
}

/// Where the client that applies the file reads the value. Exactly one field is set.
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

/// A set of requests, in a ceiling.
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

/// The position of a secret in a request. One of `header`, `grpcMetadata`, `query`, `basic`, `clientCert`.
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
    /// Must be `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<bool>,
    /// For `header` and `grpcMetadata`: `Bearer {}`; the secret alone when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// The variable that programs inside see instead of a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlaceholderDocument {
    pub env: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}
