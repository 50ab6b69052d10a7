//! Keeps the body of a request until the request is answered, even if its reader drops it early.
//!
//! ```text
//!   program ──► LentBody ──► checked, forwarded     dropped early ──► BodyRemainder ──► drained in part ──► kept until answered
//! ```
//!
//! An HTTP/2 server that drops a body before it has answered resets the stream, and the answer is lost, so a refused
//! program would not learn why. An HTTP/1 server closes a connection with unread data, with the same effect.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// How much of an abandoned body is read so that the answer arrives, and for how long at most.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_TIME_MAX: Duration = Duration::from_millis(250);

/// Holds an abandoned body. Shared by the reader of the body and the service that answers.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyRemainder(Arc<Mutex<Option<Incoming>>>);

impl BodyRemainder {
    pub(super) fn lend(&self, body: Incoming) -> LentBody {
        LentBody { body: Some(body), rest: self.clone() }
    }

    /// Reads on in an abandoned body, within limits.
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
        self.put_back(body);
    }

    fn put_back(&self, body: Incoming) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }
}

/// A body that is returned to its [`BodyRemainder`] when it is dropped.
#[derive(Debug)]
pub(super) struct LentBody {
    body: Option<Incoming>,
    rest: BodyRemainder,
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            self.rest.put_back(body);
        }
    }
}

impl Body for LentBody {
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

/// A response body that keeps the rest of its request's body alive.
#[derive(Debug)]
pub(super) struct AnswerBody<B> {
    answer: B,
    _rest: BodyRemainder,
}

impl<B> AnswerBody<B> {
    pub(super) fn new(answer: B, rest: BodyRemainder) -> Self {
        Self { answer, _rest: rest }
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
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
