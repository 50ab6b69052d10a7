//! The pre-created sandboxes that are ready, by kind.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_model::{ImageId, Limits, SandboxId, TenantId};
use burrow_network::Dial;
use burrow_runtime::{PrecreatedMachine, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::WarmPoolPolicy;

/// Kinds kept at once. More would use RAM and disk for sandboxes that may never be requested.
const KINDS_MAX: usize = 3;

/// Kinds remembered that were requested once.
const SEEN_MAX: usize = 16;

/// Created concurrently. A snapshot waits for the disk and a machine for the processor, so two overlap well; more would take the
/// host's processors from running sandboxes.
const PARALLEL: usize = 2;

/// The most kept of a kind whose machines use much RAM.
const HEAVY_READY: usize = 2;

/// The properties a create must request to be served from the warm pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tenant: TenantId,
    pub(crate) image: ImageId,
    pub(crate) driver: String,
    pub(crate) limits: Limits,
}

/// A pre-created sandbox, and all it needs to become a sandbox.
#[derive(Debug)]
pub(crate) struct WarmSandbox {
    pub(crate) id: SandboxId,
    pub(crate) kind: Kind,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) begun: PrecreatedMachine,
    pub(crate) runtime: Arc<dyn Runtime>,
}

#[derive(Debug)]
pub(crate) struct WarmPool {
    pub(super) policy: WarmPoolPolicy,
    state: Mutex<State>,
    pub(super) changed: Notify,
    pub(super) worker: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Most recently used first.
    pub(super) kinds: VecDeque<Kind>,
    seen: VecDeque<Kind>,
    pub(super) ready: Vec<WarmSandbox>,
    pub(super) making: Vec<Kind>,
    heavy: Vec<&'static str>,
    /// Filling continues until all kinds are full.
    pub(super) filling: bool,
    pub(super) closed: bool,
}

impl WarmPool {
    /// `heavy` names the drivers whose machines take tens of megabytes of RAM each.
    pub(crate) fn new(policy: WarmPoolPolicy, heavy: Vec<&'static str>) -> Self {
        Self {
            policy,
            state: Mutex::new(State { heavy, ..State::default() }),
            changed: Notify::new(),
            worker: tokio::sync::Mutex::default(),
        }
    }

    /// Ends the worker and removes all pre-created sandboxes. Returns when both is done.
    pub(crate) async fn shutdown(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        if let Some(worker) = self.worker.lock().await.take()
            && worker.await.is_err()
        {
            tracing::error!("the task that fills the warm pool panicked");
        }
    }

    /// Takes a pre-created sandbox of this kind, if there is one. Also records that the kind is in use.
    pub(crate) fn take(&self, kind: &Kind) -> Option<WarmSandbox> {
        if self.policy.ready == 0 {
            return None;
        }
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.note_use(kind, self.policy.is_usual(kind));
        let found = state.ready.iter().position(|ready| ready.kind == *kind);
        let taken = found.map(|at| state.ready.remove(at));
        drop(state);
        self.changed.notify_one();
        taken
    }

    /// The number of pre-created sandboxes that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.missing(self.policy.ready).is_empty() && state.making.is_empty()
    }

    /// Decides whether to fill: starts after a quiet period or when half is used up, and continues until all kinds are full.
    pub(super) fn note_pace(&self, quiet: bool) {
        let mut state = self.lock();
        let full = state.kinds.iter().all(|kind| state.count(kind) >= state.wanted(kind, self.policy.ready));
        state.filling = !full && (state.filling || quiet || state.is_low(self.policy.ready));
    }

    /// Waits for this time, or until the warm pool is closed.
    pub(super) async fn rest(&self, time: Duration) {
        let closed = async {
            while !self.lock().closed {
                self.changed.notified().await;
            }
        };
        // A timeout is the expected result.
        let _ = tokio::time::timeout(time, closed).await;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmPoolPolicy {
    /// Whether most creates will request this kind.
    fn is_usual(&self, kind: &Kind) -> bool {
        kind.driver == self.driver && kind.limits == self.limits
    }
}

impl State {
    pub(super) fn note_use(&mut self, kind: &Kind, usual: bool) {
        let known = self.kinds.contains(kind);
        if known || usual || self.seen.contains(kind) {
            self.kinds.retain(|known| known != kind);
            self.seen.retain(|seen| seen != kind);
            self.kinds.push_front(kind.clone());
            self.kinds.truncate(KINDS_MAX);
        } else {
            self.seen.push_front(kind.clone());
            self.seen.truncate(SEEN_MAX);
        }
    }

    /// The kinds of which some are missing, most recently used first; at most as many entries as may still be created concurrently.
    pub(super) fn missing(&self, wanted: usize) -> Vec<Kind> {
        let mut missing = Vec::new();
        for kind in &self.kinds {
            let wanted = self.wanted(kind, wanted);
            missing.extend(std::iter::repeat_n(kind.clone(), wanted.saturating_sub(self.count(kind))));
        }
        missing.truncate(PARALLEL.saturating_sub(self.making.len()));
        missing
    }

    /// Whether half or more of some kind is used up.
    fn is_low(&self, wanted: usize) -> bool {
        self.kinds.iter().any(|kind| self.count(kind) <= self.wanted(kind, wanted) / 2)
    }

    /// How many of a kind are kept if `ready` are configured.
    fn wanted(&self, kind: &Kind, ready: usize) -> usize {
        if self.heavy.contains(&kind.driver.as_str()) { ready.min(HEAVY_READY) } else { ready }
    }

    /// How many are ready or being created.
    fn count(&self, kind: &Kind) -> usize {
        let ready = self.ready.iter().filter(|ready| ready.kind == *kind).count();
        ready + self.making.iter().filter(|making| *making == kind).count()
    }

    pub(super) fn forget_image(&mut self, image: &ImageId) -> Vec<WarmSandbox> {
        self.kinds.retain(|kind| kind.image != *image);
        self.seen.retain(|kind| kind.image != *image);
        self.take_where(|kind| kind.image == *image)
    }

    pub(super) fn take_where(&mut self, unwanted: impl Fn(&Kind) -> bool) -> Vec<WarmSandbox> {
        let (stale, kept) = self.ready.drain(..).partition(|ready| unwanted(&ready.kind));
        self.ready = kept;
        stale
    }

    /// Takes out the pre-created sandboxes whose kind is no longer kept.
    pub(super) fn take_stale(&mut self) -> Vec<WarmSandbox> {
        let kinds = self.kinds.clone();
        self.take_where(|kind| !kinds.contains(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(ram_mib: u32) -> Kind {
        Kind {
            tenant: TenantId::generate(),
            image: ImageId::generate(),
            driver: "sim".to_owned(),
            limits: Limits { ram_mib, cpu_millis: 1000, pids: 64, disk_mib: 64 },
        }
    }

    #[test]
    fn a_non_default_kind_is_kept_from_its_second_use() {
        let mut state = State::default();
        let (usual, odd) = (kind(64), kind(128));
        state.note_use(&usual, true);
        assert_eq!(state.kinds, std::slice::from_ref(&usual));
        state.note_use(&odd, false);
        assert_eq!(state.kinds, std::slice::from_ref(&usual));
        state.note_use(&odd, false);
        assert_eq!(state.kinds, [odd, usual]);
        assert!(state.seen.is_empty());
    }

    #[test]
    fn the_least_recently_used_kind_is_dropped() {
        let mut state = State::default();
        let kinds: Vec<Kind> = (1..=4).map(|n| kind(n * 64)).collect();
        kinds.iter().take(KINDS_MAX).for_each(|kind| state.note_use(kind, true));
        state.note_use(&kinds[0], true);
        state.note_use(&kinds[3], true);
        assert!(state.kinds.contains(&kinds[0]) && state.kinds.contains(&kinds[3]), "{:?}", state.kinds);
        assert_eq!(state.kinds.len(), KINDS_MAX);
    }

    #[test]
    fn sandboxes_in_creation_count_as_present() {
        let mut state = State::default();
        let kind = kind(64);
        state.note_use(&kind, true);
        assert_eq!(state.missing(3).len(), PARALLEL);
        state.making.push(kind.clone());
        assert_eq!(state.missing(1).len(), 0);
        assert_eq!(state.missing(100).len(), PARALLEL - 1);
        state.making.push(kind);
        assert_eq!(state.missing(3).len(), 0);
    }

    #[test]
    fn few_sandboxes_of_heavy_kinds_are_kept() {
        let mut state = State { heavy: vec!["sim"], ..State::default() };
        let kind = kind(64);
        state.note_use(&kind, true);
        assert_eq!(
            (state.wanted(&kind, 8), state.wanted(&kind, 1), state.wanted(&kind, 0)),
            (HEAVY_READY, 1, 0)
        );
        state.making.extend([kind.clone(), kind]);
        assert_eq!(state.missing(8).len(), 0);
    }
}
