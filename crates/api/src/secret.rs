//! Secrets on the wire. Values can be set, but never read.

use burrow_model::SecretBytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `PUT /v1/secrets/{secret}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Where it may be sent at most, whatever the rules of a sandbox say.
    #[schema(min_items = 1, max_items = 32)]
    pub allow: Vec<SecretScope>,
    pub slot: SecretSlot,
    /// The variable that programs inside see instead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<SecretPlaceholder>,
    /// The bytes of the secret, in base64: 8 to 65,536 bytes.
    #[schema(value_type = String, format = Byte, write_only, min_length = 12, max_length = 87_384)]
    pub value: SecretBytes,
}

/// `POST /v1/secrets/{secret}/rotate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecret {
    /// The bytes of the secret, in base64: 8 to 65,536 bytes.
    #[schema(value_type = String, format = Byte, write_only, min_length = 12, max_length = 87_384)]
    pub value: SecretBytes,
}

/// Requests to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretScope {
    /// `api.example.com`, or `*.example.com` for all its subdomains.
    #[schema(min_length = 1, max_length = 255)]
    pub host: String,
    /// 443 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub port: Option<u16>,
    /// Empty: every method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub methods: Vec<String>,
    /// `/v1/**` and the like. Empty: every path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub paths: Vec<String>,
}

/// The position of a secret in a request. A value that the program put there is removed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretSlot {
    Header {
        name: String,
        /// `{}` is the secret, as in `Bearer {}`; the secret alone when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// In gRPC requests only.
    GrpcMetadata {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// A parameter of the query.
    Query { name: String },
    /// `Authorization: Basic`; the secret is the password.
    Basic { user: String },
    /// A certificate chain and its key in PEM, presented to a host that requests a client certificate.
    ClientCert,
}

/// A variable inside the sandbox that contains a fake token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretPlaceholder {
    /// `OPENAI_API_KEY` and the like.
    #[schema(min_length = 1, max_length = 128)]
    pub env: String,
    /// The prefix of the fake token, such as `sk-`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 64)]
    pub prefix: String,
}

/// A secret, without its value, which no route returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub name: String,
    /// Increases with every new value.
    pub version: u64,
    pub allow: Vec<SecretScope>,
    pub slot: SecretSlot,
    pub placeholder: Option<SecretPlaceholder>,
    pub created_ms: u64,
    /// When its value was last set.
    pub changed_ms: u64,
    /// Sandboxes whose rules refer to it.
    pub used_by: Vec<SecretUser>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretUser {
    pub id: String,
    pub name: Option<String>,
}
