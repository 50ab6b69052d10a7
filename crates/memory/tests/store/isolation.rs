//! A branch cannot find rows that it cannot see: by word, vector, neighbour, filter, count, session, history or export.

use std::collections::BTreeSet;

use burrow_memory::{EntrySelection, Filter, MemoryId, PageRequest, View};

use crate::branches::{Family, State};
use crate::world::{assert_not_found, by_meaning, by_words, listed};

async fn exported(view: &View) -> String {
    let (into, mut from) = tokio::sync::mpsc::channel(4);
    let view = view.clone();
    let task = tokio::spawn(async move { view.export(into).await.unwrap() });
    let mut all = String::new();
    while let Some(line) = from.recv().await {
        all.push_str(&line);
    }
    task.await.unwrap();
    all
}

/// Tries every way of finding entries, for all entries that ever existed.
async fn nothing_else_is_found(family: &Family, view: &View, state: &State) {
    let seen: BTreeSet<&str> = state.values().map(|known| known.word.as_str()).collect();
    let export = exported(view).await;
    for (id, words) in &family.all {
        for word in words {
            let found = by_words(view, word).await;
            assert_eq!(!found.is_empty(), seen.contains(word.as_str()), "{word} by words");
            assert_eq!(export.contains(word.as_str()), seen.contains(word.as_str()), "{word} in the export");
        }
        let filter = Filter { ids: vec![id.clone()], ..Filter::everything() };
        assert_eq!(listed(view, &filter).await.len(), usize::from(state.contains_key(id)));
        if !state.contains_key(id) {
            assert_not_found(view.get(id).await);
            assert_eq!(
                view.forget(&EntrySelection::Ids(vec![id.clone()]), true).await.map(|f| f.count).unwrap_or(0),
                0
            );
        }
    }
    let vectors = by_meaning(view, family.world.embedder.vector("shared")).await;
    assert_eq!(vectors.len(), state.len());
    assert!(vectors.iter().all(|text| seen.contains(text.split(' ').next().unwrap())));
    neighbours_are_seen(view, state).await;
    let stats = view.stats().await.unwrap();
    assert_eq!(stats.entries as usize, state.len());
    let sessions = view.sessions(PageRequest::first(100)).await.unwrap().rows;
    let expected: BTreeSet<_> = state.values().filter_map(|known| known.session.as_deref()).collect();
    assert_eq!(sessions.iter().map(|info| info.session.as_str()).collect::<BTreeSet<_>>(), expected);
    for info in sessions {
        let count = state.values().filter(|known| known.session.as_deref() == Some(&info.session)).count();
        assert_eq!(info.entries as usize, count);
    }
}

async fn neighbours_are_seen(view: &View, state: &State) {
    let ids: Vec<MemoryId> = state.keys().cloned().collect();
    let found = view
        .read(move |reader| {
            let mut found = Vec::new();
            for id in ids {
                let row = reader.row_of(&id)?.unwrap();
                let beside = reader.neighbours(row, 3, 3);
                assert!(beside.iter().all(|row| reader.visible(*row)));
                found.push((id, reader.entries(&beside)?));
            }
            Ok(found)
        })
        .await
        .unwrap();
    for (id, beside) in found {
        let known = &state[&id];
        // The rows of the session, in order, that are within three places of it.
        let mut session: Vec<_> = state.iter().filter(|(_, other)| other.session == known.session).collect();
        session.sort_by_key(|(_, other)| other.at_ms);
        let expected = if known.session.is_none() { 0 } else { session.len() - 1 };
        assert_eq!(beside.len().min(6), beside.len());
        assert!(beside.len() <= expected && (expected < 3 || beside.len() >= 3));
        for entry in beside {
            assert_eq!(state[&entry.id].text, entry.text, "a neighbour is as this branch sees it");
            assert_eq!(entry.session, known.session);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_cannot_find_invisible_entries_in_any_way() {
    for seed in [7, 8] {
        let mut family = Family::new(seed).await;
        for _ in 0..120 {
            family.step().await;
        }
        for branch in 0..family.views.len() {
            let view = family.world.memory.view(family.views[branch].of());
            nothing_else_is_found(&family, &view, &family.states[branch]).await;
        }
    }
}

#[tokio::test]
async fn a_history_has_only_visible_versions() {
    let family = Family::new(1).await;
    let parent = family.views[0].clone();
    let id = crate::world::add(&parent, "first").await;
    let child = family.world.fork(&parent).await;
    let change = |text: &str| burrow_memory::EntryChange {
        text: Some(text.into()),
        ..burrow_memory::EntryChange::nothing()
    };
    parent.update(&id, change("the parent's"), None).await.unwrap();
    child.update(&id, change("the child's"), None).await.unwrap();
    let texts = async |view: &View| -> Vec<String> {
        let written = |version: burrow_memory::Version| {
            let burrow_memory::VersionKind::Written { entry } = version.what else { panic!("not a version") };
            entry.text
        };
        view.history(&id).await.unwrap().into_iter().map(written).collect()
    };
    assert_eq!(texts(&parent).await, ["first", "the parent's"]);
    assert_eq!(texts(&child).await, ["first", "the child's"]);
    assert_eq!(child.get(&id).await.unwrap().version, 2);
}
