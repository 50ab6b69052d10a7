//! What a sandbox may reach: its policy, in the words a person writes.
//!
//! ```text
//! mode none       nothing at all
//! mode allowlist  what a rule, or a named set of rules, allows (the default, with no rule)
//! mode open       any public host; never a private, link-local, loopback or metadata address
//! ```
//!
//! Denied blocks of addresses hold in every mode and whatever name leads to them; a rule about an address or a block is
//! an exception to them.
//!
//! Pure: which addresses may be dialled and how a connection is judged is the egress crate's.

mod host;
mod overlap;
mod range;
mod request;
mod rule;

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

/// Rules of one sandbox, its sets not counted. A policy is looked at by people; a longer list belongs in a named set.
pub const RULES_MAX: usize = 1_000;

/// Blocks of addresses that one sandbox may be denied.
pub const DENIED_MAX: usize = 1_000;

/// Named sets one sandbox may refer to.
pub const SETS_MAX: usize = 64;

/// What a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPolicy {
    pub mode: NetworkMode,
    #[serde(default)]
    pub rules: Vec<EgressRule>,
    /// Named sets of rules from the configuration, as they are there whenever the policy is applied.
    #[serde(default)]
    pub sets: Vec<Name>,
    /// Rules about requests, which decrypt their hosts or put secrets in. The first that covers a request decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestRule>,
    /// Addresses that are not dialled, unless a rule names the address or a block it is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<IpRange>,
}

impl NetworkPolicy {
    /// An allow-list with nothing in it: what every sandbox gets unless somebody says otherwise.
    pub fn closed() -> Self {
        let mode = NetworkMode::Allowlist;
        Self { mode, rules: Vec::new(), sets: Vec::new(), requests: Vec::new(), deny: Vec::new() }
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
