//! Many rows: pages, common terms, spaces that are opened again.

use std::sync::Arc;

use burrow_memory::{Filter, QueryTerm};

use crate::world::{World, assert_sound, listed, note};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rare_terms_are_preferred_and_common_ones_alone_return_the_newest() {
    let mut world = World::new().await;
    let of = world.own().of().clone();
    let view = world.memory.view(&of);
    for batch in 0..45 {
        let entry = |at: usize| {
            let number: usize = batch * 1000 + at;
            note(&format!(
                "common usual {} {}",
                if number.is_multiple_of(500) { "scarce" } else { "" },
                number % 7
            ))
        };
        view.add((0..1000).map(entry).collect()).await.unwrap();
    }
    let ask = async |words: &'static str| {
        let terms: Vec<_> = words.split(' ').map(QueryTerm::word).collect();
        view.read(move |reader| {
            let found = reader.lexical(&terms, 300)?;
            let newest = found.hits.iter().map(|hit| hit.0.number()).max();
            let left_out: Vec<_> = found.left_out.into_iter().map(|term| term.text).collect();
            Ok((found.hits.len(), newest, left_out))
        })
        .await
        .unwrap()
    };
    let (hits, _, left_out) = ask("common scarce usual").await;
    assert_eq!((hits, left_out), (90, vec!["common".to_owned(), "usual".to_owned()]));
    let (hits, newest, left_out) = ask("common usual").await;
    assert_eq!((hits, newest, left_out.len()), (300, Some(45_000), 1));
    assert_eq!(ask("nowhere").await.0, 0);
    // After reopening, it is the same.
    let embedder = Arc::clone(&world.embedder);
    world.reopen(embedder).await;
    let view = world.memory.view(&of);
    assert_eq!(view.stats().await.unwrap().entries, 45_000);
    assert_eq!(
        view.list(&Filter::all(), burrow_memory::PageRequest::first(1000)).await.unwrap().rows.len(),
        1000
    );
}

#[tokio::test]
async fn pages_show_everything_once() {
    let world = World::new().await;
    let view = world.own();
    view.add((0..100).map(|at| note(&format!("n{at}"))).collect()).await.unwrap();
    let entries = listed(&view, &Filter::all()).await;
    let numbers: Vec<_> = entries.iter().map(|entry| entry.seq).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] > pair[1]) && numbers.len() == 100);
    assert_sound(&view).await;
}
