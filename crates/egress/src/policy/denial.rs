//! Why a connection or a question was refused, in words for the person whose program met it.

use std::net::IpAddr;

use burrow_model::HostName;
use serde::{Deserialize, Serialize};

use super::{AddressKind, Host, ProtocolSeen};

/// A reason. Each is a policy's or a limit's verdict; an upstream that cannot be reached is none.
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
    Protocol { host: Host, port: u16, protocol: ProtocolSeen },
    #[error("the connection was opened to `{opened}`, but asks for `{asked}`")]
    NameMismatch { opened: Host, asked: Host },
    #[error("the connection to the address {address} names no host, and no rule allows the address")]
    NoName { address: IpAddr },
    #[error("the connection names a host in a way that is not a host name")]
    BadName,
    #[error("{address} is not a name this sandbox was given; ask the resolver first")]
    UnknownSynthetic { address: IpAddr },
    #[error("`{host}` leads to {address}, {kind}")]
    Address { host: Host, address: IpAddr, kind: AddressKind },
    #[error("the request is malformed: {what}")]
    Malformed { what: String },
    #[error("{what} is not supported here")]
    Unsupported { what: String },
    #[error("`{name}` asks for more new names than a sandbox may in a minute")]
    NameBudget { name: HostName },
    #[error("the sandbox has as many connections open as it may")]
    ConnectionsMax,
    #[error("the sandbox opens connections faster than it may")]
    ConnectionRate,
    #[error("the sandbox asks the resolver faster than it may")]
    QuestionRate,
    #[error("the connection said nothing in time")]
    SilentClient,
    #[error("the policy was changed and no longer allows it")]
    Revoked,
    #[error("requests to `{host}` are judged one by one, and the sandbox has no authority for that yet")]
    NoAuthority { host: Host },
    #[error("new hosts are decrypted faster than a sandbox may")]
    MintRate,
    /// One request of a decrypted connection.
    #[error("{what}")]
    Request { what: String },
}

impl Denial {
    /// The rule that would have allowed it, where a rule would.
    pub fn rule_needed(&self) -> Option<String> {
        match self {
            Self::Host { host } => Some(host.to_string()),
            Self::Port { host, port } => Some(format!("{}:{port}", host.bracketed())),
            Self::Protocol { host, port, protocol } => {
                let scheme = match protocol {
                    ProtocolSeen::Tls => "https",
                    ProtocolSeen::Http => "http",
                    ProtocolSeen::Tcp => "tcp",
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

    /// What can be done about it, as a sentence.
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
        matches!(self, Self::Address { .. }).then(|| {
            "Addresses that are not public are opened in the daemon's configuration only.".to_owned()
        })
    }
}
