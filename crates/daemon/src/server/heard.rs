//! A request's body that is heard out for a moment when nobody wants the rest of it.
//!
//! A refusal is often ready before the body has come: no key, no such sandbox. HTTP/1 has no way to call off a body, so the
//! connection would have to be closed on a client that still sends, which may lose the answer and fails whatever that
//! client sends next by the same connection. Most bodies are small: the rest of such a one is read and forgotten.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// More than any body of JSON that a client sends without thinking, less than what would be worth sending to keep us busy.
const BYTES_MAX: usize = 256 << 10;
const TIME_MAX: Duration = Duration::from_secs(5);

/// The body of a request as it comes in.
#[derive(Debug)]
pub(super) struct Heard {
    /// None once all of it has come, or it broke off.
    body: Option<Incoming>,
    /// HTTP/2 calls a body off by itself, and who waits to be asked for one is not asked.
    hears_out: bool,
}

impl Heard {
    pub(super) fn body_of(request: Request<Incoming>) -> Request<Self> {
        let hears_out = request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT);
        request.map(|body| Self { body: Some(body), hears_out })
    }
}

impl Body for Heard {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| self.hears_out && !body.is_end_stream()) else {
            return;
        };
        // One that says how long it is, and is too long, need not be begun.
        if body.size_hint().lower() > BYTES_MAX as u64 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(timeout(TIME_MAX, hear_out(Limited::new(body, BYTES_MAX))));
    }
}

async fn hear_out(mut body: Limited<Incoming>) {
    while let Some(Ok(_)) = body.frame().await {}
}
