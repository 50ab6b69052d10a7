//! Passes log entries of sandboxes' traffic from the egress process to the catalog: recent denials for the execs that run now,
//! totals for metrics, rows in batches.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_catalog::{Catalog, EgressKind, EgressRow, EgressVerdict, SandboxRow};
use burrow_egress::{DetectedProtocol, LogEntry, LogKind, Verdict};
use burrow_model::{Name, SandboxId, TenantId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::Seams;

/// Denials kept in RAM per sandbox for the execs that run now; older ones are read from the catalog.
pub(super) const RECENT_MAX: usize = 256;

/// Entries of one commit, and how long the first of them may wait for more.
const BATCH_MAX: usize = 256;
const BATCH_TIME: Duration = Duration::from_millis(200);

/// Rows of one sandbox between two prunings of its log.
const PRUNE_EVERY: usize = 1_000;

/// Counts since the daemon started, over all sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressTotals {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// Traffic of a sandbox that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedTraffic {
    pub at_ms: u64,
    /// The time of the last one, if several equal denials were reported together.
    pub until_ms: u64,
    pub host: String,
    /// `None` if the name itself was refused.
    pub port: Option<u16>,
    pub reason: String,
    /// The smallest host set that allows it.
    pub set: Option<Name>,
}

/// The state of sandboxes' traffic logs and policies, between the egress process and the catalog.
#[derive(Debug)]
pub(crate) struct EgressLog {
    known: Mutex<LogState>,
    /// The generation of the last policy that was passed on.
    generation: AtomicU64,
    totals: Totals,
    /// Asks the writer to store everything received so far; closed to end it.
    flush: Mutex<Option<mpsc::Sender<oneshot::Sender<()>>>>,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct LogState {
    sandboxes: HashMap<SandboxId, SandboxLog>,
    /// Running sandboxes whose policy must still be applied.
    due_policies: HashSet<SandboxId>,
    /// Secrets that a sandbox's rules name but that were not granted, and why.
    withheld: HashMap<SandboxId, HashMap<Name, String>>,
    /// Held while a sandbox's policy is read and passed on, so that the last policy passed on is the newest.
    policy_locks: HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
struct SandboxLog {
    tenant: TenantId,
    /// The time from which `denied` is complete.
    since_ms: u64,
    denied: VecDeque<DeniedTraffic>,
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
            generation: AtomicU64::new(0),
            totals: Totals::default(),
            flush: Mutex::default(),
            writer: tokio::sync::Mutex::default(),
        }
    }

    /// Starts to receive the log of the egress process.
    pub(crate) async fn start(self: &Arc<Self>, seams: &Seams) {
        let Some(entries) = seams.egress.log() else { return };
        let (flush, flushes) = mpsc::channel(BATCH_MAX);
        *self.flush.lock().unwrap_or_else(PoisonError::into_inner) = Some(flush);
        let writer = Writer { log: self.clone(), catalog: seams.catalog.clone(), batch: Vec::new() };
        *self.writer.lock().await = Some(tokio::spawn(writer.run(entries, flushes)));
    }

    /// Stores everything received, and ends.
    pub(crate) async fn shutdown(&self) {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = self.writer.lock().await.take()
            && writer.await.is_err()
        {
            tracing::error!("the writer of the egress log panicked");
        }
    }

    /// Returns when everything that the egress process has sent so far is stored.
    pub(super) async fn store_received(&self) {
        let (done, taken) = oneshot::channel();
        let queue = self.flush.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(queue) = queue
            && queue.try_send(done).is_ok()
        {
            let _ = taken.await;
        }
    }

    pub(super) fn watch(&self, row: &SandboxRow, now_ms: u64) {
        let fresh = || SandboxLog {
            tenant: row.tenant.clone(),
            since_ms: now_ms,
            denied: VecDeque::new(),
            unpruned: 0,
        };
        self.known().sandboxes.entry(row.id.clone()).or_insert_with(fresh);
    }

    /// Removes the state of a sandbox that was deleted.
    pub(crate) fn forget(&self, id: &SandboxId) {
        let mut known = self.known();
        known.sandboxes.remove(id);
        known.due_policies.remove(id);
        known.withheld.remove(id);
        known.policy_locks.remove(id);
    }

    /// Waits until no other task passes on this sandbox's policy.
    pub(super) async fn lock_policy(&self, id: &SandboxId) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = self.known().policy_locks.entry(id.clone()).or_default().clone();
        lock.lock_owned().await
    }

    /// Larger than all earlier generations, including those of earlier daemons.
    pub(super) fn next_generation(&self, now_ms: u64) -> u64 {
        self.generation.fetch_max(now_ms, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn withhold(&self, id: &SandboxId, secrets: HashMap<Name, String>) {
        let mut known = self.known();
        match secrets.is_empty() {
            true => known.withheld.remove(id),
            false => known.withheld.insert(id.clone(), secrets),
        };
    }

    pub(super) fn withheld(&self, id: &SandboxId) -> HashMap<Name, String> {
        self.known().withheld.get(id).cloned().unwrap_or_default()
    }

    /// False if it was due already.
    pub(super) fn mark_due(&self, id: &SandboxId) -> bool {
        self.known().due_policies.insert(id.clone())
    }

    pub(crate) fn settle(&self, id: &SandboxId) {
        self.known().due_policies.remove(id);
    }

    /// Sandboxes whose policy must be applied again.
    pub(crate) fn due_policies(&self) -> Vec<SandboxId> {
        self.known().due_policies.iter().cloned().collect()
    }

    pub(super) fn totals(&self) -> EgressTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EgressTotals {
            allowed: read(&self.totals.allowed),
            denied: read(&self.totals.denied),
            failed: read(&self.totals.failed),
            sent_bytes: read(&self.totals.sent),
            received_bytes: read(&self.totals.received),
        }
    }

    /// Denials in a time span, if all of them are still kept in RAM.
    pub(super) fn recent(&self, id: &SandboxId, from_ms: u64, to_ms: u64) -> Option<Vec<DeniedTraffic>> {
        let known = self.known();
        let watched = known.sandboxes.get(id)?;
        if watched.since_ms > from_ms {
            return None;
        }
        let within = |denied: &&DeniedTraffic| denied.at_ms <= to_ms && denied.until_ms >= from_ms;
        Some(watched.denied.iter().filter(within).cloned().collect())
    }

    /// Counts an entry and converts it to a row; `None` for an unknown sandbox.
    fn note(&self, entry: LogEntry) -> Option<EgressRow> {
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
            // Counted when it ends: that entry has the bytes of the whole connection.
            EgressVerdict::Allowed => 0,
        };
        let port = Some(entry.port).filter(|port| *port != 0);
        let mut known = self.known();
        let watched = known.sandboxes.get_mut(&entry.sandbox)?;
        if verdict == EgressVerdict::Denied {
            watched.remember(DeniedTraffic {
                at_ms: entry.at_ms,
                until_ms: entry.last_ms,
                host: entry.host.clone(),
                port,
                reason: entry.reason.clone().unwrap_or_else(|| "not allowed".to_owned()),
                set: None,
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

    /// Counts stored rows. Returns the sandboxes whose log is due for pruning.
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

    fn known(&self) -> MutexGuard<'_, LogState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SandboxLog {
    fn remember(&mut self, denied: DeniedTraffic) {
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
        (LogKind::Tcp, Some(DetectedProtocol::Tls)) => EgressKind::Tls,
        (LogKind::Tcp, Some(DetectedProtocol::Http)) => EgressKind::Http,
        (LogKind::Tcp, Some(DetectedProtocol::Tcp) | None) => EgressKind::Tcp,
    }
}

/// Receives entries and stores them, in batches limited by size and time.
struct Writer {
    log: Arc<EgressLog>,
    catalog: Catalog,
    batch: Vec<EgressRow>,
}

impl Writer {
    async fn run(
        mut self,
        mut entries: mpsc::Receiver<LogEntry>,
        mut flushes: mpsc::Receiver<oneshot::Sender<()>>,
    ) {
        let mut open = true;
        // When the first entry of the batch has waited long enough.
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
                    self.write().await;
                    match flush {
                        Some(done) => drop(done.send(())),
                        None => return,
                    }
                }
                () = tokio::time::sleep_until(due), if waiting => self.write().await,
            }
        }
    }

    async fn take(&mut self, entry: LogEntry) {
        self.batch.extend(self.log.note(entry));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> SandboxLog {
        let tenant = TenantId::generate();
        SandboxLog { tenant, since_ms: 5, denied: VecDeque::new(), unpruned: 0 }
    }

    #[test]
    fn denials_are_kept_up_to_a_limit_and_dropped_ones_are_known_to_be_missing() {
        let mut watched = watched();
        for at_ms in 0..RECENT_MAX as u64 + 10 {
            let host = format!("{at_ms}.example");
            let at_ms = 100 + at_ms;
            watched.remember(DeniedTraffic {
                at_ms,
                until_ms: at_ms,
                host,
                port: None,
                reason: String::new(),
                set: None,
            });
        }
        assert_eq!(watched.denied.len(), RECENT_MAX);
        assert_eq!(watched.since_ms, 110);
    }
}
