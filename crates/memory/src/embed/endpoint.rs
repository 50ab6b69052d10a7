//! A client for HTTP endpoints with OpenAI's API: JSON requests and responses, a key, limits on time and size.
//!
//! One connection per request: a request takes tens of milliseconds at least, so keeping connections would save
//! little, and a request could fail because its connection is just being closed.

use std::fmt;
use std::io;
use std::time::Duration;

use burrow_dial::{TlsSetupError, Wire, dial, host_and_port, tls_connector};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio_rustls::TlsConnector;

/// The largest response that is read: 256 vectors of 3,072 numbers as JSON are about 15 MiB.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Characters of the endpoint's error message that are shown.
const WORDS_MAX: usize = 300;

/// The endpoint, as the operator configured it.
#[derive(Clone)]
pub struct EndpointOptions {
    /// The URL before `/embeddings` or `/chat/completions`: `https://host/v1`.
    pub url: String,
    pub key: Option<String>,
    /// For a whole request, from the DNS lookup to the last byte of the response.
    pub timeout: Duration,
}

impl fmt::Debug for EndpointOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointOptions")
            .field("url", &self.url)
            .field("key", &self.key.as_ref().map(|_| "***"))
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// A configured endpoint.
#[derive(Clone)]
pub struct Endpoint {
    base: Uri,
    key: Option<HeaderValue>,
    timeout: Duration,
    tls: Option<TlsConnector>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("base", &self.base)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("invalid endpoint URL `{url}`: {why}")]
    Address { url: String, why: &'static str },
    #[error("could not load the CA certificates of this host")]
    Certificates(#[source] TlsSetupError),
    #[error("could not reach `{url}`")]
    Reach { url: String, source: io::Error },
    #[error("`{url}` did not answer within {seconds} s")]
    Late { url: String, seconds: u64 },
    #[error("`{url}` answered {status}: {words}")]
    Refused { url: String, status: u16, words: String },
    #[error("the answer of `{url}` is not JSON, or larger than {ANSWER_BYTES_MAX} bytes")]
    Unreadable { url: String },
}

impl EndpointError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Address { .. } => Some("give it as `https://host/v1`, without `/embeddings`"),
            Self::Certificates(_) => Some("install the `ca-certificates` package"),
            Self::Refused { status: 401 | 403, .. } => Some("check the configured key"),
            Self::Refused { status: 404, .. } => Some("check the configured address and model"),
            Self::Reach { .. } | Self::Late { .. } => Some("texts that were not embedded are retried later"),
            Self::Refused { .. } | Self::Unreadable { .. } => None,
        }
    }
}

impl Endpoint {
    pub fn new(options: &EndpointOptions) -> Result<Self, EndpointError> {
        let address = |why| EndpointError::Address { url: options.url.clone(), why };
        let base: Uri =
            options.url.trim_end_matches('/').parse().map_err(|_| address("it is not a valid URL"))?;
        if base.host().is_none() || base.query().is_some() {
            return Err(address("it must have a host and no query"));
        }
        let tls = match base.scheme_str() {
            Some("http") => None,
            Some("https") => Some(tls_connector(None).map_err(EndpointError::Certificates)?),
            _ => return Err(address("it must begin with `https://` or `http://`")),
        };
        let key = match &options.key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", key.trim()))
                    .map_err(|_| address("its key contains characters that are not allowed in a header"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { base, key, timeout: options.timeout, tls })
    }

    /// The URL for messages; it never contains a key.
    pub fn url(&self, path: &str) -> String {
        let (scheme, host) = (self.base.scheme_str().unwrap_or("http"), self.host_and_port());
        format!("{scheme}://{host}{}{path}", self.base.path().trim_end_matches('/'))
    }

    /// Posts a document and returns the response's document.
    pub async fn post(&self, path: &str, document: &Value) -> Result<Value, EndpointError> {
        match tokio::time::timeout(self.timeout, self.exchange(path, document)).await {
            Ok(answer) => answer,
            Err(_) => Err(EndpointError::Late { url: self.url(path), seconds: self.timeout.as_secs() }),
        }
    }

    async fn exchange(&self, path: &str, document: &Value) -> Result<Value, EndpointError> {
        let url = self.url(path);
        let failed = |source| EndpointError::Reach { url: url.clone(), source };
        let wire = self.connect().await.map_err(failed)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(wire)).await.map_err(other).map_err(failed)?;
        // The connection task ends with the sender, which this function owns.
        let driving = tokio::spawn(connection);
        let answer = sender.send_request(self.request(path, document).map_err(failed)?).await;
        let read = match answer {
            Ok(answer) => read(answer, &url).await,
            Err(error) => Err(failed(other(error))),
        };
        driving.abort();
        read
    }

    fn request(&self, path: &str, document: &Value) -> io::Result<Request<Full<Bytes>>> {
        let target = format!("{}{path}", self.base.path().trim_end_matches('/'));
        let mut request = Request::post(target)
            .header(HOST, self.host_and_port())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("burrow/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        request.body(Full::new(document.to_string().into())).map_err(other)
    }

    async fn connect(&self) -> io::Result<Wire> {
        let (host, port) = host_and_port(&self.base).ok_or(io::ErrorKind::InvalidInput)?;
        // The caller limits the time of the whole request.
        dial(host, port, self.tls.as_ref()).await
    }

    fn host_and_port(&self) -> String {
        self.base.authority().map_or_else(String::new, |authority| {
            // The part before an `@` would be a password.
            authority.as_str().rsplit('@').next().unwrap_or_default().to_owned()
        })
    }
}

async fn read(answer: http::Response<hyper::body::Incoming>, url: &str) -> Result<Value, EndpointError> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let Ok(body) = body.map(|body| body.to_bytes()) else {
        return Err(EndpointError::Unreadable { url: url.to_owned() });
    };
    if status != StatusCode::OK {
        let words = words(&body);
        return Err(EndpointError::Refused { url: url.to_owned(), status: status.as_u16(), words });
    }
    serde_json::from_slice(&body).map_err(|_| EndpointError::Unreadable { url: url.to_owned() })
}

/// The error message of a response, as one short line without terminal control characters.
fn words(body: &[u8]) -> String {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let said = document.as_ref().and_then(|document| {
        let error = document.get("error").unwrap_or(document);
        error.get("message").or(Some(error)).and_then(Value::as_str)
    });
    let text = said.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_MAX).collect()
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}
