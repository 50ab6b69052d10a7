//! Machines without a kernel, for simulation.
//!
//! A [`Sim`] keeps its machines in a map and does what the real drivers promise, no more: it passes the same
//! conformance suite. Tests look inside with [`Sim::live`] and [`Sim::machine`], and make a machine end by itself with
//! [`Sim::end`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::{Limits, SandboxId};
use tokio::sync::watch;

use crate::{
    Ability, Begun, BootOptions, Capabilities, FinishOptions, Incidents, Machine, Runtime, RuntimeError,
};

/// A driver whose machines exist only in this process.
#[derive(Debug, Default)]
pub struct Sim {
    world: Mutex<World>,
}

/// One simulated machine, as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimMachine {
    pub machine: Machine,
    pub paused: bool,
    pub limits: Limits,
    pub hostname: String,
    pub boot_document: Vec<u8>,
    pub oom_kills: u64,
}

#[derive(Debug)]
struct World {
    machines: BTreeMap<SandboxId, Slot>,
    next_pid: u32,
    boot_id: String,
}

#[derive(Debug)]
struct Slot {
    seen: SimMachine,
    /// Turns true once, when the machine ends; a dropped sender means the same.
    ended: watch::Sender<bool>,
}

impl Default for World {
    fn default() -> Self {
        Self { machines: BTreeMap::new(), next_pid: 1000, boot_id: "simulated-boot-1".to_owned() }
    }
}

impl Sim {
    /// The sandboxes whose machine has not ended.
    pub fn live(&self) -> Vec<SandboxId> {
        let world = self.world();
        world.machines.iter().filter(|(_, slot)| !*slot.ended.borrow()).map(|(id, _)| id.clone()).collect()
    }

    /// What there is of a sandbox, ended or not.
    pub fn machine(&self, id: &SandboxId) -> Option<SimMachine> {
        self.world().machines.get(id).map(|slot| slot.seen.clone())
    }

    /// Ends a machine as a crash of its PID 1 would: what `boot` made stays until `destroy`.
    pub fn end(&self, id: &SandboxId) {
        if let Some(slot) = self.world().machines.get(id) {
            slot.ended.send_replace(true);
        }
    }

    /// Counts an out-of-memory kill inside a machine.
    pub fn kill_by_oom(&self, id: &SandboxId) {
        if let Some(slot) = self.world().machines.get_mut(id) {
            slot.seen.oom_kills += 1;
        }
    }

    /// The host went down and came up again: no machine is left, and the boot id is another one.
    pub fn reboot_host(&self) {
        let mut world = self.world();
        world.machines.clear();
        world.boot_id.push('\'');
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // Every change under the lock is a single step, so a panicking test leaves nothing half done.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: &SandboxId, change: impl FnOnce(&mut SimMachine)) -> Result<(), RuntimeError> {
        match self.world().machines.get_mut(id) {
            Some(slot) if !*slot.ended.borrow() => {
                change(&mut slot.seen);
                Ok(())
            }
            Some(_) | None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }
}

#[async_trait]
impl Runtime for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn capabilities(&self) -> Capabilities {
        let hibernate =
            Ability::No { reason: "simulated machines have no process state".to_owned(), fix: None };
        Capabilities { available: Ability::Yes, pause: Ability::Yes, hibernate, limits: Ability::Yes }
    }

    async fn boot(&self, id: &SandboxId, options: BootOptions) -> Result<Machine, RuntimeError> {
        let mut world = self.world();
        let pid = world.next_pid;
        world.next_pid += 1;
        let machine = Machine { pid, start_ticks: u64::from(pid) * 10, boot_id: world.boot_id.clone() };
        let seen = SimMachine {
            machine: machine.clone(),
            paused: false,
            limits: options.limits,
            hostname: options.hostname,
            boot_document: options.boot_document,
            oom_kills: 0,
        };
        // A machine already there is replaced, and whoever waits for its end is told by the dropped sender.
        world.machines.insert(id.clone(), Slot { seen, ended: watch::Sender::new(false) });
        Ok(machine)
    }

    fn begins_ahead(&self) -> bool {
        true
    }

    async fn begin(&self, id: &SandboxId, options: BootOptions) -> Result<Begun, RuntimeError> {
        let (hostname, root) = (options.hostname.clone(), options.root.clone());
        let machine = self.boot(id, BootOptions { boot_document: Vec::new(), ..options }).await?;
        Ok(Begun { machine, hostname, root, socket: None })
    }

    async fn finish(
        &self,
        id: &SandboxId,
        begun: Begun,
        options: FinishOptions,
    ) -> Result<Machine, RuntimeError> {
        self.change(id, |seen| {
            seen.hostname = options.hostname;
            seen.boot_document = options.boot_document;
        })?;
        Ok(begun.machine)
    }

    async fn adopt(&self, id: &SandboxId, machine: &Machine) -> Result<bool, RuntimeError> {
        let world = self.world();
        Ok(world.machines.get(id).is_some_and(|slot| slot.seen.machine == *machine && !*slot.ended.borrow()))
    }

    async fn ended(&self, machine: &Machine) -> Result<(), RuntimeError> {
        let mut ended = {
            let world = self.world();
            match world.machines.values().find(|slot| slot.seen.machine == *machine) {
                Some(slot) => slot.ended.subscribe(),
                None => return Ok(()),
            }
        };
        // An error means that the machine was destroyed or replaced, which is an end as well.
        let _ = ended.wait_for(|ended| *ended).await;
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.change(id, |seen| seen.paused = true)
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.change(id, |seen| seen.paused = false)
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), RuntimeError> {
        self.change(id, |seen| seen.limits = *limits)
    }

    async fn incidents(&self, id: &SandboxId) -> Result<Incidents, RuntimeError> {
        match self.world().machines.get(id) {
            Some(slot) => Ok(Incidents { oom_kills: slot.seen.oom_kills }),
            None => Err(RuntimeError::NoMachine { id: id.clone() }),
        }
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.world().machines.remove(id);
        Ok(())
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, RuntimeError> {
        Ok(self.world().machines.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use burrow_network::Attachment;

    use super::*;
    use crate::conformance::{self, Fixture};

    #[derive(Debug, Default)]
    struct Simulated(Sim);

    #[async_trait]
    impl Fixture for Simulated {
        fn runtime(&self) -> &dyn Runtime {
            &self.0
        }

        async fn options(&self, limits: Limits) -> BootOptions {
            BootOptions {
                root: PathBuf::from("/nowhere"),
                attachment: Attachment::None,
                hostname: "conformance".to_owned(),
                limits,
                boot_document: b"{}".to_vec(),
            }
        }

        async fn end_by_itself(&self, id: &SandboxId, _machine: &Machine) {
            self.0.end(id);
        }
    }

    #[tokio::test]
    async fn the_simulation_conforms() {
        conformance::all(&Simulated::default()).await;
    }

    #[tokio::test]
    async fn a_host_that_went_down_has_no_machines_and_another_boot_id() {
        let simulated = Simulated::default();
        let id = SandboxId::generate();
        let options = simulated.options(conformance::LIMITS).await;
        let before = simulated.0.boot(&id, options).await.unwrap();
        simulated.0.reboot_host();
        assert!(!simulated.0.adopt(&id, &before).await.unwrap());
        simulated.0.ended(&before).await.unwrap();
        let options = simulated.options(conformance::LIMITS).await;
        assert_ne!(simulated.0.boot(&id, options).await.unwrap().boot_id, before.boot_id);
    }
}
