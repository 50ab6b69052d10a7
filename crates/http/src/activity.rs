//! Distinguishes working connections from idle ones, and from those that send a request byte by byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// For a request's head, from its first byte; and for a new connection to send the first byte.
    pub head: Duration,
    /// For a connection without a request, until the next one.
    pub idle: Duration,
    /// Interval of the checks of a connection.
    pub look_every: Duration,
}

impl ConnectionTimeouts {
    /// A slow link sends a head within seconds; clients keep connections for about a minute.
    pub const USUAL: Self = Self {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(90),
        look_every: Duration::from_secs(5),
    };
}

/// No byte of the next request has arrived.
const NONE: u64 = u64::MAX;

/// The state of one connection. Times are milliseconds since it was opened.
#[derive(Debug)]
pub struct Activity {
    patience: ConnectionTimeouts,
    began: Instant,
    requests: AtomicUsize,
    idle_since: AtomicU64,
    head_since: AtomicU64,
    /// HTTP/2 sends its own frames between requests; these do not begin a head.
    multiplexed: AtomicBool,
}

impl Activity {
    pub fn new(patience: ConnectionTimeouts) -> Self {
        Self {
            patience,
            began: Instant::now(),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            // The time limit of the first head starts with the connection.
            head_since: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(NONE - 1)
    }

    /// Called when a request's head is complete.
    pub fn begin(self: &Arc<Self>, multiplexed: bool) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(NONE, Ordering::Relaxed);
        self.multiplexed.store(multiplexed, Ordering::Relaxed);
        InFlight { _guard: Arc::new(Guard(self.clone())) }
    }

    fn bytes_came(&self) {
        if self.requests.load(Ordering::Relaxed) == 0 && !self.multiplexed.load(Ordering::Relaxed) {
            let now = self.now();
            let _ = self.head_since.compare_exchange(NONE, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns when the connection should be closed.
    pub async fn overdue(&self) {
        loop {
            tokio::time::sleep(self.patience.look_every).await;
            if self.is_overdue(self.now()) {
                return;
            }
        }
    }

    fn is_overdue(&self, now: u64) -> bool {
        if self.requests.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let longer = |since: u64, bound: Duration| since != NONE && now.saturating_sub(since) > millis(bound);
        longer(self.head_since.load(Ordering::Relaxed), self.patience.head)
            || longer(self.idle_since.load(Ordering::Relaxed), self.patience.idle)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A request, from its head until the last byte of its response. Clones represent the same request.
#[derive(Clone, Debug)]
pub struct InFlight {
    _guard: Arc<Guard>,
}

#[derive(Debug)]
struct Guard(Arc<Activity>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.now(), Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that records when bytes arrive.
#[derive(Debug)]
pub struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> WatchedStream<S> {
    pub fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_came();
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Closes the connection of a request after its response, so that its buffers are freed.
#[derive(Clone, Debug, Default)]
pub struct CloseAfterResponse(CancellationToken);

impl CloseAfterResponse {
    /// Requests it.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Returns when it was requested.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = 10_000;
    const IDLE: u64 = 90_000;

    #[test]
    fn a_connection_that_sends_nothing_is_closed() {
        let activity = Activity::new(ConnectionTimeouts::USUAL);
        assert!(!activity.is_overdue(HEAD));
        assert!(activity.is_overdue(HEAD + 1));
    }

    #[test]
    fn a_running_request_is_never_overdue() {
        let activity = Arc::new(Activity::new(ConnectionTimeouts::USUAL));
        let request = activity.begin(false);
        let clone = request.clone();
        drop(request);
        assert!(!activity.is_overdue(100 * IDLE));
        drop(clone);
        assert!(!activity.is_overdue(IDLE));
        assert!(activity.is_overdue(100 * IDLE));
    }

    #[test]
    fn a_kept_alive_connection_may_be_idle_but_not_slow() {
        let activity = Arc::new(Activity::new(ConnectionTimeouts::USUAL));
        drop(activity.begin(false));
        assert!(!activity.is_overdue(IDLE));
        activity.bytes_came();
        assert!(activity.is_overdue(IDLE));
    }

    #[test]
    fn http2_frames_between_requests_do_not_begin_a_head() {
        let activity = Arc::new(Activity::new(ConnectionTimeouts::USUAL));
        drop(activity.begin(true));
        activity.bytes_came();
        assert!(!activity.is_overdue(IDLE));
        assert!(activity.is_overdue(2 * IDLE));
    }
}
