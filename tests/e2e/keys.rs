//! API keys: what each key may do, for which sandbox, until when; and what is stored of them.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually};

/// Creates a key and returns its secret.
#[track_caller]
fn create(daemon: &Daemon, body: &Value) -> String {
    daemon.post("/v1/keys", body).expect(201)["secret"].as_str().unwrap().to_owned()
}

fn status(daemon: &Daemon, key: &str, method: &str, target: &str, body: &Value) -> u16 {
    let call = daemon.http_open(method, target).header("x-api-key", key);
    // Only the head is read: a backup is as large as all state together.
    if method == "GET" || method == "DELETE" { call.open().status } else { call.json(body).open().status }
}

#[test]
fn a_key_does_what_its_scope_allows_and_no_more() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let keys =
        ["read", "exec", "admin"].map(|scope| create(&daemon, &json!({ "name": scope, "scope": scope })));
    let exec = json!({ "argv": ["true"], "wait": true });
    let key = json!({ "name": "x", "scope": "read" });
    // For each route, the status for the keys of the three scopes.
    for (method, target, body, answers) in [
        ("GET", "/v1/sandboxes", &Value::Null, [200, 200, 200]),
        ("GET", "/v1/sandboxes/alpha/stats", &Value::Null, [200, 200, 200]),
        ("GET", "/v1/sandboxes/alpha/files?path=/etc/hosts", &Value::Null, [200, 200, 200]),
        ("GET", "/v1/sandboxes/alpha/execs", &Value::Null, [200, 200, 200]),
        ("POST", "/v1/sandboxes/alpha/execs", &exec, [403, 200, 200]),
        ("POST", "/v1/sandboxes/alpha/pause", &Value::Null, [403, 200, 200]),
        ("PATCH", "/v1/sandboxes/alpha", &json!({ "labels": { "a": "b" } }), [403, 200, 200]),
        ("PUT", "/v1/sandboxes/alpha/services/s", &json!({ "command": "sleep 9" }), [403, 200, 200]),
        ("DELETE", "/v1/sandboxes/nowhere", &Value::Null, [403, 404, 404]),
        ("GET", "/v1/keys", &Value::Null, [403, 403, 200]),
        ("POST", "/v1/keys", &key, [403, 403, 201]),
        ("GET", "/v1/config", &Value::Null, [403, 403, 200]),
        ("GET", "/v1/backup", &Value::Null, [403, 403, 200]),
        ("POST", "/v1/images", &json!({}), [403, 403, 200]),
    ] {
        let given = keys.each_ref().map(|key| status(&daemon, key, method, target, body));
        assert_eq!(given, answers, "{method} {target}");
    }
    let refused = daemon.http_open("POST", "/v1/keys").header("x-api-key", &keys[0]).json(&key).send();
    let error = refused.refused(403, "forbidden");
    assert!(error["message"].as_str().unwrap().contains("`read`") && !error["hint"].is_null(), "{error}");
}

#[test]
fn without_a_valid_key_only_the_public_routes_answer() {
    let daemon = Daemon::start();
    daemon.http_open("GET", "/v1/sandboxes").send().refused(401, "unauthorized");
    daemon
        .http("GET", "/v1/sandboxes")
        .key("e2b_0000000000000000000000000000000000000000")
        .send()
        .refused(401, "unauthorized");
    daemon.http("GET", "/v1/sandboxes").key("").send().refused(401, "unauthorized");
    let bearer = format!("Bearer {}", daemon.key());
    assert_eq!(daemon.http_open("GET", "/v1/sandboxes").header("authorization", &bearer).send().status, 200);
    for open in ["/healthz", "/readyz", "/metrics", "/v1/version", "/v1/openapi.json"] {
        assert_eq!(daemon.http_open("GET", open).send().status, 200, "{open}");
    }
    // There are no packages beside the program of a test.
    for open in ["/sdk/python", "/sdk/typescript"] {
        daemon.http_open("GET", open).send().refused(404, "not_found");
    }
    let mut command = daemon.command(&["ls"]);
    let output =
        command.env_remove("BURROW_API_KEY").env("XDG_CONFIG_HOME", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("hint: "), "{said}");
}

#[test]
fn a_key_for_one_sandbox_sees_that_one_and_nothing_else() {
    let daemon = Daemon::start();
    let (alpha, beta) = (daemon.create("alpha"), daemon.create("beta"));
    let key = create(&daemon, &json!({ "name": "one", "scope": "exec", "sandbox": "alpha" }));
    let ask = |method: &str, target: &str, body: &Value| status(&daemon, &key, method, target, body);
    let exec = json!({ "argv": ["true"], "wait": true });
    assert_eq!(ask("POST", "/v1/sandboxes/alpha/execs", &exec), 200);
    assert_eq!(
        ask("GET", &format!("/v1/sandboxes/{}", &alpha[..10]), &Value::Null),
        200,
        "also by a beginning of its id"
    );
    let list = daemon.http_open("GET", "/v1/sandboxes").header("x-api-key", &key).send().expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let events = daemon.http_open("GET", "/v1/events").header("x-api-key", &key).send().text();
    assert!(events.contains(&alpha) && !events.contains(&beta), "{events}");
    // The answer for the other sandbox is exactly that for one that does not exist.
    let other = daemon.http_open("GET", "/v1/sandboxes/beta").header("x-api-key", &key).send();
    let none = daemon.http_open("GET", "/v1/sandboxes/zeta").header("x-api-key", &key).send();
    assert_eq!((other.status, none.status), (404, 404));
    assert_eq!(other.text().replace("beta", "zeta"), none.text());
    assert_eq!(ask("GET", &format!("/v1/sandboxes/{beta}"), &Value::Null), 404);
    assert_eq!(ask("POST", &format!("/v1/sandboxes/{beta}/execs"), &exec), 404);
    assert_eq!(ask("DELETE", &format!("/v1/sandboxes/{beta}"), &Value::Null), 404);
    assert_eq!(ask("POST", "/v1/sandboxes", &json!({})), 403, "it cannot make others");
    // The key may be inside its sandbox, and changes none of the sandbox's boundaries.
    for (method, target, body) in [
        ("PATCH", "/v1/sandboxes/alpha", json!({ "network": { "mode": "open" } })),
        ("PATCH", "/v1/sandboxes/alpha", json!({ "limits": { "ram_mib": 4096 } })),
        ("PUT", "/v1/sandboxes/alpha/ports/8080", Value::Null),
        ("PUT", &format!("/sandboxes/{alpha}/network"), json!({})),
        ("POST", "/v1/sandboxes/alpha/revoke-tokens", Value::Null),
    ] {
        assert_eq!(ask(method, target, &body), 403, "{method} {target} {body}");
    }
    daemon.ok(&["key", "revoke-tokens", "alpha"]);
    assert!(daemon.holds("beta", "true"));
}

#[test]
fn a_revoked_key_is_useless_at_once_and_the_last_admin_key_stays() {
    let daemon = Daemon::start();
    let secret = daemon.ok(&["key", "create", "ci", "--scope", "read"]);
    assert!(secret.starts_with("e2b_") && secret[4..].chars().all(|c| c.is_ascii_hexdigit()), "{secret}");
    assert_eq!(status(&daemon, &secret, "GET", "/v1/sandboxes", &Value::Null), 200);
    let shown = daemon.json(&["key", "show", "ci", "--json"]);
    assert_eq!((&shown["name"], &shown["scope"]), (&json!("ci"), &json!("read")));
    assert!(!shown.to_string().contains(&secret), "no answer shows the secret again");
    assert!(!daemon.ok(&["key", "ls", "--json"]).contains(&secret));
    daemon.ok(&["key", "revoke", "ci"]);
    assert_eq!(status(&daemon, &secret, "GET", "/v1/sandboxes", &Value::Null), 401);
    let keys = daemon.json(&["key", "ls", "--json"]);
    let mine = |key: &&Value| daemon.key().starts_with(key["prefix"].as_str().unwrap());
    let (own, others): (Vec<_>, Vec<_>) =
        keys.as_array().unwrap().iter().filter(|key| key["scope"] == "admin").partition(mine);
    for other in others {
        daemon.ok(&["key", "revoke", other["id"].as_str().unwrap()]);
    }
    let admin = own[0];
    let said = daemon.refused(&["key", "revoke", admin["id"].as_str().unwrap()], 1);
    assert!(said.contains("admin"), "{said}");
    daemon.ok(&["ls"]);
}

#[test]
fn a_key_expires_by_itself() {
    let daemon = Daemon::start();
    let key = create(&daemon, &json!({ "name": "brief", "scope": "read", "ttl_seconds": 1 }));
    eventually("the key to expire", || {
        (status(&daemon, &key, "GET", "/v1/sandboxes", &Value::Null) == 401).then_some(())
    });
    daemon
        .post("/v1/keys", &json!({ "name": "x", "scope": "read", "ttl_seconds": 0 }))
        .refused(400, "invalid_request");
}

#[test]
fn secrets_of_keys_are_nowhere_in_the_daemons_state_or_log() {
    let mut daemon = Daemon::start();
    let admin = daemon.key();
    let other = create(&daemon, &json!({ "name": "other", "scope": "admin" }));
    let again = daemon
        .http("POST", "/v1/keys")
        .header("idempotency-key", "once")
        .json(&json!({ "name": "idem", "scope": "read" }));
    let idempotent = again.clone().send().expect(201)["secret"].as_str().unwrap().to_owned();
    let repeated = again.send();
    assert!(!repeated.text().contains(&idempotent), "a repeat does not show the secret again");
    assert_eq!(status(&daemon, &other, "GET", "/v1/keys", &Value::Null), 200);
    // The configuration and the catalog come first; the image follows.
    let mut backup = Vec::new();
    daemon.http("GET", "/v1/backup").open().take(8 << 20).read_to_end(&mut backup).unwrap();
    assert!(contains(&backup, "SQLite format 3"), "the catalog is in it");
    daemon.terminate();
    for secret in [&admin, &other, &idempotent] {
        let needle = secret.strip_prefix("e2b_").unwrap();
        assert!(!contains(&backup, needle), "the backup holds a secret");
        assert!(!daemon.log().contains(needle), "the log holds a secret");
        search(&daemon.state_dir(), needle);
    }
    daemon.launch();
    assert_eq!(
        status(&daemon, &other, "GET", "/v1/keys", &Value::Null),
        200,
        "it outlives a restart all the same"
    );
}

#[track_caller]
fn search(folder: &Path, needle: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search(&path, needle);
        } else if path.is_file() {
            assert!(!contains(&std::fs::read(&path).unwrap(), needle), "`{}` holds a secret", path.display());
        }
    }
}

fn contains(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[test]
fn a_bad_key_request_is_refused_and_makes_no_key() {
    let daemon = Daemon::start();
    let before = daemon.json(&["key", "ls", "--json"]);
    for body in [
        json!({ "name": "", "scope": "read" }),
        json!({ "name": "a\u{1b}[31m", "scope": "read" }),
        json!({ "name": "x", "scope": "root" }),
        json!({ "name": "x" }),
        json!({ "name": "x", "scope": "read", "extra": 1 }),
    ] {
        daemon.post("/v1/keys", &body).refused(400, "invalid_request");
    }
    daemon
        .post("/v1/keys", &json!({ "name": "x", "scope": "read", "sandbox": "nowhere" }))
        .refused(404, "not_found");
    assert_eq!(
        daemon.json(&["key", "ls", "--json"]).as_array().unwrap().len(),
        before.as_array().unwrap().len()
    );
}
