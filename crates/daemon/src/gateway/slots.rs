//! How many requests may be inside sandboxes at once: in all, and in each, so that one flooded port leaves room for
//! others, and none of them takes a slot of the API's.

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

use crate::rest::error::ApiError;
use crate::server::InFlight;

#[derive(Debug)]
pub(super) struct Slots {
    all: Arc<Semaphore>,
    each: Arc<Mutex<HashMap<SandboxId, usize>>>,
    each_max: usize,
}

/// A request's place, kept until the last byte of its answer.
#[derive(Debug)]
pub(crate) struct Slot {
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
        let permit =
            self.all.clone().try_acquire_owned().map_err(|_| {
                busy("the daemon has too many requests to sandboxes at once", "gateway.requests")
            })?;
        let mut each = lock(&self.each);
        let count = each.entry(sandbox.clone()).or_default();
        if *count >= self.each_max {
            return Err(busy("the sandbox has too many requests at once", "gateway.requests_per_sandbox"));
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

// Counts are changed by one line each: a panic elsewhere leaves them true.
fn lock(each: &Mutex<HashMap<SandboxId, usize>>) -> MutexGuard<'_, HashMap<SandboxId, usize>> {
    each.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer's body that keeps its slot, and its connection from being taken for idle.
pub(super) struct Held<B> {
    pub(super) body: B,
    /// The daemon's end, for answers that have no end of their own: they would hold it up for as long as it waits.
    pub(super) end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    pub(super) _slot: Slot,
    pub(super) _in_flight: Option<InFlight>,
}

impl<B> Held<B>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    pub(super) fn into_body(self) -> Body {
        Body::new(self)
    }
}

impl<B: hyper::body::Body<Data = Bytes> + Unpin> hyper::body::Body for Held<B> {
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
    fn one_sandbox_cannot_take_all_places_and_gives_its_own_back() {
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
        assert_eq!(lock(&slots.each).len(), 1, "a sandbox without requests is not remembered");
    }
}
