//! Hosts that play the internet: they record all bytes they receive, and answer with them in every hostile form.
//!
//! ```text
//!   connection ══TLS══► tee (every byte, as it came) ──► HTTP/1 or 2 ──► recorded ──► answered (`answers.rs`)
//! ```

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::answers;
use crate::test_network::UNGUARDED_ADDRESS;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Maximum stored bytes of one connection.
const HEARD_BYTES_MAX: usize = 1 << 20;

/// The client of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sender {
    #[default]
    Egress,
    /// A control's probe, without a proxy.
    Unguarded,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    /// Counted over all hosts.
    pub(crate) connection: usize,
    /// The sender.
    pub(crate) sender: Sender,
    /// The server name in the ClientHello; empty without TLS.
    pub(crate) name: String,
    /// Whether a client certificate was presented.
    pub(crate) certified: bool,
    /// Whether the session was resumed from another connection.
    pub(crate) resumed: bool,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> String {
        let values: Vec<_> = self.headers.get_all(name).iter().map(|value| text(value.as_bytes())).collect();
        values.join(", ")
    }

    /// The complete body.
    pub(crate) fn text(&self) -> String {
        let headers =
            self.headers.iter().map(|(name, value)| format!("{name}: {}\n", text(value.as_bytes())));
        format!("{} {}\n{}", self.method, self.target, headers.collect::<String>())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One connection's bytes.
#[derive(Debug)]
struct RecordedConnection {
    name: String,
    sender: Sender,
    bytes: Vec<u8>,
}

impl RecordedConnection {
    fn times(&self, word: &str) -> usize {
        self.bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
    }
}

/// The requests that all hosts received.
#[derive(Debug, Default)]
pub(crate) struct Records {
    seen: Mutex<Vec<RecordedRequest>>,
    heard: Mutex<Vec<RecordedConnection>>,
    connections: AtomicUsize,
}

impl Records {
    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests whose target contains `mark`.
    pub(crate) fn with(&self, mark: &str) -> Vec<RecordedRequest> {
        self.seen().into_iter().filter(|seen| seen.target.contains(mark)).collect()
    }

    /// The number of connections with this server name (all, if it is empty) that contained `word`.
    pub(crate) fn heard(&self, name: &str, word: &str) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|heard| (name.is_empty() || heard.name == name) && heard.times(word) > 0).count()
    }

    /// The number of occurrences of `word`, over all connections.
    pub(crate) fn times(&self, word: &str) -> usize {
        self.heard.lock().unwrap().iter().map(|heard| heard.times(word)).sum()
    }

    /// All bytes from the egress process to hosts whose names satisfy `wanted`.
    pub(crate) fn sent_to(&self, wanted: impl Fn(&str) -> bool) -> String {
        let seen = self.seen();
        let seen = seen.iter().filter(|seen| seen.sender == Sender::Egress && wanted(&seen.name));
        let heard = self.heard.lock().unwrap();
        let heard = heard.iter().filter(|heard| heard.sender == Sender::Egress && wanted(&heard.name));
        seen.map(RecordedRequest::text).chain(heard.map(|heard| text(&heard.bytes))).collect()
    }
}

/// The configuration of a host.
#[derive(Clone)]
pub(crate) struct HostOptions {
    pub(crate) address: &'static str,
    pub(crate) port: u16,
    /// `None`: without TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

/// Starts a host for the rest of the test. Must be called within a runtime.
pub(crate) async fn open(manner: HostOptions, records: Arc<Records>) {
    let address: IpAddr = manner.address.parse().unwrap();
    let listener = TcpListener::bind((address, manner.port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let weak = from.ip() == UNGUARDED_ADDRESS.parse::<IpAddr>().unwrap();
            let sender = if weak { Sender::Unguarded } else { Sender::Egress };
            tokio::spawn(serve(stream, sender, manner.tls.clone(), Arc::clone(&records)));
        }
    });
}

async fn serve(
    stream: TcpStream,
    sender: Sender,
    tls: Option<Arc<rustls::ServerConfig>>,
    records: Arc<Records>,
) {
    let Some(config) = tls else {
        return talk(
            stream,
            records,
            ConnectionInfo { sender, ..ConnectionInfo::default() },
            Protocol::Http1,
        )
        .await;
    };
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let session = stream.get_ref().1;
    let about = ConnectionInfo {
        sender,
        name: session.server_name().unwrap_or_default().to_owned(),
        certified: session.peer_certificates().is_some_and(|chain| !chain.is_empty()),
        resumed: session.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
    };
    let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    talk(stream, records, about, protocol).await;
}

#[derive(Clone, Default)]
struct ConnectionInfo {
    sender: Sender,
    name: String,
    certified: bool,
    resumed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

async fn talk<S>(stream: S, records: Arc<Records>, about: ConnectionInfo, protocol: Protocol)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let number = records.connections.fetch_add(1, Ordering::SeqCst);
    let place = {
        let mut heard = records.heard.lock().unwrap();
        heard.push(RecordedConnection { name: about.name.clone(), sender: about.sender, bytes: Vec::new() });
        heard.len() - 1
    };
    let io = TokioIo::new(Tee { inner: stream, records: Arc::clone(&records), place });
    let service = service_fn(move |request| answer(Arc::clone(&records), number, about.clone(), request));
    if protocol == Protocol::Http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(io, service).await;
    } else {
        let server = hyper::server::conn::http1::Builder::new();
        let _ = server.serve_connection(io, service).with_upgrades().await;
    }
}

async fn answer(
    records: Arc<Records>,
    connection: usize,
    about: ConnectionInfo,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let seen = RecordedRequest {
        connection,
        sender: about.sender,
        name: about.name,
        certified: about.certified,
        resumed: about.resumed,
        method: request.method().to_string(),
        target: request.uri().to_string(),
        headers: request.headers().clone(),
    };
    records.seen.lock().unwrap().push(seen);
    Ok(answers::to(request).await)
}

/// Records the bytes that are read.
struct Tee<S> {
    inner: S,
    records: Arc<Records>,
    place: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tee<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let outcome = Pin::new(&mut self.inner).poll_read(cx, into);
        let came = &into.filled()[before..];
        if !came.is_empty() {
            let bytes = &mut self.records.heard.lock().unwrap()[self.place].bytes;
            let room = HEARD_BYTES_MAX.saturating_sub(bytes.len());
            bytes.extend_from_slice(&came[..came.len().min(room)]);
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tee<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
