//! Consolidation of real spaces: what becomes cold, what stays warm, and what the past and exports still contain.

use std::time::Duration;

use async_trait::async_trait;

use super::*;
use crate::testing::World;
use crate::{AsOf, Filter, NewEntry, PageRequest, View};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn policy() -> Policy {
    Policy { older_than_ms: DAY_MS, chunk_entries: 8, ..Policy::usual() }
}

fn options(policy: &Policy) -> ConsolidateOptions<'_> {
    ConsolidateOptions {
        dry_run: false,
        policy,
        entries_max: 10_000,
        time_max: Duration::from_secs(60),
        summariser: None,
    }
}

fn turn(session: &str, text: &str) -> NewEntry {
    NewEntry { kind: "turn".to_owned(), session: Some(session.to_owned()), ..NewEntry::note(text) }
}

/// A session of sentences without common words.
async fn talk(world: &World, view: &View, session: &str, count: usize) {
    let things = [
        "harbour", "violin", "granite", "saffron", "compass", "meadow", "lantern", "tunnel", "walnut",
        "glacier",
    ];
    for n in 0..count {
        let text = format!(
            "Item {session}{n}: the {} was moved to the {} by number {n}",
            things[n % 10],
            things[(n * 3 + 1) % 10]
        );
        view.add(vec![turn(session, &text)]).await.unwrap();
        world.clock.advance(1_000);
    }
}

async fn all(view: &View, filter: Filter) -> Vec<crate::Entry> {
    view.list(&filter, PageRequest::first(1_000)).await.unwrap().rows
}

#[tokio::test]
async fn erasing_an_entry_erases_its_summaries_and_reports_its_copies() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "old", 20).await;
    let secret = view.add(vec![turn("old", "Anna lives in Xanadustrasse 7 in Quuxhausen")]).await.unwrap();
    let secret = secret[0].id.clone();
    let copy = view.add(vec![NewEntry::note("Anna lives in Xanadustrasse 7 in Quuxhausen")]).await.unwrap();
    world.clock.advance(2 * DAY_MS);
    let child = world.fork(&view).await;
    let change = crate::EntryChange { importance: Some(0.9), ..crate::EntryChange::nothing() };
    child.update(&copy[0].id, change, None).await.unwrap();
    let policy = Policy { join_duplicates: false, ..policy() };
    let done = view.consolidate(options(&policy)).await.unwrap();
    let telling = |entries: &[crate::Entry]| -> Vec<crate::MemoryId> {
        let matching = entries.iter().filter(|entry| entry.text.to_lowercase().contains("quuxhausen"));
        matching.map(|entry| entry.id.clone()).collect()
    };
    let summaries: Vec<_> = telling(&all(&view, Filter::all()).await)
        .into_iter()
        .filter(|id| done.summaries.contains(id))
        .collect();
    assert_eq!(summaries.len(), 1, "one summary has its words");
    let which = crate::EntrySelection::Ids(vec![secret.clone()]);
    let foretold = view.erase(&which, true).await.unwrap();
    assert_eq!((foretold.count, &foretold.ids), (2, &vec![secret]));
    assert_eq!((&foretold.summaries, &foretold.copies), (&summaries, &vec![copy[0].id.clone()]));
    assert_eq!(view.erase(&which, false).await.unwrap(), foretold, "a dry run tells exactly what happens");
    let left = telling(&all(&view, Filter::everything()).await);
    assert_eq!(left, [copy[0].id.clone()], "only the copy it named is left");
    let rest = view.erase(&crate::EntrySelection::Ids(left), false).await.unwrap();
    assert_eq!((rest.count, rest.branches), (1, 2), "a fork had a version of its own");
    assert!(telling(&all(&view, Filter::everything()).await).is_empty());
    assert!(telling(&all(&child, Filter::everything()).await).is_empty());
    // Other summaries cite other entries, and stay.
    assert_eq!(all(&view, Filter::all()).await.iter().filter(|entry| entry.kind == KIND_SUMMARY).count(), 2);
    assert!(view.check().await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn an_old_session_is_rolled_up_into_summaries_that_cite_it() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "old", 20).await;
    world.clock.advance(2 * DAY_MS);
    talk(&world, &view, "new", 5).await;
    let before = view.point().await.unwrap();

    let policy = policy();
    let foretold = view.consolidate(ConsolidateOptions { dry_run: true, ..options(&policy) }).await.unwrap();
    assert_eq!(view.point().await.unwrap(), before, "a dry run writes nothing");
    let done = view.consolidate(options(&policy)).await.unwrap();
    assert_eq!(
        (done.rolled_up, done.cooled, done.warm_after),
        (foretold.rolled_up, foretold.cooled, foretold.warm_after)
    );
    assert_eq!(done.plan, foretold.plan, "a dry run tells exactly what happens");
    assert_eq!((done.rolled_up, done.cooled, done.warm_before, done.warm_after), (3, 20, 25, 8));

    let warm = all(&view, Filter::all()).await;
    assert_eq!(warm.len(), 8);
    let cited: usize =
        warm.iter().filter(|entry| entry.kind == "summary").map(|entry| entry.links.len()).sum();
    assert_eq!(cited, 20);
    let everything = all(&view, Filter::everything()).await;
    assert_eq!(everything.len(), 28, "sources are all there");
    assert_eq!(everything.iter().filter(|entry| entry.cold).count(), 20);

    let past = view.at(&AsOf::Point(before)).await.unwrap();
    assert!(all(&past, Filter::all()).await.iter().all(|entry| entry.kind != "summary" && !entry.cold));
    assert_eq!(all(&past, Filter::all()).await.len(), 25, "the past is as it was");

    let again = view.consolidate(options(&policy)).await.unwrap();
    assert_eq!((again.rolled_up, again.cooled, again.joined), (0, 0, 0), "there is nothing left to do");
}

#[tokio::test]
async fn an_export_has_the_sources_and_the_summaries() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "old", 8).await;
    world.clock.advance(2 * DAY_MS);
    view.consolidate(options(&policy())).await.unwrap();
    let (into, mut lines) = tokio::sync::mpsc::channel(100);
    view.export(into).await.unwrap();
    let mut count = 0;
    while let Some(line) = lines.recv().await {
        count += usize::from(line.contains("\"turn\""));
    }
    assert_eq!(count, 8);
}

#[tokio::test]
async fn a_search_reaches_cold_sources_through_their_summary() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "old", 15).await;
    let detail = "Marguerite keeps the spare fuse behind the aquarium";
    let id = view.add(vec![turn("old", detail)]).await.unwrap().remove(0).id;
    world.clock.advance(2 * DAY_MS);
    view.consolidate(options(&policy())).await.unwrap();
    assert!(view.get(&id).await.unwrap().cold);
    let views = [crate::recall::LabelledView { label: "own".to_owned(), view: view.clone() }];
    let found =
        crate::recall::search(&views, &crate::recall::Search::new("spare fuse aquarium")).await.unwrap();
    assert_eq!(found.hits.first().map(|hit| &hit.entry.id), Some(&id), "{:?}", found.hits);
    assert!(found.hits[0].entry.cold, "and says that it is cold");
    let mut other = crate::recall::Search::new("spare fuse aquarium");
    other.filter.kinds = vec!["note".to_owned()];
    let found = crate::recall::search(&views, &other).await.unwrap();
    assert!(found.hits.is_empty(), "a filter holds for the cold as well");
}

#[tokio::test]
async fn duplicates_are_counted_by_the_oldest_and_go_cold() {
    let world = World::new().await;
    let view = world.view();
    let text =
        "the deploy script needs the staging key before it can push any images to the registry of the team";
    let mut ids = Vec::new();
    for (importance, text) in
        [(0.3, text.to_owned()), (0.6, text.to_uppercase()), (0.4, format!("{text} now"))]
    {
        let entry = NewEntry { importance, ..NewEntry::note(text) };
        ids.push(view.add(vec![entry]).await.unwrap().remove(0).id);
        world.clock.advance(1_000);
    }
    let other =
        view.add(vec![NewEntry { user: Some("bob".to_owned()), ..NewEntry::note(text) }]).await.unwrap();
    let done = view.consolidate(options(&policy())).await.unwrap();
    assert_eq!(done.joined, 2);
    let kept = view.get(&ids[0]).await.unwrap();
    assert_eq!((kept.count, kept.cold), (3, false));
    assert!((kept.importance - 0.6).abs() < 1e-6);
    assert_eq!(kept.links, ids[1..]);
    assert!(view.get(&ids[1]).await.unwrap().cold && view.get(&ids[2]).await.unwrap().cold);
    assert!(!view.get(&other[0].id).await.unwrap().cold, "another user's stays");
    assert_eq!(view.consolidate(options(&policy())).await.unwrap().joined, 0);
}

#[tokio::test]
async fn young_important_open_and_lasting_entries_stay_warm() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "s", 6).await;
    let mut keep = Vec::new();
    for n in 0..6 {
        let entry = match n % 3 {
            0 => NewEntry {
                kind: "decision".to_owned(),
                ..turn("s", &format!("we decided upon thing number {n}"))
            },
            1 => NewEntry { importance: 0.9, ..turn("s", &format!("very important thing number {n}")) },
            _ => {
                let mut entry = turn("s", &format!("still open thing number {n}"));
                entry.metadata.insert("open".to_owned(), true.into());
                entry
            }
        };
        keep.push(view.add(vec![entry]).await.unwrap().remove(0).id);
    }
    world.clock.advance(DAY_MS / 2);
    assert_eq!(view.consolidate(options(&policy())).await.unwrap().cooled, 0, "too young");
    world.clock.advance(2 * DAY_MS);
    assert_eq!(view.consolidate(options(&policy())).await.unwrap().cooled, 6);
    for id in keep {
        assert!(!view.get(&id).await.unwrap().cold);
    }
}

#[tokio::test]
async fn a_target_is_reached_and_not_overshot() {
    let world = World::new().await;
    let view = world.view();
    for session in ["a", "b", "c", "d", "e", "f"] {
        talk(&world, &view, session, 16).await;
        world.clock.advance(DAY_MS);
    }
    let policy = Policy { older_than_ms: 0, target_share: Some(0.5), ..policy() };
    let done = view.consolidate(options(&policy)).await.unwrap();
    assert!(done.warm_after <= 48 && done.warm_after > 48 - 8, "{}", done.warm_after);
    let warm: Vec<String> =
        all(&view, Filter::all()).await.into_iter().filter_map(|entry| entry.session).collect();
    assert_eq!(warm.iter().filter(|session| *session == "f").count(), 16, "the newest is as it was");
}

#[tokio::test]
async fn a_branch_consolidates_for_itself_alone() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "old", 8).await;
    let child = world.fork(&view).await;
    world.clock.advance(2 * DAY_MS);
    assert_eq!(child.consolidate(options(&policy())).await.unwrap().cooled, 8);
    assert!(
        all(&view, Filter::everything()).await.iter().all(|entry| !entry.cold && entry.kind != "summary")
    );
    assert_eq!(all(&child, Filter::all()).await.len(), 1);
}

#[derive(Debug)]
struct FixedSummariser(Result<&'static str, ()>);

#[async_trait]
impl Summariser for FixedSummariser {
    async fn summarise(&self, _: &[Source], _: usize) -> Result<String, SummariseError> {
        self.0.map(str::to_owned).map_err(|()| SummariseError::Answer { url: "http://x".to_owned() })
    }
}

#[tokio::test]
async fn a_summariser_is_used_and_one_that_fails_is_replaced() {
    for (answer, fell_back) in [(Ok("A fine summary."), 0), (Err(()), 1)] {
        let world = World::new().await;
        let view = world.view();
        talk(&world, &view, "old", 8).await;
        world.clock.advance(2 * DAY_MS);
        let policy = policy();
        let fixed = FixedSummariser(answer);
        let done = view
            .consolidate(ConsolidateOptions { summariser: Some(&fixed), ..options(&policy) })
            .await
            .unwrap();
        assert_eq!((done.fell_back, done.rolled_up), (fell_back, 1));
        let text = view.get(&done.summaries[0]).await.unwrap().text;
        assert_eq!(text.contains("A fine summary."), answer.is_ok(), "{text}");
        assert!(text.contains("harbour"), "its words lead to its sources");
    }
}

#[tokio::test]
async fn without_time_no_step_is_done_and_a_later_run_continues() {
    let world = World::new().await;
    let view = world.view();
    talk(&world, &view, "old", 20).await;
    world.clock.advance(2 * DAY_MS);
    let policy = policy();
    let slow = SlowOnce;
    let done = view
        .consolidate(ConsolidateOptions {
            time_max: Duration::from_millis(1),
            summariser: Some(&slow),
            ..options(&policy)
        })
        .await
        .unwrap();
    assert!(!done.finished && done.rolled_up <= 1, "{done:?}");
    let rest = view.consolidate(options(&policy)).await.unwrap();
    assert!(rest.finished);
    assert_eq!(done.cooled + rest.cooled, 20);
}

/// Takes longer than the run's time limit.
#[derive(Debug)]
struct SlowOnce;

#[async_trait]
impl Summariser for SlowOnce {
    async fn summarise(&self, sources: &[Source], characters_max: usize) -> Result<String, SummariseError> {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(5) {
            tokio::task::yield_now().await;
        }
        ExtractiveSummariser.summarise(sources, characters_max).await
    }
}
