//! HTTP into sandboxes: `http://<port>-<sandbox>.localhost:7700/` and `/p/<sandbox>/<port>/`.
//!
//! ```text
//!   request ─► address (host or path form?) ── neither ─► the REST router
//!                 ├── port 49983, or E2B's headers ─► the envd router
//!                 ├── port 49999 ─► the code interpreter's router
//!                 │
//!                 ▼
//!              access (key, signed link, cookie, or public) ─► slots ─► forward ─► upstream: HTTP/1.1 or h2c
//!                                                                          └── 101 ─► bytes both ways
//! ```
//!
//! Stands in front of every route: a sandbox's port may serve any path, `/v1` included. Credentials that are ours are
//! taken out of a request before it goes on, whatever they were worth. Bodies are streamed; nothing here holds one.
//!
//! The host form gives every port an origin of its own. The path form shares the API's, so what comes from a sandbox
//! there is kept from acting as that origin: see [`headers`].

mod access;
mod address;
mod forward;
mod headers;
mod line;
mod link;
mod page;
mod slots;
mod token;
mod upstream;
mod uses;

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use burrow_api::ErrorCode;
use burrow_engine::Engine;
use burrow_model::{SandboxId, TenantId};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either};
use http::Method;
use tokio::sync::OnceCell;

use crate::code::CODE_PORT;
use crate::config::GatewayConfig;
use crate::e2b::ENVD_PORT;
use crate::e2b::envd::{Addressee, addressed, is_signed};
use crate::e2b::reach;
use crate::rest::App;
use crate::rest::error::ApiError;
use access::{Admitted, By, Credentials};
use address::{Addressed, Form, Target};
pub(crate) use address::{authority, is_local, is_own};
pub(crate) use link::Links;
use page::Audience;
pub(crate) use slots::Slot;
use slots::Slots;
pub(crate) use token::{Claim, Signer};
use upstream::Upstreams;
use uses::Uses;

/// Of a request's head. Beyond it no server behind us would take it.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The address a connection came from; put into every request by the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// What requests into sandboxes share.
#[derive(Debug)]
pub(crate) struct Gateway {
    slots: Slots,
    upstreams: Upstreams,
    signer: OnceCell<Signer>,
    uses: Uses,
}

impl Gateway {
    pub(crate) fn new(engine: &Engine, config: &GatewayConfig) -> Self {
        Self {
            slots: Slots::new(config.requests, config.requests_per_sandbox),
            upstreams: Upstreams::new(engine.clone()),
            signer: OnceCell::new(),
            uses: Uses::default(),
        }
    }

    /// A place among the connections into a sandbox, for those that are not HTTP.
    pub(crate) fn slot(&self, sandbox: &SandboxId) -> Result<Slot, ApiError> {
        self.slots.take(sandbox)
    }

    /// What signs and reads links.
    pub(crate) async fn signer(&self, app: &App) -> Result<&Signer, ApiError> {
        self.signer
            .get_or_try_init(|| async { Ok(Signer::new(&app.engine.catalog().port_link_secret().await?)) })
            .await
    }
}

/// The daemon's whole surface: requests that are meant for a sandbox's port, and behind them the routes.
///
/// Not a layer of the router's: a layer is part of every route, and made anew for every request.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    app: Arc<App>,
    routes: Router,
    /// What E2B's clients take for an agent inside their sandbox.
    envd: Router,
    /// And for one that runs code.
    interpreter: Router,
}

impl Front {
    pub(crate) fn new(app: Arc<App>, routes: Router, envd: Router, interpreter: Router) -> Self {
        Self { app, routes, envd, interpreter }
    }

    fn call_envd(
        &mut self,
        mut request: Request,
        sandbox: Option<String>,
    ) -> <Self as tower::Service<Request>>::Future {
        request.extensions_mut().insert(Addressee(sandbox));
        Either::Left(tower::Service::call(&mut self.envd, request))
    }

    fn call_interpreter(
        &mut self,
        mut request: Request,
        sandbox: String,
    ) -> <Self as tower::Service<Request>>::Future {
        request.extensions_mut().insert(Addressee(Some(sandbox)));
        Either::Left(tower::Service::call(&mut self.interpreter, request))
    }

    fn call_port(&self, request: Request, target: Target) -> <Self as tower::Service<Request>>::Future {
        let app = self.app.clone();
        Either::Right(Box::pin(async move { Ok(pass(&app, &target, request).await) }))
    }
}

impl tower::Service<Request> for Front {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<RouteFuture<Infallible>, BoxFuture<'static, Result<Response, Infallible>>>;

    fn poll_ready(&mut self, ctx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        tower::Service::<Request>::poll_ready(&mut self.routes, ctx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match addressed(request.headers()) {
            None => {}
            Some((sandbox, ENVD_PORT)) => return self.call_envd(request, Some(sandbox)),
            Some((sandbox, CODE_PORT)) => return self.call_interpreter(request, sandbox),
            // On the API's own origin, and so kept from acting as it.
            Some((sandbox, port)) => {
                let form = Form::Path { prefix: String::new() };
                return self.call_port(request, Target { sandbox, port, form });
            }
        }
        let authority = address::authority(request.uri(), request.headers());
        match address::addressed(authority, request.uri().path(), self.app.config.gateway.domain()) {
            Addressed::Api if is_signed(&request) => self.call_envd(request, None),
            Addressed::Api => Either::Left(self.routes.call(request)),
            Addressed::Port(Target { sandbox, port: ENVD_PORT, form: Form::Host }) => {
                self.call_envd(request, Some(sandbox))
            }
            Addressed::Port(Target { sandbox, port: CODE_PORT, form: Form::Host }) => {
                self.call_interpreter(request, sandbox)
            }
            Addressed::Malformed(reason) => {
                let error = ApiError::invalid(reason).hint(ADDRESS_HINT);
                let refusal = page::refuse(error, Audience::of(&request));
                Either::Right(Box::pin(std::future::ready(Ok(refusal))))
            }
            Addressed::Port(target) => self.call_port(request, target),
        }
    }
}

/// Passes a request into a sandbox; what goes wrong is an answer too.
async fn pass(app: &Arc<App>, target: &Target, request: Request) -> Response {
    let (began, audience, method) = (Instant::now(), Audience::of(&request), request.method().clone());
    let answered = AssertUnwindSafe(serve(app, target, request)).catch_unwind().await;
    let response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => page::refuse(error, audience),
        // The panic itself is in the log already, by the hook that `telemetry` installs.
        Err(_) => {
            let error = ApiError::new(ErrorCode::Internal, "the daemon failed at this request");
            page::refuse(error, audience)
        }
    };
    let (status, took) = (response.status().as_u16(), began.elapsed());
    app.metrics.answered(&method, "gateway", status, took);
    tracing::debug!(%method, status, sandbox = target.sandbox, port = target.port, "passed into a sandbox");
    response
}

/// Why a question of the daemon's own was not answered from inside.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Nothing listens there.
    Closed,
    Failed(ApiError),
}

impl From<Unanswered> for ApiError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Closed => Self::new(ErrorCode::PortClosed, "what was asked inside ended just now"),
            Unanswered::Failed(error) => error,
        }
    }
}

/// Asks what listens on a port of a sandbox, on the daemon's own behalf. The request goes as it is, and so does the answer.
pub(crate) async fn ask(
    app: &App,
    tenant: &TenantId,
    sandbox: &SandboxId,
    port: u16,
    request: Request,
) -> Result<Response, Unanswered> {
    let target = Target { sandbox: sandbox.to_string(), port, form: Form::Host };
    let admitted = Admitted { tenant: tenant.clone(), sandbox: sandbox.clone(), by: By::Key, actor: None };
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
        // E2B's clients tell a port that needs a token by the answer of E2B's proxy.
        Err(error)
            if error.code() == ErrorCode::Unauthorized
                && target.form == Form::Host
                && !credentials.has_own() =>
        {
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
    let slot = app.gateway.slots.take(&admitted.sandbox)?;
    // Browsers with a link or a cookie are guests of Burrow's own, and see what they asked for.
    if matches!(admitted.by, By::Key | By::Token | By::Public)
        && let Some(host) = reach::masked_host(app, &admitted.tenant, &admitted.sandbox, target.port).await
    {
        parts.extensions.insert(forward::MaskedHost(host));
    }
    let request = Request::from_parts(parts, body);
    match forward::forward(app, target, &admitted, request, slot).await {
        // As E2B's proxy says it, to those who have no key of ours.
        Err(error)
            if error.code() == ErrorCode::PortClosed
                && target.form == Form::Host
                && matches!(admitted.by, By::Token | By::Public)
                && reach::has_lease(app, &target.sandbox).await =>
        {
            Ok(reach::port_closed(&target.sandbox, target.port))
        }
        forwarded => forwarded,
    }
}

/// Refuses what could mean one thing to us and another to the server behind us.
fn check(request: &Request) -> Result<(), ApiError> {
    if request.method() == Method::CONNECT {
        return Err(ApiError::new(ErrorCode::MethodNotAllowed, "a port does not take CONNECT")
            .hint("`burrow port-forward` carries raw TCP"));
    }
    if request.headers().get_all(http::header::HOST).iter().count() > 1 {
        return Err(ApiError::invalid("the request names more than one host"));
    }
    let sizes = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    if sizes.sum::<usize>() + request.uri().path().len() > HEAD_BYTES_MAX {
        let message = format!("the head of the request is larger than {HEAD_BYTES_MAX} bytes");
        return Err(ApiError::new(ErrorCode::TooLarge, message));
    }
    Ok(())
}
