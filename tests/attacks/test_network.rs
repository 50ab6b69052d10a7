//! The network around the sandboxes of the network rows: decoys that count connections, and an unguarded namespace, in
//! which the same attempts must succeed.
//!
//! ```text
//!   sandbox ──► gateway ──► (egress process) ────┐
//!                                                ├──► this namespace: every address, with decoys
//!   unguarded namespace ──veth, default route────┘
//! ```

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::controls;
use crate::ground::Run;
use crate::harness::{eventually, run};
use crate::island::{Decoy, FORBIDDEN, OUTSIDE, OUTSIDE_V6};

/// A low limit on connections, so that a small flood reaches it.
pub(crate) const CONFIG: &str = "egress.allow_ranges = [\"198.51.100.0/24\", \"2001:db8:51::/48\"]\n\
                                 egress.connections = 64\negress.connections_per_second = 200";

/// The gateway of the unguarded namespace, and its own address.
pub(crate) const UNGUARDED_GATEWAY: &str = "10.77.0.1";
pub(crate) const UNGUARDED_ADDRESS: &str = "10.77.0.2";

/// Ports with a decoy on every address.
pub(crate) const PORTS: [u16; 4] = [22, 443, 5432, 8080];

pub(crate) struct TestNetwork {
    /// The listener at every address and port.
    decoys: Vec<Decoy>,
    /// A web server, outside.
    pub(crate) web: Decoy,
    /// Datagrams to ports 53 and 443 outside, by content.
    datagrams: Arc<AtomicUsize>,
    tunnelled: Arc<AtomicUsize>,
    unguarded: Child,
}

static TEST_NETWORK: OnceLock<TestNetwork> = OnceLock::new();

/// Call it before anything else uses it.
pub(crate) fn fill() {
    let addresses = FORBIDDEN.iter().chain(&[OUTSIDE, OUTSIDE_V6]);
    let decoys = addresses.flat_map(|address| PORTS.map(|port| Decoy::open(address, port))).collect();
    let test_network = TestNetwork {
        decoys,
        web: Decoy::web(OUTSIDE, 80),
        datagrams: Arc::default(),
        tunnelled: Arc::default(),
        unguarded: unguarded_namespace(),
    };
    for port in [53, 443] {
        let socket = UdpSocket::bind((OUTSIDE, port)).unwrap();
        let (datagrams, tunnelled) =
            (Arc::clone(&test_network.datagrams), Arc::clone(&test_network.tunnelled));
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((count, from)) = socket.recv_from(&mut buffer) {
                let said = &buffer[..count];
                if said.windows(6).any(|word| word == b"tunnel") {
                    tunnelled.fetch_add(1, Ordering::SeqCst);
                }
                datagrams.fetch_add(1, Ordering::SeqCst);
                let _ = socket.send_to(said, from);
            }
        });
    }
    assert!(TEST_NETWORK.set(test_network).is_ok(), "it is filled once");
}

pub(crate) fn test_network() -> &'static TestNetwork {
    TEST_NETWORK.get().expect("the suite fills it first")
}

/// A network namespace whose only route leads here, without a proxy.
pub(crate) fn unguarded_namespace() -> Child {
    // It is removed when the test ends, in any way.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--"]);
    command.args(["sh", "-c", "ip link set lo up; exec sleep 100000"]);
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    eventually("an unguarded namespace", || {
        std::fs::read_link(format!("/proc/{pid}/ns/net")).ok().filter(|theirs| *theirs != own)
    });
    let ip = |arguments: &str| run(Command::new("ip").args(arguments.split(' ')));
    ip(&format!("link add weak0 type veth peer name eth0 netns {pid}"));
    ip(&format!("address add {UNGUARDED_GATEWAY}/24 dev weak0"));
    ip("address add fd77::1/64 dev weak0 nodad");
    ip("link set weak0 up");
    let inside = format!(
        "ip address add {UNGUARDED_ADDRESS}/24 dev eth0 && ip address add fd77::2/64 dev eth0 nodad && ip link set eth0 up \
         && ip route add default via {UNGUARDED_GATEWAY} && ip -6 route add default via fd77::1"
    );
    run(Command::new("nsenter").args(["-t", &pid, "-n", "sh", "-c", &inside]));
    child
}

impl TestNetwork {
    pub(crate) fn hits(&self) -> usize {
        self.decoys.iter().map(Decoy::hits).sum::<usize>() + self.web.hits()
    }

    pub(crate) fn datagrams(&self) -> usize {
        self.datagrams.load(Ordering::SeqCst)
    }

    pub(crate) fn tunnelled(&self) -> usize {
        self.tunnelled.load(Ordering::SeqCst)
    }

    /// The connections to the decoys at one address.
    pub(crate) fn hits_at(&self, address: &str) -> usize {
        let address = address.parse::<std::net::IpAddr>().unwrap();
        self.decoys.iter().filter(|decoy| decoy.address.ip() == address).map(Decoy::hits).sum()
    }

    /// All bytes that the decoys outside received.
    pub(crate) fn heard(&self) -> String {
        self.decoys.iter().map(Decoy::heard).chain([self.web.heard()]).collect()
    }

    /// Runs a Python program in the unguarded namespace.
    pub(crate) fn weakly(&self, program: &str) -> Run {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "nsenter",
            "-t",
            &self.unguarded.id().to_string(),
            "-n",
            "python3",
            "-c",
            program,
        ]);
        controls::run(&mut command)
    }
}

/// The library of the probes. `reach` prints `REACHED` when a decoy greeted it.
pub(crate) const PROBE: &str = r#"
import os, select, socket, struct, sys, time

def reach(host, port, send=b'', want=b'ready', patience=4, family=0):
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        s = socket.socket(found[0][0], socket.SOCK_STREAM)
        s.settimeout(patience)
        s.connect(found[0][4])
        if send: s.sendall(send)
        data = b''
        while len(data) < 65536:
            part = s.recv(4096)
            if not part: break
            data += part
            if want in data: return 'REACHED'
        return 'closed after %r' % data[:80]
    except OSError as error:
        return 'no: %s' % error

def tell(name, outcome):
    print(name.replace(' ', '-'), outcome, flush=True)

def hello(name, extra=b'', versions=b'\x03\x04\x03\x03'):
    def vector(size, data): return len(data).to_bytes(size, 'big') + data
    def extension(kind, data): return kind.to_bytes(2, 'big') + vector(2, data)
    extensions = b''
    if name is not None:
        extensions += extension(0, vector(2, b'\x00' + vector(2, name)))
    extensions += extension(43, vector(1, versions)) + extension(10, vector(2, b'\x00\x1d'))
    extensions += extension(13, vector(2, b'\x04\x03\x08\x04')) + extra
    body = b'\x03\x03' + bytes(32) + vector(1, bytes(32)) + vector(2, b'\x13\x01\x13\x02') + b'\x01\x00'
    body += vector(2, extensions)
    message = b'\x01' + vector(3, body)
    return b'\x16\x03\x01' + vector(2, message)
"#;
