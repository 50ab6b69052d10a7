//! The state of one sandbox in the egress process: its policy, names, limits and open connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_audit::{Action, Event, Outcome};
use burrow_model::SandboxId;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::audit::Audit;
use crate::clock::{epoch_ms, monotonic_ms};
use crate::dns::resolver::Resolver;
use crate::event_rate::EventRate;
use crate::intercept::{Intercept, Intercepted, keep_in_ram};
use crate::limits::Bucket;
use crate::log::Journal;
use crate::policy::{Decision, Denial, Destination, Policy, ProtocolSeen};
use crate::proxy::{Flow, Meter};
use crate::{BudgetLeft, Counters, Limits, LogEntry, LogKind, Verdict};

/// Bytes of hellos and heads that wait for a decision, over all connections of a sandbox (E-N10).
const PENDING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Concurrent name lookups of one sandbox; lookups block threads that all sandboxes share.
const LOOKUPS_MAX: usize = 8;

/// A flow without traffic for this long is ended. Keep-alive detects dead peers much sooner.
const IDLE_MAX_MS: u64 = 2 * 60 * 60 * 1_000;

/// A flow that lasts longer than this is logged while it is open.
const LOGGED_AFTER_MS: u64 = 10_000;

/// The policy, the limits and the connections of one sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    limits: Limits,
    policy: Mutex<Policy>,
    resolver: Mutex<Resolver>,
    rate_limits: Mutex<RateLimits>,
    connections: Mutex<HashMap<u64, Connection>>,
    /// Set, while the connections are locked, when the sandbox is detached: no connection is admitted after that.
    closed: AtomicBool,
    next_connection: AtomicU64,
    pending_bytes: AtomicUsize,
    pub(crate) lookups: Arc<Semaphore>,
    pub(crate) tally: Tally,
    pub(crate) intercept: Intercept,
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
pub(crate) struct Tally {
    allowed: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    questions: AtomicU64,
    questions_denied: AtomicU64,
}

#[derive(Debug)]
struct Connection {
    /// Set right after the task was started.
    task: Option<AbortHandle>,
    /// Set when the connection is allowed.
    flow: Option<AllowedConnection>,
    /// Why the connection was ended from outside.
    ended: Option<Denial>,
}

/// An allowed connection.
#[derive(Clone, Debug)]
enum AllowedConnection {
    Flow(Arc<Flow>),
    Intercepted(Arc<Intercepted>),
}

impl AllowedConnection {
    fn meter(&self) -> &Meter {
        match self {
            Self::Flow(flow) => &flow.meter,
            Self::Intercepted(intercepted) => &intercepted.meter,
        }
    }

    fn reset_on_close(&self) {
        match self {
            Self::Flow(flow) => flow.reset_on_close(),
            Self::Intercepted(intercepted) => intercepted.reset_on_close(),
        }
    }
}

impl Sandbox {
    pub(crate) fn new(
        id: SandboxId,
        policy: Policy,
        limits: Limits,
        journal: Arc<Journal>,
        audit: Arc<Audit>,
    ) -> Arc<Self> {
        let now = monotonic_ms();
        policy.directives().into_iter().for_each(keep_in_ram);
        Arc::new(Self {
            id,
            limits,
            policy: Mutex::new(policy),
            resolver: Mutex::new(Resolver::new(limits.dns_new_names_per_minute)),
            rate_limits: Mutex::new(RateLimits {
                connections: Bucket::new(limits.connections_per_second.into(), now),
                questions: Bucket::new(limits.dns_per_second.into(), now),
                bytes: limits.bytes_per_second.map(|rate| Bucket::new(rate, now)),
                events: EventRate::default(),
            }),
            connections: Mutex::default(),
            closed: AtomicBool::new(false),
            next_connection: AtomicU64::new(0),
            pending_bytes: AtomicUsize::new(0),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            tally: Tally::default(),
            intercept: Intercept::new(),
            journal,
            audit,
        })
    }

    /// What remains of the budgets of the sandbox's rules.
    pub(crate) fn budgets_left(&self) -> Vec<BudgetLeft> {
        let policy = self.policy();
        let rules = policy.directives().map_or(&[][..], |directives| &directives.rules);
        self.intercept.budgets().left(rules, monotonic_ms())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn policy(&self) -> Policy {
        lock(&self.policy).clone()
    }

    pub(crate) fn resolver(&self) -> MutexGuard<'_, Resolver> {
        lock(&self.resolver)
    }

    /// Applies a policy to new and to open connections.
    pub(crate) fn set_policy(&self, policy: Policy) {
        policy.directives().into_iter().for_each(keep_in_ram);
        let before = std::mem::replace(&mut *lock(&self.policy), policy.clone());
        if before != policy {
            self.intercept.policy_changed(&policy);
        }
        // A connection that was checked against the old policy and is not a flow yet is checked again when it becomes
        // one.
        self.end_where(|open| {
            let meter = open.meter();
            let allowed = matches!(policy.decide(&meter.destination, meter.protocol), Decision::Allow { .. });
            let stays = match open {
                // A flow that is spliced now may have to be intercepted.
                AllowedConnection::Flow(_) => {
                    let port = meter.destination.port;
                    let admitted = meter.address.is_none_or(|address| policy.admits(address, port).is_ok());
                    let decrypt =
                        meter.protocol == ProtocolSeen::Tls && policy.intercepts(&meter.destination);
                    admitted && !decrypt
                }
                AllowedConnection::Intercepted(_) => {
                    policy.intercepts(&meter.destination) && before.treats_alike(&policy, &meter.destination)
                }
            };
            (!allowed || !stays).then_some(Denial::Revoked)
        });
    }

    /// Ends every connection, and admits no more.
    pub(crate) fn close(&self) {
        let mut connections = lock(&self.connections);
        self.closed.store(true, Ordering::Relaxed);
        for connection in connections.values_mut() {
            connection.ended = Some(Denial::Revoked);
            connection.end();
        }
    }

    /// Ends flows that were silent for too long, and logs those that last.
    pub(crate) fn sweep(&self, now_ms: u64) {
        self.intercept.sweep(now_ms);
        self.note_combined(now_ms, false);
        self.end_where(|open| {
            (now_ms.saturating_sub(open.meter().last_ms()) > IDLE_MAX_MS).then_some(Denial::SilentClient)
        });
        let lasting: Vec<_> = {
            let connections = lock(&self.connections);
            let flows = connections.values().filter_map(|connection| connection.flow.clone());
            flows
                .filter(|open| {
                    let meter = open.meter();
                    now_ms.saturating_sub(meter.began_ms) > LOGGED_AFTER_MS && meter.log_once()
                })
                .collect()
        };
        for open in lasting {
            self.record(open.meter().entry(&self.id, None, None));
        }
    }

    fn end_where(&self, why: impl Fn(&AllowedConnection) -> Option<Denial>) {
        let mut connections = lock(&self.connections);
        for connection in connections.values_mut() {
            let reason = connection.flow.as_ref().and_then(&why);
            if reason.is_some() {
                connection.ended = reason;
                connection.end();
            }
        }
    }

    /// Admits a new connection within the limits, and runs it. The future receives a ticket that it keeps to its end.
    pub(crate) fn admit<F>(self: &Arc<Self>, serve: impl FnOnce(Ticket) -> F) -> Result<(), Denial>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if !lock(&self.rate_limits).connections.take(monotonic_ms()) {
            return Err(Denial::ConnectionRate);
        }
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        if self.closed.load(Ordering::Relaxed) {
            return Err(Denial::Revoked);
        }
        if connections.len() >= self.limits.connections_max as usize {
            return Err(Denial::ConnectionsMax);
        }
        connections.insert(id, Connection { task: None, flow: None, ended: None });
        // The connections stay locked until the task's handle is stored, so that the task cannot end before.
        let task = tokio::spawn(serve(Ticket { sandbox: Arc::clone(self), id }));
        if let Some(connection) = connections.get_mut(&id) {
            connection.task = Some(task.abort_handle());
        }
        Ok(())
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
        let pending = PendingBytes { sandbox: Arc::clone(self), bytes };
        (before + bytes <= PENDING_BYTES_MAX).then_some(pending)
    }

    pub(crate) fn count_in(&self, bytes: u64) {
        self.tally.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_out(&self, bytes: u64) {
        self.tally.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            connections_open: lock(&self.connections).len() as u64,
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
    pub(crate) fn denied(&self, destination: &Destination, protocol: ProtocolSeen, reason: &Denial) {
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
    fn note_combined(&self, now_ms: u64, all: bool) {
        let events = lock(&self.rate_limits).events.due(now_ms, all);
        events.into_iter().for_each(|event| self.audit.note(event));
    }

    /// An event about a connection, if the sandbox has an audit log.
    fn event(&self, destination: &Destination, action: Action, outcome: Outcome) -> Option<Event> {
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
    pub(crate) fn request_denied(&self, destination: &Destination, protocol: ProtocolSeen, reason: &Denial) {
        self.tally.denied.fetch_add(1, Ordering::Relaxed);
        let entry = self.entry(destination, protocol);
        self.record(LogEntry { verdict: Verdict::Deny, reason: Some(reason.to_string()), ..entry });
    }

    /// Records that an allowed connection failed because the host could not be reached.
    pub(crate) fn failed(
        &self,
        destination: &Destination,
        protocol: ProtocolSeen,
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
        self.record(LogEntry {
            sandbox: self.id.clone(),
            at_ms: epoch_ms(),
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

    fn entry(&self, destination: &Destination, protocol: ProtocolSeen) -> LogEntry {
        LogEntry {
            sandbox: self.id.clone(),
            at_ms: epoch_ms(),
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

    fn record(&self, entry: LogEntry) {
        self.journal.record(entry, monotonic_ms());
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.note_combined(monotonic_ms(), true);
    }
}

impl Connection {
    fn end(&mut self) {
        if let Some(flow) = &self.flow {
            flow.reset_on_close();
        }
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// An entry in the list of open connections. Dropping it removes the entry, and logs the flow if the connection was
/// allowed.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) sandbox: Arc<Sandbox>,
    id: u64,
}

impl Ticket {
    /// Makes the connection a flow, unless the policy does not allow it any more.
    pub(crate) fn begin(&self, flow: &Arc<Flow>) -> Result<(), Denial> {
        let mut connections = lock(&self.sandbox.connections);
        // The connections are locked: a policy that is set later finds the flow, and one set before is the one
        // checked here.
        let policy = self.sandbox.policy();
        if let Decision::Deny { reason } = policy.decide(&flow.destination, flow.protocol) {
            return Err(reason);
        }
        if let Some(connection) = connections.get_mut(&self.id) {
            connection.flow = Some(AllowedConnection::Flow(Arc::clone(flow)));
        }
        drop(connections);
        let event = self.sandbox.event(&flow.destination, Action::EgressAllow, Outcome::Allowed);
        if let Some(mut event) = event {
            event.rule = Some(flow.rule().into());
            self.sandbox.note(event);
        }
        self.sandbox.tally.allowed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Like [`Self::begin`], for an intercepted connection that was checked against `judged`.
    pub(crate) fn begin_intercepted(
        &self,
        intercepted: &Arc<Intercepted>,
        judged: &Policy,
    ) -> Result<(), Denial> {
        let mut connections = lock(&self.sandbox.connections);
        let policy = self.sandbox.policy();
        let destination = &intercepted.meter.destination;
        if !policy.intercepts(destination) || !judged.treats_alike(&policy, destination) {
            return Err(Denial::Revoked);
        }
        if let Some(connection) = connections.get_mut(&self.id) {
            connection.flow = Some(AllowedConnection::Intercepted(Arc::clone(intercepted)));
        }
        self.sandbox.tally.allowed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let gone = lock(&self.sandbox.connections).remove(&self.id);
        if let Some(Connection { flow: Some(flow), ended, .. }) = gone {
            let meter = flow.meter();
            let duration = monotonic_ms().saturating_sub(meter.began_ms);
            let reason = ended.map(|reason| reason.to_string()).or_else(|| meter.trouble());
            self.sandbox.record(meter.entry(&self.sandbox.id, Some(duration), reason));
        }
    }
}

/// A reservation of bytes that wait for a decision.
#[derive(Debug)]
pub(crate) struct PendingBytes {
    sandbox: Arc<Sandbox>,
    bytes: usize,
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.sandbox.pending_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
