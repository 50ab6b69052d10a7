//! Limits concurrent requests into sandboxes: in total, and per sandbox, so that one flooded port does not affect
//! others, and none of them takes a slot of the API.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use burrow_api::ErrorCode;
use burrow_model::SandboxId;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::WaitForCancellationFutureOwned;

use burrow_http::activity::InFlight;
use burrow_http::error::ApiError;

#[derive(Debug)]
pub(super) struct Slots {
    all: Arc<Semaphore>,
    each: Arc<Mutex<HashMap<SandboxId, usize>>>,
    each_max: usize,
}

/// The slot of a request, kept until the last byte of its response.
#[derive(Debug)]
pub struct Slot {
    sandbox: SandboxId,
    each: Arc<Mutex<HashMap<SandboxId, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    pub(super) fn new(all_max: usize, each_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all_max)), each: Arc::default(), each_max }
    }

    pub(super) fn take(&self, sandbox: &SandboxId) -> Result<Slot, ApiError> {
        let busy = |message: &str, key: &str| {
            let hint = format!("try again in a moment, or raise `{key}` in the configuration");
            ApiError::new(ErrorCode::Busy, message).hint(hint)
        };
        let permit = self
            .all
            .clone()
            .try_acquire_owned()
            .map_err(|_| busy("too many concurrent requests to sandboxes", "gateway.requests"))?;
        let mut each = lock(&self.each);
        let count = each.entry(sandbox.clone()).or_default();
        if *count >= self.each_max {
            return Err(busy("too many concurrent requests to the sandbox", "gateway.requests_per_sandbox"));
        }
        *count += 1;
        Ok(Slot { sandbox: sandbox.clone(), each: self.each.clone(), _permit: permit })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut each = lock(&self.each);
        if let Some(count) = each.get_mut(&self.sandbox) {
            *count -= 1;
            if *count == 0 {
                each.remove(&self.sandbox);
            }
        }
    }
}

// Counts are changed by single statements, so a panic elsewhere leaves them valid.
fn lock(each: &Mutex<HashMap<SandboxId, usize>>) -> MutexGuard<'_, HashMap<SandboxId, usize>> {
    each.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A response body that holds its slot, and keeps its connection from being considered idle.
pub(super) struct SlottedBody<B> {
    pub(super) body: B,
    /// The shutdown of the daemon, for endless responses: otherwise they would delay it.
    pub(super) end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    pub(super) _slot: Slot,
    pub(super) _in_flight: Option<InFlight>,
}

impl<B> SlottedBody<B>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    pub(super) fn into_body(self) -> Body {
        Body::new(self)
    }
}

impl<B: hyper::body::Body<Data = Bytes> + Unpin> hyper::body::Body for SlottedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(ctx).is_ready()) {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(ctx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sandbox_cannot_take_all_slots_and_returns_its_own() {
        let slots = Slots::new(3, 2);
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        let first = slots.take(&one).unwrap();
        let _second = slots.take(&one).unwrap();
        assert_eq!(slots.take(&one).unwrap_err().code(), ErrorCode::Busy);
        let third = slots.take(&other).unwrap();
        assert_eq!(slots.take(&other).unwrap_err().code(), ErrorCode::Busy, "all are taken");
        drop(first);
        drop(third);
        let _again = slots.take(&one).unwrap();
        assert_eq!(lock(&slots.each).len(), 1, "a sandbox without requests has no entry");
    }
}
