//! Snapshots, restores and forks through the API.

use axum::body::Body;
use burrow_model::{NetworkMode, SandboxId, Scope, SnapshotId};
use serde_json::{Value, json};

use super::world::{Answer, World};

async fn take(world: &World, sandbox: &str, body: &str) -> Value {
    let path = format!("/v1/sandboxes/{sandbox}/snapshots");
    world.send_json("POST", &path, body.to_owned()).await.expect(201).json()
}

async fn once(world: &World, path: &str, key: &str, body: &str) -> Answer {
    let request = world
        .request(&world.key, "POST", path)
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    world.raw(request.body(Body::from(body.to_owned())).unwrap()).await
}

fn ids(list: &Value) -> Vec<Value> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect()
}

#[tokio::test]
async fn a_snapshot_is_taken_shown_listed_and_removed() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let machine: SandboxId = id.parse().unwrap();
    world.disks.write(&machine, "/a", "1").unwrap();
    let body = "{\"name\": \"clean\", \"description\": \"as it was\", \"labels\": {\"stage\": \"one\"}}";
    let taken = take(&world, "web", body).await;
    assert_eq!((&taken["name"], &taken["kind"]), (&"clean".into(), &"manual".into()));
    assert_eq!((&taken["sandbox_id"], &taken["sandbox_name"]), (&id.as_str().into(), &"web".into()));
    assert_eq!((&taken["description"], &taken["processes"]), (&"as it was".into(), &true.into()));
    assert_eq!(taken["changes"]["paths"], json!([{"path": "/a", "kind": "added"}]));
    assert_eq!(world.state_of("web").await, "running");
    world.clock.advance(1);
    world.disks.write(&machine, "/a", "2").unwrap();
    let second = take(&world, "web", "{\"files_only\": true, \"expires_seconds\": 60}").await;
    assert_eq!((&second["processes"], &second["parent"]), (&false.into(), &taken["id"]));
    assert_eq!(second["expires_ms"], 1_060_001);
    assert_eq!(second["changes"]["paths"], json!([{"path": "/a", "kind": "changed"}]));
    assert_eq!(second["changes"]["since"], taken["id"]);

    let whole = taken["id"].as_str().unwrap();
    for name in [whole, "clean", &whole[..10]] {
        let shown = world.send("GET", &format!("/v1/snapshots/{name}")).await.expect(200).json();
        assert_eq!(shown, taken, "{name}");
    }
    let all = world.send("GET", "/v1/snapshots").await.expect(200).json();
    assert_eq!(ids(&all), [second["id"].clone(), taken["id"].clone()], "newest first");
    assert_eq!(all["items"][1]["changes"]["paths"], json!([]), "lists omit the paths");
    assert_eq!(all["items"][1]["changes"]["total"], 1);
    let first = world.send("GET", "/v1/snapshots?limit=1").await.expect(200).json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = world.send("GET", &format!("/v1/snapshots?limit=1&cursor={cursor}")).await.expect(200).json();
    assert_eq!((ids(&rest), rest.get("next_cursor")), (vec![taken["id"].clone()], None));
    for (query, count) in [
        ("sandbox=web", 2),
        ("label=stage=one", 1),
        ("label=stage=one&label=stage=two", 0),
        ("kind=manual", 2),
        ("kind=policy&kind=exec", 0),
        ("kind=policy&kind=manual&sandbox=web&label=stage=one", 1),
    ] {
        let found = world.send("GET", &format!("/v1/snapshots?{query}")).await.expect(200).json();
        assert_eq!(ids(&found).len(), count, "{query}");
    }
    world.send("DELETE", "/v1/snapshots/clean").await.expect(204);
    world.send("DELETE", "/v1/snapshots/clean").await.refused(404, "not_found");
    world.send("GET", &format!("/v1/snapshots/{whole}")).await.refused(404, "not_found");
    let page = world.send("GET", "/metrics").await.expect(200);
    assert!(String::from_utf8_lossy(&page.body).contains("burrow_snapshots 1"));
}

#[tokio::test]
async fn a_snapshot_can_be_taken_in_every_state_that_has_files() {
    let world = World::new().await;
    world.sandbox("web").await;
    for (step, processes) in [("pause", true), ("hibernate", true), ("stop", false)] {
        let now = world.send("POST", &format!("/v1/sandboxes/web/{step}")).await.expect(200).json();
        let taken = take(&world, "web", "{}").await;
        assert_eq!(taken["processes"], processes, "{step}");
        assert_eq!(world.state_of("web").await, now["state"].as_str().unwrap(), "{step} stays");
    }
}

#[tokio::test]
async fn errors_about_invalid_snapshots_name_the_field() {
    let world = World::new().await;
    world.sandbox("web").await;
    take(&world, "web", "{\"name\": \"taken\"}").await;
    let path = "/v1/sandboxes/web/snapshots";
    world.send_json("POST", path, "{\"name\": \"taken\"}").await.refused(409, "conflict");
    for (bad, field) in [
        ("{\"name\": \"No Good\"}", "`name`"),
        ("{\"description\": \"\\u001b[2J\"}", "`description`"),
        ("{\"labels\": {\"\": \"x\"}}", "`labels`"),
        ("{\"expires_seconds\": 0}", "`expires_seconds`"),
        ("{\"expires\": 1}", "`expires`"),
    ] {
        let answer = world.send_json("POST", path, bad).await;
        answer.refused(400, "invalid_request");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(field), "{answer:?}");
    }
    world.send_json("POST", "/v1/sandboxes/nobody/snapshots", "{}").await.refused(404, "not_found");
    let unknown = SandboxId::generate();
    let path = format!("/v1/sandboxes/{unknown}/snapshots");
    world.send_json("POST", &path, "{}").await.refused(404, "not_found");
    for bad in
        ["kind=nope", "label=x", "sandbox=A", "limit=0", "cursor=nope", "colour=red", "sandbox=a&sandbox=b"]
    {
        world.send("GET", &format!("/v1/snapshots?{bad}")).await.refused(400, "invalid_request");
    }
    for bad in ["/v1/snapshots/A", "/v1/snapshots/a%20b", "/v1/snapshots/taken?x=1"] {
        world.send("GET", bad).await.refused(400, "invalid_request");
    }
    for name in ["nobody".to_owned(), SnapshotId::generate().to_string(), "snp".to_owned() + "zzzz"] {
        let answer = world.send("GET", &format!("/v1/snapshots/{name}")).await;
        answer.refused(404, "not_found");
        assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("burrow snapshot ls"));
    }
}

#[tokio::test]
async fn a_restore_can_be_undone() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let machine: SandboxId = id.parse().unwrap();
    let set = |value: &str| {
        world.runtime.set_ram(&machine, "x", value);
        world.disks.write(&machine, "/x", value).unwrap();
    };
    let now = || (world.runtime.ram(&machine, "x"), world.disks.read(&machine, "/x"));
    let both = |value: &str| (Some(value.to_owned()), Some(value.to_owned()));
    set("one");
    take(&world, "web", "{\"name\": \"one\"}").await;
    set("two");
    let restored = world
        .send_json("POST", "/v1/sandboxes/web/restore", "{\"snapshot\": \"one\"}")
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&restored["sandbox"]["id"], &restored["sandbox"]["state"]),
        (&id.as_str().into(), &"running".into())
    );
    assert_eq!(restored["undo"]["kind"], "before-restore");
    assert_eq!(now(), both("one"));
    let undo = format!("{{\"snapshot\": {}}}", restored["undo"]["id"]);
    world.send_json("POST", "/v1/sandboxes/web/restore", undo).await.expect(200);
    assert_eq!(now(), both("two"));
    let files = "{\"snapshot\": \"one\", \"files_only\": true}";
    world.send_json("POST", "/v1/sandboxes/web/restore", files).await.expect(200);
    assert_eq!(now(), (None, Some("one".to_owned())));
    assert!(world.events_of(&id).await.contains(&"sandbox.restored".to_owned()));
    for (body, status, code) in [
        ("{\"snapshot\": \"nobody\"}", 404, "not_found"),
        ("{\"snapshot\": \"No Good\"}", 400, "invalid_request"),
        ("{}", 400, "invalid_request"),
        ("{\"snapshot\": \"one\", \"then\": 1}", 400, "invalid_request"),
    ] {
        world.send_json("POST", "/v1/sandboxes/web/restore", body).await.refused(status, code);
    }
    let one = "{\"snapshot\": \"one\"}";
    world.send_json("POST", "/v1/sandboxes/nobody/restore", one).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_new_sandbox_has_the_requested_network_before_its_processes_run() {
    let world = World::new().await;
    let source =
        r#"{"name": "web", "network": {"mode": "allowlist", "allow": ["one.example", "two.example"]}}"#;
    world.send_json("POST", "/v1/sandboxes", source).await.expect(201);
    take(&world, "web", "{\"name\": \"good\"}").await;
    let path = "/v1/snapshots/good/sandboxes";
    let made = async |body: &'static str| {
        let made = world.send_json("POST", path, body).await.expect(201).json();
        let id: SandboxId = made["id"].as_str().unwrap().parse().unwrap();
        let first = world.egress.first_policy(&id).unwrap();
        let rules = first.rules().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(made["network"]["allow"], json!(rules), "it is the one that is shown");
        (first.mode(), rules)
    };
    let both = ["one.example", "two.example"].map(str::to_owned).to_vec();
    assert_eq!(made("{}").await, (NetworkMode::Allowlist, both));
    assert_eq!(made(r#"{"network": {"mode": "none", "allow": []}}"#).await, (NetworkMode::None, vec![]));
    let fewer = r#"{"network": {"remove": ["one.example"]}}"#;
    assert_eq!(made(fewer).await, (NetworkMode::Allowlist, vec!["two.example".to_owned()]));
    for (bad, status, code) in [
        (r#"{"network": {"allow": ["*"]}}"#, 400, "invalid_request"),
        (r#"{"network": {"requests": [{"host": "a.example", "secret": "none"}]}}"#, 422, "unprocessable"),
    ] {
        world.send_json("POST", path, bad).await.refused(status, code);
    }
}

#[tokio::test]
async fn a_new_sandbox_continues_from_a_snapshot() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.runtime.set_ram(&id.parse().unwrap(), "x", "1");
    let snapshot = take(&world, "web", "{\"name\": \"good\"}").await;
    world.send("DELETE", "/v1/sandboxes/web").await.expect(204);
    let path = "/v1/snapshots/good/sandboxes";
    let body = "{\"name\": \"again\", \"labels\": {\"a\": \"b\"}, \"ttl_seconds\": 60}";
    let again = world.send_json("POST", path, body).await.expect(201).json();
    assert_eq!((&again["name"], &again["state"]), (&"again".into(), &"running".into()));
    assert_eq!(again["origin"], json!({"snapshot": snapshot["id"], "sandbox": id, "kind": "restore"}));
    assert_eq!((&again["labels"], &again["expires_ms"]), (&json!({"a": "b"}), &1_060_000.into()));
    let copy: SandboxId = again["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(world.runtime.ram(&copy, "x").as_deref(), Some("1"));
    assert_eq!(world.runtime.machine(&copy).unwrap().introduced, 1, "it received its identity");
    world.send_json("POST", path, body).await.refused(409, "conflict");
    let fresh = world.send_json("POST", path, "{\"files_only\": true}").await.expect(201).json();
    let fresh: SandboxId = fresh["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(world.runtime.ram(&fresh, "x"), None);
    let first = once(&world, path, "k1", "{}").await.expect(201).json();
    let second = once(&world, path, "k1", "{}").await.expect(200).json();
    assert_eq!(first["id"], second["id"]);
    once(&world, path, "k1", "{\"files_only\": true}").await.refused(422, "idempotency_mismatch");
    for bad in ["{\"name\": \"A\"}", "{\"ttl_seconds\": 0}", "{\"labels\": {\"\": \"x\"}}", "{\"count\": 1}"]
    {
        world.send_json("POST", path, bad).await.refused(400, "invalid_request");
    }
    world.send_json("POST", "/v1/snapshots/nobody/sandboxes", "{}").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_fork_creates_children_of_the_same_instant() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.runtime.set_ram(&id.parse().unwrap(), "x", "1");
    let body = "{\"count\": 3, \"names\": [\"child\"], \"labels\": {\"of\": \"web\"}}";
    let forked = world.send_json("POST", "/v1/sandboxes/web/fork", body).await.expect(201).json();
    assert_eq!(forked["failed"], json!([]));
    let children = forked["children"].as_array().unwrap();
    let names: Vec<_> = children.iter().map(|child| child["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["child-1", "child-2", "child-3"]);
    for child in children {
        assert_eq!((&child["state"], &child["origin"]["kind"]), (&"running".into(), &"fork".into()));
        assert_eq!(child["origin"]["snapshot"], forked["snapshot"]);
        let machine: SandboxId = child["id"].as_str().unwrap().parse().unwrap();
        assert_eq!(world.runtime.ram(&machine, "x").as_deref(), Some("1"));
    }
    assert_eq!(world.state_of("web").await, "running");
    let labelled = world.send("GET", "/v1/sandboxes?label=of=web").await.expect(200).json();
    assert_eq!(ids(&labelled).len(), 3);
    // One name is taken by now: the sandbox is not paused for a fork that cannot succeed.
    let body = "{\"count\": 2, \"names\": [\"child-1\", \"other\"]}";
    world.send_json("POST", "/v1/sandboxes/web/fork", body).await.refused(409, "conflict");
    let none = "{\"names\": [\"child-1\"]}";
    world.send_json("POST", "/v1/sandboxes/web/fork", none).await.refused(409, "conflict");
    let first = once(&world, "/v1/sandboxes/web/fork", "k1", "{}").await.expect(201).json();
    let second = once(&world, "/v1/sandboxes/web/fork", "k1", "{}").await.expect(201).json();
    assert_eq!(first["children"][0]["id"], second["children"][0]["id"]);
    for bad in [
        "{\"count\": 0}",
        "{\"count\": 65}",
        "{\"count\": -1}",
        "{\"count\": 3, \"names\": [\"a\", \"b\"]}",
        "{\"count\": 2, \"names\": [\"a\", \"a\"]}",
        "{\"names\": [\"A\"]}",
    ] {
        world.send_json("POST", "/v1/sandboxes/web/fork", bad).await.refused(400, "invalid_request");
    }
    world.send_json("POST", "/v1/sandboxes/nobody/fork", "{}").await.refused(404, "not_found");
    for step in ["hibernate", "stop"] {
        world.send("POST", &format!("/v1/sandboxes/web/{step}")).await.expect(200);
        world.send_json("POST", "/v1/sandboxes/web/fork", "{}").await.expect(201);
    }
}

#[tokio::test]
async fn taking_a_snapshot_twice_with_one_key_takes_one() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.sandbox("other").await;
    let path = "/v1/sandboxes/web/snapshots";
    let first = once(&world, path, "k1", "{}").await.expect(201).json();
    let second = once(&world, path, "k1", "{}").await.expect(201).json();
    assert_eq!(first, second);
    once(&world, path, "k1", "{\"name\": \"x\"}").await.refused(422, "idempotency_mismatch");
    once(&world, "/v1/sandboxes/other/snapshots", "k1", "{}").await.refused(422, "idempotency_mismatch");
    assert_eq!(ids(&world.send("GET", "/v1/snapshots").await.expect(200).json()).len(), 1);
}

#[tokio::test]
async fn snapshots_outlive_their_sandbox_unless_requested_otherwise() {
    let world = World::new().await;
    for (name, query, left) in [("a", "", 1), ("b", "?snapshots=true", 1), ("c", "?snapshots=false", 2)] {
        world.sandbox(name).await;
        take(&world, name, "{\"files_only\": true}").await;
        world.send("DELETE", &format!("/v1/sandboxes/{name}{query}")).await.expect(204);
        let all = world.send("GET", "/v1/snapshots").await.expect(200).json();
        assert_eq!(ids(&all).len(), left, "{name}");
    }
    world.sandbox("d").await;
    world.send("DELETE", "/v1/sandboxes/d?snapshots=some").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn the_tree_shows_the_lineage() {
    let world = World::new().await;
    let web = world.sandbox("web").await;
    let other = world.sandbox("other").await;
    let snapshot = take(&world, "web", "{\"name\": \"point\"}").await;
    let child = world.send_json("POST", "/v1/snapshots/point/sandboxes", "{}").await.expect(201).json();
    let tree = world.send("GET", "/v1/tree").await.expect(200).json();
    let nodes = tree["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4, "{tree}");
    let place = |id: &Value| nodes.iter().position(|node| node["id"] == *id).unwrap();
    let (root, point) = (place(&web.as_str().into()), place(&snapshot["id"]));
    assert!(nodes[root]["parent"].is_null() && nodes[place(&other.as_str().into())]["parent"].is_null());
    assert_eq!(nodes[point]["parent"], root);
    assert_eq!(nodes[place(&child["id"])]["parent"], point);
    assert_eq!((&nodes[root]["kind"], &nodes[root]["state"]), (&"sandbox".into(), &"running".into()));
    assert_eq!(
        (&nodes[point]["kind"], &nodes[point]["snapshot_kind"]),
        (&"snapshot".into(), &"manual".into())
    );
    // A key that is bound to one sandbox sees that sandbox and its snapshots.
    let key = world.new_key(Scope::Read, Some(&web)).await;
    let own = world.send_as(&key, "GET", "/v1/tree").await.expect(200).json();
    let seen: Vec<_> = own["nodes"].as_array().unwrap().iter().map(|node| node["id"].clone()).collect();
    assert_eq!(seen, [Value::from(web), snapshot["id"].clone()]);
    world.send("GET", "/v1/tree?deep=1").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn stale_objects_are_listed_and_removed_on_request() {
    let world = World::new().await;
    world.sandbox("old").await;
    world.send("POST", "/v1/sandboxes/old/stop").await.expect(200);
    let automatic = "{\"argv\": [\"echo\"], \"wait\": true, \"snapshot\": true}";
    world.sandbox("web").await;
    world.send_json("POST", "/v1/sandboxes/web/execs", automatic).await.expect(200);
    assert_eq!(world.send("GET", "/v1/gc").await.expect(200).json()["items"], json!([]));
    world.clock.advance(2 * 24 * 3600 * 1000);
    let path = "/v1/gc?unused_for_seconds=86400";
    let told = world.send("GET", path).await.expect(200).json();
    assert_eq!((&told["applied"], &told["unused_for_seconds"]), (&false.into(), &86_400.into()));
    let action = |report: &Value, kind: &str| {
        let items = report["items"].as_array().unwrap();
        items.iter().find(|item| item["kind"] == kind).map(|item| item["action"].clone())
    };
    assert_eq!(action(&told, "snapshot"), Some("remove".into()), "{told}");
    assert_eq!(action(&told, "sandbox"), Some("keep".into()), "sandboxes are kept by default");
    assert_eq!(world.send("GET", path).await.expect(200).json(), told, "the report changes nothing");
    let body = "{\"unused_for_seconds\": 86400}";
    let done = world.send_json("POST", "/v1/gc", body).await.expect(200).json();
    assert_eq!((&done["applied"], action(&done, "snapshot")), (&true.into(), Some("remove".into())));
    assert_eq!(ids(&world.send("GET", "/v1/snapshots").await.expect(200).json()), Vec::<Value>::new());
    world.send("GET", "/v1/sandboxes/old").await.expect(200);
    for bad in ["?unused_for_seconds=-1", "?unused_for=1d"] {
        world.send("GET", &format!("/v1/gc{bad}")).await.refused(400, "invalid_request");
    }
    world
        .send_json("POST", "/v1/gc", "{\"unused_for_seconds\": \"1d\"}")
        .await
        .refused(400, "invalid_request");
    let endless = format!("{{\"unused_for_seconds\": {}}}", u64::MAX);
    world.send_json("POST", "/v1/gc", endless).await.expect(200);
}

#[tokio::test]
async fn a_snapshot_is_visible_only_to_keys_with_rights_to_it() {
    let world = World::new().await;
    let mine = world.sandbox("mine").await;
    world.sandbox("other").await;
    let own = take(&world, "mine", "{\"name\": \"own\", \"files_only\": true}").await;
    let foreign = take(&world, "other", "{\"name\": \"foreign\", \"files_only\": true}").await;
    let key = world.new_key(Scope::Exec, Some(&mine)).await;
    let list = world.send_as(&key, "GET", "/v1/snapshots").await.expect(200).json();
    assert_eq!(ids(&list), [own["id"].clone()]);
    let own_id = own["id"].as_str().unwrap();
    for name in ["own", own_id, &own_id[..12]] {
        let shown = world.send_as(&key, "GET", &format!("/v1/snapshots/{name}")).await.expect(200).json();
        assert_eq!(shown["id"], own["id"]);
    }
    // A foreign snapshot is answered exactly like an unknown one.
    let foreign_id = foreign["id"].as_str().unwrap();
    let unknown = SnapshotId::generate().to_string();
    for name in ["foreign", foreign_id, &foreign_id[..12], "snp", "unknown", &unknown] {
        world.send_as(&key, "GET", &format!("/v1/snapshots/{name}")).await.refused(404, "not_found");
        world.send_as(&key, "DELETE", &format!("/v1/snapshots/{name}")).await.refused(404, "not_found");
        let body = format!("{{\"snapshot\": \"{name}\"}}");
        world.send_json_as(&key, "POST", "/v1/sandboxes/mine/restore", body).await.refused(404, "not_found");
        let body = format!("{{\"rotate\": {{\"every_seconds\": 60, \"snapshot\": \"{name}\"}}}}");
        world.send_json_as(&key, "PATCH", "/v1/sandboxes/mine", body).await.refused(403, "forbidden");
    }
    world.send_as(&key, "GET", "/v1/snapshots?sandbox=other").await.refused(404, "not_found");
    let restore = "{\"snapshot\": \"own\"}";
    world.send_json_as(&key, "POST", "/v1/sandboxes/mine/restore", restore).await.expect(200);
    for (method, path) in [("POST", "/v1/snapshots/own/sandboxes"), ("POST", "/v1/sandboxes/mine/fork")] {
        world.send_json_as(&key, method, path, "{}").await.refused(403, "forbidden");
    }
    world.send_as(&key, "GET", "/v1/gc").await.refused(403, "forbidden");

    let read = world.new_key(Scope::Read, None).await;
    for path in ["/v1/snapshots", "/v1/snapshots/own", "/v1/tree", "/v1/gc"] {
        world.send_as("", "GET", path).await.refused(401, "unauthorized");
        world.send_as(&read, "GET", path).await.expect(200);
    }
    for path in
        ["/v1/sandboxes/mine/snapshots", "/v1/sandboxes/mine/fork", "/v1/snapshots/own/sandboxes", "/v1/gc"]
    {
        world.send_json_as(&read, "POST", path, "{}").await.refused(403, "forbidden");
    }
    world.send_json_as(&read, "POST", "/v1/sandboxes/mine/restore", restore).await.refused(403, "forbidden");
    world.send_as(&read, "DELETE", "/v1/snapshots/own").await.refused(403, "forbidden");
    let exec = world.new_key(Scope::Exec, None).await;
    world.send_json_as(&exec, "POST", "/v1/gc", "{}").await.refused(403, "forbidden");
    world.send_as(&exec, "DELETE", "/v1/snapshots/own").await.expect(204);
}
