//! The events of calls in the audit log, who may read the log, and its verification.

use burrow_audit::note::{Checkpoint, PublicKey};
use burrow_audit::verify::Verifier;
use burrow_model::Scope;
use serde_json::Value;

use super::world::World;

async fn listed(world: &World, query: &str) -> Vec<Value> {
    let answer = world.send("GET", &format!("/v1/audit?limit=1000{query}")).await.expect(200).json();
    let mut items = answer["items"].as_array().unwrap().clone();
    items.reverse();
    items
}

fn words(events: &[Value]) -> Vec<String> {
    let word = |event: &Value, name: &str| event[name].as_str().unwrap_or("-").to_owned();
    events.iter().map(|event| format!("{} {}", word(event, "action"), word(event, "outcome"))).collect()
}

#[tokio::test]
async fn every_change_is_recorded_with_its_actor() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    let run = "{\"argv\": [\"echo\", \"hunter2-in-an-argument\"], \"wait\": true}";
    world.send_json("POST", "/v1/sandboxes/web/execs", run).await.expect(200);
    let made = world
        .send_json("POST", "/v1/keys", "{\"name\": \"ci\", \"scope\": \"read\"}")
        .await
        .expect(201)
        .json();
    let (id, secret) = (made["key"]["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    world.send_json_as(secret, "POST", "/v1/sandboxes", "{}").await.refused(403, "forbidden");
    world.send("DELETE", &format!("/v1/keys/{id}?x=hunter2")).await.expect(400);
    world.send("DELETE", &format!("/v1/keys/{id}")).await.expect(204);
    world.send("GET", "/v1/sandboxes?limit=5").await.expect(200);
    world.send_json("PATCH", "/v1/sandboxes/web", "{\"network\": {\"mode\": \"none\"}}").await.expect(200);
    world.send_json("POST", "/v1/sandboxes/web/egress/explain", "{\"target\": \"example.com\"}").await;
    world.send_as("e2b_nobody", "DELETE", "/v1/sandboxes/web").await.refused(401, "unauthorized");
    world.send("DELETE", "/v1/sandboxes/web").await;

    let events = listed(&world, "").await;
    let expected = [
        "sandbox.create done",
        "exec.start done",
        "exec.end done",
        "key.create done",
        "sandbox.create denied",
        "key.delete failed",
        "key.delete done",
        "policy.change done",
    ];
    assert_eq!(words(&events)[..8], expected, "{events:#?}");
    assert_eq!(events.len(), 9, "nothing of what only reads, and nothing without a key: {events:#?}");
    assert!(words(&events)[8].starts_with("sandbox.delete"), "{events:#?}");
    assert_eq!(events[0]["target"], sandbox.as_str());
    assert_eq!(events[1]["sandbox_id"], sandbox.as_str());
    assert_eq!(events[1]["reason"], "echo");
    assert_eq!(events[2]["reason"], "exited with 0");
    assert_eq!((events[3]["target"].as_str(), events[6]["target"].as_str()), (Some(id), Some(id)));
    assert_eq!(events[4]["actor"], format!("{id} ci"));
    assert_eq!(events[8]["sandbox_id"], sandbox.as_str());
    assert!(events.iter().all(|event| event["actor"].is_string()), "{events:#?}");
    let text = serde_json::to_string(&events).unwrap();
    assert!(!text.contains("hunter2") && !text.contains(secret), "{text}");
}

/// The execs in the log, with their reasons, of which all name the actor.
pub(super) async fn execs(world: &World) -> Vec<String> {
    let events = listed(world, "&action=exec").await;
    let key = |event: &Value| event["actor"].as_str().is_some_and(|actor| actor.ends_with(" test"));
    assert!(events.iter().all(key), "{events:#?}");
    let word = |event: &Value, name: &str| event[name].as_str().unwrap_or("-").to_owned();
    events.iter().map(|event| format!("{} {}", word(event, "action"), word(event, "reason"))).collect()
}

#[tokio::test]
async fn an_exec_is_recorded_even_if_its_client_does_not_wait() {
    let world = World::new().await;
    world.sandbox("web").await;
    for body in ["{\"argv\": [\"echo\"], \"wait\": true}", "{\"argv\": [\"stay\"]}"] {
        world.send_json("POST", "/v1/sandboxes/web/execs", body).await;
    }
    assert_eq!(execs(&world).await, ["exec.start echo", "exec.end exited with 0", "exec.start stay"]);
}

#[tokio::test]
async fn the_attempts_of_a_race_and_their_judge_are_recorded() {
    let world = World::new().await;
    world.sandbox("web").await;
    let race = "{\"parent\": \"web\", \"attempts\": 1, \"run\": [\"cat\"], \"judge\": [\"echo\", \"1\"]}";
    let race = world.send_json("POST", "/v1/races", race).await.expect(201).json();
    let path = format!("/v1/races/{}?wait_ms=1000&after=", race["id"].as_str().unwrap());
    let mut state = race;
    while state["stage"] != "done" {
        state = world.send("GET", &format!("{path}{}", state["version"])).await.expect(200).json();
    }
    assert_eq!(state["attempts"][0]["score"], 1.0, "{state}");
    assert_eq!(execs(&world).await, ["exec.start cat", "exec.start echo", "exec.end exited with 0"]);
}

#[tokio::test]
async fn the_event_of_a_fork_names_the_children() {
    let world = World::new().await;
    world.sandbox("web").await;
    let forked = world.send_json("POST", "/v1/sandboxes/web/fork", "{\"count\": 2}").await.expect(201).json();
    let children: Vec<&str> =
        forked["children"].as_array().unwrap().iter().map(|child| child["id"].as_str().unwrap()).collect();
    let events = listed(&world, "&action=sandbox.fork").await;
    assert_eq!(events[0]["target"], children.join(" "));
}

#[tokio::test]
async fn reads_are_recorded_if_the_configuration_says_so() {
    let world = World::with("[audit]\nreads = true\n").await;
    world.send("GET", "/v1/sandboxes?limit=5").await.expect(200);
    let events = listed(&world, "&action=api.read").await;
    assert_eq!(events[0]["path"], "/v1/sandboxes");
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    for name in ["a", "b", "c"] {
        let body = format!("{{\"name\": \"{name}\"}}");
        world.send_json("POST", "/v1/sandboxes/web/snapshots", body).await.expect(201);
    }
    assert_eq!(listed(&world, "&action=snapshot").await.len(), 3);
    assert_eq!(listed(&world, "&action=snapshot.create&sandbox=web").await.len(), 3);
    assert_eq!(listed(&world, &format!("&sandbox={sandbox}&outcome=failed")).await.len(), 0);
    assert_eq!(listed(&world, "&actor=test").await.len(), 4);
    assert_eq!(listed(&world, "&until_ms=5").await.len(), 0);
    let page = world.send("GET", "/v1/audit?limit=3").await.expect(200).json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = world.send("GET", &format!("/v1/audit?limit=3&cursor={cursor}")).await.expect(200).json();
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (1, &Value::Null));
    for bad in ["outcome=perhaps", "cursor=x", "limit=0", "since_ms=-1", "unknown=1"] {
        world.send("GET", &format!("/v1/audit?{bad}")).await.refused(400, "invalid_request");
    }
    world.send("GET", "/v1/audit?sandbox=nobody").await.refused(404, "not_found");
}

#[tokio::test]
async fn the_log_is_exported_proven_and_verified() {
    let world = World::new().await;
    world.sandbox("web").await;
    let first = world.send("GET", "/v1/audit/checkpoint").await.expect(200).json();
    let key: PublicKey = first["public_key"].as_str().unwrap().parse().unwrap();
    let kept = key.verify(first["note"].as_str().unwrap()).unwrap();
    assert_eq!((kept.size, kept.root.hex().as_str()), (1, first["root"].as_str().unwrap()));
    world.send_json("POST", "/v1/sandboxes/web/snapshots", "{}").await.expect(201);

    let text = world.send("GET", "/v1/audit/export").await.expect(200).body;
    let mut verifier = Verifier::new(vec![kept]);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let _: Value = serde_json::from_slice(line).unwrap();
        verifier.line(line).unwrap();
    }
    let verified = verifier.finish(Some(&key)).unwrap();
    assert_eq!((verified.events, verified.kept), (2, 1));

    let proof = world.send("GET", "/v1/audit/proof/inclusion?index=1").await.expect(200).json();
    assert_eq!(proof["root"], verified.root.hex());
    let proof = world.send("GET", "/v1/audit/proof/consistency?from=1").await.expect(200).json();
    assert_eq!(proof["from_root"], first["root"]);
    world.send("GET", "/v1/audit/proof/inclusion?index=2").await.refused(404, "not_found");
    world.send("GET", "/v1/audit/proof/consistency?from=2&to=1").await.refused(404, "not_found");
    world.send("GET", "/v1/audit/proof/inclusion").await.refused(400, "invalid_request");
    assert!(Checkpoint::read(&verified.note).is_ok());
}

#[tokio::test]
async fn following_starts_at_the_requested_event() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.send_json("POST", "/v1/sandboxes/web/snapshots", "{}").await.expect(201);
    let body = world.send("GET", "/v1/audit/follow?from=0&limit=2").await.expect(200).body;
    let lines: Vec<Value> = body
        .split(|byte| *byte == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    assert_eq!(words(&lines), ["sandbox.create done", "snapshot.create done"]);
    let body = world.send("GET", "/v1/audit/follow?from=0&limit=1&action=snapshot").await.expect(200).body;
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["index"], 1);
}

#[tokio::test]
async fn the_log_requires_an_admin_key_without_a_bound_sandbox() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    let keys = [world.new_key(Scope::Exec, None).await, world.new_key(Scope::Admin, Some(&sandbox)).await];
    for path in [
        "",
        "/follow?limit=1",
        "/checkpoint",
        "/export",
        "/proof/inclusion?index=0",
        "/proof/consistency?from=0",
    ] {
        for key in &keys {
            world.send_as(key, "GET", &format!("/v1/audit{path}")).await.refused(403, "forbidden");
        }
    }
}
