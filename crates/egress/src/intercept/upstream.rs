//! Connections to hosts: dialled, verified, and reused only for the same sandbox and the same secret (E-S11).
//!
//! ```text
//! request ──► idle connection of its key, or dial ──► TLS, verified against the host's roots (E-T10) ──► HTTP/1 or 2
//!                 ▲ returned when its response was read to the end, if the policy has not changed
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burrow_model::{HostName, Name, SecretBytes};
use http::header::{self, HeaderValue};
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::body::RequestBody;
use super::buffering::{CoalescingStream, ReadAhead};
use super::roots::Protocols;
use crate::account::Account;
use crate::clock::monotonic_ms;
use crate::policy::{Destination, Policy};
use crate::proxy::{Failure, Shared};

/// Largest number of idle connections per key.
const IDLE_MAX: usize = 32;
/// Largest number of keys with idle connections per sandbox.
const KEYS_MAX: usize = 128;
/// Most servers close idle connections after a minute.
const IDLE_MS: u64 = 50_000;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Limits of what a host may send before it is read.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;
const HEADER_LIST_MAX: u32 = 64 * 1024;
/// Read buffer for HTTP/1 responses; their head must fit.
const READ_MAX: usize = 256 * 1024;

/// Identifies the requests that may share a connection. Each sandbox has its own pool, so the key does not contain
/// the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) host: HostName,
    pub(super) port: u16,
    /// Includes a client certificate, which is a secret too.
    pub(super) secret: Option<(Name, u64)>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("{0}")]
    Dial(Failure),
    #[error("its certificate was not accepted: {0}")]
    Tls(io::Error),
    #[error("it did not finish the handshake in time")]
    Slow,
    #[error("the connection broke: {0}")]
    Http(hyper::Error),
}

/// Aborts the task of a connection when its last user drops it.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

/// A connection to a host, for one request at a time. For HTTP/2, several handles share one connection.
#[derive(Debug)]
pub(super) struct Upstream {
    sender: Sender,
    task: Arc<Task>,
    epoch: u64,
    fresh: bool,
}

/// The idle connections of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Incremented when connections are dropped: older connections are not returned to the pool.
    epoch: u64,
    idle: HashMap<Key, IdleConnections>,
}

#[derive(Debug, Default)]
struct IdleConnections {
    http1: Vec<(Upstream, u64)>,
    http2: Option<(Upstream, u64)>,
}

impl Pool {
    /// Drops all connections; those in use are dropped when their response ends.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.idle.clear();
    }

    /// Drops connections that were idle for too long.
    pub(crate) fn sweep(&self, now_ms: u64) {
        let old = |since: u64| now_ms.saturating_sub(since) > IDLE_MS;
        let mut state = self.state();
        state.idle.retain(|_, idle| {
            idle.http1.retain(|(_, since)| !old(*since));
            if idle.http2.as_ref().is_some_and(|(upstream, since)| {
                upstream.is_closed() || (old(*since) && Arc::strong_count(&upstream.task) == 1)
            }) {
                idle.http2 = None;
            }
            !idle.http1.is_empty() || idle.http2.is_some()
        });
    }

    fn take(&self, key: &Key) -> Option<Upstream> {
        let mut state = self.state();
        let idle = state.idle.get_mut(key)?;
        if let Some((upstream, since)) = &mut idle.http2 {
            if let Some(another_handle) = upstream.another_handle() {
                *since = monotonic_ms();
                return Some(another_handle);
            }
            idle.http2 = None;
        }
        while let Some((upstream, _)) = idle.http1.pop() {
            if !upstream.is_closed() {
                return Some(upstream);
            }
        }
        None
    }

    fn epoch(&self) -> u64 {
        self.state().epoch
    }

    fn keep(&self, key: &Key, upstream: Upstream) {
        let mut state = self.state();
        if state.epoch != upstream.epoch || upstream.is_closed() {
            return;
        }
        if state.idle.len() >= KEYS_MAX && !state.idle.contains_key(key) {
            return;
        }
        let idle = state.idle.entry(key.clone()).or_default();
        let now = monotonic_ms();
        match upstream.sender {
            Sender::Http1(_) if idle.http1.len() < IDLE_MAX => {
                idle.http1.push((Upstream { fresh: false, ..upstream }, now));
            }
            Sender::Http1(_) => {}
            Sender::Http2(_) => idle.http2 = Some((Upstream { fresh: false, ..upstream }, now)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use, which returns to its pool if the exchange succeeds.
#[derive(Debug)]
pub(super) struct Lease {
    upstream: Upstream,
    pool: Arc<Pool>,
    key: Key,
}

impl Lease {
    /// Called when the response was read to its end.
    pub(super) fn give_back(self) {
        // For HTTP/2 the pool already holds a handle of this connection.
        if matches!(self.upstream.sender, Sender::Http1(_)) {
            self.pool.keep(&self.key, self.upstream);
        }
    }
}

/// Sends a request on a connection of `key`. If the host had closed the connection before it received the request,
/// another connection is used.
pub(super) async fn send(
    shared: &Shared,
    account: &Account,
    pool: &Arc<Pool>,
    policy: &Policy,
    key: &Key,
    identity: Option<&SecretBytes>,
    mut request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), UpstreamError> {
    loop {
        let mut upstream = match pool.take(key) {
            Some(upstream) => upstream,
            None => connect(shared, account, pool, policy, key, identity, Protocols::Any).await?,
        };
        let fresh = upstream.fresh;
        match upstream.try_send(key, request).await {
            Ok(response) => {
                let lease = Lease { upstream, pool: Arc::clone(pool), key: key.clone() };
                return Ok((response, lease));
            }
            Err(mut error) => match error.take_message() {
                Some(again) if !fresh => request = again,
                Some(_) | None => return Err(UpstreamError::Http(error.into_error())),
            },
        }
    }
}

/// Sends a request for a protocol upgrade, on a separate connection.
pub(super) async fn send_upgrade(
    shared: &Shared,
    account: &Account,
    pool: &Arc<Pool>,
    policy: &Policy,
    key: &Key,
    identity: Option<&SecretBytes>,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), UpstreamError> {
    let mut upstream = connect(shared, account, pool, policy, key, identity, Protocols::Http1).await?;
    // Never returned to the pool: no pool has this epoch.
    upstream.epoch = u64::MAX;
    let response = upstream.try_send(key, request).await;
    let response = response.map_err(|error| UpstreamError::Http(error.into_error()))?;
    Ok((response, Lease { upstream, pool: Arc::clone(pool), key: key.clone() }))
}

async fn connect(
    shared: &Shared,
    account: &Account,
    pool: &Arc<Pool>,
    policy: &Policy,
    key: &Key,
    identity: Option<&SecretBytes>,
    protocols: Protocols,
) -> Result<Upstream, UpstreamError> {
    let epoch = pool.epoch();
    let destination = Destination { host: crate::policy::Host::Name(key.host.clone()), port: key.port };
    let (stream, _) =
        shared.dialler.dial(account, policy, &destination).await.map_err(UpstreamError::Dial)?;
    crate::proxy::prepare(&stream);
    let config = shared.roots.config(identity, protocols).map_err(UpstreamError::Tls)?;
    let name = ServerName::try_from(key.host.as_str().to_owned())
        .map_err(|_| UpstreamError::Tls(io::ErrorKind::InvalidInput.into()))?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, ReadAhead::new(stream));
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .map_err(|_| UpstreamError::Slow)?
        .map_err(UpstreamError::Tls)?;
    let upstream = start_http(stream, epoch).await.map_err(UpstreamError::Http)?;
    if let Some(another_handle) = upstream.another_handle() {
        pool.keep(key, another_handle);
    }
    Ok(upstream)
}

async fn start_http(stream: TlsStream<ReadAhead<TcpStream>>, epoch: u64) -> Result<Upstream, hyper::Error> {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(CoalescingStream::new(stream));
    let (sender, task) = if is_http2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADER_LIST_MAX)
            .handshake(io)
            .await?;
        (Sender::Http2(sender), tokio::spawn(async { drop(connection.await) }).abort_handle())
    } else {
        let (sender, connection) = http1::Builder::new().max_buf_size(READ_MAX).handshake(io).await?;
        let connection = connection.with_upgrades();
        (Sender::Http1(sender), tokio::spawn(async { drop(connection.await) }).abort_handle())
    };
    Ok(Upstream { sender, task: Arc::new(Task(task)), epoch, fresh: true })
}

impl Upstream {
    fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Another handle of a connection that accepts concurrent requests.
    fn another_handle(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http2(sender) if !sender.is_closed() => Some(Self {
                sender: Sender::Http2(sender.clone()),
                task: Arc::clone(&self.task),
                epoch: self.epoch,
                fresh: self.fresh,
            }),
            Sender::Http2(_) | Sender::Http1(_) => None,
        }
    }

    async fn try_send(
        &mut self,
        key: &Key,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let target = request.uri().path_and_query().cloned();
        let authority = match key.port {
            443 => key.host.to_string(),
            port => format!("{}:{port}", key.host),
        };
        match &mut self.sender {
            Sender::Http1(sender) => {
                *request.uri_mut() = target.map(Uri::from).unwrap_or_default();
                *request.version_mut() = Version::HTTP_11;
                if let Ok(host) = HeaderValue::from_str(&authority) {
                    request.headers_mut().insert(header::HOST, host);
                }
                // The previous response was read to its end, so this returns immediately.
                let _ = sender.ready().await;
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => {
                let mut uri = Uri::builder().scheme("https").authority(authority);
                if let Some(target) = target {
                    uri = uri.path_and_query(target);
                }
                *request.uri_mut() = uri.build().unwrap_or_default();
                *request.version_mut() = Version::HTTP_2;
                request.headers_mut().remove(header::HOST);
                sender.try_send_request(request).await
            }
        }
    }
}
