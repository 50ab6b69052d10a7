//! Combines the destination of a connection with its first bytes, and checks it against the policy.
//!
//! Pure. The decision is about a name: the one whose synthetic address was connected to, or, if the program connected
//! to another address, the one in its hello or head. If there are both, they must be equal.

use std::net::IpAddr;
use std::sync::Arc;

use burrow_model::NetworkMode;

use super::first_bytes::{FirstBytes, Preamble};
use crate::hello::ServerName;
use crate::policy::{Decision, Denial, Destination, DetectedProtocol, Host, Policy};

/// The destination address of a connection.
#[derive(Debug)]
pub(super) struct OpenedTo {
    pub(super) destination: Destination,
    /// Whether the address is in the synthetic ranges.
    pub(super) synthetic: bool,
}

#[derive(Debug)]
pub(super) enum Judgement {
    Allow {
        way: Route,
        rule: Arc<str>,
    },
    /// `about` is the requested destination, as far as it is known.
    Deny {
        reason: Denial,
        about: Destination,
    },
}

/// The destination and the protocol of an allowed connection.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) destination: Destination,
    pub(super) protocol: DetectedProtocol,
}

pub(super) fn judge(policy: &Policy, opened: &OpenedTo, first: &FirstBytes) -> Judgement {
    let destination = &opened.destination;
    // A rule for `tcp` allows any bytes, so their protocol does not matter, unless TLS is to be intercepted.
    let any_bytes =
        policy.mode() == NetworkMode::Allowlist && !is_unknown(opened) && !policy.intercepts(destination);
    if any_bytes && let Some(allowed) = allow(policy, destination, DetectedProtocol::Tcp) {
        return allowed;
    }
    match &first.preamble {
        Preamble::Tls(hello) => {
            let asked = match &hello.name {
                ServerName::Host(name) => Some(Host::Name(name.clone())),
                ServerName::Absent => None,
                ServerName::Unusable => return deny(Denial::BadName, destination),
            };
            judge_named(policy, opened, asked, DetectedProtocol::Tls)
        }
        Preamble::Http(head) => {
            if head.port.is_some_and(|port| port != destination.port) {
                let reason =
                    Denial::Malformed { what: "the port in Host differs from the connection's".to_owned() };
                return deny(reason, destination);
            }
            judge_named(policy, opened, Some(head.host.clone()), DetectedProtocol::Http)
        }
        Preamble::Other => judge_named(policy, opened, None, DetectedProtocol::Tcp),
        Preamble::BadTls(error) => deny(Denial::Malformed { what: error.to_string() }, destination),
        Preamble::BadHttp(error) if matches!(error.status(), 403 | 501) => {
            deny(Denial::Unsupported { what: error.to_string() }, destination)
        }
        Preamble::BadHttp(error) => deny(Denial::Malformed { what: error.to_string() }, destination),
        Preamble::NoRoom => deny(Denial::ConnectionsMax, destination),
        Preamble::Silence => match judge_named(policy, opened, None, DetectedProtocol::Tcp) {
            denied @ Judgement::Deny { .. } => denied,
            Judgement::Allow { .. } => deny(Denial::SilentClient, destination),
        },
    }
}

/// Decides about a connection that requests the host `asked`, or none.
fn judge_named(
    policy: &Policy,
    opened: &OpenedTo,
    asked: Option<Host>,
    protocol: DetectedProtocol,
) -> Judgement {
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
    // The program connected to an address. A name in the first bytes decides then, and is resolved here.
    match asked {
        Some(host @ Host::Name(_)) => {
            let named = Destination { host, port: destination.port };
            match decide(policy, &named, protocol) {
                Judgement::Deny { reason, about } => {
                    by_address(policy, opened, protocol).unwrap_or(Judgement::Deny { reason, about })
                }
                allowed @ Judgement::Allow { .. } => allowed,
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

/// Allows the connection if a rule names this address, or the mode allows every public one.
fn by_address(policy: &Policy, opened: &OpenedTo, protocol: DetectedProtocol) -> Option<Judgement> {
    if is_unknown(opened) { None } else { allow(policy, &opened.destination, protocol) }
}

fn no_name(policy: &Policy, opened: &OpenedTo, address: IpAddr) -> Denial {
    match policy.mode() {
        NetworkMode::None => Denial::NetworkOff,
        NetworkMode::Allowlist | NetworkMode::Open if opened.synthetic => {
            Denial::UnknownSynthetic { address }
        }
        NetworkMode::Allowlist | NetworkMode::Open => Denial::NoName { address },
    }
}

/// Whether it is a synthetic address without a name, to which a connection must never be made, regardless of the
/// rules.
fn is_unknown(opened: &OpenedTo) -> bool {
    opened.synthetic && matches!(opened.destination.host, Host::Address(_))
}

fn decide(policy: &Policy, destination: &Destination, protocol: DetectedProtocol) -> Judgement {
    match policy.decide(destination, protocol) {
        Decision::Allow { rule } => {
            Judgement::Allow { way: Route { destination: destination.clone(), protocol }, rule }
        }
        Decision::Deny { reason } => deny(reason, destination),
    }
}

fn allow(policy: &Policy, destination: &Destination, protocol: DetectedProtocol) -> Option<Judgement> {
    Some(decide(policy, destination, protocol)).filter(|judged| matches!(judged, Judgement::Allow { .. }))
}

fn deny(reason: Denial, about: &Destination) -> Judgement {
    Judgement::Deny { reason, about: about.clone() }
}
