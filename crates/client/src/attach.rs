//! An attachment to an exec: its output as it comes, its input, and a new connection when one is lost.
//!
//! ```text
//!  AttachSender ──bounded queue──► Attachment ◄──WebSocket──► daemon
//!   (stdin, resize, signal)            │
//!                                      ▼ next()
//!                         Output · Gap · Reattached · Exit
//! ```
//!
//! Invariants: every byte of output is handed out at most once and in order; bytes are missed only where a `Gap`
//! says so. Input is different: what was under way when a connection broke may or may not have arrived. A ping follows
//! the input, and the daemon reads it only when it has handed on all that came before, so its pong is a receipt;
//! `Reattached` says whether any was missing. A sandbox that was put to sleep ends its attachments for good, since a new
//! connection would wake it. [`Attachment::next`] may be dropped and called again at any time.
//! Reading and writing go on side by side in it, since a process that echoes its input would otherwise deadlock with us.

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

use crate::client::innermost;
use crate::execs::exec_path;
use crate::receipts::Receipts;
use crate::websocket::Socket;
use crate::{Client, ClientError};

/// Attempts to attach again before giving up: with the pauses below about a minute, longer than a daemon's restart.
const REATTACHES_MAX: u32 = 60;
const REATTACH_PAUSE_FIRST: Duration = Duration::from_millis(50);
const REATTACH_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A connection that answers no ping for three of these is taken as dead: a cable was pulled, a NAT forgot us.
const HEARTBEAT: Duration = Duration::from_secs(20);
const SILENT_HEARTBEATS_MAX: u32 = 3;
/// Messages queued for the daemon, and the largest one: the daemon refuses more than 1 MiB.
const INPUT_QUEUE: usize = 16;
const INPUT_BYTES_MAX: usize = 256 << 10;

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// First byte of output wanted; 0 replays all that is still held.
    pub offset: u64,
    pub mode: AttachMode,
}

/// What happens to a process whose output is read too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// It waits, as at the end of a pipe.
    Lossless,
    /// It goes on, and the reader is told of a gap.
    Lossy,
}

/// What comes from an exec.
#[derive(Clone, Debug, PartialEq)]
pub enum AttachEvent {
    Output {
        stream: OutputStream,
        offset: u64,
        bytes: Bytes,
    },
    /// Bytes `from..to` are gone from the ring.
    Gap {
        from: u64,
        to: u64,
    },
    /// The connection was lost and made again. `input_in_doubt`: standard input was on its way, and may not have
    /// arrived.
    Reattached {
        input_in_doubt: bool,
    },
    /// The exec ended; nothing follows.
    Exit(Box<Exec>),
}

/// The exec is gone, so its input goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the exec takes no more input")]
pub struct InputClosed;

#[derive(Clone, Debug)]
enum Input {
    Stdin(Bytes),
    CloseStdin,
    Resize { columns: u16, rows: u16 },
    Signal(String),
}

/// The writing side; clones feed the same exec.
#[derive(Clone, Debug)]
pub struct AttachSender {
    queue: mpsc::Sender<Input>,
}

impl AttachSender {
    /// Waits while the exec does not read.
    pub async fn stdin(&self, bytes: impl Into<Bytes>) -> Result<(), InputClosed> {
        let mut rest = bytes.into();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(INPUT_BYTES_MAX));
            self.put(Input::Stdin(piece)).await?;
        }
        Ok(())
    }

    pub async fn close_stdin(&self) -> Result<(), InputClosed> {
        self.put(Input::CloseStdin).await
    }

    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), InputClosed> {
        self.put(Input::Resize { columns, rows }).await
    }

    /// `INT`, `SIGTERM` or `9`, to the exec's process group.
    pub async fn signal(&self, signal: &str) -> Result<(), InputClosed> {
        self.put(Input::Signal(signal.to_owned())).await
    }

    async fn put(&self, input: Input) -> Result<(), InputClosed> {
        self.queue.send(input).await.map_err(|_| InputClosed)
    }
}

/// The reading side. It also carries the input, so it must be driven by calling [`Attachment::next`].
#[derive(Debug)]
pub struct Attachment {
    client: Client,
    sandbox: String,
    exec: String,
    mode: AttachMode,
    /// `None` while a lost connection is being made again.
    socket: Option<Socket>,
    /// One past the last byte handed out.
    offset: u64,
    queue: mpsc::Receiver<Input>,
    queue_open: bool,
    /// Taken from the queue, not yet by the socket; at most one message of input, a ping, and what a new connection
    /// is told.
    pending: VecDeque<Message>,
    unflushed: bool,
    /// The connection takes no more input. What the daemon sent before is still read from it, the exit above all.
    write_failed: bool,
    heartbeat: Interval,
    silent_heartbeats: u32,
    failures: u32,
    /// What a new connection must be told again.
    size: Option<(u16, u16)>,
    stdin_closed: bool,
    receipts: Receipts,
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
        // Time during which nobody called `next` says nothing about the connection.
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
            receipts: Receipts::default(),
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
    /// What comes next; `None` after `Exit`.
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
                .and_then(|message| self.take(message))
            {
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(error) if error.is_transient() => self.lose(),
                Err(error) => {
                    self.finished = true;
                    return Err(error);
                }
            }
        }
    }

    /// One past the last byte handed out: where another attachment would go on.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn lose(&mut self) {
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
                        return Ok(AttachEvent::Reattached { input_in_doubt: self.tell_again() });
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

    /// Queues what the new connection must know in front of everything else. Answers whether input may be lost.
    fn tell_again(&mut self) -> bool {
        let input_in_doubt = self.receipts.start_over();
        self.pending.retain(|message| !matches!(message, Message::Ping(_)));
        if let Some((columns, rows)) = self.size {
            self.pending.push_front(text(&AttachClientMessage::Resize { columns, rows }));
        }
        // Once this was taken from the queue no input can wait behind it, so it may go first. One that has its receipt
        // is not told again: it would overtake input that the guest still holds from the lost connection.
        if self.stdin_closed && input_in_doubt {
            self.pending.push_front(text(&AttachClientMessage::CloseStdin));
        }
        input_in_doubt
    }

    fn poll_message(&mut self, ctx: &mut Context<'_>) -> Poll<Result<Message, ClientError>> {
        while self.heartbeat.poll_tick(ctx).is_ready() {
            // A process that does not read its input keeps the daemon from reading our pings, and is no fault.
            let expects_pong = self.write_failed || self.receipts.all_arrived();
            self.silent_heartbeats = if expects_pong { self.silent_heartbeats + 1 } else { 0 };
            if self.silent_heartbeats > SILENT_HEARTBEATS_MAX {
                return Poll::Ready(Err(self.broken("the daemon answers no ping".into())));
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

    /// Moves input from the queue to the socket as far as both are ready.
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
                self.pending.extend(self.receipts.ask());
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
                self.receipts.count(bytes.len());
                Message::Binary(bytes)
            }
            Input::CloseStdin => {
                self.stdin_closed = true;
                self.receipts.count(1);
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
    fn take(&mut self, message: Message) -> Result<Option<AttachEvent>, ClientError> {
        match message {
            Message::Binary(bytes) => self.take_output(&bytes),
            Message::Text(text) => {
                let message = serde_json::from_str(&text).map_err(|source| ClientError::Decode {
                    method: http::Method::GET,
                    path: exec_path(&self.sandbox, &self.exec).fixed("attach").shown(),
                    source,
                })?;
                self.take_notice(message)
            }
            Message::Close(Some(frame)) if frame.reason.as_str() == ErrorCode::SandboxAsleep.as_str() => {
                Err(ClientError::refused(self.asleep()))
            }
            Message::Close(_) => Err(self.broken("the daemon closed the connection".into())),
            Message::Pong(bytes) => {
                self.receipts.take(&bytes);
                Ok(None)
            }
            Message::Ping(_) | Message::Frame(_) => Ok(None),
        }
    }

    fn take_output(&mut self, message: &Bytes) -> Result<Option<AttachEvent>, ClientError> {
        let Some((stream, offset, bytes)) = decode_output(message) else {
            return Err(self.broken("the daemon sent a message that is no output".into()));
        };
        self.failures = 0;
        // After a new attachment the first piece may begin before the byte we asked for.
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

    fn take_notice(&mut self, message: AttachServerMessage) -> Result<Option<AttachEvent>, ClientError> {
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

    /// Attaching again would wake it at once, against the will of whoever put it to sleep: so it is an error.
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
    Message::text(serde_json::to_string(message).expect("our own message is JSON"))
}
