//! The SSH gateway: `ssh SANDBOX@host` gives a shell, runs a command, moves files, forwards ports into the sandbox.
//!
//! ```text
//!   ssh ─TCP─► Gateway (bounds, host key) ─► public key ─► Door ─► a client of the daemon's own routes, with the
//!                    │                                             rights of the API key that the public key belongs to
//!                    └─ one task per channel: room ─► exec + attach (pump) · sftp = an exec · direct-tcpip = a port
//! ```
//!
//! Nothing here decides what anybody may do: all that a connection does is asked of the daemon's API through
//! [`burrow_client`], so keys, scopes, tenants, waking, bounds and the audit log are the same as for everybody. What is
//! absent: accounts, passwords, a file system (sftp is served by the sandbox's own agent), and every way from the
//! sandbox to the client's machine: remote forwarding, agent and X11 forwarding are refused.
//!
//! Invariants: until a connection has shown a known key it costs one slot of few and a bounded time. A lost connection ends a
//! command, and leaves a login shell running: the next login offers it. A key that is taken away ends its connections.

mod cut;
mod forward;
mod gateway;
mod input;
mod key_file;
mod listing;
mod lobby;
mod menu;
mod output;
mod public_key;
mod pump;
mod room;
mod visit;

use std::net::SocketAddr;

use async_trait::async_trait;
use burrow_client::Client;

pub use gateway::{Gateway, GatewayOptions};
pub use key_file::{KeyFile, KeyFileError};
pub use public_key::{BadPublicKey, Login};

/// The exec that serves sftp inside a sandbox: the agent's own program.
pub const SFTP_ARGV: [&str; 2] = ["/.burrow/guest", "sftp"];

/// Before a code in a login name: the login is to prove that the client holds a public key, which it wants to take over.
pub const CLAIM: &str = "claim+";

/// What a login opened.
#[derive(Debug)]
pub struct Entry {
    pub client: Client,
    /// Which of the known keys it was.
    pub key: String,
}

/// Who may come in. The daemon's side of the gateway.
#[async_trait]
pub trait Door: std::fmt::Debug + Send + Sync + 'static {
    /// Whether a key of this fingerprint (`SHA256:…`) would be let in. Asked before its owner has proven anything.
    async fn knows(&self, fingerprint: &str) -> bool;

    /// Called once the owner has proven to hold it, with what they log in as, and from where.
    async fn enter(&self, fingerprint: &str, name: &str, peer: SocketAddr) -> Option<Entry>;

    /// Returns when a key that opened something, as [`Entry::key`], opens nothing any more. May be dropped at any time.
    async fn shut(&self, fingerprint: &str, key: &str);
}
