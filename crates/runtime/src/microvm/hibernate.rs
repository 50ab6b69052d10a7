//! Dumps a machine's state to disk.
//!
//! ```text
//!   <images>/ram       its RAM, with holes where it is zero; never written again
//!   <images>/devices   everything else: processors, devices, requests in progress
//! ```
//!
//! As much as possible is done before the machine is paused: the base file of its RAM is shared with the dump, and the
//! disk is flushed.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use burrow_model::SandboxId;
use serde_json::json;

use super::compatibility::DumpOrigin;
use super::disk;
use super::pages::Ram;
use super::qmp::Qmp;
use super::run_dir::State;
use super::session::AGENT_TIMEOUT;
use super::shared_state::{Shared, step};
use crate::{DumpInfo, DumpOptions, RuntimeError};

pub(super) const RAM: &str = "ram";
pub(super) const DEVICES: &str = "devices";

/// Maximum size of the state of the devices; usually it is 20 KiB.
const DEVICES_BYTES: u64 = 4 << 20;

impl Shared {
    pub(super) fn dump_bytes(&self, id: &SandboxId) -> Result<u64, RuntimeError> {
        self.live(id)?;
        let state = self.run_dir.state(id).map_err(step("read the machine's state", id))?;
        Ok(state.model.ram_bytes() + DEVICES_BYTES)
    }

    pub(super) fn dump(&self, id: &SandboxId, options: &DumpOptions) -> Result<DumpInfo, RuntimeError> {
        let group = self.group_of(id, &options.machine)?;
        let state = self.run_dir.state(id).map_err(step("read the machine's state", id))?;
        let was_paused = group.is_frozen().map_err(step("check the machine", id))?;
        // The emulator must answer; its machine stays paused nevertheless.
        group.thaw().map_err(step("check the machine", id))?;
        let dumped = self.try_dump(id, options, &state, was_paused);
        let left = match (&dumped, was_paused) {
            (Ok(_), _) | (Err(_), true) => self.stay_paused(id),
            (Err(_), false) => self.resume(id),
        };
        match (dumped, left) {
            (Ok(dumped), Ok(())) => Ok(dumped),
            (Err(error), Ok(())) => Err(RuntimeError::Dump { id: id.clone(), reason: error.to_string() }),
            (Ok(_), Err(error)) => Err(error),
            (Err(error), Err(left)) => {
                tracing::warn!(%id, error = &left as &dyn std::error::Error, "could not return a machine to its state before a failed dump");
                Err(RuntimeError::Dump { id: id.clone(), reason: error.to_string() })
            }
        }
    }

    fn stay_paused(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.live(id)?.freeze().map_err(step("pause the machine", id))
    }

    fn try_dump(
        &self,
        id: &SandboxId,
        options: &DumpOptions,
        state: &State,
        was_paused: bool,
    ) -> io::Result<DumpInfo> {
        let mut session = self.session(id);
        let address = session.with_qmp(Qmp::ram_address)?;
        let ram = Ram { pid: options.machine.pid, address, bytes: state.model.ram_bytes() };
        let prepared = ram.prepare(new_file(&options.images.join(RAM))?)?;
        // Flushes the guest's files before the pause, so that it takes less time.
        if !was_paused
            && let Err(error) =
                session.without_disk_rate(|session| session.with_agent(|agent| agent.sync(AGENT_TIMEOUT)))
        {
            tracing::warn!(%id, %error, "could not flush a machine's files before its dump");
        }
        disk::open(&options.root, true)?.sync_data()?;
        let began = Instant::now();
        session.halt()?;
        let devices = File::options().write(true).create_new(true).open(options.images.join(DEVICES))?;
        session.with_qmp(|qmp| {
            let given = qmp.give(devices.as_fd())?;
            qmp.run("xen-save-devices-state", json!({ "filename": given.path(), "live": true }))?;
            qmp.take_back(&given)
        })?;
        let copied = prepared.copy_changed(ram)?;
        let paused_us = if was_paused { 0 } else { began.elapsed().as_micros() };
        tracing::debug!(%id, copied, "dumped a machine");
        for name in [RAM, DEVICES] {
            // Read by the uids of the emulators, through a mount; the path to it is closed to other users.
            fs::set_permissions(options.images.join(name), fs::Permissions::from_mode(0o444))?;
        }
        Ok(DumpInfo {
            about: DumpOrigin::new(&state.model, &self.here).to_json(),
            paused_us: u64::try_from(paused_us).unwrap_or(u64::MAX),
        })
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(path)
}
