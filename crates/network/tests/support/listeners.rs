//! Serves listeners as the egress process does: accepts what arrives, and records it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use burrow_network::Listeners;

/// Everything arrives long before.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct ServedListeners {
    pub(crate) tcp: TcpListener,
    pub(crate) dns_udp: UdpSocket,
    pub(crate) dns_tcp: TcpListener,
}

/// A connection that arrived at a listener.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    pub(crate) from: IpAddr,
    /// The destination that the program connected to.
    pub(crate) to: SocketAddr,
}

impl ServedListeners {
    pub(crate) fn new(listeners: Listeners) -> Self {
        Self {
            tcp: listeners.tcp.into(),
            dns_udp: listeners.dns_udp.into(),
            dns_tcp: listeners.dns_tcp.into(),
        }
    }

    /// The next connection at the egress listener.
    pub(crate) fn next(&self) -> Arrival {
        eventually(|| accept(&self.tcp))
    }

    pub(crate) fn next_at_resolver(&self) -> Arrival {
        eventually(|| accept(&self.dns_tcp))
    }

    pub(crate) fn next_question(&self) -> (Vec<u8>, SocketAddr) {
        eventually(|| self.question())
    }

    /// Fails if anything has arrived, at any listener.
    #[track_caller]
    pub(crate) fn assert_nothing_arrived(&self) {
        assert!(accept(&self.tcp).is_none());
        assert!(accept(&self.dns_tcp).is_none());
        assert!(self.question().is_none());
    }

    pub(crate) fn question(&self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut bytes = [0; 4096];
        let (length, from) = pending(self.dns_udp.recv_from(&mut bytes))?;
        Some((bytes[..length].to_vec(), from))
    }
}

fn accept(listener: &TcpListener) -> Option<Arrival> {
    let (stream, from) = pending(listener.accept())?;
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let to = stream.local_addr().unwrap();
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    Some(Arrival { stream, from: from.ip().to_canonical(), to })
}

fn pending<T>(outcome: io::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("a listener that is open does not fail: {error}"),
    }
}

fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Some(value) => return value,
            None => assert!(Instant::now() < until, "nothing arrived"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}
