//! The SSH gateway: `ssh SANDBOX@host` opens a shell, runs a command, transfers files, forwards ports into the sandbox.
//!
//! ```text
//!   ssh ─TCP─► Gateway (bounds, host key) ─► public key ─► Authenticator ─► a client of the daemon's own routes, with the
//!                    │                                             rights of the API key that the public key belongs to
//!                    └─ one task per channel: session_channel ─► exec + attach (pump) · sftp = an exec · direct-tcpip = a port
//! ```
//!
//! This crate makes no access decisions: everything that a connection does is a request to the daemon's API through
//! [`burrow_client`], so keys, scopes, tenants, waking, limits and the audit log are the same as for every client. Absent:
//! accounts, passwords, a file system (sftp is served by the sandbox's own agent), and every connection from the sandbox
//! to the client's machine: remote forwarding, agent forwarding and X11 forwarding are refused.
//!
//! Invariants: until a connection has shown a known key, it occupies one of few places for a limited time. A lost connection
//! ends a command, but leaves a login shell running: the next login offers it. Revoking a key ends its connections.

mod cancellable;
mod connection;
mod forward;
mod gateway;
mod input;
mod key_file;
mod listing;
mod login_name;
mod menu;
mod output;
mod public_key;
mod pump;
mod session_channel;

use std::net::SocketAddr;

use async_trait::async_trait;
use burrow_client::Client;

pub use gateway::{Gateway, GatewayOptions};
pub use key_file::{KeyFile, KeyFileError};
pub use public_key::{BadPublicKey, Login};

/// The exec that serves sftp inside a sandbox: the agent's own program.
pub const SFTP_ARGV: [&str; 2] = ["/.burrow/guest", "sftp"];

/// The requests of a login: those of a channel in a sandbox, then the login names that do not name a sandbox. A test compares
/// the list with the table of access rights.
pub const REQUESTS: [&str; 7] =
    ["shell", "exec", session_channel::SFTP, "direct-tcpip", login_name::NEW, "claim", "menu"];

/// Prefix of a code in a login name: the login proves that the client holds a public key, and claims the key.
pub const CLAIM: &str = "claim+";

/// The result of a login.
#[derive(Debug)]
pub struct Entry {
    pub client: Client,
    /// The id of the known key that was used.
    pub key: String,
}

/// Decides which public keys may log in. The daemon implements it.
#[async_trait]
pub trait Authenticator: std::fmt::Debug + Send + Sync + 'static {
    /// Whether a key with this fingerprint (`SHA256:…`) would be accepted. Called before the client has proven that it holds the key.
    async fn knows(&self, fingerprint: &str) -> bool;

    /// Called after the client has proven that it holds the key, with the login name and the client's address.
    async fn enter(&self, fingerprint: &str, name: &str, peer: SocketAddr) -> Option<Entry>;

    /// Returns when a key that logged in, given as [`Entry::key`], is revoked. The future may be dropped at any time.
    async fn shut(&self, fingerprint: &str, key: &str);
}
