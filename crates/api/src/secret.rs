//! Secrets on the wire. A value goes in and never comes out.

use burrow_model::SecretBytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `PUT /v1/secrets/{secret}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// Where it may go at most, whatever a sandbox's rules say.
    #[schema(min_items = 1, max_items = 32)]
    pub allow: Vec<SecretScope>,
    pub slot: SecretSlot,
    /// What programs inside see instead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<SecretPlaceholder>,
    /// The bytes of the secret, in base64: 8 to 65,536 of them.
    #[schema(value_type = String, format = Byte, write_only, min_length = 12, max_length = 87_384)]
    pub value: SecretBytes,
}

/// `POST /v1/secrets/{secret}/rotate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecret {
    /// The bytes of the secret, in base64: 8 to 65,536 of them.
    #[schema(value_type = String, format = Byte, write_only, min_length = 12, max_length = 87_384)]
    pub value: SecretBytes,
}

/// Requests to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretScope {
    /// `api.example.com`, or `*.example.com` for all below it.
    #[schema(min_length = 1, max_length = 255)]
    pub host: String,
    /// 443 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub port: Option<u16>,
    /// None: every method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub methods: Vec<String>,
    /// `/v1/**` and the like. None: every path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub paths: Vec<String>,
}

/// Where in a request a secret stands. What a program put there itself is taken away before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretSlot {
    Header {
        name: String,
        /// `{}` is the secret, as in `Bearer {}`; the secret alone when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// In requests of gRPC only.
    GrpcMetadata {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<String>,
    },
    /// A parameter of the query.
    Query { name: String },
    /// `Authorization: Basic`; the secret is the password.
    Basic { user: String },
    /// A certificate chain and its key in PEM, shown to a host that asks for one.
    ClientCert,
}

/// A variable inside that holds a fake token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretPlaceholder {
    /// `OPENAI_API_KEY` and the like.
    #[schema(min_length = 1, max_length = 128)]
    pub env: String,
    /// What the fake begins with, such as `sk-`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 64)]
    pub prefix: String,
}

/// A secret, without its value: no route shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub name: String,
    /// Raised by every new value.
    pub version: u64,
    pub allow: Vec<SecretScope>,
    pub slot: SecretSlot,
    pub placeholder: Option<SecretPlaceholder>,
    pub created_ms: u64,
    /// When its value was last set.
    pub changed_ms: u64,
    /// Sandboxes whose rules name it.
    pub used_by: Vec<SecretUser>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretUser {
    pub id: String,
    pub name: Option<String>,
}
