//! Each operation of the store under normal conditions.

use burrow_memory::{
    AsOf, Condition, EntryChange, EntrySelection, ExportLine, Filter, MemoryError, MemoryId, MemoryRef,
    NewEntry, Op, PageRequest, VersionKind,
};
use burrow_model::SandboxId;
use serde_json::json;

use crate::world::{
    World, add, add_in, assert_not_found, assert_sound, by_meaning, by_words, listed, note, texts,
};

#[tokio::test]
async fn a_space_without_writes_is_empty_and_has_no_file() {
    let world = World::new().await;
    let view = world.own();
    assert_eq!(view.stats().await.unwrap().entries, 0);
    assert_eq!(view.point().await.unwrap(), None);
    assert!(texts(&view).await.is_empty() && by_words(&view, "anything").await.is_empty());
    assert_not_found(view.get(&MemoryId::generate()).await);
    assert_sound(&view).await;
    assert!(world.memory.spaces().await.unwrap().is_empty());
    assert!(!world.file(&view.of().space).exists());
}

#[tokio::test]
async fn an_added_entry_is_found_by_id_word_vector_and_list() {
    let world = World::new().await;
    let view = world.own();
    let entry = NewEntry {
        metadata: json!({"topic": {"area": "build"}, "tags": ["red"]}).as_object().unwrap().clone(),
        importance: 0.9,
        source: Some("chat".into()),
        session: Some("s1".into()),
        user: Some("ann".into()),
        agent: Some("coder".into()),
        at_ms: Some(17),
        valid_from_ms: Some(1),
        valid_to_ms: Some(2),
        artifacts: vec!["report.pdf".into()],
        ..note("The linker needs libfoo, naïvely searched")
    };
    let added = view.add(vec![entry.clone()]).await.unwrap().remove(0);
    assert!(!added.existed && added.duplicate_of.is_none());
    add(&view, "an unrelated remark").await;
    let got = view.get(&added.id).await.unwrap();
    assert_eq!((got.text.as_str(), got.version, got.count, got.seq), (entry.text.as_str(), 1, 1, added.seq));
    assert_eq!((got.metadata, got.session, got.user), (entry.metadata, entry.session, entry.user));
    assert_eq!((got.agent, got.source, got.at_ms), (entry.agent, entry.source, 17));
    assert_eq!((got.valid_from_ms, got.valid_to_ms), (Some(1), Some(2)));
    assert_eq!(got.artifacts, ["report.pdf"]);
    // Stemmed, and regardless of case and accents.
    for words in ["linkers", "NAIVELY", "libfoo search"] {
        assert_eq!(by_words(&view, words).await, [entry.text.as_str()], "{words}");
    }
    let vector = world.embedder.vector("linker libfoo");
    assert_eq!(by_meaning(&view, vector).await.first(), Some(&entry.text));
    let stats = view.stats().await.unwrap();
    assert_eq!((stats.entries, stats.sessions, stats.vectors.covered, stats.seq), (2, 1, 2, 2));
    assert_sound(&view).await;
}

#[tokio::test]
async fn an_entry_is_added_once_per_key_and_a_duplicate_is_reported() {
    let world = World::new().await;
    let view = world.own();
    let keyed = NewEntry { key: Some("k1".into()), ..note("once") };
    let first = view.add(vec![keyed.clone()]).await.unwrap().remove(0);
    let again = view.add(vec![keyed.clone(), note("once"), note("twice"), note("twice")]).await.unwrap();
    assert!(again[0].existed && again[0].id == first.id && again[0].seq == first.seq);
    assert_eq!(again[1].duplicate_of.as_ref(), Some(&first.id));
    assert_eq!(again[2].duplicate_of, None);
    assert_eq!(again[3].duplicate_of.as_ref(), Some(&again[2].id), "seen within one batch");
    // A child has the key; a sibling that was forked before it does not.
    let child = world.fork(&view).await;
    assert!(child.add(vec![keyed.clone()]).await.unwrap()[0].existed);
    let stranger = world.memory.view(&MemoryRef::branched(&view.of().space, None));
    let strange = stranger.add(vec![keyed]).await.unwrap().remove(0);
    assert!(!strange.existed && strange.duplicate_of.is_none() && strange.id != first.id);
    assert_sound(&view).await;
}

#[tokio::test]
async fn an_update_is_a_new_version_and_the_past_keeps_the_old() {
    let world = World::new().await;
    let view = world.own();
    let id = add_in(&view, "s", "the port is eighty").await;
    let before = view.point().await.unwrap();
    let change = EntryChange { text: Some("the port is ninety".into()), ..EntryChange::nothing() };
    let entry = view.update(&id, change.clone(), Some(1)).await.unwrap();
    assert_eq!((entry.version, entry.session.as_deref()), (2, Some("s")));
    let conflict = view.update(&id, change, Some(1)).await;
    assert!(matches!(conflict, Err(MemoryError::Conflict { expected: 1, found: 2, .. })), "{conflict:?}");
    assert!(by_words(&view, "eighty").await.is_empty(), "an old version is not found");
    assert_eq!(by_words(&view, "port").await, ["the port is ninety"]);
    let past = view.at(&AsOf::Point(before)).await.unwrap();
    assert_eq!(past.get(&id).await.unwrap().text, "the port is eighty");
    assert_eq!(by_words(&past, "eighty").await.len(), 1);
    // Without a text only the other fields change, and the vector stays.
    let change = EntryChange { importance: Some(1.0), session: Some(None), ..EntryChange::nothing() };
    let entry = view.update(&id, change, None).await.unwrap();
    assert_eq!((entry.version, entry.importance, entry.session), (3, 1.0, None));
    assert_eq!(view.stats().await.unwrap().vectors.pending, 0);
    assert_eq!(view.history(&id).await.unwrap().len(), 3);
    assert_eq!(past.history(&id).await.unwrap().len(), 1);
    assert_sound(&view).await;
}

#[tokio::test]
async fn forgotten_entries_stay_in_the_past_and_in_other_branches() {
    let world = World::new().await;
    let view = world.own();
    let id = add(&view, "a secret plan").await;
    let child = world.fork(&view).await;
    let seq = view.point().await.unwrap().unwrap().seq;
    assert_eq!(view.forget(&EntrySelection::Ids(vec![id.clone()]), true).await.unwrap().count, 1);
    assert!(view.get(&id).await.is_ok(), "a dry run changes nothing");
    assert_eq!(view.forget(&EntrySelection::Ids(vec![id.clone()]), false).await.unwrap().count, 1);
    assert_eq!(view.forget(&EntrySelection::Ids(vec![id.clone()]), false).await.unwrap().count, 0);
    assert_not_found(view.get(&id).await);
    assert!(by_words(&view, "secret").await.is_empty());
    assert!(by_meaning(&view, world.embedder.vector("secret plan")).await.is_empty());
    assert_eq!(child.get(&id).await.unwrap().text, "a secret plan");
    assert!(view.at(&AsOf::Seq(seq)).await.unwrap().get(&id).await.is_ok());
    let history = view.history(&id).await.unwrap();
    assert!(matches!(history.last().unwrap().what, VersionKind::Forgotten));
    let change = EntryChange { importance: Some(0.1), ..EntryChange::nothing() };
    assert_not_found(view.update(&id, change, None).await);
    assert_sound(&view).await;
}

#[tokio::test]
async fn entries_are_forgotten_by_filter_and_by_age() {
    let world = World::new().await;
    let view = world.own();
    for (at, session) in [(1_000, "old"), (2_000, "old"), (3_000, "new")] {
        let entry = NewEntry { at_ms: Some(at), session: Some(session.into()), ..note(&format!("at {at}")) };
        view.add(vec![entry]).await.unwrap();
    }
    world.clock.set(10_000 + 2_500);
    assert_eq!(view.forget(&EntrySelection::OlderThanMs(10_000), true).await.unwrap().count, 2);
    let filter = Filter { session: Some("old".into()), since_ms: Some(1_500), ..Filter::all() };
    assert_eq!(view.forget(&EntrySelection::Filter(filter), false).await.unwrap().count, 1);
    assert_eq!(texts(&view).await, ["at 1000", "at 3000"]);
    assert_eq!(view.forget(&EntrySelection::OlderThanMs(10_000), false).await.unwrap().count, 1);
    assert_eq!(texts(&view).await, ["at 3000"]);
}

#[tokio::test]
async fn filters_choose_by_columns_and_metadata() {
    let world = World::new().await;
    let view = world.own();
    for number in 0..20u64 {
        let entry = NewEntry {
            kind: if number % 2 == 0 { "fact" } else { "turn" }.into(),
            metadata: json!({"n": number, "who": {"name": format!("p{}", number % 3)}})
                .as_object()
                .unwrap()
                .clone(),
            user: Some(format!("u{}", number % 4)),
            at_ms: Some(1000 + number),
            ..note(&format!("number {number}"))
        };
        view.add(vec![entry]).await.unwrap();
    }
    let count = async |filter: Filter| listed(&view, &filter).await.len();
    let condition = |path: &str, op, value| vec![Condition { path: path.into(), op, value }];
    assert_eq!(count(Filter::all()).await, 20);
    assert_eq!(count(Filter { kinds: vec!["fact".into()], ..Filter::all() }).await, 10);
    assert_eq!(count(Filter { kinds: vec!["fact".into(), "turn".into()], ..Filter::all() }).await, 20);
    assert_eq!(count(Filter { kinds: vec!["nothing".into()], ..Filter::all() }).await, 0);
    assert_eq!(count(Filter { user: Some("u1".into()), ..Filter::all() }).await, 5);
    assert_eq!(count(Filter { user: Some("nobody".into()), ..Filter::all() }).await, 0);
    assert_eq!(count(Filter { since_ms: Some(1005), until_ms: Some(1010), ..Filter::all() }).await, 5);
    assert_eq!(count(Filter { metadata: condition("n", Op::Lt, json!(5)), ..Filter::all() }).await, 5);
    assert_eq!(
        count(Filter { metadata: condition("who.name", Op::Eq, json!("p0")), ..Filter::all() }).await,
        7
    );
    assert_eq!(
        count(Filter { metadata: condition("who.name", Op::Ne, json!("p0")), ..Filter::all() }).await,
        13
    );
    assert_eq!(
        count(Filter { metadata: condition("n", Op::In, json!([1, 2, 99])), ..Filter::all() }).await,
        2
    );
    let too_many =
        Filter { metadata: vec![condition("n", Op::Exists, json!(null)).remove(0); 33], ..Filter::all() };
    assert!(matches!(view.list(&too_many, PageRequest::first(1)).await, Err(MemoryError::Invalid { .. })));
}

#[tokio::test]
async fn a_superseded_entry_is_marked_on_branches_that_see_its_successor() {
    let world = World::new().await;
    let view = world.own();
    let old = add(&view, "we use yarn").await;
    let child = world.fork(&view).await;
    let new = NewEntry { supersedes: vec![old.clone()], ..note("we use pnpm") };
    let new = view.add(vec![new]).await.unwrap().remove(0).id;
    assert_eq!(view.get(&old).await.unwrap().superseded_by.as_ref(), Some(&new));
    assert_eq!(listed(&view, &Filter::all()).await.len(), 1);
    assert_eq!(listed(&view, &Filter::everything()).await.len(), 2);
    assert_eq!(child.get(&old).await.unwrap().superseded_by, None);
    view.forget(&EntrySelection::Ids(vec![new]), false).await.unwrap();
    assert_eq!(view.get(&old).await.unwrap().superseded_by, None, "what replaced it is gone");
    let foreign = NewEntry { supersedes: vec![MemoryId::generate()], ..note("x") };
    assert_not_found(view.add(vec![foreign]).await);
    assert_sound(&view).await;
}

#[tokio::test]
async fn marks_apply_from_then_on_and_on_this_branch() {
    let world = World::new().await;
    let view = world.own();
    let id = add(&view, "make failed").await;
    let child = world.fork(&view).await;
    assert_eq!(view.repeat(std::slice::from_ref(&id), 2).await.unwrap(), 1);
    assert_eq!(view.cool(std::slice::from_ref(&id)).await.unwrap(), 1);
    let entry = view.get(&id).await.unwrap();
    assert_eq!((entry.count, entry.cold), (3, true));
    assert!(listed(&view, &Filter::all()).await.is_empty());
    let entry = child.get(&id).await.unwrap();
    assert_eq!((entry.count, entry.cold), (1, false));
    view.warm(std::slice::from_ref(&id)).await.unwrap();
    assert!(!view.get(&id).await.unwrap().cold);
    assert_sound(&view).await;
}

#[tokio::test]
async fn neighbours_are_in_the_same_session_and_sorted_by_time() {
    let world = World::new().await;
    let view = world.own();
    for (at, session, text) in [(30, "a", "three"), (10, "a", "one"), (20, "b", "other"), (20, "a", "two")] {
        let entry = NewEntry { at_ms: Some(at), session: Some(session.into()), ..note(text) };
        view.add(vec![entry]).await.unwrap();
    }
    let neighbours = async |text: &'static str, before, after| {
        view.read(move |reader| {
            let row = reader.rows().find(|row| reader.texts(&[*row]).unwrap()[0] == text).unwrap();
            reader.texts(&reader.neighbours(row, before, after))
        })
        .await
        .unwrap()
    };
    assert_eq!(neighbours("two", 2, 2).await, ["one", "three"]);
    assert_eq!(neighbours("three", 1, 1).await, ["two"]);
    assert!(neighbours("other", 5, 5).await.is_empty());
    // A new version has the position of the old one.
    let id = listed(&view, &Filter::all()).await.into_iter().find(|entry| entry.text == "two").unwrap().id;
    let change = EntryChange { text: Some("zwei".into()), ..EntryChange::nothing() };
    view.update(&id, change, None).await.unwrap();
    assert_eq!(neighbours("three", 2, 0).await, ["one", "zwei"]);
}

#[tokio::test]
async fn sessions_are_listed_newest_first_in_pages() {
    let world = World::new().await;
    let view = world.own();
    for number in 0..5u64 {
        for step in 0..2 {
            let entry = NewEntry {
                at_ms: Some(START + number * 1000 + step),
                session: Some(format!("s{number}")),
                ..note(&format!("{number} {step}"))
            };
            view.add(vec![entry]).await.unwrap();
        }
    }
    add(&view, "of no session").await;
    let first = view.sessions(PageRequest::first(3)).await.unwrap();
    let names: Vec<_> = first.rows.iter().map(|info| info.session.as_str()).collect();
    assert_eq!(names, ["s4", "s3", "s2"]);
    assert_eq!((first.rows[0].entries, first.rows[0].first_excerpt.as_str()), (2, "4 0"));
    assert!(!first.rows[0].closed);
    let second = PageRequest { cursor: first.next_cursor, limit: 3 };
    let second = view.sessions(second).await.unwrap();
    assert_eq!((second.rows.len(), second.next_cursor), (2, None));
    world.clock.advance(60 * 60 * 1000);
    assert!(view.sessions(PageRequest::first(1)).await.unwrap().rows[0].closed);
}

const START: u64 = crate::world::START_MS - 10_000;

#[tokio::test]
async fn a_moment_is_found_by_its_time() {
    let world = World::new().await;
    let view = world.own();
    for number in 0..10 {
        world.clock.set(1_000_000 + number * 1000);
        add(&view, &format!("n{number}")).await;
    }
    // The host's clock goes back; the times in the log do not.
    world.clock.set(5);
    add(&view, "n10").await;
    for (time, expected) in [(999_999, 0), (1_000_000, 1), (1_004_500, 5), (1_008_999, 9), (1_009_000, 11)] {
        let then = view.at(&AsOf::TimeMs(time)).await.unwrap();
        assert_eq!(texts(&then).await.len(), expected, "at {time}");
        assert!(matches!(then.add(vec![note("x")]).await, Err(MemoryError::ReadOnly)));
    }
}

#[tokio::test]
async fn importing_an_export_repeatedly_gives_the_same_entries() {
    let world = World::new().await;
    let view = world.own();
    let kept = add_in(&view, "s", "kept").await;
    let cold = add(&view, "cold").await;
    view.cool(std::slice::from_ref(&cold)).await.unwrap();
    let gone = add(&view, "gone").await;
    view.forget(&EntrySelection::Ids(vec![gone]), false).await.unwrap();
    for number in 0..1200 {
        view.add(vec![note(&format!("bulk {number}"))]).await.unwrap();
        if number > 20 {
            break;
        }
    }
    let (into, mut from) = tokio::sync::mpsc::channel(16);
    let exporting = view.clone();
    let task = tokio::spawn(async move { exporting.export(into).await.unwrap() });
    let mut lines: Vec<ExportLine> = Vec::new();
    while let Some(line) = from.recv().await {
        assert!(!line.contains('\n'));
        lines.push(serde_json::from_str(&line).unwrap());
    }
    assert_eq!(task.await.unwrap() as usize, lines.len() - 1);
    let other = world.own();
    for round in 0..2 {
        let imported = other.import(lines.clone()).await.unwrap();
        let (added, existed) = if round == 0 { (lines.len() - 1, 0) } else { (0, lines.len() - 1) };
        assert_eq!((imported.added as usize, imported.existed as usize), (added, existed));
    }
    assert_eq!(texts(&other).await, texts(&view).await);
    let entry = other.get(&kept).await.unwrap();
    let original = view.get(&kept).await.unwrap();
    assert_eq!(
        (entry.at_ms, entry.session, entry.version),
        (original.at_ms, original.session, original.version)
    );
    assert!(other.get(&cold).await.unwrap().cold);
    other.erase(&EntrySelection::Ids(vec![kept.clone()]), false).await.unwrap();
    assert_eq!(other.import(lines).await.unwrap().erased, 1);
    assert_not_found(other.get(&kept).await);
    assert_sound(&other).await;
}

#[tokio::test]
async fn errors_of_invalid_entries_name_the_limit() {
    let world = World::new().await;
    let view = world.own();
    let bad = [
        note(&"x".repeat(64 * 1024 + 1)),
        note("  \n"),
        NewEntry { kind: "Not A Word".into(), ..note("x") },
        NewEntry { importance: 1.5, ..note("x") },
        NewEntry { importance: f32::NAN, ..note("x") },
        NewEntry { session: Some(String::new()), ..note("x") },
        NewEntry { user: Some("u".repeat(513)), ..note("x") },
        NewEntry { valid_from_ms: Some(2), valid_to_ms: Some(1), ..note("x") },
        NewEntry { at_ms: Some(u64::MAX), ..note("x") },
        NewEntry { metadata: json!({"a": "x".repeat(20_000)}).as_object().unwrap().clone(), ..note("x") },
    ];
    for entry in bad {
        let shown = format!("{:.80?}", entry);
        let refused = view.add(vec![note("good"), entry]).await;
        assert!(
            matches!(refused, Err(MemoryError::Invalid { .. } | MemoryError::TooLarge { .. })),
            "{shown}"
        );
    }
    let refused = view.add(vec![note("x"); 1001]).await.unwrap_err();
    assert!(refused.to_string().contains("1000"), "{refused}");
    assert!(texts(&view).await.is_empty(), "all or nothing");
    assert!(view.add(vec![note(&"x".repeat(64 * 1024))]).await.is_ok());
}

#[tokio::test]
async fn a_space_that_is_removed_leaves_no_file_and_can_be_written_again() {
    let world = World::new().await;
    let view = world.memory.view(&MemoryRef::own(&SandboxId::generate()));
    add(&view, "first life").await;
    assert_eq!(world.memory.spaces().await.unwrap(), [view.of().space.clone()]);
    world.memory.remove(&view.of().space).await.unwrap();
    world.memory.remove(&view.of().space).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(world.file(&view.of().space).parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(texts(&view).await.is_empty());
    add(&view, "second life").await;
    assert_eq!(texts(&view).await, ["second life"]);
}
