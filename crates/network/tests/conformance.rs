//! Every driver passes the same suite.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use burrow_model::SandboxId;
use burrow_network::conformance::{self, Fixture};
use burrow_network::linux::{LinuxNetwork, Options};
use burrow_network::sim::SimNetwork;
use burrow_network::{Attachment, Network, SANDBOX_V4};

struct Sim(SimNetwork);

impl Fixture for Sim {
    fn network(&self) -> &dyn Network {
        &self.0
    }

    fn listen(&self, id: &SandboxId, _attachment: &Attachment, _port: u16) -> io::Result<TcpListener> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        self.0.serve(id, listener.local_addr()?);
        Ok(listener)
    }

    fn reopen(&self) -> Box<dyn Fixture> {
        Box::new(Self(self.0.clone()))
    }
}

struct Linux {
    network: Arc<LinuxNetwork>,
    run_dir: PathBuf,
    pool_size: usize,
}

impl Linux {
    fn open(run_dir: PathBuf, pool_size: usize) -> Self {
        let network = LinuxNetwork::open(Options { run_dir: run_dir.clone(), pool_size }).unwrap();
        Self { network, run_dir, pool_size }
    }
}

impl Fixture for Linux {
    fn network(&self) -> &dyn Network {
        &*self.network
    }

    fn listen(&self, _id: &SandboxId, attachment: &Attachment, port: u16) -> io::Result<TcpListener> {
        match attachment {
            Attachment::Namespaces { net, user: _ } => {
                support::inside(net.as_fd(), || TcpListener::bind((SANDBOX_V4, port)))
            }
            Attachment::None => panic!("the real driver hands out namespaces"),
        }
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
async fn linux_conforms_with_slots_in_stock() {
    let host = support::Host::new();
    let fixture = Linux::open(host.run_dir(), 4);
    conformance::all(&fixture).await;
    fixture.network.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn linux_conforms_making_every_slot_on_demand() {
    let host = support::Host::new();
    conformance::all(&Linux::open(host.run_dir(), 0)).await;
}
