//! The contract of snapshots.

use std::sync::Arc;

use burrow_model::{Changes, ImageId, SandboxId, SnapshotId};

use super::{DISK_BYTES, sealed};
use crate::{Comparison, DiskError, DiskId, Disks, Effort, TimeComparison, Tree};

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
    disks.create((&id).into(), Some((&image).into()), DISK_BYTES).await.expect("creating works");
    disks.snapshot((&snapshot).into(), (&id).into()).await.expect("a snapshot works");
    (image, id, snapshot)
}

async fn a_snapshot_outlives_its_sandbox_and_makes_another(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&image).into()).await.expect("removing works");
    assert!(disks.locate((&snapshot).into()).await.expect("it is there").ends_with("rootfs"));
    disks.used((&snapshot).into()).await.expect("it can be measured");

    let child = SandboxId::generate();
    let rootfs =
        disks.create((&child).into(), Some((&snapshot).into()), DISK_BYTES).await.expect("creating works");
    assert_eq!(disks.locate((&child).into()).await.expect("the child is there"), rootfs);
    assert!(disks.used((&child).into()).await.expect("the usage is readable") < DISK_BYTES);
    disks.remove((&snapshot).into()).await.expect("removing works");
    disks.locate((&child).into()).await.expect("the child outlives what it was made of");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.sandboxes.contains(&child) && !inventory.snapshots.contains(&snapshot));
    disks.remove((&child).into()).await.expect("destroying works");
}

async fn every_call_may_be_repeated(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    disks.snapshot((&snapshot).into(), (&id).into()).await.expect("taking it again works");
    assert!(disks.inventory().await.expect("the inventory is readable").snapshots.contains(&snapshot));
    let child = SandboxId::generate();
    let rootfs =
        disks.create((&child).into(), Some((&snapshot).into()), DISK_BYTES).await.expect("creating works");
    let again = disks.create((&child).into(), Some((&snapshot).into()), DISK_BYTES).await;
    assert_eq!(again.expect("creating again works"), rootfs);
    for _ in 0..2 {
        let replaced = disks.replace((&child).into(), (&snapshot).into(), DISK_BYTES).await;
        assert_eq!(replaced.expect("replacing works"), rootfs);
    }
    for _ in 0..2 {
        disks.remove((&snapshot).into()).await.expect("removing works");
    }
    // The sandbox is gone, but its snapshot is independent of it.
    disks.remove((&child).into()).await.expect("destroying works");
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&image).into()).await.expect("removing works");
}

async fn a_disk_is_replaced_or_created(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    disks.remove((&id).into()).await.expect("destroying works");
    let rootfs = disks.replace((&id).into(), (&snapshot).into(), DISK_BYTES).await.expect("replacing works");
    assert_eq!(disks.locate((&id).into()).await.expect("it is there"), rootfs);
    disks.set_quota(&id, 2 * DISK_BYTES).await.expect("it has a quota");
    let before = disks.inventory().await.expect("the inventory is readable");
    disks.replace((&id).into(), (&snapshot).into(), DISK_BYTES).await.expect("replacing works");
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&snapshot).into()).await.expect("removing works");
    disks.remove((&image).into()).await.expect("removing works");
}

async fn nothing_has_changed_where_nothing_was_written(disks: &dyn Disks) {
    let (image, id, first) = taken(disks).await;
    let second = SnapshotId::generate();
    disks.snapshot((&second).into(), (&id).into()).await.expect("a snapshot works");
    let since_image = disks.changes(None, &first, &image, 10, Effort::Whole).await.expect("comparing works");
    assert_eq!(since_image, Changes::none(None));
    let since_first =
        disks.changes(Some(&first), &second, &image, 10, Effort::Whole).await.expect("comparing works");
    assert_eq!(since_first, Changes::none(Some(first.clone())));
    assert_eq!(disks.used((&second).into()).await.expect("it can be measured"), 0);
    for snapshot in [first, second] {
        disks.remove((&snapshot).into()).await.expect("removing works");
    }
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&image).into()).await.expect("removing works");
}

async fn unknown_things_are_named_in_the_error(disks: &dyn Disks) {
    let (image, id, known) = taken(disks).await;
    let (unknown_sandbox, unknown) = (SandboxId::generate(), SnapshotId::generate());
    let answer = disks.snapshot((&unknown).into(), (&unknown_sandbox).into()).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Sandbox(id) }) if *id == unknown_sandbox),
        "{answer:?}"
    );
    let named = |answer: Result<(), DiskError>| {
        let named = matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Snapshot(snapshot) }) if *snapshot == unknown);
        assert!(named, "{answer:?}");
    };
    named(disks.create((&unknown_sandbox).into(), Some((&unknown).into()), DISK_BYTES).await.map(drop));
    named(disks.replace((&id).into(), (&unknown).into(), DISK_BYTES).await.map(drop));
    named(disks.locate((&unknown).into()).await.map(drop));
    named(disks.used((&unknown).into()).await.map(drop));
    named(disks.changes(None, &unknown, &image, 1, Effort::Whole).await.map(drop));
    named(disks.changes(Some(&unknown), &known, &image, 1, Effort::Whole).await.map(drop));
    disks.locate((&id).into()).await.expect("a refused replacement leaves the existing disk");
    disks.remove((&image).into()).await.expect("removing works");
    let answer = disks.changes(None, &known, &image, 1, Effort::Whole).await;
    assert!(matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Image(_) })), "{answer:?}");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.snapshots.contains(&unknown) && !inventory.sandboxes.contains(&unknown_sandbox));
    disks.remove((&unknown).into()).await.expect("removing nothing works");
    disks.remove((&known).into()).await.expect("removing works");
    disks.remove((&id).into()).await.expect("destroying works");
}

async fn a_frozen_disk_can_be_compared_until_it_is_thawed(disks: &dyn Disks) {
    let (image, id, snapshot) = taken(disks).await;
    let before = disks.inventory().await.expect("the inventory is readable");
    let frozen = SnapshotId::generate();
    for _ in 0..2 {
        disks
            .snapshot(DiskId::Frozen(frozen.clone()), (&id).into())
            .await
            .expect("freezing works, and again");
    }
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    let trees = [Tree::Image(image.clone()), Tree::Snapshot(snapshot.clone()), Tree::Frozen(frozen.clone())];
    for (at, old) in trees.iter().enumerate() {
        assert!(disks.locate(old.into()).await.expect("it is there").ends_with("rootfs"));
        for (new, times) in
            trees[at..].iter().zip([TimeComparison::Ignored, TimeComparison::Count].into_iter().cycle())
        {
            let compared = disks.compare(old, new, times).await.expect("comparing works");
            assert_eq!(compared, Comparison { paths: Vec::new(), more: false }, "{old:?} {new:?}");
        }
    }
    for _ in 0..2 {
        disks.remove(DiskId::Frozen(frozen.clone())).await.expect("thawing works, and again");
    }
    let gone = Tree::Frozen(frozen.clone());
    for answer in [
        disks.locate((&gone).into()).await.map(drop),
        disks.compare(&trees[0], &gone, TimeComparison::Ignored).await.map(drop),
        disks.compare(&gone, &trees[1], TimeComparison::Ignored).await.map(drop),
    ] {
        let named = matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Frozen(snapshot) }) if *snapshot == frozen);
        assert!(named, "{answer:?}");
    }
    let unknown_sandbox = SandboxId::generate();
    let answer = disks.snapshot(DiskId::Frozen(frozen.clone()), (&unknown_sandbox).into()).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Sandbox(id) }) if *id == unknown_sandbox),
        "{answer:?}"
    );
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&snapshot).into()).await.expect("removing works");
    disks.remove((&image).into()).await.expect("removing works");
}

pub(super) async fn twenty_children_of_one(disks: Arc<dyn Disks>) {
    let (image, id, snapshot) = taken(&*disks).await;
    let before = disks.inventory().await.expect("the inventory is readable");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (disks, snapshot) = (Arc::clone(&disks), snapshot.clone());
        tasks.spawn(async move {
            let child = SandboxId::generate();
            disks
                .create((&child).into(), Some((&snapshot).into()), DISK_BYTES)
                .await
                .expect("creating works");
            disks.replace((&child).into(), (&snapshot).into(), DISK_BYTES).await.expect("replacing works");
            disks.remove((&child).into()).await.expect("destroying works");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    disks.remove((&snapshot).into()).await.expect("removing works");
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&image).into()).await.expect("removing works");
}

async fn an_imported_snapshot_is_not_visible_until_it_is_sealed(disks: &dyn Disks) {
    let id = SnapshotId::generate();
    let unknown = disks.seal((&id).into()).await;
    assert!(matches!(unknown, Err(DiskError::NotFound { disk: DiskId::Snapshot(_) })), "{unknown:?}");
    let stale = disks.stage((&id).into(), None).await.expect("staging works");
    std::fs::write(stale.join("old"), "of an older try").expect("it can be written");
    let rootfs = disks.stage((&id).into(), None).await.expect("staging again works");
    std::fs::write(rootfs.join("file"), "first").expect("it can be written");
    let listed = || async { disks.inventory().await.expect("the inventory is readable").snapshots };
    assert!(!listed().await.contains(&id) && disks.locate((&id).into()).await.is_err());
    for _ in 0..2 {
        disks.seal((&id).into()).await.expect("sealing works, also again");
    }
    assert!(listed().await.contains(&id) && !rootfs.exists());
    let sealed = disks.locate((&id).into()).await.expect("it is there");
    assert_eq!(std::fs::read_to_string(sealed.join("file")).expect("it is there"), "first");
    assert!(!sealed.join("old").exists());

    let next = SnapshotId::generate();
    let rootfs = disks.stage((&next).into(), Some((&id).into())).await.expect("staging upon another works");
    assert_eq!(std::fs::read_to_string(rootfs.join("file")).expect("it is a copy"), "first");
    std::fs::write(rootfs.join("file"), "second").expect("it can be written");
    disks.seal((&next).into()).await.expect("sealing works");
    let (old, new) = (disks.locate((&id).into()).await, disks.locate((&next).into()).await);
    let read = |at: std::path::PathBuf| std::fs::read_to_string(at.join("file")).expect("it is there");
    assert_eq!(
        (read(old.expect("it is there")), read(new.expect("it is there"))),
        ("first".into(), "second".into())
    );
    let missing = disks.stage((&SnapshotId::generate()).into(), Some((&SnapshotId::generate()).into())).await;
    assert!(matches!(missing, Err(DiskError::NotFound { disk: DiskId::Snapshot(_) })), "{missing:?}");

    let given_up = SnapshotId::generate();
    let rootfs = disks.stage((&given_up).into(), None).await.expect("staging works");
    for id in [&given_up, &id, &next] {
        disks.remove(id.into()).await.expect("removing works");
    }
    assert!(!rootfs.exists() && !listed().await.contains(&id));
    let child = SandboxId::generate();
    let gone = disks.create((&child).into(), Some((&given_up).into()), DISK_BYTES).await;
    assert!(matches!(gone, Err(DiskError::NotFound { disk: DiskId::Snapshot(_) })), "{gone:?}");
}
