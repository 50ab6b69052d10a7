//! Seam: the network of one sandbox.
//!
//! ```text
//!   sandbox's net ns (in its user ns)          gateway net ns (host's user ns)
//!   eth0 10.88.0.2/30, fd88::2/126  ◄──veth──►  gw0 10.88.0.1/30, fd88::1/126
//!                                               forwards nothing, drops what nobody dialled
//! ```
//!
//! Invariant 1, "no policy, no packet": a sandbox has no route to anything. Its interface ends in a gateway namespace
//! of its own; the daemon reaches the guest by sockets made *in* that namespace. Every sandbox sees the same
//! addresses, so a restored or forked machine keeps its own.
//!
//! What is absent: HTTP, names, policy, secrets.

mod address;
pub mod conformance;
pub mod faulty;
pub mod linux;
pub mod sim;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::SandboxId;

pub use address::{GATEWAY_V4, GATEWAY_V6, SANDBOX_V4, SANDBOX_V6};

/// A driver that connects sandboxes.
///
/// Methods are idempotent, since the engine repeats a step it cannot prove it finished. A future dropped midway
/// leaves at most what `release` removes.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Gives `id` a network of its own. Called once per start, before the machine boots. A repeat replaces what an
    /// earlier call made: its caller lost the attachment, so nothing can be plugged into it any more.
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError>;

    /// Finds the network of a sandbox that was running before this daemon started; `None` when it is gone.
    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError>;

    /// Removes all that `connect` made; handles given out for `id` stop dialling. Of an unknown sandbox: nothing to
    /// do.
    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError>;

    /// The sandboxes that have something here, for recovery.
    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError>;

    /// Ends background work (the pool of ready slots) and gives back what is unused. Sandboxes keep their networks,
    /// and `connect` still works: it makes what it needs on demand.
    async fn shutdown(&self);
}

/// A sandbox's network, ready for its machine.
#[derive(Debug)]
pub struct Link {
    pub attachment: Attachment,
    pub dial: Arc<dyn Dial>,
}

/// What a runtime driver plugs its machine into.
#[derive(Debug)]
pub enum Attachment {
    /// For containers: join these. The network namespace belongs to the user namespace; uids are mapped by it.
    Namespaces { user: OwnedFd, net: OwnedFd },
    /// For tests without a kernel.
    None,
}

/// Reaches into a sandbox from its gateway namespace.
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to a TCP port on the sandbox's own address.
    async fn dial(&self, port: u16) -> io::Result<tokio::net::TcpStream>;
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("could not {step} for the network of `{id}`")]
    Step { step: &'static str, id: String, source: io::Error },
    #[error("could not {step} `{}`", .run_dir.display())]
    RunDir { step: &'static str, run_dir: PathBuf, source: io::Error },
    #[error("the network driver was told to fail")]
    Injected,
}

impl NetworkError {
    /// What the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Step { step, source, .. } | Self::RunDir { step, source, .. } => {
                linux::remedy(step, source)
            }
            Self::Injected => None,
        }
    }
}
