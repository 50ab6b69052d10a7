//! Standard input of a process: one piece, a stream of pieces, end of file.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use burrow_engine::Guest;
use burrow_guest::protocol::Request as GuestRequest;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::error::RpcError;
use super::connect::{Messages, UnaryCall, broken, check_type, end, message, streamed};
use super::inside::EnvdRequest;
use super::process::Selector;
use burrow_http::app::App;
use burrow_http::upload::upload;

#[derive(Debug, Deserialize)]
pub(super) struct SendRequest {
    process: Selector,
    input: ProcessInput,
}

#[derive(Debug, Deserialize)]
struct ProcessInput {
    stdin: Option<String>,
    pty: Option<String>,
}

impl ProcessInput {
    fn bytes(&self) -> Result<Vec<u8>, RpcError> {
        let text = self.stdin.as_deref().or(self.pty.as_deref()).unwrap_or_default();
        STANDARD.decode(text).map_err(|_| RpcError::invalid("`input` must be base64"))
    }
}

pub(super) async fn send(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<SendRequest>,
) -> Result<Json<Value>, RpcError> {
    let bytes = request.input.bytes()?;
    let guest = inside.guest(&app).await?;
    let found = request.process.find(&guest).await?;
    feed(&guest, found.exec, Body::from(bytes), false).await?;
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(super) struct CloseRequest {
    process: Selector,
}

pub(super) async fn close(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<CloseRequest>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let found = request.process.find(&guest).await?;
    feed(&guest, found.exec, Body::empty(), true).await?;
    Ok(Json(json!({})))
}

async fn feed(guest: &Guest, exec: String, body: Body, close: bool) -> Result<(), RpcError> {
    Ok(upload::<()>(guest, &GuestRequest::ExecStdin { exec, close }, body).await?)
}

/// One message of a stream: selects the process, or contains input for it.
#[derive(Debug, Deserialize)]
struct StreamRequest {
    start: Option<CloseRequest>,
    data: Option<DataEvent>,
}

#[derive(Debug, Deserialize)]
struct DataEvent {
    input: ProcessInput,
}

pub(super) async fn stream(State(app): State<Arc<App>>, inside: EnvdRequest, request: Request) -> Response {
    match take(&app, &inside, request).await {
        Ok(()) => streamed(stream::iter([message(&json!({})), end(None)])),
        Err(error) => broken(&app, &inside.sandbox, &error).await,
    }
}

async fn take(app: &Arc<App>, inside: &EnvdRequest, request: Request) -> Result<(), RpcError> {
    check_type(&request)?;
    let mut messages = Messages::new(request.into_body(), app.config.bounds.json_body_bytes);
    let first: Option<StreamRequest> = messages.next().await?;
    let start = first.and_then(|first| first.start);
    let start = start.ok_or_else(|| RpcError::invalid("a stream of input must begin with `start`"))?;
    let guest = inside.guest(app).await?;
    let exec = start.process.find(&guest).await?.exec;
    // One piece waits while another is written: a process that does not read slows the client down.
    let (pieces, mut waiting) = mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let body = Body::from_stream(stream::poll_fn(move |ctx| waiting.poll_recv(ctx)));
    let (fed, pumped) = tokio::join!(feed(&guest, exec, body, false), pump(&mut messages, pieces));
    pumped?;
    fed
}

/// Ends without an error if the receiver has ended: the receiver knows the reason.
async fn pump(
    messages: &mut Messages,
    pieces: mpsc::Sender<Result<Vec<u8>, std::io::Error>>,
) -> Result<(), RpcError> {
    loop {
        let bytes = match messages.next::<StreamRequest>().await {
            Ok(Some(StreamRequest { data: Some(data), .. })) => data.input.bytes(),
            // A keepalive.
            Ok(Some(_)) => continue,
            Ok(None) => return Ok(()),
            Err(error) => Err(error),
        };
        match bytes {
            Ok(bytes) => {
                if pieces.send(Ok(bytes)).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                let _ = pieces.send(Err(std::io::Error::other("the stream was interrupted"))).await;
                return Err(error);
            }
        }
    }
}
