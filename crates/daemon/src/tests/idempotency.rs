//! A create that is repeated is executed once.

use axum::body::Body;

use super::world::{Answer, World};

async fn send(world: &World, path: &str, key: &str, body: &str) -> Answer {
    let request = world
        .request(&world.key, "POST", path)
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    world.raw(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn creating_a_sandbox_twice_with_one_key_creates_one() {
    let world = World::new().await;
    let first = send(&world, "/v1/sandboxes", "k1", "{}").await.expect(201).json();
    let second = send(&world, "/v1/sandboxes", "k1", "{}").await.expect(200).json();
    assert_eq!(first["id"], second["id"]);
    send(&world, "/v1/sandboxes", "k1", "{\"name\": \"x\"}").await.refused(422, "idempotency_mismatch");
    send(&world, "/v1/sandboxes", "k2", "{}").await.expect(201);
    let (a, b) =
        tokio::join!(send(&world, "/v1/sandboxes", "k3", "{}"), send(&world, "/v1/sandboxes", "k3", "{}"));
    assert_eq!(a.json()["id"], b.json()["id"]);
}

#[tokio::test]
async fn sending_an_exec_twice_with_one_key_runs_it_once() {
    let world = World::new().await;
    world.sandbox("web").await;
    world.sandbox("other").await;
    let echo = "{\"argv\": [\"echo\", \"hi\"], \"wait\": true}";
    let first = send(&world, "/v1/sandboxes/web/execs", "k1", echo).await.expect(200).json();
    let second = send(&world, "/v1/sandboxes/web/execs", "k1", echo).await.expect(200).json();
    assert_eq!(first, second);
    let mismatch = "{\"argv\": [\"echo\", \"ho\"]}";
    send(&world, "/v1/sandboxes/web/execs", "k1", mismatch).await.refused(422, "idempotency_mismatch");
    send(&world, "/v1/sandboxes/other/execs", "k1", echo).await.refused(422, "idempotency_mismatch");
}

#[tokio::test]
async fn a_failed_create_may_be_repeated() {
    let world = World::new().await;
    world.sandbox("web").await;
    let bad = "{\"argv\": [\"nope\"]}";
    for _ in 0..2 {
        send(&world, "/v1/sandboxes/web/execs", "k1", bad).await.refused(422, "cannot_execute");
    }
}

#[tokio::test]
async fn a_repeat_of_a_request_in_progress_has_its_own_error() {
    let world = World::new().await;
    world.sandbox("web").await;
    let sleep = "{\"argv\": [\"sleep\"], \"wait\": true}";
    let first = send(&world, "/v1/sandboxes/web/execs", "k1", sleep);
    let second = async {
        // Polled after the first one has started.
        loop {
            let answer = send(&world, "/v1/sandboxes/web/execs", "k1", sleep).await;
            if answer.code() == "idempotency_in_flight" {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        // On a busy machine the other copy may have overtaken it: then this one gets the error.
        answer = first => answer.refused(409, "idempotency_in_flight"),
        answer = second => answer.refused(409, "idempotency_in_flight"),
    }
}

#[tokio::test]
async fn creating_a_key_twice_creates_one_and_shows_its_secret_once() {
    let world = World::new().await;
    let body = "{\"name\": \"ci\", \"scope\": \"read\"}";
    let first = send(&world, "/v1/keys", "k1", body).await.expect(201).json();
    let second = send(&world, "/v1/keys", "k1", body).await.expect(201).json();
    assert_eq!(first["key"]["id"], second["key"]["id"]);
    assert_eq!(second["secret"], "");
}
