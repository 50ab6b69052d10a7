//! The log in normal operation: order, lists, proofs, retention, and one commit for leaves and spool.

use std::path::Path;
use std::process::Command;

use burrow_audit::note::Checkpoint;
use burrow_audit::tree::{proves_consistency, proves_inclusion};
use burrow_audit::verify::Verifier;
use burrow_audit::{Action, Durability, Event, Filter, Outcome, Span, Store, StoreError, export};
use burrow_model::{SandboxId, TenantId};

use crate::spool::{CHILD, fill, in_a_namespace};
use crate::{event, tenant};

pub(crate) const NOW: u64 = 1_700_000_000_000;

pub(crate) fn events(range: std::ops::Range<u64>) -> Vec<Event> {
    range.map(event).collect()
}

pub(crate) async fn filled(store: &Store, count: u64) {
    store.append(events(0..count), NOW, Durability::Power).await.unwrap();
}

/// An export as `burrow audit export` writes it.
pub(crate) async fn exported(store: &Store, tenant: &TenantId) -> Vec<u8> {
    let note = store.checkpoint(tenant).await.unwrap();
    let size = Checkpoint::read(&note).unwrap().size;
    let mut text = Vec::new();
    for outline in store.outlines(tenant, 0, size).await.unwrap() {
        export::write_outline(&outline, &mut text);
    }
    export::write_checkpoint(&note, &mut text);
    text
}

pub(crate) fn verify(
    text: &[u8],
    kept: Vec<Checkpoint>,
    store: &Store,
) -> Result<burrow_audit::verify::VerifyReport, burrow_audit::verify::VerifyError> {
    let mut verifier = Verifier::new(kept);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        verifier.line(line)?;
    }
    verifier.finish(Some(&store.public_key()))
}

#[tokio::test]
async fn an_empty_log_has_a_checkpoint_and_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let text = exported(&store, &tenant()).await;
    let verified = verify(&text, Vec::new(), &store).unwrap();
    assert_eq!((verified.events, verified.signed), (0, true));
    assert!(store.newest(&tenant(), Filter::default(), None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn events_keep_their_order_over_restarts_and_the_log_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Vec::new();
    for round in 0..3 {
        let store = Store::open(folder.path()).unwrap();
        let from = round * 300;
        store.append(events(from..from + 150), NOW, Durability::Process).await.unwrap();
        store.append(events(from + 150..from + 300), NOW, Durability::Power).await.unwrap();
        kept.push(Checkpoint::read(&store.checkpoint(&tenant()).await.unwrap()).unwrap());
        assert_eq!(store.size(&tenant()).await.unwrap(), from + 300);
    }
    let store = Store::open(folder.path()).unwrap();
    let text = exported(&store, &tenant()).await;
    let verified = verify(&text, kept, &store).unwrap();
    assert_eq!((verified.events, verified.kept, verified.removed), (900, 3, 0));
    let found = store.newest(&tenant(), Filter::default(), None, 1000).await.unwrap();
    assert_eq!(found.iter().map(|entry| entry.index).collect::<Vec<_>>(), (0..900).rev().collect::<Vec<_>>());
    assert!(found.iter().all(|entry| entry.event == event(entry.index)));
}

#[tokio::test]
async fn every_proof_of_a_log_across_levels_holds() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    filled(&store, 1500).await;
    let all = Checkpoint::read(&store.checkpoint(&tenant()).await.unwrap()).unwrap();
    for index in [0, 1, 255, 256, 511, 1023, 1024, 1499] {
        let proof = store.prove_inclusion(&tenant(), index, None).await.unwrap();
        assert_eq!(proof.leaf, burrow_audit::tree::leaf_hash(&event(index).to_bytes()));
        assert!(proves_inclusion(&proof.leaf, index, 1500, &proof.path, &all.root), "{index}");
    }
    for from in [0, 1, 255, 256, 257, 1024, 1499, 1500] {
        let proof = store.prove_consistency(&tenant(), from, None).await.unwrap();
        assert_eq!(proof.to_root, all.root);
        assert!(proves_consistency(from, &proof.from_root, 1500, &all.root, &proof.path), "{from}");
    }
    let refused = store.prove_inclusion(&tenant(), 1500, None).await.unwrap_err();
    assert!(matches!(refused, StoreError::OutOfRange { asked: 1500, size: 1500 }));
    assert!(store.prove_inclusion(&tenant(), 0, Some(1501)).await.is_err());
    assert!(store.prove_consistency(&tenant(), 7, Some(6)).await.is_err());
}

#[tokio::test]
async fn lists_are_filtered_and_paged_and_each_tenant_has_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let (other, sandbox) = (TenantId::generate(), SandboxId::generate());
    let made = |at_ms, action, outcome| Event {
        sandbox: Some(sandbox.clone()),
        actor: Some("key7 ci".into()),
        secret: Some("openai".into()),
        ..Event::new(at_ms, tenant(), action, outcome)
    };
    let mut all = vec![
        made(10, Action::EgressInject, Outcome::Allowed),
        made(20, Action::EgressDeny, Outcome::Denied),
        made(30, Action::ExecStart, Outcome::Done),
        Event::new(40, tenant(), Action::DaemonStart, Outcome::Done),
    ];
    all.push(Event::new(50, other.clone(), Action::KeyCreate, Outcome::Done));
    store.append(all, NOW, Durability::Power).await.unwrap();
    let found = async |filter: Filter| -> Vec<u64> {
        let found = store.newest(&tenant(), filter, None, 10).await.unwrap();
        found.iter().map(|entry| entry.event.at_ms).collect()
    };
    let any = Filter::default;
    assert_eq!(found(any()).await, [40, 30, 20, 10]);
    assert_eq!(found(Filter { action: Some("egress".to_owned()), ..any() }).await, [20, 10]);
    assert_eq!(found(Filter { action: Some("egress.deny".to_owned()), ..any() }).await, [20]);
    assert_eq!(found(Filter { action: Some("egr".to_owned()), ..any() }).await, Vec::<u64>::new());
    assert_eq!(found(Filter { sandbox: Some(sandbox.clone()), ..any() }).await, [30, 20, 10]);
    assert_eq!(found(Filter { outcome: Some(Outcome::Denied), ..any() }).await, [20]);
    for actor in ["key7", "ci", "key7 ci"] {
        assert_eq!(found(Filter { actor: Some(actor.to_owned()), ..any() }).await, [30, 20, 10], "{actor}");
    }
    assert_eq!(found(Filter { actor: Some("key".to_owned()), ..any() }).await, Vec::<u64>::new());
    assert_eq!(found(Filter { secret: Some("openai".to_owned()), ..any() }).await, [30, 20, 10]);
    assert_eq!(found(Filter { since_ms: Some(20), until_ms: Some(40), ..any() }).await, [30, 20]);
    let page = store.newest(&tenant(), any(), Some(2), 1).await.unwrap();
    assert_eq!(page[0].index, 1);
    let (on, next) = store.since(&tenant(), any(), 1, 2).await.unwrap();
    assert_eq!((on.len(), next), (2, 3));
    assert_eq!(store.since(&tenant(), any(), 4, 2).await.unwrap().1, 4);
    assert_eq!(store.size(&other).await.unwrap(), 1);
    let text = exported(&store, &other).await;
    assert_eq!(verify(&text, Vec::new(), &store).unwrap().tenant, other);
}

#[tokio::test]
async fn a_part_of_the_spool_is_appended_once_and_only_after_the_previous_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let span = |from, to| Span { segment: 3, from, to };
    store.ingest(events(0..2), span(None, 100), NOW).await.unwrap();
    let again = store.ingest(events(0..2), span(None, 100), NOW).await;
    assert!(matches!(again, Err(StoreError::Moved { segment: 3, known: 100, .. })), "{again:?}");
    store.ingest(events(2..3), span(Some(100), 150), NOW).await.unwrap();
    assert_eq!(store.taken(3).await.unwrap(), Some(150));
    assert_eq!(store.size(&tenant()).await.unwrap(), 3);
    store.forget(3).await.unwrap();
    assert_eq!(store.taken(3).await.unwrap(), None);
}

#[tokio::test]
async fn retention_removes_bodies_and_keeps_the_proof() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.append(events(0..700), NOW, Durability::Power).await.unwrap();
    let kept = Checkpoint::read(&store.checkpoint(&tenant()).await.unwrap()).unwrap();
    store.append(events(700..720), NOW + 1000, Durability::Power).await.unwrap();
    assert_eq!(store.retain(NOW, NOW + 2000).await.unwrap(), 0, "nothing is old enough");
    assert_eq!(store.retain(NOW + 1, NOW + 2000).await.unwrap(), 700);
    assert_eq!(store.retain(NOW + 1, NOW + 2000).await.unwrap(), 0);
    let found = store.newest(&tenant(), Filter::default(), None, 1000).await.unwrap();
    assert_eq!(found.len(), 21);
    assert_eq!(found[0].event.action, Action::AuditRetention);
    let text = exported(&store, &tenant()).await;
    assert!(!String::from_utf8(text.clone()).unwrap().contains("\"target\":\"5\""), "the body was removed");
    let verified = verify(&text, vec![kept], &store).unwrap();
    assert_eq!((verified.events, verified.removed, verified.kept), (721, 700, 1));
    let proof = store.prove_inclusion(&tenant(), 5, None).await.unwrap();
    assert!(proves_inclusion(&proof.leaf, 5, 721, &proof.path, &verified.root));
}

#[tokio::test]
async fn a_clock_that_steps_back_changes_neither_order_nor_retention() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.append(events(0..3), NOW, Durability::Power).await.unwrap();
    store.append(events(3..6), NOW - 1_000_000, Durability::Power).await.unwrap();
    drop(store);
    let store = Store::open(folder.path()).unwrap();
    store.append(events(6..9), NOW - 2_000_000, Durability::Power).await.unwrap();
    assert_eq!(store.retain(NOW, NOW).await.unwrap(), 0, "later events do not count as older");
    let text = exported(&store, &tenant()).await;
    assert_eq!(verify(&text, Vec::new(), &store).unwrap().events, 9);
    assert_eq!(store.retain(NOW + 1, NOW).await.unwrap(), 9);
}

#[tokio::test]
async fn followers_are_notified_of_new_events() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut grown = store.grown();
    grown.borrow_and_update();
    filled(&store, 1).await;
    grown.changed().await.unwrap();
}

#[tokio::test]
async fn a_copy_with_its_key_is_a_usable_log() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("one")).unwrap();
    filled(&store, 300).await;
    let kept = Checkpoint::read(&store.checkpoint(&tenant()).await.unwrap()).unwrap();
    let other = folder.path().join("two");
    std::fs::create_dir(&other).unwrap();
    let key = store.copy_to(&other.join("audit.db")).await.unwrap();
    std::fs::copy(key, other.join("key")).unwrap();
    let copy = Store::open(&other).unwrap();
    copy.append(events(300..310), NOW, Durability::Power).await.unwrap();
    let text = exported(&copy, &tenant()).await;
    assert_eq!(verify(&text, vec![kept], &copy).unwrap().events, 310);
}

#[test]
fn a_full_disk_refuses_whole_appends_until_there_is_space() {
    let Some(folder) = std::env::var_os(CHILD) else {
        return in_a_namespace("store::a_full_disk_refuses_whole_appends_until_there_is_space");
    };
    let folder = Path::new(&folder);
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(folder).status().unwrap();
    assert!(mounted.success());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&folder.join("audit")).unwrap();
        filled(&store, 10).await;
        let ballast = folder.join("ballast");
        fill(&ballast);
        let mut size = 10;
        let error = loop {
            match store.append(events(size..size + 100), NOW, Durability::Power).await {
                Ok(()) => size += 100,
                Err(error) => break error,
            }
            assert!(size < 1_000_000, "the disk never filled");
        };
        assert!(matches!(error, StoreError::Full | StoreError::Commit { .. }), "{error:?}");
        assert_eq!(store.size(&tenant()).await.unwrap(), size, "no refused event is there");
        std::fs::remove_file(&ballast).unwrap();
        store.append(events(size..size + 5), NOW, Durability::Power).await.unwrap();
        let text = exported(&store, &tenant()).await;
        assert_eq!(verify(&text, Vec::new(), &store).unwrap().events, size + 5);
    });
}
