//! A registry whose behaviour the test defines.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;

use ::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;

pub(super) type Body = BoxBody<Bytes, std::io::Error>;

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl ReceivedRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A server on loopback; ends with the test's runtime.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Server {
    pub(super) async fn start(
        answer: impl Fn(&ReceivedRequest) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(answer);
        let log = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                        let request = ReceivedRequest {
                            method: parts.method.to_string(),
                            path: parts.uri.path().to_owned(),
                            query: parts.uri.query().unwrap_or_default().to_owned(),
                            headers: parts.headers,
                            body: String::from_utf8_lossy(&body).into_owned(),
                        };
                        log.lock().unwrap().push(request.clone());
                        Ok::<_, Infallible>(answer(&request))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Self { address, requests }
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests for blobs.
    pub(super) fn blob_requests(&self) -> Vec<ReceivedRequest> {
        self.requests().into_iter().filter(|request| request.path.contains("/blobs/")).collect()
    }
}

pub(super) fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    Response::builder().status(status).body(body).unwrap()
}

/// Announces all bytes and sends only a part.
pub(super) fn respond_broken(status: StatusCode, bytes: &[u8], sent: usize) -> Response<Body> {
    let part = Bytes::copy_from_slice(&bytes[..sent]);
    let pieces = futures_util::stream::unfold(Some(part), |part| async move {
        if let Some(part) = part {
            return Some((Ok(Frame::data(part)), None));
        }
        // The bytes are sent when the server has nothing else to do.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        Some((Err(std::io::Error::other("the line breaks")), None))
    });
    let body = StreamBody::new(pieces);
    Response::builder()
        .status(status)
        .header("content-length", bytes.len())
        .body(BodyExt::boxed(body))
        .unwrap()
}

/// An image in the form in which a registry serves it: by path.
#[derive(Clone, Debug)]
pub(super) struct ServedImage {
    pub(super) blobs: HashMap<String, Vec<u8>>,
    pub(super) manifest: Vec<u8>,
    /// Of the manifest.
    pub(super) media_type: String,
    /// The path of the first layer.
    pub(super) layer: String,
}

impl ServedImage {
    pub(super) fn new(image: &Image) -> Self {
        let blobs = image.layout().join("blobs/sha256");
        let index: serde_json::Value =
            serde_json::from_slice(&fs::read(image.layout().join("index.json")).unwrap()).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap();
        let read = |digest: &str| fs::read(blobs.join(digest.strip_prefix("sha256:").unwrap())).unwrap();
        let manifest = read(digest);
        let parsed: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let layer = parsed["layers"][0]["digest"].as_str().unwrap();
        let all = fs::read_dir(&blobs).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = format!("/v2/app/blobs/sha256:{}", entry.file_name().to_str().unwrap());
            (path, fs::read(entry.path()).unwrap())
        });
        Self {
            blobs: all.collect(),
            manifest,
            media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
            layer: format!("/v2/app/blobs/{layer}"),
        }
    }

    /// The correct response.
    pub(super) fn answer(&self, request: &ReceivedRequest) -> Response<Body> {
        if request.path.starts_with("/v2/app/manifests/") {
            let mut response = respond(StatusCode::OK, self.manifest.clone());
            response.headers_mut().insert("content-type", self.media_type.parse().unwrap());
            return response;
        }
        match self.blobs.get(&request.path) {
            Some(blob) => respond(StatusCode::OK, blob.clone()),
            None => respond(StatusCode::NOT_FOUND, ""),
        }
    }
}
