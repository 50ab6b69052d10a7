//! Concurrent writers, failing jobs, spaces that are opened and closed all the time.

use std::collections::BTreeSet;
use std::sync::Arc;

use burrow_memory::{Limits, LogKind, MemoryError, View};

use crate::world::{WordEmbedder, World, add, assert_sound, note, texts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_writers_lose_nothing_and_share_no_number() {
    let world = World::new().await;
    let parent = world.own();
    add(&parent, "root").await;
    let mut views: Vec<View> = vec![parent.clone(); 25];
    for _ in 0..25 {
        views.push(world.fork(&parent).await);
    }
    let tasks: Vec<_> = views
        .into_iter()
        .enumerate()
        .map(|(writer, view)| {
            tokio::spawn(async move {
                let mut numbers = Vec::new();
                for at in 0..10 {
                    let added = view.add(vec![note(&format!("writer {writer} entry {at}"))]).await.unwrap();
                    numbers.push(added[0].seq);
                    assert!(view.get(&added[0].id).await.is_ok(), "a writer sees what it wrote");
                }
                assert!(numbers.is_sorted());
                (view, numbers)
            })
        })
        .collect();
    let mut numbers = BTreeSet::new();
    let mut views = Vec::new();
    for task in tasks {
        let (view, its) = task.await.unwrap();
        numbers.extend(its);
        views.push(view);
    }
    for (writer, view) in views.into_iter().enumerate() {
        let seen = texts(&view).await.len();
        assert_eq!(seen, if writer < 25 { 251 } else { 11 });
    }
    assert_eq!(numbers.len(), 500);
    let report = parent.check().await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!((report.rows, report.seq, report.branches), (501, 501, 26));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_or_panicked_job_rolls_back_only_its_own_changes() {
    let world = World::new().await;
    let view = world.own();
    let failing = |panics: bool| {
        let view = world.memory.view(view.of());
        async move {
            view.write(move |writer| -> Result<(), MemoryError> {
                let seq = writer.next_seq(LogKind::Kv)?;
                writer.connection().execute("INSERT INTO words (no, word) VALUES (999, 'x')", ())?;
                assert!(!panics, "on purpose");
                Err(MemoryError::NotFound { what: "thing", id: seq.to_string() })
            })
            .await
        }
    };
    for round in 0..10 {
        let (before, after) = (format!("before {round}"), format!("after {round}"));
        let (first, failed, panicked, last) = tokio::join!(
            view.add(vec![note(&before)]),
            failing(false),
            failing(true),
            view.add(vec![note(&after)])
        );
        first.unwrap();
        last.unwrap();
        assert!(matches!(failed, Err(MemoryError::NotFound { .. })), "{failed:?}");
        assert!(matches!(panicked, Err(MemoryError::Panicked)), "{panicked:?}");
    }
    assert_eq!(texts(&view).await.len(), 20);
    assert_sound(&view).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_spaces_than_may_be_open_are_closed_and_opened_as_they_are_used() {
    let limits = Limits { open_spaces_max: 2, ..Limits::usual() };
    let world = World::with(WordEmbedder::new("words", 64, true), limits).await;
    let views: Vec<View> = (0..8).map(|_| world.own()).collect();
    let tasks: Vec<_> = views
        .iter()
        .map(|view| {
            let view = view.clone();
            tokio::spawn(async move {
                for at in 0..6 {
                    add(&view, &format!("entry {at}")).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for view in &views {
        assert_eq!(texts(view).await.len(), 6);
        assert_sound(view).await;
    }
    assert_eq!(world.memory.spaces().await.unwrap().len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_spaces_are_closed_and_their_watchers_continue() {
    let world = World::new().await;
    let view = world.own();
    let mut changes = view.changes();
    add(&view, "one").await;
    assert_eq!(changes.recv().await.unwrap(), 1);
    world.clock.advance(Limits::usual().idle_ms + 1);
    // The thread that drained the queue may use it for a moment longer.
    while world.memory.work(burrow_memory::Budget { rows: 100 }).await.closed == 0 {
        tokio::task::yield_now().await;
    }
    let file = world.file(&view.of().space);
    assert!(!std::path::PathBuf::from(format!("{}-wal", file.display())).exists(), "its journal is gone");
    add(&view, "two").await;
    assert_eq!(changes.recv().await.unwrap(), 2);
    assert_eq!(texts(&view).await, ["one", "two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_memory_refuses_requests_and_keeps_its_data() {
    let mut world = World::new().await;
    let view = world.own();
    add(&view, "kept").await;
    let embedder = Arc::clone(&world.embedder);
    world.reopen(embedder).await;
    assert!(matches!(view.add(vec![note("late")]).await, Err(MemoryError::Closed)));
    assert_eq!(texts(&world.memory.view(view.of())).await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_whole_commits_while_others_write() {
    let world = World::new().await;
    let view = world.own();
    add(&view, "pair").await;
    add(&view, "pair").await;
    let writing = view.clone();
    let writer = tokio::spawn(async move {
        for _ in 0..60 {
            writing.add(vec![note("pair"), note("pair")]).await.unwrap();
        }
    });
    let mut last = 0;
    while last < 122 {
        let done = writer.is_finished();
        let (listed, words) = view
            .read(|reader| {
                let terms = [burrow_memory::QueryTerm::word("pair")];
                Ok((reader.len(), reader.lexical(&terms, 1000)?.hits.len() as u64))
            })
            .await
            .unwrap();
        assert_eq!(listed % 2, 0, "a batch is seen whole or not at all");
        assert_eq!(listed, words, "columns and text index are of the same moment");
        assert!(listed >= last && (!done || listed == 122));
        last = listed;
    }
    writer.await.unwrap();
}
