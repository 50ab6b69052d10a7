//! Which public keys may log in: the daemon decides.

use std::net::SocketAddr;

use async_trait::async_trait;
use burrow_client::Client;

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
