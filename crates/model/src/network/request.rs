//! Rules for requests: the methods and paths of a host, what is inserted into them, how many are allowed, and who approves.
//!
//! A [`RequestRule`] requires access to the requests, which an [`super::EgressRule`] does not: the traffic to its host is
//! decrypted, unless its mode is `sni`. A host can have several rules; the first whose scope covers a request decides.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::host::{HostName, HostPattern};
use crate::Name;

/// The maximum number of request rules in one policy: people have to read each of them.
pub const REQUEST_RULES_MAX: usize = 200;

/// Methods or paths in one scope.
pub const SCOPE_ITEMS_MAX: usize = 32;

const METHOD_LENGTH_MAX: usize = 32;
const PATTERN_LENGTH_MAX: usize = 512;
const TLS_PORT: u16 = 443;

/// One rule for the requests to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRule {
    #[serde(flatten)]
    pub scope: RequestScope,
    pub mode: RuleMode,
    /// The secret that is inserted into the requests that the rule covers.
    #[serde(default)]
    pub secret: Option<Name>,
    #[serde(default)]
    pub budget: Option<Budget>,
    #[serde(default)]
    pub approve: Option<Approve>,
}

/// A set of requests: those of a rule, or those that the owner of a secret allows at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestScope {
    #[serde(with = "as_text")]
    pub host: HostPattern,
    /// Default: 443.
    #[serde(default = "tls_port")]
    pub port: u16,
    /// Empty: every method.
    #[serde(default)]
    pub methods: Vec<Method>,
    /// Empty: every path.
    #[serde(default)]
    pub paths: Vec<PathPattern>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleMode {
    /// Allowed by the server name in the TLS hello, and not decrypted.
    Sni,
    /// Decrypted, judged request by request, and encrypted again.
    Intercept,
}

/// The budget of a rule. Requests beyond it are refused until there is room again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    #[serde(default)]
    pub requests_per_minute: Option<u64>,
    #[serde(default)]
    pub requests_per_day: Option<u64>,
    #[serde(default)]
    pub bytes_out_per_day: Option<u64>,
}

/// A request is approved by a person; this is the scope of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approve {
    /// For that request alone.
    Once,
    /// For the scope of the rule, until the sandbox's network is opened again.
    Session,
}

/// An HTTP method, in upper case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Method(Box<str>);

/// A pattern for normalised paths: `*` matches one segment or the rest of one, `**` at the end matches everything below.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern(Box<str>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRuleError {
    #[error("a method is 1 to 32 letters, as in `GET`, not `{found}`")]
    Method { found: String },
    #[error("a path starts with `/` and is at most 512 visible ASCII characters, not `{found}`")]
    Path { found: String },
    #[error(
        "a path is written as it is matched: without `..`, `//`, `?`, `#` or escapes of plain characters, not `{found}`"
    )]
    NotNormal { found: String },
    #[error("`**` is allowed only at the end of a path, as in `/v1/**`, not as in `{found}`")]
    Stars { found: String },
}

fn tls_port() -> u16 {
    TLS_PORT
}

// === impl RequestScope ===

impl RequestScope {
    /// All requests to one host.
    pub fn of(host: HostPattern) -> Self {
        Self { host, port: TLS_PORT, methods: Vec::new(), paths: Vec::new() }
    }

    pub fn covers_host(&self, host: &HostName, port: u16) -> bool {
        self.port == port && self.host.matches(host)
    }

    /// `path` is normalised, without its query.
    pub fn covers(&self, host: &HostName, port: u16, method: &str, path: &str) -> bool {
        self.covers_host(host, port) && self.covers_request(method, path)
    }

    /// Whether method and path are covered, for a host that is covered already.
    pub fn covers_request(&self, method: &str, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|own| own.as_str() == method))
            && (self.paths.is_empty() || self.paths.iter().any(|own| own.matches(path)))
    }

    /// Whether everything `other` covers is covered by this one.
    pub fn contains(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (HostPattern::Suffix(_), HostPattern::Exact(name)) => self.host.matches(name),
            (HostPattern::Suffix(above), HostPattern::Suffix(below)) => {
                above == below || self.host.matches(below)
            }
            (ours, theirs) => ours == theirs,
        };
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method)));
        let within = |path: &PathPattern| self.paths.iter().any(|own| own.contains(path));
        let paths = self.paths.is_empty() || (!other.paths.is_empty() && other.paths.iter().all(within));
        host && self.port == other.port && methods && paths
    }
}

impl fmt::Display for RequestScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
            write!(f, "{} ", methods.join(","))?;
        }
        write!(f, "https://{}", self.host)?;
        if self.port != TLS_PORT {
            write!(f, ":{}", self.port)?;
        }
        if !self.paths.is_empty() {
            let paths: Vec<&str> = self.paths.iter().map(PathPattern::as_str).collect();
            write!(f, "{}", paths.join(","))?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scope)?;
        if self.mode == RuleMode::Sni {
            f.write_str(" (sni)")?;
        }
        match &self.secret {
            Some(secret) => write!(f, " with {secret}"),
            None => Ok(()),
        }
    }
}

// === impl Method ===

impl Method {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Method {
    type Err = RequestRuleError;

    fn from_str(text: &str) -> Result<Self, RequestRuleError> {
        let letters = text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
        if text.is_empty() || text.len() > METHOD_LENGTH_MAX || !letters {
            return Err(RequestRuleError::Method { found: shown(text) });
        }
        Ok(Self(text.to_ascii_uppercase().into()))
    }
}

// === impl PathPattern ===

impl PathPattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `path` is normalised, without its query.
    pub fn matches(&self, path: &str) -> bool {
        let (pattern, below) = match self.0.strip_suffix("/**") {
            Some(front) => (front, true),
            None => (&*self.0, false),
        };
        let mut given = path.split('/');
        for own in pattern.split('/') {
            match given.next() {
                Some(segment) if segment_matches(own, segment) => {}
                Some(_) | None => return false,
            }
        }
        // `/v1/**` matches everything below `/v1`, but not `/v1` itself.
        if below { given.next().is_some() } else { given.next().is_none() }
    }

    /// Whether this pattern matches every path that `other` matches. May return false although it does.
    pub fn contains(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let Some(front) = self.0.strip_suffix("/**") else { return false };
        let (other, below) = other.0.strip_suffix("/**").map_or((&*other.0, false), |front| (front, true));
        let mut given = other.split('/');
        let begins = front.split('/').all(|own| {
            given.next().is_some_and(|segment| own == segment || (own == "*" && !segment.contains("**")))
        });
        // `/v1/**` does not match `/v1` itself.
        begins && (given.next().is_some() || below)
    }
}

/// `own` may contain one `*`, which matches any characters except `/`; alone, it does not match an empty segment.
pub(super) fn segment_matches(own: &str, segment: &str) -> bool {
    match own.split_once('*') {
        None => own == segment,
        Some(("", "")) => !segment.is_empty(),
        Some((front, back)) => {
            segment.len() >= front.len() + back.len() && segment.starts_with(front) && segment.ends_with(back)
        }
    }
}

impl FromStr for PathPattern {
    type Err = RequestRuleError;

    fn from_str(text: &str) -> Result<Self, RequestRuleError> {
        let found = || shown(text);
        if !text.starts_with('/')
            || text.len() > PATTERN_LENGTH_MAX
            || !text.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(RequestRuleError::Path { found: found() });
        }
        let odd = |segment: &str| matches!(segment, "." | "..");
        if text.contains(['?', '#', '\\', ';']) || text.contains("//") || text.split('/').any(odd) {
            return Err(RequestRuleError::NotNormal { found: found() });
        }
        let front = text.strip_suffix("/**").unwrap_or(text);
        if front.contains("**") || front.split('/').any(|segment| segment.matches('*').count() > 1) {
            return Err(RequestRuleError::Stars { found: found() });
        }
        Ok(Self(text.into()))
    }
}

/// Text from a user, shortened and made printable for messages.
fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_default).collect()
}

macro_rules! as_strings {
    ($($kind:ident),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = RequestRuleError;

            fn try_from(text: String) -> Result<Self, RequestRuleError> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.0.into()
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

as_strings!(Method, PathPattern);

/// Host patterns are serialised in the form that users write.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::HostPattern;

    pub(super) fn serialize<S: Serializer>(host: &HostPattern, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(host)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HostPattern, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(host: &str, methods: &[&str], paths: &[&str]) -> RequestScope {
        RequestScope {
            methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
            paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
            ..RequestScope::of(host.parse().unwrap())
        }
    }

    #[test]
    fn a_pattern_matches_segments_and_two_stars_what_is_below() {
        for (pattern, path, matches) in [
            ("/v1/**", "/v1/chat", true),
            ("/v1/**", "/v1/chat/completions", true),
            ("/v1/**", "/v1/", true),
            ("/v1/**", "/v1", false),
            ("/v1/**", "/v10/chat", false),
            ("/v1/*", "/v1/chat", true),
            ("/v1/*", "/v1/", false),
            ("/v1/*", "/v1/chat/x", false),
            ("/v1/*/files", "/v1/a/files", true),
            ("/v1/gpt-*", "/v1/gpt-5", true),
            ("/v1/gpt-*", "/v1/gp", false),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a/", false),
        ] {
            assert_eq!(pattern.parse::<PathPattern>().unwrap().matches(path), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_are_not_in_normal_form_are_refused() {
        for bad in
            ["", "v1", "/a/../b", "/a//b", "/a?x", "/a#x", "/**/a", "/a**", "/a*b*", "/ü", "/a;x", "/a b"]
        {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
        for bad in ["", "GE T", "G\u{e4}T", "GET\r\n", &"A".repeat(33)] {
            assert!(bad.parse::<Method>().is_err(), "{bad:?}");
        }
        assert_eq!("get".parse::<Method>().unwrap().as_str(), "GET");
    }

    #[test]
    fn a_ceiling_contains_what_is_narrower_and_nothing_else() {
        let ceiling = scope("api.example.com", &["POST"], &["/v1/**"]);
        for (narrower, contained) in [
            (scope("api.example.com", &["POST"], &["/v1/chat"]), true),
            (scope("api.example.com", &["POST"], &["/v1/**"]), true),
            (scope("api.example.com", &["POST"], &["/v1/a/**", "/v1/*"]), true),
            (scope("api.example.com", &["POST", "GET"], &["/v1/chat"]), false),
            (scope("api.example.com", &[], &["/v1/chat"]), false),
            (scope("api.example.com", &["POST"], &[]), false),
            (scope("api.example.com", &["POST"], &["/v2/chat"]), false),
            (scope("api.example.com", &["POST"], &["/v1"]), false),
            (scope("api.example.com", &["POST"], &["/**"]), false),
            (scope("*.example.com", &["POST"], &["/v1/chat"]), false),
            (scope("evil.example", &["POST"], &["/v1/chat"]), false),
        ] {
            assert_eq!(ceiling.contains(&narrower), contained, "{narrower}");
        }
        let wide = scope("*.example.com", &[], &[]);
        assert!(wide.contains(&scope("a.example.com", &["GET"], &["/x"])));
        assert!(wide.contains(&scope("*.b.example.com", &[], &[])));
        assert!(!wide.contains(&scope("example.com", &[], &[])));
        let other_port = RequestScope { port: 8443, ..scope("a.example.com", &[], &[]) };
        assert!(!wide.contains(&other_port));
    }

    #[test]
    fn a_rule_is_stored_as_it_is_read() {
        let rule = RequestRule {
            scope: scope("api.example.com", &["POST"], &["/v1/**"]),
            mode: RuleMode::Intercept,
            secret: Some("openai".parse().unwrap()),
            budget: Some(Budget { requests_per_minute: Some(60), ..Budget::default() }),
            approve: Some(Approve::Once),
        };
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<RequestRule>(&text).unwrap(), rule);
        assert_eq!(rule.to_string(), "POST https://api.example.com/v1/** with openai");
    }
}
