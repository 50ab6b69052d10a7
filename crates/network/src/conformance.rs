//! What every driver must do, `sim` included: that keeps the fake honest.
//!
//! A driver's tests give a [`Fixture`] and run [`all`]. The functions assert, and their names are the promises of
//! [`Network`].

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use burrow_model::SandboxId;
use futures_util::FutureExt;
use futures_util::future::join_all;
use rustix::net::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Attachment, Dial, Link, Network};

/// The port the suite's guests listen on.
const PORT: u16 = 4100;

/// How many sandboxes connect at once; more than any pool in the tests holds, so that making on demand is met too.
const CROWD: usize = 12;

/// A driver, and what the suite needs to play a guest behind it.
pub trait Fixture: Send + Sync {
    fn network(&self) -> &dyn Network;

    /// A listener on `port` of the sandbox's own address, as its guest would open one.
    fn listen(&self, id: &SandboxId, attachment: &Attachment, port: u16) -> io::Result<TcpListener>;

    /// The driver as the next daemon opens it, on the same host.
    fn reopen(&self) -> Box<dyn Fixture>;
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    a_connected_sandbox_is_in_the_inventory_and_a_released_one_is_not(fixture).await;
    releasing_twice_or_what_never_was_is_fine(fixture).await;
    a_guest_is_reached_by_dialling(fixture).await;
    a_port_nobody_listens_on_refuses(fixture).await;
    connecting_again_replaces_the_network(fixture).await;
    a_handle_is_dead_once_its_sandbox_was_released(fixture).await;
    what_was_never_connected_is_not_adopted(fixture).await;
    the_next_daemon_adopts_what_this_one_connected(fixture).await;
    a_connect_dropped_midway_leaves_at_most_what_release_removes(fixture).await;
    a_crowd_connects_at_once_and_each_reaches_its_own_guest(fixture).await;
    shutting_down_keeps_sandboxes_and_still_connects(fixture).await;
}

async fn a_connected_sandbox_is_in_the_inventory_and_a_released_one_is_not(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    connect(network, &id).await;
    assert!(inventory(network).await.contains(&id));
    release(network, &id).await;
    assert!(!inventory(network).await.contains(&id));
}

async fn releasing_twice_or_what_never_was_is_fine(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    release(network, &id).await;
    connect(network, &id).await;
    release(network, &id).await;
    release(network, &id).await;
}

async fn a_guest_is_reached_by_dialling(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(network, &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    for _ in 0..3 {
        assert!(guest.is_behind(&*link.dial).await);
    }
    release(network, &id).await;
}

async fn a_port_nobody_listens_on_refuses(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(network, &id).await;
    let error = link.dial.dial(PORT).await.expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    release(network, &id).await;
}

async fn connecting_again_replaces_the_network(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let first = connect(network, &id).await;
    let second = connect(network, &id).await;
    let guest = Guest::start(fixture, &id, &second.attachment);
    assert!(guest.is_behind(&*second.dial).await);
    assert!(first.dial.dial(PORT).await.is_err(), "the first network is gone");
    assert_eq!(inventory(network).await.iter().filter(|other| **other == id).count(), 1);
    release(network, &id).await;
    assert!(!inventory(network).await.contains(&id));
}

async fn a_handle_is_dead_once_its_sandbox_was_released(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(network, &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    assert!(guest.is_behind(&*link.dial).await);
    release(network, &id).await;
    let error = link.dial.dial(PORT).await.expect_err("the network is gone, though its guest still listens");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

async fn what_was_never_connected_is_not_adopted(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    assert!(network.adopt(&id).await.expect("asking is no error").is_none());
    connect(network, &id).await;
    release(network, &id).await;
    assert!(network.adopt(&id).await.expect("asking is no error").is_none());
}

async fn the_next_daemon_adopts_what_this_one_connected(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let link = connect(fixture.network(), &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    let next = fixture.reopen();
    assert!(inventory(next.network()).await.contains(&id));
    for _ in 0..2 {
        let dial = next.network().adopt(&id).await.expect("adopting works").expect("it is there");
        assert!(guest.is_behind(&*dial).await);
    }
    release(next.network(), &id).await;
    assert!(!inventory(fixture.network()).await.contains(&id));
    next.network().shutdown().await;
}

async fn a_connect_dropped_midway_leaves_at_most_what_release_removes(fixture: &dyn Fixture) {
    let network = fixture.network();
    for polls in 0..4 {
        let id = SandboxId::generate();
        let mut connect = network.connect(&id);
        for _ in 0..polls {
            // One step only: whatever it is waiting for has hardly happened by then.
            if (&mut connect).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(connect);
        release(network, &id).await;
        assert!(!inventory(network).await.contains(&id));
    }
}

async fn a_crowd_connects_at_once_and_each_reaches_its_own_guest(fixture: &dyn Fixture) {
    let network = fixture.network();
    let ids: Vec<SandboxId> = (0..CROWD).map(|_| SandboxId::generate()).collect();
    let links = join_all(ids.iter().map(|id| network.connect(id))).await;
    let links: Vec<Link> = links.into_iter().map(|link| link.expect("connecting works")).collect();
    let guests: Vec<Guest> =
        ids.iter().zip(&links).map(|(id, link)| Guest::start(fixture, id, &link.attachment)).collect();
    for (guest, link) in guests.iter().zip(&links) {
        assert!(guest.is_behind(&*link.dial).await);
    }
    for released in join_all(ids.iter().map(|id| network.release(id))).await {
        released.expect("releasing works");
    }
    let left = inventory(network).await;
    assert!(ids.iter().all(|id| !left.contains(id)));
}

async fn shutting_down_keeps_sandboxes_and_still_connects(fixture: &dyn Fixture) {
    let next = fixture.reopen();
    let network = next.network();
    let (before, after) = (SandboxId::generate(), SandboxId::generate());
    let link = connect(network, &before).await;
    let guest = Guest::start(fixture, &before, &link.attachment);
    network.shutdown().await;
    network.shutdown().await;
    assert!(guest.is_behind(&*link.dial).await);
    connect(network, &after).await;
    release(network, &before).await;
    release(network, &after).await;
}

// === the pieces ===

async fn connect(network: &dyn Network, id: &SandboxId) -> Link {
    network.connect(id).await.expect("connecting works")
}

async fn release(network: &dyn Network, id: &SandboxId) {
    network.release(id).await.expect("releasing works");
}

async fn inventory(network: &dyn Network) -> Vec<SandboxId> {
    network.inventory().await.expect("the inventory is readable")
}

/// A guest that greets whoever connects with its sandbox's id, until it is dropped.
struct Guest {
    id: SandboxId,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Guest {
    fn start(fixture: &dyn Fixture, id: &SandboxId, attachment: &Attachment) -> Self {
        let listener = fixture.listen(id, attachment, PORT).expect("a guest may listen on its own address");
        let incoming = listener.try_clone().expect("a descriptor is left");
        let greeting = id.as_str().to_owned();
        let thread = std::thread::spawn(move || {
            for stream in incoming.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut byte = [0];
                // A caller that hangs up early is its own test's business.
                let _ = stream.read_exact(&mut byte).and_then(|()| stream.write_all(greeting.as_bytes()));
            }
        });
        Self { id: id.clone(), listener, thread: Some(thread) }
    }

    /// Whether dialling arrives here, and bytes go both ways.
    async fn is_behind(&self, dial: &dyn Dial) -> bool {
        let mut stream = dial.dial(PORT).await.expect("the guest listens");
        assert!(stream.nodelay().expect("a TCP socket"), "small requests are not held back");
        stream.write_all(b"?").await.expect("the guest reads");
        let mut greeting = String::new();
        stream.read_to_string(&mut greeting).await.expect("the guest answers");
        greeting == self.id.as_str()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A listener that is shut down fails the `accept` its thread waits in.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
