//! Waits for a connection's first bytes, as far as they matter, and tells what they are.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::hello::{self, HELLO_BYTES_MAX, Hello, HelloError};
use crate::http_head::{Framer, Head, HeadError, Looks, Next, looks};
use crate::policy::{Decision, Destination, Host, Policy, ProtocolSeen, Wait};
use crate::sandbox::{Held, Sandbox};

/// A hello or a head must be complete by then (E-N10).
const SPEECH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a program may be silent where it need not speak first: after it, the server is given the word. Programs
/// that do speak first do so at once.
const GRACE: Duration = Duration::from_millis(250);

/// The same where a program chose an address itself, and only a name in its first word could make it allowed.
const ADDRESS_GRACE: Duration = Duration::from_secs(3);

/// Read at a time.
const PIECE: usize = 4 * 1024;

/// The first byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 22;

/// What a connection begins with, and all bytes of it so far.
#[derive(Debug)]
pub(super) struct First {
    pub(super) said: Said,
    bytes: Vec<u8>,
    _held: Option<Held>,
}

#[derive(Debug)]
pub(super) enum Said {
    Tls(Hello),
    BadTls(HelloError),
    Http(Box<Head>),
    BadHttp(HeadError),
    /// Something else; or nothing, where nothing is needed.
    Other,
    /// Nothing, or not enough of it, in time.
    Silence,
    /// There is no room for what it says.
    NoRoom,
}

impl First {
    pub(super) fn protocol(&self) -> ProtocolSeen {
        match self.said {
            Said::Tls(_) | Said::BadTls(_) => ProtocolSeen::Tls,
            Said::Http(_) | Said::BadHttp(_) => ProtocolSeen::Http,
            Said::Other | Said::Silence | Said::NoRoom => ProtocolSeen::Tcp,
        }
    }

    /// The HTTP status of a refusal that has one of its own.
    pub(super) fn status(&self) -> Option<u16> {
        match self.said {
            Said::BadHttp(error) => Some(error.status()),
            Said::Tls(_) | Said::BadTls(_) | Said::Http(_) | Said::Other | Said::Silence | Said::NoRoom => {
                None
            }
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads what the policy needs to know.
pub(super) async fn read(
    sandbox: &Arc<Sandbox>,
    policy: &Policy,
    client: &TcpStream,
    destination: &Destination,
) -> First {
    let wait = policy.wait(destination);
    if wait == Wait::Not {
        return First { said: Said::Other, bytes: Vec::new(), _held: None };
    }
    let begin = Instant::now();
    let patience = match (wait, &destination.host) {
        (Wait::Not | Wait::Shortly, _) => GRACE,
        // Where the answer is no in any case, the wait is only for the form of the refusal.
        (Wait::ForSpeech, Host::Name(_)) if is_refused_anyway(policy, destination) => GRACE,
        (Wait::ForSpeech, Host::Name(_)) => SPEECH_TIMEOUT,
        (Wait::ForSpeech, Host::Address(_)) => ADDRESS_GRACE,
    };
    let word_by = begin + patience;
    let mut bytes = Vec::new();
    let mut held = None;
    let mut at_least = 1;
    loop {
        let deadline = if bytes.is_empty() { word_by } else { begin + SPEECH_TIMEOUT };
        let more = timeout_at(deadline, receive(client, &mut bytes, at_least)).await;
        if !matches!(more, Ok(true)) {
            let said = match (more, bytes.first()) {
                // It said all it has to say, and that is neither a hello nor a head.
                (Ok(_), Some(first)) if *first != TLS_HANDSHAKE => Said::Other,
                (Err(_), None) if wait == Wait::Shortly => Said::Other,
                (Ok(_) | Err(_), _) => Said::Silence,
            };
            return First { said, bytes, _held: held };
        }
        // Replaced, not added to: it stands for all bytes so far.
        drop(held.take());
        held = sandbox.hold(bytes.capacity());
        if held.is_none() {
            return First { said: Said::NoRoom, bytes: Vec::new(), _held: None };
        }
        match recognise(&bytes) {
            Ok(said) => return First { said, bytes, _held: held },
            Err(needed) => at_least = needed,
        }
    }
}

/// Whether no protocol could make a connection allowed.
fn is_refused_anyway(policy: &Policy, destination: &Destination) -> bool {
    let denied = |protocol| matches!(policy.decide(destination, protocol), Decision::Deny { .. });
    [ProtocolSeen::Tls, ProtocolSeen::Http, ProtocolSeen::Tcp].into_iter().all(denied)
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

/// What the bytes are, or how many it takes to know.
fn recognise(bytes: &[u8]) -> Result<Said, usize> {
    match hello::read(bytes) {
        hello::Outcome::Hello(hello) => return Ok(Said::Tls(hello)),
        hello::Outcome::Bad(error) => return Ok(Said::BadTls(error)),
        hello::Outcome::NeedMore { at_least } => return Err(at_least.min(HELLO_BYTES_MAX)),
        hello::Outcome::NotTls => {}
    }
    match looks(bytes) {
        Looks::Otherwise => return Ok(Said::Other),
        Looks::NeedMore => return Err(bytes.len() + 1),
        Looks::LikeHttp => {}
    }
    match Framer::new().next(bytes) {
        Ok(Next::Head(head, _)) => Ok(Said::Http(head)),
        Ok(Next::Pass(_) | Next::NeedMore) => Err(bytes.len() + 1),
        Err(error) => Ok(Said::BadHttp(error)),
    }
}
