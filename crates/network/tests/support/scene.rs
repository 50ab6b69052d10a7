//! A sandbox's network with a simulated outside network behind its gateway, and ways to try to reach it.
//!
//! ```text
//! sandbox ── eth0 ◄─► gw0 ── gateway ── up0 ◄─► out0 ── world (stands for everything beyond)
//! ```
//!
//! Every attempt is made twice: with the rules, when it must fail, and then with the rules flushed, when the same
//! attempt must succeed. The second one is the control: it proves that the probe, the route and the listener existed,
//! and that only the rules blocked the traffic. So that nothing else helps the rules, the gateway first gets the most
//! permissive settings that it could inherit from a host: routing on, loopback routable.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use burrow_model::SandboxId;
use burrow_network::linux::LinuxNetwork;
use burrow_network::{Attachment, Dial, Link, Network, SANDBOX_V4, SANDBOX_V6};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::listeners::ServedListeners;
use super::{Host, inside, shell};

pub(crate) const PORT: u16 = 7;
/// From the ranges reserved for documentation: no real machine.
pub(crate) const WORLD_V4: &str = "192.0.2.1";
pub(crate) const WORLD_V6: &str = "2001:db8::1";
/// An address that the sandbox was not assigned.
pub(crate) const SPOOFED_V4: &str = "198.51.100.7";
pub(crate) const SPOOFED_V6: &str = "2001:db8:bad::7";

/// Within this time, an answer would have crossed an idle veth pair a thousand times.
pub(crate) const PATIENCE_WHEN_BLOCKED: Duration = Duration::from_millis(250);
pub(crate) const PATIENCE_WHEN_OPEN: Duration = Duration::from_secs(60);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A sandbox's network with a world behind its gateway, and echo services at every address where a packet could arrive.
pub(crate) struct Scene {
    pub(crate) sandbox: OwnedFd,
    pub(crate) gateway: OwnedFd,
    pub(crate) world: OwnedFd,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) id: SandboxId,
    pub(crate) network: Arc<LinuxNetwork>,
    // Dropped last: it unmounts the namespaces that the other fields hold.
    pub(crate) host: Host,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let host = Host::new();
        let network = host.open(0);
        let id = SandboxId::generate();
        let link = network.connect(&id).await.unwrap();
        Self::around(host, network, id, link)
    }

    /// The same for a machine that has its own namespace and was plugged in: twice, as after a first restore that
    /// failed.
    pub(crate) async fn plugged() -> Self {
        let host = Host::new();
        let network = host.open(0);
        let id = SandboxId::generate();
        let Link { attachment, dial } = network.connect_later(&id).await.unwrap();
        plug_in(&attachment);
        let link = Link { attachment: plug_in(&attachment), dial };
        Self::around(host, network, id, link)
    }

    fn around(host: Host, network: Arc<LinuxNetwork>, id: SandboxId, link: Link) -> Self {
        let Attachment::Namespaces { net: sandbox, .. } = link.attachment else { panic!("no namespaces") };
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

    /// The most permissive settings that a host could cause.
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

    pub(crate) fn flush_rules(&self) {
        shell(self.gateway.as_fd(), "nft flush ruleset");
    }

    /// Opens the sandbox's listeners, which accept all traffic until they are dropped.
    pub(crate) async fn open_listeners(&self) -> ServedListeners {
        ServedListeners::new(self.network.listeners(&self.id).await.unwrap())
    }

    /// Makes all `attempts` at once from inside the sandbox; all must fail.
    pub(crate) fn all_blocked(&self, attempts: &[Attempt<'_>]) {
        for (what, outcome) in self.make_all(attempts, |attempt| attempt(PATIENCE_WHEN_BLOCKED)) {
            assert!(outcome.is_err(), "{what} got through");
        }
    }

    /// The control: flushes the rules, and makes all attempts again.
    pub(crate) fn all_succeed_without_the_rules(&self, attempts: &[Attempt<'_>]) {
        self.flush_rules();
        for (what, outcome) in self.make_all(attempts, |attempt| until_open(attempt)) {
            outcome.unwrap_or_else(|error| {
                panic!("{what} fails without the rules too, so it proves nothing: {error}")
            });
        }
    }

    fn make_all<'a>(
        &self,
        attempts: &'a [Attempt<'_>],
        way: impl Fn(&AttemptFn<'_>) -> io::Result<()> + Copy + Send,
    ) -> Vec<(&'a str, io::Result<()>)> {
        thread::scope(|scope| {
            let make = |attempt: &'a Attempt<'_>| {
                let tried = move || (attempt.what.as_str(), way(&attempt.make));
                scope.spawn(move || inside(self.sandbox.as_fd(), tried))
            };
            let threads: Vec<_> = attempts.iter().map(make).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Makes `attempt` from inside the sandbox, with the rules and then without.
    #[track_caller]
    pub(crate) fn blocked_by_the_rules_alone(
        &self,
        what: &str,
        attempt: impl Fn(Duration) -> io::Result<()> + Sync,
    ) {
        let outcome = inside(self.sandbox.as_fd(), || attempt(PATIENCE_WHEN_BLOCKED));
        assert!(outcome.is_err(), "{what} got through");
        self.flush_rules();
        let control = inside(self.sandbox.as_fd(), || until_open(&attempt));
        control.unwrap_or_else(|error| {
            panic!("{what} fails without the rules too, so it proves nothing: {error}")
        });
    }

    pub(crate) async fn end(self) {
        self.network.release(&self.id).await.unwrap();
        assert_eq!(self.host.mounts_seen_by("self").len(), 1);
    }
}

/// Repeats an attempt until it succeeds: a single packet may be lost before its neighbour is known.
fn until_open(attempt: &dyn Fn(Duration) -> io::Result<()>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE_WHEN_OPEN;
    loop {
        match attempt(AGAIN_AFTER) {
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            outcome => return outcome,
        }
    }
}

pub(crate) fn new_namespace() -> OwnedFd {
    let [net] = new_namespaces("-n", ["net"]);
    net
}

/// The namespaces named by `flags`, with no process in them.
fn new_namespaces<const N: usize>(flags: &str, names: [&str; N]) -> [OwnedFd; N] {
    let mut child = Command::new("unshare")
        .args([flags, "sh", "-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let open = |name: &str| File::open(format!("/proc/{}/ns/{name}", child.id())).unwrap().into();
    let namespaces = names.map(open);
    child.kill().unwrap();
    child.wait().unwrap();
    namespaces
}

/// The user and the network namespace of a machine that is being restored: the latter belongs to the former, and is
/// empty.
pub(crate) fn new_machine() -> [OwnedFd; 2] {
    new_namespaces("-rn", ["user", "net"])
}

/// Plugs in a new machine.
pub(crate) fn plug_in(attachment: &Attachment) -> Attachment {
    let Attachment::Later(plug) = attachment else { panic!("not an attachment of connect_later") };
    let [user, net] = new_machine();
    plug.plug(net.as_fd()).unwrap();
    Attachment::Namespaces { user, net, ids: None }
}

/// Answers on TCP and UDP, v4 and v6, until the test's process ends.
pub(crate) fn serve_echo(namespace: BorrowedFd<'_>) {
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

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn tcp(to: IpAddr) -> impl Fn(Duration) -> io::Result<()> + Sync {
    move |patience| {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(to, PORT), patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])
    }
}

pub(crate) fn udp(from: IpAddr, to: IpAddr) -> impl Fn(Duration) -> io::Result<()> + Sync {
    move |patience| {
        let socket = UdpSocket::bind((from, 0))?;
        socket.set_read_timeout(Some(patience))?;
        socket.send_to(b"x", (to, PORT))?;
        socket.recv_from(&mut [0; 8]).map(|_| ())
    }
}

/// An echo request, and its reply.
pub(crate) fn ping(to: IpAddr) -> impl Fn(Duration) -> io::Result<()> + Sync {
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
            // A raw IPv4 socket receives the IP header too.
            let kind = if to.is_ipv4() { bytes[20] } else { bytes[0] };
            if length > 0 && kind == reply_type {
                return Ok(());
            }
        }
    }
}

/// Makes the attempt, and waits at most this long for its success.
type AttemptFn<'a> = Box<dyn Fn(Duration) -> io::Result<()> + Send + Sync + 'a>;

/// Something that a sandbox tries.
pub(crate) struct Attempt<'a> {
    pub(crate) what: String,
    pub(crate) make: AttemptFn<'a>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(what: String, make: impl Fn(Duration) -> io::Result<()> + Send + Sync + 'a) -> Self {
        Self { what, make: Box::new(make) }
    }
}

/// Bytes that distinguish one attempt's packet from all others.
pub(crate) fn marker() -> [u8; 16] {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut marker = *b"decoymark.......";
    marker[8..].copy_from_slice(&number.to_be_bytes());
    marker
}

/// Raw sockets in all namespaces where a packet of one protocol could arrive.
pub(crate) struct Decoy {
    sockets: Vec<OwnedFd>,
}

impl Decoy {
    pub(crate) fn set(scene: &Scene, family: AddressFamily, protocol: u32) -> Self {
        let sockets = [&scene.gateway, &scene.world].map(|namespace| {
            inside(namespace.as_fd(), || raw_socket(family, protocol, SocketFlags::NONBLOCK).unwrap())
        });
        Self { sockets: sockets.into() }
    }

    /// Waits for a packet that carries `marker`.
    pub(crate) fn wait_for(&self, marker: &[u8], patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            for socket in &self.sockets {
                let mut bytes = [0; 4096];
                while let Ok((length, _)) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty()) {
                    if bytes[..length].windows(marker.len()).any(|window| window == marker) {
                        return Ok(());
                    }
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

pub(crate) fn raw_socket(family: AddressFamily, protocol: u32, flags: SocketFlags) -> io::Result<OwnedFd> {
    let protocol = rustix::net::Protocol::from_raw(protocol.try_into().unwrap());
    Ok(rustix::net::socket_with(family, SocketType::RAW, flags | SocketFlags::CLOEXEC, Some(protocol))?)
}

pub(crate) fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}
