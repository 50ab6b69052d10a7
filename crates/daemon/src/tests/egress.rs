//! Egress policies: setting, showing and explaining them, the log, and denials in execs.

use burrow_egress::{DetectedProtocol, LogEntry, LogKind, Verdict};
use serde_json::json;

use super::world::World;

const SETS: &str = "[egress.sets]\nours = [\"*.ours.example:443\"]\n";

async fn world() -> (World, String) {
    let world = World::with(SETS).await;
    let created = world
        .send_json(
            "POST",
            "/v1/sandboxes",
            json!({ "name": "web", "network": { "allow": ["a.example"] } }).to_string(),
        )
        .await;
    let id = created.json()["id"].as_str().unwrap().to_owned();
    (world, id)
}

#[tokio::test]
async fn a_policy_is_set_shown_changed_and_put_in_force() {
    let (world, id) = world().await;
    let found = world.send("GET", "/v1/sandboxes/web").await.json();
    assert_eq!(found["network"], json!({ "mode": "allowlist", "allow": ["a.example"], "sets": [] }));
    let change = json!({ "network": { "add": ["tcp://db.example:5432"], "remove": ["a.example"], "add_sets": ["ours"] } });
    let changed = world.send_json("PATCH", "/v1/sandboxes/web", change.to_string()).await.json();
    assert_eq!(
        changed["network"],
        json!({ "mode": "allowlist", "allow": ["tcp://db.example:5432"], "sets": ["ours"] })
    );
    let policy = world.egress.policy(&id.parse().unwrap()).unwrap();
    assert_eq!(policy.rules().len(), 2);
    let shown = world.send("GET", "/v1/sandboxes/web/egress").await.json();
    assert_eq!(shown["rules"][1], json!({ "rule": "*.ours.example:443", "set": "ours" }));
    assert_eq!(shown["counters"]["denied"], 0);
    let plain = world.send_json("POST", "/v1/sandboxes", json!({}).to_string()).await.json();
    assert_eq!(plain["network"], json!({ "mode": "allowlist", "allow": [], "sets": [] }));
}

#[tokio::test]
async fn invalid_policies_are_rejected() {
    let (world, _) = world().await;
    for (network, status, code) in [
        (json!({ "allow": ["*"] }), 400, "invalid_request"),
        (json!({ "mode": "wide" }), 400, "invalid_request"),
        (json!({ "mode": "none", "allow": ["a.example"] }), 400, "invalid_request"),
        (json!({ "sets": ["theirs"] }), 422, "unprocessable"),
    ] {
        let body = json!({ "network": network });
        world.send_json("POST", "/v1/sandboxes", body.to_string()).await.refused(status, code);
        world.send_json("PATCH", "/v1/sandboxes/web", body.to_string()).await.refused(status, code);
    }
    let unknown = json!({ "network": { "remove": ["b.example"] } });
    world.send_json("PATCH", "/v1/sandboxes/web", unknown.to_string()).await.refused(422, "unprocessable");
    let other = json!({ "name": "web", "if_not_exists": true, "network": { "mode": "none" } });
    world.send_json("POST", "/v1/sandboxes", other.to_string()).await.refused(409, "conflict");
}

#[tokio::test]
async fn an_explanation_names_the_rule_or_what_would_allow_it() {
    let (world, _) = world().await;
    let ask = async |target: &str| {
        world
            .send_json("POST", "/v1/sandboxes/web/egress/explain", json!({ "target": target }).to_string())
            .await
    };
    let allowed = ask("https://a.example/x").await.json();
    assert_eq!((&allowed["allowed"], &allowed["rule"]), (&json!(true), &json!("a.example")));
    let denied = ask("b.example:8443").await.json();
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["hint"], "`burrow egress allow web b.example` allows it");
    let port = ask("a.example:8443").await.json();
    assert_eq!(port["hint"], "`burrow egress allow web a.example:8443` allows it");
    ask("gopher://a.example").await.refused(400, "invalid_request");
    ask("").await.refused(400, "invalid_request");
    let trial = world
        .send_json("POST", "/v1/sandboxes/web/egress/test", json!({ "target": "a.example" }).to_string())
        .await;
    assert_eq!(trial.json()["reached"], true);
    let off = json!({ "sleep": { "start_on_use": false } }).to_string();
    world.send_json("PATCH", "/v1/sandboxes/web", off).await.expect(200);
    world.send_json("POST", "/v1/sandboxes/web/stop", json!(null).to_string()).await;
    let stopped = world
        .send_json("POST", "/v1/sandboxes/web/egress/test", json!({ "target": "a.example" }).to_string())
        .await;
    stopped.refused(409, "not_running");
    assert_eq!(ask("a.example").await.json()["allowed"], true, "an explanation needs no running sandbox");
}

fn denial(id: &str, at_ms: u64, host: &str) -> LogEntry {
    LogEntry {
        sandbox: id.parse().unwrap(),
        at_ms,
        last_ms: at_ms,
        kind: LogKind::Tcp,
        host: host.to_owned(),
        port: 443,
        protocol: Some(DetectedProtocol::Tls),
        verdict: Verdict::Deny,
        rule: None,
        reason: Some("no rule allows it".to_owned()),
        address: None,
        bytes_in: 0,
        bytes_out: 0,
        duration_ms: None,
        count: 1,
    }
}

#[tokio::test]
async fn the_log_is_paged_and_filtered_and_rejects_contradicting_parameters() {
    let (world, id) = world().await;
    for (at_ms, host) in [(1, "x.example"), (2, "y.example"), (3, "z.example")] {
        world.egress.happened(denial(&id, at_ms, host));
    }
    let log = async |query: &str| world.send("GET", &format!("/v1/sandboxes/web/egress/log{query}")).await;
    let written = async {
        while log("").await.json()["items"].as_array().unwrap().len() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), written)
        .await
        .expect("it is written asynchronously");
    let first = log("?limit=2&denied=true").await.json();
    assert_eq!(first["items"][0]["host"], "z.example");
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let rest = log(&format!("?limit=2&cursor={}", first["next_cursor"].as_str().unwrap())).await.json();
    assert_eq!(rest["items"][0]["host"], "x.example");
    let oldest = rest["items"][0]["seq"].as_u64().unwrap();
    let newer = log(&format!("?since={oldest}")).await.json();
    assert_eq!(newer["items"].as_array().unwrap().len(), 2);
    assert!(newer["next_cursor"].is_null());
    for bad in ["?limit=0", "?cursor=nope", "?follow=true&limit=1", "?bogus=1"] {
        log(bad).await.refused(400, "invalid_request");
    }
    world.send("GET", "/v1/sandboxes/nobody/egress/log").await.refused(404, "not_found");
    world.send("GET", "/v1/sandboxes/nobody/egress").await.refused(404, "not_found");
}
