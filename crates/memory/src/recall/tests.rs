//! Searches of real spaces.

use super::*;
use crate::testing::{START_MS, World};
use crate::{Filter, NewEntry, View};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn add(view: &View, text: &str) -> crate::MemoryId {
    put(view, NewEntry::note(text)).await
}

async fn put(view: &View, entry: NewEntry) -> crate::MemoryId {
    view.add(vec![entry]).await.unwrap().remove(0).id
}

fn said(text: &str, session: &str, at_ms: u64) -> NewEntry {
    NewEntry {
        session: Some(session.to_owned()),
        at_ms: Some(at_ms),
        kind: "turn".to_owned(),
        ..NewEntry::note(text)
    }
}

async fn find(view: &View, query: &Search) -> SearchOutcome {
    let views = [LabelledView { label: "own".to_owned(), view: view.clone() }];
    search(&views, query).await.unwrap()
}

async fn ids(view: &View, text: &str) -> Vec<crate::MemoryId> {
    find(view, &Search::new(text)).await.hits.into_iter().map(|hit| hit.entry.id).collect()
}

#[tokio::test]
async fn the_entry_with_the_words_is_first_and_explained() {
    let world = World::new().await;
    let view = world.view();
    for n in 0..20 {
        add(&view, &format!("note {n} about the weather in town")).await;
    }
    let wanted = add(&view, "the staging deploy key is kept in the vault").await;
    let found = find(&view, &Search::new("Where is the deploy key?")).await;
    assert_eq!(found.hits[0].entry.id, wanted);
    let why = &found.hits[0].why;
    assert_eq!(why.lexical.as_ref().unwrap().terms, ["deploy", "key"]);
    assert_eq!((why.lexical.as_ref().unwrap().rank, why.validity), (1, 1.0));
    assert!(found.hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
    assert!(found.hits.iter().all(|hit| (0.0..=1.0).contains(&hit.score)));
    assert_eq!((found.searched, found.hits[0].space.as_str()), (21, "own"));
    assert_eq!(found.arms[0], ArmReport { arm: Arm::Lexical, state: ArmState::Took });
}

#[tokio::test]
async fn an_answer_is_found_by_the_question_before_it() {
    let world = World::new().await;
    let view = world.view();
    for n in 0..30 {
        put(&view, said(&format!("Bob: it rained {n} times"), "other", START_MS + n)).await;
    }
    let asked = put(&view, said("Ann: which colour has the kayak?", "s", START_MS)).await;
    let answer = put(&view, said("Bob: bright orange", "s", START_MS + 1)).await;
    let query = Search { explain: true, ..Search::new("colour of the kayak") };
    let found = find(&view, &query).await;
    let hit = found.hits.iter().find(|hit| hit.entry.id == answer).expect("found by its neighbour");
    assert!(found.hits.iter().position(|hit| hit.entry.id == answer).unwrap() < 3);
    let why = hit.why.neighbours.as_ref().unwrap();
    assert!(why.score > 0.0 && why.ids == [asked]);
    assert_eq!(hit.why.lexical, None);
}

#[tokio::test]
async fn a_branch_cannot_find_invisible_entries_by_their_words() {
    let world = World::new().await;
    let view = world.view();
    let before = put(&view, said("Bob: bright orange", "s", START_MS)).await;
    let child = world.fork(&view).await;
    put(&view, said("Ann: so the kayak is orange", "s", START_MS + 1)).await;
    assert_eq!(ids(&view, "kayak").await.len(), 2, "the entry itself, and what stands before it");
    let found = find(&child, &Search::new("kayak")).await;
    assert!(found.hits.iter().all(|hit| hit.entry.id == before && hit.why.lexical.is_none()));
    assert!(found.hits.iter().all(|hit| hit.why.neighbours.is_none()));
    assert_eq!(found.searched, 1);
    let past = world.at(&view, 1).await;
    assert!(find(&past, &Search::new("kayak")).await.hits.iter().all(|hit| hit.why.neighbours.is_none()));
}

#[tokio::test]
async fn speakers_and_times_affect_the_ranking() {
    let world = World::new().await;
    let view = world.view();
    let ann = put(&view, said("Ann: I bought a boat", "a", START_MS)).await;
    let bob = put(&view, said("Bob: I bought a boat", "b", START_MS + 400 * DAY_MS)).await;
    assert_eq!(ids(&view, "What did Ann buy?").await[0], ann);
    assert_eq!(ids(&view, "What did Bob buy?").await[0], bob);
    // START_MS is in November 2023.
    assert_eq!(ids(&view, "Who bought a boat in November 2023?").await[0], ann);
    assert_eq!(ids(&view, "Who bought a boat in December 2024?").await[0], bob);
}

#[tokio::test]
async fn recency_importance_and_validity_decide_between_equals() {
    let world = World::new().await;
    let view = world.view();
    world.clock.advance(100 * DAY_MS);
    let texts = ["the port of the service is open to alice", "the port of the service is open to bob"];
    let old = put(&view, NewEntry { at_ms: Some(START_MS), ..NewEntry::note(texts[0]) }).await;
    let new = put(&view, NewEntry { at_ms: Some(START_MS + 99 * DAY_MS), ..NewEntry::note(texts[1]) }).await;
    let recent = Search { half_life_ms: Some(10 * DAY_MS), ..Search::new("port of the service") };
    let found = find(&view, &recent).await;
    assert_eq!(found.hits[0].entry.id, new);
    assert!(found.hits[0].why.recency > found.hits[1].why.recency);
    let change = crate::EntryChange { importance: Some(1.0), ..crate::EntryChange::nothing() };
    view.update(&old, change, None).await.unwrap();
    assert_eq!(ids(&view, "port of the service").await[0], old);
    let ended = crate::EntryChange { valid_to_ms: Some(Some(START_MS + 1)), ..crate::EntryChange::nothing() };
    view.update(&old, ended, None).await.unwrap();
    let found = find(&view, &Search::new("port of the service")).await;
    assert_eq!((&found.hits[0].entry.id, found.hits[1].why.validity), (&new, 0.5));
}

#[tokio::test]
async fn near_duplicate_hits_are_shown_once() {
    let world = World::new().await;
    let view = world.view();
    let text =
        "the nightly build of the web shop fails because the disk of the runner is full again and again";
    let first = add(&view, text).await;
    let second = add(&view, &format!("{text}.")).await;
    let other = add(&view, "the nightly build of the web shop passed").await;
    let found = find(&view, &Search::new("nightly build of the web shop")).await;
    let shown: Vec<_> = found.hits.iter().map(|hit| hit.entry.id.clone()).collect();
    assert_eq!(shown.len(), 2);
    let hit = found.hits.iter().find(|hit| hit.entry.id != other).unwrap();
    assert!(hit.collapsed == [first.clone()] || hit.collapsed == [second]);
}

#[tokio::test]
async fn filters_limits_and_least_scores_hold() {
    let world = World::new().await;
    let view = world.view();
    for n in 0..40 {
        let kind = if n % 2 == 0 { "note" } else { "fact" };
        put(
            &view,
            NewEntry { kind: kind.to_owned(), ..NewEntry::note(format!("gadget number {n} is here")) },
        )
        .await;
    }
    let filter = Filter { kinds: vec!["fact".to_owned()], ..Filter::all() };
    let query = Search { filter, limit: 7, ..Search::new("gadget") };
    let found = find(&view, &query).await;
    assert_eq!(found.hits.len(), 7);
    assert!(found.hits.iter().all(|hit| hit.entry.kind == "fact"));
    let none = find(&view, &Search { min_score: Some(1.1), ..Search::new("gadget") }).await;
    assert_eq!(none.hits.len(), 0);
    let unrelated = find(&view, &Search::new("quantum chromodynamics")).await;
    assert!(unrelated.hits.iter().all(|hit| hit.score < 0.5), "nothing answers it");
    for limit in [0, HITS_MAX + 1] {
        let views = [LabelledView { label: String::new(), view: view.clone() }];
        assert!(search(&views, &Search { limit, ..Search::new("x") }).await.is_err());
    }
}

#[tokio::test]
async fn unusual_queries_are_answered() {
    let world = World::new().await;
    let view = world.view();
    add(&view, "a plain note").await;
    let huge = "word ".repeat(20_000);
    for text in
        ["", "?", "the of and", "\" OR NEAR(", "NOT * ^ col:x", "\u{0}\u{1b}[31m", "🦀 東京", &huge, "a"]
    {
        find(&view, &Search::new(text)).await;
    }
    assert!(find(&world.view(), &Search::new("anything")).await.hits.is_empty());
    assert!(search(&[], &Search::new("anything")).await.unwrap().hits.is_empty());
}

#[tokio::test]
async fn spaces_are_searched_together_and_named() {
    let world = World::new().await;
    let (own, team) = (world.view(), world.view());
    add(&own, "lunch was soup").await;
    add(&team, "the on-call rota is in the wiki").await;
    let views = [
        LabelledView { label: "own".to_owned(), view: own },
        LabelledView { label: "team".to_owned(), view: team },
    ];
    let found = search(&views, &Search::new("where is the on-call rota?")).await.unwrap();
    assert_eq!((found.hits[0].space.as_str(), found.searched), ("team", 2));
}

#[tokio::test]
async fn weights_of_zero_turn_arms_off_as_the_result_reports() {
    let world = World::new().await;
    let view = world.view();
    add(&view, "the deploy key").await;
    let weights = Weights { vector: 0.0, ..Weights::usual() };
    let found = find(&view, &Search { weights: Some(weights), ..Search::new("deploy key") }).await;
    assert_eq!(found.arms[1], ArmReport { arm: Arm::Vector, state: ArmState::Off });
    assert_eq!(found.hits[0].why.vector, None);
}
