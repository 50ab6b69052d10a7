//! Middleware around every request: an id, one log line, metrics, the limit of concurrent requests, and handling of panics.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue};
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::activity::InFlight;
use crate::app::App;
use crate::error::{ApiError, Cause};
use crate::own_listener::OwnListener;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request id sent by the client is used if it is at most this long.
const REQUEST_ID_LENGTH_MAX: usize = 64;

/// Length of ids and names that are shown in log lines.
const SHOWN_LENGTH_MAX: usize = 63;

/// The id of a request, for logs and events.
#[derive(Clone, Debug)]
pub struct RequestId(pub HeaderValue);

pub async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let listener = request.extensions().get::<OwnListener>().cloned();
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or("unknown", MatchedPath::as_str);
    let id = request_id(&request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let uri = request.uri().clone();
    let (sandbox, exec) = subjects(uri.path());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let mut response = answered.unwrap_or_else(|_| {
        // The panic itself was already logged by the hook that `telemetry` installs.
        ApiError::new(ErrorCode::Internal, "an internal error occurred while processing this request")
            .into_response()
    });
    let (status, took) = (response.status(), began.elapsed());
    app.metrics.answered(&method, route, status.as_u16(), took);
    // Microsecond resolution; more digits are noise.
    let ms = took.as_micros() as f64 / 1000.0;
    let cause = response.extensions().get::<Cause>();
    let status = status.as_u16();
    span.in_scope(|| {
        match (severity(status, cause.is_some(), listener.as_ref(), app.engine.now_ms()), cause) {
            (Severity::Error { suppressed }, Some(cause)) => {
                let sandbox = listener.as_ref().map(|listener| listener.sandbox.as_str()).or(sandbox);
                tracing::error!(%method, route, status, ms, sandbox, exec, suppressed, %cause, "failed");
            }
            (Severity::Warning, Some(cause)) => {
                tracing::warn!(%method, route, status, ms, sandbox, exec, %cause, "refused");
            }
            (Severity::Debug, Some(cause)) => {
                tracing::debug!(%method, route, status, ms, %cause, "refused");
            }
            (Severity::Debug, None) => tracing::debug!(%method, route, status, ms, "answered"),
            (_, None) => tracing::info!(%method, route, status, ms, sandbox, exec, "answered"),
            (Severity::Info, Some(cause)) => {
                tracing::info!(%method, route, status, ms, sandbox, exec, %cause, "answered");
            }
        }
    });
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The level of a response's log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Error {
        /// Failures of the same sandbox that were suppressed since the last one that was logged as an error.
        suppressed: Option<u64>,
    },
    Warning,
    Info,
    Debug,
}

/// Programs in a sandbox can send any request to its own listener, as often as they like. Of those, only internal errors of
/// the daemon concern the operator, and only a limited number is logged.
fn severity(status: u16, has_cause: bool, listener: Option<&OwnListener>, now_ms: u64) -> Severity {
    match (has_cause, listener) {
        (true, None) if status == 500 => Severity::Error { suppressed: None },
        (true, Some(listener)) if status == 500 => match listener.log.take(now_ms) {
            Some(suppressed) => Severity::Error { suppressed: Some(suppressed) },
            None => Severity::Debug,
        },
        (true, None) => Severity::Warning,
        (false, None) => Severity::Info,
        (true | false, Some(_)) => Severity::Debug,
    }
}

/// Acquires a request slot, which the response holds until the last byte of its body.
pub async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    // Health and readiness must be answered even when the daemon is busy.
    if matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics") {
        return next.run(request).await;
    }
    let slots = match request.extensions().get::<OwnListener>() {
        None => app.requests.clone(),
        // A separate limit, so that no sandbox uses up the daemon's slots.
        Some(listener) => {
            if let Err(seconds) = listener.rate.take(app.engine.now_ms()) {
                return later("the sandbox sends too many requests", "send requests less often", seconds);
            }
            listener.slots.clone()
        }
    };
    let Ok(permit) = slots.try_acquire_owned() else {
        if request.extensions().get::<OwnListener>().is_some() {
            return later("the sandbox has too many concurrent requests", "wait for responses first", 1);
        }
        let hint = "try again shortly, or raise `limits.requests` in the configuration";
        return later("the daemon has too many concurrent requests", hint, 1);
    };
    let in_flight = request.extensions_mut().remove();
    let active = request.extensions().get::<OwnListener>().map(|listener| listener.active.clone());
    let active_permit = match &active {
        Some(active) => Some(active.acquire().await.expect("the semaphore is never closed")),
        None => None,
    };
    let answer = next.run(request).await;
    // The body follows, which may take long.
    drop(active_permit);
    answer.map(|body| Body::new(AdmittedBody { body, _permit: permit, _in_flight: in_flight }))
}

/// A temporary refusal.
fn later(why: &str, hint: &str, seconds: u64) -> Response {
    let mut response = ApiError::new(ErrorCode::Busy, why).hint(hint).into_response();
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

struct AdmittedBody {
    body: Body,
    _permit: OwnedSemaphorePermit,
    _in_flight: Option<InFlight>,
}

impl hyper::body::Body for AdmittedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn request_id(request: &Request) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        let good = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        (1..=REQUEST_ID_LENGTH_MAX).contains(&value.len()) && value.as_bytes().iter().all(good)
    };
    if let Some(given) = request.headers().get(REQUEST_ID).filter(plain) {
        return given.clone();
    }
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    let text = format!("{:016x}", u64::from_le_bytes(bytes));
    HeaderValue::try_from(text).expect("hexadecimal digits are a header value")
}

/// The sandbox and the exec that a path refers to, as the client wrote them.
fn subjects(path: &str) -> (Option<&str>, Option<&str>) {
    let shown = |text: &&str| {
        text.len() <= SHOWN_LENGTH_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let mut parts = path.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("v1"), Some("sandboxes")) => {
            let sandbox = parts.next().filter(shown);
            let exec = (parts.next() == Some("execs")).then(|| parts.next()).flatten().filter(shown);
            (sandbox, exec)
        }
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_names_the_sandbox_and_the_exec() {
        assert_eq!(subjects("/v1/sandboxes/web-1/execs/exe7/output"), (Some("web-1"), Some("exe7")));
        assert_eq!(subjects("/v1/sandboxes/web-1/files"), (Some("web-1"), None));
        assert_eq!(subjects("/v1/keys/key7"), (None, None));
        assert_eq!(subjects("/v1/sandboxes/%1b%5b31m"), (None, None));
    }

    #[test]
    fn a_sandbox_cannot_flood_the_log_through_its_own_listener() {
        let listener =
            OwnListener::new(burrow_model::TenantId::generate(), burrow_model::SandboxId::generate(), 0);
        let loud = |status: u16, has_cause: bool| {
            (0..1000)
                .filter(|_| severity(status, has_cause, Some(&listener), 70_000) != Severity::Debug)
                .count()
        };
        assert_eq!(loud(200, false), 0);
        assert_eq!(loud(404, false), 0);
        assert_eq!(loud(503, true), 0);
        let failures = loud(500, true);
        assert!((1..10).contains(&failures), "{failures} lines");
        // Requests with a key are logged as usual.
        assert_eq!(severity(500, true, None, 0), Severity::Error { suppressed: None });
        assert_eq!(severity(409, true, None, 0), Severity::Warning);
        assert_eq!(severity(200, false, None, 0), Severity::Info);
    }

    #[test]
    fn request_ids_of_clients_are_used_if_they_are_harmless() {
        let with = |value: &str| {
            let request = Request::builder().header("x-request-id", value).body(Body::empty()).unwrap();
            request_id(&request)
        };
        assert_eq!(with("abc-1"), "abc-1");
        assert_ne!(with("a b"), "a b");
        assert_ne!(with(&"a".repeat(65)), "a".repeat(65).as_str());
    }
}
