//! Code in contexts that keep their variables: Jupyter kernels inside a sandbox, reached through a bridge beside them.
//!
//! ```text
//!   /v1/…/contexts ─┐                               inside the sandbox
//!                   ├─► ask ─► port 49999 ─► bridge.py ─► one kernel per context
//!   E2B's clients ──┘    └── nothing listens: put the bridge inside, start it, ask again
//! ```
//!
//! Bridge and kernels are processes of the sandbox like any others: they sleep, wake, fork and are restored with it, and their
//! variables with them. Nothing about contexts is kept out here, so there is nothing that a snapshot could contradict. The
//! bridge comes from this daemon and not from the image: an image needs a kernel, and works with any Burrow.
//!
//! What the bridge answers is the word of a sandbox: bounded and checked before it is anybody's answer.

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

use crate::gateway::{self, Unanswered};
use crate::rest::App;
use crate::rest::error::ApiError;
pub(crate) use lines::{Lines, held};

/// Where the bridge listens inside, and where clients of E2B's look for theirs.
pub(crate) const CODE_PORT: u16 = 49999;

/// Of an answer that is there as a whole: lists of contexts, and errors.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// For such an answer, once it has begun.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// Of sandboxes whose bridge is known to run: more are forgotten, and looked at again.
const KNOWN_MAX: usize = 4096;

/// Which sandboxes have a bridge, and which are just getting one.
#[derive(Debug, Default)]
pub(crate) struct Bridges {
    /// With the start of the sandbox that it runs in.
    known: Mutex<HashMap<SandboxId, u64>>,
    /// One start at a time for each.
    starting: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
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

    fn turn(&self, sandbox: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody waits for any more.
        starting.retain(|_, turn| Arc::strong_count(turn) > 1);
        starting.entry(sandbox.clone()).or_default().clone()
    }
}

/// A sandbox whose code interpreter is spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Interpreter {
    pub(crate) app: Arc<App>,
    pub(crate) tenant: TenantId,
    pub(crate) sandbox: SandboxId,
}

/// A question to the bridge.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
}

impl Interpreter {
    /// Asks the bridge, which is started where it does not run yet; the sandbox is woken.
    pub(crate) async fn ask(&self, question: &Question) -> Result<Response, ApiError> {
        let running = self.app.engine.running(&self.tenant, &self.sandbox);
        if !self.app.bridges.is_known(&self.sandbox, running) {
            self.start().await?;
        }
        match self.send(question).await {
            Err(Unanswered::Closed) => {
                // Somebody inside has ended it.
                self.app.bridges.forget(&self.sandbox);
                self.start().await?;
                self.send(question).await.map_err(ApiError::from)
            }
            answered => answered.map_err(ApiError::from),
        }
    }

    /// Asks a bridge that runs; `None` where there is none, and so nothing to tell. Starts nothing.
    pub(crate) async fn ask_if_running(&self, question: &Question) -> Result<Option<Response>, ApiError> {
        let row = self.app.engine.get(&self.tenant, &self.sandbox).await?;
        if matches!(row.state, State::Stopped | State::Failed) || !self.is_listening().await? {
            return Ok(None);
        }
        match self.send(question).await {
            Ok(response) => Ok(Some(response)),
            Err(Unanswered::Closed) => Ok(None),
            Err(unanswered) => Err(unanswered.into()),
        }
    }

    async fn is_listening(&self) -> Result<bool, ApiError> {
        Ok(self.app.engine.is_listening(&self.tenant, &self.sandbox, CODE_PORT).await?)
    }

    async fn send(&self, question: &Question) -> Result<Response, Unanswered> {
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

/// A whole answer, of a shape.
pub(crate) async fn read<T: DeserializeOwned>(response: Response) -> Result<T, ApiError> {
    let bytes = whole(succeeded(response).await?).await?;
    serde_json::from_slice(&bytes).map_err(|error| misbehaves().cause(error))
}

/// An answer that has nothing to say but that it was done.
pub(crate) async fn done(response: Response) -> Result<(), ApiError> {
    succeeded(response).await.map(drop)
}

/// What the bridge refuses with.
#[derive(Deserialize)]
struct Refused {
    message: String,
}

/// An answer that is no refusal.
pub(crate) async fn succeeded(response: Response) -> Result<Response, ApiError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let bytes = whole(response).await?;
    let Ok(Refused { message }) = serde_json::from_slice(&bytes) else {
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

/// What listens on the bridge's port does not answer as it would.
fn misbehaves() -> ApiError {
    let message =
        format!("what listens on port {CODE_PORT} of the sandbox is no code interpreter, or was cut off");
    ApiError::new(ErrorCode::BadGateway, message)
        .hint("that port is the interpreter's: let your own server listen on another")
}
