//! Tests that a sandbox's traffic arrives at its listeners, with its original destination, and nowhere else.
//!
//! The identifiers are those of the threats: E-N1 (any port, any literal), E-N3 (IPv6), E-N9 (no proxy), P-N1
//! (metadata), P-N2 (gateway, host and neighbours), P-N10 (floods).
#![expect(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod support;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;

use burrow_network::{
    DNS_PORT, EGRESS_PORT, GATEWAY_V4, GATEWAY_V6, Listeners, Network, NetworkError, SANDBOX_V4, SANDBOX_V6,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags};
use support::listeners::ServedListeners;
use support::scene::{
    PATIENCE_WHEN_BLOCKED, PATIENCE_WHEN_OPEN, PORT, Scene, WORLD_V4, WORLD_V6, address, raw_socket, tcp,
};
use support::{inside, shell};

/// The gateway's address on the uplink.
const UPLINK_V4: &str = "192.0.2.2";
const UPLINK_V6: &str = "2001:db8::2";

fn own_address(to: IpAddr) -> IpAddr {
    if to.is_ipv4() { SANDBOX_V4.into() } else { SANDBOX_V6.into() }
}

/// Connects from inside to `to`, and checks that the connection arrives, with bytes both ways.
#[track_caller]
fn assert_arrives(scene: &Scene, listeners: &ServedListeners, to: SocketAddr) {
    let connect = || TcpStream::connect_timeout(&to, PATIENCE_WHEN_OPEN);
    let mut stream = inside(scene.sandbox.as_fd(), connect).unwrap_or_else(|error| panic!("{to}: {error}"));
    let mut arrival = listeners.next();
    assert_eq!((arrival.from, arrival.to), (own_address(to.ip()), to));
    stream.write_all(b"question").unwrap();
    let mut bytes = [0; 8];
    arrival.stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"question");
    arrival.stream.write_all(b"answered").unwrap();
    drop(arrival);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answered");
}

/// E-N1, E-N3, P-N1.
async fn every_tcp_connection_arrives_with_its_original_destination(scene: Scene) {
    let listeners = scene.open_listeners().await;
    for to in [
        // The scene's decoys listen there, in the gateway and in the world.
        format!("{WORLD_V4}:{PORT}"),
        format!("[{WORLD_V6}]:{PORT}"),
        format!("{UPLINK_V4}:{PORT}"),
        format!("[{UPLINK_V6}]:{PORT}"),
        format!("{GATEWAY_V4}:{PORT}"),
        format!("[{GATEWAY_V6}]:{PORT}"),
        // The listener's own port cannot be used to get around it.
        format!("{GATEWAY_V4}:{EGRESS_PORT}"),
        format!("[{GATEWAY_V6}]:{EGRESS_PORT}"),
        // Any other destination: metadata services, private ranges, other resolvers, mail, the highest port.
        "169.254.169.254:80".to_owned(),
        "[fd00:ec2::254]:80".to_owned(),
        "10.0.0.1:22".to_owned(),
        "192.168.1.1:443".to_owned(),
        "172.16.0.1:6443".to_owned(),
        "100.64.0.1:7700".to_owned(),
        "8.8.8.8:53".to_owned(),
        "[2001:4860:4860::8888]:53".to_owned(),
        "1.1.1.1:853".to_owned(),
        "93.184.215.14:443".to_owned(),
        "[2606:2800:21f::1]:443".to_owned(),
        "[64:ff9b::a00:1]:25".to_owned(),
        "[fe00::1]:65535".to_owned(),
        "198.51.100.1:1".to_owned(),
    ] {
        assert_arrives(&scene, &listeners, to.parse().unwrap());
    }
    listeners.assert_nothing_arrived();
    scene.end().await;
}

/// P-N2: whatever listens in the gateway, only the listeners of the sandbox answer.
async fn a_port_scan_of_the_gateway_finds_only_the_listeners(scene: Scene) {
    let listeners = scene.open_listeners().await;
    // Without 7700, which is a listener itself: the sandbox's own.
    let ports = [1, 22, 80, 111, 443, 4100, 7699, 7701, 8080, 33_333, 65_535];
    let decoys = ports.map(|port| {
        let decoy = inside(scene.gateway.as_fd(), || TcpListener::bind(("::", port)).unwrap());
        decoy.set_nonblocking(true).unwrap();
        decoy
    });
    for port in ports {
        for to in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6), address(UPLINK_V4), address(UPLINK_V6)] {
            assert_arrives(&scene, &listeners, SocketAddr::new(to, port));
        }
    }
    for decoy in &decoys {
        assert_eq!(decoy.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "a decoy was hit");
    }
    scene.flush_rules();
    for (port, decoy) in ports.iter().zip(&decoys) {
        inside(scene.sandbox.as_fd(), || TcpStream::connect((GATEWAY_V4, *port))).expect("control");
        decoy.accept().expect("control: without the rules, the decoy is hit");
    }
    scene.end().await;
}

/// P-N2: the host's own addresses are treated like any other.
async fn a_connection_to_the_host_arrives_at_the_listeners(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let decoy = TcpListener::bind("[::]:0").unwrap();
    decoy.set_nonblocking(true).unwrap();
    let port = decoy.local_addr().unwrap().port();
    let listed = Command::new("ip").args(["-o", "addr", "show", "scope", "global"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let addresses = listed.lines().filter_map(|line| {
        let address = line.split_whitespace().nth(3)?.split('/').next()?;
        address.parse::<IpAddr>().ok()
    });
    for host in addresses {
        assert_arrives(&scene, &listeners, SocketAddr::new(host, port));
        assert_eq!(decoy.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "the host was hit");
    }
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("control: the host's decoy listens");
    decoy.accept().expect("control: and can be hit");
    scene.end().await;
}

/// P-N2: `route_localnet` is on in every scene. A sandbox that sends packets for 127.0.0.1 through eth0 reaches the
/// listeners, too.
async fn a_connection_to_the_gateways_loopback_arrives_at_the_listeners(scene: Scene) {
    let listeners = scene.open_listeners().await;
    shell(
        scene.sandbox.as_fd(),
        "ip addr flush dev lo; echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet
         ip route add 127.0.0.0/8 via 10.88.0.1 src 10.88.0.2",
    );
    let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT);
    assert_arrives(&scene, &listeners, loopback);
    scene.flush_rules();
    let connect = || tcp(loopback.ip())(PATIENCE_WHEN_OPEN);
    inside(scene.sandbox.as_fd(), connect).expect("control: without the rules, the decoy answers");
    listeners.assert_nothing_arrived();
    scene.end().await;
}

/// A new namespace inherits many settings of the host. Those that other software enables must not matter.
async fn the_listeners_work_with_any_source_validation_of_the_host(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let to = [WORLD_V4, WORLD_V6].map(|world| SocketAddr::new(address(world), 443));
    for setting in ["src_valid_mark", "rp_filter", "log_martians", "accept_local", "arp_filter"] {
        let line = format!("for d in all gw0; do echo 1 > /proc/sys/net/ipv4/conf/$d/{setting}; done");
        shell(scene.gateway.as_fd(), &line);
        for to in to {
            assert_arrives(&scene, &listeners, to);
        }
    }
    // The control: with a rule that does not name the interface, the first setting alone blocks everything.
    shell(scene.gateway.as_fd(), "ip rule add pref 1 fwmark 1 lookup 100");
    inside(scene.sandbox.as_fd(), || TcpStream::connect_timeout(&to[0], PATIENCE_WHEN_BLOCKED)).unwrap_err();
    scene.end().await;
}

/// E-N9: `tproxy` passes a packet on when no process listens; no later rule may accept it.
#[tokio::test]
async fn with_closed_listeners_a_connection_fails_though_its_destination_listens_in_the_gateway() {
    for to in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6), address(UPLINK_V4), address(UPLINK_V6)] {
        let scene = Scene::new().await;
        let listeners = scene.open_listeners().await;
        assert_arrives(&scene, &listeners, SocketAddr::new(to, PORT));
        drop(listeners);
        let attempt = |patience| inside(scene.sandbox.as_fd(), || tcp(to)(patience));
        attempt(PATIENCE_WHEN_BLOCKED).expect_err("the listeners are closed");
        // The control removes only the last barrier.
        shell(scene.gateway.as_fd(), "nft 'chain inet burrow prerouting { policy accept; }'");
        attempt(PATIENCE_WHEN_OPEN).expect("control: with the policy weakened, the decoy answers");
        scene.end().await;
    }
}

async fn an_accepted_connection_ends_with_its_process_and_not_with_its_listener(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let to = SocketAddr::new(address(WORLD_V4), 443);
    let mut stream = inside(scene.sandbox.as_fd(), || TcpStream::connect(to).unwrap());
    let mut arrival = listeners.next();
    drop(listeners);
    arrival.stream.write_all(b"on").unwrap();
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes).unwrap();
    drop(arrival);
    assert_eq!(stream.read(&mut bytes).unwrap(), 0, "the sandbox sees the end of the connection at once");
    scene.end().await;
}

async fn queries_arrive_at_the_resolver_and_answers_come_from_the_queried_address(scene: Scene) {
    let listeners = scene.open_listeners().await;
    for gateway in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)] {
        let own = own_address(gateway);
        let socket = inside(scene.sandbox.as_fd(), || UdpSocket::bind((own, 0)).unwrap());
        // A connected socket receives only packets from the address that it is connected to.
        socket.connect((gateway, DNS_PORT)).unwrap();
        socket.set_read_timeout(Some(PATIENCE_WHEN_OPEN)).unwrap();
        // The second is longer than a packet: it arrives in fragments, and returns in fragments.
        for question in [vec![1; 30], vec![2; 3000]] {
            socket.send(&question).unwrap();
            let (heard, from) = listeners.next_question();
            assert_eq!((&heard, from.ip().to_canonical()), (&question, own));
            listeners.dns_udp.send_to(&heard, from).unwrap();
            let mut answer = [0; 4096];
            assert_eq!(socket.recv(&mut answer).unwrap(), question.len());
        }
        let mut stream = inside(scene.sandbox.as_fd(), || TcpStream::connect((gateway, DNS_PORT)).unwrap());
        let mut arrival = listeners.next_at_resolver();
        assert_eq!((arrival.from, arrival.to), (own, SocketAddr::new(gateway, DNS_PORT)));
        arrival.stream.write_all(b"answer").unwrap();
        stream.read_exact(&mut [0; 6]).unwrap();
    }
    listeners.assert_nothing_arrived();
    scene.end().await;
}

async fn without_listeners_a_query_is_refused_at_once(scene: Scene) {
    let ask = || {
        let socket = UdpSocket::bind((SANDBOX_V4, 0))?;
        socket.connect((GATEWAY_V4, DNS_PORT))?;
        socket.set_read_timeout(Some(PATIENCE_WHEN_OPEN))?;
        socket.send(b"?")?;
        socket.recv(&mut [0; 8])
    };
    let refused = inside(scene.sandbox.as_fd(), ask).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    scene.end().await;
}

async fn the_holder_of_earlier_listeners_gets_errors_and_no_more_traffic(scene: Scene) {
    let Listeners { tcp, dns_udp, dns_tcp } = scene.network.listeners(&scene.id).await.unwrap();
    let earlier = tokio::net::TcpListener::from_std(tcp.into()).unwrap();
    let earlier_tcp = tokio::net::TcpListener::from_std(dns_tcp.into()).unwrap();
    let earlier_udp = tokio::net::UdpSocket::from_std(dns_udp.into()).unwrap();
    let mut bytes = [0; 8];
    let (listeners, outcome, outcome_tcp, outcome_udp) = tokio::join!(
        scene.open_listeners(),
        earlier.accept(),
        earlier_tcp.accept(),
        earlier_udp.recv_from(&mut bytes),
    );
    outcome.expect_err("the egress listener is closed");
    outcome_tcp.expect_err("the resolver's listener is closed");
    outcome_udp.expect_err("the resolver's socket got an error");
    for gateway in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)].repeat(10) {
        assert_arrives(&scene, &listeners, SocketAddr::new(gateway, 443));
        inside(scene.sandbox.as_fd(), || {
            let socket = UdpSocket::bind((own_address(gateway), 0)).unwrap();
            socket.send_to(b"?", (gateway, DNS_PORT)).unwrap();
            TcpStream::connect((gateway, DNS_PORT)).unwrap()
        });
        listeners.next_question();
        listeners.next_at_resolver();
    }
    assert_eq!(earlier_udp.try_recv(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    scene.end().await;
}

async fn listeners_outlive_a_release_and_no_new_ones_are_created(scene: Scene) {
    let listeners = scene.open_listeners().await;
    scene.network.release(&scene.id).await.unwrap();
    let refused = scene.network.listeners(&scene.id).await.unwrap_err();
    assert!(matches!(refused, NetworkError::NotConnected { .. }));
    assert_eq!(refused.to_string(), format!("sandbox `{}` has no network", scene.id));
    assert_arrives(&scene, &listeners, SocketAddr::new(address(WORLD_V4), 443));
    scene.end().await;
}

/// P-N10: connection tracking has one table for the whole host, which sandboxes must not be able to fill.
async fn no_connection_of_a_sandbox_is_tracked(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let tracked = || {
        let count = "/proc/sys/net/netfilter/nf_conntrack_count";
        inside(scene.gateway.as_fd(), || std::fs::read_to_string(count)).unwrap().trim().to_owned()
    };
    let _guest = inside(scene.sandbox.as_fd(), || TcpListener::bind((SANDBOX_V4, 4100)).unwrap());
    let _dialled = scene.dial.dial(4100).await.unwrap();
    for port in 1..100 {
        assert_arrives(&scene, &listeners, SocketAddr::new(address(WORLD_V4), port));
    }
    assert_eq!(tracked(), "0");
    shell(
        scene.gateway.as_fd(),
        "nft 'table inet control { chain c { type filter hook prerouting priority 0; ct state new counter; }; }'",
    );
    assert_arrives(&scene, &listeners, SocketAddr::new(address(WORLD_V4), 443));
    assert_ne!(tracked(), "0", "control: with a rule that asks for it, connections are tracked");
    scene.end().await;
}

/// P-N10: the process that serves the listeners is not flooded.
async fn floods_of_queries_and_of_connections_are_limited(scene: Scene) {
    const FLOOD: u64 = 40_000;
    let _listeners = scene.open_listeners().await;
    // Counts what our chain accepted, since this chain is evaluated later.
    shell(
        scene.gateway.as_fd(),
        "nft 'table inet seen { counter questions { }; counter connections { };
         chain c { type filter hook prerouting priority 0; udp dport 53 counter name questions;
         tcp flags syn counter name connections; }; }'",
    );
    inside(scene.sandbox.as_fd(), || {
        let questions = UdpSocket::bind((SANDBOX_V4, 0)).unwrap();
        let connections = raw_socket(AddressFamily::INET, 6, SocketFlags::empty()).unwrap();
        // Ports, numbers, a header of 20 bytes, SYN. The checksum is wrong, which is checked only after the rules.
        let opening = [0x80, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
        let somewhere = SocketAddr::new(address(WORLD_V4), 0);
        for _ in 0..FLOOD {
            // If the queue is full, one query less is sent.
            let _ = questions.send_to(b"?", (GATEWAY_V4, DNS_PORT));
            let _ = rustix::net::sendto(&connections, &opening, SendFlags::empty(), &somewhere);
        }
    });
    let seen = |counter: &str| {
        let list = || Command::new("nft").args(["list", "counter", "inet", "seen", counter]).output();
        let listed = inside(scene.gateway.as_fd(), list).unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let mut words = listed.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).unwrap().parse::<u64>().unwrap()
    };
    // The burst, and some for the duration of the flood: far from all, however slow the machine is.
    let (questions, connections) = (seen("questions"), seen("connections"));
    assert!((1_000..FLOOD / 2).contains(&questions), "{questions} questions");
    assert!((4_000..FLOOD / 2).contains(&connections), "{connections} connections");
    scene.end().await;
}

both_ways! {
    every_tcp_connection_arrives_with_its_original_destination,
    a_port_scan_of_the_gateway_finds_only_the_listeners,
    a_connection_to_the_host_arrives_at_the_listeners,
    a_connection_to_the_gateways_loopback_arrives_at_the_listeners,
    the_listeners_work_with_any_source_validation_of_the_host,
    an_accepted_connection_ends_with_its_process_and_not_with_its_listener,
    queries_arrive_at_the_resolver_and_answers_come_from_the_queried_address,
    without_listeners_a_query_is_refused_at_once,
    the_holder_of_earlier_listeners_gets_errors_and_no_more_traffic,
    listeners_outlive_a_release_and_no_new_ones_are_created,
    no_connection_of_a_sandbox_is_tracked,
    floods_of_queries_and_of_connections_are_limited,
}
