//! Artifacts through the API.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use super::World;

async fn put(world: &World, path: &str, body: impl Into<Body>) -> super::super::world::Answer {
    let request = world.request(&world.key, "PUT", path).header("content-type", "text/plain");
    world.raw(request.header("x-burrow-metadata", "{\"by\":\"caf\\u00e9\"}").body(body.into()).unwrap()).await
}

#[tokio::test]
async fn artifacts_have_versions_and_are_read_in_ranges() {
    let world = World::new().await;
    world.sandbox("web").await;
    let path = "/v1/memory/web/artifacts/reports/q3.txt";
    let first = put(&world, path, "0123456789").await.expect(201).json();
    assert_eq!((first["version"].as_u64(), first["bytes"].as_u64()), (Some(1), Some(10)));
    assert_eq!(
        (&first["media_type"], &first["metadata"]),
        (&json!("text/plain"), &json!({"by": "caf\u{e9}"}))
    );
    let second = put(&world, path, "other bytes").await.expect(201).json();
    assert_eq!(second["version"], 2);
    let whole = world.send("GET", &format!("{path}?version=1")).await.expect(200);
    assert_eq!(whole.body, "0123456789");
    let tag = whole.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", first["hash"].as_str().unwrap()));
    assert_eq!(
        (&whole.headers["content-type"], &whole.headers["content-length"]),
        (&"text/plain".parse().unwrap(), &"10".parse().unwrap())
    );
    assert!(whole.headers["x-burrow-metadata"].to_str().unwrap().contains("caf\\u00e9"));
    let part = |range: &str| {
        let request = world.request(&world.key, "GET", &format!("{path}?version=1")).header("range", range);
        world.raw(request.body(Body::empty()).unwrap())
    };
    let middle = part("bytes=2-4").await.expect(206);
    assert_eq!(
        (middle.body, &middle.headers["content-range"]),
        (Bytes::from("234"), &"bytes 2-4/10".parse().unwrap())
    );
    assert_eq!(part("bytes=-3").await.expect(206).body, "789");
    part("bytes=10-").await.refused(416, "range_not_satisfiable");
    let known = world.request(&world.key, "GET", &format!("{path}?version=1")).header("if-none-match", &tag);
    assert!(world.raw(known.body(Body::empty()).unwrap()).await.expect(304).body.is_empty());
    let head = world.send("HEAD", path).await.expect(200);
    assert!(head.body.is_empty() && head.headers["content-length"] == "11");
    let listed = world.fetch("/v1/memory/web/artifacts?prefix=reports/").await;
    assert_eq!((listed["items"].as_array().unwrap().len(), &listed["items"][0]["version"]), (1, &json!(2)));
    let versions = world.fetch("/v1/memory/web/artifact-versions/reports/q3.txt").await;
    assert_eq!(versions.as_array().unwrap().len(), 2);
    let seq = world.fetch("/v1/memory/web").await["seq"].as_u64().unwrap();
    world.send("DELETE", path).await.expect(204);
    world.send("GET", path).await.refused(404, "not_found");
    assert_eq!(world.send("GET", &format!("{path}?as_of={seq}")).await.expect(200).body, "other bytes");
    assert_eq!(put(&world, "/v1/memory/web/artifacts/empty", "").await.expect(201).json()["bytes"], 0);
    assert!(world.send("GET", "/v1/memory/web/artifacts/empty").await.expect(200).body.is_empty());
}

#[tokio::test]
async fn a_large_artifact_is_streamed() {
    let world = World::new().await;
    world.sandbox("web").await;
    let piece = Bytes::from(vec![7; 1 << 20]);
    let body = stream::iter((0..40).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    let path = "/v1/memory/web/artifacts/large";
    let stored = put(&world, path, Body::from_stream(body)).await.expect(201).json();
    assert_eq!(stored["bytes"], 40 << 20);
    let back = world.send("GET", path).await.expect(200);
    assert_eq!((back.body.len(), back.body.iter().all(|byte| *byte == 7)), (40 << 20, true));
}

#[tokio::test]
async fn invalid_artifacts_are_rejected() {
    let world = World::with("[memory]\nartifact = \"1K\"\n").await;
    world.sandbox("web").await;
    let path = "/v1/memory/web/artifacts/a";
    put(&world, path, vec![0; 1025]).await.refused(413, "too_large");
    let sly =
        Body::from_stream(stream::iter((0..3).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; 512])))));
    put(&world, path, sly).await.refused(413, "too_large");
    world.send("GET", path).await.refused(404, "not_found");
    let broken = Body::from_stream(stream::iter([Ok(Bytes::from("ab")), Err(std::io::Error::other("gone"))]));
    let answer = put(&world, path, broken).await;
    assert!(answer.status.is_client_error(), "{answer:?}");
    world.send("GET", path).await.refused(404, "not_found");
    for name in ["../etc/passwd", "a//b", "%1b[31m", "."] {
        let answer = put(&world, &format!("/v1/memory/web/artifacts/{name}"), "x").await;
        assert!(matches!(answer.status.as_u16(), 404 | 422), "{name}: {answer:?}");
    }
    for (name, value) in
        [("content-type", "nonsense"), ("x-burrow-metadata", "[1]"), ("x-burrow-metadata", "{")]
    {
        let request = world.request(&world.key, "PUT", path).header(name, value);
        world.raw(request.body(Body::from("x")).unwrap()).await.refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn errors_about_a_full_space_or_disk_contain_limit_and_use() {
    let world = World::with("[memory]\nspace_artifacts = \"1K\"\n").await;
    world.sandbox("web").await;
    put(&world, "/v1/memory/web/artifacts/a", vec![1; 600]).await.expect(201);
    let path = "/v1/memory/web/artifacts/b";
    let told = put(&world, path, vec![2; 600]).await;
    let sly = stream::iter((0..3).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; 200]))));
    let streamed = put(&world, path, Body::from_stream(sly)).await;
    for answer in [told, streamed] {
        answer.refused(507, "no_space");
        let error = answer.json()["error"].to_string();
        assert!(error.contains("600 of 1024 bytes"), "{error}");
        assert!(error.contains("memory.space_artifacts"), "{error}");
    }
    world.send("GET", path).await.refused(404, "not_found");
    put(&world, path, vec![2; 424]).await.expect(201);
    let world = World::with("[memory]\ndisk_reserve = \"64T\"\n").await;
    world.sandbox("web").await;
    let answer = put(&world, path, "x").await;
    answer.refused(507, "no_space");
    let error = answer.json()["error"].to_string();
    assert!(error.contains("must stay free") && error.contains("memory.disk_reserve"), "{error}");
}
