//! One connection: who it is, which sandbox it is about, and what the library calls when its client asks for something.
//!
//! Requests are answered here at once, in the order they came, as the protocol wants it; what they ask for is done by one task
//! per channel (`room`), which hears of them in the same order.

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
use crate::lobby::{Found, NoSandbox};
use crate::room::{self, may_set};
use crate::{Entry, forward, lobby};

/// Channels at once on one connection: shells, commands and forwarded ports.
const CHANNELS_MAX: usize = 64;

/// What a connection is known by to all its tasks.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) shared: Arc<Shared>,
    peer: SocketAddr,
    /// Ends the connection.
    pub(crate) cut: CancellationToken,
    /// Cancelled, in the sense of done, when it has logged in.
    pub(crate) entered: CancellationToken,
    pub(crate) channels: Arc<Semaphore>,
    who: OnceLock<Who>,
    sandbox: OnceCell<Found>,
    began: Instant,
    /// When something last came or went, in milliseconds since it began.
    moved_ms: AtomicU64,
}

#[derive(Debug)]
struct Who {
    /// What stands in front of the `@`.
    name: String,
    fingerprint: String,
    entry: Entry,
}

impl Visit {
    pub(crate) fn new(shared: Arc<Shared>, peer: SocketAddr, cut: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            shared,
            peer,
            cut,
            entered: CancellationToken::new(),
            channels: Arc::new(Semaphore::new(CHANNELS_MAX)),
            who: OnceLock::new(),
            sandbox: OnceCell::new(),
            began: Instant::now(),
            moved_ms: AtomicU64::new(0),
        })
    }

    /// Asks the daemon, with the rights of who logged in.
    pub(crate) fn client(&self) -> &Client {
        &self.who.get().expect("channels are opened by those who have logged in").entry.client
    }

    pub(crate) fn login_name(&self) -> &str {
        self.who.get().map_or("", |who| &who.name)
    }

    /// The sandbox that the login name means: found, or made, once for all channels.
    pub(crate) async fn sandbox(&self) -> Result<&Found, NoSandbox> {
        self.sandbox.get_or_try_init(|| lobby::find(self.client(), self.login_name())).await
    }

    /// Returns when the key that opened it opens nothing any more.
    pub(crate) async fn shut(&self) {
        match self.who.get() {
            Some(who) => self.shared.door.shut(&who.fingerprint, &who.entry.key).await,
            None => std::future::pending().await,
        }
    }

    /// Something came or went.
    pub(crate) fn moved(&self) {
        self.moved_ms.store(self.age_ms(), Ordering::Relaxed);
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns when nothing came or went for so long.
    pub(crate) async fn idle(&self, bound: Option<Duration>) {
        let Some(bound) = bound else { return std::future::pending().await };
        loop {
            let until = self.began + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed)) + bound;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// What the library calls.
#[derive(Debug)]
pub(crate) struct Visitor {
    visit: Arc<Visit>,
    /// Channels on which something was started: each can start one thing.
    started: HashSet<ChannelId>,
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

impl Visitor {
    pub(crate) fn new(visit: Arc<Visit>) -> Self {
        Self { visit, started: HashSet::new() }
    }

    /// Says yes once per channel.
    fn start(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        if self.started.insert(id) { session.channel_success(id) } else { session.channel_failure(id) }
    }
}

impl Handler for Visitor {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        let known = self.visit.shared.door.knows(&fingerprint(offer.public_key)).await;
        Ok(if known { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let fingerprint = fingerprint(key.public_key);
        let Some(entry) = self.visit.shared.door.enter(&fingerprint, user, self.visit.peer).await else {
            return Ok(Auth::reject());
        };
        let name = user.to_owned();
        // A second login on a connection does not exist; were there one, it would change nothing.
        let _ = self.visit.who.set(Who { name, fingerprint, entry });
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.visit.moved();
        self.visit.entered.cancel();
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Ok(place) = self.visit.channels.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let (visit, handle) = (self.visit.clone(), session.handle());
        self.visit.shared.tasks.spawn(async move {
            let _place = place;
            room::serve(visit, channel, handle).await;
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
        let Some(port) = forward::inside(host, port) else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let Ok(place) = self.visit.channels.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let visit = self.visit.clone();
        self.visit.shared.tasks.spawn(async move {
            let _place = place;
            forward::carry(&visit, channel, port, reply).await;
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
        if name == room::SFTP { self.start(id, session) } else { session.channel_failure(id) }
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
        self.visit.moved();
        Ok(())
    }
}
