//! The contract of volumes.

use burrow_model::{VolumeId, VolumeSnapshotId};

use super::{DISK_BYTES, collect, replay};
use crate::{DiskError, DiskId, Disks};

pub(super) async fn all(disks: &dyn Disks) {
    snapshots_of_a_volume_contain_its_files_and_restore_them(disks).await;
    every_call_may_be_repeated(disks).await;
    unknown_things_are_named_in_the_error(disks).await;
    sent_disks_can_be_received(disks).await;
}

/// Uses real files, also in the simulation: the host reads and writes them.
async fn snapshots_of_a_volume_contain_its_files_and_restore_them(disks: &dyn Disks) {
    let (id, snapshot, copy) = (VolumeId::generate(), VolumeSnapshotId::generate(), VolumeId::generate());
    let root = disks.create((&id).into(), None, DISK_BYTES).await.expect("creating works");
    assert!(root.ends_with("rootfs"));
    assert_eq!(std::fs::read_dir(&root).expect("it is a directory").count(), 0, "it begins empty");
    let (kept, read) = (root.join("kept"), |path| std::fs::read_to_string(path).expect("it is readable"));
    std::fs::write(&kept, "first").expect("it is writable");
    disks.snapshot((&snapshot).into(), (&id).into()).await.expect("a snapshot works");
    std::fs::write(&kept, "second").expect("it is writable");

    let other =
        disks.create((&copy).into(), Some((&snapshot).into()), DISK_BYTES).await.expect("creating works");
    assert_eq!((read(other.join("kept")), read(kept.clone())), ("first".to_owned(), "second".to_owned()));
    std::fs::write(other.join("kept"), "third").expect("a copy is writable");
    disks.replace((&id).into(), (&snapshot).into(), DISK_BYTES).await.expect("replacing works");
    assert_eq!(disks.locate((&id).into()).await.expect("it is there"), root);
    assert_eq!((read(kept), read(other.join("kept"))), ("first".to_owned(), "third".to_owned()));

    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.volumes.contains(&id) && inventory.volumes.contains(&copy));
    assert!(inventory.volume_snapshots.contains(&snapshot));
    disks.remove((&id).into()).await.expect("removing works");
    disks.remove((&copy).into()).await.expect("removing works");
    let again = disks.create((&id).into(), Some((&snapshot).into()), DISK_BYTES).await;
    again.expect("a snapshot outlives what it was taken of");
    disks.remove((&id).into()).await.expect("removing works");
    disks.remove((&snapshot).into()).await.expect("removing works");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.volumes.contains(&id) && !inventory.volume_snapshots.contains(&snapshot));
}

async fn every_call_may_be_repeated(disks: &dyn Disks) {
    let (id, snapshot) = (VolumeId::generate(), VolumeSnapshotId::generate());
    let root = disks.create((&id).into(), None, DISK_BYTES).await.expect("creating works");
    std::fs::write(root.join("kept"), "x").expect("it is writable");
    for _ in 0..2 {
        assert_eq!(disks.create((&id).into(), None, DISK_BYTES).await.expect("creating again works"), root);
        disks.snapshot((&snapshot).into(), (&id).into()).await.expect("taking it again works");
        disks.replace((&id).into(), (&snapshot).into(), DISK_BYTES).await.expect("replacing again works");
    }
    assert!(root.join("kept").exists(), "an existing volume is left unchanged");
    assert!(disks.used((&id).into()).await.expect("the usage is readable") < DISK_BYTES);
    for _ in 0..2 {
        disks.remove((&id).into()).await.expect("removing works");
        disks.remove((&snapshot).into()).await.expect("removing works");
    }
}

async fn unknown_things_are_named_in_the_error(disks: &dyn Disks) {
    let (id, snapshot) = (VolumeId::generate(), VolumeSnapshotId::generate());
    let located = disks.locate((&id).into()).await;
    assert!(matches!(located, Err(DiskError::NotFound { disk: DiskId::Volume(volume) }) if volume == id));
    let taken = disks.snapshot((&snapshot).into(), (&id).into()).await;
    assert!(matches!(taken, Err(DiskError::NotFound { disk: DiskId::Volume(_) })));
    let made = disks.create((&id).into(), Some((&snapshot).into()), DISK_BYTES).await;
    assert!(matches!(made, Err(DiskError::NotFound { disk: DiskId::VolumeSnapshot(_) })));
    let replaced = disks.replace((&id).into(), (&snapshot).into(), DISK_BYTES).await;
    assert!(matches!(replaced, Err(DiskError::NotFound { disk: DiskId::VolumeSnapshot(_) })));
    assert!(!disks.inventory().await.expect("the inventory is readable").volumes.contains(&id));
}

async fn sent_disks_can_be_received(disks: &dyn Disks) {
    let (id, snapshot) = (VolumeId::generate(), VolumeSnapshotId::generate());
    disks.create((&id).into(), None, DISK_BYTES).await.expect("creating works");
    disks.snapshot((&snapshot).into(), (&id).into()).await.expect("a snapshot works");
    let all = [DiskId::Volume(id.clone()), DiskId::VolumeSnapshot(snapshot.clone())];
    let mut sent = Vec::new();
    for volume in &all {
        sent.push(collect(disks.send(volume.clone(), None).await.expect("sending works")).await);
    }
    disks.remove((&id).into()).await.expect("removing works");
    disks.remove((&snapshot).into()).await.expect("removing works");
    for (volume, stream) in all.iter().zip(sent) {
        assert!(disks.send(volume.clone(), None).await.is_err(), "it is gone");
        disks.receive(volume.clone(), DISK_BYTES, replay(stream.clone())).await.expect("receiving works");
        disks.receive(volume.clone(), DISK_BYTES, replay(stream)).await.expect("receiving again works");
    }
    disks.locate((&id).into()).await.expect("what was received is there");
    disks.remove((&id).into()).await.expect("removing works");
    disks.remove((&snapshot).into()).await.expect("removing works");
}
