//! One connection: its user, its sandbox, and the handler that the SSH library calls for each request.
//!
//! Requests are answered here at once and in order, as the protocol requires. The work is done by one task per channel
//! (`session_channel`), which receives the requests in the same order.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burrow_client::Client;
use russh::keys::{HashAlg, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::gateway::Shared;
use crate::login_name::{LoginSandbox, NoSandbox};
use crate::session_channel::{self, may_set};
use crate::{Entry, forward, login_name};

/// Maximum number of channels of one connection: shells, commands and forwarded ports.
const CHANNELS_MAX: usize = 64;

/// State of a connection that all its tasks share.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    peer: SocketAddr,
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

/// The callbacks of the SSH library.
#[derive(Debug)]
pub(crate) struct ConnectionHandler {
    connection: Arc<Connection>,
    /// Channels on which something was started: a channel can start one thing only.
    started: HashSet<ChannelId>,
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

impl ConnectionHandler {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, started: HashSet::new() }
    }

    /// Accepts one start per channel.
    fn start(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        if self.started.insert(id) { session.channel_success(id) } else { session.channel_failure(id) }
    }
}

impl Handler for ConnectionHandler {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        let known = self.connection.shared.authenticator.knows(&fingerprint(offer.public_key)).await;
        Ok(if known { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let fingerprint = fingerprint(key.public_key);
        let Some(entry) =
            self.connection.shared.authenticator.enter(&fingerprint, user, self.connection.peer).await
        else {
            return Ok(Auth::reject());
        };
        let name = user.to_owned();
        // A connection cannot log in twice; a second login would be ignored.
        let _ = self.connection.identity.set(Identity { name, fingerprint, entry });
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.connection.record_activity();
        self.connection.logged_in.cancel();
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Ok(permit) = self.connection.channels.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let (connection, handle) = (self.connection.clone(), session.handle());
        self.connection.shared.tasks.spawn(async move {
            let _permit = permit;
            session_channel::serve(connection, channel, handle).await;
        });
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(port) = forward::sandbox_port(host, port) else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let Ok(permit) = self.connection.channels.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let connection = self.connection.clone();
        self.connection.shared.tasks.spawn(async move {
            let _permit = permit;
            forward::serve(&connection, channel, port, reply).await;
        });
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.started.remove(&id);
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if may_set(name, value) { session.channel_success(id) } else { session.channel_failure(id) }
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        self.start(id, session)
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        _: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.start(id, session)
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if name == session_channel::SFTP { self.start(id, session) } else { session.channel_failure(id) }
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)
    }

    async fn x11_request(
        &mut self,
        id: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(id)
    }

    async fn signal(&mut self, _: ChannelId, _: russh::Sig, _: &mut Session) -> Result<(), russh::Error> {
        self.connection.record_activity();
        Ok(())
    }
}
