//! The daemon's address, and request paths and queries.

use std::fmt::Write as _;

use http::Uri;

use crate::ClientError;

/// The daemon's address: scheme, authority, and a path prefix if it is behind a proxy.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl {
    scheme: Scheme,
    /// As in the `Host` header.
    authority: String,
    host: String,
    port: u16,
    /// Without a trailing slash.
    prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl BaseUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = |reason| ClientError::BadUrl { url: shown(text), reason };
        let uri: Uri = text.trim().parse().map_err(|_| bad("not a valid URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) => return Err(bad("unsupported scheme")),
            None => return Err(bad("missing scheme")),
        };
        let authority = uri.authority().ok_or_else(|| bad("missing host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("contains credentials"));
        }
        if uri.query().is_some() {
            return Err(bad("contains a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("missing host"));
        }
        let port = authority.port_u16().unwrap_or(match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, authority: authority.as_str().to_owned(), host, port, prefix })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name or address, without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn display(&self) -> String {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("{scheme}://{}{}", self.authority, self.prefix)
    }

    /// The complete URL of a path.
    pub(crate) fn join(&self, path: &Path) -> Uri {
        let text = format!("{}{}", self.display(), path.as_str());
        text.parse().expect("a parsed base and a percent-encoded path make an address")
    }
}

/// A path with a query. User input is percent-encoded, so that a hostile name cannot change the route.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    text: String,
    has_query: bool,
}

impl Path {
    /// `root` is a constant and needs no encoding.
    pub(crate) fn new(root: &str) -> Self {
        Self { text: root.to_owned(), has_query: false }
    }

    /// Appends one segment of user input.
    pub(crate) fn part(mut self, part: &str) -> Self {
        self.text.push('/');
        // A segment of dots would be resolved as a parent directory by proxies that normalise paths.
        if part.chars().all(|c| c == '.') {
            self.text.push_str(&"%2E".repeat(part.len()));
        } else {
            encode(&mut self.text, part);
        }
        self
    }

    /// Appends constant segments.
    pub(crate) fn fixed(mut self, parts: &str) -> Self {
        self.text.push('/');
        self.text.push_str(parts);
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(name);
        self.text.push('=');
        encode(&mut self.text, value);
        self
    }

    pub(crate) fn query_if(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, &value.to_string()),
            None => self,
        }
    }

    /// A flag is written only if it is set.
    pub(crate) fn flag(self, name: &str, set: bool) -> Self {
        if set { self.query(name, "true") } else { self }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// For messages: the path without the query.
    pub(crate) fn shown(&self) -> String {
        self.text.split('?').next().unwrap_or_default().to_owned()
    }
}

fn encode(into: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => into.push(byte as char),
            _ => write!(into, "%{byte:02X}").expect("writing to a string succeeds"),
        }
    }
}

/// For messages: limited, printable, and without credentials.
fn shown(text: &str) -> String {
    let text = match text.rsplit_once('@') {
        Some((_, rest)) => format!("***@{rest}"),
        None => text.to_owned(),
    };
    text.chars().take(100).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_url_keeps_its_prefix_without_a_trailing_slash() {
        let base = BaseUrl::parse("https://burrow.example:8443/team/").unwrap();
        assert_eq!((base.host(), base.port(), base.scheme()), ("burrow.example", 8443, Scheme::Https));
        assert_eq!(base.join(&Path::new("/v1/host")).to_string(), "https://burrow.example:8443/team/v1/host");
    }

    #[test]
    fn brackets_of_an_ipv6_host_are_removed_only_for_dialling() {
        let base = BaseUrl::parse("http://[::1]:7700").unwrap();
        assert_eq!(base.host(), "::1");
        assert_eq!(base.display(), "http://[::1]:7700");
    }

    #[test]
    fn invalid_addresses_are_refused_with_the_reason() {
        for (text, reason) in [
            ("127.0.0.1:7700", "missing scheme"),
            ("ftp://host", "unsupported scheme"),
            ("http://me:secret@host", "contains credentials"),
            ("http://host/?x=1", "contains a query"),
            ("", "not a valid URL"),
        ] {
            let error = BaseUrl::parse(text).unwrap_err().to_string();
            assert!(error.ends_with(reason), "{text}: {error}");
            assert!(!error.contains("secret"));
        }
    }

    #[test]
    fn a_hostile_name_cannot_change_the_route() {
        let path = Path::new("/v1/sandboxes")
            .part("../keys?x=1#y z\n")
            .fixed("files")
            .query("path", "/a b/../ü&c=d");
        assert_eq!(
            path.as_str(),
            "/v1/sandboxes/..%2Fkeys%3Fx%3D1%23y%20z%0A/files?path=%2Fa%20b%2F..%2F%C3%BC%26c%3Dd"
        );
        assert_eq!(Path::new("/v1/sandboxes").part("..").as_str(), "/v1/sandboxes/%2E%2E");
        assert_eq!(path.shown(), "/v1/sandboxes/..%2Fkeys%3Fx%3D1%23y%20z%0A/files");
    }
}
