//! Parses an intercepted HTTP/1 connection before the server does, and withholds ambiguous requests from it (E-T6),
//! because the server behind accepts some of them.
//!
//! ```text
//! bytes ──► framer ──┬── a head, a body ──► server
//!                    ├── a head that asks for another protocol ──► server; what follows waits for the answer (E-T8)
//!                    └── malformed ──► a substitute request with the reason, then end of stream
//! ```

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http_head::{Framer, FramerStep, HeadError};

/// Size of one read.
const PIECE: usize = 16 * 1024;

/// The header of the request that replaces a malformed one.
const MALFORMED: &str = "x-burrow-malformed";

/// Shared by the guard of a connection and the service that answers its requests.
#[derive(Debug)]
pub(super) struct Gate {
    /// Unknown to the program, so it cannot forge substitute requests.
    token: String,
    open: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Gate {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(io::Error::other)?;
        let token = data_encoding::HEXLOWER.encode(&token);
        Ok(Arc::new(Self { token, open: AtomicBool::new(false), waiting: Mutex::new(None) }))
    }

    /// Called when the host has agreed to switch protocols: the following data is not HTTP.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// The error of the malformed request that this request replaces, if it is a substitute.
    pub(super) fn malformed(&self, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        let text = headers.get(MALFORMED)?.to_str().ok()?.strip_prefix(&self.token)?;
        let (status, what) = text.trim_start().split_once(' ')?;
        Some((status.parse().ok()?, what.to_owned()))
    }

    fn stand_in(&self, error: HeadError) -> Vec<u8> {
        let status = error.status();
        format!(
            "GET / HTTP/1.1\r\nhost: malformed.invalid\r\nconnection: close\r\n{MALFORMED}: {} {status} {error}\r\n\r\n",
            self.token
        )
        .into_bytes()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Framing,
    /// Waits until the gate opens.
    Waiting,
    /// Bytes of another protocol.
    Open,
    /// Nothing more is read.
    Ended,
}

/// A stream that passes only well-formed requests on.
#[derive(Debug)]
pub(super) struct Guard<S> {
    inner: S,
    gate: Arc<Gate>,
    framer: Framer,
    state: State,
    /// Received bytes that were not checked yet.
    buffer: Vec<u8>,
    /// How many bytes at the front of `buffer` may be read.
    passed: usize,
}

impl<S> Guard<S> {
    pub(super) fn new(inner: S, gate: Arc<Gate>) -> Self {
        Self { inner, gate, framer: Framer::new(), state: State::Framing, buffer: Vec::new(), passed: 0 }
    }

    /// Checks received bytes; `true` if some may be read.
    fn frame(&mut self) -> io::Result<bool> {
        match self.framer.next(&self.buffer) {
            Ok(FramerStep::Head(head, length)) => {
                self.passed = length;
                if head.upgrade.is_some() {
                    self.state = State::Waiting;
                }
                Ok(true)
            }
            Ok(FramerStep::Pass(count)) => {
                self.passed = count;
                Ok(true)
            }
            Ok(FramerStep::NeedMore) => Ok(false),
            Err(error) if self.framer.is_between_requests() => {
                self.buffer = self.gate.stand_in(error);
                self.passed = self.buffer.len();
                self.state = State::Ended;
                Ok(true)
            }
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    fn give(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.passed.min(into.remaining());
        into.put_slice(&self.buffer[..count]);
        self.buffer.drain(..count);
        self.passed -= count;
        if self.buffer.is_empty() {
            // An idle connection keeps no buffer.
            self.buffer = Vec::new();
        }
    }

    fn wait(&mut self, cx: &Context<'_>) -> bool {
        let mut waiting = self.gate.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.gate.open.load(Ordering::Acquire);
        *waiting = (!open).then(|| cx.waker().clone());
        if open {
            self.state = State::Open;
            self.passed = self.buffer.len();
        }
        open
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.passed > 0 {
                this.give(into);
                return Poll::Ready(Ok(()));
            }
            match this.state {
                State::Framing => {
                    if !this.buffer.is_empty() && this.frame()? {
                        continue;
                    }
                }
                State::Waiting => {
                    if this.wait(cx) {
                        continue;
                    }
                    return Poll::Pending;
                }
                State::Open => return Pin::new(&mut this.inner).poll_read(cx, into),
                State::Ended => return Poll::Ready(Ok(())),
            }
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                this.state = State::Ended;
            }
            this.buffer.extend_from_slice(piece.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn read_all(sent: &[u8]) -> (Vec<u8>, Arc<Gate>) {
        let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
        let gate = Gate::new().unwrap();
        let mut guard = Guard::new(theirs, Arc::clone(&gate));
        ours.write_all(sent).await.unwrap();
        drop(ours);
        let mut seen = Vec::new();
        guard.read_to_end(&mut seen).await.unwrap();
        (seen, gate)
    }

    #[tokio::test]
    async fn well_formed_requests_pass_unchanged() {
        let sent = b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: a.example\r\n\r\n";
        assert_eq!(read_all(sent).await.0, sent);
    }

    #[tokio::test]
    async fn e_t6_ambiguous_requests_are_replaced_by_a_refusal() {
        for sent in [
            &b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"[..],
            b"GET / HTTP/1.1\nHost: a\n\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        ] {
            let (seen, gate) = read_all(sent).await;
            let text = String::from_utf8(seen).unwrap();
            assert!(text.contains(MALFORMED) && text.contains(&gate.token) && text.contains(" 400 "), "{text}");
        }
    }

    #[tokio::test]
    async fn e_t8_data_after_an_upgrade_waits_for_the_answer() {
        let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
        let gate = Gate::new().unwrap();
        let mut guard = Guard::new(theirs, Arc::clone(&gate));
        let head = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        ours.write_all(head).await.unwrap();
        ours.write_all(b"GET /smuggled HTTP/1.1\r\n").await.unwrap();
        let mut seen = vec![0; head.len()];
        guard.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, head);
        let mut more = [0; 64];
        let waiting = std::future::poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut more);
            Poll::Ready(Pin::new(&mut guard).poll_read(cx, &mut buffer).is_pending())
        });
        assert!(waiting.await);
        gate.open();
        let count = guard.read(&mut more).await.unwrap();
        assert_eq!(&more[..count], b"GET /smuggled HTTP/1.1\r\n");
    }
}
