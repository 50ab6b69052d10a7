//! Connects a channel to an exec: input one way, output the other, terminal sizes and signals beside them, until either ends.

use std::sync::Arc;

use burrow_api::{Exec, OutputStream, SendSignal};
use burrow_client::{
    AttachEvent, AttachMode, AttachOptions, AttachSender, Attachment, ClientError, InputClosed,
};
use bytes::Bytes;
use russh::{ChannelMsg, ChannelReadHalf, Sig};

use crate::attached_execs::ExecGuard;
use crate::connection::Connection;
use crate::input::Input;
use crate::output::{ChannelEnd, Output};
use crate::session_channel::{SessionSettings, size};

/// Bytes of earlier output that are shown when a client returns to a shell.
const REPLAYED_BYTES: u64 = 8 << 10;

/// Whether an exec continues when its client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    Continue,
    /// It receives `SIGHUP`.
    HangUp,
}

#[derive(Debug)]
pub(crate) struct Pump {
    exec_link: ExecLink,
    attachment: Attachment,
    /// Input that was typed before the exec was attached.
    typed: Bytes,
}

/// The connection to the exec.
#[derive(Debug)]
struct ExecLink {
    exec: Exec,
    sender: AttachSender,
    on_disconnect: OnDisconnect,
    /// Keeps the exec from being offered to another login.
    _guard: ExecGuard,
}

/// Attaches to an exec at an offset of its output.
pub(crate) async fn attach(
    connection: &Connection,
    exec: Exec,
    guard: ExecGuard,
    offset: u64,
    on_disconnect: OnDisconnect,
) -> Result<Pump, ClientError> {
    let options = AttachOptions { offset, mode: AttachMode::Lossless };
    // By its id: another sandbox may take over the name in the meantime.
    let (sender, attachment) = connection.client().attach(&exec.sandbox_id, &exec.id, options).await?;
    Ok(Pump {
        exec_link: ExecLink { exec, sender, on_disconnect, _guard: guard },
        attachment,
        typed: Bytes::new(),
    })
}

/// Attaches to a shell that was left running.
pub(crate) async fn reattach(
    connection: &Arc<Connection>,
    guard: ExecGuard,
    settings: &SessionSettings,
) -> Result<Pump, ClientError> {
    let exec = connection.client().find_exec(guard.exec()).await?;
    let offset = exec.output_end.saturating_sub(REPLAYED_BYTES).max(exec.output_start);
    let pump = attach(connection, exec, guard, offset, OnDisconnect::Continue).await?;
    if let Some(now) = settings.terminal {
        // Programs that use the whole screen redraw it after a change of size, even one that is undone at once.
        let _ = pump.exec_link.sender.resize(now.columns, now.rows.saturating_sub(1).max(1)).await;
        let _ = pump.exec_link.sender.resize(now.columns, now.rows).await;
    }
    Ok(pump)
}

impl Pump {
    /// Sends this input first.
    pub(crate) fn with_input(self, typed: Bytes) -> Self {
        Self { typed, ..self }
    }

    pub(crate) async fn run(
        self,
        connection: &Connection,
        mut reader: ChannelReadHalf,
        output: &Output,
    ) -> ChannelEnd {
        let mut input = Input::new(connection.shared.input.clone());
        let mut closing = false;
        let Self { exec_link, mut attachment, typed } = self;
        if !typed.is_empty() && input.push(typed).is_err() {
            return exec_link.disconnect(connection).await;
        }
        loop {
            let front = input.front();
            tokio::select! {
                message = reader.wait(), if input.takes_more(output.is_waiting()) => {
                    connection.record_activity();
                    match exec_link.handle(message, &mut input).await {
                        ClientEvent::Nothing => {}
                        ClientEvent::End => closing = true,
                        ClientEvent::Gone => return exec_link.disconnect(connection).await,
                        ClientEvent::TooMuch => {
                            output.print_note("the command does not read its input, and the input buffer is full").await;
                            exec_link.disconnect(connection).await;
                            return ChannelEnd::Code(255);
                        }
                    }
                }
                sent = send_input(&exec_link.sender, front.clone(), closing), if front.is_some() || closing => match sent {
                    Ok(()) if front.is_some() => input.pop(),
                    Ok(()) => closing = false,
                    // It reads no more input; output may still follow.
                    Err(InputClosed) => {
                        input.clear();
                        closing = false;
                    }
                },
                event = forward_next(output, &mut attachment) => {
                    connection.record_activity();
                    match event {
                        Some(Ok(None)) => {}
                        Some(Ok(Some(ended))) => return ending(&ended),
                        Some(Err(error)) => return exec_link.report_lost(output, &error).await,
                        None => return exec_link.disconnect(connection).await,
                    }
                }
                () = connection.cancel.cancelled() => return exec_link.disconnect(connection).await,
            }
        }
    }
}

impl ExecLink {
    async fn handle(&self, message: Option<ChannelMsg>, input: &mut Input) -> ClientEvent {
        match message {
            None | Some(ChannelMsg::Close) => return ClientEvent::Gone,
            Some(ChannelMsg::Data { data }) => {
                if input.push(data).is_err() {
                    return ClientEvent::TooMuch;
                }
            }
            Some(ChannelMsg::Eof) => return ClientEvent::End,
            Some(ChannelMsg::WindowChange { col_width, row_height, .. }) if self.exec.terminal => {
                let size = size(col_width, row_height);
                let _ = self.sender.resize(size.columns, size.rows).await;
            }
            Some(ChannelMsg::Signal { signal }) => {
                if let Some(name) = signal_name(&signal) {
                    let _ = self.sender.signal(name).await;
                }
            }
            // A second start was refused already; the other messages do not apply, and the library's list may grow.
            Some(_) => {}
        }
        ClientEvent::Nothing
    }

    /// The client has disconnected.
    async fn disconnect(&self, connection: &Connection) -> ChannelEnd {
        if self.on_disconnect == OnDisconnect::HangUp && !connection.shared.stop.is_cancelled() {
            let hang_up = SendSignal { signal: "HUP".to_owned(), group: true };
            let sent = connection.client().signal_exec(&self.exec.sandbox_id, &self.exec.id, &hang_up).await;
            if let Err(error) = sent {
                // Usually because it has just ended.
                tracing::debug!(exec = self.exec.id, %error, "could not send SIGHUP to an exec");
            }
        }
        ChannelEnd::Gone
    }

    /// The connection to the exec failed.
    async fn report_lost(&self, output: &Output, error: &ClientError) -> ChannelEnd {
        let asleep = error.is_asleep();
        output.print_note(&error.to_string()).await;
        if asleep {
            output.print_note("the sandbox was put to sleep and resumes at its next use: log in again").await;
        }
        ChannelEnd::Code(255)
    }
}

enum ClientEvent {
    Nothing,
    /// End of input.
    End,
    Gone,
    TooMuch,
}

/// May be dropped and called again: a piece is sent as a whole or not at all.
async fn send_input(sender: &AttachSender, piece: Option<Bytes>, closing: bool) -> Result<(), InputClosed> {
    match piece {
        Some(piece) => sender.stdin(piece).await,
        None if closing => sender.close_stdin().await,
        None => Ok(()),
    }
}

/// Forwards the next event. Returns the exec when it has ended, and `None` when the client reads nothing any more.
async fn forward_next(
    output: &Output,
    attachment: &mut Attachment,
) -> Option<Result<Option<Box<Exec>>, ClientError>> {
    let permit = output.reserve().await?;
    let event = match attachment.next().await {
        Ok(event) => event,
        Err(error) => return Some(Err(error)),
    };
    match event {
        Some(AttachEvent::Output { stream: OutputStream::Stdout, bytes, .. }) => permit.out(bytes),
        Some(AttachEvent::Output { stream: OutputStream::Stderr, bytes, .. }) => permit.error(bytes),
        Some(AttachEvent::Exit(exec)) => return Some(Ok(Some(exec))),
        Some(AttachEvent::Gap { from, to }) => {
            permit.error(output.note(&format!("{} bytes of output were discarded", to.saturating_sub(from))));
        }
        Some(AttachEvent::Reattached { input_in_doubt: true }) => {
            permit.error(
                output.note("the connection to the command was lost for a moment; input may be missing"),
            );
        }
        Some(AttachEvent::Reattached { input_in_doubt: false }) => {}
        None => return None,
    }
    Some(Ok(None))
}

fn ending(exec: &Exec) -> ChannelEnd {
    let Some(outcome) = &exec.outcome else { return ChannelEnd::Code(255) };
    match (&outcome.signal, outcome.exit_code) {
        (Some(signal), _) => ChannelEnd::Signal(signal.strip_prefix("SIG").unwrap_or(signal).to_owned()),
        // An exit status has eight bits.
        (None, Some(code)) => ChannelEnd::Code(code.cast_unsigned() & 0xff),
        (None, None) => ChannelEnd::Code(255),
    }
}

fn signal_name(signal: &Sig) -> Option<&str> {
    Some(match signal {
        Sig::ABRT => "ABRT",
        Sig::ALRM => "ALRM",
        Sig::FPE => "FPE",
        Sig::HUP => "HUP",
        Sig::ILL => "ILL",
        Sig::INT => "INT",
        Sig::KILL => "KILL",
        Sig::PIPE => "PIPE",
        Sig::QUIT => "QUIT",
        Sig::SEGV => "SEGV",
        Sig::TERM => "TERM",
        Sig::USR1 => "USR1",
        Sig::Custom(name) => match name.as_str() {
            "USR2" | "STOP" | "TSTP" | "CONT" | "WINCH" => name,
            _ => return None,
        },
    })
}
