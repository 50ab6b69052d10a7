//! Tracks who uses a sandbox now, and when it was last used.
//!
//! Every use of a guest holds a [`Lease`]: a request for its duration, a stream while it is open. A sandbox with a lease is not
//! idle, whatever its processes do. When its machine is removed although streams are open (a user hibernated or restored the
//! sandbox), its [`StreamCutter`] ends them, since a machine that is dumped closes no connections.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use burrow_catalog::SandboxRow;
use burrow_model::{AtTimeout, RotatePolicy, SandboxId, SleepPolicy, SnapshotPolicy, State};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{Clock, EngineError};

/// The use of one sandbox.
#[derive(Debug)]
pub(crate) struct Activity {
    clock: Arc<dyn Clock>,
    leases: AtomicUsize,
    last_ms: AtomicU64,
    plan: Mutex<AutomaticPolicies>,
}

/// The automatic policies of a sandbox: a copy of the fields of its row.
#[derive(Clone, Debug)]
pub(crate) struct AutomaticPolicies {
    pub(crate) state: State,
    pub(crate) driver: String,
    pub(crate) sleep: SleepPolicy,
    pub(crate) snapshots: Option<SnapshotPolicy>,
    pub(crate) rotate: Option<RotatePolicy>,
    /// When the last snapshot of its policy was taken, or else its creation.
    pub(crate) snapshotted_ms: u64,
    pub(crate) rotated_ms: u64,
    /// Since when it is paused because its lease has ended and it could not be hibernated.
    pub(crate) awaits_hibernate_ms: Option<u64>,
}

impl AutomaticPolicies {
    pub(crate) fn of(row: &SandboxRow) -> Self {
        Self {
            state: row.state,
            driver: row.spec.driver.clone(),
            sleep: row.spec.sleep,
            snapshots: row.spec.snapshots,
            rotate: row.spec.rotate.clone(),
            snapshotted_ms: row.snapshotted_ms.unwrap_or(row.created_ms),
            rotated_ms: row.rotated_ms.unwrap_or(row.created_ms),
            awaits_hibernate_ms: row.slept_ms.filter(|_| {
                row.state == State::Paused
                    && row.spec.lifetime.expires_ms().is_none()
                    && row.spec.lease.as_ref().is_some_and(|lease| lease.then == AtTimeout::Hibernate)
            }),
        }
    }

    /// Whether no automatic policy is set.
    pub(crate) fn is_empty(&self) -> bool {
        let periodic = self.snapshots.is_some() || self.rotate.is_some();
        self.sleep.is_never() && !periodic && self.awaits_hibernate_ms.is_none()
    }
}

impl Activity {
    pub(crate) fn new(clock: Arc<dyn Clock>, row: &SandboxRow) -> Arc<Self> {
        // A time stored by a daemon whose clock was ahead would keep the sandbox awake until then.
        let last_ms = row.active_ms.unwrap_or(row.updated_ms).min(clock.now_ms());
        Arc::new(Self {
            clock,
            leases: AtomicUsize::new(0),
            last_ms: AtomicU64::new(last_ms),
            plan: Mutex::new(AutomaticPolicies::of(row)),
        })
    }

    /// The row has changed.
    pub(crate) fn follow(&self, row: &SandboxRow) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = AutomaticPolicies::of(row);
    }

    pub(crate) fn plan(&self) -> AutomaticPolicies {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Arc<Lease> {
        self.leases.fetch_add(1, Ordering::AcqRel);
        self.touch();
        Arc::new(Lease { activity: Some(self.clone()) })
    }

    /// Whether the sandbox is in use at this moment.
    pub(crate) fn in_use(&self) -> bool {
        self.leases.load(Ordering::Acquire) > 0
    }

    /// Records activity.
    pub(crate) fn touch(&self) {
        self.last_ms.fetch_max(self.clock.now_ms(), Ordering::AcqRel);
    }

    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Acquire)
    }
}

/// One use of a sandbox, while it is held.
#[derive(Debug)]
pub(crate) struct Lease {
    /// `None`: an observer, which does not count as a use.
    activity: Option<Arc<Activity>>,
}

impl Lease {
    /// The lease of an observer, which does not keep the sandbox awake.
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self { activity: None })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(activity) = &self.activity {
            activity.touch();
            activity.leases.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Why the streams of a sandbox were ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    Hibernated,
    Restored,
}

/// Ends the streams of one machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamCutter {
    token: CancellationToken,
    reason: Arc<OnceLock<CutReason>>,
}

impl StreamCutter {
    pub(crate) fn now(&self, reason: CutReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    fn is_gone(&self) -> bool {
        self.reason.get().is_some()
    }

    /// The error for clients whose stream was ended.
    pub(crate) fn error(&self, id: &SandboxId) -> Option<EngineError> {
        self.reason.get().map(|reason| match reason {
            CutReason::Hibernated => EngineError::Asleep { id: id.clone() },
            CutReason::Restored => EngineError::Replaced { id: id.clone() },
        })
    }
}

/// Wakes one side of a stream when its machine is removed.
///
/// Polling a token takes its lock and changes its list of waiters: too slow for every read and write. Here a side is entered in
/// that list once, as long as the same task uses it, and otherwise only reads a flag.
#[derive(Debug, Default)]
struct Watch {
    waiting: Option<(Waker, Pin<Box<WaitForCancellationFutureOwned>>)>,
}

impl Watch {
    /// Whether the machine is gone; if not, the task is woken when it goes.
    fn is_gone(&mut self, cut: &StreamCutter, ctx: &mut Context<'_>) -> bool {
        // The flag is set before the token is cancelled: a task that still reads the flag as unset is woken by the token.
        if cut.is_gone() {
            return true;
        }
        match &mut self.waiting {
            Some((waker, _)) if waker.will_wake(ctx.waker()) => false,
            Some((waker, cancelled)) => {
                waker.clone_from(ctx.waker());
                cancelled.as_mut().poll(ctx).is_ready()
            }
            None => {
                let mut cancelled = Box::pin(cut.token.clone().cancelled_owned());
                let gone = cancelled.as_mut().poll(ctx).is_ready();
                self.waiting = Some((ctx.waker().clone(), cancelled));
                gone
            }
        }
    }
}

/// A connection into a sandbox. The sandbox is in use while it is open.
#[derive(Debug)]
pub struct GuestStream {
    stream: TcpStream,
    cut: StreamCutter,
    // Two, since each side may be used by another task.
    reading: Watch,
    writing: Watch,
    _lease: Arc<Lease>,
}

impl GuestStream {
    pub(crate) fn new(stream: TcpStream, cut: &StreamCutter, lease: Arc<Lease>) -> Self {
        let (reading, writing) = (Watch::default(), Watch::default());
        Self { stream, cut: cut.clone(), reading, writing, _lease: lease }
    }

    /// Writes, unless the machine is gone or goes before there is room in the buffer.
    fn write(
        &mut self,
        ctx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.cut.is_gone() {
            return Poll::Ready(Err(gone()));
        }
        match write(Pin::new(&mut self.stream), ctx) {
            Poll::Pending if self.writing.is_gone(&self.cut, ctx) => Poll::Ready(Err(gone())),
            written @ (Poll::Ready(_) | Poll::Pending) => written,
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the sandbox's machine is gone")
}

impl AsyncRead for GuestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Data that the machine sent before it went is read to its end.
        match Pin::new(&mut this.stream).poll_read(ctx, buffer) {
            Poll::Pending if this.reading.is_gone(&this.cut, ctx) => Poll::Ready(Err(gone())),
            read @ (Poll::Ready(_) | Poll::Pending) => read,
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(ctx, |stream, ctx| stream.poll_write(ctx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(ctx, |stream, ctx| stream.poll_write_vectored(ctx, slices))
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

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::clock::ManualClock;

    async fn pair(cut: &StreamCutter) -> (GuestStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (ours, theirs) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let activity = Arc::new(Activity {
            clock: Arc::new(ManualClock::at(1)),
            leases: AtomicUsize::new(0),
            last_ms: AtomicU64::new(0),
            plan: Mutex::new(AutomaticPolicies {
                state: State::Running,
                driver: String::new(),
                sleep: SleepPolicy::never(),
                snapshots: None,
                rotate: None,
                snapshotted_ms: 0,
                rotated_ms: 0,
                awaits_hibernate_ms: None,
            }),
        });
        (GuestStream::new(ours.unwrap(), cut, activity.lease()), theirs.unwrap().0)
    }

    #[tokio::test]
    async fn a_cut_ends_reads_and_writes_even_in_two_tasks() {
        let cut = StreamCutter::default();
        let (stream, _peer) = pair(&cut).await;
        let (mut reading, mut writing) = tokio::io::split(stream);
        let reader = tokio::spawn(async move { reading.read_u8().await.unwrap_err().kind() });
        // The other end does not read: soon the buffer is full.
        let writer = tokio::spawn(async move {
            loop {
                if let Err(error) = writing.write_all(&[0; 1 << 16]).await {
                    return error.kind();
                }
            }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        cut.now(CutReason::Hibernated);
        assert_eq!(reader.await.unwrap(), io::ErrorKind::ConnectionAborted);
        assert_eq!(writer.await.unwrap(), io::ErrorKind::ConnectionAborted);
    }

    #[tokio::test]
    async fn data_sent_before_a_cut_can_still_be_read() {
        let cut = StreamCutter::default();
        let (mut stream, mut peer) = pair(&cut).await;
        peer.write_all(b"last words").await.unwrap();
        stream.stream.readable().await.unwrap();
        cut.now(CutReason::Restored);
        let mut said = [0; 10];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"last words");
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(stream.write_u8(1).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[tokio::test]
    async fn a_cut_wakes_the_task_that_used_the_stream_last() {
        let cut = StreamCutter::default();
        let mut watch = Watch::default();
        let woken: [Arc<WakeCounter>; 2] = Default::default();
        for task in [0, 0, 1, 1] {
            let waker = Waker::from(woken[task].clone());
            assert!(!watch.is_gone(&cut, &mut Context::from_waker(&waker)));
        }
        cut.now(CutReason::Hibernated);
        assert_eq!(woken.map(|task| task.0.load(Ordering::Acquire)), [0, 1]);
        assert!(watch.is_gone(&cut, &mut Context::from_waker(Waker::noop())));
    }
}
