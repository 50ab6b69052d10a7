//! What is done to a sandbox's requests: the rules about them, the secrets they may carry, and the authority that lets
//! us stand between a program and its host.
//!
//! Part of a [`crate::Policy`], so that what may be reached and what is put into it change at one moment. It travels from
//! the daemon to the egress process over the control socket and rests nowhere else.

use burrow_model::network::{RequestRule, RequestScope};
use burrow_model::{Name, SecretBytes, Slot, TenantId};
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directives {
    /// Whose the sandbox is: the log its requests are written into.
    pub tenant: TenantId,
    /// Raised with every change of rules or secrets: flows of an older one are reset.
    pub generation: u64,
    /// Without one nothing is decrypted, and what needs it is refused.
    pub authority: Option<Authority>,
    /// In the order in which they are asked.
    pub rules: Vec<RequestRule>,
    /// What the rules name, and what a placeholder stands for.
    pub grants: Vec<Grant>,
}

/// A certificate authority that the sandbox's lineage trusts, and nobody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// DER.
    pub certificate: Vec<u8>,
    /// PKCS#8.
    pub key: SecretBytes,
}

/// A secret, for the sandbox whose policy this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub name: Name,
    /// Raised by rotation. Connections are not shared between two of them.
    pub version: u64,
    pub slot: Slot,
    pub value: SecretBytes,
    /// The owner's ceiling, which holds whatever the rules say.
    pub allow: Vec<RequestScope>,
    /// What stands for it inside the sandbox.
    pub placeholder: Option<SecretBytes>,
}
