//! What the daemon keeps in mind of execs between their start and their being remembered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_api::Exec;
use burrow_api::memory::RelatedMemory;
use burrow_catalog::SandboxRow;
use burrow_memory::remember::{Earlier, ExecFacts};
use burrow_model::{ExecId, MemoryRef, SandboxId};
use tokio::sync::Semaphore;

/// Execs being remembered at once. Beyond that they come faster than a disk can write, and some are let go.
const AT_ONCE_MAX: usize = 256;

/// Execs of which it is known that they were remembered: several may watch one to its end.
const SEEN_MAX: usize = 10_000;

/// Execs nobody waits for whose end is waited for here. Of more than these the end is seen when somebody asks.
const FOLLOWED_MAX: usize = 1_024;

/// Execs whose secrets are kept in mind.
const GIVEN_MAX: usize = 4_096;

/// Commands that went well which are kept in mind, of all sandboxes: a few megabytes. And of one, to be asked for.
const WENT_WELL_MAX: usize = 10_000;
const EARLIER_MAX: usize = 50;

/// Which execs were remembered, and how many are about to be.
#[derive(Debug)]
pub(crate) struct Remembering {
    seen: Mutex<Seen>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) followed: Arc<Semaphore>,
    /// What execs that run were given and is secret. Oldest first.
    given: Mutex<VecDeque<(String, Vec<String>)>>,
    /// What went well lately, of sandboxes that remember failures only. Oldest first.
    went_well: Mutex<VecDeque<(SandboxId, Earlier)>>,
    calm: Mutex<Calm>,
}

/// Sandboxes whose own memory holds no failure that a success might end: most, most of the time.
#[derive(Debug, Default)]
struct Calm {
    /// On which branch: one that goes back, or is moved to another, is asked again.
    branches: HashMap<SandboxId, MemoryRef>,
    /// Counts failures, before and after each is recorded: who looked in between looked too early.
    failures: u64,
}

#[derive(Debug, Default)]
struct Seen {
    /// With what was found to be related to them, for who asks later.
    execs: HashMap<String, Vec<RelatedMemory>>,
    order: VecDeque<String>,
}

impl Remembering {
    pub(crate) fn new() -> Self {
        Self {
            seen: Mutex::default(),
            slots: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            followed: Arc::new(Semaphore::new(FOLLOWED_MAX)),
            given: Mutex::default(),
            went_well: Mutex::default(),
            calm: Mutex::default(),
        }
    }

    fn calm(&self) -> MutexGuard<'_, Calm> {
        self.calm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a success of this sandbox is known to end no failure.
    pub(super) fn is_calm(&self, row: &SandboxRow) -> bool {
        let own = row.spec.memory.space.is_none();
        own && self.calm().branches.get(&row.id).is_some_and(|branch| *branch == row.memory())
    }

    /// Failures so far, for [`Remembering::set_calm`].
    pub(super) fn failures(&self) -> u64 {
        self.calm().failures
    }

    /// There was no open failure, as somebody found who began when there were this many. A space that others write to, too,
    /// is asked each time.
    pub(super) fn set_calm(&self, row: &SandboxRow, failures: u64) {
        let mut calm = self.calm();
        if calm.failures == failures && row.spec.memory.space.is_none() {
            if calm.branches.len() >= SEEN_MAX {
                calm.branches.clear();
            }
            calm.branches.insert(row.id.clone(), row.memory());
        }
    }

    /// A failure is about to be recorded, or was.
    pub(super) fn failing(&self, sandbox: &SandboxId) {
        let mut calm = self.calm();
        calm.failures += 1;
        calm.branches.remove(sandbox);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps secrets that an exec is given in mind until it has ended, so that none of them is remembered.
    pub(crate) fn given(&self, exec: &ExecId, secrets: Vec<String>) {
        if secrets.is_empty() {
            return;
        }
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.push_back((exec.to_string(), secrets));
        if given.len() > GIVEN_MAX {
            given.pop_front();
        }
    }

    /// What an exec that has ended was given; it is not kept any longer.
    pub(super) fn take_secrets(&self, exec: &Exec) -> Vec<String> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let at = given.iter().position(|(of, _)| *of == exec.id);
        at.and_then(|at| given.remove(at)).map(|(_, secrets)| secrets).unwrap_or_default()
    }

    /// Keeps what went well in mind: it may be what mends a failure.
    pub(super) fn note(&self, sandbox: &SandboxId, facts: &ExecFacts) {
        let Some(earlier) = Earlier::of(&facts.command, facts.at_ms) else { return };
        let mut went_well = self.went_well.lock().unwrap_or_else(PoisonError::into_inner);
        went_well.push_back((sandbox.clone(), earlier));
        if went_well.len() > WENT_WELL_MAX {
            went_well.pop_front();
        }
    }

    pub(super) fn went_well(&self, sandbox: &SandboxId) -> Vec<Earlier> {
        let went_well = self.went_well.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = went_well.iter().rev().filter(|(of, _)| of == sandbox);
        of_it.take(EARLIER_MAX).map(|(_, earlier)| earlier.clone()).collect()
    }

    /// What is related to it, where there is nothing left to remember of it.
    pub(super) fn known(&self, exec: &Exec) -> Option<Vec<RelatedMemory>> {
        self.seen().execs.get(&exec.id).cloned()
    }

    /// Keeps what was found for who asks later.
    pub(super) fn found(&self, exec: &Exec, related: &[RelatedMemory]) {
        if let Some(known) = self.seen().execs.get_mut(&exec.id) {
            *known = related.to_vec();
        }
    }

    /// Whether nobody told of this exec's end before.
    pub(super) fn first(&self, exec: &Exec) -> bool {
        let mut seen = self.seen();
        if seen.execs.contains_key(&exec.id) {
            return false;
        }
        seen.execs.insert(exec.id.clone(), Vec::new());
        seen.order.push_back(exec.id.clone());
        if seen.order.len() > SEEN_MAX
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.execs.remove(&oldest);
        }
        true
    }
}
