//! Merges: what is copied, joined and contested; and random histories of two branches compared with a simple model.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kv::Expect;
use crate::skills::{NewSkill, Outcome, Step};
use crate::testing::World;
use crate::{EntryChange, EntrySelection, Filter, MemoryId, NewEntry, PageRequest};

const OURS: MergeOptions = MergeOptions { dry_run: false, kv: None, entries: None };

async fn note(view: &View, text: &str) -> MemoryId {
    view.add(vec![NewEntry::note(text)]).await.unwrap().remove(0).id
}

async fn rewrite(view: &View, id: &MemoryId, text: &str) {
    let change = EntryChange { text: Some(text.to_owned()), ..EntryChange::nothing() };
    view.update(id, change, None).await.unwrap();
}

async fn texts(view: &View) -> Vec<String> {
    let page = view.list(&Filter::everything(), PageRequest::first(1_000)).await.unwrap();
    let mut texts: Vec<String> = page.rows.into_iter().map(|entry| entry.text).collect();
    texts.sort();
    texts
}

#[tokio::test]
async fn a_childs_new_entries_are_merged_once() {
    let world = World::new().await;
    let parent = world.view();
    let shared = note(&parent, "shared").await;
    let child = world.fork(&parent).await;
    let new = note(&child, "new").await;
    rewrite(&child, &shared, "shared, changed").await;
    note(&parent, "parent's own").await;

    let dry = parent.merge(&child, MergeOptions { dry_run: true, ..OURS }).await.unwrap();
    assert_eq!(texts(&parent).await, ["parent's own", "shared"], "a dry run changes nothing");
    let merged = parent.merge(&child, OURS).await.unwrap();
    assert_eq!(dry, merged, "and reports exactly what the merge does");
    assert_eq!((merged.added, merged.updated, merged.contradiction_count), (1, 1, 0));
    assert_eq!(texts(&parent).await, ["new", "parent's own", "shared, changed"]);
    assert_eq!(parent.get(&new).await.unwrap().text, "new", "under the id it had");
    assert_eq!(texts(&child).await, ["new", "shared, changed"], "the child is as it was");

    let before = parent.point().await.unwrap();
    assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default());
    assert_eq!(parent.point().await.unwrap(), before, "a second merge writes nothing");

    note(&child, "newer").await;
    let merged = parent.merge(&child, OURS).await.unwrap();
    assert_eq!((merged.added, merged.updated, merged.joined), (1, 0, 0), "only what is new since");
    let check = parent.check().await.unwrap();
    assert!(check.findings.is_empty(), "{check:?}");
}

#[tokio::test]
async fn forgetting_and_counting_are_merged() {
    let world = World::new().await;
    let parent = world.view();
    let (gone, counted) = (note(&parent, "to be forgotten").await, note(&parent, "to be counted").await);
    let child = world.fork(&parent).await;
    child.forget(&EntrySelection::Ids(vec![gone.clone()]), false).await.unwrap();
    child.repeat(std::slice::from_ref(&counted), 3).await.unwrap();
    let merged = parent.merge(&child, OURS).await.unwrap();
    assert_eq!(merged.forgotten, 1);
    assert!(parent.get(&gone).await.is_err());
    assert_eq!(parent.get(&counted).await.unwrap().count, 4);
}

#[tokio::test]
async fn both_sides_changing_an_entry_is_a_contradiction_and_ours_stays() {
    let world = World::new().await;
    let parent = world.view();
    let (both, forgot, superseded) =
        (note(&parent, "both").await, note(&parent, "forgot").await, note(&parent, "old truth").await);
    let child = world.fork(&parent).await;
    rewrite(&parent, &both, "ours").await;
    rewrite(&child, &both, "theirs").await;
    parent.forget(&EntrySelection::Ids(vec![forgot.clone()]), false).await.unwrap();
    rewrite(&child, &forgot, "theirs, too").await;
    rewrite(&parent, &superseded, "truth as we see it").await;
    child
        .add(vec![NewEntry { supersedes: vec![superseded.clone()], ..NewEntry::note("new truth") }])
        .await
        .unwrap();

    let merged = parent.merge(&child, OURS).await.unwrap();
    let mut kinds: Vec<_> = merged.contradictions.iter().map(|one| (one.kind, one.what.clone())).collect();
    kinds.sort_by_key(|(kind, _)| *kind as u8);
    assert_eq!(
        kinds,
        [
            (ContradictionKind::BothChanged, both.to_string()),
            (ContradictionKind::ForgottenAndChanged, forgot.to_string()),
            (ContradictionKind::SupersedesChanged, superseded.to_string()),
        ]
    );
    assert_eq!(parent.get(&both).await.unwrap().text, "ours");
    assert!(parent.get(&forgot).await.is_err());
    assert_eq!(merged.added, 1, "what supersedes is brought and listed");
}

/// Two branches with contradictions about an entry each way, a key, a skill and an artifact.
async fn conflict(world: &World) -> (View, View, [MemoryId; 3]) {
    let parent = world.view();
    let ids =
        [note(&parent, "both").await, note(&parent, "we forgot").await, note(&parent, "they forgot").await];
    let set = async |view: &View, value| {
        view.kv_set("k", json!(value), None, Expect::Any).await.unwrap();
    };
    set(&parent, "base").await;
    let child = world.fork(&parent).await;
    rewrite(&parent, &ids[0], "ours").await;
    rewrite(&child, &ids[0], "theirs").await;
    parent.forget(&EntrySelection::Ids(vec![ids[1].clone()]), false).await.unwrap();
    rewrite(&child, &ids[1], "theirs lives").await;
    rewrite(&parent, &ids[2], "ours lives").await;
    child.forget(&EntrySelection::Ids(vec![ids[2].clone()]), false).await.unwrap();
    set(&parent, "ours").await;
    set(&child, "theirs").await;
    (parent, child, ids)
}

#[tokio::test]
async fn a_second_merge_with_a_policy_settles_what_the_first_one_listed() {
    for (entries, kept, key, expected) in [
        (EntryPolicy::Ours, vec!["ours", "ours lives"], "ours", [Side::Ours; 3]),
        (EntryPolicy::Theirs, vec!["theirs", "theirs lives"], "theirs", [Side::Theirs; 3]),
        (
            EntryPolicy::Both,
            vec!["ours", "ours lives", "theirs", "theirs lives"],
            "theirs",
            [Side::Both, Side::Theirs, Side::Ours],
        ),
    ] {
        let world = World::new().await;
        let (parent, child, ids) = conflict(&world).await;
        let first = parent.merge(&child, OURS).await.unwrap();
        assert_eq!((first.contradiction_count, first.kv.contested), (4, 1), "{first:?}");
        assert_eq!(texts(&parent).await, ["ours", "ours lives"], "without a policy what is here stays");
        // Without a policy they are reported again, and nothing is written.
        let before = parent.point().await.unwrap();
        let again = parent.merge(&child, OURS).await.unwrap();
        assert_eq!(again, first);
        assert_eq!(parent.point().await.unwrap(), before);

        let kv = Some(if key == "ours" { KvPolicy::Ours } else { KvPolicy::Theirs });
        let policy = MergeOptions { dry_run: false, kv, entries: Some(entries) };
        let dry = parent.merge(&child, MergeOptions { dry_run: true, ..policy }).await.unwrap();
        assert_eq!(texts(&parent).await, ["ours", "ours lives"], "a dry run changes nothing");
        let settled = parent.merge(&child, policy).await.unwrap();
        assert_eq!(dry, settled, "and reports exactly what the merge does");
        let sides: Vec<Side> = ids
            .iter()
            .map(|id| settled.contradictions.iter().find(|one| one.what == id.as_str()).unwrap().kept)
            .collect();
        assert_eq!(sides, expected, "{settled:?}");
        assert_eq!(texts(&parent).await, kept, "{entries:?}");
        assert_eq!(parent.kv_get("k").await.unwrap().unwrap().value, json!(key));

        // After the decision, later merges copy only what is new.
        assert_eq!(parent.merge(&child, policy).await.unwrap(), MergeReport::default());
        rewrite(&parent, &ids[0], "ours, since").await;
        assert_eq!(parent.merge(&child, policy).await.unwrap(), MergeReport::default());
        note(&child, "news").await;
        let news = parent.merge(&child, policy).await.unwrap();
        assert_eq!((news.added, news.contradiction_count), (1, 0), "{news:?}");
        let check = parent.check().await.unwrap();
        assert!(check.findings.is_empty(), "{check:?}");
    }
}

#[tokio::test]
async fn decisions_are_rolled_back_with_their_branch_and_concern_one_child() {
    let world = World::new().await;
    let (parent, child, ids) = conflict(&world).await;
    let other = world.fork(&parent).await;
    rewrite(&other, &ids[0], "of another child").await;
    parent.merge(&child, OURS).await.unwrap();
    let listed = parent.point().await.unwrap();
    let policy = MergeOptions { entries: Some(EntryPolicy::Theirs), kv: Some(KvPolicy::Theirs), ..OURS };
    // The contradictions of the first child and its parent do not concern another child.
    let from_other = parent.merge(&other, MergeOptions { dry_run: true, ..policy }).await.unwrap();
    assert_eq!((from_other.updated, from_other.contradiction_count), (1, 0), "{from_other:?}");
    parent.merge(&child, policy).await.unwrap();
    assert_eq!(texts(&parent).await, ["theirs", "theirs lives"]);
    // After a restore to before the decision it is open again; a fork of the child may decide it, too.
    let restored = world.memory.view(&crate::MemoryRef::branched(&parent.of().space, listed));
    assert_eq!(restored.merge(&child, OURS).await.unwrap().contradiction_count, 4);
    let grandchild = world.fork(&child).await;
    note(&grandchild, "of the grandchild").await;
    restored.merge(&grandchild, policy).await.unwrap();
    assert_eq!(texts(&restored).await, ["of the grandchild", "theirs", "theirs lives"]);
    assert_eq!(restored.merge(&child, policy).await.unwrap(), MergeReport::default());
}

#[tokio::test]
async fn no_policy_restores_an_erased_entry() {
    let world = World::new().await;
    let (parent, child, ids) = conflict(&world).await;
    parent.merge(&child, OURS).await.unwrap();
    parent.erase(&EntrySelection::Ids(ids.to_vec()), false).await.unwrap();
    for entries in [EntryPolicy::Theirs, EntryPolicy::Both] {
        let merged = parent.merge(&child, MergeOptions { entries: Some(entries), ..OURS }).await.unwrap();
        assert_eq!((merged.added, merged.updated, merged.forgotten), (0, 0, 0), "{merged:?}");
    }
    assert!(texts(&parent).await.is_empty());
}

#[tokio::test]
async fn a_branch_is_not_merged_into_itself() {
    let world = World::new().await;
    let view = world.view();
    note(&view, "x").await;
    let refused = view.merge(&view.clone(), OURS).await.unwrap_err();
    assert!(matches!(refused, MemoryError::SameBranch) && refused.hint().is_some());
    // Merging its own past is allowed: it contains nothing new.
    let past = world.at(&view, 1).await;
    assert_eq!(view.merge(&past, OURS).await.unwrap(), MergeReport::default());
}

#[tokio::test]
async fn equal_entries_of_both_sides_are_joined_and_later_changes_find_them() {
    let world = World::new().await;
    let parent = world.view();
    note(&parent, "start").await;
    let child = world.fork(&parent).await;
    let ours = note(&parent, "The build needs  libssl.").await;
    let theirs = note(&child, "the build needs libssl").await;
    let other = child
        .add(vec![NewEntry { user: Some("bob".to_owned()), ..NewEntry::note("the build needs libssl") }])
        .await;
    let merged = parent.merge(&child, OURS).await.unwrap();
    assert_eq!((merged.joined, merged.added), (1, 1), "another user's is another's");
    assert_eq!(parent.get(&ours).await.unwrap().count, 2);
    assert!(parent.get(&theirs).await.is_err());
    assert!(parent.get(&other.unwrap()[0].id).await.is_ok());
    assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default());
}

#[tokio::test]
async fn the_same_key_on_both_sides_is_one_entry() {
    let world = World::new().await;
    let parent = world.view();
    note(&parent, "start").await;
    let child = world.fork(&parent).await;
    let keyed = |text: &str| vec![NewEntry { key: Some("k".to_owned()), ..NewEntry::note(text) }];
    parent.add(keyed("failed at 12:01")).await.unwrap();
    child.add(keyed("failed at 12:02")).await.unwrap();
    assert_eq!(parent.merge(&child, OURS).await.unwrap().joined, 1);
    // A key that only the child used can be used here afterwards.
    child.add(vec![NewEntry { key: Some("k2".to_owned()), ..NewEntry::note("second") }]).await.unwrap();
    parent.merge(&child, OURS).await.unwrap();
    let again =
        parent.add(vec![NewEntry { key: Some("k2".to_owned()), ..NewEntry::note("third") }]).await.unwrap();
    assert!(again[0].existed);
}

#[tokio::test]
async fn facts_of_one_subject_that_differ_are_listed_and_both_stay() {
    let world = World::new().await;
    let parent = world.view();
    note(&parent, "start").await;
    let child = world.fork(&parent).await;
    let fact = |text: &str| {
        let mut entry = NewEntry { kind: "fact".to_owned(), ..NewEntry::note(text) };
        entry.metadata.insert("subject".to_owned(), json!("port"));
        vec![entry]
    };
    parent.add(fact("the port is 80")).await.unwrap();
    child.add(fact("the port is 8080")).await.unwrap();
    let merged = parent.merge(&child, OURS).await.unwrap();
    assert_eq!(merged.contradictions.len(), 1);
    let found = &merged.contradictions[0];
    assert_eq!((found.kind, found.kept), (ContradictionKind::SameSubject, Side::Both));
    assert_eq!((found.ours.as_str(), found.theirs.as_str()), ("the port is 80", "the port is 8080"));
    assert_eq!(texts(&parent).await.len(), 3);
}

fn fact(text: &str) -> NewEntry {
    let mut entry = NewEntry { kind: "fact".to_owned(), ..NewEntry::note(text) };
    entry.metadata.insert("subject".to_owned(), json!("port"));
    entry
}

/// Two branches that contradict each other about a subject, about a superseded entry that was changed, and about one that was forgotten.
async fn disagree(world: &World) -> (View, View) {
    let parent = world.view();
    let (changed, gone) = (note(&parent, "old truth").await, note(&parent, "old rumour").await);
    let child = world.fork(&parent).await;
    parent.add(vec![fact("the port is 80")]).await.unwrap();
    rewrite(&parent, &changed, "truth as we see it").await;
    parent.forget(&EntrySelection::Ids(vec![gone.clone()]), false).await.unwrap();
    let replaces = |id: &MemoryId, text| NewEntry { supersedes: vec![id.clone()], ..NewEntry::note(text) };
    let learned =
        vec![fact("the port is 8080"), replaces(&changed, "new truth"), replaces(&gone, "new rumour")];
    child.add(learned).await.unwrap();
    (parent, child)
}

/// The texts that are not superseded.
async fn current(view: &View) -> Vec<String> {
    let page = view.list(&Filter::all(), PageRequest::first(1_000)).await.unwrap();
    let mut texts: Vec<String> = page.rows.into_iter().map(|entry| entry.text).collect();
    texts.sort();
    texts
}

#[tokio::test]
async fn entries_that_disagree_are_settled_by_a_policy_at_once_or_later_and_only_once() {
    let (ours, theirs) = ("the port is 80", "the port is 8080");
    let open = ["new rumour", "new truth", ours, theirs];
    let settled: [(EntryPolicy, Side, &[&str]); 3] = [
        (EntryPolicy::Ours, Side::Ours, &[ours, "truth as we see it"]),
        (EntryPolicy::Theirs, Side::Theirs, &["new rumour", "new truth", theirs]),
        (EntryPolicy::Both, Side::Both, &["new rumour", "new truth", ours, theirs, "truth as we see it"]),
    ];
    for listed_first in [false, true] {
        for (policy, side, expected) in settled {
            let world = World::new().await;
            let (parent, child) = disagree(&world).await;
            if listed_first {
                for _ in 0..2 {
                    let merged = parent.merge(&child, OURS).await.unwrap();
                    assert_eq!(merged.contradiction_count, 3, "reported until it is settled");
                    assert!(merged.contradictions.iter().all(|one| one.kept == Side::Both), "{merged:?}");
                    assert_eq!(current(&parent).await, open);
                }
            }
            let before = parent.point().await.unwrap().unwrap();
            let options = MergeOptions { entries: Some(policy), ..OURS };
            let dry = parent.merge(&child, MergeOptions { dry_run: true, ..options }).await.unwrap();
            let merged = parent.merge(&child, options).await.unwrap();
            assert_eq!(dry, merged, "a dry run tells exactly what happens");
            assert_eq!(merged.contradiction_count, 3, "{merged:?}");
            assert!(merged.contradictions.iter().all(|one| one.kept == side), "{merged:?}");
            assert_eq!(current(&parent).await, expected, "{policy:?}, listed first: {listed_first}");
            assert_eq!(parent.merge(&child, options).await.unwrap(), MergeReport::default(), "{policy:?}");
            assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default(), "{policy:?}");
            // If the parent is restored to before the decision, it is open again.
            let back = world.memory.view(&crate::MemoryRef::branched(&parent.of().space, Some(before)));
            assert_eq!(back.merge(&child, OURS).await.unwrap().contradiction_count, 3);
            assert!(parent.check().await.unwrap().findings.is_empty());
        }
    }
}

#[tokio::test]
async fn equal_changes_of_both_sides_need_no_policy() {
    let world = World::new().await;
    let (parent, child) = disagree(&world).await;
    assert_eq!(parent.merge(&child, OURS).await.unwrap().contradiction_count, 3);
    let all = parent.list(&Filter::all(), PageRequest::first(10)).await.unwrap().rows;
    let wrong = all.iter().filter(|entry| entry.text.ends_with("80") || entry.text.starts_with("new"));
    let wrong: Vec<MemoryId> = wrong.map(|entry| entry.id.clone()).collect();
    assert_eq!(wrong.len(), 4);
    parent.forget(&EntrySelection::Ids(wrong), false).await.unwrap();
    assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default());
    assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default());
    assert_eq!(texts(&parent).await, ["truth as we see it"]);
}

#[tokio::test]
async fn keys_follow_the_policy() {
    for (policy, expected) in [(KvPolicy::Ours, json!("ours")), (KvPolicy::Theirs, json!("theirs"))] {
        let world = World::new().await;
        let parent = world.view();
        for key in ["both", "child", "parent", "deleted"] {
            parent.kv_set(key, json!("base"), None, Expect::Any).await.unwrap();
        }
        let child = world.fork(&parent).await;
        parent.kv_set("both", json!("ours"), None, Expect::Any).await.unwrap();
        parent.kv_set("parent", json!("ours"), None, Expect::Any).await.unwrap();
        child.kv_set("both", json!("theirs"), None, Expect::Any).await.unwrap();
        child.kv_set("child", json!("theirs"), None, Expect::Any).await.unwrap();
        child.kv_set("new", json!(1), Some(60_000), Expect::Any).await.unwrap();
        child.kv_delete("deleted", Expect::Any).await.unwrap();
        note(&child, "beside").await;

        let fail = parent.merge(&child, MergeOptions { kv: Some(KvPolicy::Fail), ..OURS }).await;
        assert!(matches!(fail, Err(MemoryError::Contested { .. })), "{fail:?}");
        assert_eq!(texts(&parent).await, Vec::<String>::new(), "nothing was merged at all");

        let merged = parent.merge(&child, MergeOptions { kv: Some(policy), ..OURS }).await.unwrap();
        assert_eq!((merged.kv.contested, merged.kv.removed, merged.added), (1, 1, 1));
        let value = async |key: &str| parent.kv_get(key).await.unwrap().map(|item| item.value);
        assert_eq!(value("both").await, Some(expected));
        assert_eq!(value("child").await, Some(json!("theirs")));
        assert_eq!(value("parent").await, Some(json!("ours")));
        assert_eq!(value("deleted").await, None);
        assert!(parent.kv_get("new").await.unwrap().unwrap().expires_ms.is_some());
        assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default());
    }
}

fn skill(name: &str, run: &str) -> NewSkill {
    let step = Step::Command { run: run.to_owned(), workdir: None, env: BTreeMap::new(), timeout_s: None };
    NewSkill {
        name: name.to_owned(),
        description: format!("does {run}"),
        when_to_use: String::new(),
        parameters: Vec::new(),
        steps: vec![step],
        source: None,
    }
}

#[tokio::test]
async fn skills_and_their_outcomes_are_merged() {
    let world = World::new().await;
    let parent = world.view();
    parent.skill_put(skill("deploy", "make deploy")).await.unwrap();
    let child = world.fork(&parent).await;
    child.skill_put(skill("test", "make test")).await.unwrap();
    let outcome = Outcome { ok: true, exit_code: Some(0), detail: String::new(), took_ms: 5 };
    child.skill_outcome("deploy", 1, outcome.clone()).await.unwrap();
    child.skill_outcome("test", 1, outcome).await.unwrap();
    let merged = parent.merge(&child, OURS).await.unwrap();
    assert_eq!((merged.skills.set, merged.outcomes), (1, 2));
    assert_eq!(parent.skill_get("deploy", None).await.unwrap().successes, 1);
    assert_eq!(parent.skill_get("test", None).await.unwrap().successes, 1);
    assert_eq!(parent.merge(&child, OURS).await.unwrap(), MergeReport::default());
}

#[tokio::test]
async fn artifacts_are_merged_also_from_another_space() {
    let world = World::new().await;
    let parent = world.view();
    note(&parent, "start").await;
    let child = world.fork(&parent).await;
    let stranger = world.view();
    for view in [&child, &stranger] {
        let new = crate::artifacts::NewArtifact {
            name: "report.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            metadata: serde_json::Map::new(),
        };
        let body = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"content"))]).boxed();
        view.artifact_put(new, body).await.unwrap();
    }
    assert_eq!(parent.merge(&child, OURS).await.unwrap().artifacts.set, 1);
    assert_eq!(parent.artifact("report.txt", None).await.unwrap().bytes, 7);
    // The same content from another space is not new.
    assert_eq!(parent.merge(&stranger, OURS).await.unwrap().artifacts, MergeCounts::default());
    let fresh = world.view();
    assert_eq!(fresh.merge(&stranger, OURS).await.unwrap().artifacts.set, 1);
    assert_eq!(fresh.artifact("report.txt", None).await.unwrap().bytes, 7);
}

#[tokio::test]
async fn another_space_is_merged_once_and_then_incrementally() {
    let world = World::new().await;
    let (here, there) = (world.view(), world.view());
    note(&here, "mine").await;
    let id = note(&there, "yours").await;
    assert_eq!(here.merge(&there, OURS).await.unwrap().added, 1);
    assert_eq!(here.merge(&there, OURS).await.unwrap(), MergeReport::default());
    rewrite(&there, &id, "yours, changed").await;
    note(&there, "more").await;
    let merged = here.merge(&there, OURS).await.unwrap();
    assert_eq!((merged.added, merged.updated, merged.contradiction_count), (1, 1, 0));
    assert_eq!(texts(&here).await, ["mine", "more", "yours, changed"]);
}

#[tokio::test]
async fn a_parent_restored_to_before_a_merge_can_merge_again() {
    let world = World::new().await;
    let parent = world.view();
    note(&parent, "start").await;
    let snapshot = parent.point().await.unwrap();
    let child = world.fork(&parent).await;
    note(&child, "new").await;
    assert_eq!(parent.merge(&child, OURS).await.unwrap().added, 1);
    let restored = world.memory.view(&crate::MemoryRef::branched(&parent.of().space, snapshot));
    assert_eq!(texts(&restored).await, ["start"]);
    assert_eq!(restored.merge(&child, OURS).await.unwrap().added, 1);
    assert_eq!(texts(&restored).await, ["new", "start"]);
}

#[tokio::test]
async fn a_snapshot_of_a_child_is_merged_as_it_was_and_the_rest_later() {
    let world = World::new().await;
    let parent = world.view();
    note(&parent, "start").await;
    let child = world.fork(&parent).await;
    note(&child, "early").await;
    let snapshot = child.at(&crate::AsOf::Point(child.point().await.unwrap())).await.unwrap();
    note(&child, "late").await;
    assert_eq!(parent.merge(&snapshot, OURS).await.unwrap().added, 1);
    assert_eq!(texts(&parent).await, ["early", "start"]);
    assert_eq!(parent.merge(&child, OURS).await.unwrap().added, 1);
    assert_eq!(texts(&parent).await, ["early", "late", "start"]);
    let grandchild = world.fork(&child).await;
    note(&grandchild, "deeper").await;
    assert_eq!(parent.merge(&grandchild, OURS).await.unwrap().added, 1, "what its parent brought is known");
}

// === against a model ===

#[derive(Clone, Debug)]
enum BranchChange {
    Add,
    Change(usize),
    Forget(usize),
    Set(u8),
    Delete(u8),
}

fn deeds() -> impl Strategy<Value = Vec<(bool, BranchChange)>> {
    let deed = prop_oneof![
        3 => Just(BranchChange::Add),
        2 => (0usize..8).prop_map(BranchChange::Change),
        1 => (0usize..8).prop_map(BranchChange::Forget),
        2 => (0u8..4).prop_map(BranchChange::Set),
        1 => (0u8..4).prop_map(BranchChange::Delete),
    ];
    proptest::collection::vec((any::<bool>(), deed), 0..14)
}

/// The state of one side, as plain maps.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    entries: BTreeMap<String, String>,
    kv: BTreeMap<String, String>,
}

/// A three-way merge of maps: theirs if only they changed it, ours otherwise.
fn three_way(
    base: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    theirs: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, u64) {
    let mut out = ours.clone();
    let mut contested = 0;
    for key in base.keys().chain(theirs.keys()).collect::<std::collections::BTreeSet<_>>() {
        let (b, o, t) = (base.get(key), ours.get(key), theirs.get(key));
        if t == b || t == o {
            continue;
        }
        if o == b {
            match t {
                Some(value) => out.insert(key.clone(), value.clone()),
                None => out.remove(key),
            };
        } else {
            contested += 1;
        }
    }
    (out, contested)
}

async fn act(view: &View, model: &mut Model, ids: &mut Vec<MemoryId>, n: usize, deed: &BranchChange) {
    let text = format!("text {n}");
    match deed {
        BranchChange::Add => {
            let id = note(view, &text).await;
            model.entries.insert(id.to_string(), text);
            ids.push(id);
        }
        BranchChange::Change(at) | BranchChange::Forget(at) => {
            let Some(id) =
                ids.get(at % ids.len().max(1)).filter(|id| model.entries.contains_key(id.as_str()))
            else {
                return;
            };
            if matches!(deed, BranchChange::Change(_)) {
                rewrite(view, id, &text).await;
                model.entries.insert(id.to_string(), text);
            } else {
                view.forget(&EntrySelection::Ids(vec![id.clone()]), false).await.unwrap();
                model.entries.remove(id.as_str());
            }
        }
        BranchChange::Set(key) => {
            view.kv_set(&format!("k{key}"), json!(text), None, Expect::Any).await.unwrap();
            model.kv.insert(format!("k{key}"), json!(text).to_string());
        }
        BranchChange::Delete(key) => {
            view.kv_delete(&format!("k{key}"), Expect::Any).await.unwrap();
            model.kv.remove(&format!("k{key}"));
        }
    }
}

async fn state(view: &View) -> Model {
    let page = view.list(&Filter::everything(), PageRequest::first(1_000)).await.unwrap();
    let keys = view.kv_list("", PageRequest::first(1_000)).await.unwrap();
    Model {
        entries: page.rows.into_iter().map(|entry| (entry.id.to_string(), entry.text)).collect(),
        kv: keys.rows.into_iter().map(|item| (item.key, item.value.to_string())).collect(),
    }
}

async fn live(before: Vec<(bool, BranchChange)>, between: Vec<(bool, BranchChange)>) {
    let world = World::new().await;
    let parent = world.view();
    let mut ours = Model::default();
    let mut ids = Vec::new();
    let mut n = 0;
    for (_, deed) in &before {
        act(&parent, &mut ours, &mut ids, n, deed).await;
        n += 1;
    }
    let child = world.fork(&parent).await;
    let (base, mut theirs) = (ours.clone(), ours.clone());
    for (child_acts, deed) in &between {
        let (view, model) = if *child_acts { (&child, &mut theirs) } else { (&parent, &mut ours) };
        act(view, model, &mut ids, n, deed).await;
        n += 1;
    }
    let merged = parent.merge(&child, OURS).await.unwrap();
    let (entries, entry_conflicts) = three_way(&base.entries, &ours.entries, &theirs.entries);
    let (kv, key_conflicts) = three_way(&base.kv, &ours.kv, &theirs.kv);
    assert_eq!(state(&parent).await, Model { entries, kv });
    assert_eq!(state(&child).await, theirs, "a merge reads its child only");
    assert_eq!(merged.contradiction_count, entry_conflicts + key_conflicts, "{merged:?}");
    let again = parent.merge(&child, OURS).await.unwrap();
    let expected = MergeReport {
        kv: MergeCounts { contested: key_conflicts, ..MergeCounts::default() },
        contradictions: again.contradictions.clone(),
        contradiction_count: merged.contradiction_count,
        ..MergeReport::default()
    };
    assert_eq!(again, expected, "a second merge adds nothing, and reports the open contradictions");
    // With this policy, theirs wins wherever they changed something.
    let policy = MergeOptions { entries: Some(EntryPolicy::Theirs), kv: Some(KvPolicy::Theirs), ..OURS };
    parent.merge(&child, policy).await.unwrap();
    let (entries, _) = three_way(&base.entries, &theirs.entries, &ours.entries);
    let (kv, _) = three_way(&base.kv, &theirs.kv, &ours.kv);
    assert_eq!(state(&parent).await, Model { entries, kv });
    assert_eq!(
        parent.merge(&child, OURS).await.unwrap(),
        MergeReport::default(),
        "settled contradictions are not reported"
    );
    let check = parent.check().await.unwrap();
    assert!(check.findings.is_empty(), "{check:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn a_merge_equals_a_three_way_merge_of_maps(before in deeds(), between in deeds()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(before, between));
    }
}
