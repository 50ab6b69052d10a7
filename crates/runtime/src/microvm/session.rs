//! Talking to a machine: to its emulator and to its first process, over connections that are kept while both behave.
//!
//! An emulator that does not answer is ended: it is a process that a guest may have got hold of, and nobody could tell
//! its state any more. Whoever waits for the machine's end hears of it as of any other. A first process that does not
//! answer is the guest's own affair, unless the machine must be told something before it may run.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use serde_json::{Value, json};

use super::agent::{Agent, Settle};
use super::place::{Socket, State};
use super::qmp::Qmp;
use super::{Shared, step};
use crate::RuntimeError;
use crate::disks::Give;

/// For what a guest does within milliseconds, and an emulated one on a busy host within seconds.
pub(super) const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Growing a file system writes a part of it.
const GROW_TIMEOUT: Duration = Duration::from_secs(120);

/// Writing as many files as a merge brings.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// Connections to one machine.
#[derive(Debug, Default)]
pub(super) struct Link {
    qmp: Option<Qmp>,
    agent: Option<Agent>,
}

/// A machine that is being talked to. Dropping it keeps the connections for the next.
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
        if group.is_frozen().map_err(step("look at the machine", id))? {
            return Ok(());
        }
        self.session(id).halt().map_err(step("pause the machine", id))?;
        // The emulator, too: one whose machine stands still has nothing to do.
        group.freeze().map_err(step("pause the machine", id))
    }

    pub(super) fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        group.thaw().map_err(step("resume the machine", id))?;
        let mut state = self.places.state(id).map_err(step("read what the machine is", id))?;
        let mut session = self.session(id);
        session.hinder().map_err(step("set the disk's rate", id))?;
        session.go_on().map_err(step("resume the machine", id))?;
        let unsettled = state.unsettled.take();
        let settle = Settle {
            hostname: unsettled.as_ref().and_then(|unsettled| unsettled.hostname.clone()),
            pids: state.pids,
            reset: unsettled.is_some(),
        };
        let told = session.settle(&settle);
        match (told, unsettled) {
            (Ok(()), Some(_)) => {
                self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
            }
            (Ok(()), None) => {}
            // It does not know that it is another, and must not run as the one it was.
            (Err(error), Some(_)) => {
                let _ = session.halt();
                return Err(step("tell the machine that time has passed", id)(error));
            }
            (Err(error), None) => {
                tracing::warn!(%id, %error, "a machine could not be told that time has passed")
            }
        }
        if let Err(error) = session.release() {
            tracing::warn!(%id, %error, "a machine could not be told to let its processes go on");
        }
        Ok(())
    }

    /// Asks a machine's emulator whether it is there. One that does not answer is ended by asking.
    pub(super) fn heartbeat(&self, id: &SandboxId) {
        let runs = self.live(id).and_then(|group| group.is_frozen().map_err(step("look at the machine", id)));
        if let Ok(false) = runs
            && let Err(error) = self.session(id).with_qmp(Qmp::is_running)
        {
            tracing::warn!(%id, %error, "the emulator of a machine does not answer as it should");
        }
    }

    /// A machine that stands still was held first, and has written what it had to.
    pub(super) fn settle_files(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        if self.live(id)?.is_frozen().map_err(step("look at the machine", id))? {
            return Ok(());
        }
        let mut session = self.session(id);
        let synced = session.unhindered(|session| session.with_agent(|agent| agent.sync(AGENT_TIMEOUT)));
        synced.map_err(step("have the machine write what it has to", id))
    }

    /// Only the agent runs meanwhile, which holds all others.
    pub(super) fn change_files(&self, id: &SandboxId, give: Give) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        if !group.is_frozen().map_err(step("look at the machine", id))? {
            return Err(RuntimeError::Disks { reason: "the machine is not paused".to_owned() });
        }
        group.thaw().map_err(step("wake the machine's agent", id))?;
        let mut session = self.session(id);
        let changed =
            session.go_on().and_then(|()| session.with_agent(|agent| agent.apply(give, CHANGE_TIMEOUT)));
        let stopped = session.run("stop", json!({})).and_then(|_| group.freeze());
        changed.map_err(|error| RuntimeError::Disks { reason: error.to_string() })?;
        stopped.map_err(step("pause the machine", id))
    }

    pub(super) fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        let mut state = self.places.state(id).map_err(step("read what the machine is", id))?;
        group.set_limits(&state.model.emulator_limits(limits)).map_err(step("change the limits", id))?;
        state.set_limits(limits);
        let paused = group.is_frozen().map_err(step("look at the machine", id))?;
        if !paused {
            let mut session = self.session(id);
            let settle = Settle { hostname: None, pids: state.pids, reset: false };
            session.settle(&settle).map_err(step("tell the machine its limits", id))?;
            let grown = session.unhindered(|session| session.grow(&mut state, limits.disk_mib));
            grown.map_err(step("grow the disk", id))?;
        }
        self.places.write_state(id, &state).map_err(step("write what the machine is", id))
    }
}

impl Session<'_> {
    /// Stops the machine, its processes first. What was stopped already stays so.
    pub(super) fn halt(&mut self) -> io::Result<()> {
        if !self.with_qmp(Qmp::is_running)? {
            return Ok(());
        }
        self.unhinder()?;
        if let Err(error) = self.with_agent(|agent| agent.hold(AGENT_TIMEOUT)) {
            tracing::warn!(id = %self.id, %error, "the processes of a machine could not be stopped one by one");
        }
        let stopped = self.run("stop", json!({})).map(drop);
        if stopped.is_err()
            && let Err(error) = self.hinder()
        {
            tracing::warn!(id = %self.id, %error, "a machine that was not stopped has lost the rate of its disk");
        }
        stopped
    }

    /// What its disk is held to while it runs.
    pub(super) fn disk_rate(&self) -> io::Result<Option<u64>> {
        Ok(self.shared.places.state(self.id)?.disk_rate)
    }

    pub(super) fn go_on(&mut self) -> io::Result<()> {
        if self.with_qmp(Qmp::is_running)? {
            return Ok(());
        }
        self.run("cont", json!({})).map(drop)
    }

    pub(super) fn settle(&mut self, settle: &Settle) -> io::Result<()> {
        self.with_agent(|agent| agent.settle(settle, AGENT_TIMEOUT))
    }

    pub(super) fn release(&mut self) -> io::Result<()> {
        self.with_agent(|agent| agent.release(AGENT_TIMEOUT))
    }

    /// Makes the disk larger, if it is smaller than that. Never smaller: what is on it would be lost.
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
                Qmp::open(session.shared.places.connect(session.id, Socket::Qmp)?)
            })?,
        };
        let outcome = self.ended_if_silent(|_| act(&mut qmp));
        // After a refusal the conversation goes on; after anything else nobody knows where it stands.
        if outcome.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::Other, |_| true) {
            self.link.qmp = Some(qmp);
        }
        outcome
    }

    pub(super) fn with_agent<T>(&mut self, act: impl FnOnce(&mut Agent) -> io::Result<T>) -> io::Result<T> {
        let mut agent = match self.link.agent.take() {
            Some(agent) => agent,
            None => Agent::new(self.shared.places.connect(self.id, Socket::Agent)?),
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
            tracing::warn!(id = %self.id, "the emulator of a machine does not answer, and is ended");
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
