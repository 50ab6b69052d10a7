//! The daemon's entry point: requests to a sandbox's port, and otherwise the routes.
//!
//! ```text
//!   request ─► address (host or path form?) ── neither ─► the REST router
//!                 ├── port 49983, or E2B's headers ─► the envd router
//!                 ├── port 49999 ─► the code interpreter's router
//!                 ├── port 50005, `/mcp`, and the sandbox was created with `mcp` ─► the router of its MCP address
//!                 └── any other port ─► the gateway
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use burrow_e2b::mcp::{self, MCP_PATH, MCP_PORT};
use burrow_gateway::{self as gateway, Form, RequestAddress, Target};
use burrow_http::app::App;
use burrow_http::request_target::{Addressee, CODE_PORT, ENVD_PORT, addressed, is_signed};
use futures_util::future::{BoxFuture, Either};
use tower::ServiceExt as _;

/// The daemon's entry point: requests to a sandbox's port, and otherwise the routes.
///
/// This is not a layer of the router: a layer becomes part of every route, and is cloned for every request.
#[derive(Clone, Debug)]
pub(crate) struct FrontService {
    app: Arc<App>,
    behind: InnerRouters,
}

/// The routers behind a [`FrontService`].
#[derive(Clone, Debug)]
pub(crate) struct InnerRouters {
    pub(crate) routes: Router,
    /// The router that answers for E2B's in-sandbox agent.
    pub(crate) envd: Router,
    /// The router that answers for E2B's code interpreter.
    pub(crate) interpreter: Router,
    /// The router that answers for E2B's MCP gateway.
    pub(crate) mcp: Router,
}

impl FrontService {
    pub(crate) fn new(app: Arc<App>, behind: InnerRouters) -> Self {
        Self { app, behind }
    }

    fn call_envd(
        &mut self,
        mut request: Request,
        sandbox: Option<String>,
    ) -> <Self as tower::Service<Request>>::Future {
        request.extensions_mut().insert(Addressee(sandbox));
        Either::Left(tower::Service::call(&mut self.behind.envd, request))
    }

    fn call_interpreter(
        &mut self,
        mut request: Request,
        sandbox: String,
    ) -> <Self as tower::Service<Request>>::Future {
        request.extensions_mut().insert(Addressee(Some(sandbox)));
        Either::Left(tower::Service::call(&mut self.behind.interpreter, request))
    }

    /// The MCP address of a sandbox; an ordinary port if Burrow does not serve it.
    fn call_mcp(&self, mut request: Request, target: Target) -> <Self as tower::Service<Request>>::Future {
        let (app, router) = (self.app.clone(), self.behind.mcp.clone());
        Either::Right(Box::pin(async move {
            if !mcp::is_served(&app, &target.sandbox).await {
                return Ok(gateway::pass(&app, &target, request).await);
            }
            request.extensions_mut().insert(Addressee(Some(target.sandbox)));
            router.oneshot(request).await
        }))
    }

    fn call_port(&self, request: Request, target: Target) -> <Self as tower::Service<Request>>::Future {
        let app = self.app.clone();
        Either::Right(Box::pin(async move { Ok(gateway::pass(&app, &target, request).await) }))
    }
}

impl tower::Service<Request> for FrontService {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<RouteFuture<Infallible>, BoxFuture<'static, Result<Response, Infallible>>>;

    fn poll_ready(&mut self, ctx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        tower::Service::<Request>::poll_ready(&mut self.behind.routes, ctx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match addressed(request.headers()) {
            None => {}
            Some((sandbox, ENVD_PORT)) => return self.call_envd(request, Some(sandbox)),
            Some((sandbox, CODE_PORT)) => return self.call_interpreter(request, sandbox),
            // This is on the API's own origin, so it must not act as that origin.
            Some((sandbox, port)) => {
                let form = Form::Path { prefix: String::new() };
                return self.call_port(request, Target { sandbox, port, form });
            }
        }
        let authority = gateway::authority(request.uri(), request.headers());
        match gateway::addressed(authority, request.uri().path(), self.app.config.gateway.domain()) {
            RequestAddress::Api if is_signed(&request) => self.call_envd(request, None),
            RequestAddress::Api => Either::Left(self.behind.routes.call(request)),
            RequestAddress::Port(Target { sandbox, port: ENVD_PORT, form: Form::Host }) => {
                self.call_envd(request, Some(sandbox))
            }
            RequestAddress::Port(Target { sandbox, port: CODE_PORT, form: Form::Host }) => {
                self.call_interpreter(request, sandbox)
            }
            RequestAddress::Port(target @ Target { port: MCP_PORT, form: Form::Host, .. })
                if request.uri().path() == MCP_PATH =>
            {
                self.call_mcp(request, target)
            }
            RequestAddress::Malformed(reason) => {
                let refusal = gateway::malformed(reason, &request);
                Either::Right(Box::pin(std::future::ready(Ok(refusal))))
            }
            RequestAddress::Port(target) => self.call_port(request, target),
        }
    }
}
