//! The machine of a sandbox that runs or is paused.

use std::sync::Arc;

use burrow_network::Dial;
use burrow_runtime::{Machine, Runtime};

use crate::sleep::activity::StreamCutter;

/// A machine that runs or is paused.
#[derive(Debug)]
pub(crate) struct LiveMachine {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) machine: Machine,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) cut: StreamCutter,
}

impl LiveMachine {
    pub(crate) fn new(dial: Arc<dyn Dial>, machine: Machine, runtime: Arc<dyn Runtime>) -> Self {
        Self { dial, machine, runtime, cut: StreamCutter::default() }
    }
}
