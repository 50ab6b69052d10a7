//! The destination of a connection as policies see it: a host and a port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use burrow_model::HostName;
use burrow_model::network::HostNameError;
use serde::{Deserialize, Serialize};

use super::{DetectedProtocol, HTTP_PORT, TLS_PORT};

/// A name, or an address if the program connected to an address directly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    Name(HostName),
    Address(IpAddr),
}

impl Host {
    /// With brackets around an IPv6 address, so that a port can follow.
    pub(crate) fn bracketed(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(address)) => format!("[{address}]"),
            Self::Address(IpAddr::V4(_)) | Self::Name(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl FromStr for Host {
    type Err = HostNameError;

    /// Parses `example.com`, `203.0.113.7` and `[2001:db8::1]`, as in a URL.
    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bracketed.and_then(|inner| inner.parse::<Ipv6Addr>().ok()) {
            return Ok(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        match text.parse::<IpAddr>() {
            Ok(address @ IpAddr::V4(_)) => Ok(Self::Address(address)),
            Ok(IpAddr::V6(_)) | Err(_) => text.parse().map(Self::Name),
        }
    }
}

/// What a policy decides about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    pub host: Host,
    pub port: u16,
}

/// A destination and a protocol, as a user enters them for a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub destination: Destination,
    pub protocol: DetectedProtocol,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("{0}")]
    Host(HostNameError),
    #[error("a port is a number from 1 to 65535")]
    Port,
    #[error("`{scheme}://` is not known; write https, http, tls, tcp or ssh, or none of them")]
    Scheme { scheme: String },
    #[error("`tcp://` needs a port, as in `tcp://db.example.com:5432`")]
    TcpPort,
}

impl FromStr for Target {
    type Err = TargetError;

    /// Parses `https://example.com/path`, `example.com`, `example.com:8443`, `tcp://db:5432`, `ssh://github.com`.
    /// Without a scheme the protocol is TLS, except for port 80.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        use DetectedProtocol::{Http, Tcp, Tls};
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // Brackets may contain colons; only a colon after them starts a port.
        let colon = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
        let (host, port) = match colon {
            Some(colon) => (&authority[..colon], Some(port(&authority[colon + 1..])?)),
            None => (authority, None),
        };
        let (protocol, standard) = match scheme {
            Some("https" | "wss" | "tls") => (Tls, Some(TLS_PORT)),
            Some("http" | "ws") => (Http, Some(HTTP_PORT)),
            Some("tcp") => (Tcp, None),
            Some("ssh") => (Tcp, Some(22)),
            None if port == Some(HTTP_PORT) => (Http, None),
            None => (Tls, Some(TLS_PORT)),
            Some(scheme) => {
                let scheme = scheme.chars().take(20).flat_map(char::escape_default).collect();
                return Err(TargetError::Scheme { scheme });
            }
        };
        let host = host.parse().map_err(TargetError::Host)?;
        let port = port.or(standard).ok_or(TargetError::TcpPort)?;
        Ok(Self { destination: Destination { host, port }, protocol })
    }
}

fn port(text: &str) -> Result<u16, TargetError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0).ok_or(TargetError::Port)
}
