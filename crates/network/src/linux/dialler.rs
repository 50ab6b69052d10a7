//! One thread that creates sockets inside gateway namespaces, for all callers.
//!
//! A socket belongs to the namespace in which it was created, wherever it is used. So the thread enters the namespace,
//! creates the socket, and returns (some microseconds); the async runtime connects and transfers data. The same thread
//! creates the listeners of a sandbox.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::mark;
use super::namespace::NamespaceVisitor;
use super::pace::UNCOUNTED;
use crate::Dial;
use crate::address::SANDBOX_V4;

/// Requests waiting for the thread. It serves some 50,000 a second, so a full queue means that it is stuck. Callers
/// then wait, and give up after [`DIAL_TIMEOUT`].
const QUEUE_MAX: usize = 256;

/// A sandbox answers in well under a millisecond, with a refusal if no process listens. If there is no answer for this
/// long, it is paused or gone.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The thread and its queue. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Dialler {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// An operation for the thread. It sends its result to the caller itself.
struct Request(Box<dyn FnOnce(&NamespaceVisitor) + Send>);

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}

impl Dialler {
    pub(super) fn start() -> io::Result<Self> {
        let (requests, queue) = mpsc::channel(QUEUE_MAX);
        let thread = thread::Builder::new().name("burrow-dialler".to_owned()).spawn(move || serve(queue))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// A non-blocking TCP socket in the namespace `gateway`.
    async fn socket(&self, gateway: Arc<OwnedFd>, counted: RateCounting) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let make = move || {
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            match counted {
                RateCounting::Yes => {}
                RateCounting::No => mark::set(socket.as_fd(), UNCOUNTED)?,
            }
            Ok(socket)
        };
        self.within(gateway, make).await
    }

    /// Runs `act` inside `gateway`. It delays all other dials, so it may only take microseconds.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        gateway: Arc<OwnedFd>,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the dialler thread has ended");
        let (reply, answer) = oneshot::channel();
        let work = move |visitor: &NamespaceVisitor| {
            if !reply.is_closed() {
                // The caller may give up meanwhile; the new socket is then closed together with the unread answer.
                let _ = reply.send(visitor.visit(gateway.as_fd(), act));
            }
        };
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(Request(Box::new(work))).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Dialler {
    fn drop(&mut self) {
        // Closing the queue ends the thread, which has at most a few sockets left to create.
        drop(self.requests.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the dialler thread panicked");
        }
    }
}

fn serve(mut queue: mpsc::Receiver<Request>) {
    let visitor = match NamespaceVisitor::new() {
        Ok(visitor) => visitor,
        Err(error) => {
            // Returning closes the queue, and every dial reports that.
            tracing::error!(%error, "could not open the current network namespace, so connections to sandboxes will fail");
            return;
        }
    };
    while let Some(Request(work)) = queue.blocking_recv() {
        work(&visitor);
    }
}

/// A gateway namespace while its sandbox has it. Releasing removes it from every handle at once.
#[derive(Debug)]
pub(super) struct Gateway {
    namespace: Mutex<Option<Arc<OwnedFd>>>,
    /// See [`Gateway::loses_connections_silently`].
    has_tap: AtomicBool,
}

impl Gateway {
    /// `has_tap`: whether it has a tap, or may have one.
    pub(super) fn new(namespace: OwnedFd, has_tap: bool) -> Self {
        Self { namespace: Mutex::new(Some(Arc::new(namespace))), has_tap: AtomicBool::new(has_tap) }
    }

    pub(super) fn set_tap(&self) {
        self.has_tap.store(true, Ordering::Relaxed);
    }

    /// Whether its machine may disappear without closing its connections. The host's kernel closes the connections of
    /// processes that end. The kernel of a virtual machine disappears together with its connections, so a peer that
    /// only listens would wait forever.
    pub(super) fn loses_connections_silently(&self) -> bool {
        self.has_tap.load(Ordering::Relaxed)
    }

    /// Closes it: no new connections through it are possible, and it no longer keeps the namespace alive.
    pub(super) fn close(&self) {
        self.namespace.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(super) fn namespace(&self) -> io::Result<Arc<OwnedFd>> {
        let namespace = self.namespace.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let released = || io::Error::new(io::ErrorKind::NotConnected, "the sandbox's network was released");
        namespace.ok_or_else(released)
    }
}

/// Dials one sandbox.
#[derive(Debug)]
pub(super) struct GatewayDial {
    pub(super) dialler: Arc<Dialler>,
    pub(super) gateway: Arc<Gateway>,
}

/// Whether the rate of a sandbox counts the traffic.
#[derive(Clone, Copy, Debug)]
enum RateCounting {
    Yes,
    No,
}

impl GatewayDial {
    async fn dial_in_time(&self, port: u16, counted: RateCounting) -> io::Result<TcpStream> {
        match tokio::time::timeout(DIAL_TIMEOUT, self.connect(port, counted)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, "the sandbox did not answer")),
        }
    }

    async fn connect(&self, port: u16, counted: RateCounting) -> io::Result<TcpStream> {
        let socket = self.dialler.socket(self.gateway.namespace()?, counted).await?;
        let socket = TcpSocket::from_std_stream(socket.into());
        // Requests to a guest are small and latency matters: delaying them to fill a packet has no benefit.
        socket.set_nodelay(true)?;
        // A stream may be idle for days. Keepalive detects whether the guest still exists.
        socket.set_keepalive(true)?;
        socket.connect(SocketAddr::from((SANDBOX_V4, port))).await
    }
}

#[async_trait]
impl Dial for GatewayDial {
    async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        self.dial_in_time(port, RateCounting::Yes).await
    }

    async fn dial_uncounted(&self, port: u16) -> io::Result<TcpStream> {
        self.dial_in_time(port, RateCounting::No).await
    }
}
