//! One HTTP request of an MCP client, answered.
//!
//! Nothing is kept between requests: which sandbox is meant comes with each, and all that lasts is in the sandbox. So
//! there are no sessions to bound, to lose when the daemon restarts, or to steal. Clients that speak the protocol's
//! earlier versions are answered without a session too, as those versions allow.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use burrow_client::Client;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use hyper::body::Body;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::place::Wanted;
use crate::server::Server;

/// Of one message: the text of a file to write, mostly.
const BODY_BYTES_MAX: usize = 8 << 20;

/// A proxy in between sees that somebody still works.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers one request. Whether its caller may ask, and which host and origin it may name, was settled before.
pub async fn answer<B>(
    client: Client,
    wanted: Wanted,
    request: Request<B>,
) -> Response<BoxBody<Bytes, Infallible>>
where
    B: Body + Send + 'static,
    B::Error: Display,
{
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let server = Server::new(client, wanted);
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    service.handle(request).await
}
