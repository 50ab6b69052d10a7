//! E-S10, E-S11, E-S17, D19: open connections during changes, shared connections, signed requests, and a crash in the
//! middle.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::hosts::RecordedRequest;
use super::outside::set;
use super::placeholders::works;
use super::{
    again, answered, apply, audited, begin, ended, inside, kept, outside, row, so_far, usual, weakly,
};
use crate::ground::{Ground, Sandbox};
use crate::harness::{eventually, run};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-S10", "rotation and revocation with everything open", changed, changed_unguarded),
    row("E-S11", "one connection for two sandboxes or secrets", shared, shared_unguarded),
    row("E-S17", "the key of a client certificate, and whom it is shown to", signed, signed_unguarded),
    row("D19", "the egress process dies in the middle", crashed, crashed_unguarded),
];

// --- E-S10

/// A request that was answered on a kept-alive connection, an event stream, a WebSocket and an HTTP/2 stream, all open;
/// then the end of each. `TICKS` ends them after this number of words, if nothing else does.
const OPEN: &str = r#"
TICKS = int(os.environ.get('TICKS', '0'))
def follow(name, s, more):
    seen = b''
    try:
        while True:
            part = s.recv(4096)
            if not part: return tell(name, 0, b'ended ' + seen[-100:])
            seen += part
            if TICKS and b'tick %d' % TICKS in seen: return tell(name, 200, b'goes on')
    except OSError as error: tell(name, 0, 'reset %s' % error)

kept_open = tls('live.example')
kept_open.sendall(request('/v1/keep', 'live.example').replace(b'Connection: close\r\n', b''))
rest(kept_open, b'\r\n0\r\n')
events = tls('live.example')
events.sendall(request('/v1/ticks', 'live.example'))
rest(events, b'tick 0')
web, _ = web_socket(host='live.example')
say(web, b'tick')
rest(web, b'tick 0')
stream = subprocess.Popen(['curl', '-sSN', '--http2', '--max-time', '100', 'https://live.example/v1/ticks'] +
    (['-H', 'Authorization: Bearer ' + SECRET] if SECRET else []), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
first = b''
while b'tick 0' not in first: first += stream.stdout.read(1)

def stream_ends():
    seen = b''
    while True:
        part = stream.stdout.read1(4096)
        seen += part
        if TICKS and b'tick %d' % TICKS in seen:
            stream.kill()
            return tell('h2', 200, b'goes on')
        if not part: return tell('h2', 0, b'ended ' + seen[-100:])

print('all open', flush=True)
threads = [threading.Thread(target=follow, args=('events', events, 0)), threading.Thread(target=follow, args=('socket', web, 0)),
    threading.Thread(target=stream_ends)]
if not TICKS: threads.append(threading.Thread(target=follow, args=('kept', kept_open, 0)))
for thread in threads: thread.start()
for thread in threads: thread.join()
"#;

/// Opens all of them, makes a change, and waits until all of them have ended.
fn ends_with(sandbox: &Sandbox<'_>, change: impl FnOnce()) -> Result<usize, RowFailure> {
    let exec = begin(sandbox, OPEN);
    eventually("all of it to be open", || {
        let said = so_far(sandbox, &exec);
        assert!(sandbox.exec(&exec)["state"] == "running", "the probe ended: {said}");
        said.contains("all open").then_some(())
    });
    change();
    let found = ended(sandbox, &exec)?;
    answered(&found, &[0])?;
    kept(&found)?;
    Ok(found.len())
}

fn changed(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let slot = json!({ "kind": "header", "name": "Authorization", "format": "Bearer {}" });
    let live = json!({ "allow": [{ "host": "live.example" }], "slot": slot });
    set(ground, "live", &live, &outside().secret);
    let mut rules = usual();
    rules.push(json!({ "host": "live.example", "secret": "live" }));
    apply(sandbox, &rules);
    let sent = || outside().records.with("/v1/keep").last().map(|seen| seen.header("authorization"));

    let by_rotation = ends_with(sandbox, || set(ground, "live", &live, &outside().second))?;
    let first = sent();
    ensure(first == Some(format!("Bearer {}", outside().secret)), || format!("the host got {first:?}"))?;
    // From here on the new secret is injected, and removing its rules ends the connections.
    let by_revocation = ends_with(sandbox, || apply(sandbox, &usual()))?;
    let second = sent();
    ensure(second == Some(format!("Bearer {}", outside().second)), || format!("the host got {second:?}"))?;
    let found = again(sandbox, "ask('after', '/v1/keep', 'live.example')")?;
    answered(&found, &[0, 403])?;
    apply(sandbox, &rules);
    ground.daemon.ok(&["secret", "rm", "live", "--force"]);
    let found = eventually("the deletion to be in force", || {
        let found = again(sandbox, "ask('deleted', '/v1/keep', 'live.example')").ok()?;
        (found[0].status == 403).then_some(found)
    });
    kept(&found)?;
    audited(sandbox, "what is refused since", |event| {
        event["action"] == "egress.deny" && event["host"] == "live.example"
    });
    works(sandbox)?;
    Ok(format!(
        "{by_rotation} ended by a rotation, {by_revocation} by a revocation; what came after was judged anew"
    ))
}

fn changed_unguarded(_: &Ground) -> Finding {
    let env = [("SECRET", outside().secret.as_str()), ("TICKS", "20")];
    let found = super::attempts(&outside().weakly_with(&env, OPEN))?;
    answered(&found, &[200])?;
    ensure(found.len() == 3, || format!("{found:?}"))?;
    Ok("where nothing changes, all of it goes on".to_owned())
}

// --- E-S11

fn connections(seen: &[RecordedRequest], wanted: impl Fn(&&RecordedRequest) -> bool) -> BTreeSet<usize> {
    seen.iter().filter(wanted).map(|seen| seen.connection).collect()
}

const TWICE: &str = "
for path in ('/v1/s11', '/v1/s11', '/open/s11', '/open/s11'): ask(path, path + '-%s' % os.environ.get('HOSTNAME', ''))
ask('old', '/v1/s11-old', 'h1.example'); ask('old', '/v1/s11-old', 'h1.example')
";

fn shared(sandbox: &Sandbox<'_>) -> Finding {
    let other = sandbox.ground.sandbox(&[]);
    let mut all = Vec::new();
    for sandbox in [sandbox, &other, sandbox] {
        let before = outside().records.seen().len();
        answered(&inside(sandbox, TWICE)?, &[200])?;
        all.push(outside().records.seen().split_off(before));
    }
    other.delete();
    let with = |seen: &[RecordedRequest]| {
        connections(seen, |seen| seen.target.contains("/v1/") && seen.name == "up.example")
    };
    let without = |seen: &[RecordedRequest]| connections(seen, |seen| seen.target.contains("/open/"));
    let old = |seen: &[RecordedRequest]| connections(seen, |seen| seen.name == "h1.example");
    // Each connection is reused for the same sandbox; otherwise this test would prove nothing.
    for seen in &all {
        let counts = (with(seen).len(), without(seen).len(), old(seen).len());
        ensure(counts == (1, 1, 1), || format!("connections are not used again: {counts:?}"))?;
        ensure(with(seen).is_disjoint(&without(seen)), || {
            "one connection with and without the secret".to_owned()
        })?;
    }
    let every = |seen: &[RecordedRequest]| connections(seen, |_| true);
    ensure(every(&all[0]).is_disjoint(&every(&all[1])), || "two sandboxes share a connection".to_owned())?;
    ensure(every(&all[1]).is_disjoint(&every(&all[2])), || "two sandboxes share a connection".to_owned())?;
    Ok("one connection per sandbox, secret and host, and used again only there".to_owned())
}

fn shared_unguarded(_: &Ground) -> Finding {
    let before = outside().records.seen().len();
    let body = "
s = tls()
for path in ('/v1/s11', '/open/s11'):
    s.sendall(request(path).replace(b'Connection: close\\r\\n', b''))
    tell(path, status(rest(s, b'\\r\\n0\\r\\n')))
";
    answered(&weakly(body)?, &[200])?;
    let seen = outside().records.seen().split_off(before);
    ensure(connections(&seen, |_| true).len() == 1, || format!("{seen:?}"))?;
    Ok("a host takes both on one connection, if a client sends them so".to_owned())
}

// --- E-S17

/// With a certificate of its own, which must be useless; without one; to the right host, and to another one that requests
/// it.
const MUTUAL: &str = "
for number in range(3): ask('own-%d' % number, '/v1/s17', 'mtls.example')
ask('other', '/v1/s17', 'mtls-other.example')
";

fn signed(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.seen().len();
    let found = inside(sandbox, MUTUAL)?;
    let statuses: Vec<u16> = found.iter().map(|attempt| attempt.status).collect();
    ensure(statuses == [200, 200, 200, 502], || format!("{found:?}"))?;
    kept(&found)?;
    let seen = outside().records.seen().split_off(before);
    ensure(seen.iter().all(|seen| seen.certified && seen.name == "mtls.example"), || format!("{seen:?}"))?;
    ensure(!seen.iter().any(|seen| seen.resumed), || {
        "a session was taken up by another connection".to_owned()
    })?;
    // The egress process makes the connection: it signs nothing for the sandbox, and no session is kept.
    let asking = "
context = ssl.create_default_context()
first = context.wrap_socket(socket.create_connection(('mtls.example', 443), 30), server_hostname='mtls.example')
first.sendall(request('/v1/s17', 'mtls.example'))
rest(first)
session = first.session
second = context.wrap_socket(socket.create_connection(('mtls.example', 443), 30), server_hostname='mtls.example', session=session)
chain = ssl.DER_cert_to_PEM_cert(second.getpeercert(True))
tell('resumed', 0 if not second.session_reused else 200, chain)
try:
    again = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); again.check_hostname = False; again.verify_mode = ssl.CERT_NONE
    other = again.wrap_socket(socket.create_connection(('mtls-other.example', 443), 30), server_hostname='mtls-other.example', session=None)
    other.sendall(request('/v1/s17', 'mtls-other.example'))
    answer = rest(other)
    tell('asked-for', status(answer), answer)
except OSError as error: tell('asked-for', 0, str(error))
";
    let more = again(sandbox, asking)?;
    kept(&more)?;
    ensure(more[1].status == 502, || format!("{more:?}"))?;
    let seen = outside().records.seen().split_off(before);
    ensure(!seen.iter().any(|seen| seen.resumed || seen.name != "mtls.example"), || format!("{seen:?}"))?;
    audited(sandbox, "the certificate that was shown", |event| {
        event["action"] == "egress.inject" && event["secret"] == "identity"
    });
    Ok("shown to its own host and nobody else; no session is taken up".to_owned())
}

fn signed_unguarded(_: &Ground) -> Finding {
    let body = format!(
        "
def mutual(name, host, chain):
    context = ssl.create_default_context()
    if chain: context.load_cert_chain(chain)
    try:
        s = context.wrap_socket(socket.create_connection((host, 443), 30), server_hostname=host)
        s.sendall(request('/v1/s17', host))
        answer = rest(s)
    except OSError as error: return tell(name, 0, str(error))
    tell(name, status(answer), answer)
mutual('own', 'mtls.example', '{0}')
mutual('other', 'mtls-other.example', '{0}')
mutual('none', 'mtls.example', None)
",
        outside().file("identity.pem").display()
    );
    let found = weakly(&body)?;
    let statuses: Vec<u16> = found.iter().map(|attempt| attempt.status).collect();
    ensure(statuses == [200, 200, 0], || format!("{found:?}"))?;
    Ok("whoever holds the key shows it to either host, and nobody gets in without".to_owned())
}

// --- D19

/// Sends requests continuously, with and without TLS, by name and by address, until it is stopped.
const ASKING: &str = "
answers = {}
def count(what): answers[what] = answers.get(what, 0) + 1
while not os.path.exists('/stop'):
    try:
        s = tls(); s.settimeout(5); s.sendall(request('/v1/d19')); count(status(rest(s))); s.close()
    except OSError: count('tls')
    for host, port in (('up.example', 80), ('198.51.100.1', 80), ('198.51.100.1', 443)):
        try:
            s = socket.create_connection((host, port), 0.5); s.settimeout(0.5)
            s.sendall(request('/v1/d19-around')); count('around-%d' % status(rest(s))); s.close()
        except OSError: count('around')
tell('asked', 200, str(answers))
";

fn crashed(sandbox: &Sandbox<'_>) -> Finding {
    works(sandbox)?;
    let before = outside().records.seen().len();
    let exec = begin(sandbox, ASKING);
    let daemon = &sandbox.ground.daemon;
    let mut killed = BTreeSet::new();
    while killed.len() < 3 {
        let process = eventually("another egress process", || {
            daemon.egress_processes().into_iter().find(|process| !killed.contains(process))
        });
        let arrived = outside().records.with("d19").len();
        eventually("it to serve", || (outside().records.with("d19").len() > arrived).then_some(()));
        run(Command::new("kill").args(["-9", &process.to_string()]));
        killed.insert(process);
    }
    let arrived = outside().records.with("d19").len();
    eventually("it to come back", || (outside().records.with("d19").len() > arrived).then_some(()));
    sandbox.put("/stop", b"");
    let found = ended(sandbox, &exec)?;
    kept(&found)?;
    let seen = outside().records.seen().split_off(before);
    let ours = format!("Bearer {}", outside().secret);
    let stray: Vec<_> = seen
        .iter()
        .filter(|seen| {
            seen.name != "up.example"
                || !seen.target.ends_with("/v1/d19")
                || seen.header("authorization") != ours
        })
        .collect();
    ensure(stray.is_empty(), || format!("went around: {stray:?}"))?;
    ensure(!found[0].text.contains("around-200"), || format!("{found:?}"))?;
    works(sandbox)?;
    let whole: Value = serde_json::from_str(&daemon.ok(&["audit", "verify", "--json"])).unwrap();
    ensure(whole["verified"] == true, || whole.to_string())?;
    Ok(format!(
        "killed {} times; {} requests arrived, each as it should; {}",
        killed.len(),
        seen.len(),
        found[0].text.trim()
    ))
}

fn crashed_unguarded(_: &Ground) -> Finding {
    let before = outside().records.with("d19-around").len();
    let body = "
for port in (80,):
    s = socket.create_connection(('198.51.100.1', port), 5)
    s.sendall(request('/v1/d19-around'))
    tell('around', status(rest(s)))
";
    answered(&weakly(body)?, &[200])?;
    ensure(outside().records.with("d19-around").len() > before, || "it did not arrive".to_owned())?;
    Ok("with a route instead of a process, the same goes through at any time".to_owned())
}
