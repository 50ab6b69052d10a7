//! One rule of a policy, in the text form that users write.
//!
//! ```text
//! example.com                TLS on 443 and HTTP on 80
//! *.example.com              the same for every name under it
//! example.com:8443           TLS or HTTP on that port
//! example.com:80,8000-8100   several ports
//! https://example.com        TLS on 443 only            (tls:// is the same)
//! http://example.com         unencrypted HTTP on 80 only
//! tcp://db.example.com:5432  any protocol
//! ssh://github.com           tcp on 22
//! [2001:db8::1]:443          an address instead of a name
//! tcp://203.0.113.0/24:5432  every address of a block
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::host::{HostNameError, HostPattern};
use super::range::IpRangeError;

/// The longest text of a rule: the longest name, a scheme and all the ports that a rule may list.
const RULE_LENGTH_MAX: usize = 512;

/// Ports and ranges of ports in one rule.
const PORTS_MAX: usize = 16;

const SSH_PORT: u16 = 22;

/// Allows one kind of traffic to the hosts of one pattern, on some ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressRule {
    pub host: HostPattern,
    /// Empty means the default: 443 for TLS, 80 for HTTP. Never empty for `tcp`, which has no default.
    pub ports: Vec<PortRange>,
    pub protocol: RuleProtocol,
}

/// The protocols that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleProtocol {
    /// TLS or unencrypted HTTP.
    Web,
    Tls,
    /// Unencrypted HTTP/1.
    Http,
    /// Any bytes, including TLS and HTTP; only host and port are checked.
    Tcp,
}

/// Ports `first` to `last`, both included. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule is at most 512 characters")]
    TooLong,
    #[error("{reason}")]
    Host { reason: HostNameError },
    #[error("{reason}")]
    Block { reason: IpRangeError },
    #[error("`*` would allow every host; set the mode to `open` for that, or write `*.example.com`")]
    AnyHost,
    #[error("`*` replaces whole labels in front of a name, as in `*.example.com`")]
    Star,
    #[error("an address in brackets is IPv6, as in `[2001:db8::1]:443`")]
    Brackets,
    #[error("an IPv6 address with a port is written in brackets, as in `[2001:db8::1]:443`")]
    BareV6,
    #[error(
        "`{scheme}://` is not known; a rule starts with https, http, tls, tcp or ssh, or with none of them"
    )]
    Scheme { scheme: String },
    #[error("a rule names a host, not a path; remove everything after the host and its ports")]
    Path,
    #[error("a rule has no user name; remove the part before `@`")]
    User,
    #[error(
        "a port is a number from 1 to 65535, or a range such as `8000-8100`; separate several with commas"
    )]
    Port,
    #[error("a rule lists at most 16 ports or ranges")]
    Ports,
    #[error("a `tcp://` rule names its ports, as in `tcp://db.example.com:5432`")]
    TcpPort,
}

impl PortRange {
    /// `None` if a port is 0 or `first` is greater than `last`.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first > 0 && first <= last).then_some(Self { first, last })
    }

    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    pub fn first(self) -> u16 {
        self.first
    }

    pub fn last(self) -> u16 {
        self.last
    }
}

impl RuleProtocol {
    /// Its prefix in front of a host.
    fn scheme(self) -> &'static str {
        match self {
            Self::Web => "",
            Self::Tls => "https://",
            Self::Http => "http://",
            Self::Tcp => "tcp://",
        }
    }
}

impl FromStr for EgressRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.len() > RULE_LENGTH_MAX {
            return Err(RuleError::TooLong);
        }
        let (protocol, ssh, rest) = match text.split_once("://") {
            None => (RuleProtocol::Web, false, text),
            Some(("https" | "tls", rest)) => (RuleProtocol::Tls, false, rest),
            Some(("http", rest)) => (RuleProtocol::Http, false, rest),
            Some(("tcp", rest)) => (RuleProtocol::Tcp, false, rest),
            Some(("ssh", rest)) => (RuleProtocol::Tcp, true, rest),
            Some((scheme, _)) => {
                let scheme = scheme.chars().take(20).flat_map(char::escape_default).collect();
                return Err(RuleError::Scheme { scheme });
            }
        };
        if rest.contains(['?', '#']) || (rest.contains('/') && !names_block(rest)) {
            return Err(RuleError::Path);
        }
        if rest.contains('@') {
            return Err(RuleError::User);
        }
        let (host, ports) = split_ports(rest)?;
        let mut ports = ports.map(parse_ports).transpose()?.unwrap_or_default();
        if ports.is_empty() && ssh {
            ports.extend(PortRange::new(SSH_PORT, SSH_PORT));
        }
        if ports.is_empty() && protocol == RuleProtocol::Tcp {
            return Err(RuleError::TcpPort);
        }
        Ok(Self { host: host.parse()?, ports, protocol })
    }
}

/// Whether the slash in `text` belongs to a block of addresses.
fn names_block(text: &str) -> bool {
    let Ok((host, ports)) = split_ports(text) else { return false };
    let first = host.trim_start_matches('[').split('/').next().unwrap_or_default();
    first.parse::<std::net::IpAddr>().is_ok() && !ports.is_some_and(|ports| ports.contains('/'))
}

/// Separates the host from its ports, if it has any.
fn split_ports(text: &str) -> Result<(&str, Option<&str>), RuleError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(RuleError::Brackets)?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(ports) => Ok((host, Some(ports))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(RuleError::Brackets),
        };
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, rest)) if rest.contains(':') => {
            let address = text.split('/').next().unwrap_or_default();
            match address.parse::<std::net::Ipv6Addr>() {
                Ok(_) => Ok((text, None)),
                Err(_) => Err(RuleError::BareV6),
            }
        }
        Some((host, ports)) => Ok((host, Some(ports))),
    }
}

fn parse_ports(text: &str) -> Result<Vec<PortRange>, RuleError> {
    if text.split(',').count() > PORTS_MAX {
        return Err(RuleError::Ports);
    }
    text.split(',').map(parse_port_range).collect()
}

fn parse_port_range(text: &str) -> Result<PortRange, RuleError> {
    let port = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse::<u16>().map_err(|_| RuleError::Port),
        false => Err(RuleError::Port),
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    PortRange::new(port(first)?, port(last)?).ok_or(RuleError::Port)
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.protocol.scheme(), self.host)?;
        for (place, range) in self.ports.iter().enumerate() {
            write!(f, "{}{range}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for EgressRule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> String {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str, protocol: RuleProtocol) {
        let rule: EgressRule = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rule.to_string(), canonical);
        assert_eq!(rule.protocol, protocol, "{text}");
        assert_eq!(canonical.parse::<EgressRule>().as_ref(), Ok(&rule), "it reads as it is written");
    }

    #[test]
    fn the_forms_people_write_are_understood() {
        use RuleProtocol::*;
        check("example.com", "example.com", Web);
        check("Example.COM.", "example.com", Web);
        check("*.example.com", "*.example.com", Web);
        check("*.com", "*.com", Web);
        check("example.com:8443", "example.com:8443", Web);
        check("example.com:8000-8100", "example.com:8000-8100", Web);
        check("example.com:80,8000-8100", "example.com:80,8000-8100", Web);
        check("https://example.com", "https://example.com", Tls);
        check("tls://example.com:993", "https://example.com:993", Tls);
        check("http://example.com", "http://example.com", Http);
        check("tcp://db.example.com:5432", "tcp://db.example.com:5432", Tcp);
        check("ssh://github.com", "tcp://github.com:22", Tcp);
        check("ssh://github.com:2222", "tcp://github.com:2222", Tcp);
        check("tcp://203.0.113.7:5432", "tcp://203.0.113.7:5432", Tcp);
        check("[2001:db8::1]:443", "[2001:db8::1]:443", Web);
        check("2001:db8::1", "[2001:db8::1]", Web);
        check("203.0.113.7", "203.0.113.7", Web);
        check("203.0.113.7/32", "203.0.113.7", Web);
        check("203.0.113.0/24", "203.0.113.0/24", Web);
        check("tcp://203.0.113.0/24:22,5432", "tcp://203.0.113.0/24:22,5432", Tcp);
        check("2001:db8::/32", "[2001:db8::/32]", Web);
        check("tcp://[2001:db8::/32]:1-65535", "tcp://[2001:db8::/32]:1-65535", Tcp);
    }

    #[track_caller]
    fn refused(text: &str, message: &str) {
        let error = text.parse::<EgressRule>().unwrap_err().to_string();
        assert!(error.contains(message), "{text:?}: {error}");
    }

    #[test]
    fn bad_forms_are_refused_with_the_reason() {
        refused("", "must not be empty");
        refused("*", "set the mode to `open`");
        refused("*:443", "set the mode to `open`");
        refused("*foo.com", "whole labels");
        refused("a.*.b", "whole labels");
        refused("*.*.b", "whole labels");
        refused("*.", "must not be empty");
        refused("ftp://example.com", "`ftp://` is not known");
        refused("\u{1b}://example.com", "`\\u{1b}://` is not known");
        refused("https://example.com/path", "not a path");
        refused("example.com/", "not a path");
        refused("203.0.113.7/24", "not the first address of its range");
        refused("203.0.113.0/33", "written like");
        refused("203.0.113.0/24/x", "written like");
        refused("203.0.113.7:443/24", "not a path");
        refused("2001:db8::1/32", "not the first address of its range");
        refused("[203.0.113.0/24]", "in brackets");
        refused("https://user:pw@example.com", "no user name");
        refused("example.com:0", "from 1 to 65535");
        refused("example.com:65536", "from 1 to 65535");
        refused("example.com:90-80", "from 1 to 65535");
        refused("example.com:", "from 1 to 65535");
        refused("example.com:+80", "from 1 to 65535");
        refused("example.com:80-90-100", "from 1 to 65535");
        refused("bücher.example", "xn--");
        refused("exa\0mple.com", "letters, digits");
        refused("a..b", "empty label");
        refused("0x7f.1", "does not end in a number");
        refused("2130706433", "does not end in a number");
        refused("tcp://db.example.com", "names its ports");
        refused("[::1", "in brackets");
        refused("[203.0.113.7]:80", "in brackets");
        refused("2001:db8::1:x", "in brackets");
        refused(&format!("example.com:{}", ["1"; 17].join(",")), "at most 16");
        refused(&"a".repeat(600), "at most 512");
    }
}
