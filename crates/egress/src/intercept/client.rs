//! The side of an intercepted connection that faces the sandbox.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

use crate::account::Account;
use crate::proxy::{Meter, refuse};

/// Interval between checks whether the program has closed its connection.
const HUNG_UP_INTERVAL: Duration = Duration::from_millis(250);

/// An intercepted connection, until it ends.
#[derive(Debug)]
pub(crate) struct InterceptedConnection {
    pub(crate) meter: Meter,
    client: TcpStream,
    tasks: Tasks,
}

impl InterceptedConnection {
    pub(super) fn new(meter: Meter, client: TcpStream) -> Self {
        Self { meter, client, tasks: Tasks::default() }
    }

    /// Makes closing the connection reset it, and aborts the tasks that were started for it.
    pub(crate) fn reset_on_close(&self) {
        refuse::reset_on_close(&self.client, true);
        self.tasks.end();
    }

    /// Waits until the program has closed its side. Used while a request waits for a person: the connection is not
    /// read during that time, so nothing else detects its end, and approving the request of a program that has gone
    /// would have no effect.
    pub(super) async fn hung_up(&self) {
        loop {
            match self.client.ready(Interest::READABLE).await {
                // Unread data keeps the socket readable until it is read.
                Ok(ready) if !ready.is_read_closed() => sleep(HUNG_UP_INTERVAL).await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

/// The tasks of one connection: HTTP/2 requests and WebSockets. They end with the connection.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// `None` after the connection has ended.
    running: Mutex<Option<JoinSet<()>>>,
    over: std::sync::atomic::AtomicBool,
}

impl Tasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if self.over.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        let running = running.get_or_insert_with(JoinSet::new);
        // Finished tasks are removed here, so that the set stays close to the number of running tasks.
        while running.try_join_next().is_some() {}
        running.spawn(task);
    }

    /// Waits until all tasks have ended.
    pub(super) async fn wait(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut running) = running {
            while running.join_next().await.is_some() {}
        }
    }

    pub(super) fn end(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.over.store(true, std::sync::atomic::Ordering::Relaxed);
        // Dropping the set aborts the tasks.
        drop(running.take());
    }
}

/// Reads and writes the client's bytes and counts them; waits when the sandbox's rate limit is reached.
#[derive(Debug)]
pub(super) struct ClientStream {
    intercepted: Arc<InterceptedConnection>,
    account: Arc<Account>,
    /// Bytes that were read before the interception started.
    first: Vec<u8>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    pub(super) fn new(
        intercepted: Arc<InterceptedConnection>,
        account: Arc<Account>,
        first: Vec<u8>,
    ) -> Self {
        Self { intercepted, account, first, pause: None }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    fn pause(&mut self, wait: Duration) {
        if !wait.is_zero() {
            self.pause = Some(Box::pin(sleep(wait)));
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let count = this.first.len().min(into.remaining());
            into.put_slice(&this.first[..count]);
            this.first.drain(..count);
            if this.first.is_empty() {
                this.first = Vec::new();
            }
            let wait = this.intercepted.meter.went_out(&this.account, count);
            this.pause(wait);
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_pause(cx));
        loop {
            ready!(this.intercepted.client.poll_read_ready(cx))?;
            match this.intercepted.client.try_read(into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    let wait = this.intercepted.meter.went_out(&this.account, count);
                    this.pause(wait);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    /// Writes several TLS records with one call.
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_pause(cx));
        loop {
            ready!(this.intercepted.client.poll_write_ready(cx))?;
            match this.intercepted.client.try_write_vectored(slices) {
                Ok(count) => {
                    let wait = this.intercepted.meter.came_in(&this.account, count);
                    this.pause(wait);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(&self.intercepted.client, rustix::net::Shutdown::Write);
        Poll::Ready(match shut {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}
