//! Spaces that outlive sandboxes, and sandboxes that use them.

use burrow_model::Scope;
use serde_json::json;

use super::World;

#[tokio::test]
async fn a_space_is_created_changed_listed_and_removed() {
    let world = World::new().await;
    let body = json!({"name": "team", "description": "ours", "labels": {"a": "b"}});
    let made = world.post("/v1/spaces", body.clone(), 201).await;
    world.send_json("POST", "/v1/spaces", body.to_string()).await.refused(409, "conflict");
    for name in ["team", made["id"].as_str().unwrap()] {
        assert_eq!(world.fetch(&format!("/v1/spaces/{name}")).await["description"], "ours");
    }
    let change = json!({"name": "crew", "labels": {"a": null, "c": "d"}}).to_string();
    let changed = world.send_json("PATCH", "/v1/spaces/team", change).await.expect(200).json();
    assert_eq!((changed["name"].as_str(), &changed["labels"]), (Some("crew"), &json!({"c": "d"})));
    assert_eq!(world.fetch("/v1/spaces").await["items"][0]["name"], "crew");
    world.note("crew", "shared").await;
    world.note("space:crew", "also").await;
    assert_eq!(world.texts("crew", "").await, ["shared", "also"]);
    world.send("GET", "/v1/memory/sandbox:crew").await.refused(404, "not_found");
    world.send("DELETE", "/v1/spaces/crew").await.expect(204);
    world.send("GET", "/v1/spaces/crew").await.refused(404, "not_found");
    world.send("GET", "/v1/memory/crew").await.refused(404, "not_found");
    for bad in ["{\"name\": \"own\"}", "{\"name\": \"Bad Name\"}", "{}", "{\"name\": \"x\", \"nope\": 1}"] {
        world.send_json("POST", "/v1/spaces", bad).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn a_sandbox_writes_to_its_space_and_searches_the_attached_ones() {
    let world = World::new().await;
    world.post("/v1/spaces", json!({"name": "team"}), 201).await;
    world.note("team", "the team ships on fridays").await;
    let body = json!({"name": "web", "memory": {
        "space": "agent", "attached": [{"space": "team"}], "remember": "all",
    }});
    let created = world.post("/v1/sandboxes", body, 201).await;
    let memory = &created["memory"];
    assert_eq!((memory["own"].as_bool(), memory["remember"].as_str()), (Some(false), Some("all")));
    assert_eq!(memory["attached"][0]["access"], "read");
    // The named space did not exist, and was created.
    assert_eq!(world.fetch("/v1/spaces/agent").await["used_by"], json!([created["id"]]));
    world.note("web", "web ships on mondays").await;
    assert_eq!(world.texts("agent", "").await, ["web ships on mondays"]);
    let found = world.post("/v1/memory/web/search", json!({"query": "ships"}), 200).await;
    let mut spaces: Vec<&str> =
        found["hits"].as_array().unwrap().iter().map(|hit| hit["space"].as_str().unwrap()).collect();
    spaces.sort_unstable();
    assert_eq!(spaces, ["agent", "team"]);
    let narrowed = json!({"query": "ships", "spaces": ["own"]});
    assert_eq!(world.post("/v1/memory/web/search", narrowed, 200).await["hits"].as_array().unwrap().len(), 1);
    let foreign = json!({"query": "ships", "spaces": ["other"]}).to_string();
    world.send_json("POST", "/v1/memory/web/search", foreign).await.refused(404, "not_found");
    assert_eq!(world.texts("web", "?space=team").await, ["the team ships on fridays"]);
    // Read-only until it is attached read-write.
    let write = json!({"text": "x"}).to_string();
    world
        .send_json("POST", "/v1/memory/web/entries?space=team", write.clone())
        .await
        .refused(403, "forbidden");
    let change = json!({"memory": {"attached": [{"space": "team", "access": "read-write"}]}}).to_string();
    let updated = world.send_json("PATCH", "/v1/sandboxes/web", change).await.expect(200).json();
    assert_eq!(updated["memory"]["remember"], "all");
    world.send_json("POST", "/v1/memory/web/entries?space=team", write).await.expect(201);
    world.send("DELETE", "/v1/spaces/team").await.refused(409, "conflict");
    world.send("DELETE", "/v1/spaces/team?force=true").await.expect(204);
    assert_eq!(world.found("web", "ships").await, ["web ships on mondays"]);
    let change = json!({"memory": {"space": "own", "remember": "off"}}).to_string();
    let updated = world.send_json("PATCH", "/v1/sandboxes/web", change).await.expect(200).json();
    assert_eq!(
        (updated["memory"]["own"].as_bool(), updated["memory"]["remember"].as_str()),
        (Some(true), Some("off"))
    );
    assert!(world.texts("web", "").await.is_empty());
}

#[tokio::test]
async fn a_sandbox_records_errors_unless_configured_otherwise() {
    let world = World::with("[memory]\nremember = \"off\"\n").await;
    let id = world.sandbox("quiet").await;
    assert_eq!(world.fetch(&format!("/v1/sandboxes/{id}")).await["memory"]["remember"], "off");
    let world = World::new().await;
    let id = world.sandbox("usual").await;
    let memory = &world.fetch(&format!("/v1/sandboxes/{id}")).await["memory"];
    assert_eq!((memory["remember"].as_str(), memory["own"].as_bool()), (Some("errors"), Some(true)));
    let twice = json!({"memory": {"attached": [{"space": "a"}, {"space": "a"}]}}).to_string();
    world.send_json("POST", "/v1/sandboxes", twice).await.refused(400, "invalid_request");
    let many: Vec<_> = (0..9).map(|n| json!({"space": format!("s{n}")})).collect();
    let many = json!({"memory": {"attached": many}}).to_string();
    world.send_json("POST", "/v1/sandboxes", many).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_foreign_space_is_answered_like_a_missing_one() {
    let world = World::new().await;
    let mine = world.sandbox("mine").await;
    let other = world.sandbox("other").await;
    let entry = world.note("other", "secret of the other").await;
    world.post("/v1/spaces", json!({"name": "team"}), 201).await;
    let key = world.new_key(Scope::Exec, Some(&mine)).await;
    world.send_json_as(&key, "POST", "/v1/memory/mine/entries", "{\"text\": \"mine\"}").await.expect(201);
    let words = |of: &str, answer: super::super::world::Answer| {
        answer.refused(404, "not_found");
        String::from_utf8_lossy(&answer.body).replace(of, "*")
    };
    for (method, rest, body) in [
        ("GET", "", ""),
        ("GET", "/entries", ""),
        ("POST", "/entries", "{\"text\": \"x\"}"),
        ("POST", "/search", "{\"query\": \"secret\"}"),
        ("GET", "/kv/a", ""),
        ("GET", "/export", ""),
        (
            "POST",
            "/skills",
            "{\"name\": \"a\", \"description\": \"b\", \"steps\": [{\"kind\": \"command\", \"run\": \"x\"}]}",
        ),
    ] {
        let mut said = Vec::new();
        for of in [other.as_str(), "other", "team", "space:team", "nobody", "sbxaaaaaaaaaaaaaaaaaaaa"] {
            let path = format!("/v1/memory/{of}{rest}");
            said.push(words(of, world.send_json_as(&key, method, &path, body).await));
        }
        said.dedup();
        assert_eq!(said.len(), 1, "{method} {rest}: {said:?}");
    }
    // A foreign entry is not found by its id either, nor is anything derived from foreign spaces.
    for id in [entry.as_str(), "memaaaaaaaaaaaaaaaaaaaa", "mem", "\u{43c}em"] {
        let id: String = id.bytes().map(|b| format!("%{b:02x}")).collect();
        let path = format!("/v1/memory/mine/entries/{id}");
        world.send_as(&key, "GET", &path).await.refused(404, "not_found");
    }
    world.send_as(&key, "GET", "/v1/spaces/team").await.refused(404, "not_found");
    world.send_as(&key, "GET", "/v1/spaces").await.refused(403, "forbidden");
    let given = json!({"memory": {"attached": [{"space": "team"}]}}).to_string();
    world.send_json_as(&key, "PATCH", "/v1/sandboxes/mine", given).await.refused(403, "forbidden");
    let quiet = json!({"memory": {"remember": "off"}}).to_string();
    world.send_json_as(&key, "PATCH", "/v1/sandboxes/mine", quiet).await.expect(200);
    for route in ["erase", "check", "rebuild"] {
        let path = format!("/v1/memory/mine/{route}");
        let body = "{\"older_than_seconds\": 0}";
        world.send_json_as(&key, "POST", &path, body).await.refused(403, "forbidden");
    }
    let merge = "{\"from\": \"other\"}";
    world.send_json_as(&key, "POST", "/v1/memory/mine/merge", merge).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_key_that_may_only_read_may_not_write() {
    let world = World::new().await;
    world.sandbox("web").await;
    let id = world.note("web", "seen").await;
    let key = world.new_key(Scope::Read, None).await;
    for path in ["", "/entries", "/sessions", "/kv", "/skills", "/artifacts", "/export"] {
        world.send_as(&key, "GET", &format!("/v1/memory/web{path}")).await.expect(200);
    }
    for (route, body) in
        [("search", "{\"query\": \"seen\"}"), ("context", "{}"), ("skills/search", "{\"query\": \"x\"}")]
    {
        world.send_json_as(&key, "POST", &format!("/v1/memory/web/{route}"), body).await.expect(200);
    }
    let entry = format!("/entries/{id}");
    for (method, path) in [
        ("POST", "/entries"),
        ("PATCH", entry.as_str()),
        ("DELETE", entry.as_str()),
        ("POST", "/forget"),
        ("POST", "/erase"),
        ("POST", "/turns"),
        ("POST", "/import"),
        ("POST", "/merge"),
        ("POST", "/consolidate"),
        ("POST", "/check"),
        ("POST", "/rebuild"),
        ("PUT", "/kv/a"),
        ("DELETE", "/kv/a"),
        ("POST", "/kv-batch"),
        ("POST", "/kv-increment"),
        ("POST", "/skills"),
        ("DELETE", "/skills/a"),
        ("POST", "/skills/promote"),
        ("POST", "/skills/a/run"),
        ("POST", "/skills/a/outcome"),
        ("PUT", "/artifacts/a"),
        ("DELETE", "/artifacts/a"),
    ] {
        let answer = world.send_json_as(&key, method, &format!("/v1/memory/web{path}"), "{}").await;
        answer.refused(403, "forbidden");
        world
            .send_json_as("", method, &format!("/v1/memory/web{path}"), "{}")
            .await
            .refused(401, "unauthorized");
    }
    for (method, path) in [("POST", "/v1/spaces"), ("PATCH", "/v1/spaces/x"), ("DELETE", "/v1/spaces/x")] {
        world.send_json_as(&key, method, path, "{}").await.refused(403, "forbidden");
    }
}
