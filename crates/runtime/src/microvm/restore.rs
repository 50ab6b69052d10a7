//! From a dump to a machine that stands still.
//!
//! The emulator maps the dump's RAM and never writes to it, so any number of machines share it; it loads the devices'
//! state, and the machine is as it was. Its first process alone runs while it is told who it is now.

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

use super::about::About;
use super::agent::Settle;
use super::boot::{Parts, Started};
use super::disk;
use super::hibernate::{DEVICES, RAM};
use super::model::Model;
use super::place::Unsettled;
use super::session::Session;
use super::{Shared, step};
use crate::{Introduce, Machine, RestoreOptions, RuntimeError};

/// Loading takes milliseconds.
const LOAD_LOOKS: u32 = 20_000;
const LOAD_LOOK_EVERY: Duration = Duration::from_millis(1);

/// For what takes a container's agent milliseconds.
const INTRODUCE_TIMEOUT: Duration = Duration::from_secs(60);

impl Shared {
    pub(super) fn restore(
        &self,
        id: &SandboxId,
        options: RestoreOptions,
        handle: &Handle,
    ) -> Result<Machine, RuntimeError> {
        let unfit = |reason| RuntimeError::Unfit { id: id.clone(), reason };
        let about = About::read(&options.about).map_err(unfit)?;
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
        about: &About,
        handle: &Handle,
    ) -> Result<Machine, RuntimeError> {
        let RestoreOptions { root, images, about: _, attachment, limits, hostname, mounts: _, introduce } =
            options;
        let failed = |reason: String| RuntimeError::Restore { id: id.clone(), reason };
        let Attachment::Later(plug) = attachment else {
            return Err(failed("a microVM needs a gateway to plug its card into".to_owned()));
        };
        let Started { machine, mut state, said: _ } =
            self.revive(id, &about.model, &root, &images, &limits, &*plug)?;
        state.unsettled = Some(Unsettled { hostname });
        self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
        let mut session = self.session(id);
        if let Some(introduce) = introduce {
            session
                .introduce(state.unsettled.take(), state.pids, introduce, handle)
                .map_err(|error| failed(format!("it could not be told who it is: {error}")))?;
            self.places.write_state(id, &state).map_err(step("write what the machine is", id))?;
        }
        drop(session);
        self.live(id)?.freeze().map_err(step("pause the machine", id))?;
        Ok(machine)
    }
}

impl Shared {
    /// Makes a machine of a dump, as it was, standing still.
    pub(super) fn revive(
        &self,
        id: &SandboxId,
        model: &Model,
        root: &Path,
        images: &Path,
        limits: &Limits,
        plug: &dyn Plug,
    ) -> Result<Started, RuntimeError> {
        let failed = |reason: String| RuntimeError::Restore { id: id.clone(), reason };
        self.destroy(id)?;
        let disk = disk::open(root, true).map_err(step("open the disk", id))?;
        let devices = File::open(images.join(DEVICES)).map_err(step("open the dump", id))?;
        let ram = images.join(RAM);
        let found = std::fs::metadata(&ram).map_err(step("open the dump", id))?;
        if found.len() != model.ram_bytes() {
            return Err(failed("the RAM in the dump has another size than the machine".to_owned()));
        }
        let parts = Parts { model, limits, disk: &disk, plug, ram: Some(ram) };
        let mut started = self.start(id, &parts)?;
        started.state.disk_mib = disk::size_mib(&disk).map_err(step("look at the disk", id))?;
        self.session(id).load(&devices).map_err(|error| failed(started.said.or(&error)))?;
        Ok(started)
    }
}

impl Session<'_> {
    /// Loads the state of the devices, and leaves the machine standing still.
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
                        return Err(io::Error::other(format!("the state did not load: {why}")));
                    }
                    Some(_) | None => thread::sleep(LOAD_LOOK_EVERY),
                }
            }
            Err(io::Error::new(io::ErrorKind::TimedOut, "the state did not load in time"))
        })
    }

    /// Lets the machine's first process run, and no other, while it is told who it is now.
    fn introduce(
        &mut self,
        unsettled: Option<Unsettled>,
        pids: u32,
        introduce: Introduce,
        handle: &Handle,
    ) -> io::Result<()> {
        self.go_on()?;
        let hostname = unsettled.and_then(|unsettled| unsettled.hostname);
        self.settle(&Settle { hostname, pids, reset: true })?;
        handle.block_on(async {
            match tokio::time::timeout(INTRODUCE_TIMEOUT, introduce()).await {
                Ok(done) => done,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })?;
        self.run("stop", json!({})).map(drop)
    }
}
