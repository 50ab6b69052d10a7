//! `POST /mcp`: what models reach, by the Model Context Protocol.
//!
//! ```text
//!   client ─► origin, key ─► burrow-mcp ── burrow-client, with the caller's key ─► pipe ─► the routes under `/v1`
//! ```
//!
//! Each tool's call becomes requests to the daemon's own routes, through all that stands around them: so keys, scopes,
//! tenants, bounds and the audit log are the same as for everybody, and nothing here decides anything. They go through a
//! pipe within the process rather than the network: no address, certificate or proxy in between can be wrong. The routes
//! behind the pipe do not have this one among them.
//!
//! No state is kept: see `burrow_mcp::answer`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Query, Request, State};
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_client::{ApiKey, Client, ClientOptions};
use burrow_engine::EngineError;
use burrow_mcp::Wanted;
use http::header::ORIGIN;
use http::request::Parts;
use serde::Deserialize;

use super::App;
use super::auth::{self, Reader};
use super::error::ApiError;
use super::routes::{Routes, post};
use super::within;
use crate::gateway::{authority, is_local};

/// Names the sandbox where the address cannot.
const SANDBOX: &str = "x-burrow-sandbox";

#[derive(Clone, Debug)]
pub(super) struct Surface {
    app: Arc<App>,
    /// What a script could ask.
    api: Router,
}

/// Which sandbox, in the address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    sandbox: Option<String>,
    image: Option<String>,
}

/// The one route, with the routes behind it.
pub(super) fn router(app: Arc<App>, api: Router) -> Router<Arc<App>> {
    routes()
        .into_router()
        .method_not_allowed_fallback(super::method_not_allowed)
        .with_state(Surface { app, api })
}

pub(super) fn routes() -> Routes<Surface> {
    Routes::new().route("/mcp", post(serve))
}

async fn serve(State(surface): State<Surface>, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    check_origin(&parts, surface.app.config.gateway.domain())?;
    let caller = Reader::from_request_parts(&mut parts, &surface.app).await?;
    let wanted = wanted(&parts, &caller)?;
    let client = surface.client(&parts)?;
    let answer = burrow_mcp::answer(client, wanted, Request::from_parts(parts, body));
    // A command that is waited for goes on in its sandbox; the daemon does not wait for it to end.
    let answer = surface.app.draining.run_until_cancelled(answer).await.ok_or(EngineError::ShuttingDown)?;
    Ok(answer.map(Body::new))
}

impl Surface {
    /// A client of our own routes, with the caller's key.
    fn client(&self, parts: &Parts) -> Result<Client, ApiError> {
        // Addresses of ports are told as they suit whoever asks, hence by the host that was asked.
        let host = authority(&parts.uri, &parts.headers).unwrap_or("localhost");
        let options = ClientOptions {
            url: format!("http://{host}"),
            key: auth::secret(parts).map(ApiKey::new),
            ca_file: None,
        };
        within::client(self.app.clone(), self.api.clone(), options, None)
            .map_err(|error| ApiError::invalid(format!("the host is none: {error}")))
    }
}

/// The sandbox that the address names, or a header; else the one that the key is bound to.
fn wanted(parts: &Parts, caller: &Reader) -> Result<Wanted, ApiError> {
    let place = Query::<Place>::try_from_uri(&parts.uri)
        .map_err(|error| ApiError::invalid(error.body_text()).hint(PLACE_HINT))?;
    let Query(Place { sandbox, image }) = place;
    let header = parts.headers.get(SANDBOX).and_then(|name| name.to_str().ok()).map(str::to_owned);
    let bound = || caller.bound_to().map(ToString::to_string);
    let Some(sandbox) = sandbox.or(header).or_else(bound) else {
        return Err(ApiError::invalid("no sandbox is named").hint(PLACE_HINT));
    };
    auth::check_reference(&sandbox)?;
    Ok(Wanted { sandbox: Some(sandbox), image })
}

const PLACE_HINT: &str = "name the sandbox in the address, as in `/mcp?sandbox=my-agent`, or in the header \
                          `X-Burrow-Sandbox`; it is made on first use, from `image` if that is given";

/// Refuses what a web page sends. A page of anybody's could have its own name resolve to this machine (DNS rebinding), and
/// a sandbox's page is served by this very daemon; browsers tell of both in `Origin`, which other clients do not send.
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
    let message = "this is not for web pages of other origins";
    Err(ApiError::new(ErrorCode::Forbidden, message)
        .hint("pages of `localhost` and of `gateway.domain` are let in"))
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
    fn pages_of_other_origins_are_refused_and_programs_are_not() {
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
        // A name that somebody makes resolve to us.
        check(Some("http://evil.example:7700"), "evil.example:7700", false);
        check(Some("http://localhost"), "evil.example:7700", false);
        // What runs in a sandbox has an origin below ours.
        check(Some("http://8080-web.localhost:7700"), "localhost:7700", false);
        check(Some("https://8080-web.boxes.example.com"), "boxes.example.com", false);
    }
}
