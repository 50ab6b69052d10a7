//! Serves the API inside sandboxes on their own listeners: their memory, and their identity.
//!
//! ```text
//!   program inside ─► gateway's address, port 7700 ─► the listener of this one sandbox ─► its router
//! ```
//!
//! There is no key here. The client is a program in the sandbox that the listener belongs to, and the router is created
//! for that sandbox: it has no route to anything else. Connections are limited per sandbox, so that one sandbox cannot
//! exhaust the daemon's resources.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use burrow_engine::OwnApi;
use burrow_model::{SandboxId, TenantId};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Maximum connections of one sandbox: programs that wait for changes keep theirs open, others need one for
/// milliseconds.
const CONNECTIONS_MAX: usize = 64;

/// Time limit for a request's head, and for an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// Maximum number of headers of one request.
const HEADERS_MAX: usize = 64;

/// Pause after a failed accept: the process may be out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Creates the router of one sandbox.
type Routes = Box<dyn Fn(&TenantId, &SandboxId) -> Router + Send + Sync>;

/// All open listeners.
pub(crate) struct OwnListeners {
    /// Set when the engine exists. The engine opens listeners before that: their connections wait.
    routes: OnceLock<Routes>,
    ready: Notify,
    open: Mutex<HashMap<SandboxId, CancellationToken>>,
    connections: TaskTracker,
}

impl OwnListeners {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            routes: OnceLock::new(),
            ready: Notify::new(),
            open: Mutex::default(),
            connections: TaskTracker::new(),
        })
    }

    /// Starts answering requests. Called once.
    pub(crate) fn begin(&self, routes: impl Fn(&TenantId, &SandboxId) -> Router + Send + Sync + 'static) {
        if self.routes.set(Box::new(routes)).is_err() {
            tracing::error!("the router of the sandboxes' own listeners was set twice");
        }
        self.ready.notify_waiters();
    }

    /// Closes every listener, and waits until open connections have ended.
    pub(crate) async fn end(&self) {
        for (_, cut) in self.lock().drain() {
            cut.cancel();
        }
        self.connections.close();
        self.connections.wait().await;
    }

    async fn router(&self, tenant: &TenantId, sandbox: &SandboxId) -> Router {
        loop {
            let ready = self.ready.notified();
            if let Some(routes) = self.routes.get() {
                return routes(tenant, sandbox);
            }
            ready.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, CancellationToken>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The interface for the engine: listeners whose connections end with them.
#[derive(Clone, Debug)]
pub(crate) struct ServedListeners(pub(crate) Arc<OwnListeners>);

impl OwnApi for ServedListeners {
    fn serve(&self, tenant: &TenantId, sandbox: &SandboxId, listener: OwnedFd) {
        let listener = match TcpListener::from_std(listener.into()) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%sandbox, %error, "could not serve a sandbox's own listener");
                return;
            }
        };
        let cut = CancellationToken::new();
        if let Some(earlier) = self.0.lock().insert(sandbox.clone(), cut.clone()) {
            earlier.cancel();
        }
        let (listeners, tenant, sandbox) = (self.0.clone(), tenant.clone(), sandbox.clone());
        self.0.connections.spawn(async move {
            let serve = async {
                let router = listeners.router(&tenant, &sandbox).await;
                accept(&listeners.connections, &listener, router, &cut).await;
            };
            cut.run_until_cancelled(serve).await;
        });
    }

    fn close(&self, sandbox: &SandboxId) {
        if let Some(cut) = self.0.lock().remove(sandbox) {
            cut.cancel();
        }
    }
}

async fn accept(connections: &TaskTracker, listener: &TcpListener, router: Router, cut: &CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "could not accept a connection at a sandbox's own listener");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (router, cut) = (router.clone(), cut.clone());
        connections.spawn(async move {
            let _slot = slot;
            cut.run_until_cancelled(speak(stream, router)).await;
        });
    }
}

async fn speak(stream: TcpStream, router: Router) {
    // Sends small responses without delay.
    let _ = stream.set_nodelay(true);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .max_headers(HEADERS_MAX)
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection at a sandbox's own listener ended early");
    }
}

impl fmt::Debug for OwnListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnListeners").field("open", &self.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn listener() -> (OwnedFd, std::net::SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into(), address)
    }

    async fn ask(address: std::net::SocketAddr) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    fn who(_: &TenantId, sandbox: &SandboxId) -> Router {
        let sandbox = sandbox.to_string();
        Router::new().route("/who", get(move || async move { sandbox }))
    }

    #[tokio::test]
    async fn a_listener_opened_before_the_engine_exists_answers_later() {
        let listeners = OwnListeners::new();
        let (tenant, sandbox) = (TenantId::generate(), SandboxId::generate());
        let (socket, address) = listener();
        ServedListeners(listeners.clone()).serve(&tenant, &sandbox, socket);
        let asked = tokio::spawn(ask(address));
        tokio::task::yield_now().await;
        listeners.begin(who);
        let answer = asked.await.unwrap().unwrap();
        assert!(answer.ends_with(sandbox.as_str()), "{answer}");
        listeners.end().await;
    }

    #[tokio::test]
    async fn each_listener_answers_for_its_own_sandbox_until_it_is_closed() {
        let listeners = OwnListeners::new();
        listeners.begin(who);
        let served = ServedListeners(listeners.clone());
        let tenant = TenantId::generate();
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        let ((first, at_first), (second, at_second)) = (listener(), listener());
        served.serve(&tenant, &one, first);
        served.serve(&tenant, &other, second);
        assert!(ask(at_first).await.unwrap().ends_with(one.as_str()));
        assert!(ask(at_second).await.unwrap().ends_with(other.as_str()));
        // A connection that is idle ends with the listener.
        let mut idle = TcpStream::connect(at_first).await.unwrap();
        served.close(&one);
        assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0);
        assert!(ask(at_second).await.unwrap().ends_with(other.as_str()));
        listeners.end().await;
        assert!(ask(at_second).await.map_or(true, |answer| answer.is_empty()));
    }
}
