//! Puts together what a connection was opened to and what it says, and asks the policy.
//!
//! Pure. The name is what decides: the one whose synthetic address was dialled, or, where a program chose an address
//! itself, the one in its hello or head. Where there are both, they must agree.

use std::net::IpAddr;
use std::sync::Arc;

use burrow_model::NetworkMode;

use super::Opened;
use super::first::{First, Said};
use crate::hello::ServerName;
use crate::policy::{Decision, Denial, Destination, Host, Policy, ProtocolSeen};

#[derive(Debug)]
pub(super) enum Judged {
    Allow {
        way: Way,
        rule: Arc<str>,
    },
    /// `about` is what it wanted, as far as that is known.
    Deny {
        reason: Denial,
        about: Destination,
    },
}

/// Where an allowed connection goes, and as what it was judged.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) destination: Destination,
    pub(super) protocol: ProtocolSeen,
}

pub(super) fn judge(policy: &Policy, opened: &Opened, first: &First) -> Judged {
    let destination = &opened.destination;
    // A rule for `tcp` allows any bytes, so it does not matter which they are.
    let any_bytes = policy.mode() == NetworkMode::Allowlist && !is_unknown(opened);
    if any_bytes && let Some(allowed) = allow(policy, destination, ProtocolSeen::Tcp) {
        return allowed;
    }
    match &first.said {
        Said::Tls(hello) => {
            let asked = match &hello.name {
                ServerName::Host(name) => Some(Host::Name(name.clone())),
                ServerName::Absent => None,
                ServerName::Unusable => return deny(Denial::BadName, destination),
            };
            judge_named(policy, opened, asked, ProtocolSeen::Tls)
        }
        Said::Http(head) => {
            if head.port.is_some_and(|port| port != destination.port) {
                let reason = Denial::Malformed { what: "the Host's port is not the connection's".to_owned() };
                return deny(reason, destination);
            }
            judge_named(policy, opened, Some(head.host.clone()), ProtocolSeen::Http)
        }
        Said::Other => judge_named(policy, opened, None, ProtocolSeen::Tcp),
        Said::BadTls(error) => deny(Denial::Malformed { what: error.to_string() }, destination),
        Said::BadHttp(error) if matches!(error.status(), 403 | 501) => {
            deny(Denial::Unsupported { what: error.to_string() }, destination)
        }
        Said::BadHttp(error) => deny(Denial::Malformed { what: error.to_string() }, destination),
        Said::NoRoom => deny(Denial::ConnectionsMax, destination),
        Said::Silence => match judge_named(policy, opened, None, ProtocolSeen::Tcp) {
            denied @ Judged::Deny { .. } => denied,
            Judged::Allow { .. } => deny(Denial::SilentClient, destination),
        },
    }
}

/// Judges a connection that asks for `asked`, or for nothing in particular.
fn judge_named(policy: &Policy, opened: &Opened, asked: Option<Host>, protocol: ProtocolSeen) -> Judged {
    let destination = &opened.destination;
    let Host::Address(address) = destination.host else {
        return match asked {
            Some(asked) if asked != destination.host => {
                let reason = Denial::NameMismatch { opened: destination.host.clone(), asked };
                deny(reason, destination)
            }
            Some(_) | None => decide(policy, destination, protocol),
        };
    };
    // The program chose an address. A name in what it says decides then, and is resolved here.
    match asked {
        Some(host @ Host::Name(_)) => {
            let named = Destination { host, port: destination.port };
            match decide(policy, &named, protocol) {
                Judged::Deny { reason, about } => {
                    by_address(policy, opened, protocol).unwrap_or(Judged::Deny { reason, about })
                }
                allowed @ Judged::Allow { .. } => allowed,
            }
        }
        Some(Host::Address(asked)) if asked != address => {
            let reason =
                Denial::NameMismatch { opened: destination.host.clone(), asked: Host::Address(asked) };
            deny(reason, destination)
        }
        Some(Host::Address(_)) | None => by_address(policy, opened, protocol)
            .unwrap_or_else(|| deny(no_name(policy, opened, address), destination)),
    }
}

/// Allowed because a rule names the very address, or every public one is allowed.
fn by_address(policy: &Policy, opened: &Opened, protocol: ProtocolSeen) -> Option<Judged> {
    if is_unknown(opened) { None } else { allow(policy, &opened.destination, protocol) }
}

fn no_name(policy: &Policy, opened: &Opened, address: IpAddr) -> Denial {
    match policy.mode() {
        NetworkMode::None => Denial::NetworkOff,
        NetworkMode::Allowlist | NetworkMode::Open if opened.synthetic => {
            Denial::UnknownSynthetic { address }
        }
        NetworkMode::Allowlist | NetworkMode::Open => Denial::NoName { address },
    }
}

/// A synthetic address that stands for no name: it must never be dialled, whatever a rule says of it.
fn is_unknown(opened: &Opened) -> bool {
    opened.synthetic && matches!(opened.destination.host, Host::Address(_))
}

fn decide(policy: &Policy, destination: &Destination, protocol: ProtocolSeen) -> Judged {
    match policy.decide(destination, protocol) {
        Decision::Allow { rule } => {
            Judged::Allow { way: Way { destination: destination.clone(), protocol }, rule }
        }
        Decision::Deny { reason } => deny(reason, destination),
    }
}

fn allow(policy: &Policy, destination: &Destination, protocol: ProtocolSeen) -> Option<Judged> {
    Some(decide(policy, destination, protocol)).filter(|judged| matches!(judged, Judged::Allow { .. }))
}

fn deny(reason: Denial, about: &Destination) -> Judged {
    Judged::Deny { reason, about: about.clone() }
}
