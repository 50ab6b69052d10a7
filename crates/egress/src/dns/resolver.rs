//! Decides the answer to a DNS question.
//!
//! Pure: the caller passes the policy and the time.

use burrow_model::HostName;
use burrow_network::{GATEWAY_V4, GATEWAY_V6};

use super::message::{
    Answer, EDE_BLOCKED, EDE_PROHIBITED, Kind, Query, QueryName, QuestionError, Record, ResponseCode,
    format_error, reversed,
};
use super::names::{Names, is_synthetic};
use crate::policy::{Denial, Host, NameAllowed, Policy};

/// The name of the gateway, by which programs can detect that they run in a sandbox.
const GATEWAY_NAME: &str = "gateway.burrow.internal";

const TYPE_SRV: u16 = 33;

const MINUTE_MS: u64 = 60_000;

/// The names of one sandbox and its budget of new names.
#[derive(Debug)]
pub struct Resolver {
    names: Names,
    new_names_per_minute: u32,
    minute_began_ms: u64,
    new_names: u32,
}

/// The result of a question.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// `None` if no reply is sent.
    pub bytes: Option<Vec<u8>>,
    /// For the log: the refused name and the reason.
    pub denied: Option<(String, Denial)>,
}

impl Resolver {
    pub fn new(new_names_per_minute: u32) -> Self {
        Self { names: Names::new(), new_names_per_minute, minute_began_ms: 0, new_names: 0 }
    }

    pub fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Answers one message.
    pub fn reply(&mut self, bytes: &[u8], policy: &Policy, now_ms: u64) -> Reply {
        let query = match Query::parse(bytes) {
            Ok(query) => query,
            Err(QuestionError::Silence) => return Reply { bytes: None, denied: None },
            Err(QuestionError::Form { id }) => return Reply { bytes: Some(format_error(id)), denied: None },
        };
        let (answer, denied) = self.decide(&query, policy, now_ms);
        Reply { bytes: Some(query.answer(&answer)), denied }
    }

    fn decide(&mut self, query: &Query, policy: &Policy, now_ms: u64) -> (Answer, Option<(String, Denial)>) {
        if !query.opcode_is_query {
            return (plain(ResponseCode::NotImplemented), None);
        }
        if query.edns_is_newer() {
            return (plain(ResponseCode::BadVersion), None);
        }
        let name = match &query.name {
            QueryName::Host(name) if query.class_is_internet => name,
            QueryName::Host(_) | QueryName::Unusable => return (plain(ResponseCode::Refused), None),
        };
        if let Some(answer) = self.built_in(name, query.kind) {
            return (answer, None);
        }
        // Service records do not exist here. Asking for those of an allowed host is no violation of the policy.
        if query.kind == Kind::Other(TYPE_SRV)
            && served(name).is_some_and(|host| policy.allows_name(&host) != NameAllowed::No)
        {
            return (plain(ResponseCode::NameError), None);
        }
        match self.allow(name, policy, now_ms) {
            Ok(()) => (self.addresses(name, query.kind), None),
            Err(reason) => {
                // For a program, a name that the policy does not allow does not exist: it must not ask again, as it
                // would after `REFUSED`. Over the budget, a later question can succeed.
                let (code, number) = match matches!(reason, Denial::NameBudget { .. }) {
                    true => (ResponseCode::Refused, EDE_PROHIBITED),
                    false => (ResponseCode::NameError, EDE_BLOCKED),
                };
                let answer = Answer { code, records: Vec::new(), error: Some((number, reason.to_string())) };
                (answer, Some((name.to_string(), reason)))
            }
        }
    }

    /// Answers names that exist in every sandbox, regardless of its policy: localhost, the gateway, and reverse names
    /// of synthetic addresses.
    fn built_in(&mut self, name: &HostName, kind: Kind) -> Option<Answer> {
        let text = name.as_str();
        if text == "localhost" || text.ends_with(".localhost") {
            let (v4, v6) = (std::net::Ipv4Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST);
            return Some(found(records(kind, v4, v6)));
        }
        if text == GATEWAY_NAME {
            return Some(found(records(kind, GATEWAY_V4, GATEWAY_V6)));
        }
        if !text.ends_with(".in-addr.arpa") && !text.ends_with(".ip6.arpa") {
            return None;
        }
        let behind = reversed(name).filter(|address| is_synthetic(*address) && kind == Kind::Ptr);
        Some(match behind.and_then(|address| self.names.name(address)) {
            Some(name) => found(vec![Record::Pointer(name)]),
            None => plain(ResponseCode::NameError),
        })
    }

    fn allow(&mut self, name: &HostName, policy: &Policy, now_ms: u64) -> Result<(), Denial> {
        match policy.allows_name(name) {
            NameAllowed::ByName => Ok(()),
            NameAllowed::ByPattern if self.names.knows(name) => Ok(()),
            NameAllowed::ByPattern => {
                if now_ms.saturating_sub(self.minute_began_ms) >= MINUTE_MS {
                    (self.minute_began_ms, self.new_names) = (now_ms, 0);
                }
                if self.new_names >= self.new_names_per_minute {
                    return Err(Denial::NameBudget { name: name.clone() });
                }
                self.new_names += 1;
                Ok(())
            }
            NameAllowed::No => Err(match policy.mode() {
                burrow_model::NetworkMode::None => Denial::NetworkOff,
                burrow_model::NetworkMode::Allowlist | burrow_model::NetworkMode::Open => {
                    Denial::Host { host: Host::Name(name.clone()) }
                }
            }),
        }
    }

    /// Names have only address records: other types get an empty answer, so that programs continue with the
    /// addresses.
    fn addresses(&mut self, name: &HostName, kind: Kind) -> Answer {
        let (v4, v6) = self.names.addresses(name);
        found(records(kind, v4, v6))
    }
}

/// The host of a service record: `_http._tcp.example.com` is about `example.com`.
fn served(name: &HostName) -> Option<HostName> {
    let mut labels = name.as_str().splitn(3, '.');
    let mut underscored = || labels.next().filter(|label| label.starts_with('_'));
    underscored()?;
    underscored()?;
    labels.next()?.parse().ok()
}

fn records(kind: Kind, v4: std::net::Ipv4Addr, v6: std::net::Ipv6Addr) -> Vec<Record> {
    match kind {
        Kind::A => vec![Record::Address(v4.into())],
        Kind::Aaaa => vec![Record::Address(v6.into())],
        Kind::Ptr | Kind::Other(_) => Vec::new(),
    }
}

fn found(records: Vec<Record>) -> Answer {
    Answer { code: ResponseCode::Success, records, error: None }
}

fn plain(code: ResponseCode) -> Answer {
    Answer { code, records: Vec::new(), error: None }
}

#[cfg(test)]
mod tests;
