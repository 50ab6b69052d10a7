//! Accepts connections, within bounds, and watches over each until it ends.
//!
//! ```text
//!   accept ─► slot (all · half-open · half-open of this address) ─► banner, keys, login (bounded time) ─► channels
//!                                                                                    └─► idle for too long, or its key taken away: cut
//! ```
//!
//! The library that speaks SSH is never trusted to end: what is to end is cut off below it (`cut`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::keys::Algorithm;
use russh::server::Config;
use russh::{MethodKind, MethodSet, Preferred, SshId, cipher, compression, kex, mac};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cut::Cuttable;
use crate::listing::Attached;
use crate::visit::{Visit, Visitor};
use crate::{Door, KeyFile};

/// Silence after which the peer is asked whether it is there, and how often it may not answer.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVES_MAX: usize = 3;

/// What a wrong key waits for its answer. None for the question which methods there are, which every client asks first.
const REJECTION_TIME: Duration = Duration::from_millis(100);

/// When the process is out of file descriptors, accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes a client may send ahead on one channel.
const WINDOW_BYTES: u32 = 2 << 20;
const PACKET_BYTES: u32 = 32 << 10;
/// Messages of one channel, and of one connection's output, on their way between tasks.
const CHANNEL_MESSAGES: usize = 128;
const OUTPUT_MESSAGES: usize = 64;

/// Input that programs have not read yet, of all connections together.
const INPUT_BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Connections at once.
    pub connections: usize,
    /// Of these, such as have not shown a known key yet.
    pub half_open: usize,
    /// Of these, from one address (of IPv6, one /64).
    pub half_open_per_address: usize,
    /// From the first byte to a known key.
    pub login_time: Duration,
    /// Wrong keys of one connection.
    pub tries: usize,
    /// A connection over which nothing comes or goes for this long is closed.
    pub idle: Option<Duration>,
}

/// The gateway, ready to be run on a listener.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    half_open: HalfOpen,
    connections: Arc<Semaphore>,
    config: Arc<Config>,
    options: GatewayOptions,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) door: Arc<dyn Door>,
    pub(crate) attached: Attached,
    /// One permit per byte of input that waits.
    pub(crate) input: Arc<Semaphore>,
    pub(crate) tasks: TaskTracker,
    /// The daemon is about to end: what runs is nobody's to end.
    pub(crate) stop: CancellationToken,
}

impl Gateway {
    /// `stop` ends it, and all its connections. What runs in sandboxes goes on.
    pub fn new(
        door: Arc<dyn Door>,
        host_key: KeyFile,
        options: GatewayOptions,
        stop: CancellationToken,
    ) -> Self {
        let shared = Shared {
            door,
            attached: Attached::default(),
            input: Arc::new(Semaphore::new(INPUT_BYTES_MAX)),
            tasks: TaskTracker::new(),
            stop,
        };
        Self {
            shared: Arc::new(shared),
            half_open: HalfOpen::new(options.half_open, options.half_open_per_address),
            connections: Arc::new(Semaphore::new(options.connections)),
            config: Arc::new(config(host_key, &options)),
            options,
        }
    }

    /// Accepts until it is stopped, and returns when the last connection has ended.
    pub async fn run(self, listener: TcpListener) {
        let stop = &self.shared.stop;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => self.begin(stream, peer, stop.child_token()),
                Err(error) => pause_after(&error).await,
            }
        }
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// One more than there may be is closed at once: waiting would let strangers keep others out.
    fn begin(&self, stream: TcpStream, peer: SocketAddr, cut: CancellationToken) {
        let Ok(slot) = self.connections.clone().try_acquire_owned() else {
            return tracing::debug!(%peer, "no room for another SSH connection");
        };
        let Some(place) = self.half_open.enter(peer.ip()) else {
            return tracing::debug!(%peer, "too many SSH connections that have not logged in");
        };
        // Keystrokes are small, and somebody waits for each.
        if let Err(error) = stream.set_nodelay(true) {
            return tracing::debug!(%error, "could not prepare a connection");
        }
        let visit = Visit::new(self.shared.clone(), peer, cut);
        let (config, options) = (self.config.clone(), self.options.clone());
        self.shared.tasks.spawn(attend(config, options, visit, stream, place, slot));
    }
}

/// Sees one connection to its end.
async fn attend(
    config: Arc<Config>,
    options: GatewayOptions,
    visit: Arc<Visit>,
    stream: TcpStream,
    place: Place,
    _slot: OwnedSemaphorePermit,
) {
    let ending = visit.cut.clone().drop_guard();
    let stream = Cuttable::new(stream, &visit.cut);
    let handler = Visitor::new(visit.clone());
    let (began, entered) = (tokio::time::Instant::now(), visit.entered.clone());
    let login = began + options.login_time;
    let greeting = russh::server::run_stream(config, stream, handler);
    let mut session = match tokio::time::timeout_at(login, greeting).await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(%error, "an SSH connection ended before it began"),
        Err(_) => return tracing::debug!("an SSH client did not say what it is"),
    };
    tokio::select! {
        ended = &mut session => return told(ended),
        () = entered.cancelled() => drop(place),
        () = tokio::time::sleep_until(login) => return tracing::debug!("an SSH client did not log in in time"),
    }
    tokio::select! {
        ended = &mut session => told(ended),
        () = visit.idle(options.idle) => tracing::info!("an SSH connection was idle for too long"),
        () = visit.shut() => tracing::info!("the key of an SSH connection opens nothing any more"),
    }
    drop(ending);
}

fn told(ended: Result<(), russh::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "an SSH connection broke");
    }
}

async fn pause_after(error: &io::Error) {
    // A peer that hung up while it waited is nobody's trouble.
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "could not accept an SSH connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn config(host_key: KeyFile, options: &GatewayOptions) -> Config {
    Config {
        server_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-Burrow_", env!("CARGO_PKG_VERSION")))),
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: REJECTION_TIME,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key.key],
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES,
        channel_buffer_size: CHANNEL_MESSAGES,
        event_buffer_size: OUTPUT_MESSAGES,
        preferred: preferred(),
        max_auth_attempts: options.tries,
        // Ours, see `Visit::idle`; the library's would count answers to keepalives as work.
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES_MAX,
        nodelay: true,
        ..Config::default()
    }
}

/// What is sound today, and fast: AES-GCM rather than ChaCha20, which older clients would choose, is several times faster in
/// hardware and was never open to the Terrapin attack. No compression: it opens more than it saves.
fn preferred() -> Preferred {
    Preferred {
        kex: Cow::Borrowed(&[
            kex::MLKEM768X25519_SHA256,
            kex::CURVE25519,
            kex::CURVE25519_PRE_RFC_8731,
            kex::ECDH_SHA2_NISTP256,
            kex::EXTENSION_SUPPORT_AS_SERVER,
            kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
        ]),
        key: Cow::Borrowed(&[Algorithm::Ed25519]),
        host_key_certificates: Cow::Borrowed(&[]),
        cipher: Cow::Borrowed(&[cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::AES_256_CTR]),
        mac: Cow::Borrowed(&[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM]),
        compression: Cow::Borrowed(&[compression::NONE]),
    }
}

// === Connections that have not logged in ===

/// Counts them, in all and by address.
#[derive(Clone, Debug)]
struct HalfOpen {
    counted: Arc<Mutex<Counted>>,
    max: usize,
    max_per_address: usize,
}

#[derive(Debug, Default)]
struct Counted {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Given back when the connection has logged in, or has ended.
#[derive(Debug)]
struct Place {
    counted: Arc<Mutex<Counted>>,
    address: IpAddr,
}

impl HalfOpen {
    fn new(max: usize, max_per_address: usize) -> Self {
        Self { counted: Arc::default(), max, max_per_address }
    }

    fn enter(&self, address: IpAddr) -> Option<Place> {
        let address = network_of(address);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let of_this = counted.by_address.get(&address).copied().unwrap_or_default();
        if counted.all >= self.max || of_this >= self.max_per_address {
            return None;
        }
        counted.all += 1;
        counted.by_address.insert(address, of_this + 1);
        Some(Place { counted: self.counted.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.all = counted.all.saturating_sub(1);
        if let Some(of_this) = counted.by_address.get_mut(&self.address) {
            *of_this -= 1;
            if *of_this == 0 {
                counted.by_address.remove(&self.address);
            }
        }
    }
}

/// Whoever has one IPv6 address has all of its /64.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_connections_are_bounded_in_all_and_by_address() {
        let half_open = HalfOpen::new(3, 2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = half_open.enter(address("2001:db8::1")).unwrap();
        let _second = half_open.enter(address("2001:db8::2")).unwrap();
        assert!(half_open.enter(address("2001:db8::3")).is_none(), "three of one network");
        let _third = half_open.enter(address("192.0.2.1")).unwrap();
        assert!(half_open.enter(address("192.0.2.2")).is_none(), "four in all");
        drop(first);
        let again = half_open.enter(address("::ffff:192.0.2.1")).unwrap();
        assert_eq!(again.address, address("192.0.2.1"));
        drop(again);
        assert_eq!(half_open.counted.lock().unwrap().all, 2);
    }
}
