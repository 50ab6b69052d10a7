//! Execs and their output through the API.

use burrow_model::Scope;

use super::world::World;

#[tokio::test]
async fn an_exec_with_wait_returns_its_output() {
    let world = World::new().await;
    world.sandbox("web").await;
    let echo = "{\"argv\": [\"echo\", \"hello\", \"there\"], \"wait\": true}";
    let result = world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.expect(200).json();
    assert_eq!(result["stdout"], "hello there\n");
    assert_eq!(result["exec"]["outcome"]["exit_code"], 0);
    assert_eq!(result["truncated"], false);
}

#[tokio::test]
async fn input_is_sent_and_closed() {
    let world = World::new().await;
    world.sandbox("web").await;
    let cat = "{\"argv\": [\"cat\"], \"input\": \"fed\", \"wait\": true}";
    let result = world.send_json("POST", "/v1/sandboxes/web/execs", cat).await.expect(200).json();
    assert_eq!(result["stdout"], "fed");
}

#[tokio::test]
async fn output_beyond_the_limit_is_truncated_and_reported_as_such() {
    let world = World::with("[limits]\njson_body = \"4M\"\n").await;
    world.sandbox("web").await;
    let input = "x".repeat(3 << 20);
    let cat = format!("{{\"argv\": [\"cat\"], \"input\": \"{input}\", \"wait\": true}}");
    let result = world.send_json("POST", "/v1/sandboxes/web/execs", cat).await.expect(200).json();
    assert_eq!(result["stdout"].as_str().unwrap().len(), burrow_api::defaults::RUN_OUTPUT_BYTES);
    assert_eq!(result["truncated"], true);
}

#[tokio::test]
async fn an_exec_is_found_again_with_its_output() {
    let world = World::new().await;
    world.sandbox("web").await;
    let echo = "{\"argv\": [\"echo\", \"caf\u{e9}\"]}";
    let exec = world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.expect(201).json();
    let id = exec["id"].as_str().unwrap();
    for path in [id, &id[..12]] {
        // The row of an exec is written asynchronously.
        let mut answer = world.send("GET", &format!("/v1/sandboxes/web/execs/{path}")).await;
        while answer.status == 404 {
            answer = world.send("GET", &format!("/v1/sandboxes/web/execs/{path}")).await;
        }
        assert_eq!(answer.expect(200).json()["state"], "ended");
    }
    let raw = world.send("GET", &format!("/v1/sandboxes/web/execs/{id}/output?format=raw")).await.expect(200);
    assert_eq!(raw.body, "caf\u{e9}\n".as_bytes());
    let lines = world.send("GET", &format!("/v1/sandboxes/web/execs/{id}/output?offset=4")).await.expect(200);
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&lines.body)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Cut in the middle of a character, so not UTF-8.
    assert_eq!((&lines[0]["kind"], &lines[0]["base64"]), (&"output".into(), &"qQo=".into()));
    assert_eq!(lines.last().unwrap()["kind"], "exit");
    world.send("GET", &format!("/v1/sandboxes/web/execs/{id}/wait?timeout_ms=10")).await.expect(200);
    let signal = format!("/v1/sandboxes/web/execs/{id}/signal");
    world.send_json("POST", &signal, "{\"signal\": \"TERM\"}").await.refused(409, "exec_ended");
    world.send_json("POST", &signal, "{\"signal\": \"NOPE\"}").await.refused(400, "invalid_request");
    let resize = format!("/v1/sandboxes/web/execs/{id}/resize");
    world.send_json("POST", &resize, "{\"columns\": 0, \"rows\": 1}").await.refused(400, "invalid_request");
    world.send("GET", &format!("/v1/sandboxes/web/execs/{id}/attach")).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn an_exec_is_found_by_its_id_alone_by_keys_that_may_see_its_sandbox() {
    let world = World::new().await;
    let web = world.sandbox("web").await;
    let other = world.sandbox("other").await;
    let echo = "{\"argv\": [\"echo\", \"x\"]}";
    let exec = world.send_json("POST", "/v1/sandboxes/web/execs", echo).await.expect(201).json();
    let path = format!("/v1/execs/{}", exec["id"].as_str().unwrap());
    let found = world.send("GET", &path).await.expect(200).json();
    assert_eq!((&found["id"], &found["sandbox_id"]), (&exec["id"], &exec["sandbox_id"]));
    for unknown in ["exeaaaaaaaaaaaaaaaaaaaa", "web", &exec["id"].as_str().unwrap()[..9]] {
        world.send("GET", &format!("/v1/execs/{unknown}")).await.refused(404, "not_found");
    }
    world.send("GET", "/v1/execs/A%20B").await.refused(400, "invalid_request");
    // A key that is bound to another sandbox learns nothing about it; a key of its own sandbox does.
    for (sandbox, status) in [(&web, 200), (&other, 404)] {
        let key = world.new_key(Scope::Read, Some(sandbox)).await;
        assert_eq!(world.send_as(&key, "GET", &path).await.status, status);
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_run_has_its_own_error() {
    let world = World::new().await;
    world.sandbox("web").await;
    let nope = "{\"argv\": [\"nope\"]}";
    world.send_json("POST", "/v1/sandboxes/web/execs", nope).await.refused(422, "cannot_execute");
}
