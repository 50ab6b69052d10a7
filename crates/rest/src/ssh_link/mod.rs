//! The state that the SSH gateway shares with the API: its address, claims of keys, and removed keys.

mod claims;

use burrow_http::app::{App, Part};
use std::sync::OnceLock;

use tokio::sync::watch;

pub use claims::{Claims, LIFE_MS};

/// The state of the gateway that the API shares.
#[derive(Debug, Default)]
pub struct Link {
    status: OnceLock<burrow_api::Ssh>,
    pub claims: Claims,
    taken_away: watch::Sender<()>,
}

impl Part for Link {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Link {
    /// Called when a key was removed: connections check whether it was theirs.
    pub fn key_taken_away(&self) {
        self.taken_away.send_replace(());
    }

    /// Sets the address, once the gateway listens. Called once.
    pub fn listens(&self, status: burrow_api::Ssh) {
        self.status.set(status).expect("the gateway begins to listen once");
    }

    /// Notifies of keys that are removed from now on.
    pub fn removals(&self) -> watch::Receiver<()> {
        self.taken_away.subscribe()
    }

    pub fn status(&self) -> burrow_api::Ssh {
        let off = burrow_api::Ssh { address: None, host_key: None, host_fingerprint: None };
        self.status.get().cloned().unwrap_or(off)
    }
}
