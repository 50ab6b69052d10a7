//! Counts and records one request and its response.
//!
//! Every request has two events in the audit log, below a rate (`event_rate.rs`): one when it is allowed (`egress.allow`, or `egress.inject` before a
//! secret is inserted), and one when its response has ended (`egress.allow` with outcome `done` or `failed`, with its
//! status, sizes and duration). Anything else that happens to it has events of its own.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use burrow_audit::{Action, Event, Outcome, Text};
use burrow_model::TenantId;
use burrow_model::network::RequestRule;
use http::StatusCode;

use super::compiled::FormOwner;
use super::judge::Refusal;
use super::scrub::Hits;
use crate::account::Account;
use crate::clock::{epoch_ms, monotonic_ms};

#[derive(Debug)]
pub(super) struct Exchange {
    account: Arc<Account>,
    rule: RequestRule,
    event: Event,
    /// The owners of the forms that responses are scrubbed of.
    owners: Arc<[FormOwner]>,
    began_ms: u64,
    status: AtomicU16,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// How often the inserted secret was found in the response.
    scrubbed: AtomicU64,
    /// Other secrets and former values found in the response, by their index in `owners`: an alarm was raised for each.
    alarmed: Mutex<BTreeSet<u16>>,
    over: AtomicBool,
    /// Why the body was not sent to its end.
    trouble: Mutex<Option<Refusal>>,
}

/// The properties of a request that its events contain.
#[derive(Debug)]
pub(super) struct RequestSummary<'a> {
    pub(super) tenant: TenantId,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) rule: Option<String>,
    pub(super) secret: Option<String>,
}

impl RequestSummary<'_> {
    pub(super) fn event(&self, account: &Account, action: Action, outcome: Outcome) -> Event {
        let mut event = Event::new(epoch_ms(), self.tenant.clone(), action, outcome);
        event.actor = Some("sandbox".into());
        event.sandbox = Some(account.id.clone());
        event.rule = self.rule.as_deref().map(Text::from);
        event.host = Some(self.host.into());
        event.port = Some(self.port);
        event.method = Some(self.method.into());
        event.path = Some(Text::path(self.path));
        event.secret = self.secret.as_deref().map(Text::from);
        event
    }
}

impl Exchange {
    pub(super) fn new(
        account: Arc<Account>,
        rule: RequestRule,
        owners: Arc<[FormOwner]>,
        described: &RequestSummary<'_>,
    ) -> Arc<Self> {
        let action = if described.secret.is_some() { Action::EgressInject } else { Action::EgressAllow };
        let event = described.event(&account, action, Outcome::Allowed);
        Arc::new(Self {
            account,
            rule,
            event,
            owners,
            began_ms: monotonic_ms(),
            status: AtomicU16::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            scrubbed: AtomicU64::new(0),
            alarmed: Mutex::default(),
            over: AtomicBool::new(false),
            trouble: Mutex::new(None),
        })
    }

    /// The event that is recorded before the request is sent.
    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    /// Counts outgoing bytes against the rule's budget.
    pub(super) fn goes_out(&self, bytes: usize) -> io::Result<()> {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
        let spent = self.account.budgets().spend(&self.rule, bytes as u64, monotonic_ms());
        spent.map_err(|spent| {
            let what = format!("the rule has used up {}", spent.what);
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, what);
            self.fail(Refusal { retry_after_s: Some(spent.retry_after_s), ..refusal })
        })
    }

    pub(super) fn comes_in(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Secrets were removed from the response. Raises an alarm for a secret that the request did not carry: the host
    /// has stored or forwarded it (E-S21).
    pub(super) fn scrubbed(&self, hits: &Hits) {
        if hits.is_empty() {
            return;
        }
        for (owners, count) in hits.iter() {
            let owner = |index: &u16| self.owners.get(usize::from(*index));
            let sent = self.event.secret.as_ref().map(Text::as_str);
            let is_sent = |owner: &FormOwner| !owner.former && Some(owner.name.as_str()) == sent;
            if owners.iter().filter_map(owner).any(is_sent) {
                self.scrubbed.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            let Some(first) = owners.first() else { continue };
            if self.alarmed.lock().unwrap_or_else(PoisonError::into_inner).insert(*first) {
                self.raise_alarm(owner(first));
            }
        }
    }

    fn raise_alarm(&self, found: Option<&FormOwner>) {
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0);
        let reason = if found.is_some_and(|owner| owner.former) {
            "the response contained a former value of a secret; it was removed"
        } else {
            "the response contained a secret that its request did not carry; it was removed"
        };
        self.account.note(Event {
            at_ms: epoch_ms(),
            action: Action::EgressAlarm,
            outcome: Outcome::Done,
            secret: found.map(|owner| owner.name.as_str().into()),
            status,
            reason: Some(reason.into()),
            ..self.event.clone()
        });
    }

    pub(super) fn answered(&self, status: StatusCode) {
        self.status.store(status.as_u16(), Ordering::Relaxed);
    }

    /// Refuses the rest of a request because of a sign of an attack.
    pub(super) fn alarm(&self, what: &str) -> io::Error {
        self.fail(Refusal { alarm: true, ..Refusal::forbidden(what) })
    }

    /// The program's body ended early or was malformed.
    pub(super) fn malformed(&self, error: &hyper::Error) -> io::Error {
        let what = format!("the request body is malformed: {error}");
        self.fail(Refusal::new(StatusCode::BAD_REQUEST, what))
    }

    fn fail(&self, refusal: Refusal) -> io::Error {
        let error = io::Error::new(io::ErrorKind::PermissionDenied, refusal.what.clone());
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        error
    }

    /// Why the body was not sent to its end; returned once.
    pub(super) fn take_trouble(&self) -> Option<Refusal> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The response has ended, successfully or not.
    pub(super) fn ended(&self, well: bool) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let outcome = if well { Outcome::Done } else { Outcome::Failed };
        let base = Event { at_ms: epoch_ms(), action: Action::EgressAllow, outcome, ..self.event.clone() };
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0);
        let scrubbed = read(&self.scrubbed);
        if scrubbed > 0 {
            let event = Event { action: Action::EgressScrub, outcome: Outcome::Done, status, ..base.clone() };
            let reason = format!("the response contained the secret {scrubbed} times");
            self.account.note(Event { reason: Some(reason.into()), ..event });
        }
        // Occurred after the response had started, so it is recorded only here.
        if let Some(refusal) = self.take_trouble() {
            self.record_refusal(&refusal);
        }
        self.account.note(Event {
            status,
            bytes_in: Some(read(&self.bytes_in)),
            bytes_out: Some(read(&self.bytes_out)),
            duration_ms: Some(monotonic_ms().saturating_sub(self.began_ms)),
            ..base
        });
    }

    fn record_refusal(&self, refusal: &Refusal) {
        let action = action_of(refusal);
        let reason = Some(refusal.what.as_str().into());
        self.account.note(Event {
            at_ms: epoch_ms(),
            action,
            outcome: Outcome::Denied,
            reason,
            ..self.event.clone()
        });
    }
}

/// The audit action for a refusal.
pub(super) fn action_of(refusal: &Refusal) -> Action {
    match (refusal.alarm, refusal.status) {
        (true, _) => Action::EgressAlarm,
        (false, StatusCode::TOO_MANY_REQUESTS) => Action::EgressBudget,
        (false, _) => Action::EgressDeny,
    }
}
