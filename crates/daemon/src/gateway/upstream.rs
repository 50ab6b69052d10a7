//! Connections to servers inside sandboxes: kept alive and used again, per port and per start of the sandbox.
//!
//! HTTP/1.1 for everything, HTTP/2 with prior knowledge for gRPC, which cannot be said in HTTP/1.1. Requests without a
//! body, which are most, drive their connection themselves ([`super::line`]); for the others a task does. A sandbox that
//! was started anew is another place: nothing of its earlier life is used again.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use burrow_engine::{Engine, EngineError, PortStream};
use burrow_model::{SandboxId, TenantId};
use http::header::UPGRADE;
use http::{Request, Response, Uri};
use hyper::body::Body as _;
use hyper::client::conn::http2;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::line::{Driven, Line, LineError, Lines};

/// Connections kept for later, per port. More clients than this at once open and close some.
const IDLE_MAX: usize = 128;

/// Short of what common servers keep an idle connection for (Node, uvicorn: 5 s), so that we rarely meet one that is
/// about to close.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// HTTP/2 connections are shared, one per port; those unused for this long are closed: an open connection is taken for
/// work, and would keep a sandbox from its sleep.
const SHARED_IDLE_TIME: Duration = Duration::from_secs(10);
const SHARED_MAX: usize = 256;

/// A server that accepts and does not greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// A port of a sandbox, since its last start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) tenant: TenantId,
    pub(super) sandbox: SandboxId,
    pub(super) port: u16,
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct Upstreams {
    engine: Engine,
    lines: Lines,
    http1: legacy::Client<Connector, Body>,
    http2: Arc<Mutex<HashMap<Place, Shared>>>,
}

#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<Body>,
    used: Instant,
}

/// What went wrong between us and the server inside.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("could not connect")]
    Connect(#[source] Box<EngineError>),
    #[error("the connection to the server broke")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl Upstreams {
    pub(super) fn new(engine: Engine) -> Self {
        let http1 = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            // The client's own `Host` goes on; the pool's address is nobody's business.
            .set_host(false)
            .build(Connector { engine: engine.clone() });
        let lines = Lines::new(IDLE_MAX, IDLE_TIME);
        Self { engine, lines, http1, http2: Arc::default() }
    }

    /// Sends a request whose address is a path only.
    pub(super) async fn send_http1(
        &self,
        place: &Place,
        mut request: Request<Body>,
    ) -> Result<Response<Driven>, UpstreamError> {
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
        sent.map(|response| response.map(Driven::from))
    }

    async fn send_on_a_line(
        &self,
        place: &Place,
        mut request: Request<Body>,
    ) -> Result<Response<Driven>, UpstreamError> {
        // A line that turns out to be closed is one less; the last attempt is a new one.
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
                Err(LineError::Unsent(unsent)) => request = *unsent,
                Err(LineError::Broken(error)) => return Err(UpstreamError::Broken(error)),
            }
        }
        Err(UpstreamError::Broken("the server closes every connection at once".into()))
    }

    async fn open(&self, place: &Place) -> Result<Box<Line>, UpstreamError> {
        let stream = self.engine.connect_port(&place.tenant, &place.sandbox, place.port).await;
        let stream = stream.map_err(|error| UpstreamError::Connect(Box::new(error)))?;
        Line::open(stream).await.map_err(|error| UpstreamError::Broken(error.into()))
    }

    /// Sends a request whose address is whole, over HTTP/2.
    pub(super) async fn send_http2(
        &self,
        place: &Place,
        mut request: Request<Body>,
    ) -> Result<Response<Driven>, UpstreamError> {
        *request.version_mut() = http::Version::HTTP_2;
        let mut sender = match self.shared(place) {
            Some(sender) => sender,
            None => self.greet(place).await?,
        };
        let broken = |error: hyper::Error| UpstreamError::Broken(error.into());
        sender.ready().await.map_err(broken)?;
        sender.send_request(request).await.map(|response| response.map(Driven::from)).map_err(broken)
    }

    fn shared(&self, place: &Place) -> Option<http2::SendRequest<Body>> {
        let mut shared = self.http2.lock().unwrap_or_else(PoisonError::into_inner);
        let found = shared.get_mut(place).filter(|found| !found.sender.is_closed())?;
        found.used = Instant::now();
        Some(found.sender.clone())
    }

    async fn greet(&self, place: &Place) -> Result<http2::SendRequest<Body>, UpstreamError> {
        let stream = self.engine.connect_port(&place.tenant, &place.sandbox, place.port).await;
        let stream = stream.map_err(|error| UpstreamError::Connect(Box::new(error)))?;
        let greeting = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .handshake::<_, Body>(TokioIo::new(stream));
        let greeted = match tokio::time::timeout(GREETING_TIMEOUT, greeting).await {
            Ok(greeted) => greeted.map_err(|error| UpstreamError::Broken(error.into()))?,
            Err(_) => return Err(UpstreamError::Broken("it does not speak HTTP/2".into())),
        };
        let (sender, connection) = greeted;
        let all = self.http2.clone();
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            // A connection without a sender ends when the last of its streams has.
            while let Err(_still_open) = tokio::time::timeout(SHARED_IDLE_TIME, connection.as_mut()).await {
                forget_idle(&mut all.lock().unwrap_or_else(PoisonError::into_inner));
            }
        });
        let now = Instant::now();
        let mut shared = self.http2.lock().unwrap_or_else(PoisonError::into_inner);
        forget_idle(&mut shared);
        if shared.len() < SHARED_MAX {
            shared.insert(place.clone(), Shared { sender: sender.clone(), used: now });
        }
        Ok(sender)
    }
}

fn forget_idle(shared: &mut HashMap<Place, Shared>) {
    let now = Instant::now();
    shared.retain(|_, other| !other.sender.is_closed() && now.duration_since(other.used) < SHARED_IDLE_TIME);
}

// === Places as the pool knows them ===

impl fmt::Display for Place {
    /// A host name, for the pool.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.port, self.generation, self.sandbox, self.tenant)
    }
}

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or(NotAPlace);
        let port = next()?.parse().map_err(|_| NotAPlace)?;
        let generation = next()?.parse().map_err(|_| NotAPlace)?;
        let sandbox = next()?.parse().map_err(|_| NotAPlace)?;
        let tenant = next()?.parse().map_err(|_| NotAPlace)?;
        Ok(Self { tenant, sandbox, port, generation })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not a place of the gateway's own making")]
pub(super) struct NotAPlace;

/// An error of the engine on its way through the pool, which hands out references only.
#[derive(Debug)]
struct Refused(Mutex<Option<EngineError>>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("could not connect to the sandbox")
    }
}

impl Error for Refused {}

fn connect_error(error: &legacy::Error) -> Option<EngineError> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return refused.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        next = error.source();
    }
    None
}

/// What the pool calls to open a connection.
#[derive(Clone, Debug)]
struct Connector {
    engine: Engine,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Wire>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let engine = self.engine.clone();
        Box::pin(async move {
            let place: Place = uri.host().unwrap_or_default().parse()?;
            match engine.connect_port(&place.tenant, &place.sandbox, place.port).await {
                Ok(stream) => Ok(TokioIo::new(Wire(stream))),
                Err(error) => Err(Refused(Mutex::new(Some(error))).into()),
            }
        })
    }
}

/// A stream into a sandbox, as the pool takes it.
#[derive(Debug)]
struct Wire(PortStream);

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
    fn a_place_survives_being_a_host_name() {
        let place =
            Place { tenant: TenantId::generate(), sandbox: SandboxId::generate(), port: 80, generation: 7 };
        let uri: Uri = format!("http://{place}/a?b=c").parse().unwrap();
        assert_eq!(uri.host().unwrap().parse::<Place>().unwrap(), place);
        assert!("80.7.x.y".parse::<Place>().is_err());
    }
}
