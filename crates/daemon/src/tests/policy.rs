//! Policies with request rules: setting them, errors with their position, explanations, approvals.

use burrow_egress::PendingApproval;
use burrow_model::Scope;
use burrow_model::network::Approve;
use serde_json::{Value, json};

use super::world::World;

const POLICY: &str = "/v1/sandboxes/web/egress/policy";

async fn world() -> (World, String) {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    let secret = json!({
        "allow": [{ "host": "api.example.com", "methods": ["POST"], "paths": ["/v1/**"] }],
        "slot": { "kind": "header", "name": "authorization", "format": "Bearer {}" },
        "value": "c2stY2FuYXJ5LTEyMzQ=",
    });
    world.send_json("PUT", "/v1/secrets/key", secret.to_string()).await.expect(200);
    (world, id)
}

fn rules(rules: Value) -> String {
    json!({ "egress": { "rules": rules } }).to_string()
}

#[tokio::test]
async fn a_policy_replaces_the_previous_one_and_reveals_no_secrets() {
    let (world, id) = world().await;
    let policy = json!({
        "egress": {
            "default": "deny",
            "rules": [
                { "host": "api.example.com", "secret": "key", "budget": { "requestsPerMinute": 60, "bytesOutPerDay": "50MB" } },
                { "host": "*.packages.example", "mode": "sni" },
            ],
            "allow": ["tcp://db.example:5432"],
        },
        "egressAuth": [{ "destination": "api.example.com", "authRef": "key" }],
    });
    let answer = world.send_json("PUT", POLICY, policy.to_string()).await.expect(200);
    let network = &answer.json()["network"];
    assert_eq!(network["allow"], json!(["tcp://db.example:5432"]));
    let budget = json!({ "requestsPerMinute": 60, "bytesOutPerDay": 50_000_000 });
    assert_eq!(
        network["requests"][0],
        json!({ "host": "api.example.com", "secret": "key", "budget": budget })
    );
    assert_eq!(network["requests"].as_array().unwrap().len(), 2, "the short form adds nothing");
    let directives = world.egress.policy(&id.parse().unwrap()).unwrap().directives().unwrap().clone();
    assert_eq!(directives.grants[0].value.expose(), b"sk-canary-1234");
    for path in ["/v1/sandboxes/web", "/v1/sandboxes/web/egress", "/v1/secrets", "/metrics"] {
        let body = String::from_utf8(world.send("GET", path).await.body.to_vec()).unwrap();
        assert!(!body.contains("sk-canary") && !body.contains("c2stY2FuYXJ5"), "{path}: {body}");
    }
    let shown = world.send("GET", "/v1/sandboxes/web/egress").await.expect(200).json();
    assert_eq!(shown["requests"][0]["left"]["requests_this_minute"], 60, "{shown}");
    assert_eq!(shown["requests"][0].get("problem"), None, "{shown}");
    // The same through the other routes.
    let rule = json!({ "host": "api.example.com", "secret": "key" });
    let body = json!({ "name": "other", "network": { "requests": [rule] } });
    let made = world.send_json("POST", "/v1/sandboxes", body.to_string()).await.expect(201).json();
    assert_eq!(made["network"]["requests"], json!([rule]));
    assert_eq!(made["network"]["mode"], "allowlist");
    let more = json!({ "network": { "add_requests": [{ "host": "b.example" }] } });
    let changed = world.send_json("PATCH", "/v1/sandboxes/other", more.to_string()).await.expect(200).json();
    assert_eq!(changed["network"]["requests"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn errors_about_invalid_policies_name_the_position() {
    let (world, _) = world().await;
    for (body, status, code, place) in [
        (rules(json!([{ "host": "*" }])), 400, "invalid_request", "`/egress/rules/0/host`"),
        (
            rules(json!([{ "host": "a.example", "secret": "nobodys" }])),
            422,
            "unprocessable",
            "`/egress/rules/0/secret`: secret `nobodys` does not exist",
        ),
        (
            rules(json!([{ "host": "api.example.com", "secret": "key", "methods": ["GET"] }])),
            422,
            "unprocessable",
            "exceeds what the owner of `key` allows",
        ),
        (
            rules(json!([{ "host": "*.example.com", "secret": "key" }])),
            422,
            "unprocessable",
            "`/egress/rules/0`",
        ),
        (
            rules(json!([{ "host": "a.example" }, { "host": "a.example", "approve": "once" }])),
            400,
            "invalid_request",
            "(the other is `/egress/rules/0`)",
        ),
        (
            rules(json!([{ "host": "a.example", "budget": { "bytesOutPerDay": "50XB" } }])),
            400,
            "invalid_request",
            "a size is",
        ),
        (json!({ "egress": {}, "extra": 1 }).to_string(), 400, "invalid_request", "extra"),
        (json!({}).to_string(), 400, "invalid_request", "is empty"),
    ] {
        let answer = world.send_json("PUT", POLICY, body.clone()).await;
        answer.refused(status, code);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(place), "{body}: {message}");
    }
    let create = json!({ "network": { "requests": [{ "host": "a.example", "secret": "nobodys" }] } });
    let answer = world.send_json("POST", "/v1/sandboxes", create.to_string()).await;
    answer.refused(422, "unprocessable");
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("`/network/requests/0/secret`"));
    let network = world.send("GET", "/v1/sandboxes/web").await.json()["network"].clone();
    assert_eq!(network.get("requests"), None, "nothing was changed");
}

#[tokio::test]
async fn a_bound_key_can_neither_choose_secrets_nor_answer_approvals() {
    let (world, _) = world().await;
    let id = world.send("GET", "/v1/sandboxes/web").await.expect(200).json()["id"].clone();
    let bound = world.new_key(Scope::Exec, id.as_str()).await;
    let body = rules(json!([{ "host": "api.example.com", "secret": "key" }]));
    world.send_json_as(&bound, "PUT", POLICY, body).await.refused(403, "forbidden");
    let patch = json!({ "network": { "add_requests": [{ "host": "api.example.com", "secret": "key" }] } });
    world
        .send_json_as(&bound, "PATCH", "/v1/sandboxes/web", patch.to_string())
        .await
        .refused(403, "forbidden");
    let yes = json!({ "allow": true }).to_string();
    let answer = world.send_json_as(&bound, "POST", "/v1/sandboxes/web/egress/approvals/1", yes).await;
    answer.refused(403, "forbidden");
}

#[tokio::test]
async fn a_request_is_explained_by_the_rule_that_decides() {
    let (world, _) = world().await;
    let policy = rules(json!([
        { "host": "api.example.com", "secret": "key", "approve": "session" },
        { "host": "plain.example", "methods": ["GET"] },
        { "host": "sni.example", "mode": "sni" },
    ]));
    world.send_json("PUT", POLICY, policy).await.expect(200);
    let explain = async |target: &str, method: &str| {
        let body = json!({ "target": target, "method": method }).to_string();
        world.send_json("POST", "/v1/sandboxes/web/egress/explain", body).await.expect(200).json()
    };
    let answer = explain("https://api.example.com/v1/chat?x=y", "POST").await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(answer["rule"], "https://api.example.com with key");
    let request = json!({
        "method": "POST", "path": "/v1/chat", "decrypted": true, "secret": "key", "slot": "header authorization",
        "left": null, "approval": true,
    });
    assert_eq!(answer["request"], request);
    let beyond = explain("https://api.example.com/v2/chat", "POST").await;
    assert_eq!(beyond["allowed"], false);
    assert_eq!(beyond["because"], "the owner of `key` does not allow it in `POST /v2/chat`");
    let uncovered = explain("https://plain.example/", "DELETE").await;
    assert_eq!(uncovered["because"], "no rule about `plain.example` covers `DELETE /`");
    let passed = explain("https://sni.example/x", "GET").await;
    assert_eq!((&passed["allowed"], &passed["request"]["decrypted"]), (&json!(true), &json!(false)));
    assert_eq!(explain("https://nobody.example/", "GET").await["allowed"], false);
    world.send("DELETE", "/v1/secrets/key?force=true").await.expect(204);
    let gone = explain("https://api.example.com/v1/chat", "POST").await;
    assert_eq!(gone["because"], "its rule needs the secret `key`, which does not exist");
    let shown = world.send("GET", "/v1/sandboxes/web/egress").await.json();
    assert_eq!(shown["requests"][0]["problem"], "there is no secret `key` any more");
}

#[tokio::test]
async fn waiting_requests_are_listed_and_answered_once() {
    let (world, id) = world().await;
    let waiting = PendingApproval {
        number: 7,
        rule: "https://api.example.com with key".to_owned(),
        approve: Approve::Once,
        method: "POST".to_owned(),
        host: "api.example.com".to_owned(),
        port: 443,
        path: "/v1/chat".to_owned(),
        secret: Some("key".to_owned()),
        since_ms: 5,
    };
    world.egress.waits(&id.parse().unwrap(), waiting);
    let listed = world.send("GET", "/v1/sandboxes/web/egress/approvals").await.expect(200).json();
    assert_eq!((&listed["items"][0]["id"], &listed["items"][0]["approve"]), (&json!(7), &json!("once")));
    let yes = json!({ "allow": true }).to_string();
    world.send_json("POST", "/v1/sandboxes/web/egress/approvals/7", yes.clone()).await.expect(204);
    world
        .send_json("POST", "/v1/sandboxes/web/egress/approvals/7", yes.clone())
        .await
        .refused(404, "not_found");
    world
        .send_json("POST", "/v1/sandboxes/web/egress/approvals/x", yes)
        .await
        .refused(400, "invalid_request");
    assert_eq!(world.send("GET", "/v1/sandboxes/web/egress/approvals").await.json()["items"], json!([]));
}
