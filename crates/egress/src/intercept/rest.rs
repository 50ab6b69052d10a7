//! The body of a request, kept until the request is answered, whoever gave up reading it.
//!
//! ```text
//!   program ──► Lent ──► judged, sent on        dropped midway ──► Rest ──► read a little further ──► Kept, with the answer
//! ```
//!
//! A server of HTTP/2 that drops a body before it has answered resets the stream, and the answer is lost: a program that is
//! refused would learn nothing but that. One of HTTP/1 closes a connection with something unread, to the same effect.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Of a body that nobody wants any more, this much is read for the sake of the answer, and for no longer than this.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_TIME_MAX: Duration = Duration::from_millis(250);

/// Where a body is left. Shared by whoever reads it and whoever answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Incoming>>>);

impl Rest {
    pub(super) fn lend(&self, body: Incoming) -> Lent {
        Lent { body: Some(body), rest: self.clone() }
    }

    /// Reads on where somebody gave up, as far as it is worth it.
    pub(super) async fn read(&self) {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = left else { return };
        let reading = async {
            let mut room = READ_BYTES_MAX;
            while let Some(Ok(frame)) = body.frame().await {
                room = room.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if room == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(READ_TIME_MAX, reading).await;
        self.leave(body);
    }

    fn leave(&self, body: Incoming) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }
}

/// A body that comes back when it is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    body: Option<Incoming>,
    rest: Rest,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.rest.leave(body);
        }
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// An answer, with what is left of its request's body.
#[derive(Debug)]
pub(super) struct Kept<B> {
    answer: B,
    _rest: Rest,
}

impl<B> Kept<B> {
    pub(super) fn new(answer: B, rest: Rest) -> Self {
        Self { answer, _rest: rest }
    }
}

impl<B: Body + Unpin> Body for Kept<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.answer).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.size_hint()
    }
}
