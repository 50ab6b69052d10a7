//! What sandboxes may reach: their policies put in force, and what they asked for written down.
//!
//! ```text
//!   start, adopt ─► attach by the policy of the row         egress process ─► log ─┬─► recent denials, for execs
//!   update       ─► row first, then the process                                    ├─► totals, for metrics
//!   the process is away ─► owed: put in force again as soon as it is back          └─► catalog, in batches
//! ```
//!
//! A sandbox whose policy could not be put in force reaches nothing it did not reach before: with nobody behind its
//! doors it has no network, and a policy that cannot be compiled any more counts as one without rules.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_catalog::{Catalog, EgressKind, EgressRow, EgressVerdict, SandboxRow};
use burrow_egress::{Counters, EgressError, LogEntry, LogKind, Policy, ProtocolSeen, Target, Trial, Verdict};
use burrow_model::{EgressRule, IpRange, Name, NetworkPolicy, SandboxId, TenantId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::shared::Shared;
use crate::{Clock, Engine, EngineError, own};

/// Denials remembered per sandbox for the execs that run now; older ones are asked of the catalog.
const RECENT_MAX: usize = 256;

/// Denials told with one exec: enough to see what is missing.
pub const DENIED_MAX: usize = 16;

/// Entries of one commit, and how long the first of them may wait for others.
const BATCH_MAX: usize = 256;
const BATCH_TIME: Duration = Duration::from_millis(200);

/// Rows of one sandbox between two prunings of its log.
const PRUNE_EVERY: usize = 1_000;

/// How long the end of an exec waits for the egress process to tell what it denied.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// What the operator decided about sandboxes' networks.
#[derive(Clone, Debug)]
pub struct EgressSettings {
    /// Of a sandbox whose creator does not say.
    pub default: NetworkPolicy,
    /// Named sets of rules.
    pub sets: BTreeMap<Name, Vec<EgressRule>>,
    /// Ranges that are not public and may be dialled all the same.
    pub allow_ranges: Vec<IpRange>,
}

/// A sandbox's policy with its sets replaced by their rules.
#[derive(Clone, Debug)]
pub struct EgressInForce {
    pub policy: Policy,
    /// Each rule with the set it is of; `None` for the sandbox's own.
    pub rules: Vec<(EgressRule, Option<Name>)>,
    /// Sets it names that the configuration does not have any more.
    pub missing: Vec<Name>,
}

/// Counted since the daemon started, over all sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressTotals {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// Something a sandbox was not let through to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub at_ms: u64,
    /// Of several alike that are told of together: when the last of them can have been.
    pub until_ms: u64,
    pub host: String,
    /// `None` when it was the name that was refused.
    pub port: Option<u16>,
    pub reason: String,
}

// === impl EgressSettings ===

impl EgressSettings {
    /// Refuses a policy that names what is not there.
    pub(crate) fn check(&self, network: &NetworkPolicy) -> Result<(), EngineError> {
        match Policy::new(network, &self.sets, &self.allow_ranges) {
            Ok(_) => Ok(()),
            Err(burrow_egress::PolicyError::UnknownSet { set }) => {
                let known: Vec<String> = self.sets.keys().map(|set| format!("`{set}`")).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(EngineError::SetUnknown { set, known })
            }
            Err(source) => Err(EngineError::NetworkPolicy { source }),
        }
    }

    /// Of a sandbox that is there, whatever has become of the configuration: what cannot be understood allows nothing.
    pub(crate) fn in_force(&self, network: &NetworkPolicy) -> EgressInForce {
        let (sets, missing): (Vec<Name>, Vec<Name>) =
            network.sets.iter().cloned().partition(|set| self.sets.contains_key(set));
        let own = network.rules.iter().map(|rule| (rule.clone(), None));
        let of_set = |set: &Name| {
            let rules = self.sets.get(set).into_iter().flatten();
            rules.map(|rule| (rule.clone(), Some(set.clone()))).collect::<Vec<_>>()
        };
        let rules = own.chain(sets.iter().flat_map(of_set)).collect();
        let known = NetworkPolicy { sets, ..network.clone() };
        match Policy::new(&known, &self.sets, &self.allow_ranges) {
            Ok(policy) => EgressInForce { policy, rules, missing },
            Err(error) => {
                tracing::warn!(%error, "a sandbox's network policy cannot be put in force; it is closed");
                EgressInForce { policy: Policy::closed(), rules: Vec::new(), missing }
            }
        }
    }
}

// === Putting policies in force ===

/// Opens a sandbox's doors, before its machine boots.
pub(crate) async fn attach(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let policy = policy_of(shared, row);
    shared.egress.watch(row, shared.now_ms());
    own::open(shared, row).await?;
    match shared.seams.egress.attach(&row.id, &policy).await {
        Ok(()) => Ok(()),
        // It is being started again. Until then the sandbox reaches nothing, which is no reason not to have it.
        Err(error @ (EgressError::Down | EgressError::Silent)) => {
            tracing::warn!(sandbox = %row.id, %error, "a sandbox starts without a network for now");
            shared.egress.owe(&row.id);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes up a sandbox that runs already, with its flows if they are still served.
pub(crate) async fn adopt(shared: &Shared, row: &SandboxRow) {
    let policy = policy_of(shared, row);
    shared.egress.watch(row, shared.now_ms());
    match shared.seams.egress.adopt(&row.id, &policy).await {
        Ok(()) => shared.egress.settle(&row.id),
        Err(error) => {
            if shared.egress.owe(&row.id) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(sandbox = %row.id, error, "a sandbox has no network for now");
            }
        }
    }
}

/// Follows a change that is durable already. An error means that it is not in force yet, and will be.
pub(crate) async fn follow(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    let policy = policy_of(shared, row);
    match shared.seams.egress.set_policy(&row.id, &policy).await {
        Ok(()) => Ok(()),
        Err(EgressError::NotAttached { .. } | EgressError::Down) => {
            // Nothing is let through meanwhile, so nothing is that the new policy would not allow.
            shared.egress.owe(&row.id);
            Ok(())
        }
        Err(error) => {
            shared.egress.owe(&row.id);
            Err(error.into())
        }
    }
}

/// Closes a sandbox's doors, before its network goes.
pub(crate) async fn detach(shared: &Shared, id: &SandboxId) -> Result<(), EngineError> {
    shared.egress.settle(id);
    own::close(shared, id);
    match shared.seams.egress.detach(id).await {
        // A process that is not there holds no doors.
        Ok(()) | Err(EgressError::Down) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn policy_of(shared: &Shared, row: &SandboxRow) -> Policy {
    let in_force = shared.policy.egress.in_force(&row.spec.network);
    if !in_force.missing.is_empty() {
        let sets = in_force.missing.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(sandbox = %row.id, sets, "a sandbox names host sets that the configuration does not have any more");
    }
    in_force.policy
}

// === impl EgressLog ===

/// What is known about sandboxes' traffic between the egress process and the catalog.
#[derive(Debug)]
pub(crate) struct EgressLog {
    known: Mutex<Known>,
    totals: Totals,
    /// Asks the writer to take in all that has come; closed to end it.
    flush: Mutex<Option<mpsc::Sender<oneshot::Sender<()>>>>,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Known {
    sandboxes: HashMap<SandboxId, Watched>,
    /// Running sandboxes whose policy is not in force.
    owed: HashSet<SandboxId>,
}

#[derive(Debug)]
struct Watched {
    tenant: TenantId,
    /// From when on `denied` is complete.
    since_ms: u64,
    denied: VecDeque<Denied>,
    unpruned: usize,
}

#[derive(Debug, Default)]
struct Totals {
    allowed: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl EgressLog {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::default(),
            totals: Totals::default(),
            flush: Mutex::default(),
            writer: tokio::sync::Mutex::default(),
        }
    }

    /// Begins to take away what the egress process tells.
    pub(crate) async fn start(shared: &Arc<Shared>) {
        let Some(entries) = shared.seams.egress.log() else { return };
        let (flush, flushes) = mpsc::channel(BATCH_MAX);
        *shared.egress.flush.lock().unwrap_or_else(PoisonError::into_inner) = Some(flush);
        let writer = Writer {
            log: shared.egress.clone(),
            catalog: shared.seams.catalog.clone(),
            clock: shared.seams.clock.clone(),
            batch: Vec::new(),
        };
        *shared.egress.writer.lock().await = Some(tokio::spawn(writer.run(entries, flushes)));
    }

    /// Writes what has come, and ends.
    pub(crate) async fn shutdown(&self) {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = self.writer.lock().await.take()
            && writer.await.is_err()
        {
            tracing::error!("the writer of the egress log panicked");
        }
    }

    /// Returns when all that the egress process has told so far was taken in.
    async fn take_in(&self) {
        let (done, taken) = oneshot::channel();
        let queue = self.flush.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(queue) = queue
            && queue.try_send(done).is_ok()
        {
            let _ = taken.await;
        }
    }

    fn watch(&self, row: &SandboxRow, now_ms: u64) {
        let fresh =
            || Watched { tenant: row.tenant.clone(), since_ms: now_ms, denied: VecDeque::new(), unpruned: 0 };
        self.known().sandboxes.entry(row.id.clone()).or_insert_with(fresh);
    }

    /// Of a sandbox that is gone for good.
    pub(crate) fn forget(&self, id: &SandboxId) {
        let mut known = self.known();
        known.sandboxes.remove(id);
        known.owed.remove(id);
    }

    /// False if it was owed already.
    fn owe(&self, id: &SandboxId) -> bool {
        self.known().owed.insert(id.clone())
    }

    fn settle(&self, id: &SandboxId) {
        self.known().owed.remove(id);
    }

    /// Sandboxes whose policy must be put in force again.
    pub(crate) fn owed(&self) -> Vec<SandboxId> {
        self.known().owed.iter().cloned().collect()
    }

    fn totals(&self) -> EgressTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EgressTotals {
            allowed: read(&self.totals.allowed),
            denied: read(&self.totals.denied),
            failed: read(&self.totals.failed),
            sent_bytes: read(&self.totals.sent),
            received_bytes: read(&self.totals.received),
        }
    }

    /// Denials of a span of time, if all of them are still remembered.
    fn recent(&self, id: &SandboxId, from_ms: u64, to_ms: u64) -> Option<Vec<Denied>> {
        let known = self.known();
        let watched = known.sandboxes.get(id)?;
        if watched.since_ms > from_ms {
            return None;
        }
        let within = |denied: &&Denied| denied.at_ms <= to_ms && denied.until_ms >= from_ms;
        Some(watched.denied.iter().filter(within).cloned().collect())
    }

    /// Notes an entry and makes it a row; `None` of a sandbox nobody knows.
    fn note(&self, entry: LogEntry, now_ms: u64) -> Option<EgressRow> {
        let verdict = verdict(&entry);
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        match verdict {
            EgressVerdict::Denied => add(&self.totals.denied, entry.count),
            EgressVerdict::Failed => add(&self.totals.failed, entry.count),
            EgressVerdict::Closed => {
                add(&self.totals.sent, entry.bytes_out);
                add(&self.totals.received, entry.bytes_in);
                add(&self.totals.allowed, entry.count)
            }
            // It is told of again when it ends, with all it carried.
            EgressVerdict::Allowed => 0,
        };
        let port = Some(entry.port).filter(|port| *port != 0);
        let mut known = self.known();
        let watched = known.sandboxes.get_mut(&entry.sandbox)?;
        if verdict == EgressVerdict::Denied {
            watched.remember(Denied {
                at_ms: entry.at_ms,
                until_ms: if entry.count > 1 { now_ms.max(entry.at_ms) } else { entry.at_ms },
                host: entry.host.clone(),
                port,
                reason: entry.reason.clone().unwrap_or_else(|| "it is not allowed".to_owned()),
            });
        }
        let ended = entry.duration_ms.is_some();
        Some(EgressRow {
            seq: 0,
            tenant: watched.tenant.clone(),
            at_ms: entry.at_ms,
            kind: kind(&entry),
            verdict,
            host: entry.host,
            port,
            rule: entry.rule,
            reason: entry.reason,
            address: entry.address.map(|address| address.to_string()),
            sent_bytes: ended.then_some(entry.bytes_out),
            received_bytes: ended.then_some(entry.bytes_in),
            duration_ms: entry.duration_ms,
            times: entry.count,
            sandbox: entry.sandbox,
        })
    }

    /// Counts rows that were written; the sandboxes that have had enough since they were pruned.
    fn written(&self, rows: &[SandboxId]) -> Vec<SandboxId> {
        let mut known = self.known();
        let mut due = Vec::new();
        for id in rows {
            let Some(watched) = known.sandboxes.get_mut(id) else { continue };
            watched.unpruned += 1;
            if watched.unpruned >= PRUNE_EVERY {
                watched.unpruned = 0;
                due.push(id.clone());
            }
        }
        due
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn remember(&mut self, denied: Denied) {
        if self.denied.len() == RECENT_MAX
            && let Some(oldest) = self.denied.pop_front()
        {
            self.since_ms = self.since_ms.max(oldest.at_ms + 1);
        }
        self.denied.push_back(denied);
    }
}

fn verdict(entry: &LogEntry) -> EgressVerdict {
    match (entry.verdict, &entry.reason, entry.duration_ms) {
        (Verdict::Deny, _, _) => EgressVerdict::Denied,
        (Verdict::Allow, Some(_), _) if entry.bytes_in == 0 && entry.bytes_out == 0 => EgressVerdict::Failed,
        (Verdict::Allow, _, Some(_)) => EgressVerdict::Closed,
        (Verdict::Allow, _, None) => EgressVerdict::Allowed,
    }
}

fn kind(entry: &LogEntry) -> EgressKind {
    match (entry.kind, entry.protocol) {
        (LogKind::Dns, _) => EgressKind::Dns,
        (LogKind::Tcp, Some(ProtocolSeen::Tls)) => EgressKind::Tls,
        (LogKind::Tcp, Some(ProtocolSeen::Http)) => EgressKind::Http,
        (LogKind::Tcp, Some(ProtocolSeen::Tcp) | None) => EgressKind::Tcp,
    }
}

/// Takes entries in and writes them down, so many or so long at a time.
struct Writer {
    log: Arc<EgressLog>,
    catalog: Catalog,
    clock: Arc<dyn Clock>,
    batch: Vec<EgressRow>,
}

impl Writer {
    async fn run(
        mut self,
        mut entries: mpsc::Receiver<LogEntry>,
        mut flushes: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let mut open = true;
        // When the first of the batch has waited long enough.
        let mut due = tokio::time::Instant::now();
        loop {
            let waiting = !self.batch.is_empty();
            tokio::select! {
                entry = entries.recv(), if open => match entry {
                    Some(entry) => {
                        if !waiting {
                            due = tokio::time::Instant::now() + BATCH_TIME;
                        }
                        self.take(entry).await;
                    }
                    None => open = false,
                },
                flush = flushes.recv() => {
                    while let Ok(entry) = entries.try_recv() {
                        self.take(entry).await;
                    }
                    match flush {
                        Some(done) => drop(done.send(())),
                        None => return self.write().await,
                    }
                }
                () = tokio::time::sleep_until(due), if waiting => self.write().await,
            }
        }
    }

    async fn take(&mut self, entry: LogEntry) {
        self.batch.extend(self.log.note(entry, self.clock.now_ms()));
        if self.batch.len() >= BATCH_MAX {
            self.write().await;
        }
    }

    async fn write(&mut self) {
        let rows = std::mem::take(&mut self.batch);
        if rows.is_empty() {
            return;
        }
        let sandboxes: Vec<SandboxId> = rows.iter().map(|row| row.sandbox.clone()).collect();
        let written = async {
            self.catalog.append_egress(rows).await?;
            for id in self.log.written(&sandboxes) {
                self.catalog.prune_egress_of(&id).await?;
            }
            Ok::<_, burrow_catalog::CatalogError>(())
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "could not write the egress log");
        }
    }
}

// === What the daemon's surfaces ask ===

impl Engine {
    /// What a sandbox may reach, with its sets replaced by their rules.
    pub fn egress_in_force(&self, row: &SandboxRow) -> EgressInForce {
        self.shared.policy.egress.in_force(&row.spec.network)
    }

    /// What a sandbox gets whose creator does not say.
    pub fn default_network(&self) -> &NetworkPolicy {
        &self.shared.policy.egress.default
    }

    /// Whether the egress process answers.
    pub async fn egress_ready(&self) -> Result<(), EngineError> {
        self.shared.seams.egress.attached().await?;
        Ok(())
    }

    pub fn egress_totals(&self) -> EgressTotals {
        self.shared.egress.totals()
    }

    /// What a running sandbox has used since it started; `None` of one that does not run.
    pub async fn egress_counters(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Option<Counters>, EngineError> {
        self.get(tenant, id).await?;
        match self.shared.seams.egress.counters(id).await {
            Ok(counters) => Ok(Some(counters)),
            Err(EgressError::NotAttached { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the egress process try, for a sandbox that runs.
    pub async fn egress_trial(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        target: &Target,
    ) -> Result<Trial, EngineError> {
        self.get(tenant, id).await?;
        Ok(self.shared.seams.egress.trial(id, target).await?)
    }

    /// What a sandbox was denied in a span of time, each host and port once, the first [`DENIED_MAX`] of them.
    /// `settle` waits for what the egress process may have to tell still.
    pub async fn denied_during(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        from_ms: u64,
        to_ms: u64,
        settle: bool,
    ) -> Vec<Denied> {
        if settle {
            // It tells what happened before it answers what it is asked afterwards.
            let _ = tokio::time::timeout(SETTLE_TIME, self.shared.seams.egress.counters(id)).await;
            self.shared.egress.take_in().await;
        }
        let found = match self.shared.egress.recent(id, from_ms, to_ms) {
            Some(found) => found,
            None => self.denied_before(tenant, id, from_ms, to_ms).await,
        };
        let mut seen = HashSet::new();
        let mut first_of = |denied: &Denied| seen.insert((denied.host.clone(), denied.port));
        found.into_iter().filter(|denied| first_of(denied)).take(DENIED_MAX).collect()
    }

    async fn denied_before(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        from_ms: u64,
        to_ms: u64,
    ) -> Vec<Denied> {
        let limit = u32::try_from(RECENT_MAX).unwrap_or(u32::MAX);
        let rows = self.shared.seams.catalog.egress_denied(tenant, id, from_ms, to_ms, limit).await;
        let rows = rows.unwrap_or_else(|error| {
            tracing::warn!(sandbox = %id, %error, "could not look up what a sandbox was denied");
            Vec::new()
        });
        let denied = |row: EgressRow| Denied {
            at_ms: row.at_ms,
            until_ms: row.at_ms,
            host: row.host,
            port: row.port,
            reason: row.reason.unwrap_or_default(),
        };
        rows.into_iter().map(denied).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_model::NetworkMode;

    fn settings() -> EgressSettings {
        let sets = [("ours".parse().unwrap(), vec!["*.example.com".parse().unwrap()])];
        EgressSettings { default: NetworkPolicy::closed(), sets: sets.into(), allow_ranges: Vec::new() }
    }

    fn network(sets: &[&str]) -> NetworkPolicy {
        NetworkPolicy {
            mode: NetworkMode::Allowlist,
            rules: vec!["example.org".parse().unwrap()],
            sets: sets.iter().map(|set| set.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn an_unknown_set_is_refused_with_those_there_are() {
        settings().check(&network(&["ours"])).unwrap();
        let error = settings().check(&network(&["theirs"])).unwrap_err();
        assert_eq!(error.to_string(), "no host set `theirs`; there are `ours`");
    }

    #[test]
    fn a_set_that_went_from_the_configuration_allows_nothing_and_is_told() {
        let in_force = settings().in_force(&network(&["ours", "theirs"]));
        assert_eq!(in_force.missing, ["theirs".parse().unwrap()]);
        let rules: Vec<_> = in_force
            .rules
            .iter()
            .map(|(rule, set)| (rule.to_string(), set.as_ref().map(Name::to_string)))
            .collect();
        let ours = ("*.example.com".to_owned(), Some("ours".to_owned()));
        assert_eq!(rules, [("example.org".to_owned(), None), ours]);
    }

    fn watched() -> Watched {
        let tenant = TenantId::generate();
        Watched { tenant, since_ms: 5, denied: VecDeque::new(), unpruned: 0 }
    }

    #[test]
    fn denials_are_remembered_up_to_a_bound_and_what_was_dropped_is_known_to_be_missing() {
        let mut watched = watched();
        for at_ms in 0..RECENT_MAX as u64 + 10 {
            let host = format!("{at_ms}.example");
            let at_ms = 100 + at_ms;
            watched.remember(Denied { at_ms, until_ms: at_ms, host, port: None, reason: String::new() });
        }
        assert_eq!(watched.denied.len(), RECENT_MAX);
        assert_eq!(watched.since_ms, 110);
    }
}
