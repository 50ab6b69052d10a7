//! Runs code in contexts that keep their variables: Jupyter kernels inside a sandbox, controlled by a bridge beside
//! them.
//!
//! ```text
//!   /v1/…/contexts ─┐                               inside the sandbox
//!                   ├─► ask ─► port 49999 ─► bridge.py ─► one kernel per context
//!   E2B's clients ──┘    └── nothing listens: install the bridge, start it, ask again
//! ```
//!
//! Bridge and kernels are ordinary processes of the sandbox: they are hibernated, woken, forked and restored with it,
//! and so are their variables. The daemon stores nothing about contexts, so no stored state can contradict a snapshot.
//! The bridge comes from this daemon and not from the image: an image needs a kernel, and works with any version of
//! Burrow.
//!
//! Responses of the bridge come from a sandbox and are not trusted: they are limited in size and validated.

mod lines;
mod start;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_model::{SandboxId, State, TenantId};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use burrow_gateway as gateway;
use burrow_gateway::PortRequestError;
use burrow_http::app::{App, Part};
use burrow_http::error::ApiError;
use burrow_http::request_target::CODE_PORT;
pub use lines::{Lines, held};

/// Maximum size of a response that is not a stream: lists of contexts, and errors.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Time limit for such a response, once it has begun.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Maximum number of sandboxes whose bridge is known to run: beyond it entries are forgotten, and checked again.
const KNOWN_MAX: usize = 4096;

/// The sandboxes that have a bridge, and those in which one is being started.
#[derive(Debug, Default)]
pub struct Bridges {
    /// With the generation of the sandbox in which the bridge runs.
    known: Mutex<HashMap<SandboxId, u64>>,
    /// One start at a time for each sandbox.
    starting: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Part for Bridges {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Bridges {
    fn is_known(&self, sandbox: &SandboxId, generation: Option<u64>) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        generation.is_some() && known.get(sandbox).copied() == generation
    }

    fn note(&self, sandbox: &SandboxId, generation: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(sandbox.clone(), generation);
    }

    fn forget(&self, sandbox: &SandboxId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }

    fn start_lock(&self, sandbox: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        // Removes locks that no task waits for.
        starting.retain(|_, start_lock| Arc::strong_count(start_lock) > 1);
        starting.entry(sandbox.clone()).or_default().clone()
    }
}

/// The code interpreter of one sandbox.
#[derive(Clone, Debug)]
pub struct Interpreter {
    pub app: Arc<App>,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    /// Who starts the bridge, as the audit log names them.
    pub actor: Option<String>,
}

/// A request to the bridge.
#[derive(Clone, Debug)]
pub struct BridgeRequest {
    pub method: Method,
    pub path: String,
    pub body: Option<Bytes>,
}

impl Interpreter {
    /// Sends a request to the bridge. Starts the bridge if it is not running yet; wakes the sandbox.
    pub async fn ask(&self, question: &BridgeRequest) -> Result<Response, ApiError> {
        let running = self.app.engine.running(&self.tenant, &self.sandbox);
        if !self.app.part::<Bridges>().is_known(&self.sandbox, running) {
            self.start().await?;
        }
        match self.send(question).await {
            Err(PortRequestError::Closed) => {
                // A process inside has ended the bridge.
                self.app.part::<Bridges>().forget(&self.sandbox);
                self.start().await?;
                self.send(question).await.map_err(ApiError::from)
            }
            answered => answered.map_err(ApiError::from),
        }
    }

    /// Sends a request to a running bridge; `None` if no bridge is running. Starts nothing.
    pub async fn ask_if_running(&self, question: &BridgeRequest) -> Result<Option<Response>, ApiError> {
        let row = self.app.engine.get(&self.tenant, &self.sandbox).await?;
        if matches!(row.state, State::Stopped | State::Failed) || !self.is_listening().await? {
            return Ok(None);
        }
        match self.send(question).await {
            Ok(response) => Ok(Some(response)),
            Err(PortRequestError::Closed) => Ok(None),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    async fn is_listening(&self) -> Result<bool, ApiError> {
        Ok(self.app.engine.is_listening(&self.tenant, &self.sandbox, CODE_PORT).await?)
    }

    async fn send(&self, question: &BridgeRequest) -> Result<Response, PortRequestError> {
        let mut request = Request::builder().method(question.method.clone()).uri(&question.path);
        request = request.header(http::header::HOST, "localhost");
        let request = match &question.body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(Body::from(body.clone())),
            None => request.body(Body::empty()),
        };
        let request = request.expect("paths are made of checked parts");
        gateway::ask(&self.app, &self.tenant, &self.sandbox, CODE_PORT, request).await
    }
}

/// Reads and parses a complete response.
pub async fn read<T: DeserializeOwned>(response: Response) -> Result<T, ApiError> {
    let bytes = whole(succeeded(response).await?).await?;
    serde_json::from_slice(&bytes).map_err(|error| misbehaves().cause(error))
}

/// Reads a response that only reports success.
pub async fn done(response: Response) -> Result<(), ApiError> {
    succeeded(response).await.map(drop)
}

/// An error response of the bridge.
#[derive(Deserialize)]
struct BridgeError {
    message: String,
}

/// Returns the response unless it is an error response.
pub async fn succeeded(response: Response) -> Result<Response, ApiError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = whole(response).await?;
    let Ok(BridgeError { message }) = serde_json::from_slice(&bytes) else {
        return Err(misbehaves());
    };
    let code = match status {
        StatusCode::NOT_FOUND => ErrorCode::NotFound,
        StatusCode::BAD_REQUEST => ErrorCode::Unprocessable,
        StatusCode::CONFLICT => ErrorCode::Conflict,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        StatusCode::TOO_MANY_REQUESTS => ErrorCode::TooMany,
        _ => ErrorCode::BadGateway,
    };
    let shown: String = message.chars().filter(|c| !c.is_control()).take(500).collect();
    Err(ApiError::new(code, shown))
}

async fn whole(response: Response) -> Result<Bytes, ApiError> {
    let read = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
    match tokio::time::timeout(ANSWER_TIME, read).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(_)) | Err(_) => Err(misbehaves()),
    }
}

/// The server on the bridge's port does not respond like the bridge.
fn misbehaves() -> ApiError {
    let message = format!(
        "the server on port {CODE_PORT} of the sandbox is not the code interpreter, or its response was interrupted"
    );
    ApiError::new(ErrorCode::BadGateway, message)
        .hint("that port is reserved for the code interpreter: use another port for your server")
}
