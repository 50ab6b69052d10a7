//! Accepts connections, within limits, and supervises each until it ends.
//!
//! ```text
//!   accept ─► limits (all · half-open · half-open of this address) ─► banner, keys, login (time limit) ─► channels
//!                                                                                  └─► idle for too long, or its key revoked: closed
//! ```
//!
//! The SSH library is never trusted to end a connection: the stream below it is cancelled (`cancellable`).

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

use crate::attached_execs::AttachedExecs;
use crate::cancellable::CancellableStream;
use crate::connection::{Connection, Shared};
use crate::handler::ConnectionHandler;
use crate::{Authenticator, KeyFile};

/// Idle time after which a keepalive is sent, and how many may stay unanswered.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVES_MAX: usize = 3;

/// Delay before a wrong key is rejected. The question which methods exist, which every client asks first, is answered at once.
const REJECTION_TIME: Duration = Duration::from_millis(100);

/// Out of file descriptors, `accept` would fail again at once: wait instead of spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that a client may send on one channel before the window is extended.
const WINDOW_BYTES: u32 = 2 << 20;
const PACKET_BYTES: u32 = 32 << 10;
/// Queued messages of one channel, and of one connection's output.
const CHANNEL_MESSAGES: usize = 128;
const OUTPUT_MESSAGES: usize = 64;

/// Input that programs have not read yet, over all connections.
const INPUT_BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of connections that have not shown a known key yet.
    pub half_open: usize,
    /// The same per address (for IPv6, per /64).
    pub half_open_per_address: usize,
    /// Time from the first byte to a known key.
    pub login_time: Duration,
    /// Wrong keys that one connection may try.
    pub tries: usize,
    /// A connection without traffic for this long is closed.
    pub idle: Option<Duration>,
}

/// The gateway, before it runs on a listener.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    half_open: HalfOpen,
    connections: Arc<Semaphore>,
    config: Arc<Config>,
    options: GatewayOptions,
}

impl Gateway {
    /// `stop` ends the gateway and all its connections. Programs in sandboxes continue.
    pub fn new(
        authenticator: Arc<dyn Authenticator>,
        host_key: KeyFile,
        options: GatewayOptions,
        stop: CancellationToken,
    ) -> Self {
        let shared = Shared {
            authenticator,
            attached: AttachedExecs::default(),
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

    /// Connections beyond the limit are closed at once: if they waited, strangers could keep others out.
    fn begin(&self, stream: TcpStream, peer: SocketAddr, cancel: CancellationToken) {
        let Ok(connection_permit) = self.connections.clone().try_acquire_owned() else {
            return tracing::debug!(%peer, "the limit of SSH connections is reached");
        };
        let Some(half_open_slot) = self.half_open.acquire(peer.ip()) else {
            return tracing::debug!(%peer, "too many SSH connections that have not logged in");
        };
        // Keystrokes are small, and a user waits for each echo.
        if let Err(error) = stream.set_nodelay(true) {
            return tracing::debug!(%error, "could not disable Nagle's algorithm on an SSH connection");
        }
        let connection = Connection::new(self.shared.clone(), peer, cancel);
        let (config, options) = (self.config.clone(), self.options.clone());
        self.shared.tasks.spawn(serve_connection(
            config,
            options,
            connection,
            stream,
            half_open_slot,
            connection_permit,
        ));
    }
}

/// Serves one connection until it ends.
async fn serve_connection(
    config: Arc<Config>,
    options: GatewayOptions,
    connection: Arc<Connection>,
    stream: TcpStream,
    half_open_slot: HalfOpenSlot,
    _connection_permit: OwnedSemaphorePermit,
) {
    let ending = connection.cancel.clone().drop_guard();
    let stream = CancellableStream::new(stream, &connection.cancel);
    let handler = ConnectionHandler::new(connection.clone());
    let (started, logged_in) = (tokio::time::Instant::now(), connection.logged_in.clone());
    let login = started + options.login_time;
    let greeting = russh::server::run_stream(config, stream, handler);
    let mut session = match tokio::time::timeout_at(login, greeting).await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(%error, "an SSH connection ended before it started"),
        Err(_) => return tracing::debug!("an SSH client sent no banner in time"),
    };
    tokio::select! {
        ended = &mut session => return log_end(ended),
        () = logged_in.cancelled() => drop(half_open_slot),
        () = tokio::time::sleep_until(login) => return tracing::debug!("an SSH client did not log in in time"),
    }
    tokio::select! {
        ended = &mut session => log_end(ended),
        () = connection.idle(options.idle) => tracing::info!("closing an SSH connection that was idle for too long"),
        () = connection.key_revoked() => tracing::info!("closing an SSH connection whose key was revoked"),
    }
    drop(ending);
}

fn log_end(ended: Result<(), russh::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "an SSH connection failed");
    }
}

async fn pause_after(error: &io::Error) {
    // A peer that hung up while it waited in the backlog is not an error.
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
        // `Connection::idle` does this; the library would count answers to keepalives as activity.
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES_MAX,
        nodelay: true,
        ..Config::default()
    }
}

/// Algorithms that are considered secure today, and fast: AES-GCM is several times faster in hardware than ChaCha20, which older
/// clients would prefer, and was never vulnerable to the Terrapin attack. No compression: its attack surface outweighs the savings.
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

// === Half-open connections ===

/// Counts connections that have not logged in, in total and per address.
#[derive(Clone, Debug)]
struct HalfOpen {
    counts: Arc<Mutex<HalfOpenCounts>>,
    max: usize,
    max_per_address: usize,
}

#[derive(Debug, Default)]
struct HalfOpenCounts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Released when the connection has logged in or has ended.
#[derive(Debug)]
struct HalfOpenSlot {
    counts: Arc<Mutex<HalfOpenCounts>>,
    address: IpAddr,
}

impl HalfOpen {
    fn new(max: usize, max_per_address: usize) -> Self {
        Self { counts: Arc::default(), max, max_per_address }
    }

    fn acquire(&self, address: IpAddr) -> Option<HalfOpenSlot> {
        let address = network_of(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_this = counts.by_address.get(&address).copied().unwrap_or_default();
        if counts.all >= self.max || of_this >= self.max_per_address {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(address, of_this + 1);
        Some(HalfOpenSlot { counts: self.counts.clone(), address })
    }
}

impl Drop for HalfOpenSlot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        if let Some(of_this) = counts.by_address.get_mut(&self.address) {
            *of_this -= 1;
            if *of_this == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

/// The holder of one IPv6 address usually has all of its /64.
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
    fn half_open_connections_are_limited_in_total_and_per_address() {
        let half_open = HalfOpen::new(3, 2);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = half_open.acquire(address("2001:db8::1")).unwrap();
        let _second = half_open.acquire(address("2001:db8::2")).unwrap();
        assert!(half_open.acquire(address("2001:db8::3")).is_none(), "three from one network");
        let _third = half_open.acquire(address("192.0.2.1")).unwrap();
        assert!(half_open.acquire(address("192.0.2.2")).is_none(), "four in total");
        drop(first);
        let again = half_open.acquire(address("::ffff:192.0.2.1")).unwrap();
        assert_eq!(again.address, address("192.0.2.1"));
        drop(again);
        assert_eq!(half_open.counts.lock().unwrap().all, 2);
    }
}
