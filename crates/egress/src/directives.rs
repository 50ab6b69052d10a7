//! The rules about a sandbox's requests, the secrets that may be inserted into them, and the certificate authority
//! with which connections are intercepted.
//!
//! Part of a [`crate::Policy`], so that the allowed hosts and the inserted secrets change atomically. Directives are
//! sent from the daemon to the egress process over the control socket and stored nowhere else.

use burrow_model::network::{HeaderTransform, RequestRule, RequestScope};
use burrow_model::{Name, SecretBytes, Slot, TenantId};
use serde::{Deserialize, Serialize};

/// Request rules, secrets and authority of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directives {
    /// The tenant of the sandbox, in whose audit log its requests are recorded.
    pub tenant: TenantId,
    /// Incremented by every change of rules or secrets: flows of an older generation are reset.
    pub generation: u64,
    /// Without an authority nothing is decrypted, and requests that require decryption are refused.
    pub authority: Option<Authority>,
    /// In the order in which they are evaluated.
    pub rules: Vec<RequestRule>,
    /// The secrets that the rules name, and the values that placeholders stand for.
    pub grants: Vec<Grant>,
    /// Headers that are set on requests. Connections to their hosts are decrypted; a transform itself allows no
    /// connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<HeaderTransform>,
}

/// A certificate authority that is trusted only by the sandboxes of one lineage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// The private key, in PKCS#8.
    pub key: SecretBytes,
}

/// A secret that may be inserted into requests of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub name: Name,
    /// Incremented by rotation. Requests with different versions never share a connection.
    pub version: u64,
    pub slot: Slot,
    pub value: SecretBytes,
    /// The scopes that the owner of the secret allows, regardless of the rules.
    pub allow: Vec<RequestScope>,
    /// The placeholder that the sandbox sees instead of the value.
    pub placeholder: Option<SecretBytes>,
    /// Values that were replaced recently. Responses are scrubbed of them; they are never inserted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<SecretBytes>,
}

impl Grant {
    pub(crate) fn without_former(&self) -> Self {
        Self { former: Vec::new(), ..self.clone() }
    }
}
