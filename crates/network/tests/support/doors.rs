//! Doors as a process holds them that serves them: it takes in what arrives, and says what that was.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use burrow_network::Doors;

/// Whatever arrives, arrives long before.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Served {
    pub(crate) tcp: TcpListener,
    pub(crate) dns_udp: UdpSocket,
    pub(crate) dns_tcp: TcpListener,
}

/// A connection at a door.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    pub(crate) from: IpAddr,
    /// Where the program wanted to go.
    pub(crate) to: SocketAddr,
}

impl Served {
    pub(crate) fn new(doors: Doors) -> Self {
        Self { tcp: doors.tcp.into(), dns_udp: doors.dns_udp.into(), dns_tcp: doors.dns_tcp.into() }
    }

    /// The next connection at the egress door.
    pub(crate) fn next(&self) -> Arrival {
        eventually(|| accept(&self.tcp))
    }

    pub(crate) fn next_at_resolver(&self) -> Arrival {
        eventually(|| accept(&self.dns_tcp))
    }

    pub(crate) fn next_question(&self) -> (Vec<u8>, SocketAddr) {
        eventually(|| self.question())
    }

    /// Fails if anything has arrived, at any door.
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

fn accept(door: &TcpListener) -> Option<Arrival> {
    let (stream, from) = pending(door.accept())?;
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
        Err(error) => panic!("a door that is open does not fail: {error}"),
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
