//! Snapshots, sandboxes from them, and what they cost.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use burrow_model::{ChangeKind, DumpId, SnapshotId};

use super::*;

fn file_of(pool: &TestPool, snapshot: &SnapshotId, name: &str) -> PathBuf {
    pool.disks.root().join("snapshots").join(snapshot.as_str()).join("rootfs").join(name)
}

#[tokio::test]
async fn a_snapshot_holds_what_was_written_before_and_never_changes() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    // Possibly in RAM only.
    fs::write(rootfs.join("fresh"), "as it was").unwrap();
    let snapshot = SnapshotId::generate();
    pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    fs::write(rootfs.join("fresh"), "later").unwrap();
    fs::write(rootfs.join("new"), "later").unwrap();
    fs::remove_file(rootfs.join("greeting")).unwrap();
    // A repeated call takes no new snapshot.
    pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();

    let read = |name: &str| fs::read_to_string(file_of(&pool, &snapshot, name));
    assert_eq!(read("fresh").unwrap(), "as it was");
    assert_eq!(read("greeting").unwrap(), "hello");
    assert_eq!(read("new").unwrap_err().kind(), io::ErrorKind::NotFound);
    let refused = fs::write(file_of(&pool, &snapshot, "fresh"), "no").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(pool.disks.locate((&snapshot).into()).await.unwrap(), file_of(&pool, &snapshot, "").join(""));
}

/// A writer that writes one file to disk before it writes the other, as a database does. In no snapshot is the second number
/// ahead of the first or incomplete, and a snapshot taken while the writer is paused shows exactly that moment.
#[tokio::test]
async fn a_snapshot_under_write_load_keeps_the_order_of_what_was_synced_and_a_paused_one_is_exact() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    let open = |name: &str| File::create(rootfs.join(name)).unwrap();
    let (first, second, done) = (open("one"), open("two"), Arc::new(AtomicBool::new(false)));
    // Locked by the writer while it writes a pair.
    let number = Arc::new(tokio::sync::Mutex::new(0u32));
    let writer = {
        let (done, number) = (Arc::clone(&done), Arc::clone(&number));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let mut number = number.blocking_lock();
                *number += 1;
                first.write_all_at(format!("{number:08}").as_bytes(), 0).unwrap();
                first.sync_data().unwrap();
                second.write_all_at(format!("{number:08}").as_bytes(), 0).unwrap();
            }
        })
    };
    eventually("the writer has begun", || fs::metadata(rootfs.join("two")).unwrap().len() > 0);
    for round in 0..30 {
        let snapshot = SnapshotId::generate();
        let read =
            |name| fs::read_to_string(file_of(&pool, &snapshot, name)).unwrap().parse::<u32>().unwrap();
        if round % 2 == 0 {
            pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
            let (first, second) = (read("one"), read("two"));
            assert!(first >= second, "{first} {second}");
        } else {
            let number = number.lock().await;
            pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
            assert_eq!((read("one"), read("two")), (*number, *number));
        }
    }
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[tokio::test]
async fn a_child_starts_from_the_snapshot_and_the_two_go_their_own_ways() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    fs::write(rootfs.join("mine"), "parent").unwrap();
    let (snapshot, child) = (SnapshotId::generate(), SandboxId::generate());
    pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    let other = pool.disks.create((&child).into(), Some((&snapshot).into()), 16 * MIB).await.unwrap();
    assert_eq!(fs::read_to_string(other.join("mine")).unwrap(), "parent");
    fs::write(other.join("mine"), "child").unwrap();
    assert_eq!(fs::read_to_string(rootfs.join("mine")).unwrap(), "parent");
    assert_eq!(fs::read_to_string(file_of(&pool, &snapshot, "mine")).unwrap(), "parent");
    // It has its own limit.
    assert_eq!(fill(&other.join("big"), 24).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    fill(&rootfs.join("big"), 24).unwrap();
}

#[tokio::test]
async fn generations_of_snapshots_and_sandboxes_are_removed_in_any_order() {
    let pool = TestPool::new();
    let (image, first, rootfs) = pool.sandbox(64 * MIB).await;
    let (mut sandboxes, mut snapshots, mut parent) = (vec![first.clone()], Vec::new(), first);
    // A nested subvolume, which a process inside could create: it is not in the snapshot, and is removed with its parent.
    ioctl::create_subvolume(File::open(&rootfs).unwrap(), "nested").unwrap();
    for generation in 0..5 {
        let rootfs = pool.disks.locate((&parent).into()).await.unwrap();
        fs::write(rootfs.join(format!("generation-{generation}")), "x").unwrap();
        let (snapshot, child) = (SnapshotId::generate(), SandboxId::generate());
        pool.disks.snapshot((&snapshot).into(), (&parent).into()).await.unwrap();
        pool.disks.create((&child).into(), Some((&snapshot).into()), 64 * MIB).await.unwrap();
        snapshots.push(snapshot);
        sandboxes.push(child.clone());
        parent = child;
    }
    let last = pool.disks.locate((&parent).into()).await.unwrap();
    pool.disks.remove((&image).into()).await.unwrap();
    for (sandbox, snapshot) in sandboxes[..5].iter().zip(&snapshots) {
        pool.disks.remove(sandbox.into()).await.unwrap();
        pool.disks.remove(snapshot.into()).await.unwrap();
    }
    assert!((0..5).all(|generation| last.join(format!("generation-{generation}")).exists()));
    pool.disks.remove((&parent).into()).await.unwrap();
    assert_eq!(pool.disks.inventory().await.unwrap(), Inventory::default());
}

#[tokio::test]
async fn a_replaced_disk_has_the_snapshots_content_and_may_be_replaced_again() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    fs::write(rootfs.join("good"), "state").unwrap();
    let snapshot = SnapshotId::generate();
    pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    for _ in 0..3 {
        fs::write(rootfs.join("good"), "broken").unwrap();
        fs::write(rootfs.join("more"), "x").unwrap();
        ioctl::create_subvolume(File::open(&rootfs).unwrap(), "nested").unwrap();
        assert_eq!(pool.disks.replace((&id).into(), (&snapshot).into(), 64 * MIB).await.unwrap(), rootfs);
        assert_eq!(fs::read_to_string(rootfs.join("good")).unwrap(), "state");
        assert!(!rootfs.join("more").exists() && !rootfs.join("nested").exists());
    }
    assert_eq!(fs::read_dir(pool.disks.root().join("replacing")).unwrap().count(), 0);
}

/// After a crash at any step of a replacement, exactly one of the old and the new disk exists, and nothing else is
/// left.
#[tokio::test]
async fn a_crash_at_any_step_of_a_replacement_leaves_the_old_or_the_new_disk() {
    for steps in 0..=3 {
        let mut pool = TestPool::new();
        let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
        fs::write(rootfs.join("state"), "new").unwrap();
        let snapshot = SnapshotId::generate();
        pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
        fs::write(rootfs.join("state"), "old").unwrap();
        {
            let inner = &pool.disks.inner;
            let source = inner.open(&(&snapshot).into()).unwrap();
            if steps >= 1 {
                inner.prepare_replacement(&(&id).into(), &source, 32 * MIB).unwrap();
            }
            if steps >= 2 {
                inner.put_replacement(&(&id).into()).unwrap();
            }
            if steps >= 3 {
                inner.remove(&inner.replacing, id.as_str()).unwrap();
            }
        }
        pool.reopen();
        let expected = if steps >= 2 { "new" } else { "old" };
        assert_eq!(fs::read_to_string(rootfs.join("state")).unwrap(), expected, "after {steps} steps");
        assert_eq!(pool.disks.inventory().await.unwrap().sandboxes, std::slice::from_ref(&id));
        assert_eq!(fs::read_dir(pool.disks.root().join("replacing")).unwrap().count(), 0);
        // Repeated, it succeeds.
        pool.disks.replace((&id).into(), (&snapshot).into(), 16 * MIB).await.unwrap();
        assert_eq!(fs::read_to_string(rootfs.join("state")).unwrap(), "new");
        assert_eq!(fill(&rootfs.join("big"), 24).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    }
}

#[tokio::test]
async fn after_a_restore_only_what_snapshots_hold_stays_charged() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    fill(&rootfs.join("kept"), 8).unwrap();
    let snapshot = SnapshotId::generate();
    pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    fill(&rootfs.join("lost"), 40).unwrap();
    pool.disks.replace((&id).into(), (&snapshot).into(), 64 * MIB).await.unwrap();
    let inner = Arc::clone(&pool.disks.inner);
    let charged = |inner: &Inner| {
        ioctl::commit(&inner.pool.directory).unwrap();
        inner.quotas.used(&inner.pool.directory, &Owner::Sandbox(id.clone())).unwrap()
    };
    eventually("what the old disk alone had is no longer charged", || charged(&inner) < 10 * MIB);
    assert!(charged(&inner) >= 8 * MIB, "the snapshot's data is the sandbox's");
    // So there is room again.
    fill(&rootfs.join("again"), 40).unwrap();
    fs::remove_file(rootfs.join("again")).unwrap();

    pool.disks.remove((&snapshot).into()).await.unwrap();
    fs::remove_file(rootfs.join("kept")).unwrap();
    eventually("nothing is charged any more", || charged(&inner) < MIB);
    pool.disks.remove((&id).into()).await.unwrap();
    eventually("the quota group is removed too", || {
        ioctl::commit(&inner.pool.directory).unwrap();
        inner.quotas.sweep(&inner.pool.directory);
        inner.quotas.used(&inner.pool.directory, &Owner::Sandbox(id.clone())).is_err()
    });
}

#[tokio::test]
async fn a_snapshot_is_measured_by_what_no_other_snapshot_holds() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(256 * MIB).await;
    fill(&rootfs.join("one"), 4).unwrap();
    let snapshots: Vec<SnapshotId> = (0..4).map(|_| SnapshotId::generate()).collect();
    let measure = async |at: usize| pool.disks.used((&snapshots[at]).into()).await.unwrap() / MIB;
    pool.disks.snapshot((&snapshots[0]).into(), (&id).into()).await.unwrap();
    assert_eq!(measure(0).await, 4, "all that was written to the sandbox");
    fill(&rootfs.join("two"), 8).unwrap();
    pool.disks.snapshot((&snapshots[1]).into(), (&id).into()).await.unwrap();
    assert_eq!((measure(0).await, measure(1).await), (0, 8), "the first is in the second");
    fs::remove_file(rootfs.join("two")).unwrap();
    fs::write(rootfs.join("small"), "x".repeat(100)).unwrap();
    pool.disks.snapshot((&snapshots[2]).into(), (&id).into()).await.unwrap();
    assert_eq!((measure(0).await, measure(1).await, measure(2).await), (0, 8, 0));
    assert_eq!(pool.disks.used((&snapshots[2]).into()).await.unwrap(), 100);

    // Restored to the first snapshot: data written afterwards counts from there.
    pool.disks.replace((&id).into(), (&snapshots[0]).into(), 256 * MIB).await.unwrap();
    fill(&rootfs.join("three"), 2).unwrap();
    pool.disks.snapshot((&snapshots[3]).into(), (&id).into()).await.unwrap();
    assert_eq!(measure(3).await, 2);
    pool.disks.remove((&id).into()).await.unwrap();
    assert_eq!(measure(3).await, 2, "also when the sandbox is gone");
}

/// The cost of a snapshot, of a sandbox created from it and of a list of changes does not grow with the number of files.
#[tokio::test]
async fn a_snapshot_of_a_hundred_thousand_files_takes_no_more_room_than_one_of_none() {
    let pool = TestPool::new();
    let (image, id, rootfs) = pool.sandbox(1 << 40).await;
    for folder in 0..100 {
        let folder = rootfs.join(format!("folder-{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..1000 {
            File::create(folder.join(format!("file-{file}"))).unwrap();
        }
    }
    let first = SnapshotId::generate();
    pool.disks.snapshot((&first).into(), (&id).into()).await.unwrap();
    let before = pool.disks.space().await.unwrap().free_bytes;
    let (second, child) = (SnapshotId::generate(), SandboxId::generate());
    fs::write(rootfs.join("folder-7/file-7"), "changed").unwrap();
    pool.disks.snapshot((&second).into(), (&id).into()).await.unwrap();
    let other = pool.disks.create((&child).into(), Some((&second).into()), 64 * MIB).await.unwrap();
    let after = pool.disks.space().await.unwrap().free_bytes;
    assert!(before.saturating_sub(after) < 4 * MIB, "{before} {after}");
    assert_eq!(fs::read_dir(other.join("folder-99")).unwrap().count(), 1000);
    let changes = pool.disks.changes(Some(&first), &second, &image, 10, Effort::Whole).await.unwrap();
    assert_eq!((changes.total, changes.paths[0].path.as_str()), (1, "/folder-7/file-7"));
    let all = pool.disks.changes(None, &second, &image, 10, Effort::Whole).await.unwrap();
    assert_eq!((all.total, all.paths.len(), all.more), (100_100, 10, false));
    // A glance reports a part of many changes, and says so; few changes are still reported completely.
    let glance = pool.disks.changes(None, &second, &image, 1000, Effort::Glance).await.unwrap();
    assert!(glance.more && glance.total > 50 && glance.total < 1000, "{} {}", glance.total, glance.more);
    assert_eq!(glance.paths.len() as u64, glance.total);
    assert!(glance.paths.iter().all(|change| change.kind == ChangeKind::Added), "{:?}", glance.paths[0]);
    let little = pool.disks.changes(Some(&first), &second, &image, 10, Effort::Glance).await.unwrap();
    assert_eq!(little, changes);
    // Removals are not found by a search for new data, but the effort is limited all the same.
    (0..100).for_each(|folder| fs::remove_dir_all(rootfs.join(format!("folder-{folder}"))).unwrap());
    let emptied = SnapshotId::generate();
    pool.disks.snapshot((&emptied).into(), (&id).into()).await.unwrap();
    let gone = pool.disks.changes(Some(&second), &emptied, &image, 1000, Effort::Glance).await.unwrap();
    assert!(gone.more && gone.total < 10_000, "{} {}", gone.total, gone.more);
    let all = pool.disks.changes(Some(&second), &emptied, &image, 0, Effort::Whole).await.unwrap();
    assert_eq!((all.total, all.more), (100_100, false));
}

#[tokio::test]
async fn a_full_pool_refuses_a_snapshot_with_the_figures_and_keeps_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = options(folder.path());
    small.pool = PoolSource::LoopFile { file: folder.path().join("pool.btrfs"), size_bytes: POOL_BYTES_MIN };
    let pool = TestPool { disks: BtrfsDisks::open(small).unwrap(), folder };
    let (_, id, rootfs) = pool.sandbox(1 << 40).await;
    let (snapshot, dump) = (SnapshotId::generate(), DumpId::generate());
    pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    let staged = pool.disks.stage_dump(&dump).await.unwrap();
    fs::write(staged.join("core-1.img"), "x").unwrap();
    assert_eq!(fill(&rootfs.join("big"), 512).unwrap_err().kind(), io::ErrorKind::StorageFull);

    let refused = [
        pool.disks.snapshot((&SnapshotId::generate()).into(), (&id).into()).await.map(drop),
        pool.disks.replace((&id).into(), (&snapshot).into(), MIB).await.map(drop),
        pool.disks.create((&SandboxId::generate()).into(), Some((&snapshot).into()), MIB).await.map(drop),
        pool.disks.stage_dump(&DumpId::generate()).await.map(drop),
        // Staged while there was room; the room runs out midway.
        pool.disks.seal_dump(&dump, &"x".repeat(16 << 20), false).await.map(drop),
    ];
    for answer in refused {
        let Err(DiskError::Full { needed_bytes, free_bytes }) = answer else { panic!("{answer:?}") };
        assert!(free_bytes < needed_bytes);
    }
    let inventory = pool.disks.inventory().await.unwrap();
    assert_eq!((inventory.snapshots, inventory.dumps), (vec![snapshot.clone()], vec![]));
    assert_eq!(inventory.sandboxes, std::slice::from_ref(&id));
    assert!(rootfs.join("big").exists(), "the sandbox is as it was");
    pool.disks.remove((&snapshot).into()).await.unwrap();
}
