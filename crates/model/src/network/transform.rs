//! Headers that are set on the requests of a sandbox to a host, outside the sandbox.
//!
//! ```text
//!   api.example.com    Authorization: Bearer …     an exact name has priority over every wildcard
//!   *.example.com      X-Team: blue                the longest suffix has priority over others; sets are not merged
//! ```
//!
//! A transform grants no access: the other rules decide whether the host may be reached. Most values are credentials, so
//! they are [`SecretBytes`], and a [`super::NetworkPolicy`] contains them only in encrypted form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::host::{HostName, HostPattern};
use crate::SecretBytes;

/// The maximum number of hosts with headers in one policy.
pub const TRANSFORMS_MAX: usize = 100;

/// The maximum number of headers of one host.
pub const TRANSFORM_HEADERS_MAX: usize = 64;

/// Names and values of all hosts together. They are part of a sandbox's row.
pub const TRANSFORMS_BYTES_MAX: usize = 64 * 1024;

/// Names and values of one host: servers refuse longer headers.
pub const TRANSFORM_BYTES_MAX: usize = 16 * 1024;

const NAME_LENGTH_MAX: usize = 128;

/// The headers of requests to one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderTransform {
    pub host: HostPattern,
    pub headers: Vec<TransformHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformHeader {
    pub name: TransformName,
    /// Replaces the values that the program sent. `Debug` prints `***`.
    pub value: SecretBytes,
}

/// The name of a header, in the spelling of its owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransformName(Box<str>);

/// Transforms in a policy: the hosts in plain text, the headers encrypted in `sealed`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedTransforms {
    pub hosts: Vec<HostPattern>,
    /// All of the transforms, encrypted.
    pub sealed: String,
    /// The key that `sealed` is encrypted with.
    pub sealed_by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    #[error("`{name}` is not a header name: 1 to {NAME_LENGTH_MAX} letters, digits and ``!#$%&'*+-.^_`|~``")]
    Name { name: String },
    #[error("the header `{name}` cannot be set: it is about the connection, the host or the method")]
    Reserved { name: String },
    #[error("the value of the header `{name}` holds other characters than visible ASCII, spaces and tabs")]
    Value { name: String },
    #[error("headers are set for host names and `*.` patterns, not for the address `{host}`")]
    Address { host: HostPattern },
    #[error("the host `{host}` is listed twice")]
    HostTwice { host: HostPattern },
    #[error("the header `{name}` is listed twice for the host `{host}`")]
    HeaderTwice { host: HostPattern, name: String },
    #[error("headers can be set for at most {TRANSFORMS_MAX} hosts, not {count}")]
    TooManyHosts { count: usize },
    #[error("at most {TRANSFORM_HEADERS_MAX} headers can be set for the host `{host}`, not {count}")]
    TooManyHeaders { host: HostPattern, count: usize },
    #[error("the headers for the host `{host}` are longer than {TRANSFORM_BYTES_MAX} bytes")]
    HostTooLarge { host: HostPattern },
    #[error("the headers for all hosts together are longer than {TRANSFORMS_BYTES_MAX} bytes")]
    TooLarge,
}

// === impl HeaderTransform ===

impl HeaderTransform {
    /// A transform of the same host without headers.
    #[must_use]
    pub fn without_headers(&self) -> Self {
        Self { host: self.host.clone(), headers: Vec::new() }
    }

    fn check(&self) -> Result<usize, TransformError> {
        let host = || self.host.clone();
        match self.host {
            HostPattern::Exact(_) | HostPattern::Suffix(_) => {}
            HostPattern::Address(_) | HostPattern::Block(_) => {
                return Err(TransformError::Address { host: host() });
            }
        }
        let count = self.headers.len();
        if count > TRANSFORM_HEADERS_MAX {
            return Err(TransformError::TooManyHeaders { host: host(), count });
        }
        let mut bytes = 0;
        for (index, header) in self.headers.iter().enumerate() {
            let name = header.name.to_string();
            if self.headers[..index].iter().any(|earlier| earlier.name == header.name) {
                return Err(TransformError::HeaderTwice { host: host(), name });
            }
            let plain = |byte: &u8| matches!(byte, b'\t' | 0x20..0x7f);
            if !header.value.expose().iter().all(plain) {
                return Err(TransformError::Value { name });
            }
            bytes += name.len() + header.value.expose().len();
        }
        if bytes > TRANSFORM_BYTES_MAX {
            Err(TransformError::HostTooLarge { host: host() })
        } else {
            Ok(bytes)
        }
    }
}

/// Refuses transforms that cannot be sent, are ambiguous, or are too large.
pub fn check_transforms(transforms: &[HeaderTransform]) -> Result<(), TransformError> {
    if transforms.len() > TRANSFORMS_MAX {
        return Err(TransformError::TooManyHosts { count: transforms.len() });
    }
    let mut bytes = 0;
    for (index, transform) in transforms.iter().enumerate() {
        bytes += transform.check()?;
        if transforms[..index].iter().any(|earlier| earlier.host == transform.host) {
            return Err(TransformError::HostTwice { host: transform.host.clone() });
        }
    }
    if bytes > TRANSFORMS_BYTES_MAX { Err(TransformError::TooLarge) } else { Ok(()) }
}

/// The index of the transform for a host, regardless of the order of the list: the exact name, else the longest suffix.
pub fn transform_for(transforms: &[HeaderTransform], host: &HostName) -> Option<usize> {
    let nearness = |pattern: &HostPattern| match pattern {
        HostPattern::Exact(_) => usize::MAX,
        HostPattern::Suffix(name) => name.as_str().len(),
        HostPattern::Address(_) | HostPattern::Block(_) => 0,
    };
    let matching = transforms.iter().enumerate().filter(|(_, transform)| transform.host.matches(host));
    matching.max_by_key(|(_, transform)| nearness(&transform.host)).map(|(index, _)| index)
}

// === impl TransformName ===

/// Headers that frame a message, name its host, or concern one connection; and those that make some servers use another
/// method or path than the one that was judged.
const RESERVED: [&str; 19] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

impl TransformName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TransformName {
    type Err = TransformError;

    fn from_str(text: &str) -> Result<Self, TransformError> {
        let name = || text.chars().take(60).flat_map(char::escape_default).collect();
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !(1..=NAME_LENGTH_MAX).contains(&text.len()) || !text.bytes().all(token) {
            return Err(TransformError::Name { name: name() });
        }
        if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(text)) {
            return Err(TransformError::Reserved { name: name() });
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for TransformName {
    type Error = TransformError;

    fn try_from(text: String) -> Result<Self, TransformError> {
        text.parse()
    }
}

impl From<TransformName> for String {
    fn from(name: TransformName) -> String {
        name.0.into()
    }
}

/// Names of headers are the same in upper and in lower case.
impl PartialEq for TransformName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for TransformName {}

impl fmt::Display for TransformName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SealedTransforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedTransforms").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transform(host: &str, headers: &[(&str, &str)]) -> HeaderTransform {
        let header = |(name, value): &(&str, &str)| TransformHeader {
            name: name.parse().unwrap(),
            value: SecretBytes::new(value.as_bytes().to_vec()),
        };
        HeaderTransform { host: host.parse().unwrap(), headers: headers.iter().map(header).collect() }
    }

    #[test]
    fn an_exact_name_wins_and_then_the_longest_suffix_in_any_order() {
        let mut list = vec![
            transform("*.example.com", &[]),
            transform("api.example.com", &[]),
            transform("*.com", &[]),
            transform("*.api.example.com", &[]),
        ];
        for _ in 0..list.len() {
            list.rotate_left(1);
            for (host, expected) in [
                ("api.example.com", Some("api.example.com")),
                ("www.example.com", Some("*.example.com")),
                ("a.b.api.example.com", Some("*.api.example.com")),
                ("example.com", Some("*.com")),
                ("evilexample.com", Some("*.com")),
                ("com", None),
                ("example.org", None),
            ] {
                let found = transform_for(&list, &host.parse().unwrap());
                let found = found.map(|index| list[index].host.to_string());
                assert_eq!(found.as_deref(), expected, "{host}");
            }
        }
    }

    #[test]
    fn headers_that_would_change_the_request_are_refused() {
        for bad in ["Host", "content-length", "Transfer-Encoding", "TE", "X-HTTP-Method-Override", "Upgrade"]
        {
            assert!(matches!(bad.parse::<TransformName>(), Err(TransformError::Reserved { .. })), "{bad}");
        }
        for bad in ["", "a b", "a:b", ":authority", "a\r\nb", "ä", &"a".repeat(NAME_LENGTH_MAX + 1)] {
            assert!(matches!(bad.parse::<TransformName>(), Err(TransformError::Name { .. })), "{bad:?}");
        }
        assert_eq!("X-API-Key".parse::<TransformName>().unwrap().as_str(), "X-API-Key");
        for bad in ["a\r\nX-Evil: 1", "a\0", "a\n", "ä", "\u{7f}"] {
            let list = [transform("a.example", &[("X-A", bad)])];
            assert!(matches!(check_transforms(&list), Err(TransformError::Value { .. })), "{bad:?}");
        }
        check_transforms(&[transform("a.example", &[("X-A", "Bearer sk-1\t2"), ("X-B", "")])]).unwrap();
    }

    #[test]
    fn ambiguous_or_too_large_transforms_are_refused() {
        use TransformError::*;
        let of = |list: &[HeaderTransform]| check_transforms(list).unwrap_err();
        let twice = [transform("a.example", &[]), transform("A.example.", &[])];
        assert!(matches!(of(&twice), HostTwice { .. }));
        assert!(matches!(of(&[transform("a.example", &[("X-A", "1"), ("x-a", "2")])]), HeaderTwice { .. }));
        assert!(matches!(of(&[transform("192.0.2.1", &[])]), Address { .. }));
        assert!(matches!(of(&[transform("192.0.2.0/24", &[])]), Address { .. }));
        let long = "a".repeat(TRANSFORM_BYTES_MAX - 3);
        let most = |host: &str| transform(host, &[("X-A", &long)]);
        check_transforms(&[most("a.example")]).unwrap();
        assert!(matches!(of(&[transform("a.example", &[("X-AB", &long)])]), HostTooLarge { .. }));
        let hosts: Vec<_> = (0..5).map(|n| most(&format!("a{n}.example"))).collect();
        assert_eq!(of(&hosts), TooLarge);
        let hosts: Vec<_> = (0..=TRANSFORMS_MAX).map(|n| transform(&format!("a{n}.example"), &[])).collect();
        assert!(matches!(of(&hosts), TooManyHosts { .. }));
        let names: Vec<_> = (0..=TRANSFORM_HEADERS_MAX).map(|n| format!("x-{n}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        assert!(matches!(of(&[transform("a.example", &headers)]), TooManyHeaders { .. }));
        assert!("*".parse::<HostPattern>().is_err());
    }

    #[test]
    fn no_value_is_shown_by_debug() {
        let list = [transform("a.example", &[("Authorization", "Bearer sk-canary")])];
        assert!(!format!("{list:?}").contains("canary"));
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<Vec<HeaderTransform>>(&text).unwrap(), list);
    }
}
