//! Invariant 1, "no policy, no packet": no packet of a sandbox arrives anywhere while no process serves its listeners,
//! except replies to the daemon (the proxy has ended, is starting or ran out of memory: threat E-N9).
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_network::{GATEWAY_V4, GATEWAY_V6, SANDBOX_V4, SANDBOX_V6};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use support::scene::{
    PATIENCE_WHEN_BLOCKED, PATIENCE_WHEN_OPEN, SPOOFED_V4, SPOOFED_V6, Scene, WORLD_V4, WORLD_V6, address,
    ping, tcp, udp,
};
use support::{inside, shell};

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
    // Root in a sandbox can remove 127.0.0.1 from its loopback interface, and route it through eth0.
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
    // Decoys: on the host's loopback, and in another sandbox at the address that all sandboxes have.
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
            "{to} is the sandbox itself, where no process listens"
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
    // Routers ignore router advertisements, so the gateway must not be a router here.
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

/// Sends an advertisement that the sandbox is a router for all hosts.
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
async fn both_ends_find_each_other_again_after_their_neighbour_entries_were_removed() {
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
async fn the_daemon_reaches_the_guest_while_all_outgoing_traffic_is_blocked() {
    let scene = Scene::new().await;
    let guest = inside(scene.sandbox.as_fd(), || TcpListener::bind((SANDBOX_V4, 4100)).unwrap());
    let dialled = scene.dial.dial(4100).await.expect("dialling in works");
    let gateway_port = dialled.local_addr().unwrap().port();
    let (_accepted, _) = guest.accept().unwrap();
    // From the port of the dialled connection, back to the port of its other end, and to any other port.
    let back = inside(scene.sandbox.as_fd(), || {
        TcpStream::connect_timeout(&SocketAddr::new(GATEWAY_V4.into(), gateway_port), PATIENCE_WHEN_BLOCKED)
    });
    assert!(back.is_err());
    scene
        .blocked_by_the_rules_alone("TCP to the gateway beside a dialled connection", tcp(GATEWAY_V4.into()));
    scene.end().await;
}

/// A guest must see the end of a connection that the daemon closed, or it would wait forever.
#[tokio::test]
async fn a_guest_gets_an_error_when_it_writes_to_a_connection_that_the_daemon_closed() {
    let scene = Scene::new().await;
    let guest = inside(scene.sandbox.as_fd(), || TcpListener::bind((SANDBOX_V4, 4100)).unwrap());
    let dialled = scene.dial.dial(4100).await.unwrap();
    let (mut accepted, _) = guest.accept().unwrap();
    drop(dialled);
    support::eventually("the guest gets an error", || accepted.write_all(b"still there?").is_err());
    scene.end().await;
}
