//! The rate limit of a machine's disk.
//!
//! ```text
//!   runs, limited ──► the host waits for it: freeze, flush, grow ──unlimited──► runs again, limited
//! ```
//!
//! The emulator counts the data between the machine and its disk, before any cache of the host. The emulator loses its
//! setting when it ends; the wanted rate is in the machine's [`State`](super::run_dir::State), and is applied at every
//! resume.
//!
//! Invariant: while the host waits for a machine, its disk is not limited. A pause makes the machine flush everything
//! that its processes have written, which at the limited rate could take too long.

use std::io;

use burrow_model::SandboxId;
use serde_json::json;

use super::session::Session;
use super::shared_state::{Shared, step};
use crate::RuntimeError;

/// The disk's name in the emulator: the first of the devices without a name.
const DEVICE: &str = "/machine/peripheral-anon/device[0]";

impl Shared {
    /// A frozen emulator cannot answer, and gets the rate when its machine resumes.
    pub(super) fn set_disk_rate(
        &self,
        id: &SandboxId,
        bytes_per_second: Option<u64>,
    ) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        let mut state = self.run_dir.state(id).map_err(step("read the machine's state", id))?;
        if !group.is_frozen().map_err(step("check the machine", id))? {
            let paced = self.session(id).pace_disk(bytes_per_second);
            paced.map_err(step("set the disk's rate", id))?;
        }
        state.disk_rate = bytes_per_second;
        self.run_dir.write_state(id, &state).map_err(step("write the machine's state", id))
    }
}

impl Session<'_> {
    /// Sets the emulator's rate; `None`: no limit.
    pub(super) fn pace_disk(&mut self, bytes_per_second: Option<u64>) -> io::Result<()> {
        let arguments = json!({
            "id": DEVICE,
            "bps": bytes_per_second.unwrap_or(0),
            "bps_rd": 0,
            "bps_wr": 0,
            "iops": 0,
            "iops_rd": 0,
            "iops_wr": 0,
        });
        self.run("block_set_io_throttle", arguments).map(drop)
    }

    /// Runs `act` without the limit, and applies the limit again.
    pub(super) fn without_disk_rate<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let rate = self.disk_rate()?;
        if rate.is_none() {
            return act(self);
        }
        self.pace_disk(None)?;
        let done = act(self);
        let paced = self.pace_disk(rate);
        let done = done?;
        paced.map(|()| done)
    }

    /// Removes the limit until the machine resumes.
    pub(super) fn lift_disk_rate(&mut self) -> io::Result<()> {
        match self.disk_rate()? {
            Some(_) => self.pace_disk(None),
            None => Ok(()),
        }
    }

    /// Applies the wanted rate.
    pub(super) fn apply_disk_rate(&mut self) -> io::Result<()> {
        match self.disk_rate()? {
            Some(rate) => self.pace_disk(Some(rate)),
            None => Ok(()),
        }
    }
}
