//! Skills through the API.

use serde_json::{Value, json};

use super::World;

fn skill(name: &str, steps: Value) -> Value {
    json!({
        "name": name, "description": "greets somebody politely", "when_to_use": "when somebody arrives",
        "parameters": [{"name": "who", "required": true}], "steps": steps,
    })
}

fn script(text: &str) -> Value {
    json!([{"kind": "script", "interpreter": "cat", "text": text}])
}

#[tokio::test]
async fn a_skill_is_stored_found_shown_rated_and_forgotten() {
    let world = World::new().await;
    world.sandbox("web").await;
    let steps = json!([{"kind": "command", "run": "echo {{who}}", "timeout_seconds": 5}]);
    let first = world.post("/v1/memory/web/skills", skill("greet", steps.clone()), 201).await;
    assert_eq!((first["version"].as_u64(), &first["steps"]), (Some(1), &steps));
    assert_eq!(world.post("/v1/memory/web/skills", skill("greet", steps), 201).await["version"], 2);
    assert_eq!(world.fetch("/v1/memory/web/skills/greet?version=1").await["version"], 1);
    assert_eq!(world.fetch("/v1/memory/web/skills/greet/versions").await.as_array().unwrap().len(), 2);
    assert_eq!(world.fetch("/v1/memory/web/skills").await["items"].as_array().unwrap().len(), 1);
    let asked = json!({"query": "how do I greet a guest politely"});
    let found = world.post("/v1/memory/web/skills/search", asked, 200).await;
    assert_eq!(
        (&found["hits"][0]["skill"]["name"], &found["hits"][0]["space"]),
        (&json!("greet"), &json!("web"))
    );
    let told = json!({"ok": false, "exit_code": 3, "detail": "nobody there"});
    let wiser = world.post("/v1/memory/web/skills/greet/outcome", told, 200).await;
    assert_eq!((wiser["failures"].as_u64(), &wiser["last"]["detail"]), (Some(1), &json!("nobody there")));
    world.send("DELETE", "/v1/memory/web/skills/greet").await.expect(204);
    world.send("GET", "/v1/memory/web/skills/greet").await.refused(404, "not_found");
    for name in ["search", "promote"] {
        let body = skill(name, script("x")).to_string();
        world.send_json("POST", "/v1/memory/web/skills", body).await.refused(422, "unprocessable");
    }
}

#[tokio::test]
async fn the_steps_of_a_skill_are_audited_and_leave_no_secret_in_memory() {
    let world = World::new().await;
    world.sandbox("web").await;
    // `fail` writes "error: no such table: users".
    let env = json!({ "API_TOKEN": "table: users" });
    let steps = json!([
        {"kind": "script", "interpreter": "cat", "text": "one"},
        {"kind": "script", "interpreter": "fail", "text": "", "env": env},
    ]);
    world.post("/v1/memory/web/skills", skill("leaky", steps), 201).await;
    let run = world.post("/v1/memory/web/skills/leaky/run", json!({"parameters": {"who": "x"}}), 200).await;
    assert_eq!(run["ok"], false);
    let page = world.fetch("/v1/audit?action=exec").await;
    let events: Vec<String> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|event| format!("{} {}", event["action"].as_str().unwrap(), event["reason"].as_str().unwrap()))
        .collect();
    let expected = ["exec.start cat", "exec.end exited with 0", "exec.start fail", "exec.end exited with 1"];
    assert_eq!(events, expected);
    // Execs are recorded in the background, by tasks of the daemon.
    while !world.app.tasks.is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let entries = world.fetch("/v1/memory/web/entries").await.to_string();
    assert!(entries.contains("no such") && !entries.contains("table: users"), "{entries}");
    let outcome = world.fetch("/v1/memory/web/skills/leaky").await["last"].to_string();
    assert!(outcome.contains("no such") && !outcome.contains("table: users"), "{outcome}");
}

#[tokio::test]
async fn a_skill_runs_to_its_first_failure_and_records_the_outcome() {
    let world = World::new().await;
    world.sandbox("web").await;
    let two = json!([
        {"kind": "script", "interpreter": "cat", "text": "one"},
        {"kind": "script", "interpreter": "cat", "text": "two"},
    ]);
    world.post("/v1/memory/web/skills", skill("twice", two), 201).await;
    let run = world.post("/v1/memory/web/skills/twice/run", json!({"parameters": {"who": "x"}}), 200).await;
    assert_eq!((run["ok"].as_bool(), run["recorded"].as_bool()), (Some(true), Some(true)), "{run}");
    let said: Vec<&Value> = run["steps"].as_array().unwrap().iter().map(|step| &step["stdout"]).collect();
    assert_eq!(said, ["one", "two"]);
    assert_eq!(world.fetch("/v1/memory/web/skills/twice").await["successes"], 1);
    let fails = json!([
        {"kind": "script", "interpreter": "false", "text": ""},
        {"kind": "script", "interpreter": "cat", "text": "never"},
    ]);
    world.post("/v1/memory/web/skills", skill("broken", fails), 201).await;
    let body = json!({"parameters": {"who": "x"}, "stream": true}).to_string();
    let streamed = world.send_json("POST", "/v1/memory/web/skills/broken/run", body).await.expect(200);
    let kinds: Vec<Value> = String::from_utf8_lossy(&streamed.body)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["start", "step", "end"]);
    let skill = world.fetch("/v1/memory/web/skills/broken").await;
    assert_eq!((skill["failures"].as_u64(), skill["last"]["exit_code"].as_i64()), (Some(1), Some(1)));
}

#[tokio::test]
async fn a_skill_with_a_step_that_cannot_be_run_is_not_started() {
    let world = World::new().await;
    world.sandbox("web").await;
    let calls = json!([{"kind": "script", "interpreter": "cat", "text": "x"}, {"kind": "tool-call", "tool": "browse"}]);
    world.post("/v1/memory/web/skills", skill("calls", calls), 201).await;
    let run = json!({"parameters": {"who": "x"}}).to_string();
    world
        .send_json("POST", "/v1/memory/web/skills/calls/run", run.clone())
        .await
        .refused(422, "unprocessable");
    world.post("/v1/memory/web/skills", skill("greet", script("x")), 201).await;
    world.send_json("POST", "/v1/memory/web/skills/greet/run", "{}").await.refused(422, "unprocessable");
    world.send_json("POST", "/v1/memory/web/skills/nobody/run", run.clone()).await.refused(404, "not_found");
    let elsewhere = json!({"parameters": {"who": "x"}, "sandbox": "nobody"}).to_string();
    world.send_json("POST", "/v1/memory/web/skills/greet/run", elsewhere).await.refused(404, "not_found");
    // A space has no sandbox to run in, unless the request names one.
    world.post("/v1/spaces", json!({"name": "team"}), 201).await;
    world.post("/v1/memory/team/skills", skill("greet", script("hi")), 201).await;
    world.send_json("POST", "/v1/memory/team/skills/greet/run", run).await.refused(400, "invalid_request");
    let here = json!({"parameters": {"who": "x"}, "sandbox": "web"});
    assert_eq!(world.post("/v1/memory/team/skills/greet/run", here, 200).await["ok"], true);
}

#[tokio::test]
async fn execs_are_promoted_to_a_skill() {
    let world = World::new().await;
    world.sandbox("web").await;
    for words in ["first", "alpha beta", "last"] {
        world.post("/v1/sandboxes/web/execs", json!({"argv": ["echo", words], "wait": true}), 200).await;
    }
    // The rows of execs are written asynchronously.
    world.send("POST", "/v1/sandboxes/web/stop").await.expect(200);
    // The simulated guest starts all of them in the same millisecond, so their order is that of the list.
    let listed = world.fetch("/v1/sandboxes/web/execs").await;
    let ids: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|exec| exec["id"].as_str().unwrap()).collect();
    let body = json!({
        "name": "greeting", "first": ids[2], "last": ids[0], "description": "says words",
        "parameters": {"word": "alpha"},
    });
    let made = world.post("/v1/memory/web/skills/promote", body, 201).await;
    let runs: Vec<&str> =
        made["steps"].as_array().unwrap().iter().map(|step| step["run"].as_str().unwrap()).collect();
    assert_eq!(runs.len(), 3, "{made}");
    assert!(runs.contains(&"echo {{word}}' beta'") && !runs.concat().contains("alpha"), "{runs:?}");
    assert_eq!(made["parameters"][0]["default"], "alpha");
    assert!(made["source"].as_str().unwrap().contains(ids[0]));
    let unknown = json!({"name": "x", "first": "exeaaaaaaaaaaaaaaaaaaaa"}).to_string();
    world.send_json("POST", "/v1/memory/web/skills/promote", unknown).await.refused(404, "not_found");
}
