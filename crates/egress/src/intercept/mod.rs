//! Intercepts TLS connections: decrypts them, checks every request, inserts secrets, and removes secrets from
//! responses.
//!
//! ```text
//! sandbox ══TLS══► leaf of its lineage's authority
//!                    │ HTTP/1 (through a guard) or HTTP/2
//!                    ▼
//!                  judge ──► budget ──► approval ──► audit ──► inject ─────► pool, dial, verify ══TLS══► host
//!                    │ 400 403 421 429 503                                                                │
//! sandbox ◄══════════╧════════════════════════════════ scrub ◄────────────────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - A secret is inserted only where both the rules and its owner's limits allow it, over verified TLS, after the
//!   event that records it is on disk.
//! - If a sandbox has secrets, every response of an intercepted host is scrubbed of all forms of all its secrets,
//!   whether the request carried one or not. A response that cannot be read is not forwarded.
//! - A connection to a host is used for one sandbox and one secret.
//! - When rules or secrets about a host change, its open connections are reset.
//!
//! Not possible here: finding a secret that a host has transformed beyond the usual encodings, and keeping data from
//! an allowed host. Methods and paths, budgets and the audit log limit those.

mod approvals;
mod body;
mod budget;
mod buffering;
mod client;
mod compiled;
mod der;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod guard;
mod judge;
mod leaf;
mod mlock;
mod path;
mod request_body;
mod roots;
mod scrub;
mod secret_forms;
mod service;
mod slots;
mod state;
mod upstream;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use burrow_model::HostName;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

pub use approvals::PendingApproval;
pub use budget::BudgetLeft;
pub use path::{PathError, normal as normal_path};

pub(crate) use budget::Budgets;
pub(crate) use client::InterceptedConnection;
pub(crate) use mlock::keep_in_ram;
pub(crate) use roots::Roots;
pub(crate) use state::InterceptState;

use crate::policy::{Denial, Destination, DetectedProtocol, Host};
use crate::proxy::{Meter, Shared, prepare, refuse};
use crate::sandbox::{Sandbox, Ticket};
use client::ClientStream;
use guard::{Gate, Guard};
use leaf::LeafError;
use service::Conversation;

/// From the hello to the end of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Concurrent requests on one HTTP/2 connection (E-N10).
const STREAMS_MAX: u32 = 128;
const HEADER_LIST_MAX: u32 = 32 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const SEND_BUFFER_MAX: usize = 256 * 1024;
/// Streams that a program resets before they were answered.
const RESETS_MAX: usize = 32;

/// Serves a connection whose hello was read and allowed, until it ends.
pub(crate) async fn run(
    shared: Arc<Shared>,
    ticket: &Ticket,
    client: TcpStream,
    destination: Destination,
    rule: Arc<str>,
    first: Vec<u8>,
) {
    let sandbox = &ticket.sandbox;
    let policy = sandbox.policy();
    let refused = |reason: Denial| (reason, destination.clone());
    let opened =
        match (&destination.host, policy.directives().and_then(|directives| directives.authority.as_ref())) {
            (Host::Name(host), Some(authority)) => {
                let config = sandbox.intercept.leaves.config(&shared.roots.provider, authority, host);
                config.map(|config| (host.clone(), config)).map_err(|error| match error {
                    LeafError::Rate => refused(Denial::MintRate),
                    LeafError::Authority => refused(Denial::NoAuthority { host: destination.host.clone() }),
                })
            }
            (host, _) => Err(refused(Denial::NoAuthority { host: host.clone() })),
        };
    let (host, config) = match opened {
        Ok(opened) => opened,
        Err((reason, about)) => {
            sandbox.denied(&about, DetectedProtocol::Tls, &reason);
            refuse::denied(client, DetectedProtocol::Tls, &about, &reason, None).await;
            return;
        }
    };
    prepare(&client);
    let meter = Meter::new(destination.clone(), DetectedProtocol::Tls, rule, None);
    let intercepted = Arc::new(InterceptedConnection::new(meter, client));
    if let Err(reason) = ticket.begin_intercepted(&intercepted, &policy) {
        sandbox.denied(&destination, DetectedProtocol::Tls, &reason);
        intercepted.reset_on_close();
        return;
    }
    let _ending = EndTasksOnDrop(Arc::clone(&intercepted));
    let stream = ClientStream::new(Arc::clone(&intercepted), Arc::clone(&sandbox.account), first);
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await;
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return intercepted
                .meter
                .set_trouble(format!("the sandbox did not finish the handshake: {error}"));
        }
        Err(_) => {
            return intercepted
                .meter
                .set_trouble("the sandbox did not finish the handshake in time".to_owned());
        }
    };
    serve(shared, sandbox, &intercepted, host, stream).await;
}

/// Ends the tasks of a connection when it ends, for any reason.
struct EndTasksOnDrop(Arc<InterceptedConnection>);

impl Drop for EndTasksOnDrop {
    fn drop(&mut self) {
        self.0.tasks().end();
    }
}

async fn serve(
    shared: Arc<Shared>,
    sandbox: &Arc<Sandbox>,
    intercepted: &Arc<InterceptedConnection>,
    host: HostName,
    stream: tokio_rustls::server::TlsStream<ClientStream>,
) {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let Ok(gate) = Gate::new() else { return };
    let conversation = Arc::new(Conversation {
        shared,
        sandbox: Arc::clone(sandbox),
        intercepted: Arc::clone(intercepted),
        host,
        port: intercepted.meter.destination.port,
        gate: Arc::clone(&gate),
    });
    let service = service_fn(move |request| service::handle(Arc::clone(&conversation), request));
    let outcome = if is_http2 {
        http2::Builder::new(ConnectionExecutor(Arc::clone(intercepted)))
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADER_LIST_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .serve_connection(TokioIo::new(stream), service)
            .await
    } else {
        let stream = TokioIo::new(Guard::new(stream, gate));
        // The guard ends the stream after a refusal, whose response must still be sent.
        http1::Builder::new().half_close(true).serve_connection(stream, service).with_upgrades().await
    };
    if let Err(error) = outcome {
        intercepted.meter.set_trouble(format!("the connection broke: {error}"));
        return;
    }
    // A WebSocket continues after its request.
    intercepted.tasks().wait().await;
}

/// Runs the requests of an HTTP/2 connection as tasks of that connection.
#[derive(Clone, Debug)]
struct ConnectionExecutor(Arc<InterceptedConnection>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for ConnectionExecutor {
    fn execute(&self, task: F) {
        self.0.tasks().spawn(task);
    }
}
