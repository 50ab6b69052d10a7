//! What every driver promises of volumes that outlive sandboxes.

use burrow_model::{ShelfId, ShelfSnapshotId};

use super::{DISK_BYTES, collect, replay};
use crate::{VolumeError, VolumeId, Volumes};

pub(super) async fn all(volumes: &dyn Volumes) {
    what_is_on_a_shelf_goes_with_its_snapshots_and_comes_back(volumes).await;
    every_call_may_be_repeated(volumes).await;
    unknown_things_are_named_in_the_error(volumes).await;
    what_is_sent_can_be_received(volumes).await;
}

/// Real files, also of the simulation: the host reads and writes them.
async fn what_is_on_a_shelf_goes_with_its_snapshots_and_comes_back(volumes: &dyn Volumes) {
    let (id, snapshot, copy) = (ShelfId::generate(), ShelfSnapshotId::generate(), ShelfId::generate());
    let root = volumes.create_shelf(&id, None, DISK_BYTES).await.expect("creating works");
    assert!(root.ends_with("rootfs"));
    assert_eq!(std::fs::read_dir(&root).expect("it is a directory").count(), 0, "it begins empty");
    let (kept, read) = (root.join("kept"), |path| std::fs::read_to_string(path).expect("it is readable"));
    std::fs::write(&kept, "first").expect("it is writable");
    volumes.snapshot_shelf(&snapshot, &id).await.expect("a snapshot works");
    std::fs::write(&kept, "second").expect("it is writable");

    let other = volumes.create_shelf(&copy, Some(&snapshot), DISK_BYTES).await.expect("creating works");
    assert_eq!((read(other.join("kept")), read(kept.clone())), ("first".to_owned(), "second".to_owned()));
    std::fs::write(other.join("kept"), "third").expect("a copy is writable");
    volumes.replace_shelf(&id, &snapshot, DISK_BYTES).await.expect("replacing works");
    assert_eq!(volumes.locate_shelf(&id).await.expect("it is there"), root);
    assert_eq!((read(kept), read(other.join("kept"))), ("first".to_owned(), "third".to_owned()));

    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(inventory.shelves.contains(&id) && inventory.shelves.contains(&copy));
    assert!(inventory.shelf_snapshots.contains(&snapshot));
    volumes.remove_shelf(&id).await.expect("removing works");
    volumes.remove_shelf(&copy).await.expect("removing works");
    let again = volumes.create_shelf(&id, Some(&snapshot), DISK_BYTES).await;
    again.expect("a snapshot outlives what it was taken of");
    volumes.remove_shelf(&id).await.expect("removing works");
    volumes.remove_shelf_snapshot(&snapshot).await.expect("removing works");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(!inventory.shelves.contains(&id) && !inventory.shelf_snapshots.contains(&snapshot));
}

async fn every_call_may_be_repeated(volumes: &dyn Volumes) {
    let (id, snapshot) = (ShelfId::generate(), ShelfSnapshotId::generate());
    let root = volumes.create_shelf(&id, None, DISK_BYTES).await.expect("creating works");
    std::fs::write(root.join("kept"), "x").expect("it is writable");
    for _ in 0..2 {
        assert_eq!(volumes.create_shelf(&id, None, DISK_BYTES).await.expect("creating again works"), root);
        volumes.snapshot_shelf(&snapshot, &id).await.expect("taking it again works");
        volumes.replace_shelf(&id, &snapshot, DISK_BYTES).await.expect("replacing again works");
    }
    assert!(root.join("kept").exists(), "what is there stays");
    assert!(volumes.shelf_used(&id).await.expect("the usage is readable") < DISK_BYTES);
    for _ in 0..2 {
        volumes.remove_shelf(&id).await.expect("removing works");
        volumes.remove_shelf_snapshot(&snapshot).await.expect("removing works");
    }
}

async fn unknown_things_are_named_in_the_error(volumes: &dyn Volumes) {
    let (id, snapshot) = (ShelfId::generate(), ShelfSnapshotId::generate());
    let located = volumes.locate_shelf(&id).await;
    assert!(matches!(located, Err(VolumeError::ShelfNotFound { shelf }) if shelf == id));
    let taken = volumes.snapshot_shelf(&snapshot, &id).await;
    assert!(matches!(taken, Err(VolumeError::ShelfNotFound { .. })));
    let made = volumes.create_shelf(&id, Some(&snapshot), DISK_BYTES).await;
    assert!(matches!(made, Err(VolumeError::ShelfSnapshotNotFound { .. })));
    let replaced = volumes.replace_shelf(&id, &snapshot, DISK_BYTES).await;
    assert!(matches!(replaced, Err(VolumeError::ShelfSnapshotNotFound { .. })));
    assert!(!volumes.inventory().await.expect("the inventory is readable").shelves.contains(&id));
}

async fn what_is_sent_can_be_received(volumes: &dyn Volumes) {
    let (id, snapshot) = (ShelfId::generate(), ShelfSnapshotId::generate());
    volumes.create_shelf(&id, None, DISK_BYTES).await.expect("creating works");
    volumes.snapshot_shelf(&snapshot, &id).await.expect("a snapshot works");
    let all = [VolumeId::Shelf(id.clone()), VolumeId::ShelfSnapshot(snapshot.clone())];
    let mut sent = Vec::new();
    for volume in &all {
        sent.push(collect(volumes.send(volume).await.expect("sending works")).await);
    }
    volumes.remove_shelf(&id).await.expect("removing works");
    volumes.remove_shelf_snapshot(&snapshot).await.expect("removing works");
    for (volume, stream) in all.iter().zip(sent) {
        assert!(volumes.send(volume).await.is_err(), "it is gone");
        volumes.receive(volume, DISK_BYTES, replay(stream.clone())).await.expect("receiving works");
        volumes.receive(volume, DISK_BYTES, replay(stream)).await.expect("receiving again works");
    }
    volumes.locate_shelf(&id).await.expect("what was received is there");
    volumes.remove_shelf(&id).await.expect("removing works");
    volumes.remove_shelf_snapshot(&snapshot).await.expect("removing works");
}
