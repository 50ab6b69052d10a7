//! Records in the audit log which client opened which port, without an event for every request.
//!
//! A page causes dozens of requests, and a polling client causes an endless number. The first request of a client to a
//! port with a certain key, link or token is an event, and so is the first one after [`WINDOW_MS`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use burrow_audit::{Action, Event, Outcome, Text};

use super::address::Target;
use super::admitted::{AdmittedBy, AdmittedRequest};
use super::gateway::Gateway;
use burrow_http::app::App;

/// Ten minutes: a page that stays open causes only a few events per hour.
const WINDOW_MS: u64 = 10 * 60 * 1000;

/// Maximum number of known uses. Beyond it all are removed, and the next request of each is an event again.
const KNOWN_MAX: usize = 10_000;

/// Uses that were recorded.
#[derive(Debug, Default)]
pub(super) struct RecordedUses(Mutex<HashMap<String, u64>>);

impl RecordedUses {
    /// Whether this use was not recorded yet.
    fn is_new(&self, what: String, now_ms: u64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |at_ms: &u64| now_ms.saturating_sub(*at_ms) < WINDOW_MS;
        if known.get(&what).is_some_and(is_current) {
            return false;
        }
        if known.len() >= KNOWN_MAX {
            known.retain(|_, at_ms| is_current(at_ms));
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
        }
        known.insert(what, now_ms);
        true
    }
}

/// Records the use of a port by an authenticated client. Uses of public ports are not recorded: they could fill the
/// log.
pub(super) async fn record(app: &App, target: &Target, admitted: &AdmittedRequest, peer: Option<IpAddr>) {
    let action = match admitted.by {
        AdmittedBy::Key | AdmittedBy::Token => Action::PortConnect,
        AdmittedBy::Link { .. } | AdmittedBy::Cookie => Action::LinkUse,
        AdmittedBy::Public => return,
    };
    let Some(actor) = &admitted.actor else { return };
    let from = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
    let what = format!("{action} {actor} {} {} {from}", admitted.sandbox, target.port);
    let now_ms = app.engine.now_ms();
    if !app.part::<Gateway>().uses.is_new(what, now_ms) {
        return;
    }
    let event = Event {
        actor: Some(Text::new(actor)),
        sandbox: Some(admitted.sandbox.clone()),
        port: Some(target.port),
        reason: Some(Text::new(&format!("from {from}"))),
        ..Event::new(now_ms, admitted.tenant.clone(), action, Outcome::Allowed)
    };
    app.audited(event).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_recorded_again_only_after_the_window() {
        let uses = RecordedUses::default();
        assert!(uses.is_new("a".into(), 0));
        assert!(!uses.is_new("a".into(), WINDOW_MS - 1));
        assert!(uses.is_new("b".into(), WINDOW_MS - 1));
        assert!(uses.is_new("a".into(), WINDOW_MS));
        for number in 0..2 * KNOWN_MAX {
            assert!(uses.is_new(number.to_string(), WINDOW_MS));
        }
        assert!(uses.0.lock().unwrap().len() <= KNOWN_MAX);
    }
}
