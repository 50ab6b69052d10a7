//! Every driver passes the same suite.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs::File;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use burrow_model::SandboxId;
use burrow_network::conformance::{self, Fixture};
use burrow_network::linux::{LinuxNetwork, Options};
use burrow_network::sim::SimNetwork;
use burrow_network::{Attachment, DNS_PORT, GATEWAY_V4, Network, OWN_PORT, SANDBOX_V4};
use support::scene::new_machine;

/// An outside address, from a range reserved for documentation.
const ELSEWHERE: &str = "192.0.2.1:443";

struct Sim(SimNetwork);

impl Fixture for Sim {
    fn network(&self) -> &dyn Network {
        &self.0
    }

    fn plug_in(&self, attachment: &Attachment) -> io::Result<Attachment> {
        let Attachment::Later(plug) = attachment else { panic!("not an attachment of connect_later") };
        plug.plug(File::open("/proc/self/ns/net")?.as_fd())?;
        Ok(Attachment::None)
    }

    fn listen(&self, id: &SandboxId, _attachment: &Attachment, _port: u16) -> io::Result<TcpListener> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        self.0.serve(id, listener.local_addr()?);
        Ok(listener)
    }

    fn leave(&self, id: &SandboxId, _attachment: &Attachment) -> io::Result<TcpStream> {
        TcpStream::connect(self.0.listener_addresses(id).ok_or(io::ErrorKind::HostUnreachable)?.tcp)
    }

    fn leave_to_resolver(&self, id: &SandboxId, _attachment: &Attachment) -> io::Result<TcpStream> {
        TcpStream::connect(self.0.listener_addresses(id).ok_or(io::ErrorKind::HostUnreachable)?.dns_tcp)
    }

    fn leave_to_own(&self, id: &SandboxId, _attachment: &Attachment) -> io::Result<TcpStream> {
        TcpStream::connect(self.0.own_listener_address(id).ok_or(io::ErrorKind::HostUnreachable)?)
    }

    fn ask_resolver(&self, id: &SandboxId, _attachment: &Attachment) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(self.0.listener_addresses(id).ok_or(io::ErrorKind::HostUnreachable)?.dns_udp)?;
        Ok(socket)
    }

    fn has_wire(&self) -> bool {
        false
    }

    fn reopen(&self) -> Box<dyn Fixture> {
        Box::new(Self(self.0.clone()))
    }
}

fn net_of(attachment: &Attachment) -> BorrowedFd<'_> {
    match attachment {
        Attachment::Namespaces { net, .. } => net.as_fd(),
        Attachment::Later(_) | Attachment::None => panic!("the real driver returns namespaces"),
    }
}

struct Linux {
    network: Arc<LinuxNetwork>,
    run_dir: PathBuf,
    pool_size: usize,
}

impl Linux {
    fn open(run_dir: PathBuf, pool_size: usize) -> Self {
        let network =
            LinuxNetwork::open(Options { run_dir: run_dir.clone(), pool_size, own_ids: true }).unwrap();
        Self { network, run_dir, pool_size }
    }
}

impl Fixture for Linux {
    fn network(&self) -> &dyn Network {
        &*self.network
    }

    fn plug_in(&self, attachment: &Attachment) -> io::Result<Attachment> {
        let Attachment::Later(plug) = attachment else { panic!("not an attachment of connect_later") };
        let [user, net] = new_machine();
        plug.plug(net.as_fd())?;
        Ok(Attachment::Namespaces { user, net, ids: None })
    }

    fn listen(&self, _id: &SandboxId, attachment: &Attachment, port: u16) -> io::Result<TcpListener> {
        support::inside(net_of(attachment), || TcpListener::bind((SANDBOX_V4, port)))
    }

    fn leave(&self, _id: &SandboxId, attachment: &Attachment) -> io::Result<TcpStream> {
        support::inside(net_of(attachment), || TcpStream::connect(ELSEWHERE))
    }

    fn leave_to_resolver(&self, _id: &SandboxId, attachment: &Attachment) -> io::Result<TcpStream> {
        support::inside(net_of(attachment), || TcpStream::connect((GATEWAY_V4, DNS_PORT)))
    }

    fn leave_to_own(&self, _id: &SandboxId, attachment: &Attachment) -> io::Result<TcpStream> {
        support::inside(net_of(attachment), || TcpStream::connect((GATEWAY_V4, OWN_PORT)))
    }

    fn ask_resolver(&self, _id: &SandboxId, attachment: &Attachment) -> io::Result<UdpSocket> {
        let socket = support::inside(net_of(attachment), || UdpSocket::bind((SANDBOX_V4, 0)))?;
        socket.connect((GATEWAY_V4, DNS_PORT))?;
        Ok(socket)
    }

    fn has_wire(&self) -> bool {
        true
    }

    fn reopen(&self) -> Box<dyn Fixture> {
        Box::new(Self::open(self.run_dir.clone(), self.pool_size))
    }
}

#[tokio::test]
async fn sim_conforms() {
    conformance::all(&Sim(SimNetwork::new())).await;
}

#[tokio::test]
async fn linux_conforms_with_prepared_slots() {
    let host = support::Host::new();
    let fixture = Linux::open(host.run_dir(), 4);
    conformance::all(&fixture).await;
    fixture.network.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn linux_conforms_when_every_slot_is_created_on_demand() {
    let host = support::Host::new();
    conformance::all(&Linux::open(host.run_dir(), 0)).await;
}
