//! Host names in one canonical form, and patterns over them.
//!
//! The names in rules, DNS questions, TLS hellos and HTTP heads all use this one parser. If two parsers differed in a
//! single byte, a name could be judged as one host and reached as another.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::range::IpRange;
use super::rule::RuleError;

/// The longest name in DNS, written with dots.
const NAME_LENGTH_MAX: usize = 253;
const LABEL_LENGTH_MAX: usize = 63;

/// A host's name: lower case, without a final dot, and never a number that could be read as an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(Box<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostNameError {
    #[error("a host name must not be empty")]
    Empty,
    #[error("a host name is at most 253 characters, each of its labels at most 63")]
    TooLong,
    #[error("a host name has no empty label (two dots in a row, or one in front)")]
    EmptyLabel,
    #[error("a host name may contain letters, digits, `-` and `_`, not {found:?}")]
    Character { found: char },
    #[error("write a name that is not ASCII in its `xn--` form")]
    NotAscii,
    #[error(
        "a host name does not end in a number; an address is written as `203.0.113.7` or `[2001:db8::1]`"
    )]
    LooksLikeAnAddress,
}

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name and every domain above it, the name itself first: `a.b.c`, `b.c`, `c`.
    pub fn ancestry(&self) -> impl Iterator<Item = &str> {
        let mut rest = Some(&*self.0);
        std::iter::from_fn(move || {
            let now = rest?;
            rest = now.split_once('.').map(|(_, above)| above);
            Some(now)
        })
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        // One final dot means "from the root" and does not change the host.
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostNameError::Empty);
        }
        if let Some(found) = text.chars().find(|c| !is_name_character(*c)) {
            return Err(if found.is_ascii() {
                HostNameError::Character { found }
            } else {
                HostNameError::NotAscii
            });
        }
        if text.len() > NAME_LENGTH_MAX {
            return Err(HostNameError::TooLong);
        }
        for label in text.split('.') {
            match label.len() {
                0 => return Err(HostNameError::EmptyLabel),
                1..=LABEL_LENGTH_MAX => {}
                _ => return Err(HostNameError::TooLong),
            }
        }
        // Resolvers read `127.1`, `2130706433`, `0x7f.1` and `0177.0.0.1` as addresses, and no top-level domain is a number:
        // a name that ends in a number would be dialled without a lookup.
        if text.rsplit('.').next().is_some_and(is_numeric) {
            return Err(HostNameError::LooksLikeAnAddress);
        }
        Ok(Self(text.to_ascii_lowercase().into_boxed_str()))
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

fn is_numeric(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl TryFrom<String> for HostName {
    type Error = HostNameError;

    fn try_from(text: String) -> Result<Self, HostNameError> {
        text.parse()
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> String {
        name.0.into()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// `example.com`: this name alone.
    Exact(HostName),
    /// `*.example.com`: one or more labels in front of this name, never the name itself. Any name is accepted: `*.com` is
    /// a rule for all of `com`.
    Suffix(HostName),
    /// `203.0.113.7`: this address alone, which is checked when it is dialled, like every other address.
    Address(IpAddr),
    /// `203.0.113.0/24`: the addresses of this block, more than one.
    Block(IpRange),
}

impl HostPattern {
    pub fn matches(&self, name: &HostName) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            // Without the dot, `*.example.com` would also match `evilexample.com`.
            Self::Suffix(suffix) => {
                name.as_str().strip_suffix(suffix.as_str()).is_some_and(|front| front.ends_with('.'))
            }
            Self::Address(_) | Self::Block(_) => false,
        }
    }
}

impl FromStr for HostPattern {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(inner) = bracketed {
            return match inner.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Self::Address(address.into())),
                Err(_) if inner.contains(':') && inner.contains('/') => block(inner),
                Err(_) => Err(RuleError::Brackets),
            };
        }
        if text.contains('/') {
            return block(text);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        if text == "*" {
            return Err(RuleError::AnyHost);
        }
        let (suffix, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(RuleError::Star);
        }
        let name = name.parse().map_err(|reason| RuleError::Host { reason })?;
        Ok(if suffix { Self::Suffix(name) } else { Self::Exact(name) })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> String {
        pattern.to_string()
    }
}

fn block(text: &str) -> Result<HostPattern, RuleError> {
    let range: IpRange = text.parse().map_err(|reason| RuleError::Block { reason })?;
    Ok(range.single().map_or(HostPattern::Block(range), HostPattern::Address))
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Suffix(name) => write!(f, "*.{name}"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Block(range) if range.is_ipv6() => write!(f, "[{range}]"),
            Self::Block(range) => write!(f, "{range}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_lower_case_and_loses_one_final_dot() {
        for (text, name) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("localhost", "localhost"),
            ("_dmarc.example.com", "_dmarc.example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("3com.example", "3com.example"),
            ("1.2.3.4.in-addr.arpa", "1.2.3.4.in-addr.arpa"),
        ] {
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), name);
        }
        let longest = format!("{}.{}", vec!["a".repeat(62); 4].join("."), "b");
        assert_eq!(longest.len(), NAME_LENGTH_MAX);
        assert!(longest.parse::<HostName>().is_ok());
    }

    #[test]
    fn p_n6_what_could_be_read_as_another_host_is_no_name() {
        use HostNameError::*;
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = format!("a.{}.{}", vec!["a".repeat(62); 4].join("."), "b");
        for (text, error) in [
            ("", Empty),
            (".", Empty),
            ("a..b", EmptyLabel),
            (".a", EmptyLabel),
            ("a..", EmptyLabel),
            ("evil\0.ok.com", Character { found: '\0' }),
            ("ok.com@evil.com", Character { found: '@' }),
            ("ok.com:443", Character { found: ':' }),
            ("ok.com/", Character { found: '/' }),
            ("ok com", Character { found: ' ' }),
            ("bücher.example", NotAscii),
            ("127.0.0.1", LooksLikeAnAddress),
            ("127.1", LooksLikeAnAddress),
            ("2130706433", LooksLikeAnAddress),
            ("0x7f000001", LooksLikeAnAddress),
            ("0X7F.1", LooksLikeAnAddress),
            ("0x7f.0x1", LooksLikeAnAddress),
            ("0177.0.0.01", LooksLikeAnAddress),
            ("host.0x", LooksLikeAnAddress),
            ("127.0.0.1.", LooksLikeAnAddress),
            (&long_label, TooLong),
            (&long_name, TooLong),
        ] {
            assert_eq!(text.parse::<HostName>(), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_star_stands_for_one_or_more_labels_and_nothing_less() {
        let pattern: HostPattern = "*.example.com".parse().unwrap();
        for (name, matches) in [
            ("a.example.com", true),
            ("a.b.example.com", true),
            ("example.com", false),
            ("evilexample.com", false),
            ("example.com.evil", false),
            ("com", false),
        ] {
            assert_eq!(pattern.matches(&name.parse().unwrap()), matches, "{name}");
        }
    }

    #[test]
    fn ancestry_walks_up_to_the_top() {
        let name: HostName = "a.b.example.com".parse().unwrap();
        assert_eq!(
            name.ancestry().collect::<Vec<_>>(),
            ["a.b.example.com", "b.example.com", "example.com", "com"]
        );
    }
}
