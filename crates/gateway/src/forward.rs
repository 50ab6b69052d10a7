//! Forwards one request into a sandbox, and its response back. Bodies are streamed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_engine::EngineError;
use burrow_model::State;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};
use hyper::body::{Body as _, Frame, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::address::{Form, Target};
use super::admitted::{AdmittedBy, AdmittedRequest};
use super::gateway::Gateway;
use super::headers::Origin;
use super::kept_connections::DrivenBody;
use super::slots::{Slot, SlottedBody};
use super::upstream::{PortKey, UpstreamError};
use super::{address, headers};
use burrow_http::activity::InFlight;
use burrow_http::app::App;
use burrow_http::error::ApiError;
use burrow_http::request_target::PeerAddress;

/// The time without a response after which a sandbox is checked again, because it may have been paused after the first
/// check.
const SECOND_LOOK: Duration = Duration::from_millis(250);

/// Both sides have agreed to leave HTTP, so the switch is fast.
const UPGRADE_WAIT: Duration = Duration::from_secs(10);

/// Buffer per direction of a connection that has left HTTP.
const COPY_BYTES: usize = 16 << 10;

/// Maximum number of listening ports that an error lists.
const NAMED_MAX: usize = 10;

pub(super) async fn forward(
    app: &Arc<App>,
    target: &Target,
    admitted: &AdmittedRequest,
    mut request: Request<Body>,
    slot: Slot,
) -> Result<Response, ApiError> {
    let in_flight = request.extensions_mut().remove::<InFlight>();
    let outgoing = OutgoingRequest::prepare(app, target, request)?;
    let OutgoingRequest { request, progress, protocol, tls, client } = outgoing;
    let sent = send(app, target, admitted, request, (protocol, tls), &progress).await;
    let mut response = match sent {
        Ok(response) => response,
        Err(error) => return Err(explain(app, target, admitted, error).await),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return switch(app, target, response, client, slot);
    }
    headers::outward(response.headers_mut(), &target.form, None);
    // The protocol version of the client's connection is independent of that of the server.
    *response.version_mut() = Version::default();
    let end = is_endless(&response).then(|| Box::pin(app.draining.clone().cancelled_owned()));
    Ok(response.map(|body| SlottedBody { body, end, _slot: slot, _in_flight: in_flight }.into_body()))
}

/// Why a request of the daemon itself got no response from inside.
#[derive(Debug)]
pub enum PortRequestError {
    /// No process listens there.
    Closed,
    Failed(ApiError),
}

impl From<PortRequestError> for ApiError {
    fn from(unanswered: PortRequestError) -> Self {
        match unanswered {
            PortRequestError::Closed => Self::new(ErrorCode::PortClosed, "the server inside has just ended"),
            PortRequestError::Failed(error) => error,
        }
    }
}

/// Sends a request of the daemon itself: neither the request nor the response is rewritten.
pub(super) async fn ask(
    app: &App,
    target: &Target,
    admitted: &AdmittedRequest,
    request: Request<Body>,
) -> Result<Response, PortRequestError> {
    let generation = app.engine.running(&admitted.tenant, &admitted.sandbox);
    match send(app, target, admitted, request, (Protocol::Http1, false), &Progress::new()).await {
        Ok(response) => Ok(response.map(Body::new)),
        Err(SendError::Upstream(UpstreamError::Connect(error)))
            if matches!(*error, EngineError::PortClosed { .. }) =>
        {
            Err(PortRequestError::Closed)
        }
        // A reused connection to a server that has ended. It sends the head of a response at once, so it had not begun.
        Err(SendError::Upstream(UpstreamError::Broken(_)))
            if has_ended(app, target, admitted, generation).await =>
        {
            Err(PortRequestError::Closed)
        }
        Err(error) => Err(PortRequestError::Failed(explain(app, target, admitted, error).await)),
    }
}

/// Whether no process listens on the port any more, in the same run of the sandbox. A sandbox that sleeps by now is not woken.
async fn has_ended(app: &App, target: &Target, admitted: &AdmittedRequest, generation: Option<u64>) -> bool {
    let (tenant, sandbox) = (&admitted.tenant, &admitted.sandbox);
    if generation.is_none() || app.engine.running(tenant, sandbox) != generation {
        return false;
    }
    matches!(app.engine.is_listening(tenant, sandbox, target.port).await, Ok(false))
}

/// Server-sent events continue until one side disconnects, and their clients know how to resume. Other responses
/// without a length may be incomplete, and must not pass as complete.
fn is_endless<B>(response: &http::Response<B>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

/// The protocol of the server inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    /// gRPC: trailers, and streams in both directions at the same time.
    Http2,
}

/// The host name that the server inside sees instead of the requested one.
#[derive(Clone, Debug)]
pub(super) struct MaskedHost(pub(super) String);

/// Marks a request to a server inside that speaks HTTPS.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpsServer;

struct OutgoingRequest {
    request: Request<Body>,
    progress: Arc<Progress>,
    protocol: Protocol,
    /// Whether the server speaks HTTPS.
    tls: bool,
    /// The client's side of an upgrade, if it requested one.
    client: Option<OnUpgrade>,
}

impl OutgoingRequest {
    fn prepare(app: &App, target: &Target, mut request: Request<Body>) -> Result<Self, ApiError> {
        let wants_upgrade =
            request.version() == Version::HTTP_11 && headers::upgrade(request.headers()).is_some();
        let client = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
        let (mut parts, body) = request.into_parts();
        let grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
        let protocol =
            match parts.version == Version::HTTP_2 && parts.headers.get(CONTENT_TYPE).is_some_and(grpc) {
                true => Protocol::Http2,
                false => Protocol::Http1,
            };
        let host = address::authority(&parts.uri, &parts.headers).unwrap_or_default().to_owned();
        let peer = parts.extensions.get::<PeerAddress>().map(|peer| peer.0);
        let masked = parts.extensions.remove::<MaskedHost>();
        let tls = parts.extensions.get::<HttpsServer>().is_some();
        let shown = masked.as_ref().map_or(host.as_str(), |MaskedHost(masked)| masked);
        let origin = Origin { peer, host: &host, shown, https: app.config.gateway.https };
        headers::inward(&mut parts.headers, &origin, &target.form);
        parts.uri = inside(&parts.uri, &target.form, protocol, shown)?;
        if protocol == Protocol::Http2 {
            parts.headers.remove(http::header::HOST);
        }
        parts.extensions = http::Extensions::new();
        let progress = Arc::new(Progress::new());
        // An empty body needs no progress tracking, and keeps its end-of-stream state for the connection.
        let body = match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(TrackedBody { body, progress: progress.clone() }),
        };
        Ok(Self { request: Request::from_parts(parts, body), progress, protocol, tls, client })
    }
}

/// The address for the server inside.
fn inside(uri: &Uri, form: &Form, protocol: Protocol, host: &str) -> Result<Uri, ApiError> {
    let path = match form {
        Form::Host => uri.path(),
        Form::Path { prefix } => uri.path().strip_prefix(prefix.as_str()).unwrap_or_default(),
    };
    // `OPTIONS *` is about the server itself, which the connection pool cannot express.
    let path = if path.starts_with('/') { path } else { "/" };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let text = match protocol {
        Protocol::Http1 => format!("{path}{query}"),
        Protocol::Http2 => format!("http://{host}{path}{query}"),
    };
    // A path that begins with two slashes would be parsed as a host.
    let bad = |_| ApiError::invalid("the address of the request cannot be forwarded");
    match protocol {
        Protocol::Http1 => {
            let place = text.parse::<http::uri::PathAndQuery>().map_err(bad)?;
            Ok(Uri::from(place))
        }
        Protocol::Http2 => text.parse().map_err(bad),
    }
}

enum SendError {
    Wake(EngineError),
    Upstream(UpstreamError),
    TimedOut(Duration),
}

async fn send(
    app: &App,
    target: &Target,
    admitted: &AdmittedRequest,
    request: Request<Body>,
    (protocol, tls): (Protocol, bool),
    progress: &Progress,
) -> Result<http::Response<DrivenBody>, SendError> {
    let (tenant, sandbox) = (&admitted.tenant, &admitted.sandbox);
    let generation = match app.engine.running(tenant, sandbox) {
        Some(generation) => generation,
        None => app.engine.guest(tenant, sandbox).await.map_err(SendError::Wake)?.sandbox().generation,
    };
    let place =
        PortKey { tenant: tenant.clone(), sandbox: sandbox.clone(), port: target.port, generation, tls };
    let upstreams = &app.part::<Gateway>().upstreams;
    // A server may close a kept connection at the moment it is used again. Requests without side effects can be
    // repeated.
    let again = repeatable(&request);
    let first = async {
        match protocol {
            Protocol::Http1 => upstreams.send_http1(&place, request).await,
            Protocol::Http2 => upstreams.send_http2(&place, request).await,
        }
    };
    let answer = async {
        match (first.await, again) {
            // Not for a sandbox that was put to sleep in the meantime: that was intended.
            (Err(UpstreamError::Broken(_)), Some(again))
                if protocol == Protocol::Http1 && app.engine.running(tenant, sandbox).is_some() =>
            {
                upstreams.send_http1(&place, again).await
            }
            (answer, _) => answer,
        }
    };
    let mut answer = std::pin::pin!(answer);
    if let Ok(answer) = tokio::time::timeout(SECOND_LOOK, answer.as_mut()).await {
        return answer.map_err(SendError::Upstream);
    }
    if app.engine.running(tenant, sandbox) != Some(generation) {
        // It was paused between our check and our request, and would never respond.
        let _ = app.engine.guest_with_processes(tenant, sandbox).await;
    }
    let patience = app.config.gateway.answer;
    loop {
        let idle = progress.idle();
        if idle >= patience {
            return Err(SendError::TimedOut(patience));
        }
        if let Ok(answer) = tokio::time::timeout(patience - idle, answer.as_mut()).await {
            return answer.map_err(SendError::Upstream);
        }
    }
}

/// A copy of a request that has no body and no side effects.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let harmless = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !harmless || !request.body().is_end_stream() || request.headers().contains_key(UPGRADE) {
        return None;
    }
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Explains why there is no response from inside, with a hint.
async fn explain(app: &App, target: &Target, admitted: &AdmittedRequest, error: SendError) -> ApiError {
    let port = target.port;
    match error {
        SendError::Upstream(UpstreamError::Connect(error)) => {
            let closed = matches!(*error, EngineError::PortClosed { .. });
            let error = ApiError::from(*error);
            // Other listening ports are listed only for clients that may list ports.
            if closed && admitted.by == AdmittedBy::Key {
                error.hint(listening(app, admitted).await)
            } else {
                error
            }
        }
        SendError::Wake(error) => error.into(),
        SendError::Upstream(UpstreamError::Broken(_)) if is_asleep(app, admitted).await => {
            EngineError::Asleep { id: admitted.sandbox.clone() }.into()
        }
        SendError::Upstream(UpstreamError::Broken(source)) => {
            tracing::debug!(sandbox = %admitted.sandbox, port, error = source.as_ref(), "no response from the server inside");
            let message = format!(
                "the server on port {port} of sandbox `{}` did not send an HTTP response",
                admitted.sandbox
            );
            ApiError::new(ErrorCode::BadGateway, message)
                .hint("it closed the connection, or uses another protocol; `burrow port-forward` supports any protocol")
        }
        SendError::TimedOut(patience) => {
            let message = format!(
                "port {port} of sandbox `{}` did not begin to respond within {} s",
                admitted.sandbox,
                patience.as_secs()
            );
            ApiError::new(ErrorCode::GatewayTimeout, message)
                .hint("change the limit with `gateway.answer_seconds` in the configuration")
        }
    }
}

async fn is_asleep(app: &App, admitted: &AdmittedRequest) -> bool {
    let row = app.engine.get(&admitted.tenant, &admitted.sandbox).await;
    row.is_ok_and(|row| matches!(row.state, State::Hibernating | State::Hibernated))
}

async fn listening(app: &App, admitted: &AdmittedRequest) -> String {
    let ports = app.engine.ports(&admitted.tenant, &admitted.sandbox).await;
    let ports = ports.map(|ports| ports.listening).unwrap_or_default();
    if ports.is_empty() {
        return "no process listens on any port of this sandbox; start a server in it first".to_owned();
    }
    let shown = ports.iter().take(NAMED_MAX).map(|port| match &port.process {
        Some(process) => format!("{} (`{}`)", port.port, process.name),
        None => port.port.to_string(),
    });
    format!("ports with a listening process: {}", shown.collect::<Vec<_>>().join(", "))
}

/// Both sides leave HTTP: from here on bytes are copied.
fn switch(
    app: &Arc<App>,
    target: &Target,
    mut response: http::Response<DrivenBody>,
    client: Option<OnUpgrade>,
    slot: Slot,
) -> Result<Response, ApiError> {
    let Some(client) = client else {
        let message = format!("port {} switched the protocol without a request to do so", target.port);
        return Err(ApiError::new(ErrorCode::BadGateway, message));
    };
    let server = hyper::upgrade::on(&mut response);
    let protocol = response.headers().get(UPGRADE).cloned();
    headers::outward(response.headers_mut(), &target.form, protocol);
    let (tasks, draining) = (app.tasks.clone(), app.draining.clone());
    tasks.spawn(async move {
        let _slot = slot;
        let both = async { tokio::try_join!(client, server) };
        let (client, server) = match tokio::time::timeout(UPGRADE_WAIT, both).await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => return tracing::debug!(%error, "a connection failed to switch protocols"),
            Err(_) => return tracing::debug!("a connection took too long to switch protocols"),
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        let copying =
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut server, COPY_BYTES, COPY_BYTES);
        // Ends when a side disconnects, or when the daemon stops.
        let _ = draining.run_until_cancelled(copying).await;
    });
    Ok(response.map(|_| Body::empty()))
}

/// When the client's body last made progress: a server that is receiving a long upload is not unresponsive.
#[derive(Debug)]
struct Progress {
    began: Instant,
    moved_ms: AtomicU64,
}

impl Progress {
    fn new() -> Self {
        Self { began: Instant::now(), moved_ms: AtomicU64::new(0) }
    }

    fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(now, Ordering::Relaxed);
    }

    fn idle(&self) -> Duration {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(moved)
    }
}

/// A request body that records its progress.
struct TrackedBody {
    body: Body,
    progress: Arc<Progress>,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(ctx));
        self.progress.note();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, form: &Form, protocol: Protocol, expected: &str) {
        let uri: Uri = uri.parse().unwrap();
        assert_eq!(inside(&uri, form, protocol, "80-x.localhost").unwrap().to_string(), expected);
    }

    #[test]
    fn the_server_inside_sees_paths_without_the_prefix() {
        let path = Form::Path { prefix: "/p/x/80".to_owned() };
        check("/a/b?c=%20", &Form::Host, Protocol::Http1, "/a/b?c=%20");
        check("http://80-x.localhost/a", &Form::Host, Protocol::Http1, "/a");
        check("//a//b", &Form::Host, Protocol::Http1, "//a//b");
        check("/p/x/80/a?b", &path, Protocol::Http1, "/a?b");
        check("/p/x/80?b", &path, Protocol::Http1, "/?b");
        check("/p/x/80//evil/a", &path, Protocol::Http1, "//evil/a");
        check("*", &Form::Host, Protocol::Http1, "/");
        check("/svc/Method", &Form::Host, Protocol::Http2, "http://80-x.localhost/svc/Method");
    }

    #[test]
    fn only_requests_without_side_effects_are_repeated() {
        let request = |method: &str, body: &'static str| {
            repeatable(&Request::builder().method(method).uri("/").body(Body::from(body)).unwrap()).is_some()
        };
        assert!(request("GET", "") && request("HEAD", "") && request("OPTIONS", ""));
        assert!(!request("POST", "") && !request("DELETE", "") && !request("GET", "x"));
    }
}
