//! The proxy behind a sandbox's TCP door.
//!
//! ```text
//! accept ──► first (bytes, if they matter) ──► judge ──┬──► dial (resolve, check, connect) ──► flow (splice)
//!                                                      └──► intercept, where requests are judged one by one
//!               who it is for: the address it was opened to, which stands for a name
//! ```
//!
//! Who asks is told by the door, never by what is said. Where a connection goes is a name that the policy allows, which
//! is resolved here; an address that a program chose is dialled only if a rule names that very address, or the mode is
//! `open`.

mod dial;
mod first;
mod flow;
mod http;
mod judge;
mod pipes;
pub(crate) mod refuse;
mod trial;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};

pub(crate) use dial::{Dialler, Failure, LOOKUPS_MAX};
pub(crate) use flow::{Flow, Meter};
pub(crate) use pipes::Pipes;
pub(crate) use trial::run as trial;

use crate::audit::Audit;
use crate::dns::names::is_synthetic;
use crate::intercept::{self, Roots};
use crate::policy::{Destination, Host, ProtocolSeen};
use crate::sandbox::{Sandbox, Ticket};
use judge::{Judged, Way};

/// A door that fails is tried again after this long. When it is replaced, its task is ended from outside; when the
/// process has no descriptors left, some may be back by then.
const FAILED_PAUSE: Duration = Duration::from_millis(100);

/// What all sandboxes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dialler: Dialler,
    pub(crate) pipes: Pipes,
    pub(crate) roots: Roots,
    pub(crate) audit: Arc<Audit>,
}

impl Shared {
    /// Must be called within a runtime.
    pub(crate) fn new(roots: Roots) -> Arc<Self> {
        let audit = Arc::new(Audit::new());
        Arc::new(Self { dialler: Dialler::new(), pipes: Pipes::new(), roots, audit })
    }
}

/// Serves a sandbox's TCP door, until ended from outside. Its connections go on without it.
pub(crate) async fn serve(shared: Arc<Shared>, sandbox: Arc<Sandbox>, door: TcpListener) {
    loop {
        let stream = match door.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(FAILED_PAUSE).await;
                continue;
            }
        };
        let Ok(opened_to) = stream.local_addr() else { continue };
        // What is let in keeps this stream; what is not drops it, which resets the connection.
        refuse::reset_on_close(&stream, true);
        let shared = Arc::clone(&shared);
        let admitted = sandbox.admit(move |ticket| connection(shared, ticket, stream, opened_to));
        if let Err(reason) = admitted {
            let destination =
                Destination { host: Host::Address(opened_to.ip().to_canonical()), port: opened_to.port() };
            sandbox.denied(&named(&sandbox, destination), ProtocolSeen::Tcp, &reason);
        }
    }
}

/// One connection from its first byte to its last.
async fn connection(shared: Arc<Shared>, ticket: Ticket, client: TcpStream, opened_to: SocketAddr) {
    refuse::reset_on_close(&client, false);
    let address = opened_to.ip().to_canonical();
    let destination = Destination { host: Host::Address(address), port: opened_to.port() };
    let opened =
        Opened { destination: named(&ticket.sandbox, destination), synthetic: is_synthetic(address) };
    // Boxed, so that a flow, which may last for days, does not carry the space that opening it took.
    match Box::pin(open(&shared, &ticket, client, &opened)).await {
        Some(Carried::Splice(flow)) => flow.run(&shared.pipes, &ticket.sandbox).await,
        Some(Carried::Decrypt { client, destination, rule, first }) => {
            Box::pin(intercept::run(shared, &ticket, client, destination, rule, first)).await;
        }
        None => {}
    }
}

/// How the bytes of a connection that was let through are carried.
enum Carried {
    Splice(Arc<Flow>),
    Decrypt { client: TcpStream, destination: Destination, rule: Arc<str>, first: Vec<u8> },
}

/// What a connection was opened to.
#[derive(Debug)]
struct Opened {
    destination: Destination,
    /// Whether its address is one of those the resolver gives out.
    synthetic: bool,
}

/// Puts the name in place of the synthetic address that stands for it.
fn named(sandbox: &Sandbox, destination: Destination) -> Destination {
    let name = match destination.host {
        Host::Address(address) => sandbox.resolver().names().name(address),
        Host::Name(_) => None,
    };
    match name {
        Some(name) => Destination { host: Host::Name(name), port: destination.port },
        None => destination,
    }
}

/// Judges a connection and dials for it; `None` when it was refused or failed, and has been told so.
async fn open(shared: &Shared, ticket: &Ticket, client: TcpStream, opened: &Opened) -> Option<Carried> {
    let sandbox = &ticket.sandbox;
    let policy = sandbox.policy();
    let first = first::read(sandbox, &policy, &client, &opened.destination).await;
    let protocol = first.protocol();
    let (way, rule) = match judge::judge(&policy, opened, &first) {
        Judged::Allow { way, rule } => (way, rule),
        Judged::Deny { reason, about } => {
            sandbox.denied(&about, protocol, &reason);
            refuse::denied(client, protocol, &about, &reason, first.status()).await;
            return None;
        }
    };
    let Way { destination, protocol } = way;
    if protocol == ProtocolSeen::Tls && policy.intercepts(&destination) {
        return Some(Carried::Decrypt { client, destination, rule, first: first.into_bytes() });
    }
    let dialled = shared.dialler.dial(sandbox, &policy, &destination).await;
    let (upstream, address) = match dialled {
        Ok(dialled) => dialled,
        Err(dial::Failure::Denied(reason)) => {
            sandbox.denied(&destination, protocol, &reason);
            refuse::denied(client, first.protocol(), &destination, &reason, None).await;
            return None;
        }
        Err(failure) => {
            sandbox.failed(&destination, protocol, &rule, failure.to_string());
            refuse::failed(client, first.protocol(), &destination, &failure).await;
            return None;
        }
    };
    let flow =
        Arc::new(Flow::new(destination, protocol, rule, address, client, upstream, first.into_bytes()));
    match ticket.begin(&flow) {
        Ok(()) => Some(Carried::Splice(flow)),
        Err(reason) => {
            sandbox.denied(&flow.destination, protocol, &reason);
            flow.reset_on_close();
            None
        }
    }
}

/// Settings of both sides of a flow: answers are not held back, and a peer that is gone is noticed.
pub(crate) fn prepare(stream: &TcpStream) {
    // A socket that refuses an option works without it.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15));
    let _ = sockopt::set_tcp_keepcnt(stream, 4);
}
