//! The parts of the boot message that the rest of the agent needs.

use std::cell::RefCell;
use std::net::IpAddr;

use rustix::process::Rlimit;

use super::clock;
use crate::protocol::Boot;

pub(super) struct BootSettings {
    /// Proves that a connection is from the host. Changes when the sandbox gets a new identity.
    pub(super) token: RefCell<String>,
    pub(super) accept_from: IpAddr,
    pub(super) started_boot_ms: u64,
    pub(super) started_awake_ms: u64,
    /// The limit of open files with which the agent was started; its execs get the same.
    pub(super) open_files: libc::rlimit,
}

impl BootSettings {
    pub(super) fn new(boot: &Boot, open_files: Rlimit) -> Self {
        let raw = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
        Self {
            token: RefCell::new(boot.token.clone()),
            accept_from: boot.accept_from,
            started_boot_ms: clock::boot_ms(),
            started_awake_ms: clock::awake_ms(),
            open_files: libc::rlimit { rlim_cur: raw(open_files.current), rlim_max: raw(open_files.maximum) },
        }
    }

    pub(super) fn uptime_ms(&self) -> u64 {
        clock::boot_ms().saturating_sub(self.started_boot_ms)
    }
}
