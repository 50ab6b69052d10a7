//! One thread that makes sockets inside gateway namespaces, for everybody.
//!
//! A socket belongs to the namespace it was made in, wherever it is used from. So the thread steps in, makes the
//! socket, and steps out (some microseconds); connecting and talking is the async runtime's business. The doors of a
//! sandbox are made by the same thread.

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
use super::namespace::Traveller;
use super::pace::UNCOUNTED;
use crate::Dial;
use crate::address::SANDBOX_V4;

/// Requests waiting for the thread. It serves some 50,000 a second, so a full queue means it is stuck; callers then
/// wait, and give up by [`DIAL_TIMEOUT`].
const QUEUE_MAX: usize = 256;

/// A sandbox answers in well under a millisecond, with a refusal if nothing listens; one that says nothing for this
/// long is paused or gone.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The thread, and the way to it. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Dialler {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// What to do, on the thread that may travel. It answers whoever asked by itself.
struct Request(Box<dyn FnOnce(&Traveller) + Send>);

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

    /// A TCP socket, not blocking, that lives in `gateway`.
    async fn socket(&self, gateway: Arc<OwnedFd>, counted: Counted) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let make = move || {
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            match counted {
                Counted::Yes => {}
                Counted::No => mark::set(socket.as_fd(), UNCOUNTED)?,
            }
            Ok(socket)
        };
        self.within(gateway, make).await
    }

    /// Runs `act` inside `gateway`. It holds up everybody else's dials, so it may take microseconds only.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        gateway: Arc<OwnedFd>,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let gone = || io::Error::other("the dialler's thread has ended");
        let (reply, answer) = oneshot::channel();
        let work = move |traveller: &Traveller| {
            if !reply.is_closed() {
                // The caller may give up meanwhile; what was made is closed with the answer it did not take.
                let _ = reply.send(traveller.visit(gateway.as_fd(), act));
            }
        };
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        requests.send(Request(Box::new(work))).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Dialler {
    fn drop(&mut self) {
        // Closing the queue ends the thread, which has at most a few sockets left to make.
        drop(self.requests.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the dialler's thread had panicked");
        }
    }
}

fn serve(mut queue: mpsc::Receiver<Request>) {
    let traveller = match Traveller::new() {
        Ok(traveller) => traveller,
        Err(error) => {
            // The queue closes with this return, and every dial says so.
            tracing::error!(%error, "could not find the own network namespace, so no sandbox can be dialled");
            return;
        }
    };
    while let Some(Request(work)) = queue.blocking_recv() {
        work(&traveller);
    }
}

/// A gateway namespace as long as its sandbox has it. Releasing takes it away from every handle at once.
#[derive(Debug)]
pub(super) struct Gateway {
    namespace: Mutex<Option<Arc<OwnedFd>>>,
    /// See [`Gateway::is_left_in_silence`].
    has_tap: AtomicBool,
}

impl Gateway {
    /// `has_tap`: or may have one.
    pub(super) fn new(namespace: OwnedFd, has_tap: bool) -> Self {
        Self { namespace: Mutex::new(Some(Arc::new(namespace))), has_tap: AtomicBool::new(has_tap) }
    }

    pub(super) fn set_tap(&self) {
        self.has_tap.store(true, Ordering::Relaxed);
    }

    /// Whether its machine may go without a word. What a host's kernel connects it ends, too, when the processes end; a
    /// machine with a kernel of its own takes that along, and whoever only listens to it would listen for ever.
    pub(super) fn is_left_in_silence(&self) -> bool {
        self.has_tap.load(Ordering::Relaxed)
    }

    /// Ends it: nothing can be dialled through it any more, and it no longer keeps the namespace alive.
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

/// Whether a rate counts what passes.
#[derive(Clone, Copy, Debug)]
enum Counted {
    Yes,
    No,
}

impl GatewayDial {
    async fn dial_in_time(&self, port: u16, counted: Counted) -> io::Result<TcpStream> {
        match tokio::time::timeout(DIAL_TIMEOUT, self.connect(port, counted)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, "the sandbox did not answer")),
        }
    }

    async fn connect(&self, port: u16, counted: Counted) -> io::Result<TcpStream> {
        let socket = self.dialler.socket(self.gateway.namespace()?, counted).await?;
        let socket = TcpSocket::from_std_stream(socket.into());
        // Requests to a guest are small and waited for: holding one back to fill a packet only adds delay.
        socket.set_nodelay(true)?;
        // A stream may be silent for days. A sign of life now and then tells whether the guest is still there.
        socket.set_keepalive(true)?;
        socket.connect(SocketAddr::from((SANDBOX_V4, port))).await
    }
}

#[async_trait]
impl Dial for GatewayDial {
    async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        self.dial_in_time(port, Counted::Yes).await
    }

    async fn dial_uncounted(&self, port: u16) -> io::Result<TcpStream> {
        self.dial_in_time(port, Counted::No).await
    }
}
