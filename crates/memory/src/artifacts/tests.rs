//! Artifacts in every kind of store: content, versions, damage, and what a sweep may remove.

use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::json;

use super::hash::BLOCK_BYTES;
use super::room::SpaceUsage;
use super::sweep::SWEEP_GRACE_MS;
use super::*;
use crate::testing::World;
use crate::{COLLECT_GRACE_MS, KeptReference, Limits, PageRequest, View};

/// Longer than any grace period.
const LATER_MS: u64 = 30 * 24 * 3600 * 1000;

fn new(name: &str) -> NewArtifact {
    NewArtifact { name: name.to_owned(), media_type: "text/plain".to_owned(), metadata: Map::new() }
}

fn body(content: &[u8]) -> Body {
    let pieces: Vec<_> = content.chunks(70_001).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    stream::iter(pieces).boxed()
}

fn content(bytes: u64, seed: u8) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8 ^ seed).collect()
}

async fn put(view: &View, name: &str, content: &[u8]) -> Artifact {
    view.artifact_put(new(name), body(content)).await.unwrap()
}

async fn get(view: &View, name: &str, version: Option<u64>, part: Part) -> Result<Vec<u8>, MemoryError> {
    let read = view.artifact_get(name, version, part).await?;
    let content: Vec<Bytes> = read.content.try_collect().await?;
    let content = content.concat();
    assert_eq!(content.len() as u64, read.range.end - read.range.start);
    Ok(content)
}

async fn objects(store: &dyn ObjectStore) -> Vec<String> {
    let mut found: Vec<_> =
        store.list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap();
    found.sort();
    found
}

/// Each test runs over each kind of store.
async fn over_each(test: impl AsyncFn(World)) {
    test(World::over(Arc::new(InMemory::new())).await).await;
    let folder = tempfile::tempdir().unwrap();
    test(World::over(local_store(folder.path()).unwrap()).await).await;
}

#[tokio::test]
async fn content_is_read_whole_and_in_ranges() {
    over_each(async |world| {
        let view = world.view();
        for bytes in [0, 1, 100, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 12_345, 20 * BLOCK_BYTES] {
            let sent = content(bytes, 3);
            let artifact = put(&view, "dir/file.bin", &sent).await;
            assert_eq!(artifact.hash, blake3::hash(&sent).to_hex().to_string());
            assert_eq!(artifact.bytes, bytes);
            assert_eq!(get(&view, "dir/file.bin", None, Part::All).await.unwrap(), sent, "{bytes} bytes");
            let middle = bytes / 2;
            for part in
                [Part::From(middle), Part::Through(middle, middle), Part::Last(7), Part::Through(0, u64::MAX)]
            {
                let range = part.of(bytes).map(|range| range.start as usize..range.end as usize);
                match range {
                    Some(range) => {
                        assert_eq!(get(&view, "dir/file.bin", None, part).await.unwrap(), sent[range])
                    }
                    None => assert!(matches!(
                        get(&view, "dir/file.bin", None, part).await,
                        Err(MemoryError::Range { .. })
                    )),
                }
            }
        }
        assert!(matches!(
            view.artifact_get("dir/other", None, Part::All).await,
            Err(MemoryError::NotFound { .. })
        ));
        assert!(matches!(
            view.artifact_get("dir/file.bin", None, Part::From(1 << 40)).await,
            Err(MemoryError::Range { .. })
        ));
    })
    .await;
}

#[tokio::test]
async fn equal_content_is_stored_once() {
    over_each(async |world| {
        let (view, stranger) = (world.view(), world.view());
        let sent = content(2 * BLOCK_BYTES, 1);
        put(&view, "a", &sent).await;
        put(&view, "b", &sent).await;
        put(&stranger, "c", &sent).await;
        let hash = blake3::hash(&sent).to_hex().to_string();
        assert_eq!(objects(&*world.store).await, [format!("{}/{hash}", &hash[..2])]);
        assert_eq!(get(&stranger, "c", None, Part::All).await.unwrap(), sent);
        assert!(stranger.artifact("a", None).await.is_err());
        assert!(stranger.artifact_linked(&hash).await.is_ok());
        assert!(world.view().artifact_linked(&hash).await.is_err(), "a hash alone opens nothing");
    })
    .await;
}

#[tokio::test]
async fn an_artifact_has_versions_metadata_and_a_past() {
    let world = World::new().await;
    let view = world.view();
    let mut first = new("report");
    first.metadata.insert("run".to_owned(), json!(7));
    let first = view.artifact_put(first, body(b"one")).await.unwrap();
    let child = world.fork(&view).await;
    let second = put(&view, "report", b"two").await;
    assert_eq!((first.version, second.version, first.metadata["run"].clone()), (1, 2, json!(7)));
    assert_eq!(get(&view, "report", Some(1), Part::All).await.unwrap(), b"one");
    assert_eq!(get(&child, "report", None, Part::All).await.unwrap(), b"one");
    assert_eq!(view.artifact_versions("report").await.unwrap(), [second.clone(), first.clone()]);
    view.artifact_forget("report").await.unwrap();
    assert!(view.artifact("report", None).await.is_err() && view.artifact("report", Some(1)).await.is_err());
    assert!(view.artifact_forget("report").await.is_err());
    let past = world.at(&view, second.seq).await;
    assert_eq!(get(&past, "report", None, Part::All).await.unwrap(), b"two");
    assert_eq!(put(&view, "report", b"three").await.version, 3);
    let listed = view.artifact_list("rep", PageRequest::first(10)).await.unwrap();
    assert_eq!(listed.rows.iter().map(|artifact| artifact.version).collect::<Vec<_>>(), [3]);
    assert_eq!(view.artifact_linked("report").await.unwrap().version, 3);
    assert_eq!(view.artifact_linked(&blake3::hash(b"three").to_hex()).await.unwrap().name, "report");
    assert!(
        past.artifact_put(new("x"), body(b""))
            .await
            .is_err_and(|error| matches!(error, MemoryError::ReadOnly))
    );
}

#[test]
fn a_name_that_could_leave_a_folder_or_spoil_a_terminal_is_refused() {
    for name in ["", "/a", "a//b", "a/", "..", "a/../b", "./a", "a\nb", "a\u{1b}[0m", &"x".repeat(513)] {
        assert!(check_name(name).is_err(), "{name:?}");
    }
    for name in ["a", "a/b.c", "ünï/…", "a b", ".hidden", "...", &"x".repeat(512)] {
        assert!(check_name(name).is_ok(), "{name:?}");
    }
    let mut odd = new("a");
    odd.media_type = "text/plain\r\nx: y".to_owned();
    assert!(odd.check().is_err());
}

#[tokio::test]
async fn an_interrupted_upload_leaves_nothing() {
    over_each(async |world| {
        let view = world.view();
        let broken = |pieces: usize| -> Body {
            let sound = stream::iter((0..pieces).map(|_| Ok(Bytes::from(vec![7; 1 << 20]))));
            sound.chain(stream::iter([Err(io::Error::other("gone"))])).boxed()
        };
        for pieces in [0, 1, 30] {
            let error = view.artifact_put(new("a"), broken(pieces)).await.unwrap_err();
            assert!(matches!(error, MemoryError::Upload { .. }), "{error}");
        }
        assert!(view.artifact("a", None).await.is_err());
        assert!(objects(&*world.store).await.is_empty());
    })
    .await;
}

// === damage ===

fn flip(folder: &FilePath, hash: &str, at: usize) {
    let path = folder.join(&hash[..2]).join(hash);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
}

#[tokio::test]
async fn a_flipped_bit_is_detected_before_its_block_is_returned_and_a_new_upload_repairs_it() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::over(local_store(folder.path()).unwrap()).await;
    let view = world.view();
    let block = usize::try_from(BLOCK_BYTES).unwrap();
    let sent = content(3 * BLOCK_BYTES, 9);
    let artifact = put(&view, "a", &sent).await;
    flip(folder.path(), &artifact.hash, 2 * block + 5);
    let mut read = view.artifact_get("a", None, Part::All).await.unwrap().content;
    assert_eq!(read.next().await.unwrap().unwrap(), sent[..block]);
    assert_eq!(read.next().await.unwrap().unwrap(), sent[block..2 * block]);
    let error = read.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, MemoryError::DamagedBlob { hash, .. } if *hash == artifact.hash), "{error}");
    assert_eq!(
        get(&view, "a", None, Part::Through(10, 20)).await.unwrap(),
        sent[10..21],
        "the rest is sound"
    );
    assert!(
        get(&view, "a", None, Part::Last(1)).await.is_err(),
        "a part of a damaged block is not handed out"
    );
    assert_eq!(put(&view, "again", &sent).await.hash, artifact.hash);
    assert_eq!(get(&view, "a", None, Part::All).await.unwrap(), sent);
}

#[tokio::test]
async fn a_check_reports_damaged_and_missing_contents() {
    over_each(async |world| {
        let view = world.view();
        let large = content(3 * BLOCK_BYTES + 5, 1);
        put(&view, "sound", b"sound").await;
        put(&view, "large.bin", b"an older version").await;
        let damaged = put(&view, "large.bin", &large).await;
        let missing = put(&view, "dir/missing", b"to be lost").await;
        let empty = put(&view, "empty", b"").await;
        let report = view.check().await.unwrap();
        assert!(report.is_sound(), "{report:?}");
        let bytes = 5 + 16 + damaged.bytes + 10;
        assert_eq!((report.artifacts, report.artifact_bytes), (5, bytes));
        // Flip one bit in the middle; the length is unchanged.
        let place = |hash: &str| object_store::path::Path::from_iter([&hash[..2], hash]);
        let mut flipped = large.clone();
        flipped[2_000_000] ^= 1;
        world.store.put(&place(&damaged.hash), Bytes::from(flipped).into()).await.unwrap();
        world.store.delete(&place(&missing.hash)).await.unwrap();
        world.store.delete(&place(&empty.hash)).await.unwrap();
        let report = view.check().await.unwrap();
        let found: Vec<&str> = report.findings.iter().map(|finding| finding.why.as_str()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(report.findings.iter().all(|finding| finding.part == "artifacts"));
        for (name, hash, why) in [
            ("`dir/missing`", &missing.hash, "it is missing"),
            ("`empty`", &empty.hash, "it is missing"),
            ("`large.bin`", &damaged.hash, "differ from the stored content"),
        ] {
            let is_reported =
                found.iter().any(|text| text.contains(name) && text.contains(hash) && text.contains(why));
            assert!(is_reported, "{name} in {found:?}");
        }
        // Storing the same content again repairs it; content that is forgotten everywhere is not checked.
        put(&view, "large.bin", &large).await;
        for name in ["dir/missing", "empty"] {
            view.artifact_forget(name).await.unwrap();
        }
        let_time_pass(&world);
        world
            .memory
            .collect(&view.of().space, &[KeptReference::Branch(view.of().clone())], false)
            .await
            .unwrap();
        let report = view.rebuild().await.unwrap();
        assert!(report.is_sound(), "{report:?}");
    })
    .await;
}

#[tokio::test]
async fn missing_and_truncated_content_is_an_error_and_not_a_broken_stream() {
    over_each(async |world| {
        let view = world.view();
        let artifact = put(&view, "a", &content(BLOCK_BYTES + 5, 2)).await;
        let location = store::location_of(BlobHash::parse(&artifact.hash).unwrap());
        world.store.put(&location, Bytes::from_static(b"short").into()).await.unwrap();
        assert!(matches!(
            view.artifact_get("a", None, Part::All).await,
            Err(MemoryError::DamagedBlob { .. })
        ));
        world.store.delete(&location).await.unwrap();
        let report = view.check().await.unwrap();
        assert!(report.findings.iter().any(|finding| finding.part == "artifacts"), "{report:?}");
        let error = view.artifact_get("a", None, Part::All).await.unwrap_err().to_string();
        assert!(error.contains("is damaged: it is missing") && error.contains(&artifact.hash), "{error}");
    })
    .await;
}

// === collecting and sweeping ===

/// Later than all grace periods: objects carry the host's time, not the time of the test clock.
fn let_time_pass(world: &World) {
    let now_ms = crate::Clock::now_ms(&crate::SystemClock).max(crate::Clock::now_ms(&*world.clock));
    world.clock.set(now_ms + LATER_MS);
}

#[tokio::test]
async fn content_is_removed_only_when_no_branch_and_no_snapshot_refers_to_it() {
    over_each(async |world| {
        let (view, other) = (world.view(), world.view());
        let space = &view.of().space.clone();
        put(&view, "shared", b"shared by two spaces").await;
        put(&other, "theirs", b"shared by two spaces").await;
        put(&view, "pinned", b"seen by a snapshot").await;
        put(&view, "forked", b"seen by a fork").await;
        let point = view.point().await.unwrap().unwrap();
        let child = world.fork(&view).await;
        put(&view, "mine", b"mine alone").await;
        for name in ["shared", "pinned", "forked", "mine"] {
            view.artifact_forget(name).await.unwrap();
        }
        child.artifact_forget("pinned").await.unwrap();
        let_time_pass(&world);
        let branch = |view: &View| KeptReference::Branch(view.of().clone());
        let keep = [branch(&view), branch(&child), KeptReference::Point(point)];
        assert_eq!(world.memory.collect(space, &keep, true).await.unwrap().released, 1);
        assert_eq!(world.memory.collect(space, &keep, false).await.unwrap().released, 1);
        assert_eq!(world.memory.sweep(true).await.unwrap().blobs, 1);
        assert_eq!(world.memory.sweep(false).await.unwrap().blobs, 1);
        assert_eq!(objects(&*world.store).await.len(), 3);
        assert_eq!(get(&child, "forked", None, Part::All).await.unwrap(), b"seen by a fork");
        // Remove the snapshot, then the fork.
        let keep = [branch(&view), branch(&child)];
        assert_eq!(world.memory.collect(space, &keep, false).await.unwrap().released, 1);
        assert_eq!(world.memory.sweep(false).await.unwrap().blobs, 1, "what only the snapshot had");
        let keep = [branch(&view)];
        let collected = world.memory.collect(space, &keep, false).await.unwrap();
        assert_eq!((collected.released, collected.branches), (2, 1));
        assert_eq!(world.memory.sweep(false).await.unwrap().blobs, 1, "the other space still has its own");
        assert_eq!(get(&other, "theirs", None, Part::All).await.unwrap(), b"shared by two spaces");
        let past = world.at(&view, 3).await;
        assert!(matches!(get(&past, "mine", None, Part::All).await, Err(MemoryError::NotFound { .. })));
        assert!(matches!(get(&past, "forked", None, Part::All).await, Err(MemoryError::BlobGone { .. })));
        world.memory.remove(&other.of().space).await.unwrap();
        assert_eq!(world.memory.sweep(false).await.unwrap().blobs, 1);
        assert!(objects(&*world.store).await.is_empty());
    })
    .await;
}

/// With this quota per space, in each kind of store.
async fn over_each_within(space_artifact_bytes_max: u64, test: impl AsyncFn(World)) {
    let limits = || Limits { space_artifact_bytes_max, ..Limits::usual() };
    test(World::within(Arc::new(InMemory::new()), limits(), None).await).await;
    let folder = tempfile::tempdir().unwrap();
    test(World::within(local_store(folder.path()).unwrap(), limits(), None).await).await;
}

/// An infinite body of zeroes.
fn endless() -> Body {
    stream::repeat_with(|| Ok(Bytes::from(vec![0; 1 << 16]))).boxed()
}

#[tokio::test]
async fn the_quota_of_a_space_is_enforced_and_refused_uploads_leave_nothing() {
    over_each_within(4 * BLOCK_BYTES, async |world| {
        let view = world.view();
        let kept = content(3 * BLOCK_BYTES, 1);
        put(&view, "kept", &kept).await;
        let before = objects(&*world.store).await;
        // An infinite upload ends at the byte that exceeds the quota; so does one that is slightly too large.
        for too_many in [endless(), body(&content(BLOCK_BYTES + 1, 2))] {
            let refused = view.artifact_put(new("more"), too_many).await.unwrap_err();
            assert!(
                matches!(refused, MemoryError::SpaceFull { used, max } if used == 3 * BLOCK_BYTES && max == 4 * BLOCK_BYTES),
                "{refused:?}"
            );
            assert_eq!(objects(&*world.store).await, before);
        }
        assert!(matches!(view.artifact_room(BLOCK_BYTES + 1).await, Err(MemoryError::SpaceFull { .. })));
        assert!(view.artifact_room(BLOCK_BYTES).await.is_ok());
        // Equal content counts once, on any branch; another space has its own quota.
        let child = world.fork(&view).await;
        put(&child, "rest", &content(BLOCK_BYTES, 3)).await;
        assert!(matches!(view.artifact_room(1).await, Err(MemoryError::SpaceFull { .. })));
        put(&world.view(), "theirs", &content(4 * BLOCK_BYTES, 4)).await;
        // Releasing content frees space.
        view.artifact_forget("kept").await.unwrap();
        child.artifact_forget("kept").await.unwrap();
        let_time_pass(&world);
        let keep = [KeptReference::Branch(view.of().clone()), KeptReference::Branch(child.of().clone())];
        world.memory.collect(&view.of().space, &keep, false).await.unwrap();
        put(&view, "more", &content(3 * BLOCK_BYTES, 5)).await;
    })
    .await;
}

#[tokio::test]
async fn concurrent_uploads_do_not_use_the_same_space_twice() {
    over_each_within(4 * BLOCK_BYTES, async |world| {
        let view = world.view();
        let (send, receive) = tokio::sync::mpsc::channel(1);
        let slow = stream::unfold(receive, |mut receive| async move {
            receive.recv().await.map(|piece: Bytes| (Ok(piece), receive))
        });
        let first = tokio::spawn({
            let view = view.clone();
            async move { view.artifact_put(new("first"), slow.boxed()).await }
        });
        let piece = Bytes::from(content(BLOCK_BYTES, 1));
        for _ in 0..3 {
            send.send(piece.clone()).await.unwrap();
        }
        // The channel accepts this only after the previous piece was received and counted.
        send.send(Bytes::new()).await.unwrap();
        send.send(Bytes::new()).await.unwrap();
        let refused = view.artifact_put(new("second"), body(&content(2 * BLOCK_BYTES, 2))).await.unwrap_err();
        assert!(matches!(refused, MemoryError::SpaceFull { .. }), "{refused:?}");
        drop(send);
        assert_eq!(first.await.unwrap().unwrap().bytes, 3 * BLOCK_BYTES);
        // The bytes that the second upload counted were released.
        put(&view, "second", &content(BLOCK_BYTES, 2)).await;
        assert_eq!(objects(&*world.store).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_stores_no_more_than_its_disk_limit_in_entries_and_artifacts() {
    let world = World::new().await;
    let view = world.view();
    put(&view, "first", &content(BLOCK_BYTES, 1)).await;
    // Without a sandbox limit, only the limit of the space applies.
    view.check_quota().await.unwrap();
    let bounded = view.clone().with_quota(4 * BLOCK_BYTES);
    bounded.check_quota().await.unwrap();
    put(&bounded, "second", &content(BLOCK_BYTES, 2)).await;
    let refused = bounded.artifact_put(new("third"), body(&content(4 * BLOCK_BYTES, 3))).await.unwrap_err();
    assert!(
        matches!(refused, MemoryError::SandboxFull { used, max } if used > 2 * BLOCK_BYTES && max == 4 * BLOCK_BYTES),
        "{refused:?}"
    );
    assert!(matches!(bounded.artifact_room(4 * BLOCK_BYTES).await, Err(MemoryError::SandboxFull { .. })));
    let full = view.clone().with_quota(2 * BLOCK_BYTES);
    assert!(matches!(full.check_quota().await, Err(MemoryError::SandboxFull { .. })));
}

#[tokio::test]
async fn an_upload_is_refused_at_the_reserve_of_the_disk() {
    use std::sync::atomic::{AtomicU64, Ordering};
    /// Each query finds 8 MiB less.
    #[derive(Debug)]
    struct ShrinkingDisk(AtomicU64);

    impl FreeSpace for ShrinkingDisk {
        fn free_bytes(&self, _: &FilePath) -> Option<u64> {
            Some(self.0.fetch_sub(8 << 20, Ordering::Relaxed))
        }
    }
    let free = Arc::new(ShrinkingDisk(AtomicU64::new(u64::MAX)));
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskFloor {
        folder: folder.path().to_owned(),
        reserve_bytes: 100 << 20,
        free: free.clone(),
        leases: Arc::default(),
    };
    let store = local_store(folder.path()).unwrap();
    let world = World::within(store, Limits::usual(), Some(disk)).await;
    let view = world.view();
    put(&view, "fits", b"fits").await;
    free.0.store(140 << 20, Ordering::Relaxed);
    let refused = view.artifact_put(new("endless"), endless()).await.unwrap_err();
    assert!(
        matches!(refused, MemoryError::DiskReserve { free, reserve } if free < reserve + (1 << 16) && reserve == 100 << 20),
        "{refused:?}"
    );
    assert_eq!(objects(&*world.store).await.len(), 1);
    assert!(
        std::fs::read_dir(folder.path().join("incoming")).unwrap().next().is_none(),
        "a partial was left"
    );
    assert!(matches!(view.artifact_room(1).await, Err(MemoryError::DiskReserve { .. })));
}

#[tokio::test]
async fn a_crash_between_content_and_row_leaves_only_what_the_next_sweep_removes() {
    over_each(async |world| {
        let view = world.view();
        put(&view, "kept", b"kept").await;
        // One upload was received but not placed, another was placed but not committed.
        let blobs = world.memory.blob_store();
        let mut arriving = blobs.room().arriving(&view.of().space, SpaceUsage::default());
        let received = blobs.receive("x", body(b"received"), &mut arriving).await.unwrap();
        let placed = blobs.receive("x", body(b"placed"), &mut arriving).await.unwrap();
        blobs.place(&placed).await.unwrap();
        drop((received, placed));
        assert_eq!(objects(&*world.store).await.len(), 3);
        let now_ms = crate::Clock::now_ms(&crate::SystemClock);
        world.clock.set(now_ms + SWEEP_GRACE_MS / 2);
        assert_eq!(
            world.memory.sweep(false).await.unwrap(),
            SweepReport::default(),
            "it could be an upload in flight"
        );
        let_time_pass(&world);
        let swept = world.memory.sweep(false).await.unwrap();
        assert_eq!((swept.blobs, swept.bytes, swept.unfinished), (1, 6, 1));
        assert_eq!(get(&view, "kept", None, Part::All).await.unwrap(), b"kept");
    })
    .await;
}

#[tokio::test]
async fn opening_a_local_store_removes_interrupted_uploads() {
    let folder = tempfile::tempdir().unwrap();
    local_store(folder.path()).unwrap();
    let left = folder.path().join("incoming/memxyz#1");
    std::fs::write(&left, b"half").unwrap();
    local_store(folder.path()).unwrap();
    assert!(!left.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sweeps_never_remove_content_that_is_being_stored() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
    let world = World::over(store).await;
    // The grace period of placed objects is over at once, so only the lock protects them; that of uploads is not over.
    world.clock.set(crate::Clock::now_ms(&crate::SystemClock) + 2 * SWEEP_GRACE_MS);
    let memory = world.memory.clone();
    let sweeper = tokio::spawn(async move {
        let mut swept = 0;
        loop {
            swept += memory.sweep(false).await.unwrap().blobs;
            tokio::task::yield_now().await;
            if swept > u64::MAX / 2 {
                return;
            }
        }
    });
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4u8 {
        let view = world.view();
        writers.spawn(async move {
            for number in 0..15u8 {
                let name = format!("{number}");
                // The same few contents again and again, so that one is swept while it is stored again.
                let sent = vec![number % 3; 1000];
                put(&view, &name, &sent).await;
                assert_eq!(get(&view, &name, None, Part::All).await.unwrap(), sent, "writer {writer}");
                view.artifact_forget(&name).await.unwrap();
            }
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.unwrap();
    }
    sweeper.abort();
}

#[tokio::test]
async fn only_unreferenced_rows_are_removed() {
    let world = World::new().await;
    let view = world.view();
    let space = view.of().space.clone();
    let note = |text: &str| crate::NewEntry::note(text);
    let kept_entry = view.add(vec![note("the parent remembers turnips")]).await.unwrap().remove(0);
    view.kv_set("k", json!(1), None, crate::kv::Expect::Any).await.unwrap();
    let point = view.point().await.unwrap().unwrap();
    let child = world.fork(&view).await;
    let dead_entry = child.add(vec![note("the child remembers parsnips")]).await.unwrap().remove(0);
    child.kv_set("k", json!(2), None, crate::kv::Expect::Any).await.unwrap();
    put(&child, "a", b"of the child").await;
    view.add(vec![note("after the fork: carrots")]).await.unwrap();
    world.clock.advance(COLLECT_GRACE_MS / 2);
    let keep = [KeptReference::Branch(view.of().clone())];
    let young = world.memory.collect(&space, &keep, false).await.unwrap();
    assert_eq!(young, crate::CollectReport::default(), "a fork that is not on the list yet is young");
    world.clock.advance(COLLECT_GRACE_MS);
    let counted = world.memory.collect(&space, &keep, true).await.unwrap();
    assert_eq!((counted.rows, counted.branches), (3, 1));
    assert_eq!(child.kv_get("k").await.unwrap().unwrap().value, json!(2), "nothing was removed by counting");
    assert_eq!(world.memory.collect(&space, &keep, false).await.unwrap(), counted);
    assert_eq!(world.memory.collect(&space, &keep, false).await.unwrap().rows, 0);
    assert!(view.get(&kept_entry.id).await.is_ok());
    assert_eq!(view.kv_get("k").await.unwrap().unwrap().value, json!(1));
    assert!(child.get(&dead_entry.id).await.is_err());
    let report = view.check().await.unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    // A restore to the snapshot abandons the rows after it.
    let restored = world.memory.view(&crate::MemoryRef::branched(&space, Some(point.clone())));
    restored.add(vec![note("another way: leeks")]).await.unwrap();
    world.clock.advance(2 * COLLECT_GRACE_MS);
    let keep = [KeptReference::Branch(restored.of().clone())];
    assert_eq!(world.memory.collect(&space, &keep, false).await.unwrap().rows, 1);
    assert!(restored.get(&kept_entry.id).await.is_ok());
    assert!(restored.check().await.unwrap().findings.is_empty());
}

#[tokio::test]
async fn every_write_is_measured_in_its_transaction() {
    let world = World::new().await;
    let view = world.view().with_quota(4 << 20);
    let text = "x".repeat(60_000);
    let mut refused = None;
    let mut stored = 0;
    for n in 0..200 {
        // None of these checks beforehand whether there is space.
        let set = view.kv_set(&format!("key-{n}"), text.clone().into(), None, crate::kv::Expect::Any).await;
        match set {
            Ok(_) => stored += 1,
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(matches!(refused, Some(MemoryError::SandboxFull { .. })), "{refused:?}");
    assert!((10..70).contains(&stored), "{stored}");
    // The refused write left nothing, and a full space can be cleared.
    assert!(view.kv_get(&format!("key-{stored}")).await.unwrap().is_none());
    view.kv_delete("key-0", crate::kv::Expect::Any).await.unwrap().unwrap();
    assert!(view.kv_get("key-0").await.unwrap().is_none());
    // Another sandbox's view of the space has its own limit.
    view.clone()
        .with_quota(64 << 20)
        .kv_set("more", text.into(), None, crate::kv::Expect::Any)
        .await
        .unwrap();
}

#[tokio::test]
async fn deletes_succeed_on_a_full_disk() {
    use std::sync::atomic::{AtomicU64, Ordering};
    #[derive(Debug)]
    struct AdjustableFreeSpace(AtomicU64);

    impl FreeSpace for AdjustableFreeSpace {
        fn free_bytes(&self, _: &FilePath) -> Option<u64> {
            Some(self.0.load(Ordering::Relaxed))
        }
    }
    let free = Arc::new(AdjustableFreeSpace(AtomicU64::new(1 << 40)));
    let disk =
        DiskFloor { folder: "/".into(), reserve_bytes: 1 << 20, free: free.clone(), leases: Arc::default() };
    let world = World::on(disk.clone()).await;
    let view = world.view();
    view.kv_set("key", json!(1), None, crate::kv::Expect::Any).await.unwrap();
    let entry = view.add(vec![crate::NewEntry::note("turnips are stored in sand")]).await.unwrap().remove(0);
    // All of it is reserved by others, or promised to the pool.
    let lease = disk.reserve(1 << 39).unwrap();
    free.0.store(0, Ordering::Relaxed);
    let refused = view.kv_set("other", json!(1), None, crate::kv::Expect::Any).await.unwrap_err();
    assert!(matches!(refused, MemoryError::DiskReserve { .. }), "{refused:?}");
    view.kv_delete("key", crate::kv::Expect::Any).await.unwrap().unwrap();
    assert!(view.kv_get("key").await.unwrap().is_none());
    let forgotten = view.forget(&crate::EntrySelection::Ids(vec![entry.id]), false).await.unwrap();
    assert_eq!(forgotten.count, 1);
    drop(lease);
}

#[tokio::test]
async fn erasing_makes_room_again() {
    let world = World::new().await;
    let view = world.view().with_quota(4 << 20);
    let note = |n: usize| crate::NewEntry::note(format!("note {n}: {}", "turnip ".repeat(1500)));
    let (mut ids, mut refusals) = (Vec::new(), 0);
    for n in 0..2_000 {
        match view.add(vec![note(n)]).await {
            Ok(added) => {
                refusals = 0;
                ids.extend(added.into_iter().map(|entry| entry.id));
            }
            Err(MemoryError::SandboxFull { .. }) => refusals += 1,
            Err(error) => panic!("{error}"),
        }
        // The first may be due to the journal, which it empties.
        if refusals == 3 {
            break;
        }
    }
    assert_eq!(refusals, 3);
    assert!(ids.len() > 20, "{}", ids.len());
    let erased = view.erase(&crate::EntrySelection::Ids(ids), false).await.unwrap();
    assert!(erased.count > 20);
    for n in 5_000..5_005 {
        view.add(vec![note(n)]).await.unwrap();
    }
}
