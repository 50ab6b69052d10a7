//! A client of the daemon's own routes, within the process: requests go through a pipe instead of the network, and through
//! all middleware, so that the server of another protocol can do nothing that a script could not.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use burrow_client::{Client, ClientError, ClientOptions};
use burrow_model::{KeyId, SandboxId, TenantId};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::DuplexStream;
use tower::ServiceExt as _;

use crate::app::App;

/// The capacity of the pipe: enough for a few typical responses, and for bulk transfers.
const PIPE_BYTES: usize = 256 << 10;

/// A client that another protocol has authenticated. No header can express this: only [`client`] adds it to requests.
#[derive(Clone, Debug)]
pub enum RecognisedClient {
    /// By an API key.
    Key {
        key: KeyId,
        /// The protocol, for the audit log.
        by: Arc<str>,
    },
    /// By the token of one sandbox: it has the rights of an exec key that is bound to this sandbox, and no key of its own.
    Sandbox { tenant: TenantId, sandbox: SandboxId, by: Arc<str> },
}

/// Restricts the caller of a request to one sandbox and its forks, whatever its key. Only [`client`] adds it to requests.
#[derive(Clone, Debug)]
pub struct Fence(pub SandboxId);

/// Who sends the requests of a [`client`].
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// Used if there is no key to send.
    pub recognised: Option<RecognisedClient>,
    pub fence: Option<Fence>,
}

/// A client of `api`.
pub fn client(
    app: Arc<App>,
    api: Router,
    options: ClientOptions,
    sender: Sender,
) -> Result<Client, ClientError> {
    let open = move || {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        app.tasks.spawn(speak(theirs, api.clone(), sender.clone()));
        ours
    };
    Client::within(options, open)
}

/// Serves one connection until its client ends it.
async fn speak(pipe: DuplexStream, api: Router, sender: Sender) {
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        if let Some(recognised) = &sender.recognised {
            request.extensions_mut().insert(recognised.clone());
        }
        if let Some(fence) = &sender.fence {
            request.extensions_mut().insert(fence.clone());
        }
        let api = api.clone();
        async move {
            let Ok(answer) = api.oneshot(Request::from(request.map(axum::body::Body::new))).await;
            Ok::<_, Infallible>(answer)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(pipe), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection within the process ended early");
    }
}
