//! What every driver must do, `sim` included: that keeps the fake honest.
//!
//! A driver's tests give a [`Fixture`] and run [`all`]. The functions assert, and their names are the promises of
//! [`Network`].

use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use burrow_model::SandboxId;
use futures_util::FutureExt;
use futures_util::future::join_all;
use rustix::net::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Attachment, Dial, Doors, Link, Network, NetworkError, Rate};

/// The port the suite's guests listen on.
const PORT: u16 = 4100;

/// How many sandboxes connect at once; more than any pool in the tests holds, so that making on demand is met too.
const CROWD: usize = 12;

/// What arrives at a door arrives within microseconds; a suite that waits this long has lost it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the suite sends through a network that has [`RATE`]. A second's worth passes at once, the rest takes two more.
const CARRIED_BYTES: usize = 6 << 20;

/// Far below what any wire carries, so that only the rate can be what holds bytes back.
const RATE: Rate = Rate { bytes_per_second: 2 << 20 };

/// A driver, and what the suite needs to play a guest behind it.
pub trait Fixture: Send + Sync {
    fn network(&self) -> &dyn Network;

    /// Plays a machine that was restored: plugs an empty network namespace of its own into what `connect_later` gave,
    /// and hands out what `connect` would have given for that.
    fn plug_in(&self, attachment: &Attachment) -> io::Result<Attachment>;

    /// A listener on `port` of the sandbox's own address, as its guest would open one.
    fn listen(&self, id: &SandboxId, attachment: &Attachment, port: u16) -> io::Result<TcpListener>;

    /// A connection out of the sandbox to somewhere else, as a program inside would open one.
    fn leave(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<std::net::TcpStream>;

    /// The same, to the resolver.
    fn leave_to_resolver(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<std::net::TcpStream>;

    /// The same, to the sandbox's own API.
    fn leave_to_own(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<std::net::TcpStream>;

    /// A socket of a program inside, connected to the resolver.
    fn ask_resolver(&self, id: &SandboxId, attachment: &Attachment) -> io::Result<UdpSocket>;

    /// Whether bytes pass through something that can hold them back. Else rates are only noted.
    fn has_wire(&self) -> bool;

    /// The driver as the next daemon opens it, on the same host.
    fn reopen(&self) -> Box<dyn Fixture>;
}

/// How a sandbox gets its network. What the suite promises of one, it promises of the other.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// For a new machine.
    Now,
    /// For a restored machine, which is plugged in.
    Later,
}

/// Runs the whole suite.
pub async fn all(fixture: &dyn Fixture) {
    for way in [Way::Now, Way::Later] {
        a_connected_sandbox_is_in_the_inventory_and_a_released_one_is_not(fixture, way).await;
        releasing_twice_or_what_never_was_is_fine(fixture, way).await;
        a_guest_is_reached_by_dialling(fixture, way).await;
        a_port_nobody_listens_on_refuses(fixture, way).await;
        connecting_again_replaces_the_network(fixture, way).await;
        a_handle_is_dead_once_its_sandbox_was_released(fixture, way).await;
        what_was_never_connected_is_not_adopted(fixture, way).await;
        the_next_daemon_adopts_what_this_one_connected(fixture, way).await;
        whatever_leaves_a_sandbox_arrives_at_its_doors(fixture, way).await;
        doors_opened_again_take_over_and_what_was_accepted_lives_on(fixture, way).await;
        the_next_daemon_opens_the_doors_of_what_this_one_connected(fixture, way).await;
        only_a_connected_sandbox_has_doors(fixture, way).await;
        the_own_door_is_the_sandboxs_alone_and_the_newest_wins(fixture, way).await;
        a_connect_dropped_midway_leaves_at_most_what_release_removes(fixture, way).await;
        only_a_connected_sandbox_has_a_rate(fixture, way).await;
        a_rate_bounds_what_passes_each_way_until_it_is_taken_away(fixture, way).await;
    }
    a_network_that_is_connected_anew_has_no_rate(fixture).await;
    a_rate_is_there_before_the_machine_and_outlives_the_daemon(fixture).await;
    what_a_rate_does_not_count_passes_while_it_is_used_up(fixture).await;
    a_network_without_a_machine_is_whole_but_for_that(fixture).await;
    plugging_in_again_cuts_off_what_was_plugged_in_before(fixture).await;
    nothing_is_plugged_into_a_network_that_was_released_or_replaced(fixture).await;
    a_crowd_connects_at_once_and_each_reaches_its_own_guest(fixture).await;
    shutting_down_keeps_sandboxes_and_still_connects(fixture).await;
}

async fn a_connected_sandbox_is_in_the_inventory_and_a_released_one_is_not(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    connect(fixture, way, &id).await;
    assert!(inventory(network).await.contains(&id));
    release(network, &id).await;
    assert!(!inventory(network).await.contains(&id));
}

async fn releasing_twice_or_what_never_was_is_fine(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    release(network, &id).await;
    connect(fixture, way, &id).await;
    release(network, &id).await;
    release(network, &id).await;
}

async fn a_guest_is_reached_by_dialling(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    for _ in 0..3 {
        assert!(guest.is_behind(&*link.dial).await);
    }
    release(network, &id).await;
}

async fn a_port_nobody_listens_on_refuses(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
    let error = link.dial.dial(PORT).await.expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    release(network, &id).await;
}

async fn connecting_again_replaces_the_network(fixture: &dyn Fixture, way: Way) {
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

async fn a_handle_is_dead_once_its_sandbox_was_released(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let link = connect(fixture, way, &id).await;
    let guest = Guest::start(fixture, &id, &link.attachment);
    assert!(guest.is_behind(&*link.dial).await);
    release(network, &id).await;
    let error = link.dial.dial(PORT).await.expect_err("the network is gone, though its guest still listens");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

async fn a_network_without_a_machine_is_whole_but_for_that(fixture: &dyn Fixture) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let Link { attachment, dial } = connect_later(fixture, &id).await;
    assert!(inventory(network).await.contains(&id));
    assert!(network.adopt(&id).await.expect("adopting works").is_some());
    let doors = network.doors(&id).await.expect("doors are opened before anything runs");
    assert!(dial.dial(PORT).await.is_err(), "there is no machine yet");
    let link = Link { attachment: fixture.plug_in(&attachment).expect("plugging in works"), dial };
    let leaving = Leaving { fixture, id, link, doors: LiveDoors::new(doors) };
    leaving.arrives().await;
    leaving.end().await;
}

async fn plugging_in_again_cuts_off_what_was_plugged_in_before(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let Link { attachment, dial } = connect_later(fixture, &id).await;
    let plug_in = || fixture.plug_in(&attachment).expect("plugging in works");
    // A first restore that failed; what is left of it may still be there.
    let earlier = plug_in();
    let link = Link { attachment: plug_in(), dial };
    let guest = Guest::start(fixture, &id, &link.attachment);
    assert!(guest.is_behind(&*link.dial).await);
    drop(earlier);
    assert!(guest.is_behind(&*link.dial).await, "the end of the earlier one is nothing to the later");
    let doors = fixture.network().doors(&id).await.expect("a connected sandbox has doors");
    let leaving = Leaving { fixture, id, link, doors: LiveDoors::new(doors) };
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

async fn what_was_never_connected_is_not_adopted(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    assert!(network.adopt(&id).await.expect("asking is no error").is_none());
    connect(fixture, way, &id).await;
    release(network, &id).await;
    assert!(network.adopt(&id).await.expect("asking is no error").is_none());
}

async fn the_next_daemon_adopts_what_this_one_connected(fixture: &dyn Fixture, way: Way) {
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

async fn a_connect_dropped_midway_leaves_at_most_what_release_removes(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    for polls in 0..4 {
        let id = SandboxId::generate();
        let mut connect = match way {
            Way::Now => network.connect(&id),
            Way::Later => network.connect_later(&id),
        };
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
    let link = connect(&*next, Way::Now, &before).await;
    let guest = Guest::start(fixture, &before, &link.attachment);
    network.shutdown().await;
    network.shutdown().await;
    assert!(guest.is_behind(&*link.dial).await);
    connect(&*next, Way::Now, &after).await;
    release(network, &before).await;
    release(network, &after).await;
}

async fn whatever_leaves_a_sandbox_arrives_at_its_doors(fixture: &dyn Fixture, way: Way) {
    let (one, other) = (Leaving::start(fixture, way).await, Leaving::start(fixture, way).await);
    for _ in 0..3 {
        one.arrives().await;
        other.arrives().await;
    }
    one.end().await;
    other.end().await;
}

async fn doors_opened_again_take_over_and_what_was_accepted_lives_on(fixture: &dyn Fixture, way: Way) {
    let mut leaving = Leaving::start(fixture, way).await;
    let mut inside = fixture.leave(&leaving.id, &leaving.link.attachment).expect("a door is open");
    let (mut outside, _from) = accept(&leaving.doors.tcp).await;
    for _ in 0..3 {
        // The earlier doors are still held, as by a process that hangs.
        let _earlier = leaving.open_again().await;
        leaving.arrives().await;
    }
    inside.write_all(b"x").expect("the connection is open");
    assert_eq!(outside.read_u8().await.expect("the connection is open"), b'x');
    leaving.end().await;
}

async fn the_next_daemon_opens_the_doors_of_what_this_one_connected(fixture: &dyn Fixture, way: Way) {
    let mut leaving = Leaving::start(fixture, way).await;
    let next = fixture.reopen();
    let doors = next.network().doors(&leaving.id).await.expect("its network is there");
    let _earlier = std::mem::replace(&mut leaving.doors, LiveDoors::new(doors));
    leaving.arrives().await;
    leaving.end().await;
    next.network().shutdown().await;
}

async fn only_a_connected_sandbox_has_doors(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let refused = |outcome| matches!(outcome, Err(NetworkError::NotConnected { .. }));
    assert!(refused(network.doors(&id).await));
    connect(fixture, way, &id).await;
    assert!(network.doors(&id).await.is_ok());
    release(network, &id).await;
    assert!(refused(network.doors(&id).await));
}

async fn the_own_door_is_the_sandboxs_alone_and_the_newest_wins(fixture: &dyn Fixture, way: Way) {
    let (one, other) = (Leaving::start(fixture, way).await, Leaving::start(fixture, way).await);
    let open = async |leaving: &Leaving<'_>| {
        let door =
            leaving.fixture.network().own_door(&leaving.id).await.expect("a connected sandbox has one");
        tokio::net::TcpListener::from_std(door.into()).expect("a listening socket that does not block")
    };
    let (first, stranger) = (open(&one).await, open(&other).await);
    // Still held, as by a daemon that hangs.
    let newest = open(&one).await;
    let mut inside = fixture.leave_to_own(&one.id, &one.link.attachment).expect("the door is open");
    let (mut arrived, _) = accept(&newest).await;
    arrived.write_all(b"x").await.expect("it is open");
    inside.read_exact(&mut [0]).expect("the answer comes back");
    assert!(stranger.accept().now_or_never().is_none(), "nobody else's connection arrives");
    assert!(one.doors.tcp.accept().now_or_never().is_none(), "and the way out is another");
    drop(first);
    let (network, id) = (fixture.network(), one.id.clone());
    one.end().await;
    other.end().await;
    assert!(matches!(network.own_door(&id).await, Err(NetworkError::NotConnected { .. })));
}

async fn only_a_connected_sandbox_has_a_rate(fixture: &dyn Fixture, way: Way) {
    let network = fixture.network();
    let id = SandboxId::generate();
    let refused = |outcome| matches!(outcome, Err(NetworkError::NotConnected { .. }));
    assert!(refused(network.set_rate(&id, Some(RATE)).await));
    connect(fixture, way, &id).await;
    for rate in [None, Some(RATE), Some(RATE), None, None] {
        network.set_rate(&id, rate).await.expect("a rate is set as often as anybody likes");
    }
    network.set_rate(&id, Some(RATE)).await.expect("a rate is set");
    release(network, &id).await;
    assert!(refused(network.set_rate(&id, None).await));
}

async fn a_rate_bounds_what_passes_each_way_until_it_is_taken_away(fixture: &dyn Fixture, way: Way) {
    let leaving = Leaving::start(fixture, way).await;
    for direction in [Direction::Out, Direction::In] {
        leaving.set_rate(Some(RATE)).await;
        leaving.is_paced(direction).await;
        leaving.set_rate(None).await;
        leaving.is_not_paced(direction).await;
    }
    leaving.end().await;
}

async fn a_network_that_is_connected_anew_has_no_rate(fixture: &dyn Fixture) {
    let leaving = Leaving::start(fixture, Way::Now).await;
    leaving.set_rate(Some(RATE)).await;
    let link = connect(fixture, Way::Now, &leaving.id).await;
    let doors = fixture.network().doors(&leaving.id).await.expect("a connected sandbox has doors");
    let anew = Leaving { link, doors: LiveDoors::new(doors), ..leaving };
    anew.is_not_paced(Direction::Out).await;
    anew.end().await;
}

/// What is plugged in after the rate was set, and by whoever adopts the network, is held to it.
async fn a_rate_is_there_before_the_machine_and_outlives_the_daemon(fixture: &dyn Fixture) {
    let id = SandboxId::generate();
    let Link { attachment, dial } = connect_later(fixture, &id).await;
    fixture.network().set_rate(&id, Some(RATE)).await.expect("a rate is set before there is a machine");
    let link = Link { attachment: fixture.plug_in(&attachment).expect("plugging in works"), dial };
    let next = fixture.reopen();
    next.network().adopt(&id).await.expect("adopting works").expect("it is there");
    let doors = next.network().doors(&id).await.expect("its network is there");
    let leaving = Leaving { fixture: &*next, id, link, doors: LiveDoors::new(doors) };
    leaving.is_paced(Direction::In).await;
    next.network().set_rate(&leaving.id, None).await.expect("the next daemon takes it away");
    leaving.is_not_paced(Direction::In).await;
    leaving.end().await;
    next.network().shutdown().await;
}

async fn what_a_rate_does_not_count_passes_while_it_is_used_up(fixture: &dyn Fixture) {
    let leaving = Leaving::start(fixture, Way::Now).await;
    let guest = Guest::start(fixture, &leaving.id, &leaving.link.attachment);
    // So little that no packet ever passes.
    leaving.set_rate(Some(Rate { bytes_per_second: 1 })).await;
    let dial = &*leaving.link.dial;
    for _ in 0..3 {
        let stream = dial.dial_uncounted(PORT).await.expect("the agent is reached all the same");
        assert!(guest.greets(stream).await);
    }
    if fixture.has_wire() {
        let error = dial.dial(PORT).await.expect_err("what is counted does not pass");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
    leaving.end().await;
}

// === the pieces ===

/// Which way bytes go, as the sandbox sees it.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Out,
    In,
}

/// A connected sandbox with open doors.
struct Leaving<'a> {
    fixture: &'a dyn Fixture,
    id: SandboxId,
    link: Link,
    doors: LiveDoors,
}

/// Doors as the process that serves them sees them.
struct LiveDoors {
    tcp: tokio::net::TcpListener,
    dns_udp: tokio::net::UdpSocket,
    dns_tcp: tokio::net::TcpListener,
}

impl LiveDoors {
    /// Fails where the runtime would refuse a socket that blocks.
    fn new(doors: Doors) -> Self {
        let usable = "a door is a listening socket that does not block";
        Self {
            tcp: tokio::net::TcpListener::from_std(doors.tcp.into()).expect(usable),
            dns_udp: tokio::net::UdpSocket::from_std(doors.dns_udp.into()).expect(usable),
            dns_tcp: tokio::net::TcpListener::from_std(doors.dns_tcp.into()).expect(usable),
        }
    }
}

impl<'a> Leaving<'a> {
    async fn start(fixture: &'a dyn Fixture, way: Way) -> Self {
        let id = SandboxId::generate();
        let link = connect(fixture, way, &id).await;
        let doors = fixture.network().doors(&id).await.expect("a connected sandbox has doors");
        Self { fixture, id, link, doors: LiveDoors::new(doors) }
    }

    /// Hands out the doors that were replaced.
    async fn open_again(&mut self) -> LiveDoors {
        let doors = self.fixture.network().doors(&self.id).await.expect("opening again works");
        std::mem::replace(&mut self.doors, LiveDoors::new(doors))
    }

    /// Every way out ends at the door it is meant for, and answers go back.
    async fn arrives(&self) {
        let (id, attachment) = (&self.id, &self.link.attachment);
        let mut stream = self.fixture.leave(id, attachment).expect("a door is open");
        let (mut arrived, _) = accept(&self.doors.tcp).await;
        arrived.write_all(id.as_str().as_bytes()).await.expect("it is open");
        drop(arrived);
        let mut greeting = String::new();
        stream.read_to_string(&mut greeting).expect("the answer comes back");
        assert_eq!(greeting, id.as_str());

        let _stream = self.fixture.leave_to_resolver(id, attachment).expect("a door is open");
        accept(&self.doors.dns_tcp).await;

        let socket = self.fixture.ask_resolver(id, attachment).expect("a program may ask");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket.send(id.as_str().as_bytes()).expect("a program may ask");
        let mut question = [0; 64];
        let heard = tokio::time::timeout(PATIENCE, self.doors.dns_udp.recv_from(&mut question));
        let (length, from) = heard.await.expect("the question arrives").expect("the door is open");
        assert_eq!(&question[..length], id.as_str().as_bytes());
        self.doors.dns_udp.send_to(b"answer", from).await.expect("whoever asks can be answered");
        let length = socket.recv(&mut question).expect("from the address that was asked, or it is not heard");
        assert_eq!(&question[..length], b"answer");
    }

    async fn set_rate(&self, rate: Option<Rate>) {
        self.fixture.network().set_rate(&self.id, rate).await.expect("a rate is set");
    }

    /// No more has passed than a second's worth at once, and the rate for the time it took.
    async fn is_paced(&self, direction: Direction) {
        let passed = self.carry(direction).await.as_secs_f64();
        let allowed = RATE.bytes_per_second as f64 * (passed + 1.0);
        let paced = CARRIED_BYTES as f64 <= allowed;
        assert!(paced || !self.fixture.has_wire(), "{CARRIED_BYTES} bytes {direction:?} in {passed} s");
    }

    /// The control: what a rate would not have let through.
    async fn is_not_paced(&self, direction: Direction) {
        let passed = self.carry(direction).await.as_secs_f64();
        let allowed = RATE.bytes_per_second as f64 * (passed + 1.0);
        assert!(CARRIED_BYTES as f64 > allowed, "{CARRIED_BYTES} bytes {direction:?} in {passed} s");
    }

    /// Sends [`CARRIED_BYTES`] over a connection that leaves the sandbox, and answers how long that took.
    async fn carry(&self, direction: Direction) -> Duration {
        let mut inside = self.fixture.leave(&self.id, &self.link.attachment).expect("a door is open");
        let (mut outside, _) = accept(&self.doors.tcp).await;
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
            tokio::task::spawn_blocking(|| ours.join()).await.expect("nobody ends the test's threads");
        joined.expect("the thread does not panic").expect("the connection is open");
        began.elapsed()
    }

    async fn end(self) {
        release(self.fixture.network(), &self.id).await;
    }
}

async fn accept(door: &tokio::net::TcpListener) -> (tokio::net::TcpStream, std::net::SocketAddr) {
    let arrived = tokio::time::timeout(PATIENCE, door.accept()).await;
    arrived.expect("the connection arrives").expect("the door is open")
}

async fn connect(fixture: &dyn Fixture, way: Way, id: &SandboxId) -> Link {
    match way {
        Way::Now => fixture.network().connect(id).await.expect("connecting works"),
        Way::Later => {
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
        let stream = dial.dial(PORT).await.expect("the guest listens");
        self.greets(stream).await
    }

    async fn greets(&self, mut stream: tokio::net::TcpStream) -> bool {
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
