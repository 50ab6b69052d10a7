//! What the daemon remembers about execs between their start and their recording in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_catalog::SandboxRow;
use burrow_memory::remember::{EarlierCommand, ExecFacts, RelatedMemory};
use burrow_model::{ExecId, MemoryRef, SandboxId};
use tokio::sync::Semaphore;

/// Execs that are being recorded at once. Beyond this they arrive faster than a disk can write, and some are not recorded.
const AT_ONCE_MAX: usize = 256;

/// Execs that are known to be recorded: several requests may watch one to its end.
const RECORDED_MAX: usize = 10_000;

/// Detached execs whose end is awaited. Beyond this, an exec is recorded only when a request asks for it.
const FOLLOWED_MAX: usize = 1_024;

/// Execs whose secrets are kept in RAM.
const GIVEN_MAX: usize = 4_096;

/// Successful commands that are kept in RAM, for all sandboxes: a few megabytes. Then, how many of one sandbox are used.
const WENT_WELL_MAX: usize = 10_000;
const EARLIER_MAX: usize = 50;

/// Knows which execs were recorded, and limits how many are being recorded.
#[derive(Debug)]
pub(crate) struct ExecRecorder {
    recorded_execs: Mutex<RecordedExecs>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) followed: Arc<Semaphore>,
    /// Secrets that were passed to running execs. Oldest first.
    given: Mutex<VecDeque<(ExecId, Vec<String>)>>,
    /// Recent successful commands of sandboxes that record failures only. Oldest first.
    went_well: Mutex<VecDeque<(SandboxId, EarlierCommand)>>,
    open_failures: Mutex<OpenFailures>,
}

/// Sandboxes whose memory contains no failure that a success could resolve. This is the usual case.
#[derive(Debug, Default)]
struct OpenFailures {
    /// The branch for which this is known. After a restore or a change of the space, the memory is queried again.
    branches: HashMap<SandboxId, MemoryRef>,
    /// Counts failures, before and after each is recorded, so that a query in between is recognised as outdated.
    failures: u64,
}

#[derive(Debug, Default)]
struct RecordedExecs {
    /// With the related entries that were found, for later requests.
    execs: HashMap<ExecId, Vec<RelatedMemory>>,
    order: VecDeque<ExecId>,
}

impl ExecRecorder {
    pub(crate) fn new() -> Self {
        Self {
            recorded_execs: Mutex::default(),
            slots: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            followed: Arc::new(Semaphore::new(FOLLOWED_MAX)),
            given: Mutex::default(),
            went_well: Mutex::default(),
            open_failures: Mutex::default(),
        }
    }

    fn open_failures(&self) -> MutexGuard<'_, OpenFailures> {
        self.open_failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a success of this sandbox is known to resolve no failure.
    pub(super) fn has_no_open_failure(&self, row: &SandboxRow) -> bool {
        let own = row.spec.memory.space.is_none();
        own && self.open_failures().branches.get(&row.id).is_some_and(|branch| *branch == row.memory())
    }

    /// The number of failures so far, for [`ExecRecorder::set_no_open_failure`].
    pub(super) fn failures(&self) -> u64 {
        self.open_failures().failures
    }

    /// Records that a query, which started at this number of failures, found no open failure. A shared space is queried
    /// every time.
    pub(super) fn set_no_open_failure(&self, row: &SandboxRow, failures: u64) {
        let mut open_failures = self.open_failures();
        if open_failures.failures == failures && row.spec.memory.space.is_none() {
            if open_failures.branches.len() >= RECORDED_MAX {
                open_failures.branches.clear();
            }
            open_failures.branches.insert(row.id.clone(), row.memory());
        }
    }

    /// To be called before and after a failure is recorded.
    pub(super) fn failing(&self, sandbox: &SandboxId) {
        let mut open_failures = self.open_failures();
        open_failures.failures += 1;
        open_failures.branches.remove(sandbox);
    }

    fn recorded_execs(&self) -> MutexGuard<'_, RecordedExecs> {
        self.recorded_execs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the secrets that were passed to an exec until it has ended, so that none of them is recorded.
    pub(in crate::execs) fn given(&self, exec: &ExecId, secrets: Vec<String>) {
        if secrets.is_empty() {
            return;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.push_back((exec.clone(), secrets));
        if given.len() > GIVEN_MAX {
            given.pop_front();
        }
    }

    /// The secrets that were passed to an exec that has ended, which are no longer kept.
    pub(super) fn take_secrets(&self, exec: &ExecId) -> Vec<String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let at = given.iter().position(|(of, _)| of == exec);
        at.and_then(|at| given.remove(at)).map(|(_, secrets)| secrets).unwrap_or_default()
    }

    /// Keeps a successful command: it may be the fix of a failure.
    pub(super) fn note(&self, sandbox: &SandboxId, facts: &ExecFacts) {
        let Some(earlier) = EarlierCommand::of(&facts.command, facts.at_ms) else { return };
        let mut went_well = self.went_well.lock().unwrap_or_else(PoisonError::into_inner);
        went_well.push_back((sandbox.clone(), earlier));
        if went_well.len() > WENT_WELL_MAX {
            went_well.pop_front();
        }
    }

    pub(super) fn went_well(&self, sandbox: &SandboxId) -> Vec<EarlierCommand> {
        let went_well = self.went_well.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = went_well.iter().rev().filter(|(of, _)| of == sandbox);
        of_it.take(EARLIER_MAX).map(|(_, earlier)| earlier.clone()).collect()
    }

    /// The related entries of an exec that is already recorded.
    pub(super) fn known(&self, exec: &ExecId) -> Option<Vec<RelatedMemory>> {
        self.recorded_execs().execs.get(exec).cloned()
    }

    /// Keeps the related entries for later requests.
    pub(super) fn found(&self, exec: &ExecId, related: &[RelatedMemory]) {
        if let Some(known) = self.recorded_execs().execs.get_mut(exec) {
            *known = related.to_vec();
        }
    }

    /// Whether this is the first report of this exec's end.
    pub(super) fn first(&self, exec: &ExecId) -> bool {
        let mut recorded_execs = self.recorded_execs();
        if recorded_execs.execs.contains_key(exec) {
            return false;
        }
        recorded_execs.execs.insert(exec.clone(), Vec::new());
        recorded_execs.order.push_back(exec.clone());
        if recorded_execs.order.len() > RECORDED_MAX
            && let Some(oldest) = recorded_execs.order.pop_front()
        {
            recorded_execs.execs.remove(&oldest);
        }
        true
    }
}
