//! Reads the first bytes of a connection, as far as the policy needs them, and detects the protocol.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::account::{Account, PendingBytes};
use crate::hello::{self, HELLO_BYTES_MAX, Hello, HelloError};
use crate::http_head::{Framer, FramerStep, Head, HeadError, HttpDetection, detect};
use crate::policy::{Decision, Destination, DetectedProtocol, FirstBytesWait, Host, Policy};

/// A hello or a head must be complete within this time (E-N10).
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for a client that need not send first, before connecting to the server. Clients of protocols in
/// which the client sends first do so at once.
const GRACE: Duration = Duration::from_millis(250);

/// The same if the program connected to an address, and only a name in its first bytes could make the connection
/// allowed.
const ADDRESS_GRACE: Duration = Duration::from_secs(3);

/// Size of one read.
const PIECE: usize = 4 * 1024;

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;

/// The protocol of a connection, and all bytes received so far.
#[derive(Debug)]
pub(super) struct FirstBytes {
    pub(super) preamble: Preamble,
    bytes: Vec<u8>,
    _pending: Option<PendingBytes>,
}

#[derive(Debug)]
pub(super) enum Preamble {
    Tls(Hello),
    BadTls(HelloError),
    Http(Box<Head>),
    BadHttp(HeadError),
    /// Another protocol; or no bytes, where none are needed.
    Other,
    /// No bytes, or an incomplete hello or head, within the time limit.
    Silence,
    /// The sandbox's limit for pending bytes is reached.
    NoRoom,
}

impl FirstBytes {
    pub(super) fn protocol(&self) -> DetectedProtocol {
        match self.preamble {
            Preamble::Tls(_) | Preamble::BadTls(_) => DetectedProtocol::Tls,
            Preamble::Http(_) | Preamble::BadHttp(_) => DetectedProtocol::Http,
            Preamble::Other | Preamble::Silence | Preamble::NoRoom => DetectedProtocol::Tcp,
        }
    }

    /// The HTTP status of a refusal, if the error determines it.
    pub(super) fn status(&self) -> Option<u16> {
        match self.preamble {
            Preamble::BadHttp(error) => Some(error.status()),
            Preamble::Tls(_)
            | Preamble::BadTls(_)
            | Preamble::Http(_)
            | Preamble::Other
            | Preamble::Silence
            | Preamble::NoRoom => None,
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads the first bytes that the policy needs.
pub(super) async fn read(
    sandbox: &Arc<Account>,
    policy: &Policy,
    client: &TcpStream,
    destination: &Destination,
) -> FirstBytes {
    let wait = policy.wait(destination);
    if wait == FirstBytesWait::No {
        return FirstBytes { preamble: Preamble::Other, bytes: Vec::new(), _pending: None };
    }
    let begin = Instant::now();
    let patience = match (wait, &destination.host) {
        (FirstBytesWait::No | FirstBytesWait::Briefly, _) => GRACE,
        // If the connection is refused in any case, the bytes only determine the form of the refusal.
        (FirstBytesWait::Required, Host::Name(_)) if is_refused_anyway(policy, destination) => GRACE,
        (FirstBytesWait::Required, Host::Name(_)) => FIRST_BYTES_TIMEOUT,
        (FirstBytesWait::Required, Host::Address(_)) => ADDRESS_GRACE,
    };
    let deadline = begin + patience;
    let mut bytes = Vec::new();
    let mut pending = None;
    let mut at_least = 1;
    loop {
        let deadline = if bytes.is_empty() { deadline } else { begin + FIRST_BYTES_TIMEOUT };
        let more = timeout_at(deadline, receive(client, &mut bytes, at_least)).await;
        if !matches!(more, Ok(true)) {
            let preamble = match (more, bytes.first()) {
                // The client has sent everything, and it is neither a hello nor a head.
                (Ok(_), Some(first)) if *first != TLS_HANDSHAKE => Preamble::Other,
                (Err(_), None) if wait == FirstBytesWait::Briefly => Preamble::Other,
                (Ok(_) | Err(_), _) => Preamble::Silence,
            };
            return FirstBytes { preamble, bytes, _pending: pending };
        }
        // Replaced, not added to: the reservation covers all bytes so far.
        drop(pending.take());
        pending = sandbox.reserve_pending(bytes.capacity());
        if pending.is_none() {
            return FirstBytes { preamble: Preamble::NoRoom, bytes: Vec::new(), _pending: None };
        }
        match recognise(&bytes) {
            Ok(preamble) => return FirstBytes { preamble, bytes, _pending: pending },
            Err(needed) => at_least = needed,
        }
    }
}

/// Whether the connection is refused regardless of its protocol.
fn is_refused_anyway(policy: &Policy, destination: &Destination) -> bool {
    let denied = |protocol| matches!(policy.decide(destination, protocol), Decision::Deny { .. });
    [DetectedProtocol::Tls, DetectedProtocol::Http, DetectedProtocol::Tcp].into_iter().all(denied)
}

/// Reads until there are `at_least` bytes; `false` at the end of the stream.
async fn receive(client: &TcpStream, bytes: &mut Vec<u8>, at_least: usize) -> bool {
    while bytes.len() < at_least {
        if client.readable().await.is_err() {
            return false;
        }
        bytes.reserve(PIECE);
        match client.try_read_buf(bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    true
}

/// Detects the protocol, or returns how many bytes are needed for that.
fn recognise(bytes: &[u8]) -> Result<Preamble, usize> {
    match hello::read(bytes) {
        hello::Outcome::Hello(hello) => return Ok(Preamble::Tls(hello)),
        hello::Outcome::Bad(error) => return Ok(Preamble::BadTls(error)),
        hello::Outcome::NeedMore { at_least } => return Err(at_least.min(HELLO_BYTES_MAX)),
        hello::Outcome::NotTls => {}
    }
    match detect(bytes) {
        HttpDetection::NotHttp => return Ok(Preamble::Other),
        HttpDetection::NeedMore => return Err(bytes.len() + 1),
        HttpDetection::Http => {}
    }
    match Framer::new().next(bytes) {
        Ok(FramerStep::Head(head, _)) => Ok(Preamble::Http(head)),
        Ok(FramerStep::Pass(_) | FramerStep::NeedMore) => Err(bytes.len() + 1),
        Err(error) => Ok(Preamble::BadHttp(error)),
    }
}
