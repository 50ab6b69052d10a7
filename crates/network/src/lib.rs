//! Seam: the network of one sandbox.
//!
//! ```text
//!   sandbox's net ns (in its user ns)          gateway net ns (host's user ns)
//!   eth0 10.88.0.2/30, fd88::2/126  ◄──veth──►  gw0 10.88.0.1/30, fd88::1/126
//!                                                ├─ TCP, wherever to ──► egress door
//!                                                ├─ DNS to the gateway ─► resolver's doors
//!                                                ├─ TCP to the gateway's port 7700 ─► the sandbox's own door
//!                                                └─ all else: dropped; nothing is ever forwarded
//! ```
//!
//! Invariant 1, "no policy, no packet": a sandbox has no route to anything. Its interface ends in a gateway namespace
//! of its own; the daemon reaches the guest by sockets made *in* that namespace, and what the guest sends ends at
//! sockets made there, its doors. Whoever holds those decides; while nobody does, nothing gets anywhere. Every sandbox
//! sees the same addresses, so a restored or forked machine keeps its own.
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
/// Methods are idempotent, since the engine repeats a step it cannot prove it finished. A future dropped midway
/// leaves at most what `release` removes.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Gives `id` a network of its own. Called once per start, before the machine boots. A repeat replaces what an
    /// earlier call made: its caller lost the attachment, so nothing can be plugged into it any more.
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError>;

    /// As `connect`, for a machine that comes with a network namespace of its own: one restored from a dump. Only the
    /// gateway is made, so doors can be opened at once; the machine is wired to it by the [`Plug`] of the attachment,
    /// and until then dialling it fails.
    async fn connect_later(&self, id: &SandboxId) -> Result<Link, NetworkError>;

    /// Finds the network of a sandbox that was running before this daemon started; `None` when it is gone.
    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError>;

    /// Opens the doors of `id`: fresh sockets in its gateway namespace, on which everything arrives that it sends.
    ///
    /// Called when whoever serves them starts, so once per start of the sandbox and again whenever that process was
    /// replaced. The newest doors win: those of an earlier call are dead from then on, whoever still holds them (a
    /// process that hangs, a forgotten copy); waiting on them fails, and connections that were accepted through them
    /// live on. A future dropped midway may have killed the old doors without handing out new ones: repeat it.
    ///
    /// Doors keep the gateway namespace alive until they are closed, also beyond `release`.
    /// [`NetworkError::NotConnected`] for a sandbox that has no network.
    async fn doors(&self, id: &SandboxId) -> Result<Doors, NetworkError>;

    /// Opens the one door behind which is the sandbox's own API: a listening socket at the gateway's address, port
    /// [`OWN_PORT`]. Whoever connects to it is a program in this sandbox, whatever it says of itself.
    ///
    /// It is the daemon that serves it, so it is opened once per start of the sandbox and once per start of the daemon.
    /// As with [`Network::doors`] the newest wins, and it keeps the gateway namespace alive until it is closed. It does
    /// not block and is closed on `exec`.
    async fn own_door(&self, id: &SandboxId) -> Result<OwnedFd, NetworkError>;

    /// Bounds how fast what the sandbox sends and what it receives may pass; `None`: not at all. Holds for as long as its
    /// network does, whoever plugs in: beyond this process, and until `release` or another `connect`. A repeat fills the
    /// buckets.
    ///
    /// [`NetworkError::NotConnected`] for a sandbox that has no network.
    async fn set_rate(&self, id: &SandboxId, rate: Option<Rate>) -> Result<(), NetworkError>;

    /// Removes all that `connect` or `connect_later` made; handles given out for `id` stop dialling. Of an unknown sandbox: nothing to
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
    /// For containers: join these. The network namespace belongs to the user namespace; uids are mapped by it, to `ids`
    /// or, without, to those that files have on disk.
    Namespaces { user: OwnedFd, net: OwnedFd, ids: Option<linux::HostIds> },
    /// For machines that bring an empty network namespace along, or a network card: plug it in before anything runs.
    Later(Arc<dyn Plug>),
    /// For tests without a kernel.
    None,
}

/// The gateway's end of a sandbox's network that has no machine yet.
pub trait Plug: fmt::Debug + Send + Sync {
    /// Wires an empty network namespace to the gateway: interfaces, addresses, routes, as `connect` would have made
    /// them. Blocks for about a millisecond; not to be called on an async thread.
    ///
    /// May be repeated, also for another namespace: whatever was plugged in before is cut off, so that a restore that
    /// failed can be tried again. Fails once the sandbox's network was released or replaced.
    fn plug(&self, net: BorrowedFd<'_>) -> io::Result<()>;

    /// Wires a machine that has a network card instead of a namespace: makes a tap in the gateway, and hands out the end
    /// where frames come and go, each behind a `virtio_net_hdr`. The card must have [`SANDBOX_HARDWARE`] as its address;
    /// what stands at the machine's own end (addresses, routes, the neighbour [`GATEWAY_HARDWARE`]) is the machine's.
    ///
    /// Repeats, blocking and failures as for [`Plug::plug`]. When the descriptor is closed, the tap is gone.
    fn plug_tap(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The listening sockets of one sandbox's way out. They do not block and are closed on `exec`.
///
/// Nothing a sandbox sends reaches anything else, so with nobody accepting here it has no network at all. Addresses
/// of v4 peers may be written as v6 (`::ffff:10.88.0.2`): use [`std::net::IpAddr::to_canonical`].
#[derive(Debug)]
pub struct Doors {
    /// Accepts every TCP connection, wherever to. A stream's `local_addr` is where the program wanted to go: it is
    /// the sandbox's word, to be judged and never to be dialled.
    pub tcp: OwnedFd,
    /// Receives the questions sent to the gateway's own address, port 53.
    pub dns_udp: OwnedFd,
    /// Accepts the connections to the gateway's own address, port 53.
    pub dns_tcp: OwnedFd,
}

/// How fast a sandbox's network is, each way by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Not 0. After a quiet time a second's worth passes at once.
    pub bytes_per_second: u64,
}

/// Reaches into a sandbox from its gateway namespace.
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to a TCP port on the sandbox's own address.
    async fn dial(&self, port: u16) -> io::Result<tokio::net::TcpStream>;

    /// The same for the daemon's own affairs with the agent inside, which are no traffic of the sandbox's: no [`Rate`]
    /// counts them, so one that has used up its own can still be spoken to.
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
            Self::NotConnected { .. } => Some("start the sandbox first"),
            Self::Injected => None,
        }
    }
}
