//! Connections to servers inside sandboxes: kept open and reused, per port and per start of the sandbox.
//!
//! HTTP/1.1 in general, HTTP/2 with prior knowledge for gRPC, which requires HTTP/2. Most requests have no body and
//! drive their connection themselves ([`super::kept_connections`]); for the others a task does. Connections to a restarted sandbox
//! are never shared with its earlier generation.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use burrow_engine::{Engine, EngineError};
use burrow_model::{SandboxId, TenantId};
use http::header::UPGRADE;
use http::{Request, Response, Uri};
use hyper::body::Body as _;
use hyper::client::conn::http2;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::kept_connections::{DrivenBody, KeptConnection, KeptConnectionError, KeptConnections};
use super::server_stream::{Dialer, HttpVersion, ServerStream};

/// Maximum number of idle connections per port. With more concurrent clients, some connections are opened and closed
/// again.
const IDLE_MAX: usize = 128;

/// Shorter than the idle time of common servers (Node, uvicorn: 5 s), so that a connection is rarely closed at the
/// moment of its reuse.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// HTTP/2 connections are shared, one per port; they are closed when unused for this long: an open connection counts as
/// activity, and would keep a sandbox from sleeping.
const SHARED_IDLE_TIME: Duration = Duration::from_secs(10);
const SHARED_MAX: usize = 256;

/// Time limit for a server that accepts the connection but does not send its HTTP/2 settings.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// A port of a sandbox, in one generation of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortKey {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    pub(super) port: u16,
    pub(super) generation: u64,
    /// Whether the server speaks HTTPS.
    pub(super) tls: bool,
}

#[derive(Debug)]
pub(super) struct Upstreams {
    dialer: Dialer,
    lines: KeptConnections,
    http1: legacy::Client<Connector, Body>,
    http2: Arc<Mutex<HashMap<PortKey, Shared>>>,
}

#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<Body>,
    used: Instant,
}

/// An error between us and the server inside.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("could not connect")]
    Connect(#[source] Box<EngineError>),
    #[error("the connection to the server was interrupted")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl Upstreams {
    pub(super) fn new(engine: Engine) -> Self {
        let dialer = Dialer::new(engine);
        let http1 = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            // The client's own `Host` is kept; the pool's address is internal.
            .set_host(false)
            // As on `KeptConnection`.
            .http1_title_case_headers(true)
            .build(Connector { dialer: dialer.clone() });
        let lines = KeptConnections::new(IDLE_MAX, IDLE_TIME);
        Self { dialer, lines, http1, http2: Arc::default() }
    }

    /// Sends a request whose address contains only a path.
    pub(super) async fn send_http1(
        &self,
        place: &PortKey,
        mut request: Request<Body>,
    ) -> Result<Response<DrivenBody>, UpstreamError> {
        *request.version_mut() = http::Version::HTTP_11;
        if request.body().is_end_stream() && !request.headers().contains_key(UPGRADE) {
            return self.send_on_a_line(place, request).await;
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = format!("http://{place}{path}");
        *request.uri_mut() =
            uri.parse().map_err(|error: http::uri::InvalidUri| UpstreamError::Broken(error.into()))?;
        let sent = self.http1.request(request).await.map_err(|error| match connect_error(&error) {
            Some(error) => UpstreamError::Connect(Box::new(error)),
            None => UpstreamError::Broken(error.into()),
        });
        sent.map(|response| response.map(DrivenBody::from))
    }

    async fn send_on_a_line(
        &self,
        place: &PortKey,
        mut request: Request<Body>,
    ) -> Result<Response<DrivenBody>, UpstreamError> {
        // Each connection that turns out to be closed is removed; the last attempt uses a new one.
        for attempt in 0..=IDLE_MAX {
            let kept = std::future::poll_fn(|ctx| Poll::Ready(self.lines.take(place, ctx.waker()))).await;
            let mut line = match kept.filter(|_| attempt < IDLE_MAX) {
                Some(line) => line,
                None => self.open(place).await?,
            };
            match line.exchange(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| self.lines.driven(place.clone(), line, body)));
                }
                Err(KeptConnectionError::Unsent(unsent)) => request = *unsent,
                Err(KeptConnectionError::Broken(error)) => return Err(UpstreamError::Broken(error)),
            }
        }
        Err(UpstreamError::Broken("the server closes every connection immediately".into()))
    }

    async fn open(&self, place: &PortKey) -> Result<Box<KeptConnection>, UpstreamError> {
        let stream = self.dialer.dial(place, HttpVersion::Http1).await?;
        KeptConnection::open(stream).await.map_err(|error| UpstreamError::Broken(error.into()))
    }

    /// Sends a request with a complete address, over HTTP/2.
    pub(super) async fn send_http2(
        &self,
        place: &PortKey,
        mut request: Request<Body>,
    ) -> Result<Response<DrivenBody>, UpstreamError> {
        *request.version_mut() = http::Version::HTTP_2;
        let mut sender = match self.shared(place) {
            Some(sender) => sender,
            None => self.greet(place).await?,
        };
        let broken = |error: hyper::Error| UpstreamError::Broken(error.into());
        sender.ready().await.map_err(broken)?;
        sender.send_request(request).await.map(|response| response.map(DrivenBody::from)).map_err(broken)
    }

    fn shared(&self, place: &PortKey) -> Option<http2::SendRequest<Body>> {
        let mut shared = self.http2.lock().unwrap_or_else(PoisonError::into_inner);
        let found = shared.get_mut(place).filter(|found| !found.sender.is_closed())?;
        found.used = Instant::now();
        Some(found.sender.clone())
    }

    async fn greet(&self, place: &PortKey) -> Result<http2::SendRequest<Body>, UpstreamError> {
        let stream = self.dialer.dial(place, HttpVersion::Http2).await?;
        let greeting = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .handshake::<_, Body>(TokioIo::new(stream));
        let greeted = match tokio::time::timeout(GREETING_TIMEOUT, greeting).await {
            Ok(greeted) => greeted.map_err(|error| UpstreamError::Broken(error.into()))?,
            Err(_) => return Err(UpstreamError::Broken("it does not support HTTP/2".into())),
        };
        let (sender, connection) = greeted;
        let all = self.http2.clone();
        drop(tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            // A connection without a sender ends with its last stream, and this task with the connection.
            while let Err(_still_open) = tokio::time::timeout(SHARED_IDLE_TIME, connection.as_mut()).await {
                forget_idle(&mut all.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }));
        let now = Instant::now();
        let mut shared = self.http2.lock().unwrap_or_else(PoisonError::into_inner);
        forget_idle(&mut shared);
        if shared.len() < SHARED_MAX {
            shared.insert(place.clone(), Shared { sender: sender.clone(), used: now });
        }
        Ok(sender)
    }
}

fn forget_idle(shared: &mut HashMap<PortKey, Shared>) {
    let now = Instant::now();
    shared.retain(|_, other| !other.sender.is_closed() && now.duration_since(other.used) < SHARED_IDLE_TIME);
}

// === Places in the format of the pool ===

const PLAIN: &str = "plain";
const TLS: &str = "tls";

impl fmt::Display for PortKey {
    /// A host name, for the pool.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { TLS } else { PLAIN };
        write!(f, "{scheme}.{}.{}.{}.{}", self.port, self.generation, self.sandbox, self.tenant)
    }
}

impl FromStr for PortKey {
    type Err = InvalidPortKey;

    fn from_str(text: &str) -> Result<Self, InvalidPortKey> {
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or(InvalidPortKey);
        let tls = match next()? {
            TLS => true,
            PLAIN => false,
            _ => return Err(InvalidPortKey),
        };
        let port = next()?.parse().map_err(|_| InvalidPortKey)?;
        let generation = next()?.parse().map_err(|_| InvalidPortKey)?;
        let sandbox = next()?.parse().map_err(|_| InvalidPortKey)?;
        let tenant = next()?.parse().map_err(|_| InvalidPortKey)?;
        Ok(Self { tenant, sandbox, port, generation, tls })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not an address created by the gateway")]
pub(super) struct InvalidPortKey;

/// An error of the engine that passes through the pool, which only returns references.
#[derive(Debug)]
struct PooledError(Mutex<Option<EngineError>>);

impl fmt::Display for PooledError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("could not connect to the sandbox")
    }
}

impl Error for PooledError {}

fn connect_error(error: &legacy::Error) -> Option<EngineError> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(refused) = error.downcast_ref::<PooledError>() {
            return refused.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        next = error.source();
    }
    None
}

/// Opens connections for the pool.
#[derive(Clone, Debug)]
struct Connector {
    dialer: Dialer,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Wire>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = self.dialer.clone();
        Box::pin(async move {
            let place: PortKey = uri.host().unwrap_or_default().parse()?;
            match dialer.dial(&place, HttpVersion::Http1).await {
                Ok(stream) => Ok(TokioIo::new(Wire(stream))),
                Err(UpstreamError::Connect(error)) => Err(PooledError(Mutex::new(Some(*error))).into()),
                Err(UpstreamError::Broken(error)) => Err(error),
            }
        })
    }
}

/// A stream into a sandbox, in the type of the pool.
#[derive(Debug)]
struct Wire(ServerStream);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(ctx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(ctx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(ctx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(ctx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_formatting_as_host_names() {
        for tls in [false, true] {
            let (tenant, sandbox) = (TenantId::generate(), SandboxId::generate());
            let place = PortKey { tenant, sandbox, port: 80, generation: 7, tls };
            let uri: Uri = format!("http://{place}/a?b=c").parse().unwrap();
            assert_eq!(uri.host().unwrap().parse::<PortKey>().unwrap(), place);
        }
        assert!("plain.80.7.x.y".parse::<PortKey>().is_err());
    }
}
