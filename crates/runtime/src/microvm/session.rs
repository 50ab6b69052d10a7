//! Connections to a machine's emulator and to its first process, which are kept open as long as both work.
//!
//! An emulator that does not answer is killed: a guest may have taken over the process, and its state is unknown.
//! Waiters for the machine's end see it like any other end. A first process that does not answer only affects the guest
//! itself, except when the machine must receive something before it may run.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use serde_json::{Value, json};

use super::agent::{Agent, SettleRequest};
use super::qmp::Qmp;
use super::run_dir::{Socket, State};
use super::shared_state::{Shared, step};
use crate::RuntimeError;
use crate::disks::SendFn;

/// For operations that a guest performs within milliseconds, and an emulated guest on a busy host within seconds.
pub(super) const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Growing a file system writes a part of it.
const GROW_TIMEOUT: Duration = Duration::from_secs(120);

/// Writing as many files as a merge may contain.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Connections to one machine.
#[derive(Debug, Default)]
pub(super) struct Link {
    qmp: Option<Qmp>,
    agent: Option<Agent>,
}

/// The connections of a machine while they are used. Dropping it keeps the connections for the next use.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    id: &'a SandboxId,
    link: Link,
}

impl Shared {
    pub(super) fn session<'a>(&'a self, id: &'a SandboxId) -> Session<'a> {
        let link = self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        Session { shared: self, id, link: link.unwrap_or_default() }
    }

    pub(super) fn forget_link(&self, id: &SandboxId) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    pub(super) fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        if group.is_frozen().map_err(step("check the machine", id))? {
            return Ok(());
        }
        self.session(id).halt().map_err(step("pause the machine", id))?;
        // The emulator, too, has nothing to do while its machine is paused.
        group.freeze().map_err(step("pause the machine", id))
    }

    pub(super) fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        group.thaw().map_err(step("resume the machine", id))?;
        let mut state = self.run_dir.state(id).map_err(step("read the machine's state", id))?;
        let mut session = self.session(id);
        session.apply_disk_rate().map_err(step("set the disk's rate", id))?;
        session.resume_machine().map_err(step("resume the machine", id))?;
        let unsettled = state.unsettled.take();
        let settle = SettleRequest {
            hostname: unsettled.as_ref().and_then(|unsettled| unsettled.hostname.clone()),
            pids: state.pids,
            reset: unsettled.is_some(),
        };
        let told = session.settle(&settle);
        match (told, unsettled) {
            (Ok(()), Some(_)) => {
                self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))?;
            }
            (Ok(()), None) => {}
            // It still has the identity of the machine that was dumped, and must not run with it.
            (Err(error), Some(_)) => {
                let _ = session.halt();
                return Err(step("send the machine the current time", id)(error));
            }
            (Err(error), None) => {
                tracing::warn!(%id, %error, "could not send a machine the current time")
            }
        }
        if let Err(error) = session.release() {
            tracing::warn!(%id, %error, "could not make a machine resume its processes");
        }
        Ok(())
    }

    /// Checks a machine's emulator. If it does not answer, this check kills it.
    pub(super) fn heartbeat(&self, id: &SandboxId) {
        let runs = self.live(id).and_then(|group| group.is_frozen().map_err(step("check the machine", id)));
        if let Ok(false) = runs
            && let Err(error) = self.session(id).with_qmp(Qmp::is_running)
        {
            tracing::warn!(%id, %error, "the emulator of a machine sent an unexpected answer");
        }
    }

    /// The processes of a paused machine were frozen first, and its files are flushed.
    pub(super) fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        if self.live(id)?.is_frozen().map_err(step("check the machine", id))? {
            return Ok(());
        }
        let mut session = self.session(id);
        let synced =
            session.without_disk_rate(|session| session.with_agent(|agent| agent.sync(AGENT_TIMEOUT)));
        synced.map_err(step("flush the machine's files", id))
    }

    /// Meanwhile only the agent runs, which freezes all other processes.
    pub(super) fn change_files(&self, id: &SandboxId, give: SendFn) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        if !group.is_frozen().map_err(step("check the machine", id))? {
            return Err(RuntimeError::Disks { reason: "the machine is not paused".to_owned() });
        }
        group.thaw().map_err(step("resume the machine's agent", id))?;
        let mut session = self.session(id);
        let changed = session
            .resume_machine()
            .and_then(|()| session.with_agent(|agent| agent.apply(give, CHANGE_TIMEOUT)));
        let stopped = session.run("stop", json!({})).and_then(|_| group.freeze());
        changed.map_err(|error| RuntimeError::Disks { reason: error.to_string() })?;
        stopped.map_err(step("pause the machine", id))
    }

    pub(super) fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        let mut state = self.run_dir.state(id).map_err(step("read the machine's state", id))?;
        group.set_limits(&state.model.emulator_limits(limits)).map_err(step("change the limits", id))?;
        state.set_limits(limits);
        let paused = group.is_frozen().map_err(step("check the machine", id))?;
        if !paused {
            let mut session = self.session(id);
            let settle = SettleRequest { hostname: None, pids: state.pids, reset: false };
            session.settle(&settle).map_err(step("send the machine its limits", id))?;
            let grown = session.without_disk_rate(|session| session.grow(&mut state, limits.disk_mib));
            grown.map_err(step("grow the disk", id))?;
        }
        self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))
    }
}

impl Session<'_> {
    /// Stops the machine, its processes first. Has no effect on a stopped machine.
    pub(super) fn halt(&mut self) -> io::Result<()> {
        if !self.with_qmp(Qmp::is_running)? {
            return Ok(());
        }
        self.lift_disk_rate()?;
        if let Err(error) = self.with_agent(|agent| agent.hold(AGENT_TIMEOUT)) {
            tracing::warn!(id = %self.id, %error, "could not freeze the processes of a machine separately");
        }
        let stopped = self.run("stop", json!({})).map(drop);
        if stopped.is_err()
            && let Err(error) = self.apply_disk_rate()
        {
            tracing::warn!(id = %self.id, %error, "could not restore the disk rate of a machine that was not stopped");
        }
        stopped
    }

    /// The rate limit of its disk while it runs.
    pub(super) fn disk_rate(&self) -> io::Result<Option<u64>> {
        Ok(self.shared.run_dir.state(self.id)?.disk_rate)
    }

    pub(super) fn resume_machine(&mut self) -> io::Result<()> {
        if self.with_qmp(Qmp::is_running)? {
            return Ok(());
        }
        self.run("cont", json!({})).map(drop)
    }

    pub(super) fn settle(&mut self, settle: &SettleRequest) -> io::Result<()> {
        self.with_agent(|agent| agent.settle(settle, AGENT_TIMEOUT))
    }

    pub(super) fn release(&mut self) -> io::Result<()> {
        self.with_agent(|agent| agent.release(AGENT_TIMEOUT))
    }

    /// Grows the disk if it is smaller than that. Never shrinks it, which would lose data.
    pub(super) fn grow(&mut self, state: &mut State, disk_mib: u32) -> io::Result<()> {
        if disk_mib <= state.disk_mib {
            return Ok(());
        }
        let bytes = u64::from(disk_mib) << 20;
        self.run("block_resize", json!({ "node-name": "disk", "size": bytes }))?;
        self.with_agent(|agent| agent.grow(bytes, GROW_TIMEOUT))?;
        state.disk_mib = disk_mib;
        Ok(())
    }

    pub(super) fn run(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        self.with_qmp(|qmp| qmp.run(command, arguments))
    }

    pub(super) fn with_qmp<T>(&mut self, act: impl FnOnce(&mut Qmp) -> io::Result<T>) -> io::Result<T> {
        let mut qmp = match self.link.qmp.take() {
            Some(qmp) => qmp,
            None => self.ended_if_silent(|session| {
                Qmp::open(session.shared.run_dir.connect(session.id, Socket::Qmp)?)
            })?,
        };
        let outcome = self.ended_if_silent(|_| act(&mut qmp));
        // After a refusal the connection can still be used; after any other error its state is unknown.
        if outcome.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::Other, |_| true) {
            self.link.qmp = Some(qmp);
        }
        outcome
    }

    pub(super) fn with_agent<T>(&mut self, act: impl FnOnce(&mut Agent) -> io::Result<T>) -> io::Result<T> {
        let mut agent = match self.link.agent.take() {
            Some(agent) => agent,
            None => Agent::new(self.shared.run_dir.connect(self.id, Socket::Agent)?),
        };
        let outcome = act(&mut agent);
        if outcome.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::Other, |_| true) {
            self.link.agent = Some(agent);
        }
        outcome
    }

    fn ended_if_silent<T>(&mut self, act: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let outcome = act(self);
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            tracing::warn!(id = %self.id, "killing the emulator of a machine, which does not answer");
            if let Ok(group) = self.shared.group(self.id) {
                let _ = group.kill();
            }
        }
        outcome
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let link = std::mem::take(&mut self.link);
        self.shared.links.lock().unwrap_or_else(PoisonError::into_inner).insert(self.id.clone(), link);
    }
}
