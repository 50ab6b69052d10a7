//! Embedders that are slow, down or replaced: writes continue, vectors follow, and results report the coverage.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use burrow_memory::{Budget, Limits};

use crate::world::{WordEmbedder, World, add, assert_sound, by_meaning, by_words, texts};

const ROUND: Budget = Budget { rows: 10_000 };

#[tokio::test]
async fn a_slow_embedder_fills_in_vectors_after_the_write() {
    let world = World::with(WordEmbedder::new("slow", 96, false), Limits::usual()).await;
    let view = world.own();
    for number in 0..10 {
        add(&view, &format!("entry number {number}")).await;
    }
    assert_eq!(world.embedder.calls.load(Ordering::SeqCst), 0, "no write waits for it");
    let stats = view.stats().await.unwrap().vectors;
    assert_eq!((stats.covered, stats.pending), (0, 10));
    assert_sound(&view).await;
    assert!(by_meaning(&view, world.embedder.vector("entry")).await.is_empty());
    assert_eq!(by_words(&view, "entry").await.len(), 10);
    world.memory.wait_for_work().await;
    let worked = world.memory.work(Budget { rows: 4 }).await;
    assert_eq!((worked.embedded, worked.pending), (4, 6), "a round keeps to its budget");
    let worked = world.memory.work(ROUND).await;
    assert_eq!((worked.embedded, worked.pending), (6, 0));
    assert_eq!(by_meaning(&view, world.embedder.vector("entry")).await.len(), 10);
    assert_sound(&view).await;
}

#[tokio::test]
async fn a_failing_embedder_is_retried_with_growing_pauses() {
    let world = World::with(WordEmbedder::new("slow", 64, false), Limits::usual()).await;
    let view = world.own();
    world.embedder.down.store(true, Ordering::SeqCst);
    add(&view, "written all the same").await;
    let worked = world.memory.work(ROUND).await;
    assert_eq!((worked.embedded, worked.pending), (0, 1));
    assert!(worked.failed.as_ref().is_some_and(|why| why.contains("it is down")), "{worked:?}");
    assert_eq!(worked.retry_in_ms, Some(1000));
    let calls = world.embedder.calls.load(Ordering::SeqCst);
    world.memory.work(ROUND).await;
    assert_eq!(world.embedder.calls.load(Ordering::SeqCst), calls, "it is left alone for a while");
    world.clock.advance(1000);
    assert_eq!(world.memory.work(ROUND).await.retry_in_ms, Some(2000));
    world.embedder.down.store(false, Ordering::SeqCst);
    world.clock.advance(2000);
    let worked = world.memory.work(ROUND).await;
    assert_eq!((worked.embedded, worked.pending, worked.retry_in_ms), (1, 0, None));
    assert_sound(&view).await;
}

#[tokio::test]
async fn an_immediate_embedder_that_fails_does_not_fail_the_write() {
    let world = World::new().await;
    let view = world.own();
    world.embedder.down.store(true, Ordering::SeqCst);
    add(&view, "one").await;
    world.embedder.down.store(false, Ordering::SeqCst);
    add(&view, "two").await;
    assert_eq!(view.stats().await.unwrap().vectors.pending, 1);
    assert_eq!(world.memory.work(ROUND).await.embedded, 1);
    assert_eq!(view.stats().await.unwrap().vectors.pending, 0);
}

#[tokio::test]
async fn another_model_embeds_everything_again_and_vectors_never_mix() {
    let mut world = World::with(WordEmbedder::new("first", 64, true), Limits::usual()).await;
    let of = world.own().of().clone();
    let view = world.memory.view(&of);
    for number in 0..300 {
        add(&view, &format!("entry {number}")).await;
    }
    let old = world.embedder.vector("entry 7");
    world.reopen(WordEmbedder::new("second", 128, true)).await;
    let view = world.memory.view(&of);
    add(&view, "entry of the second").await;
    let stats = view.stats().await.unwrap().vectors;
    assert_eq!((stats.covered, stats.pending), (1, 300));
    assert_eq!(by_meaning(&view, world.embedder.vector("entry")).await, ["entry of the second"]);
    assert!(by_meaning(&view, old.clone()).await.is_empty(), "a vector of another model finds nothing");
    assert_sound(&view).await;
    // Stopped midway and started again: finished work is not repeated.
    assert_eq!(world.memory.work(Budget { rows: 100 }).await.embedded, 100);
    assert_sound(&view).await;
    let second = Arc::clone(&world.embedder);
    world.reopen(second).await;
    let view = world.memory.view(&of);
    assert_eq!(view.stats().await.unwrap().vectors.pending, 200);
    let mut rounds = 0;
    while world.memory.work(Budget { rows: 100 }).await.pending > 0 {
        rounds += 1;
        assert!(rounds < 10);
    }
    assert_eq!(by_meaning(&view, world.embedder.vector("entry 7")).await[0], "entry 7");
    assert_sound(&view).await;
    // The same name with other dimensions is another model.
    world.reopen(WordEmbedder::new("second", 64, true)).await;
    let view = world.memory.view(&of);
    assert_eq!(view.stats().await.unwrap().vectors.pending, 301);
    assert_eq!(texts(&view).await.len(), 301);
}
