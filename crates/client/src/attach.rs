//! Attaches to an exec: streams its output and its input, and reconnects when the connection is lost.
//!
//! ```text
//!  AttachSender ──bounded queue──► Attachment ◄──WebSocket──► daemon
//!   (stdin, resize, signal)            │
//!                                      ▼ next()
//!                         Output · Gap · Reattached · Exit
//! ```
//!
//! Invariants: every byte of output is delivered at most once and in order; missing bytes are always reported by a `Gap`.
//! Input is different: if the connection is lost, input in transit may or may not have arrived. A ping follows the
//! input, and the daemon reads it only after it has forwarded everything before it, so the pong acknowledges the input;
//! `Reattached` says whether any input was not acknowledged. If the sandbox is put to sleep, the attachment ends for good,
//! because a new connection would wake it. [`Attachment::next`] may be dropped and called again at any time. It reads and
//! writes concurrently, because a process that echoes its input would otherwise deadlock with the client.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use burrow_api::{
    AttachClientMessage, AttachServerMessage, ErrorCode, ErrorDetail, Exec, OutputStream, decode_output,
};
use bytes::Bytes;
use futures_util::{Sink, Stream};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::Message;

use crate::acks::InputAcks;
use crate::client::innermost;
use crate::execs::exec_path;
use crate::websocket::Socket;
use crate::{Client, ClientError};

/// Attempts to reattach; with the pauses below about a minute, longer than a restart of the daemon.
const REATTACHES_MAX: u32 = 60;
const REATTACH_PAUSE_FIRST: Duration = Duration::from_millis(50);
const REATTACH_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A connection that does not answer pings for three of these counts as dead: a cable was pulled, or a NAT lost its state.
const HEARTBEAT: Duration = Duration::from_secs(20);
const SILENT_HEARTBEATS_MAX: u32 = 3;
/// The input queue, and the largest message: the daemon refuses more than 1 MiB.
const INPUT_QUEUE: usize = 16;
const INPUT_BYTES_MAX: usize = 256 << 10;

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Offset of the first byte of output; 0 replays all output that is still stored.
    pub offset: u64,
    pub mode: AttachMode,
}

/// What happens to a process whose output is read too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// It blocks, as when it writes to a full pipe.
    Lossless,
    /// It continues, and the reader receives a gap.
    Lossy,
}

/// An event of an exec.
#[derive(Clone, Debug, PartialEq)]
pub enum AttachEvent {
    Output {
        stream: OutputStream,
        offset: u64,
        bytes: Bytes,
    },
    /// Bytes `from..to` were overwritten in the ring buffer.
    Gap {
        from: u64,
        to: u64,
    },
    /// The connection was lost and restored. `input_in_doubt`: standard input was in transit and may not have arrived.
    Reattached {
        input_in_doubt: bool,
    },
    /// The exec ended; this is the last event.
    Exit(Box<Exec>),
}

/// The exec has ended or the attachment was dropped, so the input cannot be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the exec accepts no more input")]
pub struct InputClosed;

#[derive(Clone, Debug)]
enum Input {
    Stdin(Bytes),
    CloseStdin,
    Resize { columns: u16, rows: u16 },
    Signal(String),
}

/// The writing side. Clones write to the same exec.
#[derive(Clone, Debug)]
pub struct AttachSender {
    queue: mpsc::Sender<Input>,
}

impl AttachSender {
    /// Waits while the exec does not read its input.
    pub async fn stdin(&self, bytes: impl Into<Bytes>) -> Result<(), InputClosed> {
        let mut rest = bytes.into();
        while !rest.is_empty() {
            let part = rest.split_to(rest.len().min(INPUT_BYTES_MAX));
            self.enqueue(Input::Stdin(part)).await?;
        }
        Ok(())
    }

    pub async fn close_stdin(&self) -> Result<(), InputClosed> {
        self.enqueue(Input::CloseStdin).await
    }

    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), InputClosed> {
        self.enqueue(Input::Resize { columns, rows }).await
    }

    /// `INT`, `SIGTERM` or `9`, to the exec's process group.
    pub async fn signal(&self, signal: &str) -> Result<(), InputClosed> {
        self.enqueue(Input::Signal(signal.to_owned())).await
    }

    async fn enqueue(&self, input: Input) -> Result<(), InputClosed> {
        self.queue.send(input).await.map_err(|_| InputClosed)
    }
}

/// The reading side. It also transmits the input, so the caller has to call [`Attachment::next`] continuously.
#[derive(Debug)]
pub struct Attachment {
    client: Client,
    sandbox: String,
    exec: String,
    mode: AttachMode,
    /// `None` while the connection is being restored.
    socket: Option<Socket>,
    /// Offset after the last delivered byte.
    offset: u64,
    queue: mpsc::Receiver<Input>,
    queue_open: bool,
    /// Messages taken from the queue and not yet written to the socket: at most one message of input, a ping, and the state
    /// for a new connection.
    pending: VecDeque<Message>,
    unflushed: bool,
    /// Writing failed. What the daemon sent before is still read, above all the exit.
    write_failed: bool,
    heartbeat: Interval,
    silent_heartbeats: u32,
    failures: u32,
    /// State that is sent again on a new connection.
    size: Option<(u16, u16)>,
    stdin_closed: bool,
    acks: InputAcks,
    finished: bool,
}

impl Client {
    pub async fn attach(
        &self,
        sandbox: &str,
        exec: &str,
        options: AttachOptions,
    ) -> Result<(AttachSender, Attachment), ClientError> {
        let socket = self.attach_socket(sandbox, exec, options.offset, options.mode).await?;
        let (sender, queue) = mpsc::channel(INPUT_QUEUE);
        let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
        // Time in which the caller did not call `next` says nothing about the connection.
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let attachment = Attachment {
            client: self.clone(),
            sandbox: sandbox.to_owned(),
            exec: exec.to_owned(),
            mode: options.mode,
            socket: Some(socket),
            offset: options.offset,
            queue,
            queue_open: true,
            pending: VecDeque::new(),
            unflushed: false,
            write_failed: false,
            heartbeat,
            silent_heartbeats: 0,
            failures: 0,
            size: None,
            stdin_closed: false,
            acks: InputAcks::default(),
            finished: false,
        };
        Ok((AttachSender { queue: sender }, attachment))
    }

    async fn attach_socket(
        &self,
        sandbox: &str,
        exec: &str,
        offset: u64,
        mode: AttachMode,
    ) -> Result<Socket, ClientError> {
        let mode = match mode {
            AttachMode::Lossless => "lossless",
            AttachMode::Lossy => "lossy",
        };
        let path =
            exec_path(sandbox, exec).fixed("attach").query("offset", &offset.to_string()).query("mode", mode);
        self.websocket(path).await
    }
}

impl Attachment {
    /// The next event; `None` after `Exit`.
    pub async fn next(&mut self) -> Result<Option<AttachEvent>, ClientError> {
        loop {
            if self.finished {
                return Ok(None);
            }
            if self.socket.is_none() {
                return self.reattach().await.map(Some);
            }
            match std::future::poll_fn(|ctx| self.poll_message(ctx))
                .await
                .and_then(|message| self.event(message))
            {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(error) if error.is_transient() => self.disconnect(),
                Err(error) => {
                    self.finished = true;
                    return Err(error);
                }
            }
        }
    }

    /// Offset after the last delivered byte, where another attachment would continue.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn disconnect(&mut self) {
        self.socket = None;
        self.silent_heartbeats = 0;
        self.unflushed = false;
        self.write_failed = false;
    }

    async fn reattach(&mut self) -> Result<AttachEvent, ClientError> {
        loop {
            let pause = REATTACH_PAUSE_FIRST * 2u32.pow(self.failures.min(10));
            tokio::time::sleep(pause.min(REATTACH_PAUSE_MAX)).await;
            let error =
                match self.client.attach_socket(&self.sandbox, &self.exec, self.offset, self.mode).await {
                    Ok(socket) => {
                        self.socket = Some(socket);
                        // Counted as a failure until output proves that this connection works.
                        self.failures += 1;
                        self.heartbeat.reset();
                        return Ok(AttachEvent::Reattached { input_in_doubt: self.restore_state() });
                    }
                    Err(error) => error,
                };
            self.failures += 1;
            if !error.is_transient() || self.failures > REATTACHES_MAX {
                self.finished = true;
                return Err(ClientError::AttachLost {
                    sandbox: self.sandbox.clone(),
                    exec: self.exec.clone(),
                    attempts: self.failures,
                    source: Box::new(error),
                });
            }
        }
    }

    /// Queues the state for the new connection in front of everything else. Returns whether input may be lost.
    fn restore_state(&mut self) -> bool {
        let input_in_doubt = self.acks.reset();
        self.pending.retain(|message| !matches!(message, Message::Ping(_)));
        if let Some((columns, rows)) = self.size {
            self.pending.push_front(text(&AttachClientMessage::Resize { columns, rows }));
        }
        // No input can follow the end of input in the queue, so it may be sent first. An acknowledged end is not sent again:
        // it would overtake input from the lost connection that the guest still holds.
        if self.stdin_closed && input_in_doubt {
            self.pending.push_front(text(&AttachClientMessage::CloseStdin));
        }
        input_in_doubt
    }

    fn poll_message(&mut self, ctx: &mut Context<'_>) -> Poll<Result<Message, ClientError>> {
        while self.heartbeat.poll_tick(ctx).is_ready() {
            // A process that does not read its input keeps the daemon from reading pings, which is not an error.
            let expects_pong = self.write_failed || self.acks.all_arrived();
            self.silent_heartbeats = if expects_pong { self.silent_heartbeats + 1 } else { 0 };
            if self.silent_heartbeats > SILENT_HEARTBEATS_MAX {
                return Poll::Ready(Err(self.broken("the daemon does not answer pings".into())));
            }
            if self.pending.is_empty() {
                self.pending.push_back(Message::Ping(Bytes::new()));
            }
        }
        self.write_failed = self.write_failed || self.poll_input(ctx).is_err();
        let socket = self.socket.as_mut().expect("the caller checked for a socket");
        match std::task::ready!(Pin::new(socket).poll_next(ctx)) {
            Some(Ok(message)) => {
                self.silent_heartbeats = 0;
                Poll::Ready(Ok(message))
            }
            Some(Err(error)) => Poll::Ready(Err(self.broken(innermost(&error)))),
            None => Poll::Ready(Err(self.broken("the daemon closed the connection".into()))),
        }
    }

    /// Moves input from the queue to the socket while both are ready.
    fn poll_input(&mut self, ctx: &mut Context<'_>) -> Result<(), SocketError> {
        loop {
            if self.pending.is_empty() && self.queue_open {
                match self.queue.poll_recv(ctx) {
                    Poll::Ready(Some(input)) => {
                        let message = self.message(input);
                        self.pending.push_back(message);
                    }
                    Poll::Ready(None) => self.queue_open = false,
                    Poll::Pending => {}
                }
            }
            if self.pending.is_empty() {
                self.pending.extend(self.acks.next_ping());
            }
            let mut socket = Pin::new(self.socket.as_mut().expect("the caller checked for a socket"));
            if self.pending.is_empty() {
                break;
            }
            match socket.as_mut().poll_ready(ctx)? {
                Poll::Pending => return Ok(()),
                Poll::Ready(()) => {
                    let message = self.pending.pop_front().expect("it is not empty");
                    socket.start_send(message)?;
                    self.unflushed = true;
                }
            }
        }
        if self.unflushed {
            let socket = Pin::new(self.socket.as_mut().expect("the caller checked for a socket"));
            self.unflushed = socket.poll_flush(ctx)?.is_pending();
        }
        Ok(())
    }

    fn message(&mut self, input: Input) -> Message {
        match input {
            Input::Stdin(bytes) => {
                self.acks.sent(bytes.len());
                Message::Binary(bytes)
            }
            Input::CloseStdin => {
                self.stdin_closed = true;
                self.acks.sent(1);
                text(&AttachClientMessage::CloseStdin)
            }
            Input::Resize { columns, rows } => {
                self.size = Some((columns, rows));
                text(&AttachClientMessage::Resize { columns, rows })
            }
            Input::Signal(signal) => text(&AttachClientMessage::Signal { signal }),
        }
    }

    /// Turns a message into an event; `None` for those that only keep the connection alive.
    fn event(&mut self, message: Message) -> Result<Option<AttachEvent>, ClientError> {
        match message {
            Message::Binary(bytes) => self.output_event(&bytes),
            Message::Text(text) => {
                let message = serde_json::from_str(&text).map_err(|source| ClientError::Decode {
                    method: http::Method::GET,
                    path: exec_path(&self.sandbox, &self.exec).fixed("attach").shown(),
                    source,
                })?;
                self.notice_event(message)
            }
            Message::Close(Some(frame)) if frame.reason.as_str() == ErrorCode::SandboxAsleep.as_str() => {
                Err(ClientError::refused(self.asleep()))
            }
            Message::Close(_) => Err(self.broken("the daemon closed the connection".into())),
            Message::Pong(bytes) => {
                self.acks.pong(&bytes);
                Ok(None)
            }
            Message::Ping(_) | Message::Frame(_) => Ok(None),
        }
    }

    fn output_event(&mut self, message: &Bytes) -> Result<Option<AttachEvent>, ClientError> {
        let Some((stream, offset, bytes)) = decode_output(message) else {
            return Err(self.broken("the daemon sent an invalid output message".into()));
        };
        self.failures = 0;
        // After reattaching, the first message may begin before the requested byte.
        let known =
            usize::try_from(self.offset.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let fresh = message.slice_ref(&bytes[known..]);
        if fresh.is_empty() {
            return Ok(None);
        }
        let offset = offset + known as u64;
        self.offset = offset + fresh.len() as u64;
        Ok(Some(AttachEvent::Output { stream, offset, bytes: fresh }))
    }

    fn notice_event(&mut self, message: AttachServerMessage) -> Result<Option<AttachEvent>, ClientError> {
        match message {
            AttachServerMessage::Gap { from, to } => {
                self.offset = self.offset.max(to);
                Ok(Some(AttachEvent::Gap { from, to }))
            }
            AttachServerMessage::Exit { exec } => {
                self.finished = true;
                Ok(Some(AttachEvent::Exit(exec)))
            }
            AttachServerMessage::Error { error } => Err(ClientError::refused(error)),
        }
    }

    /// Reattaching would wake the sandbox at once, against the intention of the client that put it to sleep: an error.
    fn asleep(&self) -> ErrorDetail {
        ErrorDetail {
            code: ErrorCode::SandboxAsleep,
            message: format!("sandbox `{}` was put to sleep", self.sandbox),
            hint: None,
        }
    }

    fn broken(&self, source: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
        ClientError::Stream { path: exec_path(&self.sandbox, &self.exec).fixed("attach").shown(), source }
    }
}

fn text(message: &AttachClientMessage) -> Message {
    Message::text(serde_json::to_string(message).expect("the message can be encoded"))
}
