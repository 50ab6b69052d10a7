//! The conformance suite: every driver passes it, including `sim`, so the simulation matches the real driver.
//!
//! The tests of a driver provide a [`Fixture`] and run [`all`]. The functions contain assertions, and their names
//! describe the behaviour that [`Network`] promises.

use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use burrow_model::SandboxId;
use futures_util::FutureExt;
use futures_util::future::join_all;
use rustix::net::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Attachment, Dial, Link, Listeners, Network, NetworkError, Rate};

/// The port that the suite's guests listen on.
const PORT: u16 = 4100;

/// Number of sandboxes that connect at once. More than any pool in the tests holds, so creation on demand is tested
/// too.
const SANDBOXES_AT_ONCE: usize = 12;

/// Data arrives at a listener within microseconds. After this time the suite considers it lost.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that the suite sends through a network with [`RATE`]. One second's worth passes at once, the rest takes two
/// more seconds.
const CARRIED_BYTES: usize = 6 << 20;

/// Far below what any interface carries, so only the rate can delay bytes.
const RATE: Rate = Rate { bytes_per_second: 2 << 20 };

/// A driver, and the operations that the suite needs to act as a guest behind it.
pub trait Fixture: Send + Sync {
    fn network(&self) -> &dyn Network;

    /// Acts as a restored machine: plugs a new, empty network namespace into the result of `connect_later`, and returns
    /// the attachment that `connect` would have returned.
    fn plug_in(&self, attachment: &Attachment) -> io::Result<Attachment>;

    /// A listener on `port` of the sandbox's address, as its guest would open one.
    fn listen(&self, id: &SandboxId, attachment: &Attachment, port: u16) -> io::Result<TcpListener>;

    /// A connection from the sandbox to an outside address, as a program inside would open one.
    fn leave(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<std::net::TcpStream>;

    /// A connection from the sandbox to the resolver.
    fn leave_to_resolver(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<std::net::TcpStream>;

    /// A connection from the sandbox to its own API.
    fn leave_to_own(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<std::net::TcpStream>;

    /// A UDP socket inside the sandbox, connected to the resolver.
    fn ask_resolver(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<UdpSocket>;

    /// Whether bytes pass through a real interface that can limit them. Otherwise rates are only stored.
    fn has_wire(&self) -> bool;

    /// The driver as the next daemon on the same host opens it.
    fn reopen(&self) -> Box<dyn Fixture>;
}

/// The two ways in which a sandbox gets its network. The suite runs the same tests for both.
#[derive(Clone, Copy, Debug)]
enum ConnectMode {
    /// For a new machine, by `connect`.
    Now,
    /// For a restored machine, by `connect_later` and the plug.
    Later,
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    for way in [ConnectMode::Now, ConnectMode::Later] {
        a_connected_sandbox_is_in_the_inventory_and_a_released_one_is_not(fixture, way).await;
        releasing_twice_or_an_unknown_sandbox_succeeds(fixture, way).await;
        dialling_reaches_the_guest(fixture, way).await;
        a_port_without_a_listener_refuses_connections(fixture, way).await;
        connecting_again_replaces_the_network(fixture, way).await;
        a_handle_is_dead_once_its_sandbox_was_released(fixture, way).await;
        an_unconnected_sandbox_is_not_adopted(fixture, way).await;
        the_next_daemon_adopts_connected_sandboxes(fixture, way).await;
        all_traffic_of_a_sandbox_arrives_at_its_listeners(fixture, way).await;
        reopened_listeners_take_over_and_accepted_connections_continue(fixture, way).await;
        the_next_daemon_opens_listeners_of_connected_sandboxes(fixture, way).await;
        only_a_connected_sandbox_has_listeners(fixture, way).await;
        only_its_sandbox_reaches_the_own_listener_and_the_newest_wins(fixture, way).await;
        release_removes_everything_that_a_cancelled_connect_left(fixture, way).await;
        only_a_connected_sandbox_has_a_rate(fixture, way).await;
        a_rate_limits_each_direction_until_it_is_removed(fixture, way).await;
    }
    a_network_that_is_connected_again_has_no_rate(fixture).await;
    a_rate_applies_before_the_machine_exists_and_outlives_the_daemon(fixture).await;
    uncounted_connections_pass_while_the_rate_is_used_up(fixture).await;
    a_network_without_a_machine_is_complete_otherwise(fixture).await;
    plugging_in_again_disconnects_the_earlier_machine(fixture).await;
    nothing_is_plugged_into_a_network_that_was_released_or_replaced(fixture).await;
    many_sandboxes_connect_at_once_and_each_reaches_its_own_guest(fixture).await;
    shutting_down_keeps_sandboxes_and_still_connects(fixture).await;
}

async fn a_connected_sandbox_is_in_the_inventory_and_a_released_one_is_not(
    fixture: &dyn Fixture,
    way: ConnectMode,
) {
    let network = fixture.network();
    let id = SandboxId::generate();
    connect(fixture, way, &id).await;
    assert!(inventory(network).await.contains(&id));
    release(network, &id).await;
    assert!(!inventory(network).await.contains(&id));
}

async fn releasing_twice_or_an_unknown_sandbox_succeeds(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    release(network, &id).await;
    connect(fixture, way, &id).await;
    release(network, &id).await;
    release(network, &id).await;
}

async fn dialling_reaches_the_guest(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    for _ in 0..3 {
        assert!(guest.is_behind(&*link.dial).await);
    }
    release(network, &id).await;
}

async fn a_port_without_a_listener_refuses_connections(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
    let error = link.dial.dial(PORT).await.expect_err("no process listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    release(network, &id).await;
}

async fn connecting_again_replaces_the_network(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let first = connect(fixture, way, &id).await;
    let second = connect(fixture, way, &id).await;
    let guest = Guest::start(fixture, &id, &second.attachment);
    assert!(guest.is_behind(&*second.dial).await);
    assert!(first.dial.dial(PORT).await.is_err(), "the first network is gone");
    assert_eq!(inventory(network).await.iter().filter(|other| **other == id).count(), 1);
    release(network, &id).await;
    assert!(!inventory(network).await.contains(&id));
}

async fn a_handle_is_dead_once_its_sandbox_was_released(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    assert!(guest.is_behind(&*link.dial).await);
    release(network, &id).await;
    let error = link.dial.dial(PORT).await.expect_err("the network is gone, though its guest still listens");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

async fn a_network_without_a_machine_is_complete_otherwise(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let Link { attachment, dial } = connect_later(fixture, &id).await;
    assert!(inventory(network).await.contains(&id));
    assert!(network.adopt(&id).await.expect("adopting works").is_some());
    let listeners = network.listeners(&id).await.expect("listeners are opened before anything runs");
    assert!(dial.dial(PORT).await.is_err(), "there is no machine yet");
    let link = Link { attachment: fixture.plug_in(&attachment).expect("plugging in works"), dial };
    let leaving = ConnectedSandbox { fixture, id, link, listeners: LiveListeners::new(listeners) };
    leaving.arrives().await;
    leaving.end().await;
}

async fn plugging_in_again_disconnects_the_earlier_machine(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let Link { attachment, dial } = connect_later(fixture, &id).await;
    let plug_in = || fixture.plug_in(&attachment).expect("plugging in works");
    // A first restore that failed; its remains may still exist.
    let earlier = plug_in();
    let link = Link { attachment: plug_in(), dial };
    let guest = Guest::start(fixture, &id, &link.attachment);
    assert!(guest.is_behind(&*link.dial).await);
    drop(earlier);
    assert!(
        guest.is_behind(&*link.dial).await,
        "the end of the earlier machine does not affect the later one"
    );
    let listeners = fixture.network().listeners(&id).await.expect("a connected sandbox has listeners");
    let leaving = ConnectedSandbox { fixture, id, link, listeners: LiveListeners::new(listeners) };
    leaving.arrives().await;
    leaving.end().await;
}

async fn nothing_is_plugged_into_a_network_that_was_released_or_replaced(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let first = connect_later(fixture, &id).await;
    let second = connect_later(fixture, &id).await;
    assert!(fixture.plug_in(&first.attachment).is_err(), "it was replaced");
    fixture.plug_in(&second.attachment).expect("plugging in works");
    release(fixture.network(), &id).await;
    let error = fixture.plug_in(&second.attachment).expect_err("it was released");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

async fn an_unconnected_sandbox_is_not_adopted(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    assert!(network.adopt(&id).await.expect("asking is no error").is_none());
    connect(fixture, way, &id).await;
    release(network, &id).await;
    assert!(network.adopt(&id).await.expect("asking is no error").is_none());
}

async fn the_next_daemon_adopts_connected_sandboxes(fixture: &dyn Fixture, way: ConnectMode) {
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
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

async fn release_removes_everything_that_a_cancelled_connect_left(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    for polls in 0..4 {
        let id = SandboxId::generate();
        let mut connect = match way {
            ConnectMode::Now => network.connect(&id),
            ConnectMode::Later => network.connect_later(&id),
        };
        for _ in 0..polls {
            // One poll only: the operation that it waits for is hardly complete by then.
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

async fn many_sandboxes_connect_at_once_and_each_reaches_its_own_guest(fixture: &dyn Fixture) {
    let network = fixture.network();
    let ids: Vec<SandboxId> = (0..SANDBOXES_AT_ONCE).map(|_| SandboxId::generate()).collect();
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
    let link = connect(&*next, ConnectMode::Now, &before).await;
    let guest = Guest::start(fixture, &before, &link.attachment);
    network.shutdown().await;
    network.shutdown().await;
    assert!(guest.is_behind(&*link.dial).await);
    connect(&*next, ConnectMode::Now, &after).await;
    release(network, &before).await;
    release(network, &after).await;
}

async fn all_traffic_of_a_sandbox_arrives_at_its_listeners(fixture: &dyn Fixture, way: ConnectMode) {
    let (one, other) =
        (ConnectedSandbox::start(fixture, way).await, ConnectedSandbox::start(fixture, way).await);
    for _ in 0..3 {
        one.arrives().await;
        other.arrives().await;
    }
    one.end().await;
    other.end().await;
}

async fn reopened_listeners_take_over_and_accepted_connections_continue(
    fixture: &dyn Fixture,
    way: ConnectMode,
) {
    let mut leaving = ConnectedSandbox::start(fixture, way).await;
    let mut inside = fixture.leave(&leaving.id, &leaving.link.attachment).expect("a listener is open");
    let (mut outside, _from) = accept(&leaving.listeners.tcp).await;
    for _ in 0..3 {
        // The earlier listeners are still held, as by a process that hangs.
        let _earlier = leaving.open_again().await;
        leaving.arrives().await;
    }
    inside.write_all(b"x").expect("the connection is open");
    assert_eq!(outside.read_u8().await.expect("the connection is open"), b'x');
    leaving.end().await;
}

async fn the_next_daemon_opens_listeners_of_connected_sandboxes(fixture: &dyn Fixture, way: ConnectMode) {
    let mut leaving = ConnectedSandbox::start(fixture, way).await;
    let next = fixture.reopen();
    let listeners = next.network().listeners(&leaving.id).await.expect("its network is there");
    let _earlier = std::mem::replace(&mut leaving.listeners, LiveListeners::new(listeners));
    leaving.arrives().await;
    leaving.end().await;
    next.network().shutdown().await;
}

async fn only_a_connected_sandbox_has_listeners(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let refused = |outcome| matches!(outcome, Err(NetworkError::NotConnected { .. }));
    assert!(refused(network.listeners(&id).await));
    connect(fixture, way, &id).await;
    assert!(network.listeners(&id).await.is_ok());
    release(network, &id).await;
    assert!(refused(network.listeners(&id).await));
}

async fn only_its_sandbox_reaches_the_own_listener_and_the_newest_wins(
    fixture: &dyn Fixture,
    way: ConnectMode,
) {
    let (one, other) =
        (ConnectedSandbox::start(fixture, way).await, ConnectedSandbox::start(fixture, way).await);
    let open = async |leaving: &ConnectedSandbox<'_>| {
        let listener =
            leaving.fixture.network().own_listener(&leaving.id).await.expect("a connected sandbox has one");
        tokio::net::TcpListener::from_std(listener.into()).expect("a listening socket that does not block")
    };
    let (first, stranger) = (open(&one).await, open(&other).await);
    // The previous listener is still held, as by a daemon that hangs.
    let newest = open(&one).await;
    let mut inside = fixture.leave_to_own(&one.id, &one.link.attachment).expect("the listener is open");
    let (mut arrived, _) = accept(&newest).await;
    arrived.write_all(b"x").await.expect("it is open");
    inside.read_exact(&mut [0]).expect("the answer comes back");
    assert!(stranger.accept().now_or_never().is_none(), "no connection of another sandbox arrives");
    assert!(
        one.listeners.tcp.accept().now_or_never().is_none(),
        "and the egress listener is a different one"
    );
    drop(first);
    let (network, id) = (fixture.network(), one.id.clone());
    one.end().await;
    other.end().await;
    assert!(matches!(network.own_listener(&id).await, Err(NetworkError::NotConnected { .. })));
}

async fn only_a_connected_sandbox_has_a_rate(fixture: &dyn Fixture, way: ConnectMode) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let refused = |outcome| matches!(outcome, Err(NetworkError::NotConnected { .. }));
    assert!(refused(network.set_rate(&id, Some(RATE)).await));
    connect(fixture, way, &id).await;
    for rate in [None, Some(RATE), Some(RATE), None, None] {
        network.set_rate(&id, rate).await.expect("a rate can be set repeatedly");
    }
    network.set_rate(&id, Some(RATE)).await.expect("a rate is set");
    release(network, &id).await;
    assert!(refused(network.set_rate(&id, None).await));
}

async fn a_rate_limits_each_direction_until_it_is_removed(fixture: &dyn Fixture, way: ConnectMode) {
    let leaving = ConnectedSandbox::start(fixture, way).await;
    for direction in [Direction::Out, Direction::In] {
        leaving.set_rate(Some(RATE)).await;
        leaving.is_paced(direction).await;
        leaving.set_rate(None).await;
        leaving.is_not_paced(direction).await;
    }
    leaving.end().await;
}

async fn a_network_that_is_connected_again_has_no_rate(fixture: &dyn Fixture) {
    let leaving = ConnectedSandbox::start(fixture, ConnectMode::Now).await;
    leaving.set_rate(Some(RATE)).await;
    let link = connect(fixture, ConnectMode::Now, &leaving.id).await;
    let listeners =
        fixture.network().listeners(&leaving.id).await.expect("a connected sandbox has listeners");
    let anew = ConnectedSandbox { link, listeners: LiveListeners::new(listeners), ..leaving };
    anew.is_not_paced(Direction::Out).await;
    anew.end().await;
}

/// A rate that was set earlier also applies to a machine that is plugged in later, and after another daemon adopted the
/// network.
async fn a_rate_applies_before_the_machine_exists_and_outlives_the_daemon(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let Link { attachment, dial } = connect_later(fixture, &id).await;
    fixture.network().set_rate(&id, Some(RATE)).await.expect("a rate is set before there is a machine");
    let link = Link { attachment: fixture.plug_in(&attachment).expect("plugging in works"), dial };
    let next = fixture.reopen();
    next.network().adopt(&id).await.expect("adopting works").expect("it is there");
    let listeners = next.network().listeners(&id).await.expect("its network is there");
    let leaving = ConnectedSandbox { fixture: &*next, id, link, listeners: LiveListeners::new(listeners) };
    leaving.is_paced(Direction::In).await;
    next.network().set_rate(&leaving.id, None).await.expect("the next daemon takes it away");
    leaving.is_not_paced(Direction::In).await;
    leaving.end().await;
    next.network().shutdown().await;
}

async fn uncounted_connections_pass_while_the_rate_is_used_up(fixture: &dyn Fixture) {
    let leaving = ConnectedSandbox::start(fixture, ConnectMode::Now).await;
    let guest = Guest::start(fixture, &leaving.id, &leaving.link.attachment);
    // So low that no packet ever passes.
    leaving.set_rate(Some(Rate { bytes_per_second: 1 })).await;
    let dial = &*leaving.link.dial;
    for _ in 0..3 {
        let stream = dial.dial_uncounted(PORT).await.expect("the agent is reached all the same");
        assert!(guest.greets(stream).await);
    }
    if fixture.has_wire() {
        let error = dial.dial(PORT).await.expect_err("a counted connection does not pass");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
    leaving.end().await;
}

// === helpers ===

/// The direction of the data, as seen from the sandbox.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Out,
    In,
}

/// A connected sandbox with open listeners.
struct ConnectedSandbox<'a> {
    fixture: &'a dyn Fixture,
    id: SandboxId,
    link: Link,
    listeners: LiveListeners,
}

/// The listeners, as the process that serves them uses them.
struct LiveListeners {
    tcp: tokio::net::TcpListener,
    dns_udp: tokio::net::UdpSocket,
    dns_tcp: tokio::net::TcpListener,
}

impl LiveListeners {
    /// Fails if the runtime would refuse a blocking socket.
    fn new(listeners: Listeners) -> Self {
        let usable = "a listener is a listening socket that does not block";
        Self {
            tcp: tokio::net::TcpListener::from_std(listeners.tcp.into()).expect(usable),
            dns_udp: tokio::net::UdpSocket::from_std(listeners.dns_udp.into()).expect(usable),
            dns_tcp: tokio::net::TcpListener::from_std(listeners.dns_tcp.into()).expect(usable),
        }
    }
}

impl<'a> ConnectedSandbox<'a> {
    async fn start(fixture: &'a dyn Fixture, way: ConnectMode) -> Self {
        let id = SandboxId::generate();
        let link = connect(fixture, way, &id).await;
        let listeners = fixture.network().listeners(&id).await.expect("a connected sandbox has listeners");
        Self { fixture, id, link, listeners: LiveListeners::new(listeners) }
    }

    /// Returns the listeners that were replaced.
    async fn open_again(&mut self) -> LiveListeners {
        let listeners = self.fixture.network().listeners(&self.id).await.expect("opening again works");
        std::mem::replace(&mut self.listeners, LiveListeners::new(listeners))
    }

    /// Every way out ends at its listener, and answers return.
    async fn arrives(&self) {
        let (id, attachment) = (&self.id, &self.link.attachment);
        let mut stream = self.fixture.leave(id, attachment).expect("a listener is open");
        let (mut arrived, _) = accept(&self.listeners.tcp).await;
        arrived.write_all(id.as_str().as_bytes()).await.expect("it is open");
        drop(arrived);
        let mut greeting = String::new();
        stream.read_to_string(&mut greeting).expect("the answer comes back");
        assert_eq!(greeting, id.as_str());

        let _stream = self.fixture.leave_to_resolver(id, attachment).expect("a listener is open");
        accept(&self.listeners.dns_tcp).await;

        let socket = self.fixture.ask_resolver(id, attachment).expect("a program may ask");
        socket.set_read_timeout(Some(ARRIVAL_TIMEOUT)).expect("the timeout is not zero");
        socket.send(id.as_str().as_bytes()).expect("a program may ask");
        let mut question = [0; 64];
        let heard = tokio::time::timeout(ARRIVAL_TIMEOUT, self.listeners.dns_udp.recv_from(&mut question));
        let (length, from) = heard.await.expect("the question arrives").expect("the listener is open");
        assert_eq!(&question[..length], id.as_str().as_bytes());
        self.listeners.dns_udp.send_to(b"answer", from).await.expect("the sender can be answered");
        let length = socket.recv(&mut question).expect("the answer comes from the queried address");
        assert_eq!(&question[..length], b"answer");
    }

    async fn set_rate(&self, rate: Option<Rate>) {
        self.fixture.network().set_rate(&self.id, rate).await.expect("a rate is set");
    }

    /// At most the first second's worth at once plus the rate for the elapsed time has passed.
    async fn is_paced(&self, direction: Direction) {
        let passed = self.carry(direction).await.as_secs_f64();
        let allowed = RATE.bytes_per_second as f64 * (passed + 1.0);
        let paced = CARRIED_BYTES as f64 <= allowed;
        assert!(paced || !self.fixture.has_wire(), "{CARRIED_BYTES} bytes {direction:?} in {passed} s");
    }

    /// The control: more passes than the rate would allow.
    async fn is_not_paced(&self, direction: Direction) {
        let passed = self.carry(direction).await.as_secs_f64();
        let allowed = RATE.bytes_per_second as f64 * (passed + 1.0);
        assert!(CARRIED_BYTES as f64 > allowed, "{CARRIED_BYTES} bytes {direction:?} in {passed} s");
    }

    /// Sends [`CARRIED_BYTES`] over a connection that leaves the sandbox, and returns how long that took.
    async fn carry(&self, direction: Direction) -> Duration {
        let mut inside = self.fixture.leave(&self.id, &self.link.attachment).expect("a listener is open");
        let (mut outside, _) = accept(&self.listeners.tcp).await;
        let began = Instant::now();
        let ours = std::thread::spawn(move || match direction {
            Direction::Out => inside.write_all(&vec![0; CARRIED_BYTES]),
            Direction::In => inside.read_exact(&mut vec![0; CARRIED_BYTES]),
        });
        let theirs = async {
            match direction {
                Direction::Out => outside.read_exact(&mut vec![0; CARRIED_BYTES]).await.map(drop),
                Direction::In => outside.write_all(&vec![0; CARRIED_BYTES]).await,
            }
        };
        theirs.await.expect("the connection is open");
        let joined =
            tokio::task::spawn_blocking(|| ours.join()).await.expect("the test's threads are not ended");
        joined.expect("the thread does not panic").expect("the connection is open");
        began.elapsed()
    }

    async fn end(self) {
        release(self.fixture.network(), &self.id).await;
    }
}

async fn accept(listener: &tokio::net::TcpListener) -> (tokio::net::TcpStream, std::net::SocketAddr) {
    let arrived = tokio::time::timeout(ARRIVAL_TIMEOUT, listener.accept()).await;
    arrived.expect("the connection arrives").expect("the listener is open")
}

async fn connect(fixture: &dyn Fixture, way: ConnectMode, id: &SandboxId) -> Link {
    match way {
        ConnectMode::Now => fixture.network().connect(id).await.expect("connecting works"),
        ConnectMode::Later => {
            let Link { attachment, dial } = connect_later(fixture, id).await;
            Link { attachment: fixture.plug_in(&attachment).expect("plugging in works"), dial }
        }
    }
}

async fn connect_later(fixture: &dyn Fixture, id: &SandboxId) -> Link {
    let link = fixture.network().connect_later(id).await.expect("connecting works");
    assert!(matches!(link.attachment, Attachment::Later(_)));
    link
}

async fn release(network: &dyn Network, id: &SandboxId) {
    network.release(id).await.expect("releasing works");
}

async fn inventory(network: &dyn Network) -> Vec<SandboxId> {
    network.inventory().await.expect("the inventory is readable")
}

/// A guest that sends its sandbox's id to every client, until it is dropped.
struct Guest {
    id: SandboxId,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Guest {
    fn start(fixture: &dyn Fixture, id: &SandboxId, attachment: &Attachment) -> Self {
        let listener = fixture.listen(id, attachment, PORT).expect("a guest may listen on its own address");
        let incoming = listener.try_clone().expect("a descriptor is available");
        let greeting = id.as_str().to_owned();
        let thread = std::thread::spawn(move || {
            for stream in incoming.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut byte = [0];
                // A client that closes the connection early is the concern of its own test.
                let _ = stream.read_exact(&mut byte).and_then(|()| stream.write_all(greeting.as_bytes()));
            }
        });
        Self { id: id.clone(), listener, thread: Some(thread) }
    }

    /// Whether a dialled connection arrives here, and bytes pass both ways.
    async fn is_behind(&self, dial: &dyn Dial) -> bool {
        let stream = dial.dial(PORT).await.expect("the guest listens");
        self.greets(stream).await
    }

    async fn greets(&self, mut stream: tokio::net::TcpStream) -> bool {
        assert!(stream.nodelay().expect("a TCP socket"), "small requests are not delayed");
        stream.write_all(b"?").await.expect("the guest reads");
        let mut greeting = String::new();
        stream.read_to_string(&mut greeting).await.expect("the guest answers");
        greeting == self.id.as_str()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Shutting down the listener makes the `accept` of the guest's thread fail.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
