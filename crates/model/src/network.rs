//! The network policy of a sandbox, in the form that users write.
//!
//! ```text
//! mode none       nothing at all
//! mode allowlist  what a rule, or a named set of rules, allows (the default, with no rules)
//! mode open       any public host; never a private, link-local, loopback or metadata address
//! ```
//!
//! Denied blocks of addresses apply in every mode, whichever name resolves to them; a rule for an address or a block is
//! an exception to them.
//!
//! Pure: which addresses may be dialled and how a connection is judged is decided by the egress crate.

mod host;
mod overlap;
mod range;
mod request;
mod rule;
mod transform;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Name;

pub use host::{HostName, HostNameError, HostPattern};
pub use overlap::overlapping;
pub use range::{IpRange, IpRangeError};
pub use request::{
    Approve, Budget, Method, PathPattern, REQUEST_RULES_MAX, RequestRule, RequestRuleError, RequestScope,
    RuleMode, SCOPE_ITEMS_MAX,
};
pub use rule::{EgressRule, PortRange, RuleError, RuleProtocol};
pub use transform::{
    HeaderTransform, SealedTransforms, TRANSFORM_BYTES_MAX, TRANSFORM_HEADERS_MAX, TRANSFORMS_BYTES_MAX,
    TRANSFORMS_MAX, TransformError, TransformHeader, TransformName, check_transforms, transform_for,
};

/// Rules of one sandbox, not counting its sets. A policy is read by people; a longer list belongs in a named set.
pub const RULES_MAX: usize = 1_000;

/// The maximum number of denied blocks of addresses of one sandbox.
pub const DENIED_MAX: usize = 1_000;

/// The maximum number of named sets that one sandbox refers to.
pub const SETS_MAX: usize = 64;

/// The network policy of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    pub mode: NetworkMode,
    #[serde(default)]
    pub rules: Vec<EgressRule>,
    /// Named sets of rules from the configuration. Their present content is used whenever the policy is applied.
    #[serde(default)]
    pub sets: Vec<Name>,
    /// Rules for requests, which decrypt the traffic to their hosts or insert secrets. The first that covers a request decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestRule>,
    /// Addresses that are not dialled, unless a rule names the address or a block that contains it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<IpRange>,
    /// Headers that are set on requests to some hosts. They allow no connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transforms: Option<SealedTransforms>,
}

impl NetworkPolicy {
    /// An empty allowlist: the default policy of every sandbox.
    pub fn closed() -> Self {
        let mode = NetworkMode::Allowlist;
        Self {
            mode,
            rules: Vec::new(),
            sets: Vec::new(),
            requests: Vec::new(),
            deny: Vec::new(),
            transforms: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// No connection, no name.
    None,
    /// What the rules allow.
    Allowlist,
    /// Any public host.
    Open,
}

impl NetworkMode {
    pub const ALL: [Self; 3] = [Self::None, Self::Allowlist, Self::Open];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "allowlist",
            Self::Open => "open",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a network mode is `none`, `allowlist` or `open`")]
pub struct NetworkModeError;

impl FromStr for NetworkMode {
    type Err = NetworkModeError;

    fn from_str(text: &str) -> Result<Self, NetworkModeError> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or(NetworkModeError)
    }
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_allows_nothing() {
        let policy = NetworkPolicy::closed();
        assert_eq!((policy.mode, policy.rules.len(), policy.sets.len()), (NetworkMode::Allowlist, 0, 0));
    }

    #[test]
    fn a_policy_stored_before_there_were_denied_blocks_is_read() {
        let stored = r#"{"mode": "open", "rules": [], "sets": []}"#;
        let policy: NetworkPolicy = serde_json::from_str(stored).unwrap();
        assert_eq!(policy, NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() });
        assert!(!serde_json::to_string(&policy).unwrap().contains("deny"));
    }

    #[test]
    fn a_mode_reads_as_it_is_written() {
        for mode in NetworkMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("Open".parse::<NetworkMode>(), Err(NetworkModeError));
    }
}
