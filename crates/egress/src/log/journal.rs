//! Collects log entries until the daemon reads them, and combines repeated entries.
//!
//! The first entry of its kind is ready at once. Similar entries within [`FOLD_MS`] are combined into one more entry
//! with their count. So a flood from one sandbox causes few entries, and all queues are limited.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burrow_model::SandboxId;
use tokio::sync::Notify;

use super::{LogEntry, LogKind, Verdict};
use crate::policy::DetectedProtocol;

/// Similar entries within this time are combined.
const FOLD_MS: u64 = 5_000;

/// Different kinds of entries of one sandbox within [`FOLD_MS`]; further ones are combined as "other hosts".
const KINDS_MAX: usize = 256;

/// Largest number of entries kept while no daemon is connected: some megabytes.
const READY_MAX: usize = 16_384;

/// The host in entries that combine further hosts.
const OTHER_HOSTS: &str = "(other hosts)";

#[derive(Debug, Default)]
pub(crate) struct Journal {
    state: Mutex<State>,
    /// Notified when entries are ready.
    pub(crate) ready: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Recent entries, by kind. The stored entry combines similar events since the last one that was made ready;
    /// `None` if there were none.
    recent: HashMap<SandboxId, HashMap<Key, RecentEntry>>,
    ready: VecDeque<LogEntry>,
    dropped: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: LogKind,
    host: String,
    port: u16,
    protocol: Option<DetectedProtocol>,
    verdict: Verdict,
    cause: Option<String>,
    lasts: bool,
}

#[derive(Debug)]
struct RecentEntry {
    since_ms: u64,
    more: Option<LogEntry>,
}

impl Journal {
    /// Adds an entry.
    pub(crate) fn record(&self, mut entry: LogEntry, now_ms: u64) {
        let mut state = self.state();
        let recent = state.recent.entry(entry.sandbox.clone()).or_default();
        let mut key = key_of(&entry);
        if recent.len() >= KINDS_MAX && !recent.contains_key(&key) {
            entry.host = OTHER_HOSTS.to_owned();
            (entry.reason, entry.rule, entry.port, entry.address) = (None, None, 0, None);
            key = key_of(&entry);
        }
        match recent.get_mut(&key) {
            None => {
                recent.insert(key, RecentEntry { since_ms: now_ms, more: None });
                state.push(entry);
                drop(state);
                self.ready.notify_one();
            }
            Some(RecentEntry { more: Some(more), .. }) => fold(more, &entry),
            Some(recent) => recent.more = Some(entry),
        }
    }

    /// Makes combined entries ready when their time is over. Called about once per second.
    pub(crate) fn tick(&self, now_ms: u64) {
        let mut state = self.state();
        let mut over = Vec::new();
        for recent in state.recent.values_mut() {
            recent.retain(|_, recent| {
                let lasts = now_ms.saturating_sub(recent.since_ms) < FOLD_MS;
                if !lasts {
                    over.extend(recent.more.take());
                }
                lasts
            });
        }
        state.recent.retain(|_, recent| !recent.is_empty());
        let any = !over.is_empty();
        over.into_iter().for_each(|entry| state.push(entry));
        drop(state);
        if any {
            self.ready.notify_one();
        }
    }

    /// Makes the combined entries of one sandbox ready now, because a client asks for its complete log.
    pub(crate) fn unfold(&self, id: &SandboxId) {
        let mut state = self.state();
        let recent = state.recent.get_mut(id).into_iter().flat_map(HashMap::values_mut);
        let folded: Vec<LogEntry> = recent.filter_map(|recent| recent.more.take()).collect();
        folded.into_iter().for_each(|entry| state.push(entry));
    }

    /// Removes and returns up to `max` ready entries.
    pub(crate) fn take(&self, max: usize) -> Vec<LogEntry> {
        let mut state = self.state();
        let count = state.ready.len().min(max);
        state.ready.drain(..count).collect()
    }

    /// Puts back entries that could not be delivered.
    pub(crate) fn give_back(&self, entries: Vec<LogEntry>) {
        let mut state = self.state();
        for entry in entries.into_iter().rev() {
            state.ready.push_front(entry);
        }
        while state.ready.len() > READY_MAX {
            state.ready.pop_back();
            state.dropped += 1;
        }
    }

    /// The number of entries that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, entry: LogEntry) {
        if self.ready.len() < READY_MAX {
            self.ready.push_back(entry);
        } else {
            self.dropped += entry.count;
        }
    }
}

fn key_of(entry: &LogEntry) -> Key {
    Key {
        kind: entry.kind,
        host: entry.host.clone(),
        port: entry.port,
        protocol: entry.protocol,
        verdict: entry.verdict,
        cause: entry.reason.clone().or_else(|| entry.rule.clone()),
        lasts: entry.duration_ms.is_none(),
    }
}

fn fold(into: &mut LogEntry, entry: &LogEntry) {
    into.count += entry.count;
    into.last_ms = into.last_ms.max(entry.last_ms);
    into.bytes_in = into.bytes_in.saturating_add(entry.bytes_in);
    into.bytes_out = into.bytes_out.saturating_add(entry.bytes_out);
    into.duration_ms = into.duration_ms.max(entry.duration_ms);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sandbox: &SandboxId, host: &str) -> LogEntry {
        LogEntry {
            sandbox: sandbox.clone(),
            at_ms: 1,
            last_ms: 1,
            kind: LogKind::Tcp,
            host: host.to_owned(),
            port: 443,
            protocol: Some(DetectedProtocol::Tls),
            verdict: Verdict::Deny,
            rule: None,
            reason: Some("no".to_owned()),
            address: None,
            bytes_in: 1,
            bytes_out: 2,
            duration_ms: None,
            count: 1,
        }
    }

    #[test]
    fn the_first_entry_is_ready_at_once_and_the_rest_are_combined() {
        let (journal, id) = (Journal::default(), SandboxId::generate());
        for _ in 0..100 {
            journal.record(entry(&id, "a.example"), 0);
        }
        assert_eq!(journal.take(10).len(), 1);
        journal.tick(FOLD_MS - 1);
        assert_eq!(journal.take(10), []);
        journal.tick(FOLD_MS);
        let rest = journal.take(10);
        assert_eq!((rest.len(), rest[0].count, rest[0].bytes_in), (1, 99, 99));
        journal.record(entry(&id, "a.example"), FOLD_MS);
        assert_eq!(journal.take(10).len(), 1, "a new period starts");
    }

    #[test]
    fn e_n10_a_flood_of_hosts_causes_a_limited_number_of_entries() {
        let (journal, noisy, quiet) = (Journal::default(), SandboxId::generate(), SandboxId::generate());
        for number in 0..100_000 {
            journal.record(entry(&noisy, &format!("n{number}.example")), 0);
        }
        journal.record(entry(&quiet, "a.example"), 0);
        let cause = journal.take(usize::MAX);
        assert_eq!(cause.len(), KINDS_MAX + 2);
        assert_eq!(cause.last().unwrap().sandbox, quiet, "entries of other sandboxes are not affected");
        journal.tick(FOLD_MS);
        let rest = journal.take(usize::MAX);
        assert_eq!((rest.len(), rest[0].host.as_str()), (1, OTHER_HOSTS));
        assert_eq!(rest[0].count, 100_000 - KINDS_MAX as u64 - 1);
        assert!(journal.state().recent.is_empty());
    }

    #[test]
    fn entries_that_are_not_read_are_dropped_and_counted() {
        let journal = Journal::default();
        for _ in 0..READY_MAX + 5 {
            journal.record(entry(&SandboxId::generate(), "a.example"), 0);
        }
        assert_eq!(journal.dropped(), 5);
        let taken = journal.take(3);
        journal.give_back(taken.clone());
        assert_eq!(journal.take(3), taken);
    }

    #[test]
    fn combined_entries_of_one_sandbox_are_ready_on_request() {
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        let journal = Journal::default();
        for sandbox in [&one, &one, &one, &other, &other] {
            journal.record(entry(sandbox, "a.example"), 0);
        }
        assert_eq!(journal.take(10).len(), 2, "the first of each");
        journal.unfold(&one);
        let cause = journal.take(10);
        assert_eq!(cause.iter().map(|entry| (&entry.sandbox, entry.count)).collect::<Vec<_>>(), [(&one, 2)]);
    }
}
