//! A moved branch has all of its memory and its past, and nothing that it could not see.

use futures_util::TryStreamExt as _;
use serde_json::json;
use tokio::sync::mpsc;

use super::take_in::body;
use super::{CarriedBlob, ImportedMemory};
use crate::artifacts::{NewArtifact, Part};
use crate::kv::Expect;
use crate::skills::{NewSkill, Outcome, Step};
use crate::testing::World;
use crate::{
    AsOf, EntryChange, EntrySelection, Filter, MemoryError, MemoryId, MemoryPoint, MemoryRef, NewEntry,
    PageRequest, SpaceId, View,
};

/// A branch with a past: an ancestor, versions, marks, keys, a skill, artifacts. And a sibling with other words.
struct BranchWithPast {
    view: View,
    changed: MemoryId,
    /// A number before the change.
    early: u64,
}

async fn add(view: &View, text: &str) -> MemoryId {
    let entry = NewEntry { session: Some("monday".to_owned()), ..NewEntry::note(text) };
    view.add(vec![entry]).await.unwrap().remove(0).id
}

fn artifact(name: &str) -> NewArtifact {
    NewArtifact {
        name: name.to_owned(),
        media_type: "text/plain".to_owned(),
        metadata: serde_json::Map::new(),
    }
}

async fn remembered(world: &World) -> BranchWithPast {
    let parent = world.view();
    add(&parent, "the parent learned to build").await;
    let sibling = world.fork(&parent).await;
    add(&sibling, "zanzibar is what only the sibling saw").await;
    let view = world.fork(&parent).await;
    add(&parent, "quetzal came after the fork").await;
    let changed = add(&view, "the child learned to test").await;
    let early = view.point().await.unwrap().unwrap().seq;
    let change =
        EntryChange { text: Some("the child learned to test well".to_owned()), ..EntryChange::nothing() };
    view.update(&changed, change, None).await.unwrap();
    let gone = add(&view, "to be forgotten").await;
    view.forget(&EntrySelection::Ids(vec![gone]), false).await.unwrap();
    view.kv_set("state", json!({ "step": 1 }), None, Expect::Any).await.unwrap();
    view.kv_set("state", json!({ "step": 2 }), None, Expect::Any).await.unwrap();
    let step =
        Step::Command { run: "make".to_owned(), workdir: None, env: Default::default(), timeout_s: None };
    let skill = NewSkill {
        name: "build".to_owned(),
        description: "builds it".to_owned(),
        when_to_use: "always".to_owned(),
        parameters: Vec::new(),
        steps: vec![step],
        source: None,
    };
    let skill = view.skill_put(skill).await.unwrap();
    let outcome = Outcome { ok: true, exit_code: Some(0), detail: String::new(), took_ms: 5 };
    view.skill_outcome("build", skill.version, outcome).await.unwrap();
    view.artifact_put(artifact("report"), body(b"small".to_vec())).await.unwrap();
    view.artifact_put(artifact("large"), body(vec![7; 3_000_000])).await.unwrap();
    BranchWithPast { view, changed, early }
}

async fn written(world: &World, view: &View) -> (Vec<Vec<u8>>, Vec<CarriedBlob>, MemoryPoint) {
    let point = view.point().await.unwrap().unwrap();
    let (into, mut lines) = mpsc::channel(64);
    let blobs = world.memory.write_out(&view.of().space, &point, into).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = lines.recv().await {
        batches.push(batch);
    }
    (batches, blobs, point)
}

async fn taken(world: &World, batches: Vec<Vec<u8>>) -> Result<(SpaceId, ImportedMemory), MemoryError> {
    let space = SpaceId::generate();
    let (sender, lines) = mpsc::channel(batches.len().max(1));
    for batch in batches {
        sender.try_send(batch).unwrap();
    }
    drop(sender);
    world.memory.take_in(&space, lines).await.map(|taken| (space, taken))
}

async fn texts(view: &View) -> Vec<String> {
    let page = view.list(&Filter::everything(), PageRequest::first(100)).await.unwrap();
    let mut texts: Vec<_> = page.rows.into_iter().map(|entry| entry.text).collect();
    texts.sort();
    texts
}

#[tokio::test]
async fn a_branch_is_moved_with_its_whole_past() {
    let (here, there) = (World::new().await, World::new().await);
    let past = remembered(&here).await;
    let (batches, blobs, point) = written(&here, &past.view).await;
    let (space, taken) = taken(&there, batches).await.unwrap();
    assert_eq!(taken.point, point);
    assert_eq!(taken.blobs.iter().copied().collect::<Vec<_>>(), blobs);
    for blob in &blobs {
        let content: Vec<bytes::Bytes> =
            here.memory.read_blob(&past.view.of().space, blob).await.unwrap().try_collect().await.unwrap();
        there.memory.take_blob(&space, blob, body(content.concat())).await.unwrap();
    }
    let view = there.memory.view(&MemoryRef::branched(&space, Some(taken.point)));
    assert_eq!(texts(&view).await, texts(&past.view).await);
    assert_eq!(view.history(&past.changed).await.unwrap().len(), 2);
    let before = view.at(&AsOf::Seq(past.early)).await.unwrap();
    assert_eq!(texts(&before).await, ["the child learned to test", "the parent learned to build"]);
    assert_eq!(view.kv_get("state").await.unwrap().unwrap().value, json!({ "step": 2 }));
    assert_eq!(view.kv_history("state").await.unwrap().len(), 2);
    let skill = view.skill_get("build", None).await.unwrap();
    assert_eq!((skill.version, skill.successes), (1, 1));
    let read = view.artifact_get("large", None, Part::All).await.unwrap();
    let content: Vec<bytes::Bytes> = read.content.try_collect().await.unwrap();
    assert_eq!(content.concat(), vec![7; 3_000_000]);
    let report = view.check().await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    // It continues, with its own numbers.
    add(&view, "and then it moved").await;
    assert_eq!(texts(&view).await.len(), 3);
    assert!(view.check().await.unwrap().is_sound());
}

#[tokio::test]
async fn invisible_rows_are_not_moved() {
    let world = World::new().await;
    let past = remembered(&world).await;
    let (batches, ..) = written(&world, &past.view).await;
    let text = String::from_utf8(batches.concat()).unwrap();
    assert!(text.contains("the parent learned"), "{text}");
    for hidden in ["zanzibar", "quetzal"] {
        assert!(!text.contains(hidden));
    }
}

#[tokio::test]
async fn a_moved_branch_can_be_moved_again() {
    let (here, there, further) = (World::new().await, World::new().await, World::new().await);
    let past = remembered(&here).await;
    past.view.artifact_forget("large").await.unwrap();
    past.view.artifact_forget("report").await.unwrap();
    here.clock.advance(crate::COLLECT_GRACE_MS * 2);
    let kept = [crate::KeptReference::Branch(past.view.of().clone())];
    here.memory.collect(&past.view.of().space, &kept, false).await.unwrap();
    let (batches, blobs, _) = written(&here, &past.view).await;
    assert!(blobs.is_empty(), "what was let go of has no content");
    let (space, first) = taken(&there, batches.clone()).await.unwrap();
    let view = there.memory.view(&MemoryRef::branched(&space, Some(first.point)));
    add(&view, "a stop on the way").await;
    let (again, ..) = written(&there, &view).await;
    let (space, second) = taken(&further, again).await.unwrap();
    let last = further.memory.view(&MemoryRef::branched(&space, Some(second.point)));
    assert_eq!(texts(&last).await, texts(&view).await);
    assert!(last.check().await.unwrap().is_sound());
}

#[tokio::test]
async fn contents_under_another_hash_are_refused() {
    let (here, there) = (World::new().await, World::new().await);
    let past = remembered(&here).await;
    let (batches, blobs, _) = written(&here, &past.view).await;
    let (space, _) = taken(&there, batches).await.unwrap();
    let other = there.memory.take_blob(&space, &blobs[0], body(b"other".to_vec())).await;
    assert!(matches!(other, Err(MemoryError::DamagedBlob { .. })), "{other:?}");
    assert!(there.memory.blobs().await.unwrap().is_empty());
}

#[tokio::test]
async fn inconsistent_rows_are_refused_and_leave_nothing() {
    let (here, there) = (World::new().await, World::new().await);
    let past = remembered(&here).await;
    let (batches, ..) = written(&here, &past.view).await;
    let text = String::from_utf8(batches.concat()).unwrap();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    let without = |start: &str| {
        let kept: Vec<_> = text.lines().filter(|line| !line.starts_with(start)).collect();
        kept.join("\n")
    };
    let mut forged = vec![
        String::new(),
        "nonsense\n".to_owned(),
        text.lines().skip(1).collect::<Vec<_>>().join("\n"),
        change("learned to build", "learned to break"),
        change("[\"log\",", "[\"sqlite_schema\","),
        change("[\"log\",", "[\"log\",9,"),
        without("[\"log\""),
        without("[\"ids\""),
        without("[\"branches\""),
        change("\"rows\":1", "\"rows\":2"),
        format!("{text}[\"words\",1,{{\"x\":\"zz\"}}]\n"),
        format!(
            "{text}[\"artifacts\",1,1,\"../up\",1,1,{{\"x\":\"{}\"}},1,\"a/b\",null,0]\n",
            "00".repeat(32)
        ),
        // Numbers that would make the reader allocate huge arrays.
        format!("{text}[\"branches\",4000000000,\"{}\",null,null,0]\n", crate::BranchId::generate()),
        format!("{text}[\"ids\",4000000000,\"{}\"]\n", MemoryId::generate()),
    ];
    forged.push(change("\"format\":", "\"format\":9"));
    for text in forged {
        let refused = taken(&there, vec![text.clone().into_bytes()]).await;
        assert!(refused.is_err(), "{}", &text[text.len().saturating_sub(200)..]);
    }
    assert_eq!(there.memory.spaces().await.unwrap(), []);
}
