//! The services of the sandbox, and the state of each.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

use super::exec::Exec;
use crate::protocol::{Service, ServiceState};

#[derive(Default)]
pub(super) struct Services {
    pub(super) running: RefCell<BTreeMap<String, Rc<SupervisedService>>>,
    /// One change at a time: two hosts must not each start half of a set.
    pub(super) changing: tokio::sync::Mutex<()>,
}

pub(super) struct SupervisedService {
    pub(super) service: Service,
    pub(super) state: Cell<ServiceState>,
    pub(super) exec: RefCell<Option<Rc<Exec>>>,
    pub(super) restarts: Cell<u32>,
    pub(super) stopping: Cell<bool>,
    stop_requested: Notify,
    stopped: Notify,
}

impl SupervisedService {
    pub(super) fn new(service: Service) -> Self {
        Self {
            service,
            state: Cell::new(ServiceState::Running),
            exec: RefCell::new(None),
            restarts: Cell::new(0),
            stopping: Cell::new(false),
            stop_requested: Notify::new(),
            stopped: Notify::new(),
        }
    }

    pub(super) fn ask_to_stop(&self) {
        self.stopping.set(true);
        self.stop_requested.notify_waiters();
    }

    pub(super) async fn until_stopped(&self) {
        loop {
            let stopped = self.stopped.notified();
            if self.state.get() == ServiceState::Ended {
                return;
            }
            stopped.await;
        }
    }

    pub(super) async fn until_asked(&self) {
        loop {
            let stop_requested = self.stop_requested.notified();
            if self.stopping.get() {
                return;
            }
            stop_requested.await;
        }
    }

    pub(super) fn end(&self) {
        self.state.set(ServiceState::Ended);
        self.stopped.notify_waiters();
    }
}
