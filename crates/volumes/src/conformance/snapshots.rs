//! What every driver promises of snapshots.

use std::sync::Arc;

use burrow_model::{Changes, ImageId, SandboxId, SnapshotId};

use super::{DISK_BYTES, sealed};
use crate::{Comparison, Effort, Times, Tree, VolumeError, Volumes};

pub(super) async fn all(volumes: &dyn Volumes) {
    a_snapshot_outlives_its_sandbox_and_makes_another(volumes).await;
    every_call_may_be_repeated(volumes).await;
    a_volume_is_replaced_also_where_there_is_none(volumes).await;
    nothing_has_changed_where_nothing_was_written(volumes).await;
    what_is_frozen_can_be_compared_until_it_is_thawed(volumes).await;
    unknown_things_are_named_in_the_error(volumes).await;
    a_snapshot_from_elsewhere_is_nobodys_until_it_is_sealed(volumes).await;
}

/// An image, a sandbox of it and a snapshot of that.
async fn taken(volumes: &dyn Volumes) -> (ImageId, SandboxId, SnapshotId) {
    let (image, id, snapshot) = (sealed(volumes).await, SandboxId::generate(), SnapshotId::generate());
    volumes.create(&id, &image, DISK_BYTES).await.expect("creating works");
    volumes.snapshot(&snapshot, &id).await.expect("a snapshot works");
    (image, id, snapshot)
}

async fn a_snapshot_outlives_its_sandbox_and_makes_another(volumes: &dyn Volumes) {
    let (image, id, snapshot) = taken(volumes).await;
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_image(&image).await.expect("removing works");
    assert!(volumes.locate_snapshot(&snapshot).await.expect("it is there").ends_with("rootfs"));
    volumes.snapshot_bytes(&snapshot).await.expect("it can be measured");

    let child = SandboxId::generate();
    let rootfs = volumes.create_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("creating works");
    assert_eq!(volumes.locate(&child).await.expect("the child is there"), rootfs);
    assert!(volumes.used(&child).await.expect("the usage is readable") < DISK_BYTES);
    volumes.remove_snapshot(&snapshot).await.expect("removing works");
    volumes.locate(&child).await.expect("the child outlives what it was made of");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(inventory.sandboxes.contains(&child) && !inventory.snapshots.contains(&snapshot));
    volumes.destroy(&child).await.expect("destroying works");
}

async fn every_call_may_be_repeated(volumes: &dyn Volumes) {
    let (image, id, snapshot) = taken(volumes).await;
    volumes.snapshot(&snapshot, &id).await.expect("taking it again works");
    assert!(volumes.inventory().await.expect("the inventory is readable").snapshots.contains(&snapshot));
    let child = SandboxId::generate();
    let rootfs = volumes.create_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("creating works");
    let again = volumes.create_from_snapshot(&child, &snapshot, DISK_BYTES).await;
    assert_eq!(again.expect("creating again works"), rootfs);
    for _ in 0..2 {
        let replaced = volumes.replace_from_snapshot(&child, &snapshot, DISK_BYTES).await;
        assert_eq!(replaced.expect("replacing works"), rootfs);
    }
    for _ in 0..2 {
        volumes.remove_snapshot(&snapshot).await.expect("removing works");
    }
    // The sandbox is gone, the snapshot is not asked for: it stands for itself.
    volumes.destroy(&child).await.expect("destroying works");
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_image(&image).await.expect("removing works");
}

async fn a_volume_is_replaced_also_where_there_is_none(volumes: &dyn Volumes) {
    let (image, id, snapshot) = taken(volumes).await;
    volumes.destroy(&id).await.expect("destroying works");
    let rootfs = volumes.replace_from_snapshot(&id, &snapshot, DISK_BYTES).await.expect("replacing works");
    assert_eq!(volumes.locate(&id).await.expect("it is there"), rootfs);
    volumes.set_quota(&id, 2 * DISK_BYTES).await.expect("it has a quota");
    let before = volumes.inventory().await.expect("the inventory is readable");
    volumes.replace_from_snapshot(&id, &snapshot, DISK_BYTES).await.expect("replacing works");
    assert_eq!(volumes.inventory().await.expect("the inventory is readable"), before);
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_snapshot(&snapshot).await.expect("removing works");
    volumes.remove_image(&image).await.expect("removing works");
}

async fn nothing_has_changed_where_nothing_was_written(volumes: &dyn Volumes) {
    let (image, id, first) = taken(volumes).await;
    let second = SnapshotId::generate();
    volumes.snapshot(&second, &id).await.expect("a snapshot works");
    let since_image =
        volumes.changes(None, &first, &image, 10, Effort::Whole).await.expect("comparing works");
    assert_eq!(since_image, Changes::none(None));
    let since_first =
        volumes.changes(Some(&first), &second, &image, 10, Effort::Whole).await.expect("comparing works");
    assert_eq!(since_first, Changes::none(Some(first.clone())));
    assert_eq!(volumes.snapshot_bytes(&second).await.expect("it can be measured"), 0);
    for snapshot in [first, second] {
        volumes.remove_snapshot(&snapshot).await.expect("removing works");
    }
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_image(&image).await.expect("removing works");
}

async fn unknown_things_are_named_in_the_error(volumes: &dyn Volumes) {
    let (image, id, known) = taken(volumes).await;
    let (nobody, unknown) = (SandboxId::generate(), SnapshotId::generate());
    let answer = volumes.snapshot(&unknown, &nobody).await;
    assert!(matches!(&answer, Err(VolumeError::NotFound { id }) if *id == nobody), "{answer:?}");
    let named = |answer: Result<(), VolumeError>| {
        let named =
            matches!(&answer, Err(VolumeError::SnapshotNotFound { snapshot }) if *snapshot == unknown);
        assert!(named, "{answer:?}");
    };
    named(volumes.create_from_snapshot(&nobody, &unknown, DISK_BYTES).await.map(drop));
    named(volumes.replace_from_snapshot(&id, &unknown, DISK_BYTES).await.map(drop));
    named(volumes.locate_snapshot(&unknown).await.map(drop));
    named(volumes.snapshot_bytes(&unknown).await.map(drop));
    named(volumes.changes(None, &unknown, &image, 1, Effort::Whole).await.map(drop));
    named(volumes.changes(Some(&unknown), &known, &image, 1, Effort::Whole).await.map(drop));
    volumes.locate(&id).await.expect("a refused replacement leaves what is there");
    volumes.remove_image(&image).await.expect("removing works");
    let answer = volumes.changes(None, &known, &image, 1, Effort::Whole).await;
    assert!(matches!(&answer, Err(VolumeError::ImageNotFound { .. })), "{answer:?}");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(!inventory.snapshots.contains(&unknown) && !inventory.sandboxes.contains(&nobody));
    volumes.remove_snapshot(&unknown).await.expect("removing nothing works");
    volumes.remove_snapshot(&known).await.expect("removing works");
    volumes.destroy(&id).await.expect("destroying works");
}

async fn what_is_frozen_can_be_compared_until_it_is_thawed(volumes: &dyn Volumes) {
    let (image, id, snapshot) = taken(volumes).await;
    let before = volumes.inventory().await.expect("the inventory is readable");
    let frozen = SnapshotId::generate();
    for _ in 0..2 {
        volumes.freeze(&frozen, &id).await.expect("freezing works, and again");
    }
    assert_eq!(volumes.inventory().await.expect("the inventory is readable"), before);
    let trees = [Tree::Image(image.clone()), Tree::Snapshot(snapshot.clone()), Tree::Frozen(frozen.clone())];
    for (at, old) in trees.iter().enumerate() {
        assert!(volumes.locate_tree(old).await.expect("it is there").ends_with("rootfs"));
        for (new, times) in trees[at..].iter().zip([Times::Ignored, Times::Count].into_iter().cycle()) {
            let compared = volumes.compare(old, new, times).await.expect("comparing works");
            assert_eq!(compared, Comparison { paths: Vec::new(), more: false }, "{old:?} {new:?}");
        }
    }
    for _ in 0..2 {
        volumes.thaw(&frozen).await.expect("thawing works, and again");
    }
    let gone = Tree::Frozen(frozen.clone());
    for answer in [
        volumes.locate_tree(&gone).await.map(drop),
        volumes.compare(&trees[0], &gone, Times::Ignored).await.map(drop),
        volumes.compare(&gone, &trees[1], Times::Ignored).await.map(drop),
    ] {
        let named = matches!(&answer, Err(VolumeError::SnapshotNotFound { snapshot }) if *snapshot == frozen);
        assert!(named, "{answer:?}");
    }
    let nobody = SandboxId::generate();
    let answer = volumes.freeze(&frozen, &nobody).await;
    assert!(matches!(&answer, Err(VolumeError::NotFound { id }) if *id == nobody), "{answer:?}");
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_snapshot(&snapshot).await.expect("removing works");
    volumes.remove_image(&image).await.expect("removing works");
}

pub(super) async fn twenty_children_of_one(volumes: Arc<dyn Volumes>) {
    let (image, id, snapshot) = taken(&*volumes).await;
    let before = volumes.inventory().await.expect("the inventory is readable");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (volumes, snapshot) = (Arc::clone(&volumes), snapshot.clone());
        tasks.spawn(async move {
            let child = SandboxId::generate();
            volumes.create_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("creating works");
            volumes.replace_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("replacing works");
            volumes.destroy(&child).await.expect("destroying works");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    assert_eq!(volumes.inventory().await.expect("the inventory is readable"), before);
    volumes.remove_snapshot(&snapshot).await.expect("removing works");
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_image(&image).await.expect("removing works");
}

async fn a_snapshot_from_elsewhere_is_nobodys_until_it_is_sealed(volumes: &dyn Volumes) {
    let id = SnapshotId::generate();
    let unknown = volumes.seal_snapshot(&id).await;
    assert!(matches!(unknown, Err(VolumeError::SnapshotNotFound { .. })), "{unknown:?}");
    let stale = volumes.stage_snapshot(&id, None).await.expect("staging works");
    std::fs::write(stale.join("old"), "of an older try").expect("it can be written");
    let rootfs = volumes.stage_snapshot(&id, None).await.expect("staging again works");
    std::fs::write(rootfs.join("file"), "first").expect("it can be written");
    let listed = || async { volumes.inventory().await.expect("the inventory is readable").snapshots };
    assert!(!listed().await.contains(&id) && volumes.locate_snapshot(&id).await.is_err());
    for _ in 0..2 {
        volumes.seal_snapshot(&id).await.expect("sealing works, also again");
    }
    assert!(listed().await.contains(&id) && !rootfs.exists());
    let sealed = volumes.locate_snapshot(&id).await.expect("it is there");
    assert_eq!(std::fs::read_to_string(sealed.join("file")).expect("it is there"), "first");
    assert!(!sealed.join("old").exists());

    let next = SnapshotId::generate();
    let rootfs = volumes.stage_snapshot(&next, Some(&id)).await.expect("staging upon another works");
    assert_eq!(std::fs::read_to_string(rootfs.join("file")).expect("it is a copy"), "first");
    std::fs::write(rootfs.join("file"), "second").expect("it can be written");
    volumes.seal_snapshot(&next).await.expect("sealing works");
    let (old, new) = (volumes.locate_snapshot(&id).await, volumes.locate_snapshot(&next).await);
    let read = |at: std::path::PathBuf| std::fs::read_to_string(at.join("file")).expect("it is there");
    assert_eq!(
        (read(old.expect("it is there")), read(new.expect("it is there"))),
        ("first".into(), "second".into())
    );
    let missing = volumes.stage_snapshot(&SnapshotId::generate(), Some(&SnapshotId::generate())).await;
    assert!(matches!(missing, Err(VolumeError::SnapshotNotFound { .. })), "{missing:?}");

    let given_up = SnapshotId::generate();
    let rootfs = volumes.stage_snapshot(&given_up, None).await.expect("staging works");
    for id in [&given_up, &id, &next] {
        volumes.remove_snapshot(id).await.expect("removing works");
    }
    assert!(!rootfs.exists() && !listed().await.contains(&id));
    let child = SandboxId::generate();
    let gone = volumes.create_from_snapshot(&child, &given_up, DISK_BYTES).await;
    assert!(matches!(gone, Err(VolumeError::SnapshotNotFound { .. })), "{gone:?}");
}
