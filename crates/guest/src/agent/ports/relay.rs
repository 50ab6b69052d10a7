//! Byte pipes from the host to a port inside, so that servers that listen on loopback only can be reached too.
//!
//! After the answer the connection carries nothing but the port's own bytes, in both directions; the end of one
//! direction is passed on and leaves the other open. An idle pipe uses no buffer: all pipes share one, which is empty
//! between two polls.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::Shutdown;
use tokio::net::TcpStream;

use crate::agent::failure::{fail, invalid};
use crate::agent::wire::{Inbox, Outbox, WireError};
use crate::protocol::{ErrorCode, PORT, RequestError};

/// Pipes at once: half of the agent's connections, so that some remain for execs.
const RELAYS_MAX: usize = 256;

/// Loopback accepts or refuses at once, unless the listener's backlog is full.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Bytes moved at a time.
const SCRATCH_BYTES: usize = 32 * 1024;

thread_local! {
    /// Shared by all pipes: it contains bytes only within one poll.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// The number of pipes.
#[derive(Default)]
pub(in crate::agent) struct Relays {
    open: Rc<Cell<usize>>,
}

/// Counts one pipe while it exists.
struct RelayGuard(Rc<Cell<usize>>);

impl Relays {
    fn take(&self) -> Option<RelayGuard> {
        if self.open.get() >= RELAYS_MAX {
            return None;
        }
        self.open.set(self.open.get() + 1);
        Some(RelayGuard(Rc::clone(&self.open)))
    }
}

impl Drop for RelayGuard {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Carries out [`crate::protocol::Request::Connect`].
pub(in crate::agent) async fn connect(
    relays: &Relays,
    port: u16,
    stream: &TcpStream,
    inbox: &mut Inbox<'_>,
    outbox: &mut Outbox<'_>,
) -> Result<(), WireError> {
    let Some(_place) = relays.take() else {
        let message = format!("the limit of {RELAYS_MAX} connections to ports of this sandbox is reached");
        return outbox.reply::<()>(Err(fail(ErrorCode::TooMany, message))).await;
    };
    let target = match dial(port).await {
        Ok(target) => target,
        Err(error) => return outbox.reply::<()>(Err(error)).await,
    };
    let _ = target.set_nodelay(true);
    outbox.reply(Ok(())).await?;
    // A host that did not wait for the answer has sent bytes that were read together with its request.
    let early = inbox.take_rest();
    write_all(&target, &early).await?;
    let (sent, received) = tokio::join!(pump(stream, &target), pump(&target, stream));
    sent.and(received).map_err(WireError::Io)
}

async fn dial(port: u16) -> Result<TcpStream, RequestError> {
    if port == 0 || port == PORT {
        return Err(invalid(format_args!("connections to port {port} are not allowed")));
    }
    let mut refused = None;
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        let connecting = TcpStream::connect(SocketAddr::from((address, port)));
        match tokio::time::timeout(CONNECT_WAIT_MAX, connecting).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => refused = refused.or(Some(error)),
            Err(_) => {
                let message = format!("port {port} did not accept a connection within {CONNECT_WAIT_MAX:?}");
                return Err(fail(ErrorCode::TooMany, message));
            }
        }
    }
    let why = refused.map_or_else(String::new, |error| error.to_string());
    Err(fail(ErrorCode::NotFound, format_args!("nothing listens on port {port}: {why}")))
}

/// Moves bytes in one direction until the end, and passes the end on.
async fn pump(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    loop {
        from.readable().await?;
        let rest = match SCRATCH.with_borrow_mut(|scratch| step(from, to, scratch)) {
            Ok(Step::Moved) => continue,
            Ok(Step::Stuck(rest)) => rest,
            Ok(Step::End) => return shut(to),
            Err(error) => {
                // The other direction must not wait forever on a broken pipe.
                let _ = rustix::net::shutdown(from, Shutdown::Both);
                let _ = rustix::net::shutdown(to, Shutdown::Both);
                return Err(error);
            }
        };
        write_all(to, &rest).await?;
    }
}

enum Step {
    /// All available bytes have been moved, or there were none.
    Moved,
    /// The reader is slower: these bytes are still to be written.
    Stuck(Vec<u8>),
    End,
}

fn step(from: &TcpStream, to: &TcpStream, scratch: &mut [u8]) -> io::Result<Step> {
    let count = match from.try_read(scratch) {
        Ok(0) => return Ok(Step::End),
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Moved),
        Err(error) => return Err(error),
    };
    let written = match to.try_write(&scratch[..count]) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    Ok(if written == count { Step::Moved } else { Step::Stuck(scratch[written..count].to_vec()) })
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => {
                let _ = rustix::net::shutdown(to, Shutdown::Both);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Not an error if the peer is gone already.
fn shut(to: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(to, Shutdown::Write) {
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
