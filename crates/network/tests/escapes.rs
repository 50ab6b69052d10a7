//! Tries to get around the listeners while they are open and served; no attempt may succeed.
//!
//! The names are those of the threats: E-N3 (v6), E-N4 (UDP, ICMP, raw sockets, SCTP, GRE), E-N7 (root inside), E-N8
//! (spoofed sources, ARP, neighbour discovery), P-N2 (routing settings), P-N3 (foreign hardware address, DHCP), P-N4
//! (raw sockets: a sandbox has none, the tests do), P-N5 (by raw connect, by another resolver).
#![expect(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod support;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_network::{DNS_PORT, GATEWAY_V4, GATEWAY_V6, SANDBOX_V4, SANDBOX_V6};
use rustix::net::{SendFlags, SocketFlags, sockopt};
use support::scene::{
    Attempt, Decoy, PATIENCE_WHEN_BLOCKED, PATIENCE_WHEN_OPEN, PORT, SPOOFED_V4, SPOOFED_V6, Scene, WORLD_V4,
    WORLD_V6, address, family_of, marker, ping, raw_socket, tcp, udp,
};
use support::{eventually, inside, shell};

const UDP: u32 = 17;

fn own_address(to: IpAddr) -> IpAddr {
    if to.is_ipv4() { SANDBOX_V4.into() } else { SANDBOX_V6.into() }
}

fn gateway_and_world() -> [IpAddr; 4] {
    [GATEWAY_V4.into(), GATEWAY_V6.into(), address(WORLD_V4), address(WORLD_V6)]
}

/// A datagram to any address, observed by decoys that see all UDP packets.
fn datagram(scene: &Scene, from: SocketAddr, to: SocketAddr) -> Attempt<'_> {
    let decoy = Decoy::set(scene, family_of(to.ip()), UDP);
    Attempt::new(format!("UDP from {from} to {to}"), move |patience| {
        let socket = UdpSocket::bind(from)?;
        socket.set_broadcast(true)?;
        if to.ip().is_multicast() {
            // Binds to the only interface that leads out; multicast addresses do not imply one.
            match to.ip() {
                IpAddr::V4(_) => sockopt::set_ip_multicast_if(&socket, &SANDBOX_V4)?,
                IpAddr::V6(_) => sockopt::set_ipv6_multicast_if(&socket, eth0(&socket)?)?,
            }
        }
        let marker = marker();
        socket.send_to(&marker, to)?;
        decoy.wait_for(&marker, patience)
    })
}

/// A packet of any protocol, sent by a raw socket.
fn raw(scene: &Scene, protocol: u32, to: IpAddr) -> Attempt<'_> {
    let decoy = Decoy::set(scene, family_of(to), protocol);
    Attempt::new(format!("protocol {protocol} to {to}"), move |patience| {
        let socket = raw_socket(family_of(to), protocol, SocketFlags::empty())?;
        let marker = marker();
        rustix::net::sendto(&socket, &marker, SendFlags::empty(), &SocketAddr::new(to, 0))?;
        decoy.wait_for(&marker, patience)
    })
}

fn eth0(socket: impl AsFd) -> io::Result<u32> {
    Ok(rustix::net::netdevice::name_to_index(socket, "eth0")?)
}

/// E-N3, E-N4, P-N5: QUIC, other resolvers, time, games: only the resolver of the gateway receives UDP.
async fn no_udp_gets_out_except_queries_to_the_gateway(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let mut attempts = Vec::new();
    for to in gateway_and_world() {
        for port in [1, 67, 123, 443, 4789, 5353, 15_001, 65_535] {
            attempts.push(datagram(&scene, (own_address(to), 0).into(), (to, port).into()));
        }
    }
    for resolver in [WORLD_V4, WORLD_V6, "192.0.2.2", "2001:db8::2"].map(address) {
        attempts.push(datagram(&scene, (own_address(resolver), 0).into(), (resolver, DNS_PORT).into()));
    }
    scene.all_blocked(&attempts);
    listeners.assert_nothing_arrived();
    scene.all_succeed_without_the_rules(&attempts);
    drop(attempts);
    scene.end().await;
}

/// P-N3, P-N5: neither do broadcasts and multicasts, for names, addresses or routers.
async fn no_broadcast_or_multicast_gets_out(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let own = SocketAddr::new(SANDBOX_V4.into(), 0);
    let all_v4 = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
    let subnet = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 3));
    let eth0 = inside(scene.sandbox.as_fd(), || eth0(UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap());
    let all_v6 = SocketAddr::V6(SocketAddrV6::new("ff02::1".parse().unwrap(), 5353, 0, eth0));
    let attempts = [
        // A DHCP client's request, and a DHCP server's offer.
        datagram(&scene, ([0, 0, 0, 0], 68).into(), (Ipv4Addr::BROADCAST, 67).into()),
        datagram(&scene, ([0, 0, 0, 0], 67).into(), (Ipv4Addr::BROADCAST, 68).into()),
        datagram(&scene, own, (all_v4, 5353).into()),
        datagram(&scene, own, (all_v4, DNS_PORT).into()),
        datagram(&scene, own, (subnet, DNS_PORT).into()),
        datagram(&scene, (SANDBOX_V6, 0).into(), all_v6),
    ];
    scene.all_blocked(&attempts);
    listeners.assert_nothing_arrived();
    scene.all_succeed_without_the_rules(&attempts);
    drop(attempts);
    scene.end().await;
}

/// E-N4, P-N4, P-N5.
async fn no_other_protocol_than_tcp_and_udp_gets_out_even_with_raw_sockets(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let mut attempts = Vec::new();
    for to in gateway_and_world() {
        attempts.push(Attempt::new(format!("ICMP echo to {to}"), ping(to)));
        // IGMP, IP in IP, DCCP, IPv6 in IP, GRE, ESP, VRRP, L2TP, SCTP, UDP-Lite, and an experimental one.
        for protocol in [2, 4, 33, 41, 47, 50, 112, 115, 132, 136, 253] {
            // An IPv6 raw socket cannot send extension headers, and 50 is one.
            if to.is_ipv4() || protocol != 50 {
                attempts.push(raw(&scene, protocol, to));
            }
        }
    }
    scene.all_blocked(&attempts);
    listeners.assert_nothing_arrived();
    scene.all_succeed_without_the_rules(&attempts);
    drop(attempts);
    scene.end().await;
}

/// E-N4: a fragmented datagram is filtered as a whole.
async fn no_fragment_gets_out(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let attempts: Vec<Attempt<'_>> = gateway_and_world()
        .into_iter()
        .map(|to| {
            let decoy = Decoy::set(&scene, family_of(to), UDP);
            Attempt::new(format!("a long datagram to {to}"), move |patience| {
                let marker = marker();
                let long = marker.repeat(200);
                UdpSocket::bind((own_address(to), 0))?.send_to(&long, (to, PORT))?;
                decoy.wait_for(&marker, patience)
            })
        })
        .collect();
    scene.all_blocked(&attempts);
    listeners.assert_nothing_arrived();
    scene.all_succeed_without_the_rules(&attempts);
    drop(attempts);
    scene.end().await;
}

/// E-N7: the rules are outside the sandbox.
async fn root_inside_gains_nothing_by_flushing_rules_and_adding_routes(scene: Scene) {
    let listeners = scene.open_listeners().await;
    shell(
        scene.sandbox.as_fd(),
        "nft flush ruleset
         nft 'table inet mine { chain c { type filter hook output priority 0; policy accept; meta mark set 1; }; }'
         echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
         ip route replace default via 10.88.0.1 dev eth0 onlink
         ip route add 192.0.2.0/24 via 10.88.0.1; ip -6 route add 2001:db8::/64 via fd88::1
         ip route add 198.51.100.0/24 dev eth0; ip rule add pref 1 lookup main; ip -6 rule add pref 1 lookup main",
    );
    for to in gateway_and_world() {
        let to = SocketAddr::new(to, PORT);
        inside(scene.sandbox.as_fd(), || TcpStream::connect_timeout(&to, PATIENCE_WHEN_OPEN)).unwrap();
        assert_eq!(listeners.next().to, to, "as before, and nowhere else");
    }
    let attempts: Vec<Attempt<'_>> = gateway_and_world()
        .into_iter()
        .map(|to| Attempt::new(format!("UDP to {to}"), udp(own_address(to), to)))
        .collect();
    scene.all_blocked(&attempts);
    listeners.assert_nothing_arrived();
    scene.all_succeed_without_the_rules(&attempts);
    drop(attempts);
    scene.end().await;
}

/// E-N8: packets with a source other than the sandbox's own reach neither the listeners nor anything behind them.
async fn nothing_from_a_spoofed_source_arrives_at_the_listeners(scene: Scene) {
    let listeners = scene.open_listeners().await;
    shell(
        scene.sandbox.as_fd(),
        &format!(
            "ip addr add {SPOOFED_V4}/32 dev eth0; ip -6 addr add {SPOOFED_V6}/128 dev eth0 nodad
             ip addr add 10.88.0.6/32 dev eth0; ip -6 addr add fd88::3/128 dev eth0 nodad"
        ),
    );
    for (from, gateway) in [
        (SPOOFED_V4, IpAddr::V4(GATEWAY_V4)),
        (SPOOFED_V6, IpAddr::V6(GATEWAY_V6)),
        ("10.88.0.6", IpAddr::V4(GATEWAY_V4)),
        ("fd88::3", IpAddr::V6(GATEWAY_V6)),
    ] {
        inside(scene.sandbox.as_fd(), || {
            let socket = UdpSocket::bind((address(from), 0)).unwrap();
            socket.send_to(b"?", (gateway, DNS_PORT)).unwrap();
            for to in [SocketAddr::new(gateway, 80), SocketAddr::new(gateway, DNS_PORT)] {
                let answered = connect_from(address(from), to, PATIENCE_WHEN_BLOCKED).is_ok();
                assert!(!answered, "from {from} to {to}");
            }
        });
    }
    listeners.assert_nothing_arrived();
    // The control: the same from the sandbox's own address arrives.
    for gateway in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)] {
        let own = own_address(gateway);
        inside(scene.sandbox.as_fd(), || {
            UdpSocket::bind((own, 0)).unwrap().send_to(b"?", (gateway, DNS_PORT)).unwrap();
            connect_from(own, (gateway, 80).into(), PATIENCE_WHEN_OPEN).unwrap();
        });
        assert_eq!(listeners.next_question().1.ip().to_canonical(), own);
        assert_eq!(listeners.next().from, own);
    }
    scene.end().await;
}

fn connect_from(from: IpAddr, to: SocketAddr, patience: Duration) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        family_of(from),
        rustix::net::SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => (),
        Err(error) => return Err(error.into()),
    }
    let until = Instant::now() + patience;
    let stream = TcpStream::from(socket);
    while Instant::now() < until {
        if stream.peer_addr().is_ok() {
            return Ok(());
        }
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// P-N3: a sandbox is identified by its interface, which has one hardware address.
async fn nothing_from_a_foreign_hardware_address_arrives(scene: Scene) {
    let listeners = scene.open_listeners().await;
    let ask = || {
        inside(scene.sandbox.as_fd(), || {
            for gateway in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)] {
                let socket = UdpSocket::bind((own_address(gateway), 0)).unwrap();
                socket.send_to(b"?", (gateway, DNS_PORT)).unwrap();
            }
        });
    };
    let change = |hardware: &str| {
        // The kernel removes neighbour entries together with the address.
        shell(
            scene.sandbox.as_fd(),
            &format!(
                "ip link set eth0 address {hardware}
                 ip neigh replace {GATEWAY_V4} lladdr 02:88:00:00:00:01 dev eth0
                 ip neigh replace {GATEWAY_V6} lladdr 02:88:00:00:00:01 dev eth0"
            ),
        );
    };
    change("02:88:00:00:00:99");
    ask();
    change("02:88:00:00:00:02");
    ask();
    // A veth pair keeps the order of packets: if the first two had been accepted, there would be four.
    listeners.next_question();
    listeners.next_question();
    listeners.assert_nothing_arrived();
    scene.flush_rules();
    change("02:88:00:00:00:99");
    ask();
    listeners.next_question();
    listeners.next_question();
    scene.end().await;
}

/// The neighbour table of a namespace.
fn neighbours(namespace: BorrowedFd<'_>) -> String {
    let listed = inside(namespace, || Command::new("ip").args(["neigh", "show"]).output().unwrap());
    String::from_utf8(listed.stdout).unwrap()
}

/// E-N8, P-N3: the neighbour table has one limit for the whole host.
async fn the_gateway_learns_no_neighbour_from_a_sandbox(scene: Scene) {
    let link_local = "fe80::bad";
    shell(
        scene.sandbox.as_fd(),
        &format!(
            "ip addr add {SPOOFED_V4}/32 dev eth0; ip -6 addr add {link_local}/64 dev eth0 nodad
             ip -6 addr add {SPOOFED_V6}/128 dev eth0 nodad"
        ),
    );
    let pester = || {
        // A sandbox that has forgotten the gateway asks for it, with the address from which it is about to send.
        shell(scene.sandbox.as_fd(), "ip neigh flush dev eth0 nud permanent; ip neigh flush dev eth0");
        for (from, to) in [
            (address(SPOOFED_V4), IpAddr::V4(GATEWAY_V4)),
            (address(SPOOFED_V6), IpAddr::V6(GATEWAY_V6)),
            (address(link_local), IpAddr::V6(GATEWAY_V6)),
        ] {
            shell(scene.sandbox.as_fd(), "ip neigh flush dev eth0");
            inside(scene.sandbox.as_fd(), || {
                let from = match from {
                    IpAddr::V6(v6) => {
                        let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
                        SocketAddr::V6(SocketAddrV6::new(v6, 0, 0, eth0(&probe).unwrap()))
                    }
                    IpAddr::V4(_) => SocketAddr::new(from, 0),
                };
                UdpSocket::bind(from).unwrap().send_to(b"?", (to, PORT)).unwrap();
            });
        }
        neighbours(scene.gateway.as_fd())
    };
    let known = |listed: &str| [SPOOFED_V4, SPOOFED_V6, link_local].map(|address| listed.contains(address));
    assert_eq!(known(&pester()), [false; 3]);
    scene.flush_rules();
    shell(scene.gateway.as_fd(), "echo 0 > /proc/sys/net/ipv4/conf/gw0/arp_ignore");
    eventually("control: without the rules and the setting, it learns all of them", || {
        known(&pester()) == [true; 3]
    });
    scene.end().await;
}

/// P-N3: an announcement cannot change the gateway's entry for its sandbox.
async fn a_gratuitous_arp_announcement_does_not_move_an_address(scene: Scene) {
    let announce = || {
        // The kernel announces its addresses whenever the hardware address changes.
        shell(
            scene.sandbox.as_fd(),
            "echo 1 > /proc/sys/net/ipv4/conf/eth0/arp_notify; echo 1 > /proc/sys/net/ipv6/conf/eth0/ndisc_notify
             ip link set eth0 address 02:88:00:00:00:98; ip link set eth0 address 02:88:00:00:00:99",
        );
        neighbours(scene.gateway.as_fd())
    };
    let own = |listed: &str| {
        let line = listed.lines().find(|line| line.starts_with(&format!("{SANDBOX_V4} "))).unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    assert_eq!(own(&announce()), "02:88:00:00:00:02");
    let forget = format!("ip neigh replace {SANDBOX_V4} lladdr 02:88:00:00:00:02 dev gw0 nud stale");
    shell(scene.gateway.as_fd(), &forget);
    eventually("control: an entry that is not permanent is moved", || {
        own(&announce()) == "02:88:00:00:00:99"
    });
    scene.end().await;
}

/// E-N4, P-N2: neither redirects nor other messages change where the gateway sends.
async fn an_open_tcp_connection_does_not_admit_udp(scene: Scene) {
    let listeners = scene.open_listeners().await;
    // A served connection to an address does not admit UDP to it.
    let to = address(WORLD_V4);
    let served = inside(scene.sandbox.as_fd(), || TcpStream::connect((to, PORT)).unwrap());
    let arrival = listeners.next();
    let attempts = [
        Attempt::new(format!("UDP beside TCP to {to}"), udp(SANDBOX_V4.into(), to)),
        datagram(&scene, served.local_addr().unwrap(), (to, PORT).into()),
    ];
    scene.all_blocked(&attempts);
    listeners.assert_nothing_arrived();
    scene.all_succeed_without_the_rules(&attempts);
    drop((attempts, arrival, served));
    scene.end().await;
}

/// The control for the others: the rules block the traffic, not a missing route.
#[tokio::test]
async fn without_the_rules_the_world_is_reached_around_the_listeners() {
    for to in [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()] {
        let scene = Scene::new().await;
        let listeners = scene.open_listeners().await;
        scene.flush_rules();
        inside(scene.sandbox.as_fd(), || tcp(to)(PATIENCE_WHEN_OPEN)).unwrap();
        listeners.assert_nothing_arrived();
        scene.end().await;
    }
}

both_ways! {
    no_udp_gets_out_except_queries_to_the_gateway,
    no_broadcast_or_multicast_gets_out,
    no_other_protocol_than_tcp_and_udp_gets_out_even_with_raw_sockets,
    no_fragment_gets_out,
    root_inside_gains_nothing_by_flushing_rules_and_adding_routes,
    nothing_from_a_spoofed_source_arrives_at_the_listeners,
    nothing_from_a_foreign_hardware_address_arrives,
    the_gateway_learns_no_neighbour_from_a_sandbox,
    a_gratuitous_arp_announcement_does_not_move_an_address,
    an_open_tcp_connection_does_not_admit_udp,
}
