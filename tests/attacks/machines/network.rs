//! P-N3 and E-N7: frames, routes and rules that a machine creates itself. It has a network interface and root's
//! privileges over it; the interface ends in the machine's own gateway.
//!
//! ```text
//!   hostile machine ──tap──► its gateway ┄┄ nothing ┄┄ the outside, where a capture runs
//!                                         ┄┄ nothing ┄┄ another machine, in which a capture runs
//!   unguarded namespace ──veth──► the outside, where a capture records every frame
//! ```

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::{MachineRow, lives, own};
use crate::controls::run;
use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::network::{blocked, program};
use crate::report::{Finding, RowFailure, ensure};
use crate::test_network::test_network;

pub(super) const ROWS: &[MachineRow] = &[
    own("P-N3", "forged ARP, sources, router advertisements, DHCP", forged)
        .with(&["--net", "open"])
        .controlled(forged_unguarded),
    own("E-N7", "root inside rewrites routes and rules", rewrite).with(&["--allow", "up.example"]),
];

/// Sends each frame several times: as a broadcast, and to the gateway. The word that identifies them is assembled inside,
/// so that no request about them contains it.
const FORGE: &str = "
mark = b'-degrof'[::-1]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); s.bind(('eth0', 0))
mac = lambda text: bytes.fromhex(text.replace(':', ''))
own, other, everybody = mac(open('/sys/class/net/eth0/address').read().strip()), mac('020000000099'), b'\\xff' * 6
known = [line.split()[3] for line in open('/proc/net/arp').readlines()[1:] if line.split()[5] == 'eth0']
gateways = [mac(text) for text in known if text != '00:00:00:00:00:00']
v4 = socket.inet_aton
v6 = lambda text: socket.inet_pton(socket.AF_INET6, text)
def checksum(data):
    total = sum(struct.unpack('>%dH' % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def ip(source, target, payload):
    head = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + len(payload), 7, 0, 64, 17, 0, v4(source), v4(target))
    return head[:10] + struct.pack('>H', checksum(head)) + head[12:] + payload
def udp(source, target, data): return struct.pack('>HHHH', source, target, 8 + len(data), 0) + data
def arp(sender, address): return struct.pack('>HHBBH', 1, 0x800, 6, 4, 2) + sender + v4(address) + everybody + v4(address)
def advertisement(data):
    body = struct.pack('>BBHBBHII', 134, 0, 0, 64, 0, 1800, 0, 0) + struct.pack('>BB', 3, 4) + struct.pack('>BBIII', 64, 0xc0, 3600, 3600, 0)
    body += v6('2001:db8:bad::') + struct.pack('>BB', 253, 4) + data.ljust(30, b'\\0')
    ends = v6('fe80::99') + v6('ff02::1')
    body = body[:2] + struct.pack('>H', checksum(ends + struct.pack('>II', len(body), 58) + body)) + body[4:]
    return struct.pack('>IHBB', 6 << 28, len(body), 58, 255) + ends + body
offer = struct.pack('>BBBBIHH4s4s4s4s', 2, 1, 6, 0, 7, 0, 0x8000, v4('0.0.0.0'), v4('10.9.8.7'), v4('10.88.0.1'), v4('0.0.0.0'))
offer += own.ljust(16, b'\\0') + bytes(192) + mac('63825363') + bytes([53, 1, 2, 255])
frames = [
    ('arp-gateway', own, 0x806, lambda word: arp(own, '10.88.0.1') + word),
    ('arp-foreign', other, 0x806, lambda word: arp(other, '10.9.8.7') + word),
    ('source', own, 0x800, lambda word: ip('10.9.8.7', '198.51.100.1', udp(4000, 443, word))),
    ('hardware', other, 0x800, lambda word: ip('10.88.0.2', '198.51.100.1', udp(4000, 443, word))),
    ('router', own, 0x86dd, advertisement),
    ('dhcp', own, 0x800, lambda word: ip('10.88.0.1', '255.255.255.255', udp(67, 68, offer + word))),
]
for name, sender, kind, make in frames:
    for target in [everybody] + gateways:
        frame = target + sender + struct.pack('>H', kind) + make(mark + name.encode() + b';')
        for _ in range(3): s.send(frame)
    tell(name, 'sent')
";

const KINDS: usize = 6;

/// Captures on every interface until a file exists, at most half a minute, and prints which of the above frames it
/// received.
const CAPTURE: &str = "
import os, socket, sys, time
mark = b'-degrof'[::-1]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.settimeout(0.1)
print('listening', flush=True)
kinds, frames, end = set(), 0, time.monotonic() + 30
while time.monotonic() < end and not os.path.exists(sys.argv[1]):
    try: frame = s.recv(65535)
    except OSError: continue
    frames += 1
    if mark in frame: kinds.add(frame.split(mark, 1)[1].split(b';')[0].decode('ascii', 'replace'))
for kind in sorted(kinds): print('heard', kind)
print('frames=%d' % frames, flush=True)
";

/// A capture of all packets in the outside namespace.
struct PacketCapture {
    child: Child,
    stop: PathBuf,
}

impl PacketCapture {
    fn listen(ground: &Ground) -> Self {
        let folder = ground.folder("capture");
        let (stop, said) = (folder.join("stop"), folder.join("said"));
        let mut command = Command::new("python3");
        command.args(["-c", CAPTURE]).arg(&stop).stdin(Stdio::null());
        let child = command.stdout(std::fs::File::create(&said).unwrap()).spawn().unwrap();
        eventually("a capture outside", || {
            std::fs::read_to_string(&said).unwrap().contains("listening").then_some(())
        });
        Self { child, stop }
    }

    /// The received frames.
    fn end(mut self) -> Vec<String> {
        std::fs::write(&self.stop, "").unwrap();
        self.child.wait().unwrap();
        heard(&std::fs::read_to_string(self.stop.with_file_name("said")).unwrap())
    }
}

fn heard(said: &str) -> Vec<String> {
    said.lines().filter_map(|line| line.strip_prefix("heard ")).map(str::to_owned).collect()
}

/// Addresses and routes of the machine's gateway.
fn gateway(sandbox: &Sandbox<'_>) -> Result<String, RowFailure> {
    let info = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place =
        info.lines().filter_map(|line| line.split(' ').nth(4)).find(|place| place.ends_with(&sandbox.id));
    let place = place.ok_or_else(|| "its gateway has no name".to_owned())?;
    let look = "ip -o address | sed 's/valid_lft.*//'; ip -4 route show table all; ip -6 route show table all | sed 's/expires.*//'";
    let seen = run(Command::new("nsenter").args([&format!("--net={place}"), "sh", "-c", look]));
    ensure(seen.ok() && seen.out.contains("10.88.0.1"), || format!("{seen:?}"))?;
    Ok(seen.out)
}

fn forged(sandbox: &Sandbox<'_>) -> Finding {
    let neighbour = sandbox.ground.sandbox(&["--net", "open"]);
    let capture = neighbour.start(&json!({ "argv": ["python3", "-c", CAPTURE, "/stop"] }));
    let said = |exec: &str| neighbour.ask("GET", &format!("/execs/{exec}/output?format=raw")).text();
    eventually("a capture in the neighbour", || said(&capture).contains("listening").then_some(()));
    let outside = PacketCapture::listen(sandbox.ground);
    let (hits, datagrams, before) = (test_network().hits(), test_network().datagrams(), gateway(sandbox)?);
    let sent = sandbox.python(&program(FORGE));
    ensure(sent.ok() && sent.out.lines().count() == KINDS, || format!("not all were sent: {sent:?}"))?;
    lives(sandbox)?;
    neighbour.put("/stop", b"");
    neighbour.wait(&capture);
    let inside = said(&capture);
    // It received at least the request to stop.
    ensure(inside.contains("frames=") && !inside.contains("frames=0"), || format!("it was deaf: {inside}"))?;
    ensure(heard(&inside).is_empty(), || format!("the neighbour heard {:?}", heard(&inside)))?;
    let escaped = outside.end();
    ensure(escaped.is_empty(), || format!("outside was heard {escaped:?}"))?;
    ensure(test_network().hits() == hits && test_network().datagrams() == datagrams, || {
        "a host was reached".to_owned()
    })?;
    let after = gateway(sandbox)?;
    ensure(before == after, || format!("its gateway went from {before} to {after}"))?;
    Ok(format!(
        "{KINDS} kinds of frames, heard by nobody outside and by no neighbour; its gateway is as before"
    ))
}

fn forged_unguarded(ground: &Ground) -> Finding {
    let outside = PacketCapture::listen(ground);
    let sent = test_network().weakly(&program(FORGE));
    ensure(sent.out.lines().count() == KINDS, || format!("{sent:?}"))?;
    let arrived = outside.end();
    ensure(arrived.len() == KINDS, || format!("only {arrived:?} arrived: {sent:?}"))?;
    Ok(format!("from a namespace with a wire to it, outside is heard {}", arrived.join(", ")))
}

/// All changes that do not disconnect its own agent.
fn rewrite(sandbox: &Sandbox<'_>) -> Finding {
    let said = sandbox.sh(
        "for line in 'ip rule add pref 1 lookup main' 'ip route replace default via 10.88.0.1 dev eth0' \
         'ip route add 10.0.0.0/8 via 10.88.0.1 dev eth0' 'ip route add 169.254.169.254/32 dev eth0' \
         'ip link add x type dummy' 'nft flush ruleset' 'iptables -F' 'sysctl -w net.ipv4.ip_forward=1'; \
         do $line >/dev/null 2>&1 && echo \"did: $line\"; done; true",
    );
    let done = said.out.matches("did:").count();
    ensure(done > 0, || format!("it could change nothing of its own: {said:?}"))?;
    let note = blocked(
        sandbox,
        "for host in ('198.51.100.1', '10.20.0.1', '169.254.169.254'):\n  for port in (22, 8080): tell('%s-%d' % (host, port), reach(host, port))",
    )?;
    Ok(format!("{note}, after {done} changes to its own routes and rules"))
}
