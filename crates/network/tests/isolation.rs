//! Invariant 1, "no policy, no packet": nothing a sandbox sends arrives anywhere, unless it answers the daemon.
//!
//! ```text
//! sandbox ── eth0 ◄─► gw0 ── gateway ── up0 ◄─► out0 ── world (a stand-in for everything beyond)
//! ```
//!
//! Every attempt is made twice: with the rules, where it must fail, and then with the rules flushed, where the very
//! same attempt must succeed. The second is the control: it proves that the probe, the route and the listener were
//! there, and that only the rules stood in the way. To give the rules no help, the gateway is first made as leaky as a
//! host's settings could make it: routing on, loopback routable.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use burrow_model::SandboxId;
use burrow_network::linux::LinuxNetwork;
use burrow_network::{Attachment, Dial, GATEWAY_V4, GATEWAY_V6, Network, SANDBOX_V4, SANDBOX_V6};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use support::{Host, inside, shell};

const PORT: u16 = 7;
/// From the ranges reserved for documentation: no real machine.
const WORLD_V4: &str = "192.0.2.1";
const WORLD_V6: &str = "2001:db8::1";
/// An address the sandbox was never given.
const SPOOFED_V4: &str = "198.51.100.7";
const SPOOFED_V6: &str = "2001:db8:bad::7";

/// An answer within this time would have come over an idle veth pair a thousand times.
const PATIENCE_WHEN_BLOCKED: Duration = Duration::from_millis(250);
const PATIENCE_WHEN_OPEN: Duration = Duration::from_secs(10);

/// A sandbox's network with a world behind its gateway, and echo services wherever something could arrive.
struct Scene {
    sandbox: OwnedFd,
    gateway: OwnedFd,
    world: OwnedFd,
    dial: Arc<dyn Dial>,
    id: SandboxId,
    network: Arc<LinuxNetwork>,
    // Dropped last: it unmounts what the others hold.
    host: Host,
}

impl Scene {
    async fn new() -> Self {
        let host = Host::new();
        let network = host.open(0);
        let id = SandboxId::generate();
        let link = network.connect(&id).await.unwrap();
        let Attachment::Namespaces { net: sandbox, user: _ } = link.attachment else {
            panic!("no namespaces")
        };
        let gateway = File::open(host.run_dir().join(id.as_str())).unwrap().into();
        let world = new_namespace();
        let scene = Self { sandbox, gateway, world, dial: link.dial, id, network, host };
        scene.add_world();
        scene.make_gateway_leaky();
        for namespace in [&scene.gateway, &scene.world] {
            serve_echo(namespace.as_fd());
        }
        scene
    }

    /// Connects `gateway` and `world` as if the gateway had an uplink.
    fn add_world(&self) {
        let world = inside(self.world.as_fd(), || Command::new("sleep").arg("60").spawn().unwrap());
        let mut world_process = world;
        shell(
            self.gateway.as_fd(),
            &format!("ip link add up0 type veth peer name out0 netns {}", world_process.id()),
        );
        world_process.kill().unwrap();
        world_process.wait().unwrap();
        shell(
            self.gateway.as_fd(),
            "ip addr add 192.0.2.2/24 dev up0; ip -6 addr add 2001:db8::2/64 dev up0 nodad; ip link set up0 up",
        );
        shell(
            self.world.as_fd(),
            &format!(
                "ip link set lo up; ip addr add {WORLD_V4}/24 dev out0; ip -6 addr add {WORLD_V6}/64 dev out0 nodad
                 ip link set out0 up; ip route add default via 192.0.2.2; ip -6 route add default via 2001:db8::2"
            ),
        );
    }

    /// The worst a host's own settings could do to it.
    fn make_gateway_leaky(&self) {
        shell(
            self.gateway.as_fd(),
            &format!(
                "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
                 echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
                 echo 0 > /proc/sys/net/ipv4/conf/gw0/rp_filter
                 ip route add {SPOOFED_V4} via {SANDBOX_V4}; ip -6 route add {SPOOFED_V6} via {SANDBOX_V6}"
            ),
        );
    }

    fn flush_rules(&self) {
        shell(self.gateway.as_fd(), "nft flush ruleset");
    }

    /// Makes `attempt` from inside the sandbox, with the rules and then without.
    #[track_caller]
    fn blocked_by_the_rules_alone(&self, what: &str, attempt: impl Fn(Duration) -> io::Result<()> + Sync) {
        let outcome = inside(self.sandbox.as_fd(), || attempt(PATIENCE_WHEN_BLOCKED));
        assert!(outcome.is_err(), "{what} got through");
        self.flush_rules();
        let control = inside(self.sandbox.as_fd(), || attempt(PATIENCE_WHEN_OPEN));
        control.unwrap_or_else(|error| {
            panic!("{what} fails without the rules too, so it proves nothing: {error}")
        });
    }

    async fn end(self) {
        self.network.release(&self.id).await.unwrap();
        assert_eq!(self.host.mounts_seen_by("self").len(), 1);
    }
}

fn new_namespace() -> OwnedFd {
    let mut child = Command::new("unshare")
        .args(["-n", "sh", "-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let namespace = File::open(format!("/proc/{}/ns/net", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    namespace.into()
}

/// Answers on TCP and UDP, v4 and v6, until the test's process ends.
fn serve_echo(namespace: BorrowedFd<'_>) {
    let (tcp, udp) = inside(namespace, || {
        (TcpListener::bind(("::", PORT)).unwrap(), UdpSocket::bind(("::", PORT)).unwrap())
    });
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().map_while(Result::ok) {
            let mut byte = [0];
            let _ = stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte));
        }
    });
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while let Ok((length, from)) = udp.recv_from(&mut bytes) {
            let _ = udp.send_to(&bytes[..length], from);
        }
    });
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn tcp(to: IpAddr) -> impl Fn(Duration) -> io::Result<()> + Sync {
    move |patience| {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(to, PORT), patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])
    }
}

fn udp(from: IpAddr, to: IpAddr) -> impl Fn(Duration) -> io::Result<()> + Sync {
    move |patience| {
        let socket = UdpSocket::bind((from, 0))?;
        socket.set_read_timeout(Some(patience))?;
        socket.send_to(b"x", (to, PORT))?;
        socket.recv_from(&mut [0; 8]).map(|_| ())
    }
}

/// An echo request, and its reply.
fn ping(to: IpAddr) -> impl Fn(Duration) -> io::Result<()> + Sync {
    move |patience| {
        let (family, protocol, request, reply_type) = match to {
            // Type, code, checksum over the rest (0xf7ff makes the sum all ones), id and number 0.
            IpAddr::V4(_) => {
                (AddressFamily::INET, rustix::net::ipproto::ICMP, [8, 0, 0xf7, 0xff, 0, 0, 0, 0], 0)
            }
            // The kernel fills in the checksum.
            IpAddr::V6(_) => {
                (AddressFamily::INET6, rustix::net::ipproto::ICMPV6, [128, 0, 0, 0, 0, 0, 0, 0], 129)
            }
        };
        let socket = rustix::net::socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))?;
        rustix::net::sendto(&socket, &request, SendFlags::empty(), &SocketAddr::new(to, 0))?;
        loop {
            let mut bytes = [0; 128];
            let (length, _) = rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty())?;
            // A raw v4 socket sees the IP header too.
            let kind = if to.is_ipv4() { bytes[20] } else { bytes[0] };
            if length > 0 && kind == reply_type {
                return Ok(());
            }
        }
    }
}

#[tokio::test]
async fn no_policy_no_packet_by_tcp_to_the_gateway_itself() {
    for to in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)] {
        let scene = Scene::new().await;
        scene.blocked_by_the_rules_alone(&format!("TCP to {to}"), tcp(to));
        scene.end().await;
    }
}

#[tokio::test]
async fn no_policy_no_packet_by_tcp_to_the_world() {
    for to in [WORLD_V4, WORLD_V6] {
        let scene = Scene::new().await;
        scene.blocked_by_the_rules_alone(&format!("TCP to {to}"), tcp(address(to)));
        scene.end().await;
    }
}

#[tokio::test]
async fn no_policy_no_packet_by_udp() {
    for to in [GATEWAY_V4.to_string(), GATEWAY_V6.to_string(), WORLD_V4.to_owned(), WORLD_V6.to_owned()] {
        let from = if address(&to).is_ipv4() { IpAddr::V4(SANDBOX_V4) } else { IpAddr::V6(SANDBOX_V6) };
        let scene = Scene::new().await;
        scene.blocked_by_the_rules_alone(&format!("UDP to {to}"), udp(from, address(&to)));
        scene.end().await;
    }
}

#[tokio::test]
async fn no_policy_no_packet_by_icmp() {
    for to in [GATEWAY_V4.to_string(), GATEWAY_V6.to_string(), WORLD_V4.to_owned(), WORLD_V6.to_owned()] {
        let scene = Scene::new().await;
        scene.blocked_by_the_rules_alone(&format!("ICMP to {to}"), ping(address(&to)));
        scene.end().await;
    }
}

#[tokio::test]
async fn no_policy_no_packet_from_a_spoofed_source() {
    for (from, to) in [(SPOOFED_V4, WORLD_V4), (SPOOFED_V6, WORLD_V6)] {
        let scene = Scene::new().await;
        let (family, length) = if address(from).is_ipv4() { ("-4", 32) } else { ("-6", 128) };
        let nodad = if length == 128 { "nodad" } else { "" };
        shell(scene.sandbox.as_fd(), &format!("ip {family} addr add {from}/{length} dev eth0 {nodad}"));
        scene.blocked_by_the_rules_alone(&format!("UDP from {from}"), udp(address(from), address(to)));
        scene.end().await;
    }
}

#[tokio::test]
async fn no_policy_no_packet_to_a_loopback_address_of_another_namespace() {
    let scene = Scene::new().await;
    // Root in a sandbox can unlearn that 127.0.0.1 is its own, and send it down the wire.
    shell(
        scene.sandbox.as_fd(),
        "ip addr flush dev lo; echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet
         ip route add 127.0.0.0/8 via 10.88.0.1 src 10.88.0.2",
    );
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    scene.blocked_by_the_rules_alone("UDP to the gateway's loopback", udp(IpAddr::V4(SANDBOX_V4), loopback));
    scene.end().await;
}

#[tokio::test]
async fn no_policy_no_packet_to_the_host_or_to_a_neighbour() {
    let (one, other) = (Scene::new().await, Scene::new().await);
    // Decoys: on the host's loopback, and in the neighbour at the address all sandboxes share.
    let on_host = TcpListener::bind("127.0.0.1:0").unwrap();
    let host_port = on_host.local_addr().unwrap().port();
    let _in_neighbour = inside(other.sandbox.as_fd(), || TcpListener::bind((SANDBOX_V4, host_port)).unwrap());
    let connect =
        |to: IpAddr| TcpStream::connect_timeout(&SocketAddr::new(to, host_port), PATIENCE_WHEN_OPEN);

    for to in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(SANDBOX_V4)] {
        let refused = inside(one.sandbox.as_fd(), || connect(to)).unwrap_err();
        assert_eq!(
            refused.kind(),
            io::ErrorKind::ConnectionRefused,
            "{to} is the sandbox itself, where nobody listens"
        );
    }
    connect(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("control: the host's own decoy listens");
    other.dial.dial(host_port).await.expect("control: the neighbour's decoy listens");
    one.end().await;
    other.end().await;
}

#[tokio::test]
async fn no_policy_no_packet_that_would_give_the_gateway_a_route() {
    let scene = Scene::new().await;
    // Routers ignore other routers, so the gateway must not look like one here.
    shell(scene.gateway.as_fd(), "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding");
    shell(scene.gateway.as_fd(), "echo 1 > /proc/sys/net/ipv6/conf/gw0/accept_ra");
    shell(scene.sandbox.as_fd(), "ip -6 addr add fe80::2/64 dev eth0 nodad");
    scene.blocked_by_the_rules_alone("a router advertisement", |patience| {
        advertise_router()?;
        let routes = || Command::new("ip").args(["-6", "route", "show", "proto", "ra"]).output();
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if !inside(scene.gateway.as_fd(), routes)?.stdout.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(io::ErrorKind::TimedOut.into())
    });
    scene.end().await;
}

/// Says on the wire that the sandbox is a router for everybody.
fn advertise_router() -> io::Result<()> {
    let protocol = Some(rustix::net::ipproto::ICMPV6);
    let socket =
        rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    sockopt::set_ipv6_multicast_hops(&socket, 255)?;
    let eth0 = rustix::net::netdevice::name_to_index(&socket, "eth0")?;
    let everybody = SocketAddrV6::new("ff02::1".parse().unwrap(), 0, 0, eth0);
    // Type 134, hop limit 64, valid for 1800 s.
    let advertisement = [134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::net::sendto(&socket, &advertisement, SendFlags::empty(), &everybody)?;
    Ok(())
}

#[tokio::test]
async fn neighbours_still_find_each_other_when_they_forgot_their_addresses() {
    let scene = Scene::new().await;
    for namespace in [&scene.sandbox, &scene.gateway] {
        shell(namespace.as_fd(), "ip neigh flush nud permanent; test -z \"$(ip neigh show nud permanent)\"");
    }
    for own in [IpAddr::V4(SANDBOX_V4), IpAddr::V6(SANDBOX_V6)] {
        let _guest = inside(scene.sandbox.as_fd(), || TcpListener::bind((own, 4100)).unwrap());
        let to = SocketAddr::new(own, 4100);
        inside(scene.gateway.as_fd(), || TcpStream::connect_timeout(&to, PATIENCE_WHEN_OPEN)).unwrap();
    }
    scene.end().await;
}

#[tokio::test]
async fn the_daemon_reaches_in_while_everything_out_is_blocked_and_nothing_is_let_out_by_it() {
    let scene = Scene::new().await;
    let guest = inside(scene.sandbox.as_fd(), || TcpListener::bind((SANDBOX_V4, 4100)).unwrap());
    let dialled = scene.dial.dial(4100).await.expect("dialling in works");
    let gateway_port = dialled.local_addr().unwrap().port();
    let (_accepted, _) = guest.accept().unwrap();
    // From the very port that is being talked to, back to the port it is talked to from, and to any other.
    let back = inside(scene.sandbox.as_fd(), || {
        TcpStream::connect_timeout(&SocketAddr::new(GATEWAY_V4.into(), gateway_port), PATIENCE_WHEN_BLOCKED)
    });
    assert!(back.is_err());
    scene
        .blocked_by_the_rules_alone("TCP to the gateway beside a dialled connection", tcp(GATEWAY_V4.into()));
    scene.end().await;
}
