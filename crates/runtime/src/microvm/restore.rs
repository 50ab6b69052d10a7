//! Restores a dump to a paused machine.
//!
//! The emulator maps the dump's RAM and never writes to it, so any number of machines can share it. It loads the state
//! of the devices, and the machine has its earlier state. Only its first process runs while it receives its identity.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use burrow_model::{Limits, SandboxId};
use burrow_network::{Attachment, Plug};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::agent::SettleRequest;
use super::boot::{EmulatorParts, StartedEmulator};
use super::compatibility::DumpOrigin;
use super::disk;
use super::hibernate::{DEVICES, RAM};
use super::model::Model;
use super::run_dir::UnsettledState;
use super::session::Session;
use super::shared_state::{Shared, step};
use crate::{IntroduceFn, Machine, RestoreOptions, RuntimeError};

/// Loading takes milliseconds.
const LOAD_LOOKS: u32 = 20_000;
const LOAD_LOOK_EVERY: Duration = Duration::from_millis(1);

/// For a step that takes a container's agent milliseconds.
const INTRODUCE_TIMEOUT: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) fn restore(
        &self,
        id: &SandboxId,
        options: RestoreOptions,
        handle: &Handle,
    ) -> Result<Machine, RuntimeError> {
        let unfit = |reason| RuntimeError::Unfit { id: id.clone(), reason };
        let about = DumpOrigin::read(&options.about).map_err(unfit)?;
        if let Some(reason) = about.misfit(&self.here) {
            return Err(unfit(reason));
        }
        let restored = self.try_restore(id, options, &about, handle);
        if restored.is_err() {
            self.clean_up(id);
        }
        restored
    }

    fn try_restore(
        &self,
        id: &SandboxId,
        options: RestoreOptions,
        about: &DumpOrigin,
        handle: &Handle,
    ) -> Result<Machine, RuntimeError> {
        let RestoreOptions {
            root,
            images,
            about: _,
            attachment,
            limits,
            hostname,
            mounts: _,
            introduce,
            trial: _,
        } = options;
        let failed = |reason: String| RuntimeError::Restore { id: id.clone(), reason };
        let Attachment::Later(plug) = attachment else {
            return Err(failed("a microVM needs a gateway for its network interface".to_owned()));
        };
        let StartedEmulator { machine, mut state, said: _ } =
            self.revive(id, &about.model, &root, &images, &limits, &*plug)?;
        state.unsettled = Some(UnsettledState { hostname });
        self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))?;
        let mut session = self.session(id);
        if let Some(introduce) = introduce {
            session
                .introduce(state.unsettled.take(), state.pids, introduce, handle)
                .map_err(|error| failed(format!("could not send it its identity: {error}")))?;
            self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))?;
        }
        drop(session);
        self.live(id)?.freeze().map_err(step("pause the machine", id))?;
        Ok(machine)
    }
}

impl Shared {
    /// Creates a paused machine from a dump, in the state of the dump.
    pub(super) fn revive(
        &self,
        id: &SandboxId,
        model: &Model,
        root: &Path,
        images: &Path,
        limits: &Limits,
        plug: &dyn Plug,
    ) -> Result<StartedEmulator, RuntimeError> {
        let failed = |reason: String| RuntimeError::Restore { id: id.clone(), reason };
        self.destroy(id)?;
        let disk = disk::open(root, true).map_err(step("open the disk", id))?;
        let devices = File::open(images.join(DEVICES)).map_err(step("open the dump", id))?;
        let ram = images.join(RAM);
        let found = std::fs::metadata(&ram).map_err(step("open the dump", id))?;
        if found.len() != model.ram_bytes() {
            return Err(failed("the RAM in the dump differs in size from the machine's".to_owned()));
        }
        let parts = EmulatorParts { model, limits, disk: &disk, plug, ram: Some(ram) };
        let mut started = self.start(id, &parts)?;
        started.state.disk_mib = disk::size_mib(&disk).map_err(step("read the size of the disk", id))?;
        self.session(id).load(&devices).map_err(|error| failed(started.said.or(&error)))?;
        Ok(started)
    }
}

impl Session<'_> {
    /// Loads the state of the devices, and leaves the machine paused.
    fn load(&mut self, devices: &File) -> io::Result<()> {
        self.with_qmp(|qmp| {
            let given = qmp.give(devices.as_fd())?;
            qmp.run("migrate-incoming", json!({ "uri": format!("file:{}", given.path()) }))?;
            for _ in 0..LOAD_LOOKS {
                let now = qmp.run("query-migrate", json!({}))?;
                match now.get("status").and_then(Value::as_str) {
                    Some("completed") => return qmp.take_back(&given),
                    Some("failed") => {
                        let why = now.get("error-desc").and_then(Value::as_str).unwrap_or("no reason given");
                        return Err(io::Error::other(format!("could not load the state: {why}")));
                    }
                    Some(_) | None => thread::sleep(LOAD_LOOK_EVERY),
                }
            }
            Err(io::Error::new(io::ErrorKind::TimedOut, "timed out while loading the state"))
        })
    }

    /// Lets only the machine's first process run, while it receives its identity.
    fn introduce(
        &mut self,
        unsettled: Option<UnsettledState>,
        pids: u32,
        introduce: IntroduceFn,
        handle: &Handle,
    ) -> io::Result<()> {
        self.resume_machine()?;
        let hostname = unsettled.and_then(|unsettled| unsettled.hostname);
        self.settle(&SettleRequest { hostname, pids, reset: true })?;
        handle.block_on(async {
            match tokio::time::timeout(INTRODUCE_TIMEOUT, introduce()).await {
                Ok(done) => done,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })?;
        self.run("stop", json!({})).map(drop)
    }
}
