//! All execs that the agent knows, by id and by pid, and their limits.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use tokio::time::Instant;

use super::Exec;
use super::child_exit::ChildExit;
use crate::agent::failure::fail;
use crate::protocol::{ErrorCode, RequestError};

/// Execs that may run at once. Each uses two pipes, so this also limits descriptors.
const RUNNING_MAX: usize = 1024;

/// Terminals at once; well below the kernel's limit of 4096 for all sandboxes together.
const TERMINALS_MAX: usize = 256;

/// Ended execs that are remembered.
const FINISHED_MAX: usize = 1000;

/// Output that all ended execs may keep together; the oldest execs lose theirs first.
const FINISHED_BYTES_MAX: usize = 16 << 20;

/// Ended execs whose pipe a descendant still holds open; beyond that, pipes are closed at the end.
const LINGERING_MAX: usize = 256;

/// The activity of all execs together.
#[derive(Default)]
pub(in crate::agent) struct ExecActivity {
    /// Without services.
    pub(in crate::agent) running: usize,
    pub(in crate::agent) attached: usize,
    pub(in crate::agent) services: usize,
    /// By [`crate::agent::clock::awake_ms`], without services.
    pub(in crate::agent) active_ms: u64,
}

#[derive(Default)]
pub(in crate::agent) struct Table {
    by_id: RefCell<HashMap<String, Rc<Exec>>>,
    by_pid: RefCell<HashMap<i32, Rc<Exec>>>,
    finished: RefCell<VecDeque<Rc<Exec>>>,
    running: Cell<usize>,
    lingering: Cell<usize>,
}

impl Table {
    pub(in crate::agent) fn get(&self, id: &str) -> Result<Rc<Exec>, RequestError> {
        self.find(id).ok_or_else(|| fail(ErrorCode::NotFound, format_args!("there is no exec `{id}`")))
    }

    pub(in crate::agent) fn find(&self, id: &str) -> Option<Rc<Exec>> {
        self.by_id.borrow().get(id).map(Rc::clone)
    }

    /// All execs, the oldest first.
    pub(in crate::agent) fn all(&self) -> Vec<Rc<Exec>> {
        let mut all: Vec<_> = self.by_id.borrow().values().map(Rc::clone).collect();
        all.sort_by_key(|exec| (exec.started_boot_us, exec.pid));
        all
    }

    pub(in crate::agent) fn running(&self) -> usize {
        self.running.get()
    }

    pub(in crate::agent) fn activity(&self) -> ExecActivity {
        let mut activity = ExecActivity::default();
        for exec in self.by_id.borrow().values() {
            match (exec.supervised.get(), exec.ended()) {
                (true, true) => {}
                (true, false) => activity.services += 1,
                (false, ended) => {
                    activity.active_ms = activity.active_ms.max(exec.active_ms.get());
                    activity.running += usize::from(!ended);
                    activity.attached += usize::from(!ended && exec.readers.get() > 0);
                }
            }
        }
        activity
    }

    /// Fails if no further exec may start.
    pub(super) fn admit(&self, terminal: bool) -> Result<(), RequestError> {
        if self.running.get() >= RUNNING_MAX {
            return Err(fail(
                ErrorCode::TooMany,
                format_args!("the limit of {RUNNING_MAX} running execs is reached"),
            ));
        }
        let terminals = || {
            let by_pid = self.by_pid.borrow();
            by_pid.values().filter(|exec| exec.terminal.is_some()).count()
        };
        if terminal && terminals() >= TERMINALS_MAX {
            return Err(fail(
                ErrorCode::TooMany,
                format_args!("the limit of {TERMINALS_MAX} open terminals is reached"),
            ));
        }
        Ok(())
    }

    /// Must follow the fork without an await, or the reaper could run first.
    pub(super) fn insert(&self, exec: &Rc<Exec>) {
        self.by_id.borrow_mut().insert(exec.id.clone(), Rc::clone(exec));
        self.by_pid.borrow_mut().insert(exec.pid, Rc::clone(exec));
        self.running.set(self.running.get() + 1);
    }

    /// Removes an exec whose program could not be executed.
    pub(super) fn forget(&self, exec: &Rc<Exec>) {
        exec.forgotten.set(true);
        self.remove_id(exec);
        self.finished.borrow_mut().retain(|other| !Rc::ptr_eq(other, exec));
    }

    pub(in crate::agent) fn reaped(&self, reaped: ChildExit) {
        let exec = self.by_pid.borrow_mut().remove(&reaped.pid);
        if let Some(exec) = exec {
            exec.note_reaped(reaped);
        }
    }

    pub(super) fn is_running_pid(&self, pid: i32) -> bool {
        self.by_pid.borrow().contains_key(&pid)
    }

    /// Called when the outcome of a running exec was published.
    pub(super) fn ended(&self) {
        self.running.set(self.running.get().saturating_sub(1));
    }

    /// Called when the output is done: from here on the exec only uses RAM.
    pub(super) fn finished(&self, exec: &Rc<Exec>) {
        if exec.forgotten.get() {
            return;
        }
        exec.log.borrow_mut().trim();
        self.finished.borrow_mut().push_back(Rc::clone(exec));
        while self.finished.borrow().len() > FINISHED_MAX {
            let oldest = self.finished.borrow_mut().pop_front();
            let Some(oldest) = oldest else { break };
            oldest.log.borrow_mut().clear();
            self.remove_id(&oldest);
        }
        self.bound_kept_output();
    }

    pub(super) fn bound_kept_output(&self) {
        let finished = self.finished.borrow();
        let mut held: usize = finished.iter().map(|exec| exec.log.borrow().held_bytes()).sum();
        for exec in finished.iter() {
            if held <= FINISHED_BYTES_MAX {
                return;
            }
            // Its pump has ended, so no other code releases an expired hold.
            if exec.held.get().is_some_and(|(_, until)| until <= Instant::now()) {
                exec.release_hold();
            }
            let mut log = exec.log.borrow_mut();
            // An exec that is being read keeps its output; the next oldest loses its output instead.
            if !log.has_readers() {
                held -= log.held_bytes();
                log.clear();
            }
        }
    }

    /// Removes the id, unless it has been used again since.
    fn remove_id(&self, exec: &Rc<Exec>) {
        let mut by_id = self.by_id.borrow_mut();
        if by_id.get(&exec.id).is_some_and(|other| Rc::ptr_eq(other, exec)) {
            by_id.remove(&exec.id);
        }
    }

    pub(super) fn may_linger(&self) -> bool {
        let lingering = self.lingering.get();
        if lingering >= LINGERING_MAX {
            return false;
        }
        self.lingering.set(lingering + 1);
        true
    }

    pub(super) fn note_lingering(&self) {
        self.lingering.set(self.lingering.get().saturating_sub(1));
    }
}
