//! Properties and counters of an allowed connection.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_model::SandboxId;

use crate::account::Account;
use crate::clock::{epoch_ms, monotonic_ms};
use crate::policy::{Destination, DetectedProtocol};
use crate::{LogEntry, LogKind, Verdict};

/// Of a connection that is spliced or intercepted.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) destination: Destination,
    pub(crate) protocol: DetectedProtocol,
    /// The address of the host, if it has a single one.
    pub(crate) address: Option<IpAddr>,
    pub(crate) began_ms: u64,
    rule: Arc<str>,
    began_epoch_ms: u64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    last_ms: AtomicU64,
    logged: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Meter {
    pub(crate) fn new(
        destination: Destination,
        protocol: DetectedProtocol,
        rule: Arc<str>,
        address: Option<IpAddr>,
    ) -> Self {
        let now = monotonic_ms();
        Self {
            destination,
            protocol,
            address,
            began_ms: now,
            rule,
            began_epoch_ms: epoch_ms(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            last_ms: AtomicU64::new(now),
            logged: AtomicBool::new(false),
            trouble: Mutex::new(None),
        }
    }

    /// The text of the rule that allowed it.
    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    /// Counts bytes from the client, and returns how long to wait before reading more.
    pub(crate) fn went_out(&self, sandbox: &Account, count: usize) -> Duration {
        self.bytes_out.fetch_add(count as u64, Ordering::Relaxed);
        sandbox.count_out(count as u64);
        self.alive();
        sandbox.pay(count)
    }

    /// Counts bytes to the client, and returns how long to wait before reading more.
    pub(crate) fn came_in(&self, sandbox: &Account, count: usize) -> Duration {
        self.bytes_in.fetch_add(count as u64, Ordering::Relaxed);
        sandbox.count_in(count as u64);
        self.alive();
        sandbox.pay(count)
    }

    fn alive(&self) {
        self.last_ms.store(monotonic_ms(), Ordering::Relaxed);
    }

    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Relaxed)
    }

    /// `true` at the first call.
    pub(crate) fn log_once(&self) -> bool {
        !self.logged.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn set_trouble(&self, text: String) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn entry(&self, id: &SandboxId, duration_ms: Option<u64>, reason: Option<String>) -> LogEntry {
        LogEntry {
            sandbox: id.clone(),
            at_ms: self.began_epoch_ms,
            last_ms: self.began_epoch_ms,
            kind: LogKind::Tcp,
            host: self.destination.host.to_string(),
            port: self.destination.port,
            protocol: Some(self.protocol),
            verdict: Verdict::Allow,
            rule: Some(self.rule.to_string()),
            reason,
            address: self.address,
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            duration_ms,
            count: 1,
        }
    }
}
