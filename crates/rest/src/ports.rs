//! Ports: listing listening ports, publishing them, links to them, and raw TCP to them over a WebSocket.
//!
//! HTTP to a port is served by `gateway`, not here.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use burrow_api::{CreatePortUrl, ErrorCode, Page, Port, PortMessage, PortUrl, defaults};
use burrow_engine::{PortList, PortStream};
use burrow_guest::protocol::ListeningPort;
use bytes::BytesMut;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use burrow_gateway::{Gateway, Links, Slot};
use burrow_http::app::App;
use burrow_http::auth::{Executor, Reader, UnboundExecutor};
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, GuestRefusals, ObjectRefusals, PortRefusals, WithBody};
use burrow_http::request_target::CODE_PORT;
use burrow_http::signer::Claim;
use burrow_http::stream::shutting_down;

/// The largest message that a client may send. A larger one closes the connection with code 1009.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of the port's output per message.
const READ_BYTES: usize = 64 << 10;

/// How long a client may take to receive the last message.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports", tag = "ports", params(SandboxPath, PageParams),
    responses((status = 200, description = "Listening and published ports, sorted by port", body = Page<Port>),
        Common, GuestRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<PageParams>,
    (uri, headers): (Uri, HeaderMap),
) -> Result<Json<Page<Port>>, ApiError> {
    let request = params.request()?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let ports = app.engine.ports(caller.tenant(), &id).await?;
    let links = Links::new(&app.config.gateway, &uri, &headers);
    let ports = merge_ports(ports, |port| links.plain(id.as_str(), port));
    // Several processes may share a port number, so the cursor is a position in the list.
    let from = match &request.cursor {
        None => 0,
        Some(cursor) => cursor.parse::<usize>().map_err(|_| burrow_catalog::CatalogError::BadCursor)?,
    };
    let until = from.saturating_add(request.limit as usize);
    let next_cursor = (until < ports.len()).then(|| until.to_string());
    let rows = ports.into_iter().skip(from).take(request.limit as usize).collect();
    Ok(Json(page(burrow_catalog::Page { rows, next_cursor }, |port| port)))
}

/// Merges the listening ports with the published ports on which no process listens.
fn merge_ports(ports: PortList, url: impl Fn(u16) -> String) -> Vec<Port> {
    let mut all: Vec<Port> = Vec::new();
    for ListeningPort { port, addresses, user, process } in ports.listening {
        let (pid, process, command) = match process {
            Some(process) => (Some(process.pid), Some(process.name), Some(process.command)),
            None => (None, None, None),
        };
        let published = ports.published.contains(&port);
        let user = Some(user);
        all.push(Port { port, published, addresses, user, pid, process, command, url: url(port) });
    }
    let unused: Vec<u16> =
        ports.published.iter().copied().filter(|port| all.iter().all(|other| other.port != *port)).collect();
    all.extend(unused.into_iter().map(|port| unused_port(port, url(port))));
    all.sort_by_key(|port| (port.port, port.pid));
    all
}

fn unused_port(port: u16, url: String) -> Port {
    Port {
        port,
        published: true,
        addresses: Vec::new(),
        user: None,
        pid: None,
        process: None,
        command: None,
        url,
    }
}

/// Names a port.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PortPath {
    /// The sandbox's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: String,
    /// From 1 to 65535, except the guest agent's port.
    #[param(pattern = "^[1-9][0-9]{0,4}$")]
    port: String,
}

impl PortPath {
    fn port(&self) -> Result<u16, ApiError> {
        let port = self.port.parse().ok().filter(|port| *port > 0 && !self.port.starts_with(['0', '+']));
        port.ok_or_else(|| ApiError::invalid("a port must be a number from 1 to 65535"))
    }
}

#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/ports/{port}", tag = "ports", params(PortPath),
    responses((status = 204, description = "Anyone may now connect to the port"), Common, ObjectRefusals),
)]
pub(crate) async fn publish(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<PortPath>,
) -> Result<StatusCode, ApiError> {
    let port = path.port()?;
    if port == CODE_PORT {
        return Err(ApiError::invalid(format!("port {port} executes code, and cannot be published"))
            .hint("let your server listen on another port, or create a link with `burrow port url`"));
    }
    let id = caller.sandbox(&app, &path.sandbox).await?;
    app.engine.publish_port(caller.tenant(), &id, port).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/ports/{port}", tag = "ports", params(PortPath),
    responses((status = 204, description = "The port is private; open connections continue"), Common, ObjectRefusals),
)]
pub(crate) async fn unpublish(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<PortPath>,
) -> Result<StatusCode, ApiError> {
    let port = path.port()?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    app.engine.unpublish_port(caller.tenant(), &id, port).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/ports/{port}/url", tag = "ports", params(PortPath),
    request_body = CreatePortUrl,
    responses(
        (status = 200, description = "A link that gives access to the port until it expires or the key is revoked", body = PortUrl),
        Common, ObjectRefusals, WithBody,
    ),
)]
pub(crate) async fn url(
    State(app): State<Arc<App>>,
    caller: UnboundExecutor,
    _: NoParams,
    Segments(path): Segments<PortPath>,
    (uri, headers): (Uri, HeaderMap),
    body: JsonBody<CreatePortUrl>,
) -> Result<Json<PortUrl>, ApiError> {
    let port = path.port()?;
    let seconds = body.value.expires_seconds;
    if !(1..=defaults::PORT_URL_SECONDS_MAX).contains(&seconds) {
        let max = defaults::PORT_URL_SECONDS_MAX;
        return Err(ApiError::invalid(format!("`expires_seconds` must be from 1 to {max}, not {seconds}")));
    }
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let id = app.engine.get(caller.tenant(), &id).await?.id;
    let expires_ms = app.engine.now_ms() + u64::from(seconds) * 1000;
    let claim = Claim { sandbox: id.clone(), port, expires_ms, key: caller.key_id()?.clone() };
    let token = app.part::<Gateway>().signer(&app).await?.sign(&claim);
    let url = Links::new(&app.config.gateway, &uri, &headers).signed(id.as_str(), port, &token);
    Ok(Json(PortUrl { url, expires_ms }))
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports/{port}/connect", tag = "ports", params(PortPath),
    responses(
        (status = 101, description = "A WebSocket whose binary messages are the port's bytes: see `PortMessage`"),
        Common, GuestRefusals, PortRefusals,
    ),
)]
pub(crate) async fn connect(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<PortPath>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let port = path.port()?;
    let upgrade = upgrade.map_err(|_| {
        ApiError::invalid("could not connect to the port: this route requires a WebSocket upgrade")
            .hint("use `burrow port-forward` for TCP; send HTTP requests to the address that `burrow port ls` prints")
    })?;
    let id = caller.sandbox(&app, &path.sandbox).await?;
    let slot = app.part::<Gateway>().slot(&id)?;
    let stream = app.engine.connect_port(caller.tenant(), &id, port).await?;
    Ok(upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX).on_upgrade(
        move |socket| {
            // Tracked, so that a shutdown waits until the client has received the last message.
            let tasks = app.tasks.clone();
            tasks.track_future(serve(app, stream, socket, slot))
        },
    ))
}

type Sink = SplitSink<WebSocket, Message>;

/// Two pumps that end separately: a port that has sent all its data may still be receiving.
async fn serve(app: Arc<App>, stream: PortStream, socket: WebSocket, _slot: Slot) {
    let (mut sink, mut messages) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let client_ended = Notify::new();
    let ended = {
        let inward = pump_in(&mut writer, &mut messages, &client_ended);
        let outward = async {
            pump_out(&mut reader, &mut sink).await?;
            client_ended.notified().await;
            Some(())
        };
        tokio::select! {
            () = inward => Some(None),
            ended = outward => Some(ended),
            () = app.draining.cancelled() => None,
        }
    };
    match ended {
        // The client is gone, or the port is gone and the client has been informed.
        Some(None) => {}
        Some(Some(())) => {
            let goodbye = CloseFrame { code: close_code::NORMAL, reason: "".into() };
            let closing = async {
                if sink.send(Message::Close(Some(goodbye))).await.is_ok() {
                    while let Some(Ok(_)) = messages.next().await {}
                }
            };
            let _ = tokio::time::timeout(CLOSE_PATIENCE, closing).await;
        }
        None => {
            let last = text(&PortMessage::Error { error: shutting_down() });
            let _ = tokio::time::timeout(CLOSE_PATIENCE, sink.send(last)).await;
        }
    }
}

/// Copies the port's bytes to the client until their end. `None`: one of the two is gone.
async fn pump_out(reader: &mut ReadHalf<PortStream>, sink: &mut Sink) -> Option<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ_BYTES);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return sink.send(text(&PortMessage::End)).await.ok(),
            Ok(_) => sink.send(Message::Binary(buffer.split().freeze())).await.ok()?,
            Err(error) => {
                // This is how the engine ends connections into a machine that is put to sleep or restored to a snapshot.
                let error = match error.kind() == std::io::ErrorKind::ConnectionAborted {
                    true => ApiError::new(ErrorCode::SandboxAsleep, "the sandbox was put to sleep")
                        .hint("connect again to wake it"),
                    false => {
                        ApiError::new(ErrorCode::BadGateway, "the port closed the connection unexpectedly")
                            .hint(error.to_string())
                    }
                };
                let _ = sink.send(text(&PortMessage::Error { error: error.into_detail() })).await;
                return None;
            }
        }
    }
}

/// Copies the client's bytes to the port until their end. Returns when the client is gone or sends an invalid message.
async fn pump_in(
    writer: &mut WriteHalf<PortStream>,
    messages: &mut SplitStream<WebSocket>,
    client_ended: &Notify,
) {
    let mut open = true;
    loop {
        match messages.next().await {
            Some(Ok(Message::Binary(bytes))) if open => {
                // A port that reads no more may still send data.
                open = writer.write_all(&bytes).await.is_ok() && writer.flush().await.is_ok();
            }
            Some(Ok(Message::Text(json))) => match serde_json::from_str(&json) {
                Ok(PortMessage::End) => {
                    open = false;
                    let _ = writer.shutdown().await;
                    client_ended.notify_one();
                }
                Ok(PortMessage::Error { .. }) | Err(_) => return,
            },
            // Pings are answered by the library. Bytes after the end are dropped.
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_)) | Err(_)) | None => return,
        }
    }
}

fn text(message: &PortMessage) -> Message {
    Message::Text(serde_json::to_string(message).expect("our own message is JSON").into())
}
