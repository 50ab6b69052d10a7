//! Seam: the network of one sandbox.
//!
//! ```text
//!   sandbox's net ns (in its user ns)          gateway net ns (host's user ns)
//!   eth0 10.88.0.2/30, fd88::2/126  ◄──veth──►  gw0 10.88.0.1/30, fd88::1/126
//!                                                ├─ TCP to any destination ──► egress listener
//!                                                ├─ DNS to the gateway ─► resolver's listeners
//!                                                ├─ TCP to the gateway's port 7700 ─► the sandbox's own listener
//!                                                └─ everything else is dropped; nothing is ever forwarded
//! ```
//!
//! Invariant 1, "no policy, no packet": a sandbox has no route to anything. Its interface ends in its own gateway
//! namespace. The daemon reaches the guest through sockets created *in* that namespace, and the guest's traffic ends at
//! sockets created there, its listeners. The process that serves them decides about the traffic; without such a
//! process, no traffic gets out. Every sandbox sees the same addresses, so a restored or forked machine keeps its own.
//!
//! What is absent: HTTP, names, policy, secrets.

mod address;
pub mod conformance;
pub mod faulty;
pub mod linux;
pub mod sim;

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::SandboxId;

pub use address::{
    DNS_PORT, EGRESS_PORT, GATEWAY_HARDWARE, GATEWAY_V4, GATEWAY_V6, OWN_PORT, PREFIX_V4, PREFIX_V6,
    SANDBOX_HARDWARE, SANDBOX_V4, SANDBOX_V6,
};

/// A driver that connects sandboxes.
///
/// Methods are idempotent, since the engine repeats a step that it cannot prove it finished. A cancelled future leaves
/// at most what `release` removes.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Gives `id` its own network. Called once per start, before the machine boots. A repeat replaces the earlier
    /// network: its caller lost the attachment, so no machine can be connected to it any more.
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError>;

    /// As `connect`, for a machine that has its own network namespace: a machine that is restored from a dump. Only the
    /// gateway is created, so its listeners can be opened at once. The [`Plug`] of the attachment connects the machine
    /// to it; until then, dialling fails.
    async fn connect_later(&self, id: &SandboxId) -> Result<Link, NetworkError>;

    /// Finds the network of a sandbox that was running before this daemon started; `None` if it no longer exists.
    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError>;

    /// Opens the listeners of `id`: new sockets in its gateway namespace, on which all traffic of the sandbox arrives.
    ///
    /// Called when the process that serves them starts: once per start of the sandbox, and again whenever that process
    /// was replaced. The newest listeners win: those of an earlier call are dead, whichever process still holds them
    /// (one that hangs, a forgotten copy). Waiting on them fails, and connections that were accepted through them
    /// continue. A cancelled future may have closed the old listeners without returning new ones: repeat it.
    ///
    /// Listeners keep the gateway namespace alive until they are closed, also beyond `release`.
    /// [`NetworkError::NotConnected`] for a sandbox without a network.
    async fn listeners(&self, id: &SandboxId) -> Result<Listeners, NetworkError>;

    /// Opens the listener of the sandbox's own API: a socket at the gateway's address, port [`OWN_PORT`]. Every client
    /// that connects to it is a program in this sandbox, whatever it claims to be.
    ///
    /// The daemon serves it, so it is opened once per start of the sandbox and once per start of the daemon. As with
    /// [`Network::listeners`] the newest wins, and it keeps the gateway namespace alive until it is closed. It is
    /// non-blocking and closed on `exec`.
    async fn own_listener(&self, id: &SandboxId) -> Result<OwnedFd, NetworkError>;

    /// Limits the rate at which the sandbox sends and receives; `None`: no limit. It applies for the lifetime of the
    /// network, to every machine that is plugged in: beyond this process, and until `release` or another `connect`. A
    /// repeat fills the buckets.
    ///
    /// [`NetworkError::NotConnected`] for a sandbox without a network.
    async fn set_rate(&self, id: &SandboxId, rate: Option<Rate>) -> Result<(), NetworkError>;

    /// Removes everything that `connect` or `connect_later` created; existing handles of `id` can no longer dial.
    /// Succeeds for an unknown sandbox.
    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError>;

    /// The sandboxes that have a network here, for recovery.
    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError>;

    /// Ends background work (the pool of ready slots) and releases unused slots. Sandboxes keep their networks, and
    /// `connect` still works: it creates slots on demand.
    async fn shutdown(&self);
}

/// A sandbox's network, ready for its machine.
#[derive(Debug)]
pub struct Link {
    pub attachment: Attachment,
    pub dial: Arc<dyn Dial>,
}

/// How a runtime driver connects its machine to the network.
#[derive(Debug)]
pub enum Attachment {
    /// For containers: the machine joins these. The network namespace belongs to the user namespace, which maps uids to
    /// `ids` or, without `ids`, to those that files have on disk.
    Namespaces { user: OwnedFd, net: OwnedFd, ids: Option<linux::HostIds> },
    /// For machines with their own empty network namespace, or with a network interface: plug it in before anything
    /// runs.
    Later(Arc<dyn Plug>),
    /// For tests without a kernel.
    None,
}

/// The gateway's end of a network that has no machine yet.
pub trait Plug: fmt::Debug + Send + Sync {
    /// Connects an empty network namespace to the gateway: interfaces, addresses, routes, as by `connect`. Blocks for
    /// about a millisecond; must not be called on an async thread.
    ///
    /// May be repeated, also for another namespace: a machine that was connected before is disconnected, so that a
    /// failed restore can be retried. Fails once the sandbox's network was released or replaced.
    fn plug(&self, net: BorrowedFd<'_>) -> io::Result<()>;

    /// Connects a machine that has a network interface instead of a namespace: creates a tap in the gateway, and
    /// returns the descriptor that sends and receives frames, each preceded by a `virtio_net_hdr`. The interface must
    /// have [`SANDBOX_HARDWARE`] as its address. The machine configures its own end (addresses, routes, the neighbour
    /// [`GATEWAY_HARDWARE`]).
    ///
    /// Repeats, blocking and failures as for [`Plug::plug`]. Closing the descriptor removes the tap.
    fn plug_tap(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The listening sockets for one sandbox's traffic to the outside. They are non-blocking and closed on `exec`.
///
/// A sandbox's packets reach nothing else, so if no process accepts here, it has no network at all. Addresses of IPv4
/// peers may be written as IPv6 (`::ffff:10.88.0.2`): use [`std::net::IpAddr::to_canonical`].
#[derive(Debug)]
pub struct Listeners {
    /// Accepts every TCP connection, to any destination. A stream's `local_addr` is the destination that the program
    /// chose: it is untrusted input, to be checked and never to be dialled directly.
    pub tcp: OwnedFd,
    /// Receives the queries sent to the gateway's own address, port 53.
    pub dns_udp: OwnedFd,
    /// Accepts the connections to the gateway's own address, port 53.
    pub dns_tcp: OwnedFd,
}

/// The rate of a sandbox's network, for each direction separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Not 0. After a quiet time a second's worth passes at once.
    pub bytes_per_second: u64,
}

/// Connects to a sandbox from its gateway namespace.
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to a TCP port on the sandbox's own address.
    async fn dial(&self, port: u16) -> io::Result<tokio::net::TcpStream>;

    /// The same for the daemon's own requests to the agent inside, which are not traffic of the sandbox: no [`Rate`]
    /// counts them, so a sandbox that has used up its rate remains reachable.
    async fn dial_uncounted(&self, port: u16) -> io::Result<tokio::net::TcpStream>;
}

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("could not {step} for the network of `{id}`")]
    Step { step: &'static str, id: String, source: io::Error },
    #[error("could not {step} `{}`", .run_dir.display())]
    RunDir { step: &'static str, run_dir: PathBuf, source: io::Error },
    #[error("sandbox `{id}` has no network")]
    NotConnected { id: String },
    #[error("injected failure of the network driver")]
    Injected,
}

impl NetworkError {
    /// What the operator can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Step { step, source, .. } | Self::RunDir { step, source, .. } => {
                linux::remedy(step, source)
            }
            Self::NotConnected { .. } => Some("start the sandbox first"),
            Self::Injected => None,
        }
    }
}
