//! E-A1: changes of the store or of an export are detected.

use std::fs;
use std::path::Path;

use burrow_audit::note::Checkpoint;
use burrow_audit::verify::VerifyError;
use burrow_audit::{Store, StoreError};
use rusqlite::Connection;

use crate::store::{events, exported, filled, verify};
use crate::tenant;

fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

struct Log {
    store: Store,
    /// Kept elsewhere, from when the log had 60 events.
    kept: Checkpoint,
    text: Vec<u8>,
    _folder: tempfile::TempDir,
}

async fn log() -> Log {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    filled(&store, 60).await;
    let kept = Checkpoint::read(&store.checkpoint(&tenant()).await.unwrap()).unwrap();
    store.append(events(60..100), crate::store::NOW, burrow_audit::Durability::Power).await.unwrap();
    let text = exported(&store, &tenant()).await;
    Log { store, kept, text, _folder: folder }
}

#[tokio::test]
async fn a_changed_export_is_not_valid() {
    let log = log().await;
    let check = |lines: Vec<Vec<u8>>| verify(&lines.concat(), vec![log.kept.clone()], &log.store);
    assert_eq!(check(lines(&log.text)).unwrap().events, 100);

    let mut removed = lines(&log.text);
    removed.remove(17);
    assert!(matches!(check(removed), Err(VerifyError::Order { expected: 17, found: 18, .. })));

    let mut swapped = lines(&log.text);
    swapped.swap(3, 4);
    assert!(matches!(check(swapped), Err(VerifyError::Order { expected: 3, .. })));

    // Swapped and renumbered.
    let mut renumbered = lines(&log.text);
    let text = |line: &[u8]| String::from_utf8(line.to_vec()).unwrap();
    let (three, four) = (text(&renumbered[3]), text(&renumbered[4]));
    renumbered[3] = four.replacen("\"index\":4", "\"index\":3", 1).into_bytes();
    renumbered[4] = three.replacen("\"index\":3", "\"index\":4", 1).into_bytes();
    assert!(matches!(check(renumbered), Err(VerifyError::Root { size: 60, .. })));

    let mut edited = lines(&log.text);
    edited[80] = text(&edited[80]).replacen("api.example", "api.exbmple", 1).into_bytes();
    assert!(matches!(check(edited), Err(VerifyError::Root { size: 100, .. })));

    let mut doubled = lines(&log.text);
    doubled.insert(5, doubled[4].clone());
    assert!(matches!(check(doubled), Err(VerifyError::Order { expected: 5, found: 4, .. })));

    let mut cut = lines(&log.text);
    cut.truncate(90);
    assert!(matches!(check(cut.clone()), Err(VerifyError::CutOff { events: 90 })));
    cut.push(lines(&log.text).pop().unwrap());
    assert!(matches!(check(cut), Err(VerifyError::Count { events: 90, size: 100 })));

    // As if removed by retention.
    let mut hidden = lines(&log.text);
    let body = burrow_audit::tree::leaf_hash(&crate::event(7).to_bytes());
    hidden[7] = format!("{{\"index\":7,\"hash\":\"{body}\"}}\n").into_bytes();
    assert!(matches!(check(hidden), Err(VerifyError::Removed { index: 7 })));

    let mut more = lines(&log.text);
    more.push(more[0].clone());
    assert!(matches!(check(more), Err(VerifyError::AfterTheEnd { line: 102 })));
}

#[tokio::test]
async fn every_changed_bit_of_an_export_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    filled(&store, 3).await;
    let text = exported(&store, &tenant()).await;
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 0x04;
        // The last line break is not part of the contents.
        if at + 1 < text.len() {
            assert!(verify(&changed, Vec::new(), &store).is_err(), "byte {at}");
        }
    }
}

#[tokio::test]
async fn an_older_or_different_log_does_not_match_the_kept_checkpoint() {
    let log = log().await;
    let folder = tempfile::tempdir().unwrap();
    let short = Store::open(folder.path()).unwrap();
    filled(&short, 40).await;
    let text = exported(&short, &tenant()).await;
    let shrunk = verify(&text, vec![log.kept.clone()], &short);
    assert!(matches!(shrunk, Err(VerifyError::Shrunk { events: 40, size: 60 })), "{shrunk:?}");

    // A different, validly signed history with the same key.
    let folder = tempfile::tempdir().unwrap();
    let forked = Store::open(folder.path()).unwrap();
    let mut history = events(0..100);
    history[30].reason = Some("another".into());
    forked.append(history, 1, burrow_audit::Durability::Power).await.unwrap();
    let text = exported(&forked, &tenant()).await;
    assert!(verify(&text, Vec::new(), &forked).is_ok(), "it is valid in itself");
    let found = verify(&text, vec![log.kept.clone()], &forked);
    assert!(matches!(found, Err(VerifyError::Root { size: 60, .. })), "{found:?}");
    // It was not signed with the other key.
    assert!(matches!(verify(&text, Vec::new(), &log.store), Err(VerifyError::Signature(_))));
}

/// Fills a store, applies `change` to its file, and returns the result of verifying its export; `Err` if the store
/// does not open.
async fn changed(change: &str) -> Result<Result<(), VerifyError>, StoreError> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    filled(&store, 600).await;
    drop(store);
    edit(folder.path(), change);
    let store = Store::open(folder.path())?;
    let text = exported(&store, &tenant()).await;
    Ok(verify(&text, Vec::new(), &store).map(|_| ()))
}

fn edit(folder: &Path, change: &str) {
    let connection = Connection::open(folder.join("audit.db")).unwrap();
    connection.execute_batch(change).unwrap();
}

#[tokio::test]
async fn a_store_with_a_changed_file_does_not_open_or_is_not_valid() {
    assert!(changed("").await.unwrap().is_ok());
    for change in [
        "DELETE FROM leaves WHERE place = 300",
        "UPDATE leaves SET body = cast(replace(cast(body AS TEXT), 'api.example', 'api.exbmple') AS BLOB) WHERE place = 5",
        "UPDATE leaves SET body = NULL, hash = randomblob(32) WHERE place = 5",
        "UPDATE leaves SET body = NULL WHERE place = 5",
        "UPDATE leaves SET body = (SELECT body FROM leaves WHERE place = 8) WHERE place = 7",
        "UPDATE leaves SET place = 10000 WHERE place = 1; UPDATE leaves SET place = 1 WHERE place = 2; \
         UPDATE leaves SET place = 2 WHERE place = 10000",
    ] {
        assert!(changed(change).await.unwrap().is_err(), "{change}");
    }
    for change in [
        "DELETE FROM leaves WHERE place >= 590",
        "DELETE FROM leaves WHERE place >= 590; UPDATE trees SET size = 590",
        "UPDATE trees SET edge = randomblob(length(edge))",
        "UPDATE trees SET note = replace(note, '600', '599')",
        "UPDATE trees SET tenant = 'tenbbbbbbbbbbbbbbbbbbbb'",
    ] {
        let refused = changed(change).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Tampered { .. } | StoreError::Note(_)),
            "{change}: {refused:?}"
        );
        assert!(refused.hint().is_some());
    }
}

#[tokio::test]
async fn changed_hashes_give_invalid_proofs() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    filled(&store, 600).await;
    let signed = Checkpoint::read(&store.checkpoint(&tenant()).await.unwrap()).unwrap();
    edit(folder.path(), "UPDATE nodes SET hash = randomblob(32)");
    let proof = store.prove_inclusion(&tenant(), 5, None).await.unwrap();
    assert_ne!(proof.root, signed.root);
    edit(folder.path(), "DELETE FROM nodes");
    assert!(matches!(store.prove_inclusion(&tenant(), 5, None).await, Err(StoreError::Tampered { .. })));
}

#[tokio::test]
async fn a_store_with_a_newer_version_or_another_key_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    filled(&Store::open(folder.path()).unwrap(), 3).await;
    let key = fs::read(folder.path().join("key")).unwrap();
    fs::remove_file(folder.path().join("key")).unwrap();
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Note(_))));
    fs::write(folder.path().join("key"), key).unwrap();
    Store::open(folder.path()).unwrap();
    edit(folder.path(), "PRAGMA user_version = 99");
    assert!(matches!(Store::open(folder.path()), Err(StoreError::Version { found: 99 })));
}
