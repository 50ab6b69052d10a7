//! E-T1 to E-T4, E-T9 to E-T11: requests for another host than the connection's, and invalid certificates.

use super::{again, answered, apply, audited, audited_times, inside, kept, outside, row, usual, weakly};
use crate::ground::{Ground, Sandbox};
use crate::report::{Finding, Row, RowFailure, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-T1", "another Host or :authority than the connection's", another, another_unguarded),
    row("E-T2", "two Hosts, none, an absolute target, a user in it", many, many_unguarded),
    row("E-T3", "another Host in the second request", second, second_unguarded),
    row("E-T4", "one HTTP/2 connection for several hosts", coalesced, coalesced_unguarded),
    row("E-T9", "another lineage's authority", foreign, foreign_unguarded),
    row("E-T10", "hosts whose certificates prove nothing", unproven, unproven_unguarded),
    row("E-T11", "the same in clear", clear, clear_unguarded),
];

/// Every attempt was refused with one of `statuses`, no host received it, and the log has them all.
fn refused(sandbox: &Sandbox<'_>, body: &str, mark: &str, statuses: &[u16]) -> Finding {
    let before = outside().records.with(mark).len();
    let found = inside(sandbox, body)?;
    answered(&found, statuses)?;
    kept(&found)?;
    let heard = outside().records.with(mark).len() - before;
    ensure(heard == 0, || format!("{heard} of {found:?} arrived"))?;
    let denied = |event: &serde_json::Value| {
        event["action"] == "egress.deny" && event["status"].as_u64().is_some_and(|status| status >= 400)
    };
    audited_times(sandbox, found.len(), "a refusal", denied);
    // A valid request succeeds, and has the secret.
    in_order(sandbox)?;
    Ok(format!("{} attempts, none arrived", found.len()))
}

/// A valid request has the secret and is answered without it.
fn in_order(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    let found =
        again(sandbox, "ask('good', '/v1/in-order'); http2('good-2', 'up.example', path='/v1/in-order')")?;
    answered(&found, &[200])?;
    kept(&found)?;
    let sent = outside().records.with("in-order").last().map(|seen| seen.header("authorization"));
    ensure(sent == Some(format!("Bearer {}", outside().secret)), || format!("the host got {sent:?}"))
}

/// Without a proxy, every attempt arrives.
fn arrives(body: &str, mark: &str) -> Finding {
    let before = outside().records.with(mark).len();
    let found = weakly(body)?;
    let heard = outside().records.with(mark).len() - before;
    ensure(heard >= found.len(), || format!("{heard} arrived of {found:?}"))?;
    Ok(format!("all {} arrive where nobody is in between", found.len()))
}

const ANOTHER: &str = "
ask('h1', '/v1/t1', 'other.example', at='up.example')
ask('h1-case', '/v1/t1', 'OTHER.example.', at='up.example')
ask('h1-port', '/v1/t1', 'up.example:8443', at='up.example')
http2('h2', 'other.example', path='/v1/t1')
curl('curl', '--http2', '-H', 'Host: other.example', 'https://up.example/v1/t1')
";

fn another(sandbox: &Sandbox<'_>) -> Finding {
    refused(sandbox, ANOTHER, "t1", &[421])
}

fn another_unguarded(_: &Ground) -> Finding {
    arrives(ANOTHER, "t1")
}

const MANY: &str = "
ask('two', '/v1/t2', more=b'Host: other.example\\r\\n')
ask('twice', '/v1/t2', more=b'Host: up.example\\r\\n')
raw('none', b'GET /v1/t2 HTTP/1.1\\r\\nConnection: close\\r\\n' + own() + b'\\r\\n')
ask('absolute', 'https://other.example/v1/t2')
ask('user', '/v1/t2', 'up.example:443@other.example', at='up.example')
ask('in-target', 'https://up.example:443@other.example/v1/t2')
";

fn many(sandbox: &Sandbox<'_>) -> Finding {
    refused(sandbox, MANY, "t2", &[400, 421])
}

fn many_unguarded(_: &Ground) -> Finding {
    // A request that the host's own parser refuses is still received.
    let before = outside().records.times("/v1/t2 ");
    let found = weakly(MANY)?;
    let heard = outside().records.times("/v1/t2 ") - before;
    ensure(heard == found.len(), || format!("{heard} heard of {found:?}"))?;
    Ok(format!("all {heard} are heard where nobody is in between"))
}

const SECOND: &str = "
s = tls()
s.sendall(request('/v1/first').replace(b'Connection: close\\r\\n', b''))
first = rest(s, b'\\r\\n\\r\\n')
tell('first', status(first), b'')
s.sendall(request('/v1/t3', 'other.example'))
answer = rest(s)
found = re.findall(rb'HTTP/1.1 ([0-9]{3})', first + answer)
tell('second', int(found[-1]) if len(found) > 1 else 0, answer)
";

fn second(sandbox: &Sandbox<'_>) -> Finding {
    let found = inside(sandbox, SECOND)?;
    let statuses: Vec<u16> = found.iter().map(|attempt| attempt.status).collect();
    ensure(statuses == [200, 421], || format!("{found:?}"))?;
    kept(&found)?;
    let arrived = outside().records.with("t3").into_iter().filter(|seen| seen.name == "up.example").count();
    // Only the control's.
    ensure(arrived == 1, || format!("{arrived} arrived"))?;
    audited(sandbox, "the second request", |event| {
        event["action"] == "egress.deny" && event["status"] == 421
    });
    Ok("the first went through, the second was refused".to_owned())
}

fn second_unguarded(_: &Ground) -> Finding {
    let found = weakly(SECOND)?;
    answered(&found, &[200])?;
    ensure(outside().records.with("t3").len() == 1, || format!("it did not arrive: {found:?}"))?;
    Ok("both arrive where nobody is in between".to_owned())
}

const COALESCED: &str = "
http2('other', 'other.example', path='/v1/t4')
http2('host-differs', 'up.example', [('host', 'other.example')], path='/v1/t4')
http2('host-only', '', [('host', 'other.example')], path='/v1/t4')
http2('authority-differs', 'other.example', [('host', 'up.example')], path='/v1/t4')
";

fn coalesced(sandbox: &Sandbox<'_>) -> Finding {
    refused(sandbox, COALESCED, "t4", &[421])
}

fn coalesced_unguarded(_: &Ground) -> Finding {
    arrives(COALESCED, "t4")
}

/// Connects with an authority from a file, and with a name that is not allowed.
const TRUST: &str = "
def shake(name, roots, host='up.example'):
    try:
        s = tls(host, roots=roots)
        tell(name, 200, str(s.getpeercert()['issuer']))
    except OSError as error: tell(name, 0, str(error))
# Only what is in the file, and not what the environment names beside it.
for variable in ('SSL_CERT_FILE', 'SSL_CERT_DIR'): os.environ[variable] = '/nonexistent'
";

const CERTIFICATE: &str = "/usr/local/share/ca-certificates/burrow-egress.crt";

fn foreign(sandbox: &Sandbox<'_>) -> Finding {
    let other = sandbox.ground.sandbox(&[]);
    for sandbox in [sandbox, &other] {
        apply(sandbox, &usual());
    }
    let (own, theirs) = (sandbox.sh(&format!("cat {CERTIFICATE}")), other.sh(&format!("cat {CERTIFICATE}")));
    ensure(own.ok() && theirs.ok() && own.out != theirs.out, || {
        format!("one authority: {own:?} {theirs:?}")
    })?;
    sandbox.put("/theirs.pem", theirs.out.as_bytes());
    let body = format!(
        "{TRUST}\nshake('theirs', '/theirs.pem')\nshake('own', '{CERTIFICATE}')\nshake('nobodys', '{CERTIFICATE}', 'nobodys.example')"
    );
    let found = again(sandbox, &body)?;
    let statuses: Vec<u16> = found.iter().map(|attempt| attempt.status).collect();
    ensure(statuses == [0, 200, 0], || format!("{found:?}"))?;
    // The authority signs hosts only, and its key is not in the sandbox.
    std::fs::write(outside().file("lineage.pem"), &own.out).unwrap();
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["x509", "-noout", "-text", "-in"]).arg(outside().file("lineage.pem"));
    let text = crate::controls::run(&mut openssl).out;
    ensure(text.contains("pathlen:0"), || format!("it may sign authorities: {text}"))?;
    let keys =
        sandbox.sh("grep -rl 'PRIVATE KEY' /usr/local/share /etc/ssl /run /root /tmp 2>/dev/null; true");
    ensure(keys.out.is_empty(), || format!("a key lies in {}", keys.out))?;
    other.delete();
    Ok("its own authority works, another lineage's does not, nobody gets a certificate for a foreign name"
        .to_owned())
}

fn foreign_unguarded(_: &Ground) -> Finding {
    let body = format!("{TRUST}\nshake('theirs', '{}')", outside().file("ca.pem").display());
    answered(&weakly(&body)?, &[200])?;
    Ok("with one authority for all, the same connection is trusted".to_owned())
}

const UNPROVEN: &str = "
for host in ('self-signed.example', 'expired.example', 'wrong.example'):
    ask(host, '/v1/t10', host, trust=False)
    http2(host + '-2', host, path='/v1/t10', at=host) if not SECRET else None
";

fn unproven(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.with("t10").len();
    let found = inside(sandbox, UNPROVEN)?;
    answered(&found, &[502])?;
    kept(&found)?;
    ensure(outside().records.with("t10").len() == before, || {
        "a host that proved nothing was told".to_owned()
    })?;
    audited_times(sandbox, found.len(), "a failure", |event| {
        event["status"] == 502 && event["outcome"] == "failed"
    });
    in_order(sandbox)?;
    Ok(format!("{} attempts; no byte of a request was sent", found.len()))
}

fn unproven_unguarded(_: &Ground) -> Finding {
    let found = weakly(UNPROVEN)?;
    super::got(&found)?;
    Ok("a program that does not verify tells them its secret".to_owned())
}

const CLEAR: &str = "
def in_clear(name, port, more=b'', at='up.example'):
    try:
        s = socket.create_connection((at, port), 30)
        s.sendall(request('/v1/t11', more=more))
        answer = rest(s)
    except OSError as error: return tell(name, 0, str(error))
    tell(name, status(answer), answer)

in_clear('clear', 80)
in_clear('proxied', 80, b'X-Forwarded-Proto: https\\r\\n')
in_clear('placeholder', 80, b'X-Key: Bearer ' + KEY.encode() + b'\\r\\n')
if not SECRET: in_clear('at-443', 443)
";

fn clear(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.with("t11").len();
    let found = inside(sandbox, CLEAR)?;
    answered(&found, &[0, 400, 403])?;
    kept(&found)?;
    ensure(outside().records.with("t11").len() == before, || format!("something went in clear: {found:?}"))?;
    audited(sandbox, "the refusal", |event| event["action"] == "egress.deny" && event["port"] == 80);
    in_order(sandbox)?;
    Ok(format!("{} attempts, nothing went in clear", found.len()))
}

fn clear_unguarded(_: &Ground) -> Finding {
    let found = weakly(CLEAR)?;
    super::got(&found)?;
    ensure(outside().records.with("t11").len() == found.len(), || format!("{found:?}"))?;
    Ok("a program without a guard sends its secret in clear".to_owned())
}
