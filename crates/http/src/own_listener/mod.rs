//! Identifies requests that a sandbox sends through its own listener, and limits them.

pub mod log_limit;
pub mod rate;

use std::sync::Arc;

use burrow_model::{SandboxId, TenantId};
use tokio::sync::Semaphore;

use log_limit::LogLimit;
use rate::Rate;

/// Concurrent requests of one sandbox, including watches.
const LISTENER_REQUESTS_MAX: usize = 64;

/// How many of them are processed at the same time; the others wait. This is half of the reads that a host processes
/// concurrently, so that requests of other clients are still answered.
const LISTENER_ACTIVE_MAX: usize = 8;

/// The sandbox that sent a request, identified by the listener that received it. Set only by the router of that listener.
#[derive(Clone, Debug)]
pub struct OwnListener {
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    /// Limits concurrent requests through this listener.
    pub slots: Arc<Semaphore>,
    /// Limits how many of them are processed at the same time.
    pub active: Arc<Semaphore>,
    /// Limits their rate.
    pub rate: Arc<Rate>,
    /// Limits the lines in the operator's log that its failures cause.
    pub log: Arc<LogLimit>,
}

impl OwnListener {
    pub fn new(tenant: TenantId, sandbox: SandboxId, now_ms: u64) -> Self {
        Self {
            tenant,
            sandbox,
            slots: Arc::new(Semaphore::new(LISTENER_REQUESTS_MAX)),
            active: Arc::new(Semaphore::new(LISTENER_ACTIVE_MAX)),
            rate: Arc::new(Rate::full(now_ms)),
            log: Arc::default(),
        }
    }
}
