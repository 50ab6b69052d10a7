//! The port on which E2B's clients expect the code interpreter: requests are passed to the sandbox's own bridge.
//!
//! ```text
//!   49999-<sandbox>.<domain>, e2b-sandbox-port: 49999 ─► by token or key ─► [`crate::code`] ─► bridge
//! ```
//!
//! The daemon creates a new request for the bridge: no header of the client reaches a sandbox. Running code is as
//! powerful as running a command, so this port always requires a token or a key, even if other ports are public.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_model::{SandboxId, TenantId};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, Limited};

use super::envd::{AccessError, by_key};
use super::error::Refusal;
use burrow_gateway::Gateway;
use burrow_gateway::e2b::reach::{self, CallEffect, gone};
use burrow_gateway::e2b::tokens;
use burrow_http::app::App;
use burrow_http::audit::Trace;
use burrow_http::error::ApiError;
use burrow_http::exec_trace;
use burrow_http::request_target::Addressee;
use burrow_http::routes::{Routes, delete, get, post};
use burrow_interpreter::{BridgeRequest, Interpreter};

/// Maximum size of a body: code and its parameters.
const BODY_BYTES_MAX: usize = 4 << 20;

const TOKENS: [&str; 2] = ["x-access-token", "e2b-traffic-access-token"];

pub fn router() -> Router<Arc<App>> {
    routes().into_router().fallback(no_such_call)
}

pub fn routes() -> Routes<Arc<App>> {
    Routes::new()
        .route("/health", get(pass))
        .route("/execute", post(pass))
        .route("/contexts", get(pass).post(pass))
        .route("/contexts/{context}", delete(pass).get(pass))
        .route("/contexts/{context}/restart", post(pass))
        .route("/contexts/{context}/interrupt", post(pass))
}

async fn no_such_call() -> Refusal {
    Refusal::absent(
        "this port is reserved for the code interpreter, which does not have this call; use another port for your server",
    )
}

/// An admitted request.
#[derive(Debug)]
pub(crate) struct InterpreterRequest {
    tenant: TenantId,
    sandbox: SandboxId,
    actor: Option<String>,
}

impl FromRequestParts<Arc<App>> for InterpreterRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Response> {
        let addressee = parts.extensions.get::<Addressee>().cloned().and_then(|Addressee(text)| text);
        let text = addressee.unwrap_or_default();
        let Ok(sandbox) = text.parse::<SandboxId>() else {
            return Err(gone(&text));
        };
        let by_token = opened(app, &parts.headers, &sandbox).await;
        let by_token = by_token.map_err(|error| Refusal::from(error).into_response())?;
        let tenant = match by_token {
            true => app.engine.owner(&sandbox).ok_or_else(|| gone(&text))?,
            false => {
                let had_token = TOKENS.iter().any(|name| parts.headers.contains_key(*name));
                by_key(parts, app, &sandbox, had_token).await.map_err(|why| match why {
                    AccessError::Refused(error) => Refusal::from(error).into_response(),
                    AccessError::Gone => gone(&text),
                })?
            }
        };
        let trace = parts.extensions.get::<Trace>();
        if let Some(trace) = trace {
            trace.asked_inside(&tenant, &sandbox, by_token);
        }
        let actor = exec_trace::actor(trace);
        if !reach::is_reached(app, &tenant, &sandbox, CallEffect::Use).await {
            return Err(gone(&text));
        }
        Ok(Self { tenant, sandbox, actor })
    }
}

/// Whether one of the tokens is valid for this sandbox.
async fn opened(app: &App, headers: &HeaderMap, sandbox: &SandboxId) -> Result<bool, ApiError> {
    for name in TOKENS {
        if let Some(token) = headers.get(name).and_then(|value| value.to_str().ok())
            && tokens::opens_ports(app, sandbox, token).await?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn pass(
    State(app): State<Arc<App>>,
    asking: InterpreterRequest,
    request: Request,
) -> Result<Response, Refusal> {
    let InterpreterRequest { tenant, sandbox, actor } = asking;
    let (parts, body) = request.into_parts();
    let slot = app.part::<Gateway>().slot(&sandbox)?;
    let body = match parts.method {
        Method::GET | Method::DELETE => None,
        _ => Some(read(body).await?),
    };
    let question = BridgeRequest { method: parts.method, path: parts.uri.path().to_owned(), body };
    let answer = Interpreter { app, tenant, sandbox, actor }.ask(&question).await?;
    let (answered, body) = answer.into_parts();
    let body = body.map_frame(move |frame| {
        let _held = &slot;
        frame
    });
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = answered.status;
    if let Some(kind) = answered.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    response.headers_mut().insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(_) => {
            let message = format!("the code is larger than {BODY_BYTES_MAX} bytes, or was interrupted");
            Err(ApiError::new(ErrorCode::TooLarge, message))
        }
    }
}
