//! Episodic memory: add, list, update, forget, erase, history, sessions, export and import, and past states.

use serde_json::{Value, json};

use super::World;

#[tokio::test]
async fn entries_are_stored_verbatim() {
    let world = World::new().await;
    world.sandbox("web").await;
    let body = json!({
        "text": "the deploy key lives in vault/ci\n\u{1b}[31mred", "kind": "fact", "importance": 0.9,
        "metadata": {"team": "infra"}, "source": "runbook.md", "session": "s1", "user": "ann", "agent": "fixer",
        "at_ms": 5_000,
    });
    let added = world.post("/v1/memory/web/entries", body.clone(), 201).await;
    let id = added["entries"][0]["id"].as_str().unwrap();
    assert_eq!(added["entries"][0]["existed"], false);
    let entry = world.fetch(&format!("/v1/memory/web/entries/{id}")).await;
    for field in ["text", "kind", "metadata", "source", "session", "user", "agent", "at_ms"] {
        assert_eq!(entry[field], body[field], "{field}");
    }
    assert_eq!((entry["version"].as_u64(), entry["count"].as_u64()), (Some(1), Some(1)));
    assert_eq!(world.texts("web", "?kind=fact&session=s1&user=ann").await.len(), 1);
    assert_eq!(world.texts("web", "?kind=note,decision").await.len(), 0);
    assert_eq!(world.texts("web", "?since_ms=5001").await.len(), 0);
}

#[tokio::test]
async fn a_key_is_stored_once_and_a_batch_atomically() {
    let world = World::new().await;
    world.sandbox("web").await;
    let one = json!({"text": "once", "key": "k"});
    let first = world.post("/v1/memory/web/entries", one.clone(), 201).await;
    let again = world.post("/v1/memory/web/entries", one, 200).await;
    assert_eq!(again["entries"][0]["id"], first["entries"][0]["id"]);
    assert_eq!(again["entries"][0]["existed"], true);
    let batch = json!({"entries": [{"text": "a"}, {"text": "b", "importance": 7}]});
    world.send_json("POST", "/v1/memory/web/entries", batch.to_string()).await.refused(422, "unprocessable");
    assert_eq!(world.texts("web", "").await, ["once"]);
    let batch = json!({"entries": [{"text": "a"}, {"text": "b"}]});
    let added = world.post("/v1/memory/web/entries", batch, 201).await;
    assert_eq!(added["entries"].as_array().unwrap().len(), 2);
    assert_eq!(world.texts("web", "").await, ["once", "a", "b"]);
    let page = world.fetch("/v1/memory/web/entries?limit=2").await;
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = world.fetch(&format!("/v1/memory/web/entries?limit=2&cursor={cursor}")).await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    assert!(rest.get("next_cursor").is_none());
}

#[tokio::test]
async fn an_update_creates_a_new_version_and_keeps_the_old_one() {
    let world = World::new().await;
    world.sandbox("web").await;
    let id = world.note("web", "the port is 80").await;
    let path = format!("/v1/memory/web/entries/{id}");
    let changed = json!({"text": "the port is 8080", "if_version": 1});
    let updated = world.send_json("PATCH", &path, changed.to_string()).await.expect(200).json();
    assert_eq!((updated["version"].as_u64(), updated["id"].as_str()), (Some(2), Some(id.as_str())));
    // A conflict reports the expected and the actual version.
    let refused = world.send_json("PATCH", &path, changed.to_string()).await;
    refused.refused(409, "conflict");
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains('1') && message.contains('2'), "{message}");
    let history = world.fetch(&format!("{path}/history")).await;
    let texts: Vec<&Value> =
        history.as_array().unwrap().iter().map(|version| &version["entry"]["text"]).collect();
    assert!(texts.contains(&&json!("the port is 80")) && texts.contains(&&json!("the port is 8080")));
    assert_eq!(world.texts("web", "").await, ["the port is 8080"]);
}

#[tokio::test]
async fn the_past_is_read_by_number_time_and_snapshot() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.note("web", "first").await;
    let seq = world.fetch("/v1/memory/web").await["seq"].as_u64().unwrap();
    world
        .send_json("POST", "/v1/sandboxes/web/snapshots", "{\"name\": \"before\", \"files_only\": true}")
        .await
        .expect(201);
    world.clock.advance(10_000);
    let id = world.note("web", "second").await;
    assert_eq!(world.texts("web", "").await, ["first", "second"]);
    for as_of in [seq.to_string(), "before".to_owned()] {
        let query = format!("?as_of={as_of}");
        assert_eq!(world.texts("web", &query).await, ["first"], "{as_of}");
        assert_eq!(world.fetch(&format!("/v1/memory/web{query}")).await["entries"], 1);
        let path = format!("/v1/memory/web/entries/{id}{query}");
        world.send("GET", &path).await.refused(404, "not_found");
        let body = json!({"query": "second"}).to_string();
        let found = world.send_json("POST", &format!("/v1/memory/web/search{query}"), body).await.expect(200);
        assert!(!String::from_utf8_lossy(&found.body).contains("second"));
    }
    // The simulated clock is at a thousand seconds, so times are written in RFC 3339.
    assert_eq!(world.texts("web", "?as_of=1970-01-01T00:16:45Z").await, ["first"]);
    assert_eq!(world.texts("web", "?as_of=1970-01-01T00:20:00%2B00:00").await, ["first", "second"]);
    world.send("GET", "/v1/memory/web?as_of=nowhere").await.refused(404, "not_found");
    world.send("GET", "/v1/memory/web?as_of=-1").await.refused(400, "invalid_request");
    // Past states cannot be written to: write requests have no such parameter.
    let body = json!({"text": "x"}).to_string();
    world.send_json("POST", "/v1/memory/web/entries?as_of=1", body).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn forgotten_entries_remain_in_past_states_and_erased_ones_do_not() {
    let world = World::new().await;
    world.sandbox("web").await;
    let (one, two) = (world.note("web", "alpha one").await, world.note("web", "alpha two").await);
    let seq = world.fetch("/v1/memory/web").await["seq"].as_u64().unwrap();
    let dry = json!({"ids": [one], "dry_run": true});
    assert_eq!(world.post("/v1/memory/web/forget", dry, 200).await["count"], 1);
    assert_eq!(world.texts("web", "").await.len(), 2);
    world.send("DELETE", &format!("/v1/memory/web/entries/{one}")).await.expect(204);
    world.send("DELETE", &format!("/v1/memory/web/entries/{one}")).await.refused(404, "not_found");
    assert_eq!(world.texts("web", "").await, ["alpha two"]);
    assert_eq!(world.texts("web", &format!("?as_of={seq}")).await, ["alpha one", "alpha two"]);
    let erased = world.post("/v1/memory/web/erase", json!({"ids": [one, two]}), 200).await;
    assert_eq!(erased["count"], 2);
    assert!(world.texts("web", &format!("?as_of={seq}")).await.is_empty());
    let exported = world.send("GET", &format!("/v1/memory/web/export?as_of={seq}")).await.expect(200);
    assert!(!String::from_utf8_lossy(&exported.body).contains("alpha"));
    for body in [json!({}), json!({"filter": {}}), json!({"ids": [two], "older_than_seconds": 1})] {
        for route in ["forget", "erase"] {
            let path = format!("/v1/memory/web/{route}");
            world.send_json("POST", &path, body.to_string()).await.refused(400, "invalid_request");
        }
    }
}

#[tokio::test]
async fn memory_is_exported_as_lines_and_imported_without_duplicates() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.sandbox("copy").await;
    for text in ["one", "two", "three"] {
        world.note("web", text).await;
    }
    let exported = world.send("GET", "/v1/memory/web/export").await.expect(200);
    assert_eq!(exported.headers["content-type"], "application/x-ndjson");
    for added in [3, 0] {
        let request = world.request(&world.key, "POST", "/v1/memory/copy/import");
        let imported =
            world.raw(request.body(exported.body.clone().into()).unwrap()).await.expect(200).json();
        assert_eq!(imported["added"], added);
    }
    assert_eq!(world.texts("copy", "").await, ["one", "two", "three"]);
    let request = world.request(&world.key, "POST", "/v1/memory/copy/import");
    let broken = world.raw(request.body("{\"line\": \"entry\"}\n".into()).unwrap()).await;
    broken.refused(400, "invalid_request");
    assert!(broken.json()["error"]["message"].as_str().unwrap().contains("line 1"));
    let request = world.request(&world.key, "POST", "/v1/memory/copy/import");
    world.raw(request.body("\u{0}\n".into()).unwrap()).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_turn_is_stored_once_and_opens_a_session() {
    let world = World::new().await;
    world.sandbox("web").await;
    let messages = json!([
        {"role": "user", "content": "which database do we use?"},
        {"role": "assistant", "content": [{"type": "text", "text": "PostgreSQL 17"}], "tool_calls": []},
    ]);
    let stored = world.post("/v1/memory/web/turns", json!({"messages": messages}), 201).await;
    assert_eq!((stored["added"].as_u64(), stored["ids"].as_array().unwrap().len()), (Some(2), 2));
    let again = world.post("/v1/memory/web/turns", json!({"messages": messages}), 201).await;
    assert_eq!((again["added"].as_u64(), &again["session"]), (Some(0), &stored["session"]));
    let sessions = world.fetch("/v1/memory/web/sessions").await;
    assert_eq!(sessions["items"][0]["session"], stored["session"]);
    assert_eq!(sessions["items"][0]["entries"], 2);
    world
        .send_json("POST", "/v1/memory/web/turns", "{\"messages\": []}")
        .await
        .refused(400, "invalid_request");
}

#[tokio::test]
async fn a_space_is_checked_and_its_indices_are_rebuilt() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.note("web", "sound").await;
    for route in ["check", "rebuild"] {
        let report = world.send("POST", &format!("/v1/memory/web/{route}")).await.expect(200).json();
        assert_eq!(
            (report["ok"].as_bool(), report["problems"].as_array().unwrap().len()),
            (Some(true), 0),
            "{report}"
        );
    }
    assert_eq!(world.found("web", "sound").await, ["sound"]);
}

#[tokio::test]
async fn memory_is_restored_forked_and_merged_with_its_sandbox() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.note("web", "before").await;
    let taken = "{\"name\": \"point\", \"files_only\": true}";
    world.send_json("POST", "/v1/sandboxes/web/snapshots", taken).await.expect(201);
    world.note("web", "mistake").await;
    let restore = "{\"snapshot\": \"point\", \"files_only\": true}";
    world.send_json("POST", "/v1/sandboxes/web/restore", restore).await.expect(200);
    assert_eq!(world.texts("web", "").await, ["before"]);
    let fork = "{\"names\": [\"child\"], \"files_only\": true}";
    world.send_json("POST", "/v1/sandboxes/web/fork", fork).await.expect(201);
    world.note("child", "learned by the child").await;
    world.note("web", "learned by the parent").await;
    assert_eq!(world.texts("child", "").await, ["before", "learned by the child"]);
    let dry = world.post("/v1/memory/web/merge", json!({"from": "child", "dry_run": true}), 200).await;
    assert_eq!(dry["added"], 1, "{dry}");
    assert_eq!(world.texts("web", "").await.len(), 2);
    assert_eq!(world.post("/v1/memory/web/merge", json!({"from": "child"}), 200).await["added"], 1);
    let mut texts = world.texts("web", "").await;
    texts.sort();
    assert_eq!(texts, ["before", "learned by the child", "learned by the parent"]);
    world.send_json("POST", "/v1/memory/web/merge", "{\"from\": \"nobody\"}").await.refused(404, "not_found");
}

#[tokio::test]
async fn consolidation_has_a_dry_run_and_loses_nothing() {
    let world = World::new().await;
    world.sandbox("web").await;
    for _ in 0..3 {
        world.note("web", "the build takes four minutes on this machine").await;
    }
    let asked = json!({"older_than_seconds": 0, "dry_run": true});
    let dry = world.post("/v1/memory/web/consolidate", asked, 200).await;
    assert_eq!((dry["dry_run"].as_bool(), dry["joined"].as_u64()), (Some(true), Some(2)), "{dry}");
    assert_eq!(world.texts("web", "").await.len(), 3);
    world.post("/v1/memory/web/consolidate", json!({"older_than_seconds": 0}), 200).await;
    assert_eq!(world.texts("web", "").await.len(), 1);
    assert_eq!(world.texts("web", "?include_cold=true").await.len(), 3);
    for bad in ["{\"target_share\": 2}", "{\"budget_ms\": 0}", "{\"entries\": 0}"] {
        world.send_json("POST", "/v1/memory/web/consolidate", bad).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn upkeep_consolidates_old_entries_and_leaves_the_rest() {
    let world = World::with("[memory]\nconsolidate_older_than = \"1m\"\n").await;
    world.sandbox("web").await;
    world.post("/v1/spaces", json!({"name": "team"}), 201).await;
    for of in ["web", "team"] {
        for _ in 0..3 {
            world.note(of, "the build takes four minutes on this machine").await;
        }
    }
    world.clock.advance(120_000);
    crate::periodic::memory::consolidate_all(&world.app).await;
    for of in ["web", "team"] {
        assert_eq!(world.texts(of, "").await.len(), 1, "{of}");
    }
    assert_eq!(crate::periodic::memory::work(&world.app).await.pending, 0);
}
