//! One connection: its user, its sandbox, its last traffic, and what it shares with the others.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burrow_client::Client;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attached_execs::AttachedExecs;
use crate::login_name::{self, LoginSandbox, NoSandbox};
use crate::{Authenticator, Entry};

/// Maximum number of channels of one connection: shells, commands and forwarded ports.
const CHANNELS_MAX: usize = 64;

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) attached: AttachedExecs,
    /// One permit per byte of buffered input.
    pub(crate) input: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the daemon is about to exit: execs then keep running.
    pub(crate) stop: CancellationToken,
}

/// State of a connection that all its tasks share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: SocketAddr,
    /// Ends the connection.
    pub(crate) cancel: CancellationToken,
    /// Cancelled as soon as the connection has logged in.
    pub(crate) logged_in: CancellationToken,
    pub(crate) channels: Arc<Semaphore>,
    identity: OnceLock<Identity>,
    sandbox: OnceCell<LoginSandbox>,
    started_at: Instant,
    /// Time of the last traffic, in milliseconds since the connection started_at.
    last_activity_ms: AtomicU64,
}

#[derive(Debug)]
struct Identity {
    /// The login name, in front of the `@`.
    name: String,
    fingerprint: String,
    entry: Entry,
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, peer: SocketAddr, cancel: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            shared,
            peer,
            cancel,
            logged_in: CancellationToken::new(),
            channels: Arc::new(Semaphore::new(CHANNELS_MAX)),
            identity: OnceLock::new(),
            sandbox: OnceCell::new(),
            started_at: Instant::now(),
            last_activity_ms: AtomicU64::new(0),
        })
    }

    pub(crate) fn log_in(&self, name: &str, fingerprint: String, entry: Entry) {
        // A connection cannot log in twice; a second login would be ignored.
        let _ = self.identity.set(Identity { name: name.to_owned(), fingerprint, entry });
    }

    /// A client of the daemon with the rights of the user identity logged in.
    pub(crate) fn client(&self) -> &Client {
        &self.identity.get().expect("channels are opened by those identity have logged in").entry.client
    }

    pub(crate) fn login_name(&self) -> &str {
        self.identity.get().map_or("", |identity| &identity.name)
    }

    /// The sandbox that the login name stands for: found or created once for all channels.
    pub(crate) async fn sandbox(&self) -> Result<&LoginSandbox, NoSandbox> {
        self.sandbox.get_or_try_init(|| login_name::resolve(self.client(), self.login_name())).await
    }

    /// Returns when the key that logged in is revoked.
    pub(crate) async fn key_revoked(&self) {
        match self.identity.get() {
            Some(identity) => {
                self.shared.authenticator.shut(&identity.fingerprint, &identity.entry.key).await
            }
            None => std::future::pending().await,
        }
    }

    /// Records that there was traffic.
    pub(crate) fn record_activity(&self) {
        self.last_activity_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns when there was no traffic for `bound`.
    pub(crate) async fn idle(&self, bound: Option<Duration>) {
        let Some(bound) = bound else { return std::future::pending().await };
        loop {
            let until = self.started_at
                + Duration::from_millis(self.last_activity_ms.load(Ordering::Relaxed))
                + bound;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}
