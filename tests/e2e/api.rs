//! The REST API as a plain HTTP client uses it: lists, idempotent repeats, refusals, limits.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::harness::Daemon;

#[test]
fn lists_come_in_pages_that_together_are_the_whole() {
    let daemon = Daemon::start();
    let before = daemon.json(&["key", "ls", "--json"]).as_array().unwrap().len();
    for number in 0..5 {
        daemon.post("/v1/keys", &json!({ "name": format!("key-{number}"), "scope": "read" })).expect(201);
    }
    let (mut seen, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = daemon.get(&format!("/v1/keys?limit=2{cursor}")).expect(200);
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        seen.extend(items.iter().map(|key| key["id"].as_str().unwrap().to_owned()));
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!((seen.len(), pages), (before + 5, (before + 5).div_ceil(2)), "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), before + 5, "none comes twice");
    for bad in ["limit=0", "limit=1001", "limit=x", "cursor=nonsense", "unknown=1"] {
        daemon.get(&format!("/v1/keys?{bad}")).refused(400, "invalid_request");
    }
}

#[test]
fn sandboxes_are_found_by_labels_and_state_page_by_page() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--label", "team=a", "--label", "tier=gold"]);
    daemon.ok(&["create", "--name", "beta", "--label", "team=a"]);
    daemon.ok(&["create", "--name", "gamma", "--label", "team=b"]);
    daemon.ok(&["stop", "gamma"]);
    let names = |query: &str| -> Vec<String> {
        let page = daemon.get(&format!("/v1/sandboxes?{query}")).expect(200);
        page["items"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("label=team%3Da"), ["beta", "alpha"], "newest first");
    assert_eq!(names("label=team=a&label=tier=gold"), ["alpha"]);
    assert_eq!(names("state=stopped"), ["gamma"]);
    assert_eq!(names("label=team=c"), [""; 0]);
    let first = daemon.get("/v1/sandboxes?label=team=a&limit=1").expect(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(names(&format!("label=team=a&limit=1&cursor={cursor}")), ["alpha"]);
    assert_eq!(daemon.ok(&["ls", "-q", "--label", "tier=gold"]).lines().count(), 1);
    daemon.get("/v1/sandboxes?label=nonsense").refused(400, "invalid_request");
    daemon.get("/v1/sandboxes?state=asleep").refused(400, "invalid_request");
}

#[test]
fn a_repeated_idempotency_key_creates_one_sandbox_even_over_a_crash() {
    let mut daemon = Daemon::start();
    let create = |daemon: &Daemon, body: &Value| {
        daemon.http("POST", "/v1/sandboxes").header("idempotency-key", "abc").json(body).send()
    };
    let first = create(&daemon, &json!({ "name": "alpha" })).expect(201);
    let again = create(&daemon, &json!({ "name": "alpha" }));
    assert!([200, 201].contains(&again.status), "{}", again.text());
    assert_eq!(again.json()["id"], first["id"]);
    create(&daemon, &json!({ "name": "beta" })).refused(422, "idempotency_mismatch");
    let count = |daemon: &Daemon| {
        let body = json!({ "command": "echo ran >> /root/runs; wc -l < /root/runs", "wait": true });
        let call = daemon.http("POST", "/v1/sandboxes/alpha/execs").header("idempotency-key", "exec");
        call.json(&body).send().expect(200)["stdout"].as_str().unwrap().trim().to_owned()
    };
    assert_eq!(count(&daemon), "1");
    assert_eq!(count(&daemon), "1", "a repeat answers the same and runs nothing");
    daemon.kill();
    daemon.launch();
    assert_eq!(create(&daemon, &json!({ "name": "alpha" })).json()["id"], first["id"]);
    create(&daemon, &json!({ "name": "beta" })).refused(422, "idempotency_mismatch");
    assert_eq!(count(&daemon), "1");
    assert_eq!(daemon.sh("alpha", "cat /root/runs"), "ran");
    assert_eq!(daemon.json(&["ls", "--json"]).as_array().unwrap().len(), 1);
    let bad = "x".repeat(300);
    let call = daemon.http("POST", "/v1/sandboxes").header("idempotency-key", &bad).json(&json!({}));
    call.send().refused(400, "invalid_request");
}

#[test]
fn concurrent_creates_with_one_idempotency_key_create_one_sandbox() {
    let daemon = Daemon::start();
    let call = daemon.http("POST", "/v1/sandboxes").header("idempotency-key", "abc").json(&json!({}));
    let ids: BTreeSet<String> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6).map(|_| scope.spawn(|| call.clone().send())).collect();
        let answers = calls.into_iter().map(|call| call.join().unwrap());
        let made = |answer: crate::http::Answer| match answer.status {
            200 | 201 => Some(answer.json()["id"].as_str().unwrap().to_owned()),
            _ => {
                answer.refused(409, "idempotency_in_flight");
                None
            }
        };
        answers.filter_map(made).collect()
    });
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(daemon.json(&["ls", "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn invalid_json_unknown_fields_and_negative_limits_are_refused_by_name() {
    let daemon = Daemon::start();
    let raw = |body: &str| {
        let call = daemon.http("POST", "/v1/sandboxes").header("content-type", "application/json");
        call.body(body.as_bytes()).send()
    };
    for (body, named) in [
        ("{\"name\": ", "JSON"),
        ("", "JSON"),
        ("[1, 2]", "body"),
        ("{\"nmae\": \"x\"}", "nmae"),
        ("{\"name\": 7}", "name"),
        ("{\"name\": \"a\\u0000b\"}", "name"),
        ("{\"name\": \"\\u001b[31mred\"}", "name"),
        ("{\"name\": \"../../etc\"}", "name"),
        ("{\"name\": \"Upper\"}", "name"),
        ("{\"limits\": {\"ram_mib\": -1}}", "ram_mib"),
        ("{\"limits\": {\"ram_mib\": 1}}", "ram_mib"),
        ("{\"limits\": {\"cpu_millis\": 0}}", "cpu_millis"),
        ("{\"limits\": {\"memory\": 5}}", "memory"),
        ("{\"env\": {\"A=B\": \"x\"}}", "env"),
        ("{\"labels\": {\"\": \"x\"}}", "labels"),
        ("{\"workdir\": \"relative\"}", "workdir"),
        ("{\"ttl_seconds\": 0}", "ttl_seconds"),
        ("{\"if_not_exists\": true}", "name"),
    ] {
        let error = raw(body).refused(400, "invalid_request");
        assert!(error["message"].as_str().unwrap().contains(named), "{body}: {error}");
        assert!(!error["message"].as_str().unwrap().chars().any(char::is_control), "{error}");
    }
    raw(&"[".repeat(100_000)).refused(400, "invalid_request");
    daemon.post("/v1/sandboxes", &json!({ "image": "no-such-image" })).refused(404, "not_found");
    daemon.post("/v1/sandboxes", &json!({ "driver": "no-such-driver" })).refused(422, "unprocessable");
    let above = json!({ "limits": { "ram_mib": 4_000_000 } });
    daemon.post("/v1/sandboxes", &above).refused(422, "unprocessable");
    assert!(daemon.inventory().sandboxes().is_empty());
    assert_eq!(daemon.json(&["ls", "--json"]), json!([]));
}

#[test]
fn bodies_that_are_too_large_or_of_the_wrong_type_are_refused() {
    let daemon = Daemon::start();
    let huge = json!({ "labels": { "a": "x".repeat(3 << 20) } });
    let error = daemon.post("/v1/sandboxes", &huge).refused(413, "too_large");
    assert!(!error["hint"].is_null(), "{error}");
    // A request without a `Content-Length`.
    let call = daemon.http("POST", "/v1/sandboxes").header("content-type", "application/json");
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    let mut stream = call.begin_chunked();
    for _ in 0..3 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    assert_eq!(crate::http::Call::answer(stream).status, 413);
    let call = daemon.http("POST", "/v1/sandboxes").header("content-type", "text/plain").body("{}");
    call.send().refused(415, "unsupported_media_type");
    assert_eq!(daemon.json(&["ls", "--json"]), json!([]));
}

#[test]
fn bad_and_foreign_ids_routes_and_methods_have_stable_codes_with_hints() {
    let daemon = Daemon::start();
    let id = daemon.create("alpha");
    daemon.create("beta");
    let error = daemon.get("/v1/sandboxes/nowhere").refused(404, "not_found");
    assert!(error["message"].as_str().unwrap().contains("nowhere") && !error["hint"].is_null(), "{error}");
    daemon.get("/v1/sandboxes/sbx00000000000000000000").refused(404, "not_found");
    daemon.get("/v1/sandboxes/Sbx%20").refused(400, "invalid_request");
    daemon.get("/v1/sandboxes/%1b%5b31m").refused(400, "invalid_request");
    daemon.get("/v1/sandboxes/%ff").refused(400, "invalid_request");
    daemon.get("/v1/sandboxes/sbx").refused(404, "not_found");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "true"]);
    daemon.get(&format!("/v1/sandboxes/{id}/execs/{id}")).refused(404, "not_found");
    daemon.get(&format!("/v1/sandboxes/beta/execs/{exec}")).refused(404, "not_found");
    daemon.get("/v1/keys/keynosuchkey").refused(404, "not_found");
    daemon.http("DELETE", "/v1/sandboxes/alpha/services/none").send().refused(404, "not_found");
    daemon.get("/v1/nothing/here").refused(404, "no_such_route");
    let wrong = daemon.http("PUT", "/v1/sandboxes").json(&json!({})).send();
    wrong.refused(405, "method_not_allowed");
    assert!(wrong.header("allow").is_some_and(|allow| allow.contains("POST")), "{:?}", wrong.header("allow"));
    let taken = daemon.post("/v1/sandboxes", &json!({ "name": "alpha" })).refused(409, "conflict");
    assert!(taken["message"].as_str().unwrap().contains(&id), "{taken}");
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["update", "alpha", "--start-on-use", "false"]);
    let down =
        daemon.post("/v1/sandboxes/alpha/execs", &json!({ "argv": ["true"] })).refused(409, "not_running");
    assert!(down["hint"].as_str().unwrap().contains("burrow start"), "{down}");
    let plain = daemon.get(&format!("/v1/sandboxes/beta/execs/{exec}/attach"));
    assert!((400..500).contains(&plain.status), "a WebSocket route answers plain requests too");
    for answer in [plain, wrong] {
        assert!(answer.header("x-request-id").is_some(), "every answer has an id to look for in the log");
    }
}

#[test]
fn requests_and_sandboxes_beyond_the_configured_number_are_refused() {
    let daemon = Daemon::start_with("limits.requests = 8\nlimits.sandboxes = 1");
    daemon.create("alpha");
    daemon.post("/v1/sandboxes", &json!({})).refused(429, "too_many");
    let open: Vec<_> = (0..8).map(|_| daemon.http("GET", "/v1/events?follow=true").open()).collect();
    assert!(open.iter().all(|stream| stream.status == 200));
    daemon.get("/v1/sandboxes").refused(429, "busy");
    drop(open);
    crate::harness::eventually("a slot to be free again", || {
        (daemon.get("/v1/sandboxes").status == 200).then_some(())
    });
}
