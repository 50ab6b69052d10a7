//! Seam: the traffic that leaves a sandbox.
//!
//! ```text
//!  sandbox ──► its gateway namespace ──► listeners (sockets) ──► egress process ──► resolved, checked, connected
//!                                                                ▲  own uid, no capabilities, seccomp
//!                               burrow serve ──control socket────┘  policies and listeners in, log entries out
//! ```
//!
//! A sandbox can reach only its listeners, so without a process that serves them it has no network (it fails closed).
//! The egress process checks every connection against the policy of the sandbox whose listener accepted it, and never
//! relies on what the connection claims about itself. It resolves names itself and connects only to addresses that it
//! has checked.
//!
//! The process outlives the daemon: a restart of `burrow serve` interrupts no flow.
//!
//! This crate needs no root privileges and has no access to the inside of sandboxes. [`policy`], [`hello`],
//! [`http_head`] and the messages of [`dns`] are pure.

mod account;
mod audit;
mod clock;
pub mod conformance;
pub mod control;
pub mod directives;
pub mod dns;
mod event_rate;
pub mod faulty;
pub mod hello;
pub mod http_head;
mod intercept;
mod limits;
mod log;
pub mod policy;
pub mod process;
mod proxy;
mod sandbox;
pub mod sets;
pub mod sim;
pub mod supervisor;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use async_trait::async_trait;
use burrow_model::SandboxId;
use burrow_network::NetworkError;
use tokio::sync::{mpsc, watch};

#[cfg(any(test, feature = "fuzzing"))]
pub use intercept::fuzz;

pub use directives::{Authority, Directives, Grant};
pub use intercept::{BudgetLeft, PathError, PendingApproval, normal_path};
pub use limits::Limits;
pub use log::{Counters, LogEntry, LogKind, Step, Trial, Verdict};
pub use policy::{Decision, Denial, Destination, DetectedProtocol, Host, Policy, PolicyError, Target};
pub use supervisor::Supervisor;

/// A driver for the traffic that leaves sandboxes, limited by their policies.
///
/// Methods are idempotent, because the engine repeats a step if it cannot prove that the step completed. A cancelled
/// future leaves at most what `detach` removes.
#[async_trait]
pub trait Egress: fmt::Debug + Send + Sync {
    /// Opens the listeners of `id` and serves them according to `policy`. Called once per start, after the sandbox's
    /// network exists. Another call replaces listeners and policy.
    async fn attach(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError>;

    /// Adopts a sandbox that was attached before this daemon started: keeps its listeners and its flows if they are
    /// still served, otherwise does the same as `attach`. In both cases the policy is replaced.
    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError>;

    /// Changes the policy of an attached sandbox. When this returns, new connections are checked against it; flows
    /// that it no longer allows are reset within a second. Fails with [`EgressError::NotAttached`] for other
    /// sandboxes.
    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError>;

    /// Closes the listeners of `id` and ends its flows. Succeeds if the sandbox is not attached.
    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError>;

    /// The sandboxes that are served now, including those attached by an earlier daemon; for recovery.
    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError>;

    /// Tests step by step what a program in `id` could reach: the decision, the addresses, the connection. Sends no
    /// data.
    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError>;

    /// The usage of `id` since it was attached.
    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError>;

    /// The requests of `id` that wait for approval, the oldest first.
    async fn approvals(&self, id: &SandboxId) -> Result<Vec<PendingApproval>, EgressError>;

    /// Approves or rejects a waiting request. Fails with [`EgressError::NotWaiting`] if it no longer waits: it was
    /// decided, timed out, or its program has gone.
    async fn decide(&self, id: &SandboxId, number: u64, yes: bool) -> Result<(), EgressError>;

    /// The budget usage of `id`, one entry for each rule with a budget, in the order of the rules.
    async fn budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EgressError>;

    /// Directs audit events to another segment of the spool. When this returns, nothing is written to the previous
    /// segment. Without a segment, no secret is inserted into any request. A restarted process receives the latest
    /// segment again.
    async fn set_spool(&self, segment: OwnedFd) -> Result<(), EgressError>;

    /// The log entries of all sandboxes, as a stream. There is one reader: the first call returns it, later ones
    /// return `None`. Entries that are not read in time are dropped and counted.
    fn log(&self) -> Option<mpsc::Receiver<LogEntry>>;

    /// Incremented whenever another process serves the sandboxes, or the connection to it was restored. By then the
    /// process has received the policies that the driver keeps, which exclude secrets and authorities: the engine,
    /// which can decrypt them, must set the policies again.
    fn epoch(&self) -> watch::Receiver<u64>;

    /// Ends this daemon's part. The egress process continues to serve sandboxes.
    async fn shutdown(&self);
}

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("sandbox `{id}` is not attached to the egress process")]
    NotAttached { id: SandboxId },
    #[error("no request {number} of sandbox `{id}` waits for approval")]
    NotWaiting { id: SandboxId, number: u64 },
    #[error("could not open the listeners of `{id}`")]
    Listeners { id: SandboxId, source: NetworkError },
    #[error("the egress process is not running")]
    Down,
    #[error("the egress process did not answer in time")]
    Silent,
    #[error("the egress process could not {request}: {reason}")]
    Refused { request: &'static str, reason: String },
    #[error("could not {step} the egress process")]
    Process { step: &'static str, source: io::Error },
    #[error("injected failure of the egress driver")]
    Injected,
}

impl EgressError {
    /// A hint for the operator.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotAttached { .. } => Some("start the sandbox first"),
            Self::NotWaiting { .. } => Some("it was decided already, or it waited too long"),
            Self::Listeners { source, .. } => source.hint(),
            Self::Down | Self::Silent => Some(
                "the daemon restarts it automatically; until then sandboxes have no network. The daemon's log has the cause",
            ),
            Self::Refused { .. } | Self::Injected => None,
            Self::Process { .. } => Some("see the daemon's log, and `egress.stderr` in its run directory"),
        }
    }
}
