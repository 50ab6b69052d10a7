//! HTTP requests: limited in time, with checked redirects. The callers retry, since they know which requests may be
//! repeated.

use std::io;
use std::time::Duration;

use burrow_dial::host_and_port;
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio_rustls::TlsConnector;

use super::connect::{Connector, TargetPolicy};
use crate::ImageError;

/// From the request to the first byte of the response. Some registries have slow stores.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Between two pieces of a body.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// For a whole small document, however slowly it arrives.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(180);

/// Registries redirect blobs once, to their store; stores may redirect once more.
const REDIRECTS_MAX: usize = 5;

/// The size of the body of an error response.
const ERROR_BYTES_MAX: u64 = 16 * 1024;

const POOL_IDLE: Duration = Duration::from_secs(30);

type Pool = legacy::Client<Connector, Full<Bytes>>;

/// One pool per set of allowed targets: a connection to a private address is not reused where only public ones are
/// allowed.
pub(super) struct Http {
    named: Pool,
    private: Pool,
    public: Pool,
}

/// A response, and whether it is from the origin of the request.
pub(super) struct HttpResponse {
    pub(super) response: Response<Incoming>,
    pub(super) same_origin: bool,
    pub(super) url: Uri,
}

impl Http {
    pub(super) fn new(tls: &TlsConnector) -> Self {
        let pool = |reach| {
            legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(POOL_IDLE)
                .build(Connector { tls: tls.clone(), reach })
        };
        Self {
            named: pool(TargetPolicy::Named),
            private: pool(TargetPolicy::Private),
            public: pool(TargetPolicy::Public),
        }
    }

    /// One request, without redirects.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Uri,
        headers: &HeaderMap,
        body: Bytes,
        reach: TargetPolicy,
    ) -> Result<Response<Incoming>, ImageError> {
        let mut request = Request::builder().method(method).uri(url.clone());
        if let Some(target) = request.headers_mut() {
            target.extend(headers.clone());
            let agent = concat!("burrow/", env!("CARGO_PKG_VERSION"));
            target.insert(USER_AGENT, HeaderValue::from_static(agent));
        }
        let request = request.body(Full::new(body)).map_err(|error| ImageError::Transfer {
            url: shown(url),
            source: io::Error::new(io::ErrorKind::InvalidInput, error),
        })?;
        let pool = match reach {
            TargetPolicy::Named => &self.named,
            TargetPolicy::Private => &self.private,
            TargetPolicy::Public => &self.public,
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, pool.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => {
                Err(ImageError::Connect { host: authority(url), source: innermost(&error) })
            }
            Ok(Err(error)) => Err(ImageError::Transfer { url: shown(url), source: innermost(&error) }),
            Err(_) => {
                Err(ImageError::Transfer { url: shown(url), source: timed_out("no response within 60 s") })
            }
        }
    }

    /// Gets `url`, which belongs to the registry, and follows redirects. Only the registry itself receives
    /// `authorization`; redirects from HTTPS to HTTP are refused.
    pub(super) async fn get(
        &self,
        url: &Uri,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
        elsewhere: TargetPolicy,
    ) -> Result<HttpResponse, ImageError> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let same_origin = origin(&at) == origin(url);
            let mut headers = headers.clone();
            if let Some(value) = authorization.filter(|_| same_origin) {
                headers.insert(AUTHORIZATION, value.clone());
            }
            let reach = if same_origin { TargetPolicy::Named } else { elsewhere };
            let response = self.send(Method::GET, &at, &headers, Bytes::new(), reach).await?;
            if !is_redirect(response.status()) {
                return Ok(HttpResponse { response, same_origin, url: at });
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            at = follow(&at, location.unwrap_or_default())?;
        }
        let reason = "there are too many redirects";
        Err(ImageError::Redirect { from: shown(url), to: shown(&at), reason })
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    )
}

/// The target of a redirect.
fn follow(from: &Uri, location: &str) -> Result<Uri, ImageError> {
    let refused = |reason| ImageError::Redirect { from: shown(from), to: without_secrets(location), reason };
    let location = location.split('#').next().unwrap_or_default();
    let absolute = match location {
        _ if location.starts_with("http://") || location.starts_with("https://") => location.to_owned(),
        _ if location.starts_with("//") => format!("{}:{location}", from.scheme_str().unwrap_or("https")),
        _ if location.starts_with('/') => {
            let scheme = from.scheme_str().unwrap_or("https");
            format!("{scheme}://{}{location}", authority(from))
        }
        _ => return Err(refused("it is not a valid URL")),
    };
    let to: Uri = absolute.parse().map_err(|_| refused("it is not a valid URL"))?;
    check_target(from, &to).map_err(refused)?;
    Ok(to)
}

/// Whether a redirect from `from` to `to` is allowed: encrypted, and to a plain host name.
pub(super) fn check_target(from: &Uri, to: &Uri) -> Result<(), &'static str> {
    if to.authority().is_none_or(|authority| authority.as_str().contains('@')) {
        return Err("it contains a user name");
    }
    match (from.scheme_str(), to.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) => Ok(()),
        (_, _) => Err("it is not encrypted"),
    }
}

/// Scheme, host and port, as in the same-origin policy of browsers.
fn origin(url: &Uri) -> Option<(Option<&str>, String, u16)> {
    let (host, port) = host_and_port(url)?;
    Some((url.scheme_str(), host.to_ascii_lowercase(), port))
}

/// The whole body of a small document.
pub(super) async fn document(body: Incoming, url: &Uri, limit: u64) -> Result<Bytes, ImageError> {
    let reading = async {
        let mut bytes = BytesMut::new();
        let mut body = body;
        while let Some(piece) = next(&mut body, url).await? {
            if (bytes.len() + piece.len()) as u64 > limit {
                return Err(ImageError::TooLarge { what: shown(url), limit, unit: "bytes" });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    };
    match tokio::time::timeout(DOCUMENT_TIMEOUT, reading).await {
        Ok(result) => result,
        Err(_) => Err(ImageError::Transfer { url: shown(url), source: timed_out("incomplete after 180 s") }),
    }
}

/// The next piece of a body.
pub(super) async fn next(body: &mut Incoming, url: &Uri) -> Result<Option<Bytes>, ImageError> {
    loop {
        match tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await {
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers are ignored.
                Err(_) => {}
            },
            Ok(Some(Err(error))) => {
                return Err(ImageError::Transfer { url: shown(url), source: innermost(&error) });
            }
            Ok(None) => return Ok(None),
            Err(_) => {
                return Err(ImageError::Transfer {
                    url: shown(url),
                    source: timed_out("no data received for 60 s"),
                });
            }
        }
    }
}

/// The error for an unexpected response, with the registry's own message.
pub(super) async fn status_error(answer: HttpResponse) -> ImageError {
    let status = answer.response.status().as_u16();
    let body = document(answer.response.into_body(), &answer.url, ERROR_BYTES_MAX).await.unwrap_or_default();
    let message = message(&body).map_or_else(String::new, |message| format!(": {message}"));
    ImageError::Status { url: shown(&answer.url), status, message }
}

/// The first message of `{"errors":[{"code":…,"message":…}]}`.
fn message(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let message = value.get("errors")?.get(0)?.get("message")?.as_str()?;
    Some(crate::error::shortened(message))
}

/// A foreign URL for a message: without query, and without user name and password.
pub(super) fn without_secrets(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    crate::error::shortened(address.rsplit_once('@').map_or(address, |(_, rest)| rest))
}

/// A URL for a message: without its query, in which stores put signatures.
pub(super) fn shown(url: &Uri) -> String {
    crate::error::shortened(&format!(
        "{}://{}{}",
        url.scheme_str().unwrap_or_default(),
        authority(url),
        url.path()
    ))
}

fn authority(url: &Uri) -> String {
    url.authority().map_or_else(String::new, |authority| {
        let text = authority.as_str();
        text.rsplit_once('@').map_or(text, |(_, host)| host).to_owned()
    })
}

fn timed_out(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The innermost cause, which is the most specific.
fn innermost(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let kind = deepest.downcast_ref::<io::Error>().map_or(io::ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, deepest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, location: &str, expected: Option<&str>) {
        let found = follow(&from.parse().unwrap(), location).ok().map(|uri| uri.to_string());
        assert_eq!(found.as_deref(), expected, "{location}");
    }

    #[test]
    fn redirects_must_be_encrypted_and_contain_no_user() {
        let https = "https://r.example/v2/a/blobs/x";
        check(https, "https://store.example/b?sig=1", Some("https://store.example/b?sig=1"));
        check(https, "/b?c", Some("https://r.example/b?c"));
        check(https, "//store.example/b", Some("https://store.example/b"));
        check(https, "https://store.example/b#part", Some("https://store.example/b"));
        for refused in [
            "http://store.example/b",
            "ftp://x/y",
            "",
            "b",
            "https://u:p@x/y",
            "file:///etc/passwd",
            "https://",
        ] {
            check(https, refused, None);
        }
        check("http://127.0.0.1:5000/v2/", "http://127.0.0.1:5001/b", Some("http://127.0.0.1:5001/b"));
    }

    #[test]
    fn messages_do_not_contain_signatures_of_urls() {
        let url: Uri = "https://user:pw@store.example/blob?X-Amz-Signature=secret".parse().unwrap();
        assert_eq!(shown(&url), "https://store.example/blob");
    }

    #[test]
    fn origins_differ_by_scheme_host_or_port() {
        let same = |a: &str, b: &str| origin(&a.parse().unwrap()) == origin(&b.parse().unwrap());
        assert!(same("https://a.example/x", "https://A.example:443/y"));
        assert!(!same("https://a.example", "https://a.example:444"));
        assert!(!same("https://a.example", "http://a.example:443"));
        assert!(!same("https://a.example", "https://b.a.example"));
    }
}
