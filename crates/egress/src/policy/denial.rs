//! Why a connection or a DNS question was refused, in words for the user whose program was refused.

use std::net::IpAddr;

use burrow_model::HostName;
use serde::{Deserialize, Serialize};

use super::{AddressKind, DetectedProtocol, Host};

/// A reason for a refusal by a policy or a limit. An unreachable host is not a denial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Denial {
    #[error("this sandbox has no network (mode `none`)")]
    NetworkOff,
    #[error("no rule allows `{host}`")]
    Host { host: Host },
    #[error("no rule allows port {port} of `{host}`")]
    Port { host: Host, port: u16 },
    #[error("no rule allows {} to `{host}` on port {port}", .protocol.as_str())]
    Protocol { host: Host, port: u16, protocol: DetectedProtocol },
    #[error("the connection was opened to `{opened}`, but requests `{asked}`")]
    NameMismatch { opened: Host, asked: Host },
    #[error("the connection to the address {address} names no host, and no rule allows the address")]
    NoName { address: IpAddr },
    #[error("the connection names a host that is not a valid host name")]
    BadName,
    #[error("{address} is not assigned to a name in this sandbox; resolve the name again")]
    UnknownSynthetic { address: IpAddr },
    #[error("`{host}` leads to {address}, {kind}")]
    Address { host: Host, address: IpAddr, kind: AddressKind },
    #[error("the request is malformed: {what}")]
    Malformed { what: String },
    #[error("{what} is not supported here")]
    Unsupported { what: String },
    #[error("`{name}` exceeds the sandbox's limit of new names per minute")]
    NameBudget { name: HostName },
    #[error("the sandbox has reached its limit of open connections")]
    ConnectionsMax,
    #[error("the sandbox exceeds its rate limit for new connections")]
    ConnectionRate,
    #[error("the sandbox exceeds its rate limit for DNS questions")]
    QuestionRate,
    #[error("the connection was silent for too long")]
    SilentClient,
    #[error("the policy was changed and no longer allows it")]
    Revoked,
    #[error("requests to `{host}` must be intercepted, and the sandbox has no certificate authority yet")]
    NoAuthority { host: Host },
    #[error("certificates for new hosts exceed the sandbox's rate limit")]
    MintRate,
    /// One request of an intercepted connection.
    #[error("{what}")]
    Request { what: String },
}

impl Denial {
    /// The rule that would have allowed it, if a rule can.
    pub fn rule_needed(&self) -> Option<String> {
        match self {
            Self::Host { host } => Some(host.to_string()),
            Self::Port { host, port } => Some(format!("{}:{port}", host.bracketed())),
            Self::Protocol { host, port, protocol } => {
                let scheme = match protocol {
                    DetectedProtocol::Tls => "https",
                    DetectedProtocol::Http => "http",
                    DetectedProtocol::Tcp => "tcp",
                };
                Some(format!("{scheme}://{}:{port}", host.bracketed()))
            }
            Self::NetworkOff
            | Self::NameMismatch { .. }
            | Self::NoName { .. }
            | Self::BadName
            | Self::UnknownSynthetic { .. }
            | Self::Address { .. }
            | Self::Malformed { .. }
            | Self::Unsupported { .. }
            | Self::NameBudget { .. }
            | Self::ConnectionsMax
            | Self::ConnectionRate
            | Self::QuestionRate
            | Self::SilentClient
            | Self::Revoked
            | Self::NoAuthority { .. }
            | Self::MintRate
            | Self::Request { .. } => None,
        }
    }

    /// What the user can do about it, as a sentence.
    pub fn remedy(&self) -> Option<String> {
        if let Some(rule) = self.rule_needed() {
            return Some(format!("To allow it, add the rule `{rule}` to the sandbox's network policy."));
        }
        if matches!(self, Self::NetworkOff) {
            return Some("To allow it, change the sandbox's network mode.".to_owned());
        }
        if matches!(self, Self::Address { kind: AddressKind::Denied, .. }) {
            return Some(
                "To allow it, add a rule about the address to the sandbox's network policy.".to_owned(),
            );
        }
        matches!(self, Self::Address { .. })
            .then(|| "Only the daemon's configuration can allow addresses that are not public.".to_owned())
    }
}
