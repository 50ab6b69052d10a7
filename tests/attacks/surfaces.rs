//! P-S1 to P-S9: requests to the daemon, on every interface, with insufficient rights: a key bound to one sandbox, no
//! key, a revoked token, a page of another site. And the log lines that a program inside can cause.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

use crate::fence;
use crate::ground::{Ground, Sandbox};
use crate::harness::{Daemon, eventually};
use crate::report::{Finding, Row, RowFailure, ensure};
use crate::ssh_client::{SshClient, text};
use crate::wire::{Answer, plain};

/// SSH logins are one of the interfaces.
pub(crate) const CONFIG: &str = crate::ssh_client::CONFIG;

pub(crate) const ROWS: &[Row] = &[
    Row {
        id: "P-S1",
        what: "a bound key widens its sandbox",
        sandbox: &[],
        attack: widen_bound,
        control: widen_unbound,
    },
    Row {
        id: "P-S2",
        what: "acts without an event",
        sandbox: &[],
        attack: unseen_acts,
        control: unseen_read,
    },
    Row { id: "P-S3", what: "flood of the log", sandbox: &[], attack: log_flood, control: log_by_key },
    Row { id: "P-S4", what: "claiming an SSH key", sandbox: &[], attack: claim_foreign, control: claim_own },
    Row { id: "P-S5", what: "DNS rebinding", sandbox: &[], attack: rebinding, control: own_names },
    Row {
        id: "P-S6",
        what: "revoked tokens",
        sandbox: &[],
        attack: after_revoking,
        control: before_revoking,
    },
    Row {
        id: "P-S7",
        what: "addresses of no sandbox",
        sandbox: &[],
        attack: unnamed,
        control: named_by_signature,
    },
    Row { id: "P-S8", what: "a neighbour's cookie", sandbox: &[], attack: tossed, control: plain_cookie },
    Row {
        id: "P-S9",
        what: "a model leaves its sandbox",
        sandbox: &[],
        attack: fence::behind,
        control: fence::without,
    },
];

/// The request of one of these rows, with or without a key.
fn ask(daemon: &Daemon, key: &str, method: &str, target: &str, body: Option<&Value>) -> Answer {
    let body = body.map(Value::to_string).unwrap_or_default();
    plain(
        &daemon.url(),
        method,
        target,
        &[("x-api-key", key), ("content-type", "application/json")],
        body.as_bytes(),
    )
}

/// Creates a key and returns its secret.
fn new_key(daemon: &Daemon, flags: &[&str]) -> String {
    let made = daemon.ok(&[&["key", "create", "attacker", "--json"], flags].concat());
    let made: Value = serde_json::from_str(&made).unwrap();
    made["secret"].as_str().unwrap().to_owned()
}

// --- P-S1

/// Requests that extend a sandbox's rights, by REST and by E2B's API.
fn widening(id: &str) -> Vec<(&'static str, String, Value)> {
    let at = |rest: &str| format!("/v1/sandboxes/{id}{rest}");
    vec![
        ("PATCH", at(""), json!({ "network": { "mode": "open" } })),
        ("PATCH", at(""), json!({ "network": { "add": ["example.com"] } })),
        ("PATCH", at(""), json!({ "network": { "requests": [] } })),
        ("PATCH", at(""), json!({ "limits": { "pids": 4000 } })),
        ("PATCH", at(""), json!({ "sleep": {} })),
        ("PUT", at("/ports/8080"), json!({})),
        ("POST", at("/ports/8080/url"), json!({})),
        ("POST", at("/revoke-tokens"), json!({})),
        ("PUT", format!("/sandboxes/{id}/network"), json!({ "allowOut": ["192.0.2.1"] })),
        ("POST", format!("/sandboxes/{id}/timeout"), json!({ "timeout": 86_400 })),
    ]
}

/// A sandbox without a lifetime has none to extend.
fn ends_in_an_hour(daemon: &Daemon, id: &str) -> Result<(), RowFailure> {
    let target = format!("/sandboxes/{id}/timeout");
    let answer = ask(daemon, &daemon.key(), "POST", &target, Some(&json!({ "timeout": 3600 })));
    ensure(answer.status == 204, || format!("{} {}", answer.status, answer.text()))
}

/// The settings that such a request would change.
fn bounds(daemon: &Daemon, id: &str) -> Value {
    let shown = ask(daemon, &daemon.key(), "GET", &format!("/v1/sandboxes/{id}"), None).json();
    let ports = ask(daemon, &daemon.key(), "GET", &format!("/v1/sandboxes/{id}/ports"), None).json();
    json!([shown["network"], shown["limits"], shown["expires_ms"], shown["sleep"], ports])
}

/// A tool call by a model.
fn tool(daemon: &Daemon, key: &str, sandbox: &str, name: &str) -> Answer {
    let params = json!({ "name": name, "arguments": {} });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let headers = [
        ("x-api-key", key),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let target = format!("/mcp?sandbox={sandbox}");
    plain(&daemon.url(), "POST", &target, &headers, message.to_string().as_bytes())
}

fn widen_bound(sandbox: &Sandbox<'_>) -> Finding {
    let (daemon, id) = (&sandbox.ground.daemon, sandbox.id.as_str());
    let bound = new_key(daemon, &["--sandbox", id]);
    ends_in_an_hour(daemon, id)?;
    let before = bounds(daemon, id);
    let mut tried = 0;
    for (method, target, body) in widening(id) {
        let answer = ask(daemon, &bound, method, &target, Some(&body));
        sandbox.heard(&answer.body);
        ensure(answer.status == 403, || {
            format!("{method} {target} {body}: {} {}", answer.status, answer.text())
        })?;
        tried += 1;
    }
    let forked = tool(daemon, &bound, id, "sandbox_fork");
    ensure(forked.text().contains("[forbidden]"), || format!("a model forks: {}", forked.text()))?;
    let client = SshClient::stranger(daemon);
    let mut add = daemon.command(&["ssh-key", "add", client.public_key().to_str().unwrap()]);
    ensure(add.env("BURROW_API_KEY", &bound).output().unwrap().status.success(), || {
        "the bound key can add no SSH key".to_owned()
    })?;
    ensure(client.ok(id, "echo in") == "in\n", || "its own sandbox is closed to it".to_owned())?;
    let made = client.exec("new", "true");
    ensure(!made.status.success(), || format!("`ssh new@` made one: {}", text(&made.stderr)))?;
    // A program inside needs no key at its own listener, and finds no request there that extends its rights.
    let inside =
        sandbox.python(&own_listener(&["PATCH /v1/sandboxes/self", "PUT /v1/sandboxes/self/ports/8080"]));
    let statuses: Vec<&str> = inside.lines_of("status").collect();
    ensure(inside.ok() && statuses == ["404", "404"], || format!("{inside:?}"))?;
    let after = bounds(daemon, id);
    ensure(before == after, || format!("it went from {before} to {after}"))?;
    Ok(format!("{} ways by REST, E2B, MCP, SSH and from inside; all bounds are as before", tried + 4))
}

fn widen_unbound(ground: &Ground) -> Finding {
    let (daemon, sandbox) = (&ground.daemon, ground.sandbox(&[]));
    let exec = new_key(daemon, &["--scope", "exec"]);
    ends_in_an_hour(daemon, &sandbox.id)?;
    let before = bounds(daemon, &sandbox.id);
    let asked = widening(&sandbox.id);
    for (method, target, body) in &asked {
        let answer = ask(daemon, &exec, method, target, Some(body));
        ensure((200..300).contains(&answer.status), || {
            format!("{method} {target} {body}: {} {}", answer.status, answer.text())
        })?;
    }
    ensure(bounds(daemon, &sandbox.id) != before, || "nothing was widened".to_owned())?;
    Ok(format!("a key that is not bound does all {}", asked.len()))
}

// --- P-S2

/// Events of this action about a sandbox, or about none.
fn events(ground: &Ground, action: &str, sandbox: Option<&str>) -> usize {
    let of = sandbox.map(|id| format!("&sandbox={id}")).unwrap_or_default();
    let target = format!("/v1/audit?limit=200&action={action}{of}");
    let answer = ground.ask("GET", target.as_bytes(), "", b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().len()
}

/// A request, and the action of the event that it causes.
type AuditedRequest<'a> = (&'static str, Box<dyn Fn(&Sandbox<'_>) -> u16 + 'a>);

/// Requests whose changes are not visible in the API, or that have no route.
fn acts<'a>(exec: &'a str, link: &'a str) -> Vec<AuditedRequest<'a>> {
    let url = |sandbox: &Sandbox<'_>| sandbox.ground.daemon.url();
    vec![
        ("backup.read", Box::new(|sandbox| sandbox.ground.wire().begin("GET", b"/v1/backup").unwrap())),
        (
            "image.export",
            Box::new(|sandbox| sandbox.ground.wire().begin("GET", b"/v1/images/debian/export").unwrap()),
        ),
        (
            "port.connect",
            Box::new(|sandbox| {
                let target = format!("/v1/sandboxes/{}/ports/8000/connect", sandbox.id);
                sandbox.ground.wire().upgrade(&target).unwrap()
            }),
        ),
        (
            "exec.attach",
            Box::new(move |sandbox| {
                let target = format!("/v1/sandboxes/{}/execs/{exec}/attach", sandbox.id);
                sandbox.ground.wire().upgrade(&target).unwrap()
            }),
        ),
        (
            "exec.input",
            Box::new(move |sandbox| {
                let target = format!("/v1/sandboxes/{}/execs/{exec}/stdin", sandbox.id);
                sandbox.ground.ask("POST", target.as_bytes(), "application/octet-stream", b"x\n").status
            }),
        ),
        ("link.use", Box::new(move |sandbox| plain(&url(sandbox), "GET", link, &[], b"").status)),
        (
            "exec.start",
            Box::new(|sandbox| {
                let target = format!("/v1/memory/{}/skills/steps/run", sandbox.id);
                sandbox.ground.post(&target, &json!({})).status
            }),
        ),
    ]
}

fn unseen_acts(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    serve_port(sandbox)?;
    let exec = sandbox.start(&json!({ "argv": ["cat"], "stdin": "pipe", "timeout_ms": 60_000 }));
    let token = tokens(ground, &sandbox.id).0;
    sandbox.put("/tmp/x", b"x");
    let link = signed(&token, "/tmp/x", Some(&sandbox.id));
    let skill =
        json!({ "name": "steps", "description": "d", "steps": [{ "kind": "command", "run": "true" }] });
    let saved = ground.post(&format!("/v1/memory/{}/skills", sandbox.id), &skill);
    ensure(saved.status < 300, || format!("no skill: {}", saved.text()))?;
    let mut seen = Vec::new();
    for (action, act) in acts(&exec, &link) {
        // Reading the whole host is not an event of a sandbox.
        let about = (!matches!(action, "backup.read" | "image.export")).then_some(sandbox.id.as_str());
        let before = events(ground, action, about);
        let status = act(sandbox);
        ensure(status < 300, || format!("{action}: the act itself was answered with {status}"))?;
        eventually(&format!("an event `{action}`"), || {
            (events(ground, action, about) > before).then_some(())
        });
        seen.push(action);
    }
    Ok(format!("each left its event: {}", seen.join(", ")))
}

fn unseen_read(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    let count = || {
        let target = format!("/v1/audit?limit=200&sandbox={}", sandbox.id);
        ground.ask("GET", target.as_bytes(), "", b"").json()["items"].as_array().unwrap().len()
    };
    // A request that is recorded, to verify the count.
    sandbox.sh("true");
    let before = count();
    for rest in ["", "/stats", "/execs", "/ports"] {
        let status = sandbox.ask("GET", rest).status;
        ensure(status == 200, || format!("GET {rest}: {status}"))?;
    }
    ensure(count() == before && before > 0, || format!("{before} events, then {}", count()))?;
    Ok("reading what the API shows leaves no event".to_owned())
}

// --- P-S3

/// Number of failing requests, as many as a program sends within moments.
const FAILING: usize = 300;

/// Maximum lines of the daemon's log about these requests, above debug level, however often they are sent.
const LINES_MAX: usize = 5;

const NO_ENTRY: &str = "/v1/memory/self/entries/entaaaaaaaaaaaaaaaaaaaa";

/// A program inside that sends these requests to its own listener, and prints the answer of each.
fn own_listener(requests: &[&str]) -> String {
    format!(
        "import http.client\n\
         for line in {requests:?}:\n\
         \x20 method,path=line.split(' ')\n\
         \x20 to=http.client.HTTPConnection('10.88.0.1',7700,timeout=20)\n\
         \x20 to.request(method,path,'{{}}',{{'content-type':'application/json'}})\n\
         \x20 print('status',to.getresponse().status)\n"
    )
}

/// Lines about the memory of sandboxes, from this byte on, that an operator sees.
fn loud_lines(daemon: &Daemon, start: usize) -> usize {
    let log = daemon.log();
    let lines = log[start.min(log.len())..].lines();
    lines.filter(|line| line.contains("/v1/memory") && !line.contains("DEBUG")).count()
}

fn log_flood(sandbox: &Sandbox<'_>) -> Finding {
    let daemon = &sandbox.ground.daemon;
    let start = daemon.log().len();
    let failing =
        [format!("GET {NO_ENTRY}"), "POST /v1/memory/self/entries".to_owned(), "PUT /v1/keys".to_owned()];
    let requests: Vec<&str> = (0..FAILING).map(|number| failing[number % failing.len()].as_str()).collect();
    let run = sandbox.python(&own_listener(&requests));
    let refused = run.lines_of("status").filter(|status| status.starts_with('4')).count();
    ensure(run.ok() && refused == FAILING, || format!("{refused} of {FAILING} were refused: {run:?}"))?;
    let lines = loud_lines(daemon, start);
    ensure(lines <= LINES_MAX, || format!("{lines} lines for {FAILING} requests"))?;
    Ok(format!("{FAILING} failing requests from inside: {lines} lines above debug level"))
}

fn log_by_key(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    let start = ground.daemon.log().len();
    let mut wire = ground.wire();
    for _ in 0..FAILING {
        let target = NO_ENTRY.replace("self", &sandbox.id);
        let status = wire.ask("GET", target.as_bytes(), "", b"").map_err(|error| error.to_string())?.status;
        ensure(status == 404 || status == 400, || format!("answered with {status}"))?;
    }
    let lines = eventually("the log to be written", || {
        let lines = loud_lines(&ground.daemon, start);
        (lines >= FAILING).then_some(lines)
    });
    Ok(format!("the same requests with a key: {lines} lines"))
}

// --- P-S4

/// Another API key adds the public key of an SSH client that is known already. Returns the login that would take it over.
fn claim(ground: &Ground, client: &SshClient, key: &str) -> Result<String, RowFailure> {
    let mut add = ground.daemon.command(&["ssh-key", "add", client.public_key().to_str().unwrap()]);
    let refused = add.env("BURROW_API_KEY", key).output().unwrap();
    let said = text(&refused.stderr);
    ensure(!refused.status.success(), || "a key of another API key was added".to_owned())?;
    let login = said.split_whitespace().find(|word| word.starts_with("claim+"));
    let login = login.and_then(|word| word.split('@').next()).ok_or_else(|| said.clone())?;
    Ok(login.to_owned())
}

fn claim_foreign(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    let owner = SshClient::known(&ground.daemon);
    let stolen = new_key(&ground.daemon, &["--sandbox", &sandbox.id]);
    let login = claim(ground, &owner, &stolen)?;
    // Once with a token's own keys, once without any added key.
    for client in [SshClient::known(&ground.daemon), SshClient::stranger(&ground.daemon)] {
        let claimed = client.exec(&login, "true");
        ensure(!claimed.status.success(), || format!("claimed with another key: {claimed:?}"))?;
    }
    // The claimant has the rights of the bound key: the owner still reaches sandboxes that it does not.
    ensure(owner.ok("neighbour", "hostname") == "neighbour\n", || "the owner was locked out".to_owned())?;
    Ok("the code alone neither takes a key over nor revokes its owner's access".to_owned())
}

fn claim_own(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    let owner = SshClient::known(&ground.daemon);
    let bound = new_key(&ground.daemon, &["--sandbox", &sandbox.id]);
    let login = claim(ground, &owner, &bound)?;
    let claimed = owner.exec(&login, "true");
    ensure(claimed.status.success(), || format!("{claimed:?}"))?;
    let neighbour = owner.exec("neighbour", "hostname");
    ensure(!neighbour.status.success(), || "it still stands for the other API key".to_owned())?;
    Ok("with the private key the code takes the public key over".to_owned())
}

// --- P-S5

/// Routes that need no key, if only this machine reaches the daemon.
const KEYLESS: [&str; 7] =
    ["/healthz", "/readyz", "/metrics", "/v1/version", "/v1/openapi.json", "/sdk/python", "/sdk/typescript"];

fn with_host(daemon: &Daemon, path: &str, host: &str) -> Answer {
    plain(&daemon.url(), "GET", path, &[("host", host)], b"")
}

fn rebinding(sandbox: &Sandbox<'_>) -> Finding {
    let daemon = &sandbox.ground.daemon;
    let hosts =
        ["rebound.example", "rebound.example:80", "localhost.rebound.example", "127.0.0.1.nip.example"];
    for path in KEYLESS {
        for host in hosts {
            let answer = with_host(daemon, path, host);
            ensure(answer.status == 403, || {
                format!("{path} as {host}: {} {}", answer.status, answer.text())
            })?;
        }
    }
    Ok(format!("{} names of others, on {} routes: all refused", hosts.len(), KEYLESS.len()))
}

fn own_names(ground: &Ground) -> Finding {
    for path in KEYLESS {
        for host in ["localhost", "127.0.0.1", "localhost:7777"] {
            let status = with_host(&ground.daemon, path, host).status;
            // There are no packages beside the program of a test.
            let expected = if path.starts_with("/sdk/") { 404 } else { 200 };
            ensure(status == expected, || format!("{path} as {host}: {status}"))?;
        }
    }
    Ok("by the daemon's own names they answer without a key".to_owned())
}

// --- P-S6

/// The tokens that an E2B client gets for a sandbox: for its agent, and for its ports.
fn tokens(ground: &Ground, id: &str) -> (String, String) {
    let opened = ground.post(&format!("/sandboxes/{id}/connect"), &json!({ "timeout": 600 })).json();
    let text = |name: &str| opened[name].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
    (text("envdAccessToken"), text("trafficAccessToken"))
}

/// A signed address of a file, in the form of E2B's clients.
fn signed(token: &str, path: &str, sandbox: Option<&str>) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, format!("{path}:read:root:{token}").as_bytes());
    let signature = STANDARD_NO_PAD.encode(hash);
    let signature = signature.replace('+', "%2B").replace('/', "%2F");
    let named = sandbox.map(|id| format!("&sandbox_id={id}")).unwrap_or_default();
    format!("/files?path={path}&username=root&signature=v1_{signature}{named}")
}

/// A server on port 8000 of a sandbox.
fn serve_port(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    sandbox.start(&json!({ "argv": ["python3", "-m", "http.server", "8000", "--directory", "/tmp"] }));
    let up = sandbox.run(json!({ "argv": ["bash", "-c", LISTENS] }));
    ensure(up.ok(), || format!("nothing listens on port 8000: {up:?}"))
}

/// Needs a shell with `/dev/tcp`.
const LISTENS: &str =
    "for _ in $(seq 200); do (: > /dev/tcp/127.0.0.1/8000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1";

/// The answers of the agent, a signed address that names the sandbox, one that does not, and a private port.
fn by_tokens(ground: &Ground, id: &str, envd: &str, traffic: &str) -> [u16; 4] {
    let url = ground.daemon.url();
    let get = |target: &str, headers: &[(&str, &str)]| plain(&url, "GET", target, headers, b"").status;
    let host = format!("8000-{id}.localhost");
    [
        get("/health", &[("e2b-sandbox-id", id), ("x-access-token", envd)]),
        get(&signed(envd, "/tmp/x", Some(id)), &[]),
        get(&signed(envd, "/tmp/x", None), &[]),
        get("/", &[("host", &host), ("e2b-traffic-access-token", traffic)]),
    ]
}

fn opened(ground: &Ground, sandbox: &Sandbox<'_>) -> Result<(String, String), RowFailure> {
    serve_port(sandbox)?;
    sandbox.put("/tmp/x", b"x");
    let (envd, traffic) = tokens(ground, &sandbox.id);
    let before = by_tokens(ground, &sandbox.id, &envd, &traffic);
    ensure(before == [204, 200, 200, 200], || format!("before: {before:?}"))?;
    Ok((envd, traffic))
}

/// A new volume, and the token that an E2B client gets for its files.
fn volume_token(ground: &Ground, name: &str) -> (String, String) {
    let made = ground.post("/volumes", &json!({ "name": name })).json();
    let text = |field: &str| made[field].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    (text("volumeID"), text("token"))
}

/// The answer to a list of a volume's files.
fn by_volume_token(ground: &Ground, id: &str, token: &str) -> u16 {
    let target = format!("/volumecontent/{id}/dir?path=/");
    let bearer = format!("Bearer {token}");
    plain(&ground.daemon.url(), "GET", &target, &[("authorization", &bearer)], b"").status
}

/// Revokes the tokens of a new volume.
fn volume_after_revoking(ground: &Ground) -> Result<(), RowFailure> {
    let (id, token) = volume_token(ground, "revoked");
    let before = by_volume_token(ground, &id, &token);
    ensure(before == 200, || format!("the volume's files before: {before}"))?;
    ground.daemon.ok(&["key", "revoke-tokens", "--volume", "revoked"]);
    let after = by_volume_token(ground, &id, &token);
    ensure(after == 401, || format!("the volume's files after: {after}"))?;
    let shown = ask(&ground.daemon, &ground.daemon.key(), "GET", &format!("/volumes/{id}"), None).json();
    let renewed = by_volume_token(ground, &id, shown["token"].as_str().unwrap_or_default());
    ensure(renewed == 200, || format!("the volume's files with a new token: {renewed}"))
}

fn after_revoking(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    volume_after_revoking(ground)?;
    let (envd, traffic) = opened(ground, sandbox)?;
    ground.daemon.ok(&["key", "revoke-tokens", &sandbox.id]);
    let after = by_tokens(ground, &sandbox.id, &envd, &traffic);
    ensure(after.iter().all(|status| matches!(status, 401 | 403)), || format!("after: {after:?}"))?;
    let (envd, traffic) = tokens(ground, &sandbox.id);
    let renewed = by_tokens(ground, &sandbox.id, &envd, &traffic);
    ensure(renewed == [204, 200, 200, 200], || format!("with new tokens: {renewed:?}"))?;
    Ok(format!("agent, signed addresses, port: {after:?}, files of a volume: 401; new tokens work"))
}

fn before_revoking(ground: &Ground) -> Finding {
    opened(ground, &ground.sandbox(&[]))?;
    Ok("until they are revoked, agent, signed addresses and port answer to them".to_owned())
}

// --- P-S7

/// Addresses that name no sandbox and that no token signed.
const ADDRESSES: usize = 400;

/// Number of concurrent clients that send them.
const SENDERS: usize = 8;

/// The maximum latency of other clients' files meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(10);

fn unnamed(sandbox: &Sandbox<'_>) -> Finding {
    let ground = sandbox.ground;
    sandbox.put("/tmp/x", b"x");
    let envd = tokens(ground, &sandbox.id).0;
    let url = ground.daemon.url();
    let mut longest = Duration::ZERO;
    let refused = std::thread::scope(|scope| {
        let send = |sender: usize| {
            let statuses = (0..ADDRESSES / SENDERS).map(|number| {
                let target = signed(&format!("unknown {sender} {number}"), "/tmp/x", None);
                plain(&url, "GET", &target, &[], b"").status
            });
            statuses.collect::<Vec<u16>>()
        };
        let senders: Vec<_> = (0..SENDERS).map(|sender| scope.spawn(move || send(sender))).collect();
        for _ in 0..20 {
            let began = Instant::now();
            let good = plain(&url, "GET", &signed(&envd, "/tmp/x", Some(&sandbox.id)), &[], b"");
            assert_eq!((good.status, good.text().as_str()), (200, "x"), "a good address");
            longest = longest.max(began.elapsed());
        }
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect::<Vec<u16>>()
    });
    let odd = refused.iter().find(|status| !matches!(status, 401 | 429 | 503));
    ensure(odd.is_none(), || format!("one was answered with {odd:?}"))?;
    ensure(longest < WAIT_MAX, || format!("a good address took {longest:?}"))?;
    let good = plain(&url, "GET", &signed(&envd, "/tmp/x", None), &[], b"");
    ensure(good.status == 200, || format!("afterwards: {} {}", good.status, good.text()))?;
    Ok(format!("{ADDRESSES} refused; good ones took at most {} ms meanwhile", longest.as_millis()))
}

/// They are refused because no token signed them: with a valid signature, the same address works.
fn named_by_signature(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    sandbox.put("/tmp/x", b"x");
    let envd = tokens(ground, &sandbox.id).0;
    let good = plain(&ground.daemon.url(), "GET", &signed(&envd, "/tmp/x", None), &[], b"");
    ensure(good.status == 200 && good.text() == "x", || format!("{} {}", good.status, good.text()))?;
    Ok("one that a token made is answered with the file".to_owned())
}

// --- P-S8

/// The answer of a port to a browser with this cookie, whose value is a signed link's token.
fn by_cookie(daemon: &Daemon, id: &str, name: &str) -> u16 {
    let target = format!("/v1/sandboxes/{id}/ports/8000/url");
    let link = ask(daemon, &daemon.key(), "POST", &target, Some(&json!({}))).json();
    let link = link["url"].as_str().unwrap_or_else(|| panic!("{link}")).to_owned();
    let token = link.split_once("burrow_token=").unwrap_or_else(|| panic!("{link}")).1.to_owned();
    let (host, cookie) = (format!("8000-{id}.localhost"), format!("{name}={token}"));
    plain(&daemon.url(), "GET", "/", &[("host", &host), ("cookie", &cookie)], b"").status
}

fn tossed(_: &Sandbox<'_>) -> Finding {
    let daemon = Daemon::start_with("gateway.https = true");
    let id = daemon.ok(&["create", "--name", "web"]);
    daemon.ok(&["exec", "-d", &id, "--", "python3", "-m", "http.server", "8000", "--directory", "/tmp"]);
    let with = |name: &str| by_cookie(&daemon, &id, name);
    eventually("the port to answer", || (with("__Host-burrow-port") == 200).then_some(()));
    let plainly = with("burrow-port");
    ensure(matches!(plainly, 401 | 403), || format!("the plain name over HTTPS: {plainly}"))?;
    Ok(format!("over HTTPS the plain name answers {plainly}, the one with the prefix 200"))
}

fn plain_cookie(ground: &Ground) -> Finding {
    let sandbox = ground.sandbox(&[]);
    serve_port(&sandbox)?;
    let status = by_cookie(&ground.daemon, &sandbox.id, "burrow-port");
    ensure(status == 200, || format!("over HTTP: {status}"))?;
    Ok("over HTTP the same cookie opens the port".to_owned())
}
