//! Decides what a sandbox may reach.
//!
//! ```text
//! (host, port, protocol seen) ──► exact name ──► each `*.suffix` above it ──► rule that fits ──► Allow
//!                                                                        └──► the nearest miss ──► Deny
//! ```
//!
//! A rule about requests allows TLS to its host and port, and nothing else: what is inside is judged request by request,
//! unless it is only about names (`sni`). Where one is to be decrypted, no other rule lets a connection past it.
//!
//! Pure: no lock, no clock, no socket. A [`Policy`] is a sandbox's [`NetworkPolicy`] with its named sets replaced by
//! their rules, indexed, so that a thousand rules are decided as fast as ten.

mod denial;
pub mod ranges;
mod target;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use burrow_model::network::{RuleMode, RuleProtocol, SETS_MAX};
use burrow_model::{EgressRule, HostName, HostPattern, IpRange, Name, NetworkMode, NetworkPolicy};
use serde::{Deserialize, Serialize};

use crate::Directives;

pub use denial::Denial;
pub use ranges::AddressKind;
pub use target::{Destination, Host, Target, TargetError};

/// Rules of one policy with all its sets: bounds the index and the message that carries it.
pub const RULES_TOTAL_MAX: usize = 10_000;

const TLS_PORT: u16 = 443;
pub(crate) const HTTP_PORT: u16 = 80;

/// What `open` is called where a rule is named.
const OPEN: &str = "open";

/// What a connection's first bytes say it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProtocolSeen {
    Tls,
    /// HTTP/1 in clear.
    Http,
    /// Anything else, or nothing yet.
    Tcp,
}

impl ProtocolSeen {
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
    /// `rule` is its text, or `open`.
    Allow {
        rule: Arc<str>,
    },
    Deny {
        reason: Denial,
    },
}

/// How long to wait for a program's first bytes before a connection can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Whatever it says, it may: some protocols let the server speak first.
    Not,
    /// It may say anything, but a name in it would be worth knowing.
    Shortly,
    /// It must show what it is.
    ForSpeech,
}

/// Which names may be resolved, and how they are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameAllowed {
    /// A rule names it.
    ByName,
    /// One of endlessly many names that a wildcard or `open` allows.
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
            Self::UnknownSet { .. } => Some("sets are named in the daemon's configuration"),
            Self::TooManySets | Self::TooManyRules { .. } => Some("a wildcard rule may stand for many"),
        }
    }
}

/// A policy ready to decide. Cloning is cheap.
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
    /// The same of the rules about requests.
    request_texts: Vec<Arc<str>>,
    open: Arc<str>,
    exact: HashMap<Box<str>, Vec<u32>>,
    suffix: HashMap<Box<str>, Vec<u32>>,
    addresses: HashMap<IpAddr, Vec<u32>>,
    /// Few, and tried one by one.
    blocks: Vec<(IpRange, u32)>,
}

/// All there is to know about a policy, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    mode: NetworkMode,
    rules: Vec<EgressRule>,
    /// Ranges that are not public and may be dialled all the same, by the operator's configuration.
    allow_ranges: Vec<IpRange>,
    /// What is done to requests; `None` where nothing is decrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    directives: Option<Directives>,
    /// Addresses that are dialled only where a rule is about addresses and covers them.
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

    /// An allow-list without a rule.
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

    /// The same, with what is done to requests.
    pub fn with_directives(&self, directives: Directives) -> Self {
        let document = Document { directives: Some(directives), ..self.inner.document.clone() };
        Self { inner: Arc::new(Inner::index(document)) }
    }

    /// The same without a secret and without an authority: what is kept. What needs one is refused by it.
    pub fn without_secrets(&self) -> Self {
        match self.directives() {
            Some(directives) => {
                self.with_directives(Directives { authority: None, grants: Vec::new(), ..directives.clone() })
            }
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

    /// Whether a connection to `destination`, speaking `protocol`, is allowed. Where it leads to is not asked here:
    /// addresses are judged when they are dialled, by [`Self::admits`].
    pub fn decide(&self, destination: &Destination, protocol: ProtocolSeen) -> Decision {
        if self.mode() == NetworkMode::None {
            return Decision::Deny { reason: Denial::NetworkOff };
        }
        if let Some(rule) = self.request_rule(destination, RuleMode::Intercept) {
            let (host, port) = (destination.host.clone(), destination.port);
            return match protocol {
                ProtocolSeen::Tls => Decision::Allow { rule: Arc::clone(rule) },
                ProtocolSeen::Http | ProtocolSeen::Tcp => {
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

    /// Whether connections to `destination` are decrypted.
    pub fn intercepts(&self, destination: &Destination) -> bool {
        self.mode() != NetworkMode::None && self.request_rule(destination, RuleMode::Intercept).is_some()
    }

    /// The text of the first rule of this mode about a host.
    fn request_rule(&self, destination: &Destination, mode: RuleMode) -> Option<&Arc<str>> {
        let Host::Name(name) = &destination.host else { return None };
        let rules = self.directives().map_or(&[][..], |directives| &directives.rules);
        let about = |rule: &burrow_model::network::RequestRule| {
            rule.mode == mode && rule.scope.covers_host(name, destination.port)
        };
        rules.iter().position(about).map(|index| &self.inner.request_texts[index])
    }

    /// Whether it is the very same, and not only one that says the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether what is done to requests for `destination` is the same here and in `other`: who trusts whom, the rules
    /// about the host, and the secrets: every answer is scrubbed of all of them. Flows of which it is not are reset.
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
            Some((directives.tenant.clone(), directives.authority.clone(), rules, directives.grants.clone()))
        };
        view(self) == view(other)
    }

    fn decide_by_rules(&self, destination: &Destination, protocol: ProtocolSeen) -> Decision {
        let mut nearest = None;
        // Whatever else is allowed there, it is not decrypted: `decide` has looked for rules that want that.
        if let Some(rule) = self.request_rule(destination, RuleMode::Sni) {
            match protocol {
                ProtocolSeen::Tls => return Decision::Allow { rule: Arc::clone(rule) },
                ProtocolSeen::Http | ProtocolSeen::Tcp => nearest = Some(Fit::HostAndPort),
            }
        }
        for index in self.inner.about(&destination.host) {
            let rule = &self.inner.document.rules[index];
            match fit(rule, destination.port, protocol) {
                Fit::Whole => return Decision::Allow { rule: Arc::clone(&self.inner.texts[index]) },
                partly @ (Fit::HostOnly | Fit::HostAndPort) => nearest = nearest.max(Some(partly)),
            }
        }
        let (host, port) = (destination.host.clone(), destination.port);
        let reason = match nearest {
            None => Denial::Host { host },
            Some(Fit::HostOnly) => Denial::Port { host, port },
            Some(Fit::HostAndPort | Fit::Whole) => Denial::Protocol { host, port, protocol },
        };
        Decision::Deny { reason }
    }

    /// What a connection to `destination` must say before it can be judged; nothing said yet counts as `tcp`.
    pub fn wait(&self, destination: &Destination) -> Wait {
        match self.mode() {
            NetworkMode::None => return Wait::Not,
            NetworkMode::Open | NetworkMode::Allowlist if self.intercepts(destination) => {
                return Wait::ForSpeech;
            }
            NetworkMode::Open => return Wait::Shortly,
            NetworkMode::Allowlist => {}
        }
        let (mut speech, mut any) = (self.request_rule(destination, RuleMode::Sni).is_some(), false);
        for index in self.inner.about(&destination.host) {
            let rule = &self.inner.document.rules[index];
            match rule.protocol {
                RuleProtocol::Tcp => any |= fit(rule, destination.port, ProtocolSeen::Tcp) == Fit::Whole,
                RuleProtocol::Web | RuleProtocol::Tls | RuleProtocol::Http => {
                    speech |= fit(rule, destination.port, ProtocolSeen::Tcp) >= Fit::HostAndPort;
                }
            }
        }
        match (speech, any) {
            (false, true) => Wait::Not,
            (true, true) => Wait::Shortly,
            // Where nothing fits, what it says decides how the refusal is told.
            (true | false, false) => Wait::ForSpeech,
        }
    }

    /// Whether a name is answered by the resolver: any port and protocol will do.
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

    /// The same by the rules about requests alone.
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

    /// Whether an address may be dialled on a port, whatever name led to it.
    pub fn admits(&self, address: IpAddr, port: u16) -> Result<(), AddressKind> {
        ranges::judge(address, &self.inner.document.allow_ranges)?;
        let denied = ranges::is_listed(address, &self.inner.document.deny);
        if denied && !self.names_address(address, port) { Err(AddressKind::Denied) } else { Ok(()) }
    }

    /// Whether a rule about addresses, not about names, is about this one and the port.
    fn names_address(&self, address: IpAddr, port: u16) -> bool {
        let fits = |index: usize| {
            fit(&self.inner.document.rules[index], port, ProtocolSeen::Tcp) >= Fit::HostAndPort
        };
        self.inner.about(&Host::Address(address)).any(fits)
    }

    /// Whether an address of this host may be dialled: only if the operator listed it.
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
        Self { document, texts, request_texts, open: OPEN.into(), exact, suffix, addresses, blocks }
    }

    /// The rules about `host`, by their place, the nearest first.
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

/// How far a rule about the right host goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    HostOnly,
    HostAndPort,
    Whole,
}

fn fit(rule: &EgressRule, port: u16, seen: ProtocolSeen) -> Fit {
    let listed = rule.ports.iter().any(|range| range.contains(port));
    let on = |standard: u16| if rule.ports.is_empty() { port == standard } else { listed };
    let (tls, http, tcp) = match rule.protocol {
        RuleProtocol::Web => (on(TLS_PORT), on(HTTP_PORT), false),
        RuleProtocol::Tls => (on(TLS_PORT), false, false),
        RuleProtocol::Http => (false, on(HTTP_PORT), false),
        RuleProtocol::Tcp => (listed, listed, listed),
    };
    let whole = match seen {
        ProtocolSeen::Tls => tls,
        ProtocolSeen::Http => http,
        ProtocolSeen::Tcp => tcp,
    };
    match (whole, tls || http || tcp) {
        (true, _) => Fit::Whole,
        (false, true) => Fit::HostAndPort,
        (false, false) => Fit::HostOnly,
    }
}

#[cfg(test)]
mod tests;
