//! Tells the audit log who opened which port, without an event for every request.
//!
//! A page is dozens of requests, and a client that polls never ends. The first request of the same client to the same port by
//! the same key, link or token is an event, and so is the first after [`WINDOW_MS`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use burrow_audit::{Action, Event, Outcome, Text};

use super::access::{Admitted, By};
use super::address::Target;
use crate::rest::App;

/// Ten minutes: long enough that a page that is left open is a few lines of the log an hour.
const WINDOW_MS: u64 = 10 * 60 * 1000;

/// Uses that are known at once. Beyond it all are forgotten, and the next request of each is an event again.
const KNOWN_MAX: usize = 10_000;

/// Uses that the log has.
#[derive(Debug, Default)]
pub(super) struct Uses(Mutex<HashMap<String, u64>>);

impl Uses {
    /// Whether the log does not have this use yet.
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

/// Records the use of a port by somebody who is known. Anybody may open a public port: those requests could fill the log.
pub(super) async fn record(app: &App, target: &Target, admitted: &Admitted, peer: Option<IpAddr>) {
    let action = match admitted.by {
        By::Key | By::Token => Action::PortConnect,
        By::Link { .. } | By::Cookie => Action::LinkUse,
        By::Public => return,
    };
    let Some(actor) = &admitted.actor else { return };
    let from = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.to_string());
    let what = format!("{action} {actor} {} {} {from}", admitted.sandbox, target.port);
    let now_ms = app.engine.now_ms();
    if !app.gateway.uses.is_new(what, now_ms) {
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
    fn the_same_use_is_new_again_only_after_a_while() {
        let uses = Uses::default();
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
