//! Kept HTTP/1 connections to servers inside, each driven by the request that uses it.
//!
//! ```text
//!   take ──► Line ──► exchange: the request's own task moves the bytes ──► Driven, the response body ──► kept again
//!     └── none idle: the caller connects                                     └── disconnected midway: closed
//! ```
//!
//! A connection with its own task costs every request four switches between tasks: to the connection with the request,
//! back with the head, and again with the body. Here the request's task polls the connection itself. This works for
//! requests without a body only: a body that is still being sent while its response waits for a slow reader requires a
//! task that continues to send, so such requests use a client with tasks (see [`super::upstream`]).
//!
//! Idle connections are not polled. A check every second closes those that the server closed, whose machine no longer
//! exists, or that were not used for a while.

use std::collections::HashMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::server_stream::ServerStream;
use super::upstream::PortKey;

/// Interval of the checks of idle connections.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Idle connections, by port.
#[derive(Debug)]
pub(super) struct KeptConnections {
    inner: Arc<Mutex<IdleConnections>>,
    each_max: usize,
    idle_time: Duration,
}

#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "a line is passed as a box, because it is too large to be moved for each request"
)]
struct IdleConnections {
    by_place: HashMap<PortKey, Vec<Box<KeptConnection>>>,
    /// Whether a task checks them.
    watched: bool,
}

type Connection = http1::Connection<TokioIo<ServerStream>, Body>;

/// One connection.
#[derive(Debug)]
pub(super) struct KeptConnection {
    sender: http1::SendRequest<Body>,
    /// `None` when it has ended.
    connection: Option<Connection>,
    /// The waker of the task that used it last: the same task gets it again if possible, because the connection already
    /// has its waker.
    user: Waker,
    used: Instant,
}

/// An error of a kept connection.
#[derive(Debug)]
pub(super) enum KeptConnectionError {
    /// It was closed before it accepted the request, which can be sent again.
    Unsent(Box<Request<Body>>),
    Broken(Box<dyn Error + Send + Sync>),
}

impl KeptConnections {
    pub(super) fn new(each_max: usize, idle_time: Duration) -> Self {
        Self { inner: Arc::default(), each_max, idle_time }
    }

    /// An idle connection to this port, if there is one.
    pub(super) fn take(&self, place: &PortKey, user: &Waker) -> Option<Box<KeptConnection>> {
        let mut idle = lock(&self.inner);
        let lines = idle.by_place.get_mut(place)?;
        let index =
            lines.iter().rposition(|line| line.user.will_wake(user)).or(lines.len().checked_sub(1))?;
        let line = lines.swap_remove(index);
        if lines.is_empty() {
            idle.by_place.remove(place);
        }
        Some(line)
    }

    /// The body of a response, which returns its connection here when it ends.
    pub(super) fn driven(&self, place: PortKey, line: Box<KeptConnection>, body: Incoming) -> DrivenBody {
        let lines = Self { inner: self.inner.clone(), each_max: self.each_max, idle_time: self.idle_time };
        DrivenBody { body, used: Some(UsedConnection { line, place, lines }), over: false }
    }

    fn keep(&self, place: PortKey, mut line: Box<KeptConnection>) {
        line.used = Instant::now();
        let mut idle = lock(&self.inner);
        let lines = idle.by_place.entry(place).or_default();
        if lines.len() >= self.each_max {
            return;
        }
        lines.push(line);
        if !idle.watched
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            idle.watched = true;
            // Ends when no connection is kept.
            drop(runtime.spawn(watch(self.inner.clone(), self.idle_time)));
        }
    }
}

/// Closes connections that are not worth keeping, until none is kept.
async fn watch(inner: Arc<Mutex<IdleConnections>>, idle_time: Duration) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let mut idle = lock(&inner);
        let now = Instant::now();
        idle.by_place.retain(|_, lines| {
            lines.retain_mut(|line| now.duration_since(line.used) < idle_time && line.is_usable());
            !lines.is_empty()
        });
        if idle.by_place.is_empty() {
            idle.watched = false;
            return;
        }
    }
}

// Lists are changed by single statements, so a panic elsewhere leaves them valid.
fn lock(inner: &Mutex<IdleConnections>) -> MutexGuard<'_, IdleConnections> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KeptConnection {
    pub(super) async fn open(stream: ServerStream) -> Result<Box<Self>, hyper::Error> {
        // For names like `X-Forwarded-For`, as other proxies write them: some servers compare names case-sensitively.
        let (sender, connection) =
            http1::Builder::new().title_case_headers(true).handshake(TokioIo::new(stream)).await?;
        let user = Waker::noop().clone();
        Ok(Box::new(Self { sender, connection: Some(connection), user, used: Instant::now() }))
    }

    /// Sends a request without a body and waits for the head of its response.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, KeptConnectionError> {
        debug_assert!(request.body().is_end_stream(), "a body requires a task that sends it");
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let (connection, user) = (&mut self.connection, &mut self.user);
        let answered = std::future::poll_fn(|ctx| {
            if !user.will_wake(ctx.waker()) {
                user.clone_from(ctx.waker());
            }
            drive(connection, ctx);
            // Only the connection, which has just been polled, completes it: a real waker would poll this task twice.
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending if connection.is_none() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(answered) => Poll::Ready(Some(answered)),
            }
        });
        match answered.await {
            Some(Ok(response)) => Ok(response),
            Some(Err(mut error)) => Err(match error.take_message() {
                Some(request) => KeptConnectionError::Unsent(Box::new(request)),
                None => KeptConnectionError::Broken(error.into_error().into()),
            }),
            None => Err(KeptConnectionError::Broken("the connection ended without a response".into())),
        }
    }

    /// Whether it can take another request.
    fn is_usable(&mut self) -> bool {
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Polls the connection. It reports errors to the tasks that wait for it, at the latest when it is dropped.
fn drive(connection: &mut Option<Connection>, ctx: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(ctx).is_ready()) {
        *connection = None;
    }
}

/// The body of a response. Reading it drives its connection, which is kept when the body has ended.
#[derive(Debug)]
pub(super) struct DrivenBody {
    body: Incoming,
    /// `None` for a response whose connection has its own task.
    used: Option<UsedConnection>,
    over: bool,
}

#[derive(Debug)]
struct UsedConnection {
    line: Box<KeptConnection>,
    place: PortKey,
    lines: KeptConnections,
}

impl From<Incoming> for DrivenBody {
    fn from(body: Incoming) -> Self {
        Self { body, used: None, over: false }
    }
}

impl hyper::body::Body for DrivenBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let frame = match &mut this.used {
            None => Pin::new(&mut this.body).poll_frame(ctx),
            // As with the head: the data comes from the connection, which wakes this task.
            Some(used) => {
                let quiet = &mut Context::from_waker(Waker::noop());
                match Pin::new(&mut this.body).poll_frame(quiet) {
                    Poll::Pending => {
                        drive(&mut used.line.connection, ctx);
                        Pin::new(&mut this.body).poll_frame(quiet)
                    }
                    ready => ready,
                }
            }
        };
        if let Poll::Ready(None) = frame {
            this.over = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for DrivenBody {
    fn drop(&mut self) {
        let Some(mut used) = self.used.take() else { return };
        // The rest of an incomplete body would be parsed as the next response.
        if !self.over && !self.body.is_end_stream() {
            return;
        }
        let ready = used.line.connection.is_some() && used.line.sender.is_ready();
        if ready || used.line.is_usable() {
            used.lines.keep(used.place, used.line);
        }
    }
}
