//! What every task of the agent shares.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use super::boot_settings::BootSettings;
use super::connections::Connections;
use super::exec::Table;
use super::machine::Meminfo;
use super::ports::Relays;
use super::service_set::Services;
use super::vm::Group;

pub(super) struct Agent {
    pub(super) boot: BootSettings,
    pub(super) execs: Table,
    pub(super) services: Services,
    pub(super) meminfo: Rc<Meminfo>,
    pub(super) relays: Relays,
    pub(super) connections: Connections,
    /// The control group of execs in a microVM. A container is in a group that the host created.
    pub(super) group: Option<Group>,
    pub(super) shutting_down: Cell<bool>,
    pub(super) is_down: Cell<bool>,
    pub(super) down: Notify,
}

impl Agent {
    pub(super) fn new(boot: BootSettings, ram_bytes: u64, group: Option<Group>) -> Self {
        Self {
            boot,
            execs: Table::default(),
            services: Services::default(),
            meminfo: Rc::new(Meminfo::new(ram_bytes)),
            relays: Relays::default(),
            connections: Connections::default(),
            group,
            shutting_down: Cell::new(false),
            is_down: Cell::new(false),
            down: Notify::new(),
        }
    }
}
