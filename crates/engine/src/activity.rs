//! Who is at work with a sandbox right now, and when the last of them left.
//!
//! Every use of a guest holds a [`Lease`]: a request for as long as it takes, a stream for as long as it is open. A
//! sandbox with a lease is not idle, whatever its processes do. When its machine goes although streams are open (somebody
//! put it to sleep, or took it back to a snapshot), its [`Cut`] ends them, since a machine that is written to disk says
//! no farewell.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use burrow_catalog::SandboxRow;
use burrow_model::{RotatePolicy, SandboxId, SleepPolicy, SnapshotPolicy, State};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{Clock, EngineError};

/// What is known of the uses of one sandbox.
#[derive(Debug)]
pub(crate) struct Activity {
    clock: Arc<dyn Clock>,
    leases: AtomicUsize,
    last_ms: AtomicU64,
    plan: Mutex<Plan>,
}

/// What is to happen to a sandbox by itself, for those who see to it: a copy of what its row says.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) state: State,
    pub(crate) driver: String,
    pub(crate) sleep: SleepPolicy,
    pub(crate) snapshots: Option<SnapshotPolicy>,
    pub(crate) rotate: Option<RotatePolicy>,
    /// When the last snapshot of its policy was taken, or it came to be.
    pub(crate) snapshotted_ms: u64,
    pub(crate) rotated_ms: u64,
}

impl Plan {
    pub(crate) fn of(row: &SandboxRow) -> Self {
        Self {
            state: row.state,
            driver: row.spec.driver.clone(),
            sleep: row.spec.sleep,
            snapshots: row.spec.snapshots,
            rotate: row.spec.rotate.clone(),
            snapshotted_ms: row.snapshotted_ms.unwrap_or(row.created_ms),
            rotated_ms: row.rotated_ms.unwrap_or(row.created_ms),
        }
    }

    /// Nothing is ever to happen.
    pub(crate) fn is_empty(&self) -> bool {
        self.sleep.is_never() && self.snapshots.is_none() && self.rotate.is_none()
    }
}

impl Activity {
    pub(crate) fn new(clock: Arc<dyn Clock>, row: &SandboxRow) -> Arc<Self> {
        let last_ms = row.active_ms.unwrap_or(row.updated_ms);
        Arc::new(Self {
            clock,
            leases: AtomicUsize::new(0),
            last_ms: AtomicU64::new(last_ms),
            plan: Mutex::new(Plan::of(row)),
        })
    }

    /// The row has changed.
    pub(crate) fn follow(&self, row: &SandboxRow) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Plan::of(row);
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Arc<Lease> {
        self.leases.fetch_add(1, Ordering::AcqRel);
        self.touch();
        Arc::new(Lease { activity: self.clone() })
    }

    /// Somebody is at work this moment.
    pub(crate) fn in_use(&self) -> bool {
        self.leases.load(Ordering::Acquire) > 0
    }

    /// Work was seen.
    pub(crate) fn touch(&self) {
        self.last_ms.fetch_max(self.clock.now_ms(), Ordering::AcqRel);
    }

    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Acquire)
    }
}

/// One use of a sandbox, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Lease {
    activity: Arc<Activity>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.activity.touch();
        self.activity.leases.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why streams of a sandbox were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    Hibernated,
    Restored,
}

/// Ends the streams of one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut {
    token: CancellationToken,
    reason: Arc<OnceLock<CutReason>>,
}

impl Cut {
    pub(crate) fn now(&self, reason: CutReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    /// What to tell those whose stream it ended.
    pub(crate) fn error(&self, id: &SandboxId) -> Option<EngineError> {
        self.reason.get().map(|reason| match reason {
            CutReason::Hibernated => EngineError::Asleep { id: id.clone() },
            CutReason::Restored => EngineError::Replaced { id: id.clone() },
        })
    }
}

/// A connection into a sandbox. Its sandbox is in use while it is open.
#[derive(Debug)]
pub struct GuestStream {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _lease: Arc<Lease>,
}

impl GuestStream {
    pub(crate) fn new(stream: TcpStream, cut: &Cut, lease: Arc<Lease>) -> Self {
        Self { stream, cut: Box::pin(cut.token.clone().cancelled_owned()), _lease: lease }
    }

    fn check(&mut self, ctx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(ctx) {
            Poll::Ready(()) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the sandbox's machine is gone"))
            }
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What the machine said before it went is read to its end.
        match Pin::new(&mut self.stream).poll_read(ctx, buffer) {
            Poll::Pending => match self.check(ctx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            ready => ready,
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.check(ctx) {
            Ok(()) => Pin::new(&mut self.stream).poll_write(ctx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.check(ctx) {
            Ok(()) => Pin::new(&mut self.stream).poll_write_vectored(ctx, slices),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}
