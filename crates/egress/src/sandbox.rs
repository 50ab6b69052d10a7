//! One sandbox in the egress process: its account, its names and its open connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_audit::{Action, Outcome};
use burrow_model::SandboxId;
use tokio::task::AbortHandle;

use crate::account::Account;
use crate::audit::Audit;
use crate::clock::monotonic_ms;
use crate::dns::resolver::Resolver;
use crate::intercept::{InterceptState, InterceptedConnection, keep_in_ram};
use crate::log::Journal;
use crate::policy::{Decision, Denial, DetectedProtocol, Policy};
use crate::proxy::{Flow, Meter};
use crate::{Counters, Limits};

/// A flow without traffic for this long is ended. Keep-alive detects dead peers much sooner.
const IDLE_MAX_MS: u64 = 2 * 60 * 60 * 1_000;

/// A flow that lasts longer than this is logged while it is open.
const LOGGED_AFTER_MS: u64 = 10_000;

/// The account, the names and the connections of one sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) account: Arc<Account>,
    resolver: Mutex<Resolver>,
    connections: Mutex<HashMap<u64, Connection>>,
    /// Set, while the connections are locked, when the sandbox is detached: no connection is admitted after that.
    closed: AtomicBool,
    next_connection: AtomicU64,
    pub(crate) intercept: InterceptState,
}

impl std::ops::Deref for Sandbox {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
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
    Intercepted(Arc<InterceptedConnection>),
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
        policy.directives().into_iter().for_each(keep_in_ram);
        Arc::new(Self {
            account: Arc::new(Account::new(id, policy, limits, journal, audit)),
            resolver: Mutex::new(Resolver::new(limits.dns_new_names_per_minute)),
            connections: Mutex::default(),
            closed: AtomicBool::new(false),
            next_connection: AtomicU64::new(0),
            intercept: InterceptState::new(),
        })
    }

    pub(crate) fn resolver(&self) -> MutexGuard<'_, Resolver> {
        lock(&self.resolver)
    }

    /// Applies a policy to new and to open connections.
    pub(crate) fn set_policy(&self, policy: Policy) {
        policy.directives().into_iter().for_each(keep_in_ram);
        let before = self.account.replace_policy(policy.clone());
        if before != policy {
            self.account
                .budgets()
                .retain(policy.directives().map_or(&[][..], |directives| &directives.rules));
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
                        meter.protocol == DetectedProtocol::Tls && policy.intercepts(&meter.destination);
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

    pub(crate) fn counters(&self) -> Counters {
        self.account.counters(lock(&self.connections).len() as u64)
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
        if !self.account.may_connect() {
            return Err(Denial::ConnectionRate);
        }
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        if self.closed.load(Ordering::Relaxed) {
            return Err(Denial::Revoked);
        }
        if connections.len() >= self.limits().connections_max as usize {
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
        self.sandbox.count_allowed();
        Ok(())
    }

    /// Like [`Self::begin`], for an intercepted connection that was checked against `judged`.
    pub(crate) fn begin_intercepted(
        &self,
        intercepted: &Arc<InterceptedConnection>,
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
        self.sandbox.count_allowed();
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
