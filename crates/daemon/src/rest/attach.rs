//! `GET …/attach`: a WebSocket to an exec: its output from an offset on, its standard input, its terminal.
//!
//! ```text
//!   client ──binary: stdin, text: resize/signal/close──► input pump ──► guest
//!   client ◄──binary: output, text: gap/exit/error────── output pump ◄── guest
//! ```
//!
//! Two pumps, so that a process that does not read never keeps its own output from leaving. Each holds one message;
//! a client that does not read fills its socket, and then (`lossless`) the process waits or (`lossy`) a gap is told.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use burrow_api::{AttachClientMessage, AttachServerMessage, encode_output};
use burrow_audit::{Action, Event, Outcome, Text};
use burrow_engine::Guest;
use burrow_guest::protocol::{
    Attach, AttachInput, AttachNotice, ExecInfo, Frame, ReadMode, Request, TerminalSize,
};
use burrow_model::ExecId;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::auth::Executor;
use super::egress::with_denials;
use super::error::ApiError;
use super::execs::ExecPath;
use super::input::Params;
use super::output::notice;
use super::refusals::{ByGuest, Common};
use super::remember::{Tails, remembered};
use super::stream::{GuestReader, GuestWriter, hung_up, next_frame, shutting_down};
use super::upload::send_bytes;
use super::{App, Segments, rollback};
use crate::convert;

/// Largest message a client may send; larger ones end the connection with 1009.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How long a shutdown waits for a client to take the last message.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// A client may take output slowly after the exec has ended, but one that sends nothing for this long is disconnected.
/// Clients of ours send a ping every 20 seconds.
const SILENCE_MAX: Duration = Duration::from_mins(10);

/// Where to attach, and who waits for whom.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachParams {
    /// First byte of output wanted; 0 when absent.
    #[serde(default)]
    #[param(required = false)]
    offset: u64,
    /// `lossless` when absent: a process whose output is not read waits.
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
        Common, ByGuest,
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
        ApiError::invalid("could not attach: this route speaks WebSocket")
            .hint("`GET …/output` gives the output alone")
    })?;
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    // First of all: what failed already is undone as soon as nobody reads what it had to say.
    let held = app.rollbacks.reader(&exec);
    let guest = app.engine.guest(caller.tenant(), &sandbox).await?;
    let mode = match params.mode {
        Mode::Lossless => ReadMode::Lossless,
        Mode::Lossy => ReadMode::Lossy,
    };
    let request =
        Request::Attach(Attach { exec: exec.to_string(), offset: params.offset, mode, follow: true });
    let mut connection = guest.open(&request).await?;
    let _info: ExecInfo = guest.reply(&mut connection).await?;
    let (reader, writer) = connection.split();
    let typing = Typing { actor: caller.trace().and_then(|trace| trace.told().actor), exec, noted: false };
    Ok(upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX).on_upgrade(
        move |socket| {
            // Tracked, so that shutdown waits until the client has been told.
            let tasks = app.tasks.clone();
            tasks.track_future(serve(app, guest, (reader, writer), held, typing, socket))
        },
    ))
}

async fn serve(
    app: Arc<App>,
    guest: Guest,
    (mut reader, mut writer): (GuestReader, GuestWriter),
    held: Option<rollback::Reader>,
    mut typing: Typing,
    socket: WebSocket,
) {
    let (mut sink, mut stream) = socket.split();
    let last = tokio::select! {
        last = pump_output(&app, &guest, &mut reader, held, &mut sink) => last,
        refused = pump_input(&app, &guest, &mut typing, &mut writer, &mut stream) => refused,
    };
    let Some(last) = last else { return };
    // The exec has ended: a client that is still reading keeps neither the guest busy nor the sandbox awake.
    drop((reader, writer, guest));
    let shutdown = async {
        app.draining.cancelled().await;
        tokio::time::sleep(CLOSE_PATIENCE).await;
    };
    tokio::select! {
        () = finish(&mut sink, &mut stream, last) => {}
        () = shutdown => {}
    }
}

/// For the audit log: the first input by an attachment is an event of its own, since most attachments only read.
struct Typing {
    actor: Option<Text>,
    exec: ExecId,
    noted: bool,
}

impl Typing {
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

/// Sends output until the end; the last message is left to the caller. `None`: the client is gone.
async fn pump_output(
    app: &Arc<App>,
    guest: &Guest,
    reader: &mut GuestReader,
    held: Option<rollback::Reader>,
    sink: &mut Sink,
) -> Option<AttachServerMessage> {
    let mut tails = Tails::default();
    loop {
        let frame = match next_frame(app, guest, reader).await {
            None => return Some(AttachServerMessage::Error { error: shutting_down() }),
            Some(Err(error)) => return Some(AttachServerMessage::Error { error: error.into_detail() }),
            Some(Ok(None)) => {
                return Some(AttachServerMessage::Error { error: hung_up(guest).into_detail() });
            }
            Some(Ok(Some(frame))) => frame,
        };
        let message = if let Some((stream, offset, bytes)) = convert::stream_of(&frame) {
            tails.push(stream, bytes);
            Message::Binary(Bytes::from(encode_output(stream, offset, bytes)))
        } else {
            match notice(guest, &frame) {
                Ok(AttachNotice::Gap { from, to }) => text(&AttachServerMessage::Gap { from, to })?,
                Ok(AttachNotice::Exit(info)) => {
                    let exec = convert::exec_started(&guest.sandbox().id, info);
                    let exec = with_denials(app, &guest.sandbox().tenant, exec).await;
                    let exec = rollback::last_word(app, held, exec).await;
                    let exec = Box::new(remembered(app, guest, exec, &tails).await);
                    return Some(AttachServerMessage::Exit { exec });
                }
                // We asked to follow, so there is no such end.
                Ok(AttachNotice::Drained { .. }) => {
                    return Some(AttachServerMessage::Error { error: hung_up(guest).into_detail() });
                }
                Err(error) => return Some(AttachServerMessage::Error { error: error.into_detail() }),
            }
        };
        sink.send(message).await.ok()?;
    }
}

/// Passes input on until the client is gone (`None`) or says something that makes no sense.
///
/// When the guest does not take input any more the pump only listens: the output may still be going on.
async fn pump_input(
    app: &App,
    guest: &Guest,
    typing: &mut Typing,
    writer: &mut GuestWriter,
    stream: &mut SplitStream<WebSocket>,
) -> Option<AttachServerMessage> {
    let mut open = true;
    loop {
        let sent = match stream.next().await {
            Some(Ok(Message::Binary(bytes))) if open => {
                typing.note(app, guest).await;
                send_bytes(writer, bytes).await
            }
            Some(Ok(Message::Text(json))) => match control(&json) {
                Ok(_) if !open => continue,
                Ok(Control::Close) => writer.send(&Frame::End).await,
                Ok(Control::Input(input)) => writer.send_control(&input).await,
                Err(error) => return Some(AttachServerMessage::Error { error: error.into_detail() }),
            },
            // Pings are answered by the library; input after its end has nowhere to go.
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
    let message: AttachClientMessage = super::input::parse(json.as_bytes())?;
    Ok(match message {
        AttachClientMessage::Resize { columns: 0, .. } | AttachClientMessage::Resize { rows: 0, .. } => {
            return Err(ApiError::invalid("a terminal has at least one column and one row"));
        }
        AttachClientMessage::Resize { columns, rows } => {
            Control::Input(AttachInput::Resize(TerminalSize { columns, rows }))
        }
        AttachClientMessage::Signal { signal } => {
            let signal = convert::parse_signal(&signal).ok_or_else(|| {
                ApiError::invalid("`signal` must be a signal, like `TERM`, `SIGTERM` or `15`")
            })?;
            Control::Input(AttachInput::Signal { signal })
        }
        AttachClientMessage::CloseStdin => Control::Close,
    })
}

/// The last message, a goodbye, and the client's own.
async fn finish(sink: &mut Sink, stream: &mut SplitStream<WebSocket>, last: AttachServerMessage) {
    let Some(message) = text(&last) else { return };
    let sent = tokio::time::timeout(SILENCE_MAX, sink.send(message)).await;
    if !matches!(sent, Ok(Ok(()))) {
        return;
    }
    // Also told where only the end of a WebSocket is seen, as by a proxy's log.
    let reason = match &last {
        AttachServerMessage::Error { error } => error.code.as_str(),
        AttachServerMessage::Gap { .. } | AttachServerMessage::Exit { .. } => "",
    };
    let goodbye = CloseFrame { code: close_code::NORMAL, reason: reason.into() };
    if sink.send(Message::Close(Some(goodbye))).await.is_ok() {
        // The kernel discards what a client has not read yet when a connection with unread input is closed: so read on until
        // the client has closed it.
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
    fn a_client_that_talks_nonsense_is_told_so() {
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
