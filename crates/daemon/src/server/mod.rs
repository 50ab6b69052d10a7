//! Accepts connections and serves HTTP/1 and HTTP/2 on them, plain or over TLS.
//!
//! ```text
//!   accept ─► (TLS handshake, bounded) ─► hyper ─► router
//!                └── watched: closed when idle for too long, asked to finish when the daemon ends
//! ```
//!
//! Limits: open connections, number and size of headers, streams per connection, the time for a request's head, and the
//! time a connection may be idle. hyper's own header timeout is not used, because it also closes idle connections;
//! [`burrow_http::activity`] distinguishes the two.

mod drained_body;
mod tls;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use http::{Request, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::error::ServeError;
use crate::front::FrontService;
use burrow_http::activity::{Activity, CloseAfterResponse, ConnectionTimeouts, WatchedStream};
use burrow_http::request_target::PeerAddress;
use drained_body::DrainedBody;
pub(crate) use tls::Tls;
pub use tls::TlsError;

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number and size of the headers of one request.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: u32 = 32 << 10;

/// hyper's buffer of a connection: large reads make the transfer of gigabytes cheap.
const BUFFER_BYTES_MAX: usize = 512 << 10;

/// Maximum concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;

/// Flow-control windows of one HTTP/2 stream and connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Dead peers are detected by TCP keepalive probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEPALIVE_PROBES: u32 = 4;

/// If the process is out of file descriptors, an immediate retry would only use CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The backlog of the kernel for connections that were not accepted yet.
const BACKLOG: u32 = 1024;

/// The parameters of the server.
pub(crate) struct Server {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) router: FrontService,
    pub(crate) connections_max: usize,
    pub(crate) patience: ConnectionTimeouts,
    /// Stops accepting; connections finish their current requests.
    pub(crate) stop: CancellationToken,
    /// Closes all connections immediately.
    pub(crate) kill: CancellationToken,
    pub(crate) connections: TaskTracker,
}

/// Opens a listener.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let open = || {
        let socket = if address.is_ipv4() {
            tokio::net::TcpSocket::new_v4()?
        } else {
            tokio::net::TcpSocket::new_v6()?
        };
        // A restarted daemon must be able to listen while old connections are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|source| ServeError::Listen { address, source })
}

impl Server {
    /// Accepts until stopped. Connections continue in `connections`.
    pub(crate) async fn run(self) {
        let slots = Arc::new(Semaphore::new(self.connections_max));
        let http = Arc::new(http());
        loop {
            let slot = tokio::select! {
                slot = slots.clone().acquire_owned() => slot.expect("the semaphore is never closed"),
                () = self.stop.cancelled() => return,
            };
            let (stream, peer) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        pause_after(&error).await;
                        continue;
                    }
                },
                () = self.stop.cancelled() => return,
            };
            if let Err(error) = prepare(&stream, peer.ip().to_canonical()) {
                tracing::debug!(%error, "could not prepare a connection");
                continue;
            }
            let serve = Connection {
                http: http.clone(),
                router: self.router.clone(),
                tls: self.tls.clone(),
                patience: self.patience,
                peer: PeerAddress(peer.ip().to_canonical()),
                stop: self.stop.clone(),
            };
            let kill = self.kill.clone();
            self.connections.spawn(async move {
                let _slot = slot;
                kill.run_until_cancelled(serve.serve(stream)).await;
            });
        }
    }
}

async fn pause_after(error: &io::Error) {
    // A client that disconnected while it waited is not an error.
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "could not accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn prepare(stream: &TcpStream, peer: IpAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if peer.is_loopback() {
        // There is no congestion within a host: a default that paces the traffic, such as bbr, would only slow it down.
        // Every kernel has reno; if setting it fails, transfers are merely slower.
        let _ = sockopt::set_tcp_congestion(stream, "reno");
    }
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(KEEPALIVE_AFTER)
        .keep_alive_timeout(KEEPALIVE_EVERY);
    builder
}

/// The state of one connection.
struct Connection {
    http: Arc<auto::Builder<TokioExecutor>>,
    router: FrontService,
    tls: Option<TlsAcceptor>,
    patience: ConnectionTimeouts,
    peer: PeerAddress,
    stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        match &self.tls {
            None => self.speak(stream).await,
            Some(tls) => match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.speak(stream).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            },
        }
    }

    async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let activity = Arc::new(Activity::new(self.patience));
        let (router, noted, peer) = (self.router.clone(), activity.clone(), self.peer);
        let farewell = CloseAfterResponse::default();
        let last = farewell.clone();
        let service = tower::service_fn(move |mut request: Request<Incoming>| {
            let in_flight = noted.begin(request.version() == Version::HTTP_2);
            request.extensions_mut().insert(in_flight);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(last.clone());
            router.clone().call(DrainedBody::body_of(request).map(Body::new))
        });
        let io = TokioIo::new(WatchedStream::new(stream, activity.clone()));
        let connection = self.http.serve_connection_with_upgrades(io, TowerToHyperService::new(service));
        let mut connection = pin!(connection);
        // In a `FuturesUnordered`, which polls each of them only when it was woken, and not for every byte.
        let mut ends: FuturesUnordered<BoxFuture<'_, ConnectionEnd>> = FuturesUnordered::new();
        ends.push(Box::pin(self.stop.cancelled().map(|()| ConnectionEnd::WhenDone)));
        ends.push(Box::pin(farewell.requested().map(|()| ConnectionEnd::WhenDone)));
        ends.push(Box::pin(activity.overdue().map(|()| ConnectionEnd::Now)));
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error, "a connection ended early");
                    }
                    return;
                }
                Some(end) = ends.next() => match end {
                    ConnectionEnd::WhenDone => connection.as_mut().graceful_shutdown(),
                    ConnectionEnd::Now => return,
                },
            }
        }
    }
}

/// How we end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// After the current request.
    WhenDone,
    Now,
}
