//! Headers that E2B's clients have set on a sandbox's requests: what a host receives from the sandbox, its forks, and
//! after a restart.

use serde_json::{Value, json};

use crate::harness::Daemon;
use crate::island;
use crate::secrets::{Api, CANARY, nowhere};

/// The status of a request from inside with headers of its own. The answer is discarded, because the hosts quote the
/// headers.
fn call(daemon: &Daemon, sandbox: &str, url: &str) -> String {
    let own = ["-H", "Authorization: mine", "-H", "X-Team: mine", "-H", "Range: bytes=0-3"];
    let mut line = vec!["exec", sandbox, "--", "curl", "-sS", "-k", "-o", "/dev/null", "-w", "%{http_code}"];
    line.extend(own.into_iter().chain(["--max-time", "60", url]));
    String::from_utf8_lossy(&daemon.cli(&line).stdout).into_owned()
}

fn header(api: &Api, name: &str) -> Value {
    api.seen().last().unwrap()["headers"][name].clone()
}

fn put(daemon: &Daemon, sandbox: &str, network: &Value) {
    let answer = daemon.http("PUT", &format!("/sandboxes/{sandbox}/network")).json(network).send();
    assert_eq!(answer.status, 204, "{}", answer.text());
}

fn rules() -> Value {
    let headers = |value: &str| json!([{ "transform": { "headers": { "Authorization": value } } }]);
    json!({ "up.example": headers(&format!("Bearer {CANARY}")), "*.example": headers("Bearer of the wildcard") })
}

#[test]
fn headers_are_set_outside_and_follow_forks_restarts_and_changes() {
    if !island::landed("secret_headers::headers_are_set_outside_and_follow_forks_restarts_and_changes") {
        return;
    }
    let api = Api::serve();
    let mut daemon = Daemon::start_with(&api.config());
    let network = json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["up.example"], "rules": rules() });
    let body = json!({ "templateID": "base", "timeout": 3600, "network": network });
    let made = daemon.post("/v2/sandboxes", &body).expect(201);
    let id = made["sandboxID"].as_str().unwrap().to_owned();
    let sent = json!(format!("Bearer {CANARY}"));

    assert_eq!(call(&daemon, &id, "https://up.example/a"), "200");
    assert_eq!((header(&api, "authorization"), header(&api, "x-team")), (sent.clone(), json!("mine")));
    assert_eq!(header(&api, "range"), json!("bytes=0-3"), "no secret, so nothing is scrubbed");
    // A header rule grants no access.
    let before = api.seen().len();
    assert_ne!(call(&daemon, &id, "https://other.example/a"), "200");
    assert_eq!(api.seen().len(), before);
    // The host's answer is passed on unchanged. The command does not contain the value, and its output is only a
    // count.
    let (front, back) = CANARY.split_at(9);
    let script = format!("curl -s https://up.example/b | grep -c \"$(printf '%s%s' {front} {back})\"");
    assert_eq!(daemon.sh(&id, &script).trim(), "1", "the sandbox trusts its authority");
    nowhere(&daemon, &id);

    let child = daemon.ok(&["fork", &id, "--name", "child"]);
    assert_eq!(call(&daemon, child.trim(), "https://up.example/c"), "200");
    assert_eq!(header(&api, "authorization"), sent);
    let snapshot = daemon.ok(&["snapshot", "create", &id]);
    daemon.ok(&["snapshot", "restore", snapshot.trim(), "--in-place", &id, "--yes"]);
    assert_eq!(call(&daemon, &id, "https://up.example/d"), "200");
    assert_eq!(header(&api, "authorization"), sent);
    daemon.kill();
    daemon.launch();
    for sandbox in [id.as_str(), "child"] {
        assert_eq!(call(&daemon, sandbox, "https://up.example/e"), "200");
        assert_eq!(header(&api, "authorization"), sent);
    }

    let all = |rules: &Value| json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["*.example"], "rules": rules });
    let other = json!({ "*.example": [{ "transform": { "headers": { "X-Team": "blue" } } }] });
    put(&daemon, &id, &all(&other));
    for url in ["https://up.example/f", "https://other.example/f"] {
        assert_eq!(call(&daemon, &id, url), "200");
        assert_eq!((header(&api, "authorization"), header(&api, "x-team")), (json!("mine"), json!("blue")));
    }
    assert_eq!(call(&daemon, "child", "https://up.example/g"), "200");
    assert_eq!(header(&api, "authorization"), sent, "a child's policy is its own");
    put(&daemon, &id, &all(&json!({})));
    assert_eq!(call(&daemon, &id, "https://up.example/h"), "200");
    assert_eq!((header(&api, "authorization"), header(&api, "x-team")), (json!("mine"), json!("mine")));
    let shown = daemon.get(&format!("/sandboxes/{id}")).expect(200);
    assert_eq!(shown["network"]["rules"], Value::Null, "{shown}");
}
