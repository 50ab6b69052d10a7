//! HTTP into sandboxes: `http://<port>-<sandbox>.localhost:7700/` and `/p/<sandbox>/<port>/`.
//!
//! ```text
//!   request ─► access (key, signed link, cookie, or public) ─► slots ─► forward ─► upstream: HTTP/1.1, h2c or TLS
//!                                                                          └── 101 ─► bytes both ways
//! ```
//!
//! The daemon decides by [`addressed`], before all routes, which requests are for a port: a sandbox's port may serve any
//! path, including `/v1`. Burrow's credentials are removed from
//! a request before it is forwarded, even if they are invalid. Bodies are streamed and never buffered.
//!
//! The host form gives every port its own origin. The path form shares the API's, so responses of a sandbox are
//! prevented from acting as that origin: see [`headers`].

mod access;
mod address;
mod admitted;
pub mod e2b;
mod forward;
mod gateway;
mod headers;
mod kept_connections;
mod link;
mod page;
mod server_stream;
mod slots;
mod upstream;
mod uses;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_model::{SandboxId, TenantId};
use futures_util::FutureExt as _;
use http::Method;
use tokio::time::Instant;

use crate::e2b::reach;
use access::Credentials;
pub use address::{Form, RequestAddress, Target, addressed};
pub use address::{authority, is_local, is_own};
use admitted::{AdmittedBy, AdmittedRequest};
use burrow_http::app::App;
use burrow_http::error::ApiError;
use burrow_http::request_target::PeerAddress;
pub use forward::PortRequestError;
pub use gateway::Gateway;
pub use link::Links;
use page::Audience;
pub use slots::Slot;

/// Maximum size of a request's head. Servers inside would reject a larger one.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The response to an address that is like one of a port, but malformed.
pub fn malformed(reason: &'static str, request: &Request) -> Response {
    page::refuse(ApiError::invalid(reason).hint(ADDRESS_HINT), Audience::of(request))
}

/// Forwards a request into a sandbox; errors become responses.
pub async fn pass(app: &Arc<App>, target: &Target, request: Request) -> Response {
    let (began, audience, method) = (Instant::now(), Audience::of(&request), request.method().clone());
    let e2b_browser = page::is_e2b_browser(request.headers());
    let answered = AssertUnwindSafe(serve(app, target, request)).catch_unwind().await;
    let response = match answered {
        Ok(Ok(response)) if e2b_browser => page::e2b_page(response),
        Ok(Ok(response)) => response,
        Ok(Err(error)) => page::refuse(error, audience),
        // The panic hook that `telemetry` installs has logged the panic.
        Err(_) => {
            let error = ApiError::new(ErrorCode::Internal, "internal error while forwarding the request");
            page::refuse(error, audience)
        }
    };
    let (status, took) = (response.status().as_u16(), began.elapsed());
    app.metrics.answered(&method, "gateway", status, took);
    tracing::debug!(%method, status, sandbox = target.sandbox, port = target.port, "forwarded into a sandbox");
    response
}

/// Sends a request of the daemon itself to a port of a sandbox. Neither the request nor the response is rewritten.
pub async fn ask(
    app: &App,
    tenant: &TenantId,
    sandbox: &SandboxId,
    port: u16,
    request: Request,
) -> Result<Response, PortRequestError> {
    let target = Target { sandbox: sandbox.to_string(), port, form: Form::Host };
    let admitted = AdmittedRequest {
        tenant: tenant.clone(),
        sandbox: sandbox.clone(),
        by: AdmittedBy::Key,
        actor: None,
    };
    forward::ask(app, &target, &admitted, request).await
}

const ADDRESS_HINT: &str = "ports are reached as `http://<port>-<sandbox>.localhost:7700/` or as \
                            `/p/<sandbox>/<port>/`; `burrow port ls` prints the addresses";

async fn serve(app: &Arc<App>, target: &Target, request: Request) -> Result<Response, ApiError> {
    check(&request)?;
    let (mut parts, body) = request.into_parts();
    let credentials = Credentials::take(&mut parts, &target.form, app.config.gateway.https);
    if access::opens_gone(app, target, &credentials).await? {
        return Ok(reach::gone(&target.sandbox));
    }
    let admitted = match access::admit(app, target, &credentials, &parts).await {
        // E2B's clients recognise a port that requires a token by the response of E2B's proxy.
        Err(error)
            if error.code() == ErrorCode::Unauthorized
                && target.form == Form::Host
                && !credentials.has_own() =>
        {
            if access::is_open_and_gone(app, target) {
                return Ok(reach::gone(&target.sandbox));
            }
            return match reach::has_lease(app, &target.sandbox).await {
                true => Ok(reach::private(&target.sandbox, credentials.has_token())),
                false => Err(error),
            };
        }
        admitted => admitted?,
    };
    let peer = parts.extensions.get::<PeerAddress>().map(|peer| peer.0);
    uses::record(app, target, &admitted, peer).await;
    if let Some(redirect) = access::remember(app, target, &admitted, &credentials, &parts) {
        return Ok(redirect);
    }
    if reach::sleeps_until_connect(app, &admitted.tenant, &admitted.sandbox).await {
        return Ok(reach::gone(admitted.sandbox.as_str()));
    }
    let slot = app.part::<Gateway>().slots.take(&admitted.sandbox)?;
    let server = reach::server_settings(app, &admitted.tenant, &admitted.sandbox, target.port).await;
    if server.https {
        parts.extensions.insert(forward::HttpsServer);
    }
    // Browsers with a link or a cookie get Burrow's own error pages.
    if matches!(admitted.by, AdmittedBy::Key | AdmittedBy::Token | AdmittedBy::Public)
        && let Some(host) = server.host
    {
        parts.extensions.insert(forward::MaskedHost(host));
    }
    let request = Request::from_parts(parts, body);
    match forward::forward(app, target, &admitted, request, slot).await {
        // Clients without a Burrow key get the response of E2B's proxy.
        Err(error)
            if error.code() == ErrorCode::PortClosed
                && target.form == Form::Host
                && matches!(admitted.by, AdmittedBy::Token | AdmittedBy::Public)
                && reach::has_lease(app, &target.sandbox).await =>
        {
            Ok(reach::port_closed(&target.sandbox, target.port))
        }
        forwarded => forwarded,
    }
}

/// Rejects requests that Burrow and the server inside could interpret differently.
fn check(request: &Request) -> Result<(), ApiError> {
    if request.method() == Method::CONNECT {
        return Err(ApiError::new(ErrorCode::MethodNotAllowed, "ports do not support CONNECT")
            .hint("use `burrow port-forward` for raw TCP"));
    }
    if request.headers().get_all(http::header::HOST).iter().count() > 1 {
        return Err(ApiError::invalid("the request contains more than one host"));
    }
    let sizes = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    if sizes.sum::<usize>() + request.uri().path().len() > HEAD_BYTES_MAX {
        let message = format!("the head of the request is larger than {HEAD_BYTES_MAX} bytes");
        return Err(ApiError::new(ErrorCode::TooLarge, message));
    }
    Ok(())
}
