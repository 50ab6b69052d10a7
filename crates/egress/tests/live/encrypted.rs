//! Both ends of encrypted connections: hosts that echo what they receive, and programs in a sandbox.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::certificates::KeyAndCertificate;
use crate::clients::connect;
use crate::world::{PATIENCE, Sandbox, UPSTREAM};

type Body = UnsyncBoxBody<Bytes, io::Error>;

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &KeyAndCertificate) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(authority.certificate.clone())).unwrap();
    roots
}

/// The requests that a host has received.
#[derive(Clone, Default)]
pub(crate) struct Host {
    pub(crate) connections: Arc<AtomicUsize>,
    /// The heads of requests, one line each: connection number, method, target, headers.
    seen: Arc<Mutex<Vec<String>>>,
    /// The last credential that was received.
    stored: Arc<Mutex<String>>,
    listening: Arc<Mutex<Option<tokio::task::JoinHandle<()>>>>,
}

impl Host {
    /// Stops listening, so that another host can use the address.
    pub(crate) async fn close(&self) {
        let listening = self.listening.lock().unwrap().take().unwrap();
        listening.abort();
        let _ = listening.await;
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A host that supports HTTP/1 and, if `protocols` contains it, HTTP/2; it requires a certificate of `clients`, if
/// given.
pub(crate) async fn host(
    identity: &KeyAndCertificate,
    port: u16,
    protocols: &[&str],
    clients: Option<&KeyAndCertificate>,
) -> Host {
    let (chain, key) = identity.chain();
    let builder = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots(authority)),
                provider(),
            );
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((UPSTREAM, port)).await.unwrap();
    let host = Host::default();
    let serving = host.clone();
    let listening = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (host, acceptor) = (serving.clone(), acceptor.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let number = host.connections.fetch_add(1, Ordering::SeqCst);
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let service = service_fn(move |request| answer(host.clone(), number, request));
                let io = TokioIo::new(stream);
                if is_http2 {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(io, service).await;
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(io, service).with_upgrades().await;
                }
            });
        }
    });
    *host.listening.lock().unwrap() = Some(listening);
    host
}

/// Answers with the contents of the request, in the way that the path selects.
async fn answer(host: Host, number: usize, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let head = format!("#{number} {} {} {}", request.method(), request.uri(), headers.join("; "));
    host.seen.lock().unwrap().push(head.clone());
    let header_value = |name: &str| {
        let value = request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    };
    let mut credential =
        header_value("authorization") + &header_value("x-token") + request.uri().query().unwrap_or_default();
    let mut path = request.uri().path().to_owned();
    if let Some(rest) = path.strip_prefix("/free/stored/") {
        // As if the stored credential had come with this request.
        path = format!("/v1/{rest}");
        credential.clone_from(&host.stored.lock().unwrap());
    } else if !credential.is_empty() {
        host.stored.lock().unwrap().clone_from(&credential);
    }
    let whole =
        |text: String| Full::new(Bytes::from(text)).map_err(|infallible| match infallible {}).boxed_unsync();
    let response = Response::builder();
    let response = match path.as_str() {
        "/v1/gzip" => response.header("content-encoding", "gzip").body(whole("not gzip".to_owned())),
        "/v1/moved" => response
            .status(302)
            .header("location", format!("https://x/?{credential}"))
            .body(whole(String::new())),
        "/v1/forms" => {
            let secret = credential.trim_start_matches("Bearer ");
            let bytes = secret.as_bytes();
            response.body(whole(format!(
                "{secret} {} {} {} {:?} {}",
                data_encoding::BASE64.encode(bytes),
                data_encoding::BASE64.encode(&[b"x", bytes].concat()),
                data_encoding::HEXLOWER.encode(bytes),
                secret,
                secret.replace('/', "%2F").replace('+', "%2B"),
            )))
        }
        "/v1/pieces" | "/v1/events" | "/v1/grpc" => return Ok(stream(request, credential, &path)),
        "/v1/socket" => return Ok(socket(request, credential)),
        _ => {
            // A truncated body counts as empty.
            let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let body = String::from_utf8_lossy(&body);
            response.header("x-echo", &credential).body(whole(format!("{head}\n{body}")))
        }
    };
    Ok(response.unwrap())
}

/// Streams one byte at a time, one event without an end, or gRPC messages as they arrive with trailers.
fn stream(request: Request<Incoming>, credential: String, path: &str) -> Response<Body> {
    let (sender, frames) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, io::Error>>(8);
    let (path, is_grpc) = (path.to_owned(), path.ends_with("grpc"));
    tokio::spawn(async move {
        match path.as_str() {
            "/v1/pieces" => {
                for byte in credential.into_bytes() {
                    let _ = sender.send(Ok(Frame::data(Bytes::from(vec![byte])))).await;
                }
            }
            "/v1/events" => {
                let _ = sender.send(Ok(Frame::data(Bytes::from_static(b"data: one\n\n")))).await;
                sender.closed().await;
            }
            _ => {
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    let _ = sender.send(Ok(frame)).await;
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                trailers.insert("x-echo", credential.parse().unwrap());
                let _ = sender.send(Ok(Frame::trailers(trailers))).await;
            }
        }
    });
    let frames = futures_util::stream::unfold(frames, |mut frames| async {
        frames.recv().await.map(|frame| (frame, frames))
    });
    let kind = if is_grpc { "application/grpc" } else { "text/event-stream" };
    Response::builder().header("content-type", kind).body(StreamBody::new(frames).boxed_unsync()).unwrap()
}

/// A WebSocket that echoes each small frame, followed by the credential.
fn socket(mut request: Request<Incoming>, credential: String) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let mut header = [0; 6];
        while stream.read_exact(&mut header).await.is_ok() {
            let mut content = vec![0; usize::from(header[1] & 0x7f)];
            stream.read_exact(&mut content).await.unwrap();
            content.iter_mut().enumerate().for_each(|(at, b)| *b ^= header[2 + at % 4]);
            content.extend_from_slice(credential.as_bytes());
            let mut frame = vec![0x81, u8::try_from(content.len()).unwrap()];
            frame.extend(content);
            stream.write_all(&frame).await.unwrap();
            stream.flush().await.unwrap();
        }
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .body(Full::default().map_err(|infallible: Infallible| match infallible {}).boxed_unsync())
        .unwrap()
}

/// A program in the sandbox: connects to `host` and completes a TLS handshake, trusting `authority`.
pub(crate) async fn tls(
    sandbox: &Sandbox,
    host: &str,
    authority: &KeyAndCertificate,
    protocol: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = connect(sandbox, host, 443).await?;
    stream.set_nonblocking(true)?;
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(authority))
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from(host.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::from_std(stream)?).await
}

/// The HTTP connection of a program.
pub(crate) enum HttpClient {
    Http1(hyper::client::conn::http1::SendRequest<Body>),
    Http2(hyper::client::conn::http2::SendRequest<Body>),
}

pub(crate) async fn connect_http(
    sandbox: &Sandbox,
    authority: &KeyAndCertificate,
    version: Version,
) -> HttpClient {
    let protocol = if version == Version::HTTP_2 { "h2" } else { "http/1.1" };
    let io = TokioIo::new(tls(sandbox, "ok.example", authority, protocol).await.unwrap());
    if version == Version::HTTP_2 {
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        HttpClient::Http2(sender)
    } else {
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        HttpClient::Http1(sender)
    }
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct ReadResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) trailers: HeaderMap,
}

impl ReadResponse {
    /// Everything in the response that a program can see.
    pub(crate) fn all(&self) -> String {
        format!("{:?} {} {:?}", self.headers, self.body, self.trailers)
    }
}

impl HttpClient {
    pub(crate) async fn start(&mut self, request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        let sending = async {
            match self {
                Self::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Self::Http2(sender) => sender.send_request(request).await,
            }
        };
        tokio::time::timeout(PATIENCE, sending).await.expect("an answer in time")
    }

    /// Sends a `POST` request with headers and a body to a path of `ok.example`.
    pub(crate) async fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &str) -> ReadResponse {
        let body =
            Full::new(Bytes::from(body.to_owned())).map_err(|infallible| match infallible {}).boxed_unsync();
        let request = self.request("POST", path, headers).body(body).unwrap();
        let response = self.start(request).await.unwrap();
        read(response).await
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> http::request::Builder {
        let mut request = Request::builder().method(method);
        let names_host = headers.iter().any(|(name, _)| *name == "host");
        request = match self {
            Self::Http1(_) if names_host => request.uri(path),
            Self::Http1(_) => request.uri(path).header("host", "ok.example"),
            Self::Http2(_) => request.uri(format!("https://ok.example{path}")),
        };
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> ReadResponse {
    let (parts, body) = response.into_parts();
    let collected = tokio::time::timeout(PATIENCE, body.collect()).await.expect("an end in time").unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let body = String::from_utf8_lossy(&collected.to_bytes()).into_owned();
    ReadResponse { status: parts.status.as_u16(), headers: parts.headers, body, trailers }
}

/// The next piece of a body that is still streamed; `None` if it failed or ended.
pub(crate) async fn piece(body: &mut Incoming) -> Option<Bytes> {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("a piece or an end in time");
    frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok())
}

/// A body that is sent in pieces.
pub(crate) fn pieces() -> (tokio::sync::mpsc::Sender<Bytes>, Body) {
    let (sender, pieces) = tokio::sync::mpsc::channel::<Bytes>(8);
    let stream = futures_util::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (Ok(Frame::data(piece)), pieces))
    });
    (sender, StreamBody::new(stream).boxed_unsync())
}

pub(crate) fn nothing() -> Body {
    http_body_util::Empty::new().map_err(|infallible: Infallible| match infallible {}).boxed_unsync()
}

/// Sends raw bytes through TLS and reads until the peer closes.
pub(crate) async fn raw(sandbox: &Sandbox, authority: &KeyAndCertificate, sent: &[u8]) -> String {
    let mut stream = tls(sandbox, "ok.example", authority, "http/1.1").await.unwrap();
    stream.write_all(sent).await.unwrap();
    stream.flush().await.unwrap();
    let mut seen = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut seen)).await;
    String::from_utf8_lossy(&seen).into_owned()
}
