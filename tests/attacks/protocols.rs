//! P-N6, E-T5, E-T7: misleading names and requests.

use std::time::Duration;

use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};
use crate::test_network::{PROBE, test_network};

const UP: &[&str] = &["--allow", "up.example"];

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "P-N6",
        what: "hosts in disguise, smuggled requests",
        sandbox: UP,
        attack: hosts,
        control: hosts_unguarded,
    },
    Row { id: "E-T5", what: "hellos in disguise", sandbox: UP, attack: hellos, control: hellos_unguarded },
    Row {
        id: "E-T7",
        what: "CONNECT, h2c, HTTP/2 in clear",
        sandbox: UP,
        attack: tunnels,
        control: tunnels_unguarded,
    },
];

/// A word that is in every attempt, and that no server may receive.
const MARK: &str = "canary-of-the-row";

fn program(body: &str) -> String {
    format!("{PROBE}\nmark = b'{MARK}'\n{body}\n")
}

/// None of a probe's attempts was answered or received by a server.
fn unheard(sandbox: &Sandbox<'_>, body: &str) -> Finding {
    let before = test_network().heard().matches(MARK).count();
    let run = sandbox.python(&program(body));
    let count = run.out.lines().count();
    ensure(run.ok() && count > 0, || format!("the probe did not run: {run:?}"))?;
    let through: Vec<&str> = run.out.lines().filter(|line| line.contains("REACHED")).collect();
    ensure(through.is_empty(), || format!("got through: {through:?}"))?;
    // A forwarded attempt would arrive within a moment.
    std::thread::sleep(Duration::from_millis(500));
    let after = test_network().heard().matches(MARK).count();
    ensure(after == before, || format!("{} were heard: {}", after - before, run.out))?;
    Ok(format!("{count} attempts, none was heard"))
}

/// Without a proxy, every one of them is received.
fn heard(body: &str) -> Finding {
    let before = test_network().heard().matches(MARK).count();
    let run = test_network().weakly(&program(body));
    let count = run.out.lines().count();
    ensure(run.ok() && count > 0, || format!("the probe did not run: {run:?}"))?;
    let mut after = before;
    for _ in 0..50 {
        after = test_network().heard().matches(MARK).count();
        if after - before >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure(after - before >= count, || format!("{} of {count} were heard: {}", after - before, run.out))?;
    Ok(format!("all {count} are heard where nobody is in between"))
}

/// The valid form of the request succeeds.
fn in_order(sandbox: &Sandbox<'_>, body: &str) -> Result<(), RowFailure> {
    let run = sandbox.python(&program(body));
    ensure(run.out.contains("REACHED"), || format!("what is allowed does not work: {run:?}"))
}

const HOSTS: &str = r#"
def request(host, more=b'', line=b'GET / HTTP/1.1'):
    return line + b'\r\nX-Mark: ' + mark + b'\r\nHost: ' + host + b'\r\n' + more + b'\r\n'

for name, host in [('other', b'other.example'), ('behind', b'up.example.evil'), ('front', b'evilup.example'),
                   ('user', b'up.example@other.example'), ('nul', b'other.example\0.up.example'),
                   ('address', b'198.51.100.1'), ('port', b'up.example:81'), ('space', b'up.example other.example')]:
    tell(name, reach('up.example', 80, request(host)))
tell('two', reach('up.example', 80, request(b'up.example', b'Host: other.example\r\n')))
tell('none', reach('up.example', 80, b'GET / HTTP/1.1\r\nX-Mark: ' + mark + b'\r\n\r\n'))
tell('absolute', reach('up.example', 80, request(b'up.example', b'', b'GET http://other.example/ HTTP/1.1')))
smuggle = b'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n'
tell('cl-te', reach('up.example', 80, request(b'up.example', smuggle, b'POST / HTTP/1.1') + b'0\r\n\r\n'))
tell('bare-lf', reach('up.example', 80, request(b'up.example').replace(b'\r\n', b'\n')))
"#;

fn hosts(sandbox: &Sandbox<'_>) -> Finding {
    let head = HOSTS.split("\nfor ").next().unwrap_or_default();
    let good = format!(
        "{head}\nfor host in (b'up.example', b'UP.example.', b'up.example:80'): tell('good', reach('up.example', 80, request(host)))"
    );
    in_order(sandbox, &good)?;
    unheard(sandbox, HOSTS)
}

fn hosts_unguarded(_: &Ground) -> Finding {
    heard(HOSTS)
}

const HELLOS: &str = r#"
def extension(kind, data): return kind.to_bytes(2, 'big') + len(data).to_bytes(2, 'big') + data
marked = extension(0x1234, mark)
for name, host in [('other', b'other.example'), ('nul', b'up.example\0.other.example'), ('address', b'198.51.100.1'),
                   ('suffix', b'evilup.example'), ('below', b'www.up.example'), ('wide', 'b\u00fccher.example'.encode()),
                   ('puny', b'xn--bcher-kva.example'), ('empty', b''), ('two-dots', b'up.example..')]:
    tell(name, reach('up.example', 443, hello(host, marked)))
ech = extension(0xfe0d, b'\x00\x00\x01\x00\x01\x01\x00\x20' + bytes(32) + b'\x00\x10' + bytes(16))
tell('ech', reach('up.example', 443, hello(b'outer.example', ech + marked)))
two = extension(0, b'\x00\x10\x00\x00\x0dother.example')
tell('two-names', reach('up.example', 443, hello(b'up.example', two + marked)))
"#;

fn hellos(sandbox: &Sandbox<'_>) -> Finding {
    // Letter case, one final dot, GREASE and a fragmented ClientHello do not change which host is meant.
    let good = r#"
grease = b'\x0a\x0a\x00\x00\x1a\x1a\x00\x01\x00'
for host in (b'up.example', b'UP.Example', b'up.example.'):
    tell('good', reach('up.example', 443, hello(host, grease)))
"#;
    in_order(sandbox, good)?;
    unheard(sandbox, HELLOS)
}

fn hellos_unguarded(_: &Ground) -> Finding {
    heard(HELLOS)
}

const TUNNELS: &str = r#"
tell('connect', reach('up.example', 80, b'CONNECT other.example:22 HTTP/1.1\r\nHost: other.example:22\r\nX-Mark: ' + mark + b'\r\n\r\n'))
tell('connect-own', reach('up.example', 80, b'CONNECT up.example:80 HTTP/1.1\r\nHost: up.example:80\r\nX-Mark: ' + mark + b'\r\n\r\n'))
preface = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + b'\0\0\0\x04\0\0\0\0\0' + mark
tell('preface', reach('up.example', 80, preface))
"#;

fn tunnels(sandbox: &Sandbox<'_>) -> Finding {
    let note = unheard(sandbox, TUNNELS)?;
    // An upgrade to h2c may be forwarded without its offer, or refused; the server never sees the offer.
    let upgrade = r#"
reach('up.example', 80, b'GET / HTTP/1.1\r\nHost: up.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: ' + mark + b'\r\n\r\n')
tell('asked', 'done')
"#;
    unheard(sandbox, upgrade)?;
    Ok(note)
}

fn tunnels_unguarded(_: &Ground) -> Finding {
    heard(TUNNELS)
}
