//! The routes for secrets: declarations are returned, values never are.

use burrow_model::network::{RequestRule, RequestScope, RuleMode};
use burrow_model::{SandboxId, Scope};
use serde_json::{Value, json};

use super::world::World;

const CANARY: &str = "sk-canary-0123456789";

/// The value in base64.
fn encoded(value: &str) -> String {
    data_encoding::BASE64.encode(value.as_bytes())
}

fn openai(value: &str) -> Value {
    json!({
        "allow": [{ "host": "api.openai.com", "methods": ["post"], "paths": ["/v1/**"] }],
        "slot": { "kind": "header", "name": "Authorization", "format": "Bearer {}" },
        "placeholder": { "env": "OPENAI_API_KEY", "prefix": "sk-" },
        "value": encoded(value),
    })
}

async fn set(world: &World, name: &str, body: &Value) -> Value {
    world.send_json("PUT", &format!("/v1/secrets/{name}"), body.to_string()).await.expect(200).json()
}

/// A sandbox whose rules use a secret.
async fn user(world: &World, name: &str, secret: &str) -> SandboxId {
    let id: SandboxId = world.sandbox(name).await.parse().unwrap();
    let catalog = world.app.engine.catalog();
    let row = world.app.engine.get(&catalog.default_tenant(), &id).await.unwrap();
    let mut spec = row.spec.clone();
    spec.network.requests.push(RequestRule {
        scope: RequestScope::of("api.openai.com".parse().unwrap()),
        mode: RuleMode::Intercept,
        secret: Some(secret.parse().unwrap()),
        budget: None,
        approve: None,
    });
    let change = burrow_catalog::SandboxChange {
        spec: Some(spec),
        ..burrow_catalog::SandboxChange::at(row.updated_ms)
    };
    catalog.update_sandbox(&id, change, None).await.unwrap();
    id
}

#[tokio::test]
async fn a_secret_is_shown_as_declared_and_never_with_its_value() {
    let world = World::new().await;
    let answer = set(&world, "openai", &openai(CANARY)).await;
    assert_eq!((&answer["name"], &answer["version"]), (&json!("openai"), &json!(1)));
    assert_eq!(
        answer["allow"],
        json!([{ "host": "api.openai.com", "methods": ["POST"], "paths": ["/v1/**"] }])
    );
    assert_eq!(answer["slot"], json!({ "kind": "header", "name": "authorization", "format": "Bearer {}" }));
    assert_eq!(answer["used_by"], json!([]));
    let one = world.send("GET", "/v1/secrets/openai").await.expect(200);
    let all = world.send("GET", "/v1/secrets").await.expect(200);
    assert_eq!(one.json(), answer);
    assert_eq!(all.json()["items"], json!([answer]));
    for shown in [one.json().to_string(), all.json().to_string()] {
        assert!(!shown.contains("canary") && !shown.contains(&encoded(CANARY)), "{shown}");
    }
}

#[tokio::test]
async fn setting_the_same_secret_changes_nothing_and_any_change_is_a_new_version() {
    let world = World::new().await;
    set(&world, "openai", &openai(CANARY)).await;
    assert_eq!(set(&world, "openai", &openai(CANARY)).await["version"], 1);
    assert_eq!(set(&world, "openai", &openai("sk-another-0123")).await["version"], 2);
    let rotate = |value: &str| {
        world.send_json("POST", "/v1/secrets/openai/rotate", json!({ "value": encoded(value) }).to_string())
    };
    assert_eq!(rotate("sk-another-0123").await.expect(200).json()["version"], 2);
    let rotated = rotate("sk-a-third-0123").await.expect(200).json();
    assert_eq!((&rotated["version"], &rotated["placeholder"]["prefix"]), (&json!(3), &json!("sk-")));
    let mut narrowed = openai("sk-a-third-0123");
    narrowed["allow"][0]["paths"] = json!(["/v1/chat/*"]);
    assert_eq!(set(&world, "openai", &narrowed).await["version"], 4);
}

#[tokio::test]
async fn invalid_secrets_are_rejected_without_quoting_their_values() {
    let world = World::new().await;
    let with = |field: &str, value: Value| {
        let mut body = openai(CANARY);
        body[field] = value;
        body
    };
    let header = |name: &str, format: &str| json!({ "kind": "header", "name": name, "format": format });
    let bad = [
        with("value", json!(CANARY)),
        with("value", json!({ "text": CANARY })),
        with("value", json!(encoded("short"))),
        with("value", json!(encoded("sk-canary\r\nX-Evil: 1"))),
        with("allow", json!([])),
        with("allow", json!([{ "host": "a b" }])),
        with("allow", json!([{ "host": "a.example", "port": 0 }])),
        with("allow", json!([{ "host": "a.example", "paths": ["v1"] }])),
        with("allow", json!([{ "host": "a.example", "methods": ["G T"] }])),
        with("slot", header("Host", "{}")),
        with("slot", header("x-key", "no place")),
        with("slot", json!({ "kind": "nowhere", "name": CANARY })),
        with("slot", json!(CANARY)),
        with("slot", json!({ "kind": "client_cert" })),
        with("placeholder", json!({ "env": "A B" })),
        with("placeholder", json!({ "env": "A", "prefix": "\n" })),
        with("surprise", json!(CANARY)),
        json!({ "value": encoded(CANARY) }),
    ];
    for body in bad {
        let answer = world.send_json("PUT", "/v1/secrets/openai", body.to_string()).await;
        answer.refused(400, "invalid_request");
        let shown = answer.json().to_string();
        assert!(!shown.contains("canary") && !shown.contains(&encoded(CANARY)), "{shown}");
    }
    world.send("GET", "/v1/secrets/openai").await.refused(404, "not_found");
    let large = with("value", json!("A".repeat(2 << 20)));
    world.send_json("PUT", "/v1/secrets/openai", large.to_string()).await.refused(413, "too_large");
    world
        .send_json("PUT", "/v1/secrets/Open_AI", openai(CANARY).to_string())
        .await
        .refused(400, "invalid_request");
}

#[tokio::test]
async fn only_admins_change_secrets_and_bound_keys_see_none() {
    let world = World::new().await;
    let sandbox = world.sandbox("web").await;
    set(&world, "openai", &openai(CANARY)).await;
    let read = world.new_key(Scope::Read, None).await;
    let exec = world.new_key(Scope::Exec, None).await;
    let bound = world.new_key(Scope::Admin, Some(&sandbox)).await;
    let body = openai(CANARY).to_string();
    for key in [&read, &exec, &bound] {
        world.send_json_as(key, "PUT", "/v1/secrets/openai", body.clone()).await.refused(403, "forbidden");
        let rotate = json!({ "value": encoded(CANARY) }).to_string();
        world.send_json_as(key, "POST", "/v1/secrets/openai/rotate", rotate).await.refused(403, "forbidden");
        world.send_as(key, "DELETE", "/v1/secrets/openai").await.refused(403, "forbidden");
    }
    for path in ["/v1/secrets", "/v1/secrets/openai"] {
        world.send_as(&read, "GET", path).await.expect(200);
        world.send_as(&bound, "GET", path).await.refused(403, "forbidden");
        world.send_as("", "GET", path).await.refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_secret_in_use_is_removed_only_by_force() {
    let world = World::new().await;
    set(&world, "openai", &openai(CANARY)).await;
    let id = user(&world, "web", "openai").await;
    let shown = world.send("GET", "/v1/secrets/openai").await.expect(200).json();
    assert_eq!(shown["used_by"], json!([{ "id": id, "name": "web" }]));
    let refused = world.send("DELETE", "/v1/secrets/openai").await;
    refused.refused(409, "conflict");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("web"));
    world.send("DELETE", "/v1/secrets/openai?force=true").await.expect(204);
    world.send("DELETE", "/v1/secrets/openai?force=true").await.refused(404, "not_found");
    world
        .send_json("POST", "/v1/secrets/openai/rotate", json!({ "value": encoded(CANARY) }).to_string())
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn a_change_of_a_secret_updates_the_grants_of_sandboxes() {
    let world = World::new().await;
    let engine = &world.app.engine;
    let tenant = engine.catalog().default_tenant();
    set(&world, "openai", &openai(CANARY)).await;
    let id = user(&world, "web", "openai").await;
    let row = engine.get(&tenant, &id).await.unwrap();
    let before = engine.directives(&row, 1).await.unwrap().expect("there are rules");
    assert_eq!(before.grants[0].value.expose(), CANARY.as_bytes());
    let placeholder = before.grants[0].placeholder.clone().unwrap();
    assert!(placeholder.expose().starts_with(b"sk-"));
    assert!(!format!("{before:?}").contains("canary"));
    let mut changes = engine.secret_changes();
    let rotate = json!({ "value": encoded("sk-another-0123") }).to_string();
    world.send_json("POST", "/v1/secrets/openai/rotate", rotate).await.expect(200);
    assert_eq!(changes.try_recv().unwrap().name.as_str(), "openai");
    let after = engine.directives(&row, 2).await.unwrap().unwrap();
    assert_eq!((after.grants[0].version, after.grants[0].value.expose()), (2, b"sk-another-0123".as_slice()));
    assert_eq!(after.grants[0].placeholder.as_ref(), Some(&placeholder), "processes hold it already");
    assert_eq!(after.authority, before.authority, "processes trust it already");
    // Another lineage has a different authority and a different placeholder.
    let other = user(&world, "other", "openai").await;
    let other = engine.directives(&engine.get(&tenant, &other).await.unwrap(), 1).await.unwrap().unwrap();
    assert_ne!(other.authority, before.authority);
    assert_ne!(other.grants[0].placeholder.as_ref(), Some(&placeholder));
    world.send("DELETE", "/v1/secrets/openai?force=true").await.expect(204);
    assert_eq!(changes.try_recv().unwrap().name.as_str(), "openai");
    assert!(engine.directives(&row, 3).await.unwrap().unwrap().grants.is_empty());
}

#[tokio::test]
async fn a_fork_keeps_the_authority_and_is_granted_by_its_own_rules() {
    let world = World::new().await;
    let engine = &world.app.engine;
    let tenant = engine.catalog().default_tenant();
    set(&world, "openai", &openai(CANARY)).await;
    let id = user(&world, "web", "openai").await;
    let parent = engine.get(&tenant, &id).await.unwrap();
    let forked = world.send_json("POST", "/v1/sandboxes/web/fork", "{}").await.expect(201).json();
    let child: SandboxId = forked["children"][0]["id"].as_str().unwrap().parse().unwrap();
    let mut child = engine.get(&tenant, &child).await.unwrap();
    child.spec.network.requests = parent.spec.network.requests.clone();
    let of_parent = engine.directives(&parent, 1).await.unwrap().unwrap();
    let of_child = engine.directives(&child, 1).await.unwrap().unwrap();
    assert_eq!(of_child.authority, of_parent.authority);
    assert_eq!(of_child.grants[0].placeholder, of_parent.grants[0].placeholder);
    child.spec.network.requests[0].secret = None;
    assert!(
        engine.directives(&child, 2).await.unwrap().unwrap().grants.is_empty(),
        "its own rules, not its origin's"
    );
}
