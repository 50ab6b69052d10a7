//! Our own routes, asked from within the process: through a pipe instead of the network, and through all that stands around
//! them, so that whoever serves another protocol can do nothing that a script could not.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use burrow_client::{Client, ClientError, ClientOptions};
use burrow_model::KeyId;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::DuplexStream;
use tower::ServiceExt as _;

use super::App;

/// What the pipe holds: a few answers of usual size, and what keeps bulk moving.
const PIPE_BYTES: usize = 256 << 10;

/// Somebody whom another protocol has recognised, as an API key. No header can say this: it is put into requests by
/// [`client`] alone.
#[derive(Clone, Debug)]
pub(crate) struct Recognised {
    pub(crate) key: KeyId,
    /// By what, for the audit log.
    pub(crate) by: Arc<str>,
}

/// A client of `api`. `recognised`, if there is no key to show.
pub(crate) fn client(
    app: Arc<App>,
    api: Router,
    options: ClientOptions,
    recognised: Option<Recognised>,
) -> Result<Client, ClientError> {
    let open = move || {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        app.tasks.spawn(speak(theirs, api.clone(), recognised.clone()));
        ours
    };
    Client::within(options, open)
}

/// Serves one connection, which ends with the client at its other end.
async fn speak(pipe: DuplexStream, api: Router, recognised: Option<Recognised>) {
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        if let Some(recognised) = &recognised {
            request.extensions_mut().insert(recognised.clone());
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
        tracing::debug!(%error, "a connection from within ended early");
    }
}
