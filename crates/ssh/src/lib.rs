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

mod attached_execs;
mod authenticator;
mod cancellable;
mod connection;
mod forward;
mod gateway;
mod handler;
mod input;
mod key_file;
mod listing;
mod login_name;
mod menu;
mod output;
mod public_key;
mod pump;
mod session_channel;

pub use authenticator::{Authenticator, Entry};
pub use gateway::{Gateway, GatewayOptions};
pub use key_file::{KeyFile, KeyFileError};
pub use login_name::CLAIM;
pub use public_key::{BadPublicKey, Login};
pub use session_channel::SFTP_ARGV;

/// The requests of a login: those of a channel in a sandbox, then the login names that do not name a sandbox. A test compares
/// the list with the table of access rights.
pub const REQUESTS: [&str; 7] =
    ["shell", "exec", session_channel::SFTP, "direct-tcpip", login_name::NEW, "claim", "menu"];
