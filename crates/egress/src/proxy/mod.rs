//! The proxy that serves a sandbox's TCP listener.
//!
//! ```text
//! accept ──► first bytes (if they matter) ──► judge ──┬──► dial (resolve, check, connect) ──► flow (splice)
//!                                                     └──► intercept, if requests are checked one by one
//!               the host: the name to which the (synthetic) destination address is assigned
//! ```
//!
//! The listener identifies the sandbox; nothing that the client sends can change that. The destination is a name that
//! the policy allows and that is resolved here. An address that the program chose itself is connected to only if a
//! rule names that address or the mode is `open`.

mod dial;
mod first_bytes;
mod flow;
mod http;
mod judge;
mod meter;
mod pipes;
pub(crate) mod refuse;
mod shared_state;
mod socket;
mod trial;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

pub(crate) use dial::{Failure, LOOKUPS_MAX};
pub(crate) use flow::Flow;
pub(crate) use meter::Meter;
pub(crate) use pipes::Pipes;
pub(crate) use shared_state::Shared;
pub(crate) use socket::prepare;
pub(crate) use trial::run as trial;

use crate::dns::names::is_synthetic;
use crate::intercept;
use crate::policy::{Destination, DetectedProtocol, Host};
use crate::sandbox::{Sandbox, Ticket};
use judge::{Judgement, OpenedTo, Route};

/// Wait before retrying a listener that failed. When a listener is replaced, this task is aborted; when the process
/// has run out of descriptors, some may be free again after this time.
const FAILED_PAUSE: Duration = Duration::from_millis(100);

/// Serves a sandbox's TCP listener until the task is aborted. Open connections continue after that.
pub(crate) async fn serve(shared: Arc<Shared>, sandbox: Arc<Sandbox>, listener: TcpListener) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(FAILED_PAUSE).await;
                continue;
            }
        };
        let Ok(opened_to) = stream.local_addr() else { continue };
        // Connections that are not admitted are reset when the stream is dropped.
        refuse::reset_on_close(&stream, true);
        let shared = Arc::clone(&shared);
        let admitted = sandbox.admit(move |ticket| connection(shared, ticket, stream, opened_to));
        if let Err(reason) = admitted {
            let destination =
                Destination { host: Host::Address(opened_to.ip().to_canonical()), port: opened_to.port() };
            sandbox.denied(&named(&sandbox, destination), DetectedProtocol::Tcp, &reason);
        }
    }
}

/// Serves one connection from its first to its last byte.
async fn connection(shared: Arc<Shared>, ticket: Ticket, client: TcpStream, opened_to: SocketAddr) {
    refuse::reset_on_close(&client, false);
    let address = opened_to.ip().to_canonical();
    let destination = Destination { host: Host::Address(address), port: opened_to.port() };
    let opened =
        OpenedTo { destination: named(&ticket.sandbox, destination), synthetic: is_synthetic(address) };
    // Boxed, so that a flow, which may last for days, does not keep the stack space that was needed to open it.
    match Box::pin(open(&shared, &ticket, client, &opened)).await {
        Some(Transport::Splice(flow)) => flow.run(&shared.pipes, &ticket.sandbox).await,
        Some(Transport::Decrypt { client, destination, rule, first }) => {
            Box::pin(intercept::run(shared, &ticket, client, destination, rule, first)).await;
        }
        None => {}
    }
}

/// How the bytes of an allowed connection are forwarded.
enum Transport {
    Splice(Arc<Flow>),
    Decrypt { client: TcpStream, destination: Destination, rule: Arc<str>, first: Vec<u8> },
}

/// Replaces a synthetic address by its name.
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

/// Checks a connection and connects to its host; `None` if it was refused or failed, which the client has been
/// informed of.
async fn open(shared: &Shared, ticket: &Ticket, client: TcpStream, opened: &OpenedTo) -> Option<Transport> {
    let sandbox = &ticket.sandbox;
    let policy = sandbox.policy();
    let first = first_bytes::read(&sandbox.account, &policy, &client, &opened.destination).await;
    let protocol = first.protocol();
    let (way, rule) = match judge::judge(&policy, opened, &first) {
        Judgement::Allow { way, rule } => (way, rule),
        Judgement::Deny { reason, about } => {
            sandbox.denied(&about, protocol, &reason);
            refuse::denied(client, protocol, &about, &reason, first.status()).await;
            return None;
        }
    };
    let Route { destination, protocol } = way;
    if protocol == DetectedProtocol::Tls && policy.intercepts(&destination) {
        return Some(Transport::Decrypt { client, destination, rule, first: first.into_bytes() });
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
        Ok(()) => Some(Transport::Splice(flow)),
        Err(reason) => {
            sandbox.denied(&flow.destination, protocol, &reason);
            flow.reset_on_close();
            None
        }
    }
}
