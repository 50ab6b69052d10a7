//! Between a channel and an exec: input one way, output the other, sizes and signals beside them, until one of the two ends.

use std::sync::Arc;

use burrow_api::{Exec, OutputStream, SendSignal};
use burrow_client::{
    AttachEvent, AttachMode, AttachOptions, AttachSender, Attachment, ClientError, InputClosed,
};
use bytes::Bytes;
use russh::{ChannelMsg, ChannelReadHalf, Sig};

use crate::input::Input;
use crate::listing::Held;
use crate::output::{Ending, Output};
use crate::room::{Setting, size};
use crate::visit::Visit;

/// Of what a shell has said before, so much is shown again when somebody comes back to it.
const REPLAYED_BYTES: u64 = 8 << 10;

/// What becomes of an exec whose client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    GoesOn,
    /// It is hung up on.
    Ends,
}

#[derive(Debug)]
pub(crate) struct Pump {
    talk: Talk,
    attachment: Attachment,
    /// Typed before it was there.
    typed: Bytes,
}

/// The side of the client.
#[derive(Debug)]
struct Talk {
    exec: Exec,
    sender: AttachSender,
    fate: Fate,
    /// Offered to nobody else meanwhile.
    _held: Held,
}

/// Attaches to an exec, from an offset of its output on.
pub(crate) async fn to(
    visit: &Visit,
    exec: Exec,
    held: Held,
    offset: u64,
    fate: Fate,
) -> Result<Pump, ClientError> {
    let options = AttachOptions { offset, mode: AttachMode::Lossless };
    // By its own id: whoever else takes the name meanwhile is not meant.
    let (sender, attachment) = visit.client().attach(&exec.sandbox_id, &exec.id, options).await?;
    Ok(Pump { talk: Talk { exec, sender, fate, _held: held }, attachment, typed: Bytes::new() })
}

/// Back to a shell that was left open.
pub(crate) async fn back(visit: &Arc<Visit>, held: Held, setting: &Setting) -> Result<Pump, ClientError> {
    let exec = visit.client().find_exec(held.exec()).await?;
    let offset = exec.output_end.saturating_sub(REPLAYED_BYTES).max(exec.output_start);
    let pump = to(visit, exec, held, offset, Fate::GoesOn).await?;
    if let Some(now) = setting.terminal {
        // A change of size, even if there is none, has programs that draw the whole screen draw it again.
        let _ = pump.talk.sender.resize(now.columns, now.rows.saturating_sub(1).max(1)).await;
        let _ = pump.talk.sender.resize(now.columns, now.rows).await;
    }
    Ok(pump)
}

impl Pump {
    /// What comes first.
    pub(crate) fn with_input(self, typed: Bytes) -> Self {
        Self { typed, ..self }
    }

    pub(crate) async fn run(self, visit: &Visit, mut reader: ChannelReadHalf, output: &Output) -> Ending {
        let mut input = Input::new(visit.shared.input.clone());
        let mut closing = false;
        let Self { talk, mut attachment, typed } = self;
        if !typed.is_empty() && input.push(typed).is_err() {
            return talk.leave(visit).await;
        }
        loop {
            let front = input.front();
            tokio::select! {
                message = reader.wait(), if input.takes_more(output.is_waiting()) => {
                    visit.moved();
                    match talk.heard(message, &mut input).await {
                        Heard::Nothing => {}
                        Heard::End => closing = true,
                        Heard::Gone => return talk.leave(visit).await,
                        Heard::TooMuch => {
                            output.tell("the command does not read its input, and no more of it can be kept").await;
                            talk.leave(visit).await;
                            return Ending::Code(255);
                        }
                    }
                }
                sent = feed(&talk.sender, front.clone(), closing), if front.is_some() || closing => match sent {
                    Ok(()) if front.is_some() => input.pop(),
                    Ok(()) => closing = false,
                    // It reads no more; what it says may still come.
                    Err(InputClosed) => {
                        input.clear();
                        closing = false;
                    }
                },
                event = next(output, &mut attachment) => {
                    visit.moved();
                    match event {
                        Some(Ok(None)) => {}
                        Some(Ok(Some(ended))) => return ending(&ended),
                        Some(Err(error)) => return talk.lost(output, &error).await,
                        None => return talk.leave(visit).await,
                    }
                }
                () = visit.cut.cancelled() => return talk.leave(visit).await,
            }
        }
    }
}

impl Talk {
    async fn heard(&self, message: Option<ChannelMsg>, input: &mut Input) -> Heard {
        match message {
            None | Some(ChannelMsg::Close) => return Heard::Gone,
            Some(ChannelMsg::Data { data }) => {
                if input.push(data).is_err() {
                    return Heard::TooMuch;
                }
            }
            Some(ChannelMsg::Eof) => return Heard::End,
            Some(ChannelMsg::WindowChange { col_width, row_height, .. }) if self.exec.terminal => {
                let size = size(col_width, row_height);
                let _ = self.sender.resize(size.columns, size.rows).await;
            }
            Some(ChannelMsg::Signal { signal }) => {
                if let Some(name) = signal_name(&signal) {
                    let _ = self.sender.signal(name).await;
                }
            }
            // A second start was refused already; the library's list may grow.
            Some(_) => {}
        }
        Heard::Nothing
    }

    /// The client is gone.
    async fn leave(&self, visit: &Visit) -> Ending {
        if self.fate == Fate::Ends && !visit.shared.stop.is_cancelled() {
            let hang_up = SendSignal { signal: "HUP".to_owned(), group: true };
            let told = visit.client().signal_exec(&self.exec.sandbox_id, &self.exec.id, &hang_up).await;
            if let Err(error) = told {
                // Mostly it has just ended.
                tracing::debug!(exec = self.exec.id, %error, "could not hang up on an exec");
            }
        }
        Ending::Gone
    }

    /// The exec is out of reach.
    async fn lost(&self, output: &Output, error: &ClientError) -> Ending {
        let asleep = error.is_asleep();
        output.tell(&error.to_string()).await;
        if asleep {
            output.tell("what ran goes on when it is used again: log in again").await;
        }
        Ending::Code(255)
    }
}

enum Heard {
    Nothing,
    /// No more input.
    End,
    Gone,
    TooMuch,
}

/// May be dropped and called again: a piece is either taken whole or not at all.
async fn feed(sender: &AttachSender, piece: Option<Bytes>, closing: bool) -> Result<(), InputClosed> {
    match piece {
        Some(piece) => sender.stdin(piece).await,
        None if closing => sender.close_stdin().await,
        None => Ok(()),
    }
}

/// Passes on what comes next. The exec when it has ended; `None` when the client takes nothing any more.
async fn next(
    output: &Output,
    attachment: &mut Attachment,
) -> Option<Result<Option<Box<Exec>>, ClientError>> {
    let room = output.room().await?;
    let event = match attachment.next().await {
        Ok(event) => event,
        Err(error) => return Some(Err(error)),
    };
    match event {
        Some(AttachEvent::Output { stream: OutputStream::Stdout, bytes, .. }) => room.out(bytes),
        Some(AttachEvent::Output { stream: OutputStream::Stderr, bytes, .. }) => room.error(bytes),
        Some(AttachEvent::Exit(exec)) => return Some(Ok(Some(exec))),
        Some(AttachEvent::Gap { from, to }) => {
            room.error(output.note(&format!("{} bytes of output were not kept", to.saturating_sub(from))));
        }
        Some(AttachEvent::Reattached { input_in_doubt: true }) => {
            room.error(
                output.note("the connection to the command was lost for a moment; input may be missing"),
            );
        }
        Some(AttachEvent::Reattached { input_in_doubt: false }) => {}
        None => return None,
    }
    Some(Ok(None))
}

fn ending(exec: &Exec) -> Ending {
    let Some(outcome) = &exec.outcome else { return Ending::Code(255) };
    match (&outcome.signal, outcome.exit_code) {
        (Some(signal), _) => Ending::Signal(signal.strip_prefix("SIG").unwrap_or(signal).to_owned()),
        // A process's status is its lowest eight bits.
        (None, Some(code)) => Ending::Code(code.cast_unsigned() & 0xff),
        (None, None) => Ending::Code(255),
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
