//! The contract of snapshots.

use std::sync::Arc;

use burrow_model::{Changes, ImageId, SandboxId, SnapshotId};

use super::{DISK_BYTES, sealed};
use crate::{Comparison, DiskError, Disks, Effort, Times, Tree};

pub(super) async fn all(disks: &dyn Disks) {
    a_snapshot_outlives_its_sandbox_and_makes_another(disks).await;
    every_call_may_be_repeated(disks).await;
    a_disk_is_replaced_or_created(disks).await;
    nothing_has_changed_where_nothing_was_written(disks).await;
    a_frozen_disk_can_be_compared_until_it_is_thawed(disks).await;
    unknown_things_are_named_in_the_error(disks).await;
    an_imported_snapshot_is_not_visible_until_it_is_sealed(disks).await;
}

/// An image, a sandbox created from it and a snapshot of that sandbox.
async fn taken(disks: &dyn Disks) -> (ImageId, SandboxId, SnapshotId) {
    let (image, id, snapshot) = (sealed(disks).await, SandboxId::generate(), SnapshotId::generate());
    disks.create(&id, &image, DISK_BYTES).await.expect("creating works");
    disks.snapshot(&snapshot, &id).await.expect("a snapshot works");
    (image, id, snapshot)
}

async fn a_snapshot_outlives_its_sandbox_and_makes_another(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_image(&image).await.expect("removing works");
    assert!(disks.locate_snapshot(&snapshot).await.expect("it is there").ends_with("rootfs"));
    disks.snapshot_bytes(&snapshot).await.expect("it can be measured");

    let child = SandboxId::generate();
    let rootfs = disks.create_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("creating works");
    assert_eq!(disks.locate(&child).await.expect("the child is there"), rootfs);
    assert!(disks.used(&child).await.expect("the usage is readable") < DISK_BYTES);
    disks.remove_snapshot(&snapshot).await.expect("removing works");
    disks.locate(&child).await.expect("the child outlives what it was made of");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.sandboxes.contains(&child) && !inventory.snapshots.contains(&snapshot));
    disks.destroy(&child).await.expect("destroying works");
}

async fn every_call_may_be_repeated(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    disks.snapshot(&snapshot, &id).await.expect("taking it again works");
    assert!(disks.inventory().await.expect("the inventory is readable").snapshots.contains(&snapshot));
    let child = SandboxId::generate();
    let rootfs = disks.create_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("creating works");
    let again = disks.create_from_snapshot(&child, &snapshot, DISK_BYTES).await;
    assert_eq!(again.expect("creating again works"), rootfs);
    for _ in 0..2 {
        let replaced = disks.replace_from_snapshot(&child, &snapshot, DISK_BYTES).await;
        assert_eq!(replaced.expect("replacing works"), rootfs);
    }
    for _ in 0..2 {
        disks.remove_snapshot(&snapshot).await.expect("removing works");
    }
    // The sandbox is gone, but its snapshot is independent of it.
    disks.destroy(&child).await.expect("destroying works");
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_image(&image).await.expect("removing works");
}

async fn a_disk_is_replaced_or_created(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    disks.destroy(&id).await.expect("destroying works");
    let rootfs = disks.replace_from_snapshot(&id, &snapshot, DISK_BYTES).await.expect("replacing works");
    assert_eq!(disks.locate(&id).await.expect("it is there"), rootfs);
    disks.set_quota(&id, 2 * DISK_BYTES).await.expect("it has a quota");
    let before = disks.inventory().await.expect("the inventory is readable");
    disks.replace_from_snapshot(&id, &snapshot, DISK_BYTES).await.expect("replacing works");
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_snapshot(&snapshot).await.expect("removing works");
    disks.remove_image(&image).await.expect("removing works");
}

async fn nothing_has_changed_where_nothing_was_written(disks: &dyn Disks) {
    let (image, id, first) = taken(disks).await;
    let second = SnapshotId::generate();
    disks.snapshot(&second, &id).await.expect("a snapshot works");
    let since_image = disks.changes(None, &first, &image, 10, Effort::Whole).await.expect("comparing works");
    assert_eq!(since_image, Changes::none(None));
    let since_first =
        disks.changes(Some(&first), &second, &image, 10, Effort::Whole).await.expect("comparing works");
    assert_eq!(since_first, Changes::none(Some(first.clone())));
    assert_eq!(disks.snapshot_bytes(&second).await.expect("it can be measured"), 0);
    for snapshot in [first, second] {
        disks.remove_snapshot(&snapshot).await.expect("removing works");
    }
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_image(&image).await.expect("removing works");
}

async fn unknown_things_are_named_in_the_error(disks: &dyn Disks) {
    let (image, id, known) = taken(disks).await;
    let (nobody, unknown) = (SandboxId::generate(), SnapshotId::generate());
    let answer = disks.snapshot(&unknown, &nobody).await;
    assert!(matches!(&answer, Err(DiskError::NotFound { id }) if *id == nobody), "{answer:?}");
    let named = |answer: Result<(), DiskError>| {
        let named = matches!(&answer, Err(DiskError::SnapshotNotFound { snapshot }) if *snapshot == unknown);
        assert!(named, "{answer:?}");
    };
    named(disks.create_from_snapshot(&nobody, &unknown, DISK_BYTES).await.map(drop));
    named(disks.replace_from_snapshot(&id, &unknown, DISK_BYTES).await.map(drop));
    named(disks.locate_snapshot(&unknown).await.map(drop));
    named(disks.snapshot_bytes(&unknown).await.map(drop));
    named(disks.changes(None, &unknown, &image, 1, Effort::Whole).await.map(drop));
    named(disks.changes(Some(&unknown), &known, &image, 1, Effort::Whole).await.map(drop));
    disks.locate(&id).await.expect("a refused replacement leaves the existing disk");
    disks.remove_image(&image).await.expect("removing works");
    let answer = disks.changes(None, &known, &image, 1, Effort::Whole).await;
    assert!(matches!(&answer, Err(DiskError::ImageNotFound { .. })), "{answer:?}");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.snapshots.contains(&unknown) && !inventory.sandboxes.contains(&nobody));
    disks.remove_snapshot(&unknown).await.expect("removing nothing works");
    disks.remove_snapshot(&known).await.expect("removing works");
    disks.destroy(&id).await.expect("destroying works");
}

async fn a_frozen_disk_can_be_compared_until_it_is_thawed(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    let before = disks.inventory().await.expect("the inventory is readable");
    let frozen = SnapshotId::generate();
    for _ in 0..2 {
        disks.freeze(&frozen, &id).await.expect("freezing works, and again");
    }
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    let trees = [Tree::Image(image.clone()), Tree::Snapshot(snapshot.clone()), Tree::Frozen(frozen.clone())];
    for (at, old) in trees.iter().enumerate() {
        assert!(disks.locate_tree(old).await.expect("it is there").ends_with("rootfs"));
        for (new, times) in trees[at..].iter().zip([Times::Ignored, Times::Count].into_iter().cycle()) {
            let compared = disks.compare(old, new, times).await.expect("comparing works");
            assert_eq!(compared, Comparison { paths: Vec::new(), more: false }, "{old:?} {new:?}");
        }
    }
    for _ in 0..2 {
        disks.thaw(&frozen).await.expect("thawing works, and again");
    }
    let gone = Tree::Frozen(frozen.clone());
    for answer in [
        disks.locate_tree(&gone).await.map(drop),
        disks.compare(&trees[0], &gone, Times::Ignored).await.map(drop),
        disks.compare(&gone, &trees[1], Times::Ignored).await.map(drop),
    ] {
        let named = matches!(&answer, Err(DiskError::SnapshotNotFound { snapshot }) if *snapshot == frozen);
        assert!(named, "{answer:?}");
    }
    let nobody = SandboxId::generate();
    let answer = disks.freeze(&frozen, &nobody).await;
    assert!(matches!(&answer, Err(DiskError::NotFound { id }) if *id == nobody), "{answer:?}");
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_snapshot(&snapshot).await.expect("removing works");
    disks.remove_image(&image).await.expect("removing works");
}

pub(super) async fn twenty_children_of_one(disks: Arc<dyn Disks>) {
    let (image, id, snapshot) = taken(&*disks).await;
    let before = disks.inventory().await.expect("the inventory is readable");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (disks, snapshot) = (Arc::clone(&disks), snapshot.clone());
        tasks.spawn(async move {
            let child = SandboxId::generate();
            disks.create_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("creating works");
            disks.replace_from_snapshot(&child, &snapshot, DISK_BYTES).await.expect("replacing works");
            disks.destroy(&child).await.expect("destroying works");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    disks.remove_snapshot(&snapshot).await.expect("removing works");
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_image(&image).await.expect("removing works");
}

async fn an_imported_snapshot_is_not_visible_until_it_is_sealed(disks: &dyn Disks) {
    let id = SnapshotId::generate();
    let unknown = disks.seal_snapshot(&id).await;
    assert!(matches!(unknown, Err(DiskError::SnapshotNotFound { .. })), "{unknown:?}");
    let stale = disks.stage_snapshot(&id, None).await.expect("staging works");
    std::fs::write(stale.join("old"), "of an older try").expect("it can be written");
    let rootfs = disks.stage_snapshot(&id, None).await.expect("staging again works");
    std::fs::write(rootfs.join("file"), "first").expect("it can be written");
    let listed = || async { disks.inventory().await.expect("the inventory is readable").snapshots };
    assert!(!listed().await.contains(&id) && disks.locate_snapshot(&id).await.is_err());
    for _ in 0..2 {
        disks.seal_snapshot(&id).await.expect("sealing works, also again");
    }
    assert!(listed().await.contains(&id) && !rootfs.exists());
    let sealed = disks.locate_snapshot(&id).await.expect("it is there");
    assert_eq!(std::fs::read_to_string(sealed.join("file")).expect("it is there"), "first");
    assert!(!sealed.join("old").exists());

    let next = SnapshotId::generate();
    let rootfs = disks.stage_snapshot(&next, Some(&id)).await.expect("staging upon another works");
    assert_eq!(std::fs::read_to_string(rootfs.join("file")).expect("it is a copy"), "first");
    std::fs::write(rootfs.join("file"), "second").expect("it can be written");
    disks.seal_snapshot(&next).await.expect("sealing works");
    let (old, new) = (disks.locate_snapshot(&id).await, disks.locate_snapshot(&next).await);
    let read = |at: std::path::PathBuf| std::fs::read_to_string(at.join("file")).expect("it is there");
    assert_eq!(
        (read(old.expect("it is there")), read(new.expect("it is there"))),
        ("first".into(), "second".into())
    );
    let missing = disks.stage_snapshot(&SnapshotId::generate(), Some(&SnapshotId::generate())).await;
    assert!(matches!(missing, Err(DiskError::SnapshotNotFound { .. })), "{missing:?}");

    let given_up = SnapshotId::generate();
    let rootfs = disks.stage_snapshot(&given_up, None).await.expect("staging works");
    for id in [&given_up, &id, &next] {
        disks.remove_snapshot(id).await.expect("removing works");
    }
    assert!(!rootfs.exists() && !listed().await.contains(&id));
    let child = SandboxId::generate();
    let gone = disks.create_from_snapshot(&child, &given_up, DISK_BYTES).await;
    assert!(matches!(gone, Err(DiskError::SnapshotNotFound { .. })), "{gone:?}");
}
