//! Hosts that play the internet: they write down all they are sent, and answer with it in every treacherous way.
//!
//! ```text
//!   connection ══TLS══► tee (every byte, as it came) ──► HTTP/1 or 2 ──► written down ──► answered (`answers.rs`)
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
use crate::sea::WEAK_ADDRESS;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Longest that is kept of one connection's bytes.
const HEARD_BYTES_MAX: usize = 1 << 20;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sender {
    #[default]
    Egress,
    /// A control's probe, with nobody in between.
    Weak,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Over all hosts.
    pub(crate) connection: usize,
    /// By whom it was sent.
    pub(crate) sender: Sender,
    /// The name in the hello; empty in clear.
    pub(crate) name: String,
    /// Whether a client certificate was shown.
    pub(crate) certified: bool,
    /// Whether the session was taken up from another connection.
    pub(crate) resumed: bool,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> String {
        let values: Vec<_> = self.headers.get_all(name).iter().map(|value| text(value.as_bytes())).collect();
        values.join(", ")
    }

    /// All of it.
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
struct Heard {
    name: String,
    sender: Sender,
    bytes: Vec<u8>,
}

impl Heard {
    fn times(&self, word: &str) -> usize {
        self.bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count()
    }
}

/// What all hosts together were sent.
#[derive(Debug, Default)]
pub(crate) struct Records {
    seen: Mutex<Vec<Seen>>,
    heard: Mutex<Vec<Heard>>,
    connections: AtomicUsize,
}

impl Records {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Requests whose target holds `mark`.
    pub(crate) fn with(&self, mark: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.target.contains(mark)).collect()
    }

    /// How many connections with this name in their hello (all, if it is empty) brought `word`.
    pub(crate) fn heard(&self, name: &str, word: &str) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|heard| (name.is_empty() || heard.name == name) && heard.times(word) > 0).count()
    }

    /// How often `word` came, over all connections.
    pub(crate) fn times(&self, word: &str) -> usize {
        self.heard.lock().unwrap().iter().map(|heard| heard.times(word)).sum()
    }

    /// All that the egress process sent to hosts for which `wanted` is true of their names.
    pub(crate) fn sent_to(&self, wanted: impl Fn(&str) -> bool) -> String {
        let seen = self.seen();
        let seen = seen.iter().filter(|seen| seen.sender == Sender::Egress && wanted(&seen.name));
        let heard = self.heard.lock().unwrap();
        let heard = heard.iter().filter(|heard| heard.sender == Sender::Egress && wanted(&heard.name));
        seen.map(Seen::text).chain(heard.map(|heard| text(&heard.bytes))).collect()
    }
}

/// What a host is like.
#[derive(Clone)]
pub(crate) struct Manner {
    pub(crate) address: &'static str,
    pub(crate) port: u16,
    /// None: in clear.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

/// Opens a host for the rest of the test. Must be called within a runtime.
pub(crate) async fn open(manner: Manner, records: Arc<Records>) {
    let address: IpAddr = manner.address.parse().unwrap();
    let listener = TcpListener::bind((address, manner.port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let weak = from.ip() == WEAK_ADDRESS.parse::<IpAddr>().unwrap();
            let sender = if weak { Sender::Weak } else { Sender::Egress };
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
        return talk(stream, records, About { sender, ..About::default() }, Protocol::Http1).await;
    };
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let session = stream.get_ref().1;
    let about = About {
        sender,
        name: session.server_name().unwrap_or_default().to_owned(),
        certified: session.peer_certificates().is_some_and(|chain| !chain.is_empty()),
        resumed: session.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
    };
    let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    talk(stream, records, about, protocol).await;
}

#[derive(Clone, Default)]
struct About {
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

async fn talk<S>(stream: S, records: Arc<Records>, about: About, protocol: Protocol)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let number = records.connections.fetch_add(1, Ordering::SeqCst);
    let place = {
        let mut heard = records.heard.lock().unwrap();
        heard.push(Heard { name: about.name.clone(), sender: about.sender, bytes: Vec::new() });
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
    about: About,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let seen = Seen {
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

/// Keeps what is read.
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
