//! An HTTP client for the object store, based on the client library that the rest of the daemon uses.

use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use burrow_dial::{Dialer, tls_connector};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio_rustls::TlsConnector;

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
        Ok(Self { tls: tls_connector(None).map_err(io::Error::other)? })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let dialer = Dialer::new(self.tls.clone(), CONNECT_TIMEOUT);
        Ok(HttpClient::new(Service { client: Client::builder(TokioExecutor::new()).build(dialer) }))
    }
}

struct Service {
    client: Client<Dialer, HttpRequestBody>,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

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
