//! Decides which hosts a sandbox may reach.
//!
//! ```text
//! (host, port, protocol seen) ──► exact name ──► each `*.suffix` above it ──► matching rule ──► Allow
//!                                                                        └──► the nearest miss ──► Deny
//! ```
//!
//! A rule about requests allows TLS to its host and port, and nothing else: the requests inside are checked one by
//! one, unless the rule is only about names (`sni`). If a rule requires interception of a host, no other rule allows
//! a connection to bypass it.
//!
//! Headers that are set on requests (transforms) allow nothing: TLS to port 443 of their host is decrypted if another
//! rule or the mode allows it.
//!
//! Pure: no lock, no clock, no socket. A [`Policy`] is a sandbox's [`NetworkPolicy`] with its named sets replaced by
//! their rules, and indexed, so that a decision takes the same time with a thousand rules as with ten.

mod denial;
pub mod ranges;
mod target;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use burrow_model::network::{
    HeaderTransform, RequestRule, RequestScope, RuleMode, RuleProtocol, SETS_MAX, transform_for,
};
use burrow_model::{EgressRule, HostName, HostPattern, IpRange, Name, NetworkMode, NetworkPolicy};
use serde::{Deserialize, Serialize};

use crate::{Directives, Grant};

pub use denial::Denial;
pub use ranges::AddressKind;
pub use target::{Destination, Host, Target, TargetError};

/// Largest number of rules of one policy with all its sets; limits the index and the message that contains it.
pub const RULES_TOTAL_MAX: usize = 10_000;

const TLS_PORT: u16 = 443;
pub(crate) const HTTP_PORT: u16 = 80;

/// The rule text that is reported in the mode `open`.
const OPEN: &str = "open";

/// The protocol detected from a connection's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DetectedProtocol {
    Tls,
    /// Unencrypted HTTP/1.
    Http,
    /// Another protocol, or no bytes yet.
    Tcp,
}

impl DetectedProtocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// `rule` is the text of the rule, or `open`.
    Allow {
        rule: Arc<str>,
    },
    Deny {
        reason: Denial,
    },
}

/// How long to wait for a client's first bytes before a connection is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytesWait {
    /// Not at all: every protocol is allowed, and in some protocols the server sends first.
    No,
    /// Briefly: every protocol is allowed, but a name in the first bytes would be useful.
    Briefly,
    /// Until the protocol is known: it affects the decision.
    Required,
}

/// Whether a name may be resolved, and what allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameAllowed {
    /// A rule contains the name.
    ByName,
    /// A wildcard or `open`, which allow any number of names.
    ByPattern,
    No,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("there is no set of hosts called `{set}`")]
    UnknownSet { set: Name },
    #[error("a policy refers to at most {SETS_MAX} sets")]
    TooManySets,
    #[error("a policy and its sets hold at most {RULES_TOTAL_MAX} rules, not {count}")]
    TooManyRules { count: usize },
}

impl PolicyError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownSet { .. } => Some("sets are defined in the daemon's configuration"),
            Self::TooManySets | Self::TooManyRules { .. } => Some("replace many rules by a wildcard rule"),
        }
    }
}

/// A compiled policy. Cloning is cheap.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Policy {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    document: Document,
    /// The text of each rule, for the log.
    texts: Vec<Arc<str>>,
    /// The text of each rule about requests.
    request_texts: Vec<Arc<str>>,
    /// For each transform, the rule that applies to its requests if no rule is about the host.
    transform_rules: Vec<RequestRule>,
    open: Arc<str>,
    exact: HashMap<Box<str>, Vec<u32>>,
    suffix: HashMap<Box<str>, Vec<u32>>,
    addresses: HashMap<IpAddr, Vec<u32>>,
    /// Blocks of addresses; few, and checked one by one.
    blocks: Vec<(IpRange, u32)>,
}

/// The complete contents of a policy, as it is serialised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    mode: NetworkMode,
    rules: Vec<EgressRule>,
    /// Ranges that are not public but allowed by the operator's configuration.
    allow_ranges: Vec<IpRange>,
    /// Rules and secrets for requests; `None` if nothing is decrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    directives: Option<Directives>,
    /// Addresses that are allowed only if a rule about addresses covers them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deny: Vec<IpRange>,
}

impl Policy {
    /// Compiles `policy` with the sets and ranges of the configuration.
    pub fn new(
        policy: &NetworkPolicy,
        sets: &BTreeMap<Name, Vec<EgressRule>>,
        allow_ranges: &[IpRange],
    ) -> Result<Self, PolicyError> {
        if policy.sets.len() > SETS_MAX {
            return Err(PolicyError::TooManySets);
        }
        let mut rules = policy.rules.clone();
        for set in &policy.sets {
            let found = sets.get(set).ok_or_else(|| PolicyError::UnknownSet { set: set.clone() })?;
            rules.extend(found.iter().cloned());
        }
        Document {
            mode: policy.mode,
            rules,
            allow_ranges: allow_ranges.to_vec(),
            directives: None,
            deny: policy.deny.clone(),
        }
        .try_into()
    }

    /// An allowlist without rules.
    pub fn closed() -> Self {
        let document = Document {
            mode: NetworkMode::Allowlist,
            rules: Vec::new(),
            allow_ranges: Vec::new(),
            directives: None,
            deny: Vec::new(),
        };
        Self { inner: Arc::new(Inner::index(document)) }
    }

    /// This policy with other directives.
    pub fn with_directives(&self, directives: Directives) -> Self {
        let document = Document { directives: Some(directives), ..self.inner.document.clone() };
        Self { inner: Arc::new(Inner::index(document)) }
    }

    /// This policy without secrets, including the values of headers, and without an authority: the version that may
    /// be stored. It refuses requests that need a secret.
    pub fn without_secrets(&self) -> Self {
        match self.directives() {
            Some(directives) => self.with_directives(Directives {
                authority: None,
                grants: Vec::new(),
                transforms: directives.transforms.iter().map(HeaderTransform::without_headers).collect(),
                ..directives.clone()
            }),
            None => self.clone(),
        }
    }

    pub fn directives(&self) -> Option<&Directives> {
        self.inner.document.directives.as_ref()
    }

    pub fn mode(&self) -> NetworkMode {
        self.inner.document.mode
    }

    pub fn rules(&self) -> &[EgressRule] {
        &self.inner.document.rules
    }

    /// Whether a connection to `destination` with `protocol` is allowed. Addresses are not checked here, but by
    /// [`Self::admits`] before connecting.
    pub fn decide(&self, destination: &Destination, protocol: DetectedProtocol) -> Decision {
        if self.mode() == NetworkMode::None {
            return Decision::Deny { reason: Denial::NetworkOff };
        }
        if let Some(rule) = self.request_rule(destination, RuleMode::Intercept) {
            let (host, port) = (destination.host.clone(), destination.port);
            return match protocol {
                DetectedProtocol::Tls => Decision::Allow { rule: Arc::clone(rule) },
                DetectedProtocol::Http | DetectedProtocol::Tcp => {
                    Decision::Deny { reason: Denial::Protocol { host, port, protocol } }
                }
            };
        }
        match self.mode() {
            NetworkMode::None => Decision::Deny { reason: Denial::NetworkOff },
            NetworkMode::Open => Decision::Allow { rule: Arc::clone(&self.inner.open) },
            NetworkMode::Allowlist => self.decide_by_rules(destination, protocol),
        }
    }

    /// Whether connections to `destination` are intercepted.
    pub fn intercepts(&self, destination: &Destination) -> bool {
        self.mode() != NetworkMode::None
            && (self.request_rule(destination, RuleMode::Intercept).is_some()
                || self.transform(destination).is_some())
    }

    /// The headers to set on requests to `destination`, and the rule for these requests if no other rule is about the
    /// host.
    pub(crate) fn transform(&self, destination: &Destination) -> Option<(&HeaderTransform, &RequestRule)> {
        let Host::Name(name) = &destination.host else { return None };
        let transforms = &self.directives()?.transforms;
        let index = transform_for(transforms, name).filter(|_| destination.port == TLS_PORT)?;
        Some((&transforms[index], &self.inner.transform_rules[index]))
    }

    /// The text of the first rule about a host with this mode.
    fn request_rule(&self, destination: &Destination, mode: RuleMode) -> Option<&Arc<str>> {
        let Host::Name(name) = &destination.host else { return None };
        let rules = self.directives().map_or(&[][..], |directives| &directives.rules);
        let about = |rule: &RequestRule| rule.mode == mode && rule.scope.covers_host(name, destination.port);
        rules.iter().position(about).map(|index| &self.inner.request_texts[index])
    }

    /// Whether both are the same object, not only equal.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether requests to `destination` are treated the same by this policy and `other`: the authority, the rules
    /// and headers about the host, and all secrets, because every response is scrubbed of all of them. Otherwise its
    /// flows are reset.
    pub(crate) fn treats_alike(&self, other: &Self, destination: &Destination) -> bool {
        let Host::Name(name) = &destination.host else { return true };
        if self.inner.document.deny != other.inner.document.deny {
            return false;
        }
        let view = |policy: &Self| {
            let directives = policy.directives()?;
            let rules: Vec<_> = directives
                .rules
                .iter()
                .filter(|rule| rule.scope.covers_host(name, destination.port))
                .cloned()
                .collect();
            let headers = policy.transform(destination).map(|(transform, _)| transform.clone());
            let (tenant, authority) = (directives.tenant.clone(), directives.authority.clone());
            // A new former value has a new version beside it; one that expires concerns no flow.
            let grants: Vec<_> = directives.grants.iter().map(Grant::without_former).collect();
            Some((tenant, authority, rules, headers, grants))
        };
        view(self) == view(other)
    }

    fn decide_by_rules(&self, destination: &Destination, protocol: DetectedProtocol) -> Decision {
        let mut nearest = None;
        // The host is not intercepted: `decide` has checked for rules that require that.
        if let Some(rule) = self.request_rule(destination, RuleMode::Sni) {
            match protocol {
                DetectedProtocol::Tls => return Decision::Allow { rule: Arc::clone(rule) },
                DetectedProtocol::Http | DetectedProtocol::Tcp => nearest = Some(RuleFit::HostAndPort),
            }
        }
        for index in self.inner.about(&destination.host) {
            let rule = &self.inner.document.rules[index];
            match fit(rule, destination.port, protocol) {
                RuleFit::Whole => return Decision::Allow { rule: Arc::clone(&self.inner.texts[index]) },
                partly @ (RuleFit::HostOnly | RuleFit::HostAndPort) => nearest = nearest.max(Some(partly)),
            }
        }
        let (host, port) = (destination.host.clone(), destination.port);
        let reason = match nearest {
            None => Denial::Host { host },
            Some(RuleFit::HostOnly) => Denial::Port { host, port },
            Some(RuleFit::HostAndPort | RuleFit::Whole) => Denial::Protocol { host, port, protocol },
        };
        Decision::Deny { reason }
    }

    /// Whether the first bytes of a connection to `destination` are needed to decide about it; no bytes yet counts as
    /// `tcp`.
    pub fn wait(&self, destination: &Destination) -> FirstBytesWait {
        match self.mode() {
            NetworkMode::None => return FirstBytesWait::No,
            NetworkMode::Open | NetworkMode::Allowlist if self.intercepts(destination) => {
                return FirstBytesWait::Required;
            }
            NetworkMode::Open => return FirstBytesWait::Briefly,
            NetworkMode::Allowlist => {}
        }
        let (mut speech, mut any) = (self.request_rule(destination, RuleMode::Sni).is_some(), false);
        for index in self.inner.about(&destination.host) {
            let rule = &self.inner.document.rules[index];
            match rule.protocol {
                RuleProtocol::Tcp => {
                    any |= fit(rule, destination.port, DetectedProtocol::Tcp) == RuleFit::Whole
                }
                RuleProtocol::Web | RuleProtocol::Tls | RuleProtocol::Http => {
                    speech |= fit(rule, destination.port, DetectedProtocol::Tcp) >= RuleFit::HostAndPort;
                }
            }
        }
        match (speech, any) {
            (false, true) => FirstBytesWait::No,
            (true, true) => FirstBytesWait::Briefly,
            // If nothing matches, the protocol decides how the refusal is reported.
            (true | false, false) => FirstBytesWait::Required,
        }
    }

    /// Whether the resolver answers a name: a rule for any port and protocol is sufficient.
    pub fn allows_name(&self, name: &HostName) -> NameAllowed {
        match self.mode() {
            NetworkMode::None => NameAllowed::No,
            NetworkMode::Open => NameAllowed::ByPattern,
            NetworkMode::Allowlist if self.inner.exact.contains_key(name.as_str()) => NameAllowed::ByName,
            NetworkMode::Allowlist => {
                let by_suffix = name.ancestry().skip(1).any(|above| self.inner.suffix.contains_key(above));
                match (self.allows_name_by_requests(name), by_suffix) {
                    (NameAllowed::No, true) => NameAllowed::ByPattern,
                    (by_requests, _) => by_requests,
                }
            }
        }
    }

    /// Like [`Self::allows_name`], considering only the rules about requests.
    fn allows_name_by_requests(&self, name: &HostName) -> NameAllowed {
        let rules = self.directives().map_or(&[][..], |directives| &directives.rules);
        let mut allowed = NameAllowed::No;
        for rule in rules.iter().filter(|rule| rule.scope.host.matches(name)) {
            match rule.scope.host {
                HostPattern::Exact(_) => return NameAllowed::ByName,
                HostPattern::Suffix(_) | HostPattern::Address(_) | HostPattern::Block(_) => {
                    allowed = NameAllowed::ByPattern;
                }
            }
        }
        allowed
    }

    /// Whether connections to an address and port are permitted, regardless of the name that was resolved to it.
    pub fn admits(&self, address: IpAddr, port: u16) -> Result<(), AddressKind> {
        ranges::judge(address, &self.inner.document.allow_ranges)?;
        let denied = ranges::is_listed(address, &self.inner.document.deny);
        if denied && !self.names_address(address, port) { Err(AddressKind::Denied) } else { Ok(()) }
    }

    /// Whether a rule about addresses, not names, covers this address and port.
    fn names_address(&self, address: IpAddr, port: u16) -> bool {
        let fits = |index: usize| {
            fit(&self.inner.document.rules[index], port, DetectedProtocol::Tcp) >= RuleFit::HostAndPort
        };
        self.inner.about(&Host::Address(address)).any(fits)
    }

    /// Whether connections to this address of the host itself are permitted: only if the operator listed it.
    pub(crate) fn admits_own(&self, address: IpAddr) -> Result<(), AddressKind> {
        ranges::admit(address, AddressKind::Own, &self.inner.document.allow_ranges)
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.inner.document == other.inner.document
    }
}

impl Eq for Policy {}

impl TryFrom<Document> for Policy {
    type Error = PolicyError;

    fn try_from(document: Document) -> Result<Self, PolicyError> {
        match document.rules.len() {
            0..=RULES_TOTAL_MAX => Ok(Self { inner: Arc::new(Inner::index(document)) }),
            count => Err(PolicyError::TooManyRules { count }),
        }
    }
}

impl From<Policy> for Document {
    fn from(policy: Policy) -> Document {
        policy.inner.document.clone()
    }
}

impl Inner {
    fn index(document: Document) -> Self {
        let texts = document.rules.iter().map(|rule| rule.to_string().into()).collect();
        let requests = document.directives.as_ref().map_or(&[][..], |directives| &directives.rules);
        let request_texts = requests.iter().map(|rule| rule.to_string().into()).collect();
        let transforms = document.directives.as_ref().map_or(&[][..], |directives| &directives.transforms);
        let transform_rules = transforms.iter().map(rule_of).collect();
        let (mut exact, mut suffix, mut addresses) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut blocks = Vec::new();
        for (index, rule) in (0u32..).zip(&document.rules) {
            let rules: &mut Vec<u32> = match &rule.host {
                HostPattern::Exact(name) => exact.entry(name.as_str().into()).or_default(),
                HostPattern::Suffix(name) => suffix.entry(name.as_str().into()).or_default(),
                HostPattern::Address(address) => addresses.entry(address.to_canonical()).or_default(),
                HostPattern::Block(block) => {
                    blocks.push((*block, index));
                    continue;
                }
            };
            rules.push(index);
        }
        let open = OPEN.into();
        Self { document, texts, request_texts, transform_rules, open, exact, suffix, addresses, blocks }
    }

    /// The indexes of the rules about `host`, the most specific first.
    fn about<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = usize> + 'a {
        let (name, address) = match host {
            Host::Name(name) => (Some(name), None),
            Host::Address(address) => (None, Some(address.to_canonical())),
        };
        let exact = name.and_then(|name| self.exact.get(name.as_str()));
        let suffix = name
            .into_iter()
            .flat_map(|name| name.ancestry().skip(1))
            .filter_map(|above| self.suffix.get(above));
        let addresses = address.and_then(|address| self.addresses.get(&address));
        let blocks =
            self.blocks.iter().filter(move |(block, _)| address.is_some_and(|one| block.contains(one)));
        let listed = exact.into_iter().chain(addresses).chain(suffix).flatten();
        listed.chain(blocks.map(|(_, index)| index)).map(|index| *index as usize)
    }
}

/// A rule that covers every request to the host, for its headers only.
fn rule_of(transform: &HeaderTransform) -> RequestRule {
    RequestRule {
        scope: RequestScope::of(transform.host.clone()),
        mode: RuleMode::Intercept,
        secret: None,
        budget: None,
        approve: None,
    }
}

/// How well a rule about the right host matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RuleFit {
    HostOnly,
    HostAndPort,
    Whole,
}

fn fit(rule: &EgressRule, port: u16, seen: DetectedProtocol) -> RuleFit {
    let listed = rule.ports.iter().any(|range| range.contains(port));
    let on = |standard: u16| if rule.ports.is_empty() { port == standard } else { listed };
    let (tls, http, tcp) = match rule.protocol {
        RuleProtocol::Web => (on(TLS_PORT), on(HTTP_PORT), false),
        RuleProtocol::Tls => (on(TLS_PORT), false, false),
        RuleProtocol::Http => (false, on(HTTP_PORT), false),
        RuleProtocol::Tcp => (listed, listed, listed),
    };
    let whole = match seen {
        DetectedProtocol::Tls => tls,
        DetectedProtocol::Http => http,
        DetectedProtocol::Tcp => tcp,
    };
    match (whole, tls || http || tcp) {
        (true, _) => RuleFit::Whole,
        (false, true) => RuleFit::HostAndPort,
        (false, false) => RuleFit::HostOnly,
    }
}

#[cfg(test)]
mod tests;
