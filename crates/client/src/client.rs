//! The client: one base address, one key, one connection pool. Sends requests and reads responses.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use burrow_api::ErrorBody;
use burrow_dial::{Wire, dial, tls_connector, within};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::DuplexStream;
use tokio_rustls::TlsConnector;

use crate::ClientError;
use crate::body::{RequestBody, empty, full};
use crate::url::{BaseUrl, Path, Scheme};

/// Largest JSON response: a directory listing of 100,000 entries with long paths is smaller.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Largest error body: a larger one does not come from a Burrow daemon.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Number of repetitions of a request that is safe to repeat. The pauses double from the first one: 3.1 s in total, enough
/// for a restart of the daemon.
const RETRIES_MAX: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A host that does not answer a SYN for this long counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the pauses within one command, shorter than the daemon keeps an idle connection.
const POOL_IDLE: Duration = Duration::from_secs(30);

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How to reach a daemon.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `http://host:port` or `https://host:port`, with a path prefix if a proxy adds one.
    pub url: String,
    pub key: Option<ApiKey>,
    /// PEM file of a CA to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
}

/// An API key; `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

/// A client of one daemon. Clones share one connection pool.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    base: BaseUrl,
    headers: HeaderMap,
    http: legacy::Client<Connector, RequestBody>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.inner.base.display()).finish_non_exhaustive()
    }
}

/// One request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: Path,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
}

impl Call {
    pub(crate) fn new(method: Method, path: Path) -> Self {
        Self { method, path, headers: HeaderMap::new(), body: empty() }
    }
}

/// Whether a request may be sent again after its connection broke.
#[derive(Clone, Copy)]
enum Repeat {
    Safe,
    Never,
}

impl Client {
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let base = BaseUrl::parse(&options.url)?;
        let transport = match base.scheme() {
            Scheme::Https => Transport::Tls(tls_connector(options.ca_file.as_deref())?),
            Scheme::Http => Transport::Plain,
        };
        Self::with_transport(base, &options, transport)
    }

    /// A client of a server in the same process: each connection is an in-memory pipe; `open` passes its other end to the server.
    /// The address is used only as the host of requests; nothing is dialled.
    pub fn within(
        options: ClientOptions,
        open: impl Fn() -> DuplexStream + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        let base = BaseUrl::parse(&options.url)?;
        Self::with_transport(base, &options, Transport::Within(Arc::new(open)))
    }

    fn with_transport(
        base: BaseUrl,
        options: &ClientOptions,
        transport: Transport,
    ) -> Result<Self, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &options.key {
            let mut value = HeaderValue::from_str(&key.0).map_err(|_| ClientError::BadKey)?;
            value.set_sensitive(true);
            headers.insert(API_KEY, value);
        }
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .build(Connector { base: base.clone(), transport });
        Ok(Self { inner: Arc::new(Inner { base, headers, http }) })
    }

    /// The address, as given.
    pub fn url(&self) -> String {
        self.inner.base.display()
    }

    // === Requests, for the other modules ===

    pub(crate) fn uri(&self, path: &Path) -> Uri {
        self.inner.base.join(path)
    }

    /// Sends a request; a response that is not a success becomes an error.
    pub(crate) async fn send(&self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let (method, path) = (call.method.clone(), call.path.shown());
        let response = self.send_any(call).await?;
        let status = response.status();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        Err(refusal(method, path, response).await)
    }

    async fn send_any(&self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::new(call.body);
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = self.uri(&call.path);
        *request.headers_mut() = call.headers;
        request.headers_mut().extend(self.inner.headers.clone());
        let sent = self.inner.http.request(request).await;
        sent.map_err(|error| self.transport_error(&error, &call.method, &call.path.shown()))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: Path) -> Result<T, ClientError> {
        self.repeat(Repeat::Safe, || Call::new(Method::GET, path.clone())).await
    }

    /// The same, for a response whose body is valid with status 503 too.
    pub(crate) async fn get_even_unavailable<T: DeserializeOwned>(
        &self,
        path: Path,
    ) -> Result<T, ClientError> {
        let (method, shown) = (Method::GET, path.shown());
        let response = self.send_any(Call::new(Method::GET, path)).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE) {
            return Err(refusal(method, shown, response).await);
        }
        let bytes = collect(response, ANSWER_BYTES_MAX, &method, &shown).await?;
        serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode { method, path: shown, source })
    }

    /// A POST request without a body, with a JSON response.
    pub(crate) async fn post_empty<T: DeserializeOwned>(&self, path: Path) -> Result<T, ClientError> {
        self.repeat(Repeat::Never, || Call::new(Method::POST, path.clone())).await
    }

    pub(crate) async fn send_json<B: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: Path,
        body: &B,
    ) -> Result<T, ClientError> {
        let call = json_call(method, path, body)?;
        self.repeat(Repeat::Never, call).await
    }

    /// A create request. Its `Idempotency-Key` makes it safe to repeat when the connection breaks.
    pub(crate) async fn create<B: Serialize, T: DeserializeOwned>(
        &self,
        path: Path,
        body: &B,
    ) -> Result<(StatusCode, T), ClientError> {
        let call = json_call(Method::POST, path, body)?;
        let key = idempotency_key();
        let keyed = || {
            let mut call = call();
            call.headers.insert(IDEMPOTENCY_KEY, key.clone());
            call
        };
        self.repeat_with_status(Repeat::Safe, keyed).await
    }

    /// Sends a body that cannot be sent twice; the response is JSON.
    pub(crate) async fn send_upload<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        Ok(self.once(call).await?.1)
    }

    /// A request whose successful response has no content.
    pub(crate) async fn send_no_content(&self, call: Call) -> Result<(), ClientError> {
        let response = self.send(call).await?;
        // Reading the (empty) body returns the connection to the pool.
        let _ = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
        Ok(())
    }

    pub(crate) async fn send_json_no_content<B: Serialize>(
        &self,
        path: Path,
        body: &B,
    ) -> Result<(), ClientError> {
        let call = json_call(Method::POST, path, body)?;
        self.send_no_content(call()).await
    }

    async fn repeat<T: DeserializeOwned>(
        &self,
        repeat: Repeat,
        call: impl Fn() -> Call,
    ) -> Result<T, ClientError> {
        Ok(self.repeat_with_status(repeat, call).await?.1)
    }

    async fn repeat_with_status<T: DeserializeOwned>(
        &self,
        repeat: Repeat,
        call: impl Fn() -> Call,
    ) -> Result<(StatusCode, T), ClientError> {
        let mut broke = false;
        for attempt in 0.. {
            let error = match self.once(call()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            broke |= matches!(error, ClientError::Broken { .. });
            // A daemon that cannot be reached at all is reported at once; if it vanished during the request, it is probably
            // being restarted.
            let again = broke && matches!(error, ClientError::Broken { .. } | ClientError::Connect { .. });
            if !again || attempt >= RETRIES_MAX || matches!(repeat, Repeat::Never) {
                return Err(error);
            }
            tokio::time::sleep(RETRY_PAUSE * 2u32.pow(attempt)).await;
        }
        unreachable!("the last attempt returns")
    }

    async fn once<T: DeserializeOwned>(&self, mut call: Call) -> Result<(StatusCode, T), ClientError> {
        let (method, path) = (call.method.clone(), call.path.shown());
        call.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.send(call).await?;
        let status = response.status();
        let bytes = collect(response, ANSWER_BYTES_MAX, &method, &path).await?;
        let value =
            serde_json::from_slice(&bytes).map_err(|source| ClientError::Decode { method, path, source })?;
        Ok((status, value))
    }

    /// The whole response as text.
    pub(crate) async fn get_text(&self, path: Path) -> Result<String, ClientError> {
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        let bytes = collect(response, ANSWER_BYTES_MAX, &Method::GET, &shown).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn transport_error(&self, error: &legacy::Error, method: &Method, path: &str) -> ClientError {
        let source = innermost(error);
        if error.is_connect() {
            ClientError::Connect { url: self.url(), source }
        } else {
            ClientError::Broken { method: method.clone(), path: path.to_owned(), source }
        }
    }
}

pub(crate) fn json_call<B: Serialize>(
    method: Method,
    path: Path,
    body: &B,
) -> Result<impl Fn() -> Call, ClientError> {
    let bytes = serde_json::to_vec(body)
        .map_err(|source| ClientError::Encode { path: path.shown(), source })
        .map(Bytes::from)?;
    Ok(move || {
        let mut call = Call::new(method.clone(), path.clone());
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.body = full(bytes.clone());
        call
    })
}

/// A random key that is unique: as many bits as the id of an operation.
fn idempotency_key() -> HeaderValue {
    HeaderValue::from_str(burrow_model::OperationId::generate().as_str())
        .expect("an id is letters and digits")
}

async fn collect(
    response: Response<Incoming>,
    max: usize,
    method: &Method,
    path: &str,
) -> Result<Bytes, ClientError> {
    match Limited::new(response.into_body(), max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ClientError::AnswerTooLarge { method: method.clone(), path: path.to_owned(), max })
        }
        Err(error) => Err(ClientError::Broken {
            method: method.clone(),
            path: path.to_owned(),
            source: innermost(error.as_ref()),
        }),
    }
}

async fn refusal(method: Method, path: String, response: Response<Incoming>) -> ClientError {
    let status = response.status();
    let bytes = match collect(response, ERROR_BYTES_MAX, &method, &path).await {
        Ok(bytes) => bytes,
        Err(error) => return error,
    };
    match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(body) => ClientError::Server { status, detail: body.error },
        Err(_) => {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.chars().take(200).flat_map(char::escape_default).collect();
            ClientError::NotBurrow { method, path, status, text }
        }
    }
}

/// The root cause of an error, without the layers of libraries, because that is what users understand.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> Box<dyn Error + Send + Sync> {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    match cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
        Some(number) => io::Error::from_raw_os_error(number).into(),
        None => cause.to_string().into(),
    }
}

/// Opens connections for the pool. There is one target only.
#[derive(Clone)]
struct Connector {
    base: BaseUrl,
    transport: Transport,
}

/// How the target is reached.
#[derive(Clone)]
enum Transport {
    Plain,
    Tls(TlsConnector),
    Within(Arc<dyn Fn() -> DuplexStream + Send + Sync>),
}

impl Connector {
    async fn dial(&self, tls: Option<&TlsConnector>) -> io::Result<Wire> {
        within(CONNECT_TIMEOUT, dial(self.base.host(), self.base.port(), tls)).await
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let wire = match &connector.transport {
                Transport::Plain => connector.dial(None).await?,
                Transport::Tls(tls) => connector.dial(Some(tls)).await?,
                Transport::Within(open) => Wire::new(open()),
            };
            Ok(TokioIo::new(wire))
        })
    }
}
