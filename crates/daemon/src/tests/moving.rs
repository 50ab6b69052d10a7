//! Exports and imports through the API: who may use them, and their errors.

use axum::body::Body;
use burrow_model::{SandboxId, Scope};

use super::world::{Answer, World};

async fn import(world: &World, key: &str, query: &str, bytes: &[u8]) -> Answer {
    let request = world.request(key, "POST", &format!("/v1/snapshots{query}"));
    let request = request.header("content-type", "application/octet-stream");
    world.raw(request.body(Body::from(bytes.to_vec())).unwrap()).await
}

async fn taken(world: &World) -> String {
    let id = world.sandbox("web").await;
    world.disks.write(&id.parse::<SandboxId>().unwrap(), "/a", "1").unwrap();
    let body = "{\"name\": \"clean\"}".to_owned();
    let snapshot = world.send_json("POST", "/v1/sandboxes/web/snapshots", body).await.expect(201).json();
    snapshot["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_can_be_imported_and_used() {
    let world = World::new().await;
    let id = taken(&world).await;
    let exported = world.send("GET", "/v1/snapshots/clean/export").await.expect(200);
    assert!(exported.headers["x-burrow-signer"].to_str().unwrap().starts_with("burrow-export+"));
    assert_eq!(exported.headers["content-type"], "application/octet-stream");
    let imported = import(&world, &world.key, "?name=twin", &exported.body).await.expect(201).json();
    assert_eq!(imported["origin"], id.as_str());
    assert_eq!(
        (&imported["snapshot"]["name"], &imported["snapshot"]["processes"]),
        (&"twin".into(), &true.into())
    );
    let again = import(&world, &world.key, "?name=twin", &exported.body).await.expect(409);
    assert!(again.json()["error"]["message"].as_str().unwrap().contains("is taken"));
    // If no name is requested and its original name is taken, the import has no name.
    let files = import(&world, &world.key, "?files_only=true", &exported.body).await.expect(201).json();
    assert_eq!(
        (&files["snapshot"]["name"], &files["snapshot"]["processes"]),
        (&serde_json::Value::Null, &false.into())
    );
    let made =
        world.send_json("POST", "/v1/snapshots/twin/sandboxes", "{\"name\": \"other\"}").await.expect(201);
    assert_eq!(made.json()["state"], "running");
    // The base snapshot exists here now, so only the differences need to be sent.
    world.send("GET", "/v1/snapshots/twin/export?since=clean").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_exports_are_rejected_with_a_hint() {
    let world = World::new().await;
    taken(&world).await;
    let exported = world.send("GET", "/v1/snapshots/clean/export").await.expect(200).body;
    for (bytes, code, hint) in [
        (&b"nonsense"[..], "unprocessable", "burrow export"),
        (b"", "unprocessable", "burrow export"),
        (b"age-encryption.org/v1", "unprocessable", "--identity"),
        (&exported[..exported.len() - 1], "unprocessable", "copy it again"),
    ] {
        let refused = import(&world, &world.key, "", bytes).await.expect(422).json();
        assert_eq!(refused["error"]["code"], code);
        assert!(refused["error"]["hint"].as_str().unwrap().contains(hint), "{refused}");
    }
    for query in ["?name=NOT%20A%20NAME", "?unknown=1", "?files_only=perhaps", "?trust=nobody"] {
        import(&world, &world.key, query, &exported).await.expect(400);
    }
    world.send("GET", "/v1/snapshots/clean/export?since=missing").await.expect(404);
    world.send("GET", "/v1/snapshots/missing/export").await.expect(404);
    let left = world.send("GET", "/v1/snapshots").await.expect(200).json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn export_needs_read_import_needs_exec_and_trust_needs_admin() {
    let world = World::new().await;
    taken(&world).await;
    let reader = world.new_key(Scope::Read, None).await;
    let executor = world.new_key(Scope::Exec, None).await;
    let exported = world.send_as(&reader, "GET", "/v1/snapshots/clean/export").await.expect(200).body;
    import(&world, &reader, "", &exported).await.expect(403);
    import(&world, &executor, "", &exported).await.expect(201);
    let trust = format!("?trust=burrow-export%2B{}", "A".repeat(43));
    import(&world, &executor, &trust, &exported).await.expect(403);
    import(&world, &world.key, &trust, &exported).await.expect(201);
    // A key that is bound to one sandbox may export that sandbox's snapshots, and import nothing.
    let other = world.sandbox("other").await;
    let bound = world.new_key(Scope::Exec, Some(&other)).await;
    world.send_as(&bound, "GET", "/v1/snapshots/clean/export").await.expect(404);
    import(&world, &bound, "", &exported).await.expect(403);
    world.send_as("", "GET", "/v1/snapshots/clean/export").await.expect(401);
}
