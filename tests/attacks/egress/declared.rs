//! E-S8, E-S9, E-S15, E-S20: the limits that a secret's owner and a policy's author set, and attempts to bypass them.

use serde_json::{Value, json};

use super::outside::try_set;
use super::placeholders::works;
use super::{
    again, answered, apply, audited, begin, ended, inside, kept, outside, row, try_apply, usual, weakly,
};
use crate::ground::{Ground, Sandbox};
use crate::harness::eventually;
use crate::report::{Finding, Row, ensure};

pub(crate) const ROWS: &[Row] = &[
    row("E-S8", "a secret or a template that ends a header early", early_end, early_end_unguarded),
    row("E-S9", "paths and methods that are not what they seem", disguised, disguised_unguarded),
    row("E-S15", "the control interface, and a policy beyond the owner's ceiling", beyond, beyond_unguarded),
    row("E-S20", "too much through an allowed host", too_much, too_much_unguarded),
];

fn declaration(slot: &Value) -> Value {
    json!({ "allow": [{ "host": "up.example" }], "slot": slot })
}

fn early_end(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let bearer = json!({ "kind": "header", "name": "X-Key", "format": "Bearer {}" });
    let mut tried = 0;
    for value in [
        "token-1\r\nX-Evil: s8",
        "token-1\nX-Evil: s8",
        "token-1\0evil",
        "token-1\rX-Evil: s8",
        "t\u{f6}ken-123456",
    ] {
        let (status, text) = try_set(ground, "s8", &declaration(&bearer), value.as_bytes());
        ensure((400..500).contains(&status), || format!("{value:?} was taken: {text}"))?;
        ensure(!text.contains("X-Evil") && !text.contains("token-1"), || {
            format!("the answer holds it: {text}")
        })?;
        tried += 1;
    }
    let slots = [
        json!({ "kind": "header", "name": "X-Key", "format": "Bearer {}\r\nX-Evil: s8" }),
        json!({ "kind": "header", "name": "X-Key", "format": "{}\n" }),
        json!({ "kind": "header", "name": "X-Key\r\nX-Evil", "format": "{}" }),
        json!({ "kind": "header", "name": "X Key", "format": "{}" }),
        json!({ "kind": "header", "name": "Host", "format": "{}" }),
        json!({ "kind": "header", "name": "Content-Length", "format": "{}" }),
        json!({ "kind": "header", "name": "Transfer-Encoding", "format": "{}" }),
        json!({ "kind": "header", "name": ":authority", "format": "{}" }),
        json!({ "kind": "grpc_metadata", "name": "x-key\0", "format": "{}" }),
        json!({ "kind": "query", "name": "key&admin" }),
        json!({ "kind": "basic", "user": "me:you\r\n" }),
    ];
    for slot in &slots {
        let (status, text) = try_set(ground, "s8", &declaration(slot), b"a-good-token");
        ensure((400..500).contains(&status), || format!("{slot} was taken: {text}"))?;
    }
    let known = ground.ask("GET", b"/v1/secrets/s8", "", b"").status;
    ensure(known == 404, || format!("one of them was kept: {known}"))?;
    // The same, in its valid form, is accepted.
    let (status, text) = try_set(ground, "s8", &declaration(&bearer), b"a-good-token");
    ensure(status == 200, || text)?;
    ensure(ground.ask("DELETE", b"/v1/secrets/s8", "", b"").status < 300, || "it stays".to_owned())?;
    Ok(format!("{} of {} were refused, and not quoted", tried + slots.len(), tried + slots.len()))
}

fn early_end_unguarded(_: &Ground) -> Finding {
    // The request that a proxy would send that concatenates strings.
    let body =
        "ask('pasted', '/v1/s8', more=('X-Key: Bearer %s\\r\\n' % 'token-1\\r\\nX-Evil: s8').encode())";
    weakly(body)?;
    let seen = outside().records.with("s8");
    ensure(seen.iter().any(|seen| seen.header("x-evil") == "s8"), || format!("{seen:?}"))?;
    Ok("pasted into a request, such a secret brings a header of its own".to_owned())
}

const DISGUISED: &str = "
for number, path in enumerate(['/v1/../admin', '/v1/%2e%2e/admin', '/v1/%2E./admin', '/v1/..%2fadmin', '/v1/..%5cadmin',
        '/v1/%252e%252e/admin', '/v1/..;/admin', '/v1/.;x/../../admin', '//admin', '/v1//../admin', '/admin;/v1/x', '/v1%2f../admin',
        '/v1/..\\\\admin', '/V1/admin', '/%76%31/../admin', '/v1']):
    ask('path-%d' % number, path)
http2('h2', 'up.example', path='/v1/../admin')
http2('h2-escaped', 'up.example', path='/v1/%2e%2e/admin')
ask('method', '/v1/s9', method='DELETE')
ask('method-case', '/v1/s9', method='get')
";

const OVERRIDDEN: &str = "
ask('override', '/v1/s9-override', more=b'X-HTTP-Method-Override: DELETE\\r\\nX-Method-Override: DELETE\\r\\nX-HTTP-Method: PUT\\r\\n'
    b'X-Original-URL: /admin\\r\\nX-Rewrite-URL: /admin\\r\\n')
ask('normal', '/v1/a/..//s9-%6eormal/%7Ex')
";

fn disguised(sandbox: &Sandbox<'_>) -> Finding {
    let before = outside().records.seen().len();
    let found = inside(sandbox, DISGUISED)?;
    answered(&found, &[400, 403])?;
    kept(&found)?;
    let arrived = outside().records.seen().split_off(before);
    ensure(arrived.is_empty(), || format!("arrived: {arrived:?}"))?;
    let good = again(sandbox, OVERRIDDEN)?;
    answered(&good, &[200])?;
    let seen = outside().records.seen().split_off(before);
    let plain = |name: &str| seen.iter().all(|seen| seen.header(name).is_empty());
    let gone =
        ["x-http-method-override", "x-method-override", "x-http-method", "x-original-url", "x-rewrite-url"];
    ensure(gone.into_iter().all(plain), || format!("an override arrived: {seen:?}"))?;
    ensure(seen.iter().any(|seen| seen.target.ends_with("/v1/s9-normal/~x")), || {
        format!("not in its normal form: {seen:?}")
    })?;
    audited(sandbox, "the refusal", |event| event["action"] == "egress.deny" && event["status"] == 403);
    Ok(format!(
        "{} disguises refused; what is passed on is in normal form, and without overrides",
        found.len()
    ))
}

fn disguised_unguarded(_: &Ground) -> Finding {
    let before = outside().records.times("admin") + outside().records.seen().len();
    let found = weakly(&format!("{DISGUISED}{OVERRIDDEN}"))?;
    let after = outside().records.times("admin") + outside().records.seen().len();
    ensure(after - before >= found.len(), || format!("{} arrived of {found:?}", after - before))?;
    let seen = outside().records.with("s9-override");
    ensure(seen.iter().any(|seen| seen.header("x-original-url") == "/admin"), || format!("{seen:?}"))?;
    Ok("hosts are asked for /admin, as it is written, where nobody is in between".to_owned())
}

fn beyond(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    // Rules that exceed the owner's ceiling: other hosts, methods, paths, an unknown secret.
    for (what, rule) in [
        ("host", json!({ "host": "other.example", "secret": "bearer" })),
        ("wider host", json!({ "host": "*.example", "secret": "bearer" })),
        ("path", json!({ "host": "up.example", "paths": ["/**"], "secret": "bearer" })),
        ("method", json!({ "host": "up.example", "methods": ["DELETE"], "secret": "bearer" })),
        ("mode", json!({ "host": "up.example", "mode": "sni", "secret": "bearer" })),
        ("secret", json!({ "host": "up.example", "secret": "nobodys" })),
    ] {
        let (status, text) = try_apply(ground, &sandbox.id, &[rule]);
        ensure((400..500).contains(&status), || {
            format!("a rule with another {what} was taken: {status} {text}")
        })?;
    }
    works(sandbox)?;
    // A key that is bound to this sandbox, as programs inside may have one, cannot change its boundaries.
    let key =
        ground.daemon.ok(&["key", "create", "s15", "--scope", "exec", "--sandbox", &sandbox.id, "--json"]);
    let key: Value = serde_json::from_str(&key).unwrap();
    let text = key["secret"].as_str().unwrap().to_owned();
    let mut wire = crate::wire::Wire::open(&ground.daemon.url(), &text);
    let own = format!("/v1/sandboxes/{}", sandbox.id);
    let (path, port) = (format!("{own}/egress/policy"), format!("{own}/ports/8080"));
    let e2b = format!("/sandboxes/{}/network", sandbox.id);
    let rules = json!({ "egress": { "rules": usual() } }).to_string();
    for (method, target, body) in [
        ("PUT", path.as_str(), rules.as_str()),
        ("GET", "/v1/secrets", ""),
        ("GET", "/v1/secrets/bearer", ""),
        ("DELETE", "/v1/secrets/bearer?force=true", ""),
        ("POST", "/v1/secrets/bearer/rotate", "{\"value\":\"bm90LWEtc2VjcmV0\"}"),
        ("PATCH", own.as_str(), "{\"network\":{\"mode\":\"open\"}}"),
        ("PATCH", own.as_str(), "{\"network\":{\"requests\":[]}}"),
        ("PATCH", own.as_str(), "{\"limits\":{\"ram_mib\":4096}}"),
        ("PUT", e2b.as_str(), "{}"),
        ("PUT", port.as_str(), ""),
    ] {
        let answer = wire.ask(method, target.as_bytes(), "application/json", body.as_bytes()).unwrap();
        ensure((400..500).contains(&answer.status), || {
            format!("{method} {target}: {} {}", answer.status, answer.text())
        })?;
        sandbox.heard(&answer.body);
    }
    let port = ground.daemon.url().rsplit(':').next().unwrap().to_owned();
    let endpoints = format!(
        "import urllib.request, urllib.error
for base in ('http://10.88.0.1:7700', 'http://10.88.0.1:{port}', 'http://127.0.0.1:{port}', 'http://198.51.100.1:{port}', 'https://10.88.0.1'):
    for path in ('/v1/secrets', '/v1/secrets/bearer', '/v1/sandboxes/self/egress/policy', '/metrics', '/debug'):
        try:
            with urllib.request.urlopen(base + path, timeout=5) as answer: tell(base + path, answer.status, answer.read())
        except urllib.error.HTTPError as error: tell(base + path, error.code, error.read())
        except OSError as error: tell(base + path, 0, str(error))
sockets = [line for line in open('/proc/net/unix') if 'egress' in line]
tell('sockets', 200 if sockets else 0, str(sockets))"
    );
    let found = again(sandbox, &endpoints)?;
    ensure(found.iter().all(|attempt| attempt.status == 0 || attempt.status >= 400), || {
        format!("an endpoint is open: {found:?}")
    })?;
    kept(&found)?;
    works(sandbox)?;
    Ok(format!(
        "6 rules beyond the ceiling, 10 calls with a sandbox's key, {} endpoints: all refused",
        found.len()
    ))
}

fn beyond_unguarded(ground: &Ground) -> Finding {
    let listed = ground.ask("GET", b"/v1/secrets", "", b"");
    ensure(listed.status == 200 && listed.text().contains("bearer"), || listed.text())?;
    Ok("the admin's key lists the secret; the rule within its ceiling is taken".to_owned())
}

const TOO_MUCH: &str = "
for number in range(5): ask('request-%d' % number, '/v1/s20')
";
const TOO_LARGE: &str = "
for number in range(4): ask('upload-%d' % number, '/v1/s20-up', method='POST', body=b'x' * 4000)
";

fn too_much(sandbox: &Sandbox<'_>) -> Finding {
    let rule = |path: &str, rest: Value| {
        let mut rule =
            json!({ "host": "up.example", "methods": ["GET", "POST"], "paths": [path], "secret": "bearer" });
        rule.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        rule
    };
    apply(
        sandbox,
        &[
            rule("/v1/s20", json!({ "budget": { "requestsPerDay": 3 } })),
            rule("/v1/s20-up", json!({ "budget": { "bytesOutPerDay": 9000 } })),
            rule("/v1/s20-ask", json!({ "approve": "once" })),
        ],
    );
    let found = again(sandbox, TOO_MUCH)?;
    let statuses: Vec<u16> = found.iter().map(|attempt| attempt.status).collect();
    ensure(statuses == [200, 200, 200, 429, 429], || format!("{found:?}"))?;
    let large = again(sandbox, TOO_LARGE)?;
    ensure(large[0].status == 200 && large[3].status == 429, || format!("{large:?}"))?;
    kept(&[found, large].concat())?;
    audited(sandbox, "the budget", |event| {
        event["action"] == "egress.budget" && event["outcome"] == "denied"
    });
    // No approval is requested for a client that has disconnected, and a denial is final.
    let daemon = &sandbox.ground.daemon;
    let waiting = || -> Vec<Value> {
        serde_json::from_str(&daemon.ok(&["egress", "approvals", &sandbox.id, "--json"])).unwrap()
    };
    let leaving = begin(
        sandbox,
        "
s = tls()
s.sendall(request('/v1/s20-ask'))
while not os.path.exists('/go'): time.sleep(0.02)
tell('gone', 200)",
    );
    eventually("it to wait", || (waiting().len() == 1).then_some(()));
    sandbox.put("/go", b"");
    ended(sandbox, &leaving)?;
    eventually("nobody to wait", || waiting().is_empty().then_some(()));
    let asking = begin(sandbox, "ask('asked', '/v1/s20-ask')");
    daemon.ok(&["egress", "refuse", &sandbox.id, "--wait"]);
    let asked = ended(sandbox, &asking)?;
    answered(&asked, &[403])?;
    let arrived = outside().records.with("s20-ask").len();
    ensure(arrived == 0, || format!("{arrived} were sent without a yes"))?;
    audited(sandbox, "the no", |event| event["action"] == "egress.approval" && event["outcome"] == "denied");
    Ok("3 of 5 requests, 9,000 bytes, and nothing without a yes".to_owned())
}

fn too_much_unguarded(_: &Ground) -> Finding {
    let found = weakly(&format!("{TOO_MUCH}{TOO_LARGE}"))?;
    answered(&found, &[200])?;
    Ok(format!("all {} go through where nobody counts", found.len()))
}
