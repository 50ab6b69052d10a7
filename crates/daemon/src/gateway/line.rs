//! Kept connections to servers inside, each driven by the request that uses it.
//!
//! ```text
//!   take ──► Line ──► exchange: the request's own task moves the bytes ──► Driven, the answer's body ──► kept again
//!     └── none idle: dialled by the caller                                    └── hung up midway: closed
//! ```
//!
//! A connection with a task of its own costs every request four trips through the scheduler: to the connection with the
//! request, back with the head, and again with the body. Here the request's task polls the connection itself. That
//! serves requests without a body only: what is still being sent while its answer waits for a slow reader needs
//! somebody who goes on sending, and is left to a client with tasks (see [`super::upstream`]).
//!
//! Idle lines are watched by nobody. A look every second closes those that the server closed, whose machine is gone, or
//! that were not used for a while.

use std::collections::HashMap;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use burrow_engine::PortStream;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::upstream::Place;

/// How often idle lines are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Lines nobody uses, by the port they lead to.
#[derive(Debug)]
pub(super) struct Lines {
    inner: Arc<Mutex<Idle>>,
    each_max: usize,
    idle_time: Duration,
}

#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "a line is handed on by its address, and is too large to be moved for each request"
)]
struct Idle {
    by_place: HashMap<Place, Vec<Box<Line>>>,
    /// Somebody looks at them.
    watched: bool,
}

type Connection = http1::Connection<TokioIo<PortStream>, Body>;

/// One connection.
#[derive(Debug)]
pub(super) struct Line {
    sender: http1::SendRequest<Body>,
    /// None when it has ended.
    connection: Option<Connection>,
    /// Whose task used it last: the same one gets it again, since the connection knows already whom to wake.
    user: Waker,
    used: Instant,
}

/// What went wrong on a line.
#[derive(Debug)]
pub(super) enum LineError {
    /// It was closed before it took the request, which is as good as new.
    Unsent(Box<Request<Body>>),
    Broken(Box<dyn Error + Send + Sync>),
}

impl Lines {
    pub(super) fn new(each_max: usize, idle_time: Duration) -> Self {
        Self { inner: Arc::default(), each_max, idle_time }
    }

    /// An idle line to this place, if there is one.
    pub(super) fn take(&self, place: &Place, user: &Waker) -> Option<Box<Line>> {
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

    /// The body of an answer, which brings its line back here.
    pub(super) fn driven(&self, place: Place, line: Box<Line>, body: Incoming) -> Driven {
        let lines = Self { inner: self.inner.clone(), each_max: self.each_max, idle_time: self.idle_time };
        Driven { body, used: Some(Used { line, place, lines }), over: false }
    }

    fn keep(&self, place: Place, mut line: Box<Line>) {
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
            runtime.spawn(watch(self.inner.clone(), self.idle_time));
        }
    }
}

/// Closes what is not worth keeping, until nothing is kept.
async fn watch(inner: Arc<Mutex<Idle>>, idle_time: Duration) {
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

// Lists are changed by whole lines: a panic elsewhere leaves them true.
fn lock(inner: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    pub(super) async fn open(stream: PortStream) -> Result<Box<Self>, hyper::Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let user = Waker::noop().clone();
        Ok(Box::new(Self { sender, connection: Some(connection), user, used: Instant::now() }))
    }

    /// Sends a request without a body and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, request: Request<Body>) -> Result<Response<Incoming>, LineError> {
        debug_assert!(request.body().is_end_stream(), "a body needs a task that sends it");
        let mut answer = std::pin::pin!(self.sender.try_send_request(request));
        let (connection, user) = (&mut self.connection, &mut self.user);
        let answered = std::future::poll_fn(|ctx| {
            if !user.will_wake(ctx.waker()) {
                user.clone_from(ctx.waker());
            }
            drive(connection, ctx);
            // Nothing but the connection, which has just been polled, completes it: being woken for it would poll us twice.
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending if connection.is_none() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
                Poll::Ready(answered) => Poll::Ready(Some(answered)),
            }
        });
        match answered.await {
            Some(Ok(response)) => Ok(response),
            Some(Err(mut error)) => Err(match error.take_message() {
                Some(request) => LineError::Unsent(Box::new(request)),
                None => LineError::Broken(error.into_error().into()),
            }),
            None => Err(LineError::Broken("the connection ended without an answer".into())),
        }
    }

    /// Whether it could take another request.
    fn is_usable(&mut self) -> bool {
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// Moves what can be moved. What a connection ends with it tells those who wait for it, the last of it when it is dropped.
fn drive(connection: &mut Option<Connection>, ctx: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(ctx).is_ready()) {
        *connection = None;
    }
}

/// The body of an answer. Reading it is what moves the bytes of its line, which is kept when the body is over.
#[derive(Debug)]
pub(super) struct Driven {
    body: Incoming,
    /// None of an answer whose connection has a task of its own.
    used: Option<Used>,
    over: bool,
}

#[derive(Debug)]
struct Used {
    line: Box<Line>,
    place: Place,
    lines: Lines,
}

impl From<Incoming> for Driven {
    fn from(body: Incoming) -> Self {
        Self { body, used: None, over: false }
    }
}

impl hyper::body::Body for Driven {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let frame = match &mut this.used {
            None => Pin::new(&mut this.body).poll_frame(ctx),
            // As with the head: it comes from the connection, and whatever moves that wakes us.
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

impl Drop for Driven {
    fn drop(&mut self) {
        let Some(mut used) = self.used.take() else { return };
        // What is left of a body would be taken for the next answer.
        if !self.over && !self.body.is_end_stream() {
            return;
        }
        let ready = used.line.connection.is_some() && used.line.sender.is_ready();
        if ready || used.line.is_usable() {
            used.lines.keep(used.place, used.line);
        }
    }
}
