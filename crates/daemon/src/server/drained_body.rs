//! Reads the rest of an unused request body for a moment.
//!
//! An error response is often ready before the body has arrived: missing key, unknown sandbox. HTTP/1 cannot cancel a
//! body, so the connection would have to be closed while the client still sends, which may lose the response and make
//! the next request on that connection fail. Most bodies are small: the rest of such a body is read and discarded.

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

/// Larger than usual JSON bodies, and too small for an attack that keeps the daemon busy.
const BYTES_MAX: usize = 256 << 10;
const TIME_MAX: Duration = Duration::from_secs(5);

/// The incoming body of a request.
#[derive(Debug)]
pub(super) struct DrainedBody {
    /// `None` after it was received completely, or failed.
    body: Option<Incoming>,
    /// False for HTTP/2, which can cancel a body, and for clients that wait for `100 Continue`.
    drains: bool,
}

impl DrainedBody {
    pub(super) fn body_of(request: Request<Incoming>) -> Request<Self> {
        let drains = request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT);
        request.map(|body| Self { body: Some(body), drains })
    }
}

impl Body for DrainedBody {
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

impl Drop for DrainedBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| self.drains && !body.is_end_stream()) else {
            return;
        };
        // A body with a known length that is too large is not read at all.
        if body.size_hint().lower() > BYTES_MAX as u64 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        // Ends with the body, or at one of the limits.
        drop(runtime.spawn(timeout(TIME_MAX, drain(Limited::new(body, BYTES_MAX)))));
    }
}

async fn drain(mut body: Limited<Incoming>) {
    while let Some(Ok(_)) = body.frame().await {}
}
