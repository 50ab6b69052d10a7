//! Answers one HTTP request of an MCP client.
//!
//! Nothing is kept between requests: each names its sandbox, and everything durable is in the sandbox. So there are no
//! sessions that could exceed a limit, be lost at a restart of the daemon, or be stolen. Clients that use earlier versions
//! of the protocol are answered without a session too, as those versions allow.

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

use crate::server::{Server, ServerOptions};

/// The largest message; mostly the text of a file to write.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Shows proxies between client and daemon that the connection is in use.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers one request. The caller has already checked the key, the host and the origin.
pub async fn answer<B>(
    client: Client,
    options: ServerOptions,
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
    let server = Server::new(client, options);
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    service.handle(request).await
}
