//! Files through the API.

use axum::body::Body;
use bytes::Bytes;

use super::world::World;

async fn put(world: &World, path: &str, body: impl Into<Body>) -> super::world::Answer {
    let uri = format!("/v1/sandboxes/web/files?path={path}");
    world.raw(world.request(&world.key, "PUT", &uri).body(body.into()).unwrap()).await
}

#[tokio::test]
async fn written_files_are_read_whole_and_in_ranges() {
    let world = World::new().await;
    world.sandbox("web").await;
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let entry = put(&world, "/big", bytes.clone()).await.expect(200).json();
    assert_eq!((&entry["size"], &entry["mode"]), (&3_000_000.into(), &"0644".into()));
    let whole = world.send("GET", "/v1/sandboxes/web/files?path=/big").await.expect(200);
    assert_eq!(whole.body, bytes);
    assert_eq!(
        (&whole.headers["content-length"], &whole.headers["x-burrow-mode"]),
        (&"3000000".parse().unwrap(), &"0644".parse().unwrap())
    );
    for (range, expected, told) in [
        ("bytes=0-9", &bytes[..10], "bytes 0-9/3000000"),
        ("bytes=2999990-", &bytes[2_999_990..], "bytes 2999990-2999999/3000000"),
        ("bytes=-5", &bytes[2_999_995..], "bytes 2999995-2999999/3000000"),
    ] {
        let request =
            world.request(&world.key, "GET", "/v1/sandboxes/web/files?path=/big").header("range", range);
        let part = world.raw(request.body(Body::empty()).unwrap()).await.expect(206);
        assert_eq!((&part.body[..], part.headers["content-range"].to_str().unwrap()), (expected, told));
    }
    let beyond = world
        .request(&world.key, "GET", "/v1/sandboxes/web/files?path=/big")
        .header("range", "bytes=3000000-");
    let answer = world.raw(beyond.body(Body::empty()).unwrap()).await;
    answer.refused(416, "range_not_satisfiable");
    assert_eq!(answer.headers["content-range"], "bytes */3000000");
}

#[tokio::test]
async fn an_empty_file_is_an_empty_response() {
    let world = World::new().await;
    world.sandbox("web").await;
    put(&world, "/empty", Body::empty()).await.expect(200);
    let answer = world.send("GET", "/v1/sandboxes/web/files?path=/empty").await.expect(200);
    assert_eq!((answer.body.len(), &answer.headers["content-length"]), (0, &"0".parse().unwrap()));
}

#[tokio::test]
async fn a_full_disk_is_reported_while_the_body_is_still_being_sent() {
    let world = World::new().await;
    world.sandbox("web").await;
    let pieces =
        futures_util::stream::iter((0..50).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; 65_536]))));
    put(&world, "/full", Body::from_stream(pieces)).await.refused(507, "no_space");
}

#[tokio::test]
async fn an_interrupted_body_writes_nothing() {
    let world = World::new().await;
    world.sandbox("web").await;
    let pieces = [Ok(Bytes::from_static(b"part")), Err(std::io::Error::other("the client is gone"))];
    put(&world, "/broken", Body::from_stream(futures_util::stream::iter(pieces)))
        .await
        .refused(400, "invalid_request");
    world.send("GET", "/v1/sandboxes/web/files?path=/broken").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_watch_first_reports_that_it_is_ready() {
    let world = World::new().await;
    world.sandbox("web").await;
    let answer = world.send("GET", "/v1/sandboxes/web/files/watch?path=/&recursive=true").await.expect(200);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let kinds: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["ready", "created"]);
}

#[tokio::test]
async fn a_listing_is_one_document_regardless_of_its_number_of_pieces() {
    let world = World::new().await;
    world.sandbox("web").await;
    let empty = world.send("GET", "/v1/sandboxes/web/files/list?path=/").await.expect(200).json();
    assert_eq!(empty, serde_json::json!({"entries": []}));
    for path in ["/a", "/b", "/c"] {
        put(&world, path, "x").await.expect(200);
    }
    let list: burrow_api::FileList = serde_json::from_slice(
        &world.send("GET", "/v1/sandboxes/web/files/list?path=/").await.expect(200).body,
    )
    .unwrap();
    assert_eq!(list.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["/a", "/b", "/c"]);
}
