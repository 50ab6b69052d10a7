//! A simulated network, without a kernel.
//!
//! A sandbox's guest is any test code that listens on a loopback port and was registered with [`SimNetwork::serve`].
//! Clones share one state, as two successive daemons share a host: a test "restarts the daemon" by continuing with a
//! clone.
//!
//! A sandbox's listeners are loopback listeners. A test acts as a program inside: it connects to the address from
//! [`SimNetwork::listener_addresses`]. The connection's original destination is then that address itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::SandboxId;
use tokio::net::TcpStream;

use crate::{Attachment, Dial, Link, Listeners, Network, NetworkError, Plug, Rate};

/// The networks of the simulated host.
#[derive(Clone, Debug, Default)]
pub struct SimNetwork {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The connected sandboxes, and the number of their connection: handles of an earlier connection are dead.
    connected: BTreeMap<SandboxId, u64>,
    connections: u64,
    guests: BTreeMap<SandboxId, SocketAddr>,
    default_guest: Option<SocketAddr>,
    unreachable: BTreeSet<SandboxId>,
    /// Servers on single ports of every sandbox; `None`: the port refuses connections.
    ports: BTreeMap<u16, Option<SocketAddr>>,
    /// The newest listeners of each connected sandbox.
    listeners: BTreeMap<SandboxId, ListenerAddresses>,
    /// The address of the newest own listener of each connected sandbox.
    own_listeners: BTreeMap<SandboxId, SocketAddr>,
    /// Stored, without effect.
    rates: BTreeMap<SandboxId, Rate>,
}

/// The addresses of a simulated sandbox's listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerAddresses {
    pub tcp: SocketAddr,
    pub dns_udp: SocketAddr,
    pub dns_tcp: SocketAddr,
}

impl SimNetwork {
    pub fn new() -> Self {
        Self::default()
    }

    /// Connects every dial to `id`, on any port, to `guest`.
    pub fn serve(&self, id: &SandboxId, guest: SocketAddr) {
        self.state().guests.insert(id.clone(), guest);
    }

    /// Connects dials to sandboxes without their own guest to `guest`.
    pub fn serve_by_default(&self, guest: SocketAddr) {
        self.state().default_guest = Some(guest);
    }

    /// Connects dials to this port of any sandbox to `server`, or refuses them.
    pub fn serve_port(&self, port: u16, server: Option<SocketAddr>) {
        self.state().ports.insert(port, server);
    }

    /// Makes dials to `id` fail, or work again.
    pub fn set_reachable(&self, id: &SandboxId, reachable: bool) {
        let mut state = self.state();
        if reachable {
            state.unreachable.remove(id);
        } else {
            state.unreachable.insert(id.clone());
        }
    }

    /// The connected sandboxes, sorted.
    pub fn live(&self) -> Vec<SandboxId> {
        self.state().connected.keys().cloned().collect()
    }

    /// The addresses of the newest listeners of `id`; `None` when it has none.
    pub fn listener_addresses(&self, id: &SandboxId) -> Option<ListenerAddresses> {
        self.state().listeners.get(id).copied()
    }

    /// The address of the newest own listener of `id`; `None` when it has none.
    pub fn own_listener_address(&self, id: &SandboxId) -> Option<SocketAddr> {
        self.state().own_listeners.get(id).copied()
    }

    /// The last rate that was set for `id`.
    pub fn rate(&self, id: &SandboxId) -> Option<Rate> {
        self.state().rates.get(id).copied()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a new connection of `id`, in place of an earlier one, and returns its number.
    fn begin(&self, id: &SandboxId) -> u64 {
        let mut state = self.state();
        state.connections += 1;
        let connection = state.connections;
        state.connected.insert(id.clone(), connection);
        state.listeners.remove(id);
        state.own_listeners.remove(id);
        state.rates.remove(id);
        connection
    }

    fn is_current(&self, id: &SandboxId, connection: u64) -> bool {
        self.state().connected.get(id) == Some(&connection)
    }

    fn dial_for(&self, id: &SandboxId, connection: u64) -> Arc<dyn Dial> {
        Arc::new(SimDial { network: self.clone(), id: id.clone(), connection })
    }
}

#[async_trait]
impl Network for SimNetwork {
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        let connection = self.begin(id);
        Ok(Link { attachment: Attachment::None, dial: self.dial_for(id, connection) })
    }

    async fn connect_later(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        let connection = self.begin(id);
        let plug = SimPlug { network: self.clone(), id: id.clone(), connection };
        Ok(Link { attachment: Attachment::Later(Arc::new(plug)), dial: self.dial_for(id, connection) })
    }

    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError> {
        let connection = self.state().connected.get(id).copied();
        Ok(connection.map(|connection| self.dial_for(id, connection)))
    }

    async fn listeners(&self, id: &SandboxId) -> Result<Listeners, NetworkError> {
        let failed = |source| NetworkError::Step { step: "open the listeners", id: id.to_string(), source };
        let (listeners, addresses) = open_listeners().map_err(failed)?;
        let mut state = self.state();
        if !state.connected.contains_key(id) {
            return Err(NetworkError::NotConnected { id: id.to_string() });
        }
        state.listeners.insert(id.clone(), addresses);
        Ok(listeners)
    }

    async fn own_listener(&self, id: &SandboxId) -> Result<OwnedFd, NetworkError> {
        let failed =
            |source| NetworkError::Step { step: "open the own listener", id: id.to_string(), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut state = self.state();
        if !state.connected.contains_key(id) {
            return Err(NetworkError::NotConnected { id: id.to_string() });
        }
        state.own_listeners.insert(id.clone(), address);
        Ok(listener.into())
    }

    async fn set_rate(&self, id: &SandboxId, rate: Option<Rate>) -> Result<(), NetworkError> {
        let mut state = self.state();
        if !state.connected.contains_key(id) {
            return Err(NetworkError::NotConnected { id: id.to_string() });
        }
        match rate {
            Some(rate) => state.rates.insert(id.clone(), rate),
            None => state.rates.remove(id),
        };
        Ok(())
    }

    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError> {
        let mut state = self.state();
        state.connected.remove(id);
        state.listeners.remove(id);
        state.own_listeners.remove(id);
        state.rates.remove(id);
        Ok(())
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError> {
        Ok(self.live())
    }

    async fn shutdown(&self) {}
}

fn open_listeners() -> io::Result<(Listeners, ListenerAddresses)> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let (tcp, dns_tcp, dns_udp) = (TcpListener::bind(any)?, TcpListener::bind(any)?, UdpSocket::bind(any)?);
    tcp.set_nonblocking(true)?;
    dns_tcp.set_nonblocking(true)?;
    dns_udp.set_nonblocking(true)?;
    let addresses = ListenerAddresses {
        tcp: tcp.local_addr()?,
        dns_udp: dns_udp.local_addr()?,
        dns_tcp: dns_tcp.local_addr()?,
    };
    Ok((Listeners { tcp: tcp.into(), dns_udp: dns_udp.into(), dns_tcp: dns_tcp.into() }, addresses))
}

fn released() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the sandbox's network was released")
}

/// Does nothing: a simulated guest is reachable as soon as its sandbox is connected, since simulated machines have no
/// namespace.
#[derive(Debug)]
struct SimPlug {
    network: SimNetwork,
    id: SandboxId,
    connection: u64,
}

impl Plug for SimPlug {
    fn plug(&self, _net: BorrowedFd<'_>) -> io::Result<()> {
        if self.network.is_current(&self.id, self.connection) { Ok(()) } else { Err(released()) }
    }
}

#[derive(Debug)]
struct SimDial {
    network: SimNetwork,
    id: SandboxId,
    connection: u64,
}

#[async_trait]
impl Dial for SimDial {
    async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let guest = {
            if !self.network.is_current(&self.id, self.connection) {
                return Err(released());
            }
            let state = self.network.state();
            if state.unreachable.contains(&self.id) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            let guest = state.guests.get(&self.id).copied().or(state.default_guest);
            state.ports.get(&port).copied().unwrap_or(guest)
        };
        // A sandbox without a registered guest is a machine without a listener.
        let stream = TcpStream::connect(guest.ok_or(io::ErrorKind::ConnectionRefused)?).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn dial_uncounted(&self, port: u16) -> io::Result<TcpStream> {
        self.dial(port).await
    }
}
