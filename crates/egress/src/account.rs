//! The account of one sandbox in the egress process: its policy and limits, what it has used of them, and what is
//! logged about it.
//!
//! Its connections and everything that forwards for it use the account; it knows none of them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_audit::{Action, Event, Outcome};
use burrow_model::SandboxId;
use tokio::sync::Semaphore;

use crate::audit::Audit;
use crate::clock::{epoch_ms, monotonic_ms};
use crate::event_rate::EventRate;
use crate::intercept::Budgets;
use crate::limits::Bucket;
use crate::log::Journal;
use crate::policy::{Denial, Destination, DetectedProtocol, Policy};
use crate::{BudgetLeft, Counters, Limits, LogEntry, LogKind, Verdict};

/// Bytes of hellos and heads that wait for a decision, over all connections of a sandbox (E-N10).
const PENDING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Concurrent name lookups of one sandbox; lookups block threads that all sandboxes share.
const LOOKUPS_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) id: SandboxId,
    limits: Limits,
    policy: Mutex<Policy>,
    rate_limits: Mutex<RateLimits>,
    budgets: Mutex<Budgets>,
    pending_bytes: AtomicUsize,
    pub(crate) lookups: Arc<Semaphore>,
    tally: Tally,
    journal: Arc<Journal>,
    audit: Arc<Audit>,
}

#[derive(Debug)]
struct RateLimits {
    connections: Bucket,
    questions: Bucket,
    bytes: Option<Bucket>,
    events: EventRate,
}

#[derive(Debug, Default)]
struct Tally {
    allowed: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    questions: AtomicU64,
    questions_denied: AtomicU64,
}

impl Account {
    pub(crate) fn new(
        id: SandboxId,
        policy: Policy,
        limits: Limits,
        journal: Arc<Journal>,
        audit: Arc<Audit>,
    ) -> Self {
        let now = monotonic_ms();
        Self {
            id,
            limits,
            policy: Mutex::new(policy),
            rate_limits: Mutex::new(RateLimits {
                connections: Bucket::new(limits.connections_per_second.into(), now),
                questions: Bucket::new(limits.dns_per_second.into(), now),
                bytes: limits.bytes_per_second.map(|rate| Bucket::new(rate, now)),
                events: EventRate::default(),
            }),
            budgets: Mutex::default(),
            pending_bytes: AtomicUsize::new(0),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            tally: Tally::default(),
            journal,
            audit,
        }
    }

    /// What remains of the budgets of the sandbox's rules.
    pub(crate) fn budgets_left(&self) -> Vec<BudgetLeft> {
        let policy = self.policy();
        let rules = policy.directives().map_or(&[][..], |directives| &directives.rules);
        self.budgets().left(rules, monotonic_ms())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn policy(&self) -> Policy {
        lock(&self.policy).clone()
    }

    /// Sets the policy for what is checked from now on, and returns the one before.
    pub(crate) fn replace_policy(&self, policy: Policy) -> Policy {
        std::mem::replace(&mut *lock(&self.policy), policy)
    }

    /// The budgets of the sandbox's rules.
    pub(crate) fn budgets(&self) -> MutexGuard<'_, Budgets> {
        lock(&self.budgets)
    }

    /// Counts a new connection; `false` if the rate limit is reached.
    pub(crate) fn may_connect(&self) -> bool {
        lock(&self.rate_limits).connections.take(monotonic_ms())
    }

    /// Counts an allowed connection.
    pub(crate) fn count_allowed(&self) {
        self.tally.allowed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a DNS question; `false` if the rate limit is reached.
    pub(crate) fn may_ask(&self) -> bool {
        self.tally.questions.fetch_add(1, Ordering::Relaxed);
        lock(&self.rate_limits).questions.take(monotonic_ms())
    }

    /// How long to wait after forwarding `bytes`.
    pub(crate) fn pay(&self, bytes: usize) -> std::time::Duration {
        if self.limits.bytes_per_second.is_none() {
            return std::time::Duration::ZERO;
        }
        let mut rate_limits = lock(&self.rate_limits);
        let wait = rate_limits.bytes.as_mut().map(|bucket| bucket.owe(bytes as u64, monotonic_ms()));
        wait.unwrap_or_default()
    }

    /// Reserves `bytes` of the limit for pending bytes until the result is dropped.
    pub(crate) fn reserve_pending(self: &Arc<Self>, bytes: usize) -> Option<PendingBytes> {
        let before = self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        let pending = PendingBytes { account: Arc::clone(self), bytes };
        (before + bytes <= PENDING_BYTES_MAX).then_some(pending)
    }

    pub(crate) fn count_in(&self, bytes: u64) {
        self.tally.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_out(&self, bytes: u64) {
        self.tally.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// With the number of open connections, which are not counted here.
    pub(crate) fn counters(&self, connections_open: u64) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            connections_open,
            connections_allowed: get(&self.tally.allowed),
            connections_denied: get(&self.tally.denied),
            connections_failed: get(&self.tally.failed),
            bytes_in: get(&self.tally.bytes_in),
            bytes_out: get(&self.tally.bytes_out),
            questions: get(&self.tally.questions),
            questions_denied: get(&self.tally.questions_denied),
            log_dropped: self.journal.dropped(),
        }
    }

    /// Records that a connection was refused.
    pub(crate) fn denied(&self, destination: &Destination, protocol: DetectedProtocol, reason: &Denial) {
        self.request_denied(destination, protocol, reason);
        if let Some(mut event) = self.event(destination, Action::EgressDeny, Outcome::Denied) {
            event.reason = Some(reason.to_string().into());
            self.note(event);
        }
    }

    /// Records an event in the audit log, in the background. A flood of events is combined into few.
    pub(crate) fn note(&self, event: Event) {
        let event = lock(&self.rate_limits).events.admit(event, monotonic_ms());
        event.into_iter().for_each(|event| self.audit.note(event));
    }

    /// Records the combined events whose time is over, or all of them.
    pub(crate) fn note_combined(&self, now_ms: u64, all: bool) {
        let events = lock(&self.rate_limits).events.due(now_ms, all);
        events.into_iter().for_each(|event| self.audit.note(event));
    }

    /// An event about a connection, if the sandbox has an audit log.
    pub(crate) fn event(&self, destination: &Destination, action: Action, outcome: Outcome) -> Option<Event> {
        let policy = self.policy();
        let tenant = policy.directives()?.tenant.clone();
        let mut event = Event::new(epoch_ms(), tenant, action, outcome);
        event.actor = Some("sandbox".into());
        event.sandbox = Some(self.id.clone());
        event.host = Some(destination.host.to_string().into());
        event.port = Some(destination.port);
        Some(event)
    }

    /// Counts and logs a refused request of an intercepted connection. Its audit event is recorded elsewhere.
    pub(crate) fn request_denied(
        &self,
        destination: &Destination,
        protocol: DetectedProtocol,
        reason: &Denial,
    ) {
        self.tally.denied.fetch_add(1, Ordering::Relaxed);
        let entry = self.entry(destination, protocol);
        self.record(LogEntry { verdict: Verdict::Deny, reason: Some(reason.to_string()), ..entry });
    }

    /// Records that an allowed connection failed because the host could not be reached.
    pub(crate) fn failed(
        &self,
        destination: &Destination,
        protocol: DetectedProtocol,
        rule: &str,
        reason: String,
    ) {
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        let entry = self.entry(destination, protocol);
        self.record(LogEntry {
            rule: Some(rule.to_owned()),
            reason: Some(reason),
            duration_ms: Some(0),
            ..entry
        });
    }

    pub(crate) fn question_denied(&self, name: String, reason: &Denial) {
        self.tally.questions_denied.fetch_add(1, Ordering::Relaxed);
        let now_ms = epoch_ms();
        self.record(LogEntry {
            sandbox: self.id.clone(),
            at_ms: now_ms,
            last_ms: now_ms,
            kind: LogKind::Dns,
            host: name,
            port: 0,
            protocol: None,
            verdict: Verdict::Deny,
            rule: None,
            reason: Some(reason.to_string()),
            address: None,
            bytes_in: 0,
            bytes_out: 0,
            duration_ms: None,
            count: 1,
        });
    }

    fn entry(&self, destination: &Destination, protocol: DetectedProtocol) -> LogEntry {
        let now_ms = epoch_ms();
        LogEntry {
            sandbox: self.id.clone(),
            at_ms: now_ms,
            last_ms: now_ms,
            kind: LogKind::Tcp,
            host: destination.host.to_string(),
            port: destination.port,
            protocol: Some(protocol),
            verdict: Verdict::Allow,
            rule: None,
            reason: None,
            address: None,
            bytes_in: 0,
            bytes_out: 0,
            duration_ms: None,
            count: 1,
        }
    }

    pub(crate) fn record(&self, entry: LogEntry) {
        self.journal.record(entry, monotonic_ms());
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.note_combined(monotonic_ms(), true);
    }
}

/// A reservation of bytes that wait for a decision.
#[derive(Debug)]
pub(crate) struct PendingBytes {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.account.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
