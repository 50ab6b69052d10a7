//! Egress without a kernel, for simulation: stores the policies, and answers trials according to them.
//!
//! Clones share one state, as consecutive daemons share a host: a test "restarts the daemon" by continuing with a
//! clone.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::SandboxId;
use tokio::sync::{mpsc, watch};

use crate::intercept::Budgets;
use crate::{
    BudgetLeft, Counters, Decision, Egress, EgressError, LogEntry, PendingApproval, Policy, Step, Target,
    Trial,
};

/// Log entries that a test may add before they are read.
const LOG_QUEUE_MAX: usize = 1_024;

/// The simulated egress process.
#[derive(Clone, Debug)]
pub struct SimEgress {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    attached: BTreeMap<SandboxId, Policy>,
    /// The policies with which they were attached.
    first: BTreeMap<SandboxId, Policy>,
    counters: BTreeMap<SandboxId, Counters>,
    log: mpsc::Sender<LogEntry>,
    reader: Option<mpsc::Receiver<LogEntry>>,
    epoch: watch::Sender<u64>,
    waiting: BTreeMap<SandboxId, Vec<PendingApproval>>,
    decided: Vec<(SandboxId, u64, bool)>,
    spool: Option<OwnedFd>,
}

impl SimEgress {
    #[expect(clippy::new_without_default, reason = "a driver is opened, not defaulted to")]
    pub fn new() -> Self {
        let (log, reader) = mpsc::channel(LOG_QUEUE_MAX);
        let state = State {
            attached: BTreeMap::new(),
            first: BTreeMap::new(),
            counters: BTreeMap::new(),
            log,
            reader: Some(reader),
            epoch: watch::Sender::new(0),
            waiting: BTreeMap::new(),
            decided: Vec::new(),
            spool: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The sandboxes that are attached, in order.
    pub fn live(&self) -> Vec<SandboxId> {
        self.state().attached.keys().cloned().collect()
    }

    /// The current policy of `id`.
    pub fn policy(&self, id: &SandboxId) -> Option<Policy> {
        self.state().attached.get(id).cloned()
    }

    /// The policy with which `id` was attached, before its processes ran.
    pub fn first_policy(&self, id: &SandboxId) -> Option<Policy> {
        self.state().first.get(id).cloned()
    }

    /// Adds a log entry, as the real process would; `false` if the log is not read.
    pub fn happened(&self, entry: LogEntry) -> bool {
        self.state().log.try_send(entry).is_ok()
    }

    /// Sets the usage of `id`.
    pub fn set_counters(&self, id: &SandboxId, counters: Counters) {
        self.state().counters.insert(id.clone(), counters);
    }

    /// Adds a request of `id` that waits for approval.
    pub fn waits(&self, id: &SandboxId, waiting: PendingApproval) {
        self.state().waiting.entry(id.clone()).or_default().push(waiting);
    }

    /// The decisions about requests, in order.
    pub fn decided(&self) -> Vec<(SandboxId, u64, bool)> {
        self.state().decided.clone()
    }

    /// Whether there is a segment of the audit spool.
    pub fn has_spool(&self) -> bool {
        self.state().spool.is_some()
    }

    /// Forgets every sandbox, like a process that died; the next daemon's `adopt` attaches them again.
    pub fn die(&self) {
        self.state().attached.clear();
    }

    /// Replaces the process by one that serves the same sandboxes, without their secrets.
    pub fn be_replaced(&self) {
        let mut state = self.state();
        for policy in state.attached.values_mut() {
            *policy = policy.without_secrets();
        }
        state.epoch.send_modify(|epoch| *epoch += 1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Egress for SimEgress {
    async fn attach(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        let mut state = self.state();
        state.attached.insert(id.clone(), policy.clone());
        state.first.insert(id.clone(), policy.clone());
        Ok(())
    }

    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        self.attach(id, policy).await
    }

    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError> {
        match self.state().attached.get_mut(id) {
            Some(current) => {
                *current = policy.clone();
                Ok(())
            }
            None => Err(EgressError::NotAttached { id: id.clone() }),
        }
    }

    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError> {
        let mut state = self.state();
        state.attached.remove(id);
        state.first.remove(id);
        state.counters.remove(id);
        state.waiting.remove(id);
        Ok(())
    }

    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError> {
        Ok(self.live())
    }

    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError> {
        let policy = self.policy(id).ok_or_else(|| EgressError::NotAttached { id: id.clone() })?;
        let (ok, detail) = match policy.decide(&target.destination, target.protocol) {
            Decision::Allow { rule } => (true, format!("allowed by `{rule}`")),
            Decision::Deny { reason } => (false, reason.to_string()),
        };
        let step = Step { name: "decide".to_owned(), ok, detail, micros: 0 };
        Ok(Trial { reachable: ok, steps: vec![step] })
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError> {
        let state = self.state();
        match state.attached.contains_key(id) {
            true => Ok(state.counters.get(id).copied().unwrap_or_default()),
            false => Err(EgressError::NotAttached { id: id.clone() }),
        }
    }

    async fn approvals(&self, id: &SandboxId) -> Result<Vec<PendingApproval>, EgressError> {
        let state = self.state();
        match state.attached.contains_key(id) {
            true => Ok(state.waiting.get(id).cloned().unwrap_or_default()),
            false => Err(EgressError::NotAttached { id: id.clone() }),
        }
    }

    async fn decide(&self, id: &SandboxId, number: u64, yes: bool) -> Result<(), EgressError> {
        let mut state = self.state();
        if !state.attached.contains_key(id) {
            return Err(EgressError::NotAttached { id: id.clone() });
        }
        let waiting = state.waiting.entry(id.clone()).or_default();
        let before = waiting.len();
        waiting.retain(|waiting| waiting.number != number);
        if waiting.len() == before {
            return Err(EgressError::NotWaiting { id: id.clone(), number });
        }
        state.decided.push((id.clone(), number, yes));
        Ok(())
    }

    async fn budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EgressError> {
        let policy = self.policy(id).ok_or_else(|| EgressError::NotAttached { id: id.clone() })?;
        let rules = policy.directives().map_or(&[][..], |directives| &directives.rules);
        Ok(Budgets::default().left(rules, 0))
    }

    async fn set_spool(&self, segment: OwnedFd) -> Result<(), EgressError> {
        self.state().spool = Some(segment);
        Ok(())
    }

    fn log(&self) -> Option<mpsc::Receiver<LogEntry>> {
        self.state().reader.take()
    }

    fn epoch(&self) -> watch::Receiver<u64> {
        self.state().epoch.subscribe()
    }

    async fn shutdown(&self) {}
}
