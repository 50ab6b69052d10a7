//! A network without a kernel, for simulation.
//!
//! A sandbox's guest is whatever test code listens on a loopback port and was announced with [`SimNetwork::serve`].
//! Clones share one state, as two daemons one after the other share a host: a test "restarts the daemon" by carrying
//! on with a clone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::SandboxId;
use tokio::net::TcpStream;

use crate::{Attachment, Dial, Link, Network, NetworkError};

/// The simulated host's networks.
#[derive(Clone, Debug, Default)]
pub struct SimNetwork {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Which sandboxes are connected, and how often each was: a handle from an earlier connection is dead.
    connected: BTreeMap<SandboxId, u64>,
    connections: u64,
    guests: BTreeMap<SandboxId, SocketAddr>,
    default_guest: Option<SocketAddr>,
    unreachable: BTreeSet<SandboxId>,
}

impl SimNetwork {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets every dial to `id`, on any port, arrive at `guest`.
    pub fn serve(&self, id: &SandboxId, guest: SocketAddr) {
        self.state().guests.insert(id.clone(), guest);
    }

    /// Lets dials to sandboxes without a guest of their own arrive at `guest`.
    pub fn serve_by_default(&self, guest: SocketAddr) {
        self.state().default_guest = Some(guest);
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

    /// The sandboxes that are connected, in order.
    pub fn live(&self) -> Vec<SandboxId> {
        self.state().connected.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dial_for(&self, id: &SandboxId, connection: u64) -> Arc<dyn Dial> {
        Arc::new(SimDial { network: self.clone(), id: id.clone(), connection })
    }
}

#[async_trait]
impl Network for SimNetwork {
    async fn connect(&self, id: &SandboxId) -> Result<Link, NetworkError> {
        let connection = {
            let mut state = self.state();
            state.connections += 1;
            let connection = state.connections;
            state.connected.insert(id.clone(), connection);
            connection
        };
        Ok(Link { attachment: Attachment::None, dial: self.dial_for(id, connection) })
    }

    async fn adopt(&self, id: &SandboxId) -> Result<Option<Arc<dyn Dial>>, NetworkError> {
        let connection = self.state().connected.get(id).copied();
        Ok(connection.map(|connection| self.dial_for(id, connection)))
    }

    async fn release(&self, id: &SandboxId) -> Result<(), NetworkError> {
        self.state().connected.remove(id);
        Ok(())
    }

    async fn inventory(&self) -> Result<Vec<SandboxId>, NetworkError> {
        Ok(self.live())
    }

    async fn shutdown(&self) {}
}

#[derive(Debug)]
struct SimDial {
    network: SimNetwork,
    id: SandboxId,
    connection: u64,
}

#[async_trait]
impl Dial for SimDial {
    async fn dial(&self, _port: u16) -> io::Result<TcpStream> {
        let guest = {
            let state = self.network.state();
            if state.connected.get(&self.id) != Some(&self.connection) {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the sandbox's network was released",
                ));
            }
            if state.unreachable.contains(&self.id) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            state.guests.get(&self.id).copied().or(state.default_guest)
        };
        // A sandbox nobody announced is a machine without a listener.
        let stream = TcpStream::connect(guest.ok_or(io::ErrorKind::ConnectionRefused)?).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
