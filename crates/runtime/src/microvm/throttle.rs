//! How fast a machine's disk is.
//!
//! ```text
//!   runs ──held to its rate──► the host waits for it: hold, write out, grow ──not held──► runs again, held
//! ```
//!
//! The emulator counts what passes between the machine and its disk, before any cache of the host. What it is told is its
//! own to forget with its end; what is wanted is in the machine's [`State`](super::place::State), for whoever lets it go on.
//!
//! Invariant: a machine that the host waits for is not held back. Whoever pauses one has it write out all that its
//! processes have written, which at its own rate may take longer than anybody waits.

use std::io;

use burrow_model::SandboxId;
use serde_json::json;

use super::session::Session;
use super::{Shared, step};
use crate::RuntimeError;

/// The disk, as the emulator calls it: the first of the devices that have no name of their own.
const DEVICE: &str = "/machine/peripheral-anon/device[0]";

impl Shared {
    /// A frozen emulator answers nobody, and hears of it when its machine goes on.
    pub(super) fn set_disk_rate(
        &self,
        id: &SandboxId,
        bytes_per_second: Option<u64>,
    ) -> Result<(), RuntimeError> {
        let group = self.live(id)?;
        let mut state = self.places.state(id).map_err(step("read what the machine is", id))?;
        if !group.is_frozen().map_err(step("look at the machine", id))? {
            let paced = self.session(id).pace_disk(bytes_per_second);
            paced.map_err(step("set the disk's rate", id))?;
        }
        state.disk_rate = bytes_per_second;
        self.places.write_state(id, &state).map_err(step("write what the machine is", id))
    }
}

impl Session<'_> {
    /// Tells the emulator a rate; `None`: as fast as the host is.
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

    /// Does what the host waits for, and holds the machine to its rate again.
    pub(super) fn unhindered<T>(&mut self, act: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
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

    /// Lets the disk be as fast as the host is, until the machine goes on.
    pub(super) fn unhinder(&mut self) -> io::Result<()> {
        match self.disk_rate()? {
            Some(_) => self.pace_disk(None),
            None => Ok(()),
        }
    }

    /// Holds the machine to the rate that is wanted.
    pub(super) fn hinder(&mut self) -> io::Result<()> {
        match self.disk_rate()? {
            Some(rate) => self.pace_disk(Some(rate)),
            None => Ok(()),
        }
    }
}
