//! `POST /mcp`: the interface for models, by the Model Context Protocol. It is served on the daemon's address, and on that
//! of a sandbox that an E2B client created with the `mcp` option.
//!
//! ```text
//!   client ─► origin, key ─► burrow-mcp ── burrow-client, with the caller's key ─► pipe ─► the routes under `/v1`
//!                                              └─ its requests carry a `Fence`: the sandbox and its forks, and no other
//! ```
//!
//! Each call of a tool becomes requests to the daemon's own routes, including all their middleware. So keys, scopes,
//! tenants, limits and the audit log apply as for any other client, and no decision is made here. The requests use a pipe
//! within the process instead of the network: no address, certificate or proxy can be misconfigured. The routes behind the
//! pipe do not include this one.
//!
//! No state is kept: see `burrow_mcp::answer`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Query, Request, State};
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_client::{ApiKey, Client, ClientError, ClientOptions};
use burrow_engine::EngineError;
use burrow_mcp::{Fence, SandboxSelection, ServerOptions, ToolSet, UnknownTool};
use burrow_model::SandboxId;
use http::header::ORIGIN;
use http::request::Parts;
use serde::Deserialize;

use burrow_e2b::mcp::{self, MCP_PATH};
use burrow_gateway::e2b::reach::{self, CallEffect};
use burrow_gateway::{authority, is_local};
use burrow_http::app::App;
use burrow_http::audit::Trace;
use burrow_http::auth::Reader;
use burrow_http::error::ApiError;
use burrow_http::request_target::Addressee;
use burrow_http::routes::{Routes, post};
use burrow_http::within::{RecognisedClient, Sender};
use burrow_http::{auth, within};

/// The header that names the sandbox, as an alternative to the address.
const SANDBOX: &str = "x-burrow-sandbox";

#[derive(Clone, Debug)]
pub(super) struct McpState {
    app: Arc<App>,
    /// The routes under `/v1`.
    api: Router,
}

/// The query parameters of the address, which name the sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxQuery {
    sandbox: Option<String>,
    image: Option<String>,
    /// Removes the fence around the sandbox and its forks.
    #[serde(default)]
    all: bool,
    /// `core`, `all`, or names.
    tools: Option<String>,
}

/// The route, with the API's routes behind it.
pub(super) fn router(app: Arc<App>, api: Router) -> Router<Arc<App>> {
    routes()
        .into_router()
        .method_not_allowed_fallback(burrow_http::middleware::method_not_allowed)
        .with_state(McpState { app, api })
}

pub(super) fn routes() -> Routes<McpState> {
    Routes::new().route("/mcp", post(serve))
}

/// The same for the MCP address of a sandbox, where the token of that sandbox gives access to that sandbox only.
pub(super) fn sandbox_router(app: Arc<App>, api: Router) -> Router<Arc<App>> {
    sandbox_routes()
        .into_router()
        .method_not_allowed_fallback(burrow_http::middleware::method_not_allowed)
        .with_state(McpState { app, api })
}

pub(super) fn sandbox_routes() -> Routes<McpState> {
    Routes::new().route(MCP_PATH, post(serve_sandbox))
}

async fn serve(State(state): State<McpState>, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    check_origin(&parts, state.app.config.gateway.domain())?;
    let caller = Reader::from_request_parts(&mut parts, &state.app).await?;
    let (wanted, all, tools) = wanted(&parts, &caller)?;
    // Addresses of ports are built from the host name of the request, so that they work for the client.
    let host = authority(&parts.uri, &parts.headers).unwrap_or("localhost").to_owned();
    let key = auth::secret(&parts).map(ApiKey::new);
    let client = state.client(&host, key.clone(), Sender::default())?;
    let fence = if all { Fence::None } else { state.fence(host, key) };
    state.answer(client, ServerOptions { wanted, fence, tools }, Request::from_parts(parts, body)).await
}

/// The host name identifies the sandbox; no header or query can name another.
async fn serve_sandbox(State(state): State<McpState>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    check_origin(&parts, state.app.config.gateway.domain())?;
    let addressee = parts.extensions.get::<Addressee>().cloned().and_then(|Addressee(text)| text);
    let sandbox = addressee.and_then(|text| text.parse::<SandboxId>().ok()).ok_or_else(no_token)?;
    let token = auth::bearer(&parts).ok_or_else(no_token)?;
    let tenant = mcp::opened(&state.app, &sandbox, token).await?.ok_or_else(no_token)?;
    if let Some(trace) = parts.extensions.get::<Trace>() {
        trace.asked_inside(&tenant, &sandbox, true);
    }
    if !reach::is_reached(&state.app, &tenant, &sandbox, CallEffect::Use).await {
        return Ok(reach::gone(sandbox.as_str()));
    }
    let wanted = SandboxSelection { sandbox: Some(sandbox.to_string()), image: None };
    // Addresses of other ports of the sandbox are siblings of this address, not below it.
    let host = authority(&parts.uri, &parts.headers).unwrap_or("localhost");
    let host = host.split_once('.').map_or(host, |(_, domain)| domain);
    let recognised = RecognisedClient::Sandbox { tenant, sandbox, by: "mcp".into() };
    // The token reaches no other sandbox anyway.
    let options = ServerOptions { wanted, fence: Fence::None, tools: ToolSet::all() };
    let client = state.client(host, None, Sender { recognised: Some(recognised), fence: None })?;
    state.answer(client, options, Request::from_parts(parts, body)).await
}

fn no_token() -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, "the MCP address of a sandbox needs the token of that sandbox")
        .hint("send `Authorization: Bearer` with what the client's `get_mcp_token()` returns")
}

impl McpState {
    /// A client of the daemon's own routes.
    fn client(&self, host: &str, key: Option<ApiKey>, sender: Sender) -> Result<Client, ApiError> {
        self.connect(host, key, sender)
            .map_err(|error| ApiError::invalid(format!("the `Host` header is invalid: {error}")))
    }

    /// The same, restricted to the sandbox of the connection and its forks once that is known.
    fn fence(&self, host: String, key: Option<ApiKey>) -> Fence {
        let state = self.clone();
        Fence::Restrict(Arc::new(move |sandbox| {
            // The daemon has just returned this id. An id in another form would be a mistake, which must open nothing.
            let id = sandbox.parse().map_err(|_| ClientError::BadKey)?;
            let sender = Sender { recognised: None, fence: Some(within::Fence(id)) };
            state.connect(&host, key.clone(), sender)
        }))
    }

    fn connect(&self, host: &str, key: Option<ApiKey>, sender: Sender) -> Result<Client, ClientError> {
        let options = ClientOptions { url: format!("http://{host}"), key, ca_file: None };
        within::client(self.app.clone(), self.api.clone(), options, sender)
    }

    async fn answer(
        &self,
        client: Client,
        options: ServerOptions,
        request: Request,
    ) -> Result<Response, ApiError> {
        let answer = burrow_mcp::answer(client, options, request);
        // A command that is being waited for continues in its sandbox; the daemon does not wait for it to end.
        let answer = self.app.draining.run_until_cancelled(answer).await.ok_or(EngineError::ShuttingDown)?;
        Ok(answer.map(Body::new))
    }
}

/// The sandbox that the address or a header names; otherwise the one that the key is bound to. Whether the tools reach all
/// sandboxes of the key, and which are offered.
fn wanted(parts: &Parts, caller: &Reader) -> Result<(SandboxSelection, bool, ToolSet), ApiError> {
    let query = Query::<SandboxQuery>::try_from_uri(&parts.uri)
        .map_err(|error| ApiError::invalid(error.body_text()).hint(SANDBOX_HINT))?;
    let Query(SandboxQuery { sandbox, image, all, tools }) = query;
    let header = parts.headers.get(SANDBOX).and_then(|name| name.to_str().ok()).map(str::to_owned);
    let bound = || caller.bound_to().map(ToString::to_string);
    let Some(sandbox) = sandbox.or(header).or_else(bound) else {
        return Err(ApiError::invalid("no sandbox is named").hint(SANDBOX_HINT));
    };
    auth::check_reference(&sandbox)?;
    let tools = tools.as_deref().map(str::parse).transpose();
    let tools =
        tools.map_err(|error: UnknownTool| ApiError::invalid(format!("`tools` is invalid: {error}")))?;
    Ok((SandboxSelection { sandbox: Some(sandbox), image }, all, tools.unwrap_or_default()))
}

const SANDBOX_HINT: &str = "name the sandbox in the address, as in `/mcp?sandbox=my-agent`, or in the header \
                          `X-Burrow-Sandbox`; it is created on first use, from `image` if that is given";

/// Rejects requests of web pages. Any page could make its own name resolve to this machine (DNS rebinding), and pages of
/// sandboxes are served by this daemon. Browsers reveal both cases in `Origin`, which other clients do not send.
fn check_origin(parts: &Parts, domain: Option<&str>) -> Result<(), ApiError> {
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let from = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    let to = authority(&parts.uri, &parts.headers);
    let ours = |host: &str| {
        is_local(host) || domain.is_some_and(|domain| host_of(host).eq_ignore_ascii_case(domain))
    };
    if from.is_some_and(ours) && to.is_some_and(ours) {
        return Ok(());
    }
    let message = "web pages of other origins cannot use this interface";
    Err(ApiError::new(ErrorCode::Forbidden, message)
        .hint("only pages of `localhost` and of `gateway.domain` are allowed"))
}

fn host_of(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(origin: Option<&str>, host: &str, good: bool) {
        let mut request = Request::post("/mcp").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(check_origin(&parts, Some("boxes.example.com")).is_ok(), good, "{origin:?} to {host}");
    }

    #[test]
    fn pages_of_other_origins_are_rejected_and_programs_are_not() {
        for host in ["127.0.0.1:7700", "burrow.example.com", "10.0.0.1:7700"] {
            check(None, host, true);
        }
        check(Some("http://localhost:6274"), "localhost:7700", true);
        check(Some("http://127.0.0.1:7700"), "127.0.0.1:7700", true);
        check(Some("https://boxes.example.com"), "boxes.example.com:443", true);
        for origin in ["http://evil.example", "http://localhost.evil.example", "null", "", "http://", "evil"]
        {
            check(Some(origin), "127.0.0.1:7700", false);
        }
        // A name that an attacker makes resolve to this machine.
        check(Some("http://evil.example:7700"), "evil.example:7700", false);
        check(Some("http://localhost"), "evil.example:7700", false);
        // Programs in a sandbox have an origin below the daemon's.
        check(Some("http://8080-web.localhost:7700"), "localhost:7700", false);
        check(Some("https://8080-web.boxes.example.com"), "boxes.example.com", false);
    }
}
