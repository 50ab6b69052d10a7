//! Seam: what leaves a sandbox.
//!
//! ```text
//!  sandbox ──► its gateway namespace ──► doors (sockets) ──► burrow egress ──► resolved, checked, dialled
//!                                                                ▲  own uid, no capabilities, seccomp
//!                               burrow serve ──control socket────┘  policies and doors in, log entries out
//! ```
//!
//! A sandbox reaches nothing but its doors, so with nobody behind them it has no network at all (it fails closed).
//! The process behind them judges every connection by the policy of the sandbox whose door it came through, never by
//! anything the connection says about itself, resolves names itself, and dials only addresses it has checked.
//!
//! The process outlives the daemon: restarting `burrow serve` interrupts no flow.
//!
//! What is absent: root, the insides of sandboxes. Which parts are pure: [`policy`], [`hello`], [`http_head`] and
//! [`dns`]'s messages.

mod audit;
mod clock;
pub mod conformance;
pub mod control;
pub mod directives;
pub mod dns;
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
pub use intercept::{BudgetLeft, PathError, Waiting, normal_path};
pub use limits::Limits;
pub use log::{Counters, LogEntry, LogKind, Step, Trial, Verdict};
pub use policy::{Decision, Denial, Destination, Host, Policy, PolicyError, ProtocolSeen, Target};
pub use supervisor::Supervisor;

/// A driver that lets sandboxes out, as far as their policies go.
///
/// Methods are idempotent, since the engine repeats a step it cannot prove it finished. A future dropped midway leaves
/// at most what `detach` removes.
#[async_trait]
pub trait Egress: fmt::Debug + Send + Sync {
    /// Opens the doors of `id` and serves them by `policy`. Called once per start, after the sandbox's network is
    /// there. A repeat replaces doors and policy.
    async fn attach(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError>;

    /// Takes over a sandbox that was attached before this daemon started: keeps its doors and its flows if they are
    /// still served, else does what `attach` does. The policy is brought up to date either way.
    async fn adopt(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError>;

    /// Changes the policy of an attached sandbox. When it answers, new connections are judged by it, and within a
    /// second the flows it no longer allows are reset. [`EgressError::NotAttached`] for others.
    async fn set_policy(&self, id: &SandboxId, policy: &Policy) -> Result<(), EgressError>;

    /// Closes the doors of `id` and ends its flows. Of an unknown sandbox: nothing to do.
    async fn detach(&self, id: &SandboxId) -> Result<(), EgressError>;

    /// The sandboxes that are served now, those of an earlier daemon included; for recovery.
    async fn attached(&self) -> Result<Vec<SandboxId>, EgressError>;

    /// Tries what a program in `id` would try, step by step: the decision, the addresses, the dial. Sends nothing.
    async fn trial(&self, id: &SandboxId, target: &Target) -> Result<Trial, EgressError>;

    /// What `id` has used since it was attached.
    async fn counters(&self, id: &SandboxId) -> Result<Counters, EgressError>;

    /// The requests of `id` that wait for somebody's yes, the oldest first.
    async fn approvals(&self, id: &SandboxId) -> Result<Vec<Waiting>, EgressError>;

    /// Says yes or no to a request that waits. [`EgressError::NotWaiting`] when it does not (any more): it was decided,
    /// its time was over, or its program has gone.
    async fn decide(&self, id: &SandboxId, number: u64, yes: bool) -> Result<(), EgressError>;

    /// What `id` has used of the budgets of its rules, one entry for each rule that has one, in their order.
    async fn budgets(&self, id: &SandboxId) -> Result<Vec<BudgetLeft>, EgressError>;

    /// Has decisions written to another segment of the audit spool. When it answers, nothing is written to the one before.
    /// Until there is one, no secret is put into any request. A process that died gets the last one again.
    async fn set_spool(&self, segment: OwnedFd) -> Result<(), EgressError>;

    /// What happened, as it happens. There is one reader: the first call gets it, later ones get `None`. Entries that
    /// nobody takes away are dropped and counted.
    fn log(&self) -> Option<mpsc::Receiver<LogEntry>>;

    /// Raised whenever another process serves, or the way to it was lost and found. It has been told what to serve, as far
    /// as that is known here: not the secrets and authorities, which nobody keeps. Whoever can open them tells them again.
    fn epoch(&self) -> watch::Receiver<u64>;

    /// Ends this daemon's part. What serves sandboxes goes on serving them.
    async fn shutdown(&self);
}

#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("sandbox `{id}` is not attached to the egress process")]
    NotAttached { id: SandboxId },
    #[error("no request {number} of sandbox `{id}` waits for approval")]
    NotWaiting { id: SandboxId, number: u64 },
    #[error("could not open the doors of `{id}`")]
    Doors { id: SandboxId, source: NetworkError },
    #[error("the egress process is not running")]
    Down,
    #[error("the egress process did not answer in time")]
    Silent,
    #[error("the egress process could not {request}: {reason}")]
    Refused { request: &'static str, reason: String },
    #[error("could not {step} the egress process")]
    Process { step: &'static str, source: io::Error },
    #[error("the egress driver was told to fail")]
    Injected,
}

impl EgressError {
    /// What the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotAttached { .. } => Some("start the sandbox first"),
            Self::NotWaiting { .. } => Some("it was decided already, or it waited too long"),
            Self::Doors { source, .. } => source.hint(),
            Self::Down | Self::Silent => Some(
                "it is started again by itself; until then sandboxes reach nothing. The daemon's log says why",
            ),
            Self::Refused { .. } | Self::Injected => None,
            Self::Process { .. } => {
                Some("the daemon's log and `egress.stderr` in its run directory say more")
            }
        }
    }
}
