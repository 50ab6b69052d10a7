//! An HTTP client for the object store, based on the client library that the rest of the daemon uses.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Time limit for connecting to the store.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the head of a response; storing large parts takes time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub(super) struct Connector {
    tls: TlsConnector,
}

impl Connector {
    /// Trusts the certificate authorities of this host.
    pub(super) fn new() -> io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let dial = Dial { tls: self.tls.clone() };
        Ok(HttpClient::new(Service { client: Client::builder(TokioExecutor::new()).build(dial) }))
    }
}

struct Service {
    client: Client<Dial, HttpRequestBody>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, self.client.request(request)).await;
        let late = || HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut));
        let response = answered.map_err(|_| late())?.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, error)
        })?;
        let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(broken))))
    }
}

/// Opens connections, with TLS if the address requires it.
#[derive(Clone)]
struct Dial {
    tls: TlsConnector,
}

impl tower::Service<Uri> for Dial {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.clone();
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, dial(&tls, &uri)).await {
                Ok(wire) => wire.map(TokioIo::new),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }
}

async fn dial(tls: &TlsConnector, uri: &Uri) -> io::Result<Wire> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let host = uri.host().ok_or_else(invalid)?.trim_start_matches('[').trim_end_matches(']');
    let plain = uri.scheme_str() == Some("http");
    let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    if plain {
        return Ok(Wire::Plain(tcp));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| invalid())?;
    Ok(Wire::Tls(Box::new(tls.connect(name, tcp).await?)))
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_read(cx, buffer),
            Self::Tls(wire) => Pin::new(wire).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_write(cx, bytes),
            Self::Tls(wire) => Pin::new(wire).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_flush(cx),
            Self::Tls(wire) => Pin::new(wire).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_shutdown(cx),
            Self::Tls(wire) => Pin::new(wire).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use axum::Router;
    use axum::extract::Request;
    use axum::response::Response;
    use bytes::Bytes;
    use http::{Method, StatusCode};
    use object_store::path::Path;
    use object_store::{ObjectStoreExt as _, PutPayload};

    use crate::memory::store;
    use burrow_config::ArtifactsConfig;
    use http_body_util::BodyExt as _;

    type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

    use super::*;

    /// The subset of S3 that artifacts need; requires signed requests.
    async fn answer(objects: Objects, request: Request) -> Response {
        let signed = request.headers().get("authorization").is_some_and(|value| {
            value.to_str().is_ok_and(|text| text.starts_with("AWS4-HMAC-SHA256 Credential=id/"))
        });
        let (path, method) = (request.uri().path().to_owned(), request.method().clone());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let found = objects.lock().unwrap().get(&path).cloned();
        let (status, bytes) = match (signed, method, found) {
            (false, _, _) => (StatusCode::FORBIDDEN, Bytes::new()),
            (true, Method::PUT, _) => {
                objects.lock().unwrap().insert(path, body);
                (StatusCode::OK, Bytes::new())
            }
            (true, Method::GET, Some(bytes)) => (StatusCode::OK, bytes),
            (true, _, _) => (StatusCode::NOT_FOUND, Bytes::new()),
        };
        Response::builder()
            .status(status)
            .header("etag", "\"1\"")
            .header("last-modified", "Sun, 15 Nov 2026 12:00:00 GMT")
            .body(axum::body::Body::from(bytes))
            .unwrap()
    }

    #[tokio::test]
    async fn bytes_are_stored_and_read_with_signed_requests() {
        let objects = Objects::default();
        let served = objects.clone();
        let router = Router::new().fallback(move |request| answer(served.clone(), request));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let config = ArtifactsConfig::S3 {
            bucket: "artifacts".to_owned(),
            endpoint: Some(endpoint),
            region: "us-east-1".to_owned(),
            access_key_file: file("id", "id\n"),
            secret_key_file: file("secret", "secret\n"),
        };
        let store = store::open(&config, folder.path()).unwrap();
        let path = Path::from("ab/abcdef");
        store.put(&path, PutPayload::from_static(b"some bytes")).await.unwrap();
        assert!(objects.lock().unwrap().contains_key("/artifacts/ab/abcdef"));
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "some bytes");
        let missing = store.get(&Path::from("ab/nothing")).await;
        assert!(matches!(missing, Err(object_store::Error::NotFound { .. })), "{missing:?}");
    }
}
