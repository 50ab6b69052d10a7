//! `GET …/attach`: a WebSocket to an exec, for its output from an offset on, its standard input and its terminal.
//!
//! ```text
//!   client ──binary: stdin, text: resize/signal/close──► input pump ──► guest
//!   client ◄──binary: output, text: gap/exit/error────── output pump ◄── guest
//! ```
//!
//! There are two pumps, so a process that does not read its input does not hold back its own output. Each pump holds one
//! message. If the client does not read, its socket fills up; then the process waits (`lossless`), or the client receives a
//! gap (`lossy`).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use burrow_api::{AttachClientMessage, AttachServerMessage, encode_output};
use burrow_audit::{Action, Event, Outcome, Text};
use burrow_engine::{EngineError, ExecEvent, ExecSession, Guest};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{Attach, AttachInput, Frame, ReadMode, TerminalSize};
use burrow_model::ExecId;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::execs::ExecPath;
use burrow_http::app::App;
use burrow_http::auth::Executor;
use burrow_http::error::ApiError;
use burrow_http::input::{Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals};
use burrow_http::stream::{GuestWriter, shutting_down};
use burrow_http::upload::send_bytes;
use burrow_http::{convert, exec_trace};

/// The largest message that a client may send. A larger one closes the connection with code 1009.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How long a shutdown waits for a client to receive the last message.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// After the exec has ended, a client may read the output slowly, but it is disconnected if it sends nothing for this long.
/// Burrow's own clients send a ping every 20 seconds.
const SILENCE_MAX: Duration = Duration::from_mins(10);

/// Where to attach, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachParams {
    /// The offset of the first byte of output to send; 0 when absent.
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// `lossless` when absent: the process waits while its output is not read. `lossy`: output that is not read in time is
    /// skipped.
    #[serde(default)]
    #[param(required = false, inline)]
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    #[default]
    Lossless,
    Lossy,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}/attach", tag = "execs", params(ExecPath, AttachParams),
    responses(
        (status = 101, description = "A WebSocket: see `AttachClientMessage` and `AttachServerMessage`"),
        Common, GuestRefusals,
    ),
)]
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<ExecPath>,
    Params(params): Params<AttachParams>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|_| {
        ApiError::invalid("could not attach: this route requires a WebSocket upgrade")
            .hint("`GET …/output` returns the output without a WebSocket")
    })?;
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    let mode = match params.mode {
        Mode::Lossless => ReadMode::Lossless,
        Mode::Lossy => ReadMode::Lossy,
    };
    let actor = exec_trace::actor(caller.trace());
    let input_audit = InputAudit { actor: actor.map(Text::from), exec: exec.clone(), noted: false };
    let attach = Attach { exec: exec.into(), offset: params.offset, mode, follow: true };
    let session = app.engine.attach_exec(caller.tenant(), &sandbox, attach).await?;
    Ok(upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX).on_upgrade(
        move |socket| {
            // Tracked, so that a shutdown waits until the client has received the last message.
            let tasks = app.tasks.clone();
            tasks.track_future(serve(app, session, input_audit, socket))
        },
    ))
}

async fn serve(app: Arc<App>, mut session: ExecSession, mut input_audit: InputAudit, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let (guest, mut writer) = (session.guest().clone(), session.take_input());
    let last = tokio::select! {
        last = pump_output(&app, &mut session, &mut sink) => last,
        refused = pump_input(&app, &guest, &mut input_audit, &mut writer, &mut stream) => refused,
    };
    let Some(last) = last else { return };
    // The exec has ended. A client that is still reading must not keep the guest busy or the sandbox awake.
    drop((session, writer, guest));
    let shutdown = async {
        app.draining.cancelled().await;
        tokio::time::sleep(CLOSE_PATIENCE).await;
    };
    tokio::select! {
        () = finish(&mut sink, &mut stream, last) => {}
        () = shutdown => {}
    }
}

/// For the audit log: the first input through an attachment is an event of its own, because most attachments only read.
struct InputAudit {
    actor: Option<Text>,
    exec: ExecId,
    noted: bool,
}

impl InputAudit {
    async fn note(&mut self, app: &App, guest: &Guest) {
        if std::mem::replace(&mut self.noted, true) {
            return;
        }
        let row = guest.sandbox();
        let event = Event {
            actor: self.actor.clone(),
            sandbox: Some(row.id.clone()),
            target: Some(Text::new(self.exec.as_str())),
            ..Event::new(app.engine.now_ms(), row.tenant.clone(), Action::ExecInput, Outcome::Done)
        };
        app.audited(event).await;
    }
}

type Sink = SplitSink<WebSocket, Message>;

/// Sends output until the end. Returns the last message, which the caller sends, or `None` if the client is gone.
async fn pump_output(app: &App, session: &mut ExecSession, sink: &mut Sink) -> Option<AttachServerMessage> {
    loop {
        let message = match app.draining.run_until_cancelled(session.next()).await {
            None => return Some(AttachServerMessage::Error { error: shutting_down() }),
            Some(Err(error)) => return Some(failed(error)),
            Some(Ok(ExecEvent::Output { stream, offset, bytes })) => {
                Message::Binary(encode_output(convert::output_stream(stream), offset, &bytes).into())
            }
            Some(Ok(ExecEvent::Gap { from, to })) => text(&AttachServerMessage::Gap { from, to })?,
            Some(Ok(ExecEvent::Exit(info))) => {
                let exec = Box::new(convert::exec_report(session.ended(info).await));
                return Some(AttachServerMessage::Exit { exec });
            }
            // The request asked to follow the output, so it cannot end like this.
            Some(Ok(ExecEvent::Drained { .. })) => {
                return Some(failed(session.guest().error(GuestError::HungUp)));
            }
        };
        sink.send(message).await.ok()?;
    }
}

fn failed(error: EngineError) -> AttachServerMessage {
    AttachServerMessage::Error { error: ApiError::from(error).into_detail() }
}

/// Passes input on until the client is gone (`None`) or sends an invalid message.
///
/// When the guest takes no more input, the pump only reads, because there may still be output to send.
async fn pump_input(
    app: &App,
    guest: &Guest,
    input_audit: &mut InputAudit,
    writer: &mut GuestWriter,
    stream: &mut SplitStream<WebSocket>,
) -> Option<AttachServerMessage> {
    let mut open = true;
    loop {
        let sent = match stream.next().await {
            Some(Ok(Message::Binary(bytes))) if open => {
                input_audit.note(app, guest).await;
                send_bytes(writer, bytes).await
            }
            Some(Ok(Message::Text(json))) => match control(&json) {
                Ok(_) if !open => continue,
                Ok(Control::Close) => writer.send(&Frame::End).await,
                Ok(Control::Input(input)) => writer.send_control(&input).await,
                Err(error) => return Some(AttachServerMessage::Error { error: error.into_detail() }),
            },
            // Pings are answered by the library. Input that arrives after the end of input is dropped.
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
        };
        open &= sent.is_ok();
    }
}

enum Control {
    Input(AttachInput),
    Close,
}

fn control(json: &str) -> Result<Control, ApiError> {
    let message: AttachClientMessage = burrow_http::input::parse(json.as_bytes())?;
    Ok(match message {
        AttachClientMessage::Resize { columns: 0, .. } | AttachClientMessage::Resize { rows: 0, .. } => {
            return Err(ApiError::invalid("a terminal must have at least one column and one row"));
        }
        AttachClientMessage::Resize { columns, rows } => {
            Control::Input(AttachInput::Resize(TerminalSize { columns, rows }))
        }
        AttachClientMessage::Signal { signal } => {
            let signal = convert::parse_signal(&signal).ok_or_else(|| {
                ApiError::invalid("`signal` must be a signal, such as `TERM`, `SIGTERM` or `15`")
            })?;
            Control::Input(AttachInput::Signal { signal })
        }
        AttachClientMessage::CloseStdin => Control::Close,
    })
}

/// Sends the last message and a close frame, and waits for the client's close frame.
async fn finish(sink: &mut Sink, stream: &mut SplitStream<WebSocket>, last: AttachServerMessage) {
    let Some(message) = text(&last) else { return };
    let sent = tokio::time::timeout(SILENCE_MAX, sink.send(message)).await;
    if !matches!(sent, Ok(Ok(()))) {
        return;
    }
    // For programs that see only the close frame, such as a proxy's log.
    let reason = match &last {
        AttachServerMessage::Error { error } => error.code.as_str(),
        AttachServerMessage::Gap { .. } | AttachServerMessage::Exit { .. } => "",
    };
    let goodbye = CloseFrame { code: close_code::NORMAL, reason: reason.into() };
    if sink.send(Message::Close(Some(goodbye))).await.is_ok() {
        // When a connection with unread input is closed, the kernel discards what the client has not read yet. So read on
        // until the client has closed the connection.
        while let Ok(Some(Ok(_))) = tokio::time::timeout(SILENCE_MAX, stream.next()).await {}
    }
}

fn text(message: &AttachServerMessage) -> Option<Message> {
    serde_json::to_string(message).ok().map(|json| Message::Text(json.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_control_messages_are_rejected() {
        assert!(matches!(
            control(r#"{"kind":"resize","columns":80,"rows":24}"#),
            Ok(Control::Input(AttachInput::Resize(TerminalSize { columns: 80, rows: 24 })))
        ));
        assert!(matches!(
            control(r#"{"kind":"signal","signal":"INT"}"#),
            Ok(Control::Input(AttachInput::Signal { signal: 2 }))
        ));
        assert!(matches!(control(r#"{"kind":"close-stdin"}"#), Ok(Control::Close)));
        for bad in
            ["", "{}", r#"{"kind":"resize","columns":0,"rows":1}"#, r#"{"kind":"signal","signal":"NOPE"}"#]
        {
            assert!(control(bad).is_err(), "{bad}");
        }
    }
}
