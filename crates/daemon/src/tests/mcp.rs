//! The tools that models use at `/mcp`, and that they have no more rights than their key.

use axum::body::Body;
use burrow_model::Scope;
use serde_json::{Value, json};

use super::world::{Answer, World};

/// Sends one message of the protocol, and returns the response. All tools are offered.
pub(super) async fn ask(world: &World, key: &str, query: &str, method: &str, params: Value) -> Answer {
    let query = if query.is_empty() { "?tools=all".to_owned() } else { format!("{query}&tools=all") };
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = world
        .request(key, "POST", &format!("/mcp{query}"))
        .header("host", "127.0.0.1:7700")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18");
    world.raw(request.body(Body::from(message.to_string())).unwrap()).await
}

/// The message within a response: as a body, or as an event.
#[track_caller]
fn message(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = std::str::from_utf8(&answer.body).unwrap();
    let data =
        text.lines().filter_map(|line| line.strip_prefix("data:")).find(|data| data.contains("jsonrpc"));
    serde_json::from_str(data.unwrap_or(text)).unwrap_or_else(|_| panic!("{text}"))
}

/// The output of a tool, and whether it failed.
async fn call(world: &World, key: &str, query: &str, tool: &str, arguments: Value) -> (String, bool) {
    let params = json!({ "name": tool, "arguments": arguments });
    let answer = message(&ask(world, key, query, "tools/call", params).await);
    let result = &answer["result"];
    let said = result["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let said: Vec<&str> = said.iter().map(|block| block["text"].as_str().unwrap()).collect();
    (said.join("\n"), result["isError"] == true)
}

#[tokio::test]
async fn tools_are_listed_without_a_session() {
    let world = World::new().await;
    let begin = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let answer = ask(&world, &world.key, "?sandbox=web", "initialize", begin).await;
    assert!(answer.headers.get("mcp-session-id").is_none(), "{answer:?}");
    let told = message(&answer);
    assert_eq!(told["result"]["serverInfo"]["name"], "burrow");
    assert_eq!(told["result"]["protocolVersion"], "2025-06-18");
    let told = message(&ask(&world, &world.key, "?sandbox=web", "tools/list", json!({})).await);
    assert!(told["result"]["tools"].as_array().unwrap().len() > 30, "{told}");
    // Nothing was created by this.
    world.send("GET", "/v1/sandboxes/web").await.refused(404, "not_found");
    world.send("GET", "/mcp?sandbox=web").await.refused(405, "method_not_allowed");
}

#[tokio::test]
async fn a_named_sandbox_is_created_on_first_use_and_found_again() {
    let world = World::new().await;
    let (said, failed) = call(&world, &world.key, "?sandbox=one", "sandbox_status", json!({})).await;
    assert!(!failed, "{said}");
    let one = world.send("GET", "/v1/sandboxes/one").await.expect(200).json();
    assert!(said.contains(one["id"].as_str().unwrap()), "{said}");
    assert_eq!(one["labels"]["made-by"], "mcp");
    let (again, _) = call(&world, &world.key, "?sandbox=one", "sandbox_status", json!({})).await;
    assert_eq!(again, said);
    let (other, _) = call(&world, &world.key, "?sandbox=other", "sandbox_status", json!({})).await;
    assert!(!other.contains(one["id"].as_str().unwrap()), "{other}");
    // Each action is recorded once, under its own name.
    let events = world.send("GET", "/v1/audit?limit=100").await.expect(200).json();
    let actions: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|event| event["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["sandbox.create", "sandbox.create"]);
}

#[tokio::test]
async fn a_status_starts_nothing_and_deleted_sandboxes_are_created_again() {
    let world = World::new().await;
    let id = world.sandbox("web").await;
    world.send("POST", "/v1/sandboxes/web/stop").await.expect(200);
    let (said, failed) = call(&world, &world.key, "?sandbox=web", "sandbox_status", json!({})).await;
    assert!(!failed && said.contains(&id), "{said}");
    assert_eq!(world.state_of(&id).await, "stopped");
    world.send("DELETE", "/v1/sandboxes/web").await;
    let (said, failed) = call(&world, &world.key, "?sandbox=web", "sandbox_status", json!({})).await;
    assert!(!failed && !said.contains(&id), "{said}");
}

#[tokio::test]
async fn without_a_usable_key_or_from_a_foreign_page_nothing_is_revealed() {
    let world = World::new().await;
    for key in ["", "e2b_nobody"] {
        ask(&world, key, "?sandbox=web", "tools/list", json!({})).await.refused(401, "unauthorized");
    }
    let request = world
        .request(&world.key, "POST", "/mcp?sandbox=web")
        .header("host", "evil.example:7700")
        .header("origin", "http://evil.example:7700");
    world.raw(request.body(Body::empty()).unwrap()).await.refused(403, "forbidden");
}

#[tokio::test]
async fn a_request_must_name_its_sandbox() {
    let world = World::new().await;
    for query in ["", "?sandbox=No%20Name", "?sandbox=web&x=1"] {
        let answer = ask(&world, &world.key, query, "tools/list", json!({})).await;
        answer.refused(400, "invalid_request");
    }
    let answer = ask(&world, &world.key, "", "tools/list", json!({})).await.json();
    assert!(answer["error"]["hint"].as_str().unwrap().contains("?sandbox="), "{answer}");
}

#[tokio::test]
async fn tools_give_a_key_no_additional_rights() {
    let world = World::new().await;
    let (own, other) = (world.sandbox("own").await, world.sandbox("other").await);
    let read = world.new_key(Scope::Read, None).await;
    let (said, failed) = call(&world, &read, "?sandbox=new", "sandbox_status", json!({})).await;
    assert!(failed && said.contains("[forbidden]") && said.contains("\nhint: "), "{said}");
    let (said, failed) = call(&world, &read, "?sandbox=own", "sandbox_status", json!({})).await;
    assert!(!failed && said.contains(&own), "{said}");
    let (said, failed) =
        call(&world, &read, "?sandbox=own", "sandbox_run", json!({ "command": "true" })).await;
    assert!(failed && said.contains("[forbidden]"), "{said}");

    // A key that is bound to a sandbox need not name it, and does not see others.
    let bound = world.new_key(Scope::Exec, Some(&own)).await;
    let (said, failed) = call(&world, &bound, "", "sandbox_status", json!({})).await;
    assert!(!failed && said.contains(&own), "{said}");
    for foreign in [other.as_str(), "sbxaaaaaaaaaaaaaaaaaaaa", "unknown"] {
        let (said, failed) = call(&world, &bound, "", "sandbox_status", json!({ "sandbox": foreign })).await;
        assert!(failed && said.contains("[not_found]") && !said.contains("other"), "{said}");
    }
}

#[tokio::test]
async fn errors_about_invalid_arguments_are_returned_to_the_model() {
    let world = World::new().await;
    for (arguments, why) in [
        (json!({}), "missing field `command`"),
        (json!({ "command": "true", "sandbx": "web" }), "unknown field `sandbx`"),
        (json!({ "command": 7 }), "expected a string"),
    ] {
        let (said, failed) = call(&world, &world.key, "?sandbox=web", "sandbox_run", arguments).await;
        assert!(failed && said.contains(why), "{why}: {said}");
    }
}

#[tokio::test]
async fn shutdown_does_not_wait_for_models() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.app.draining.cancel();
    let params = json!({ "name": "status", "arguments": {} });
    let answer = ask(&world, &world.key, "?sandbox=web", "tools/call", params).await;
    answer.refused(429, "busy");
}

#[tokio::test]
async fn only_forks_can_be_deleted() {
    let world = World::new().await;
    let (own, other) = (world.sandbox("own").await, world.sandbox("other").await);
    for sandbox in [&own, &other] {
        let (said, failed) =
            call(&world, &world.key, "?sandbox=own", "sandbox_delete_fork", json!({ "sandbox": sandbox }))
                .await;
        assert!(failed, "{said}");
        world.send("GET", &format!("/v1/sandboxes/{sandbox}")).await.expect(200);
    }
}
