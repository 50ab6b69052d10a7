//! The audit log with real files, full disks, kills, and tampering.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

mod crash;
mod journal;
mod spool;
mod store;
mod tamper;

use burrow_audit::{Action, Event, Outcome};
use burrow_model::TenantId;

fn tenant() -> TenantId {
    "tenaaaaaaaaaaaaaaaaaaaa".parse().unwrap()
}

fn event(number: u64) -> Event {
    Event {
        target: Some(number.to_string().into()),
        host: Some("api.example".into()),
        ..Event::new(1_700_000_000_000 + number, tenant(), Action::EgressInject, Outcome::Allowed)
    }
}
