//! The contract of all drivers, as one suite of tests that each of them passes.
//!
//! Reads and writes no files except those of dumps: the files of disks are covered by the tests of each driver.

mod dumps;
mod snapshots;
mod volumes;

use std::sync::Arc;

use burrow_model::{ImageId, SandboxId, SnapshotId};

use crate::{Chunks, DiskError, DiskId, Disks};

const DISK_BYTES: u64 = 64 << 20;

/// Runs the suite. Panics at the first failure.
pub async fn all(disks: &dyn Disks) {
    an_image_is_staged_then_sealed_then_removed(disks).await;
    every_call_may_be_repeated(disks).await;
    unknown_things_are_named_in_the_error(disks).await;
    removing_unknown_ids_does_nothing(disks).await;
    a_sandbox_outlives_its_image(disks).await;
    the_pool_has_room(disks).await;
    sent_disks_can_be_received(disks).await;
    an_image_is_built_upon_another(disks).await;
    an_image_is_made_of_a_sandbox(disks).await;
    snapshots::all(disks).await;
    dumps::all(disks).await;
    volumes::all(disks).await;
}

/// Runs the part that needs a driver shared between tasks.
pub async fn concurrent(disks: Arc<dyn Disks>) {
    twenty_at_once_leave_nothing_behind(Arc::clone(&disks)).await;
    snapshots::twenty_children_of_one(disks).await;
}

/// A backup: a disk is sent, lost, received.
async fn sent_disks_can_be_received(disks: &dyn Disks) {
    let (image, id) = (sealed(disks).await, SandboxId::generate());
    disks.create(&id, &image, DISK_BYTES).await.expect("creating works");
    let sandbox = DiskId::Sandbox { id: id.clone(), image: image.clone() };
    let sent = collect(disks.send(&sandbox).await.expect("sending works")).await;
    assert!(!sent.is_empty());
    disks.destroy(&id).await.expect("destroying works");
    assert!(matches!(disks.send(&sandbox).await, Err(DiskError::NotFound { .. })));

    disks.receive(&sandbox, DISK_BYTES, replay(sent.clone())).await.expect("receiving works");
    disks.locate(&id).await.expect("what was received is there");
    disks.receive(&sandbox, DISK_BYTES, replay(sent)).await.expect("receiving again works");
    snapshots_can_be_received(disks, &id, &image).await;
    disks.destroy(&id).await.expect("destroying works");
    disks.remove_image(&image).await.expect("removing works");
}

/// Two snapshots of a sandbox, the second sent as its difference to the first.
async fn snapshots_can_be_received(disks: &dyn Disks, of: &SandboxId, image: &ImageId) {
    let ids = [SnapshotId::generate(), SnapshotId::generate()];
    let parents = [None, Some(ids[0].clone())];
    let mut sent = Vec::new();
    for (id, parent) in ids.iter().zip(parents) {
        disks.snapshot(id, of).await.expect("a snapshot is taken");
        let disk = DiskId::Snapshot { id: id.clone(), image: image.clone(), parent };
        let stream = collect(disks.send(&disk).await.expect("sending works")).await;
        sent.push((disk, stream));
    }
    for id in &ids {
        disks.remove_snapshot(id).await.expect("removing works");
    }
    assert!(matches!(disks.send(&sent[0].0).await, Err(DiskError::SnapshotNotFound { .. })));
    for (disk, stream) in sent {
        disks.receive(&disk, 0, replay(stream.clone())).await.expect("receiving works");
        disks.receive(&disk, 0, replay(stream)).await.expect("receiving again works");
    }
    for id in &ids {
        disks.locate_snapshot(id).await.expect("what was received is there");
        disks.remove_snapshot(id).await.expect("removing works");
    }
}

async fn collect(mut chunks: Chunks) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        all.push(chunk.expect("nothing fails midway"));
    }
    all
}

fn replay(all: Vec<Vec<u8>>) -> Chunks {
    let (sender, chunks) = tokio::sync::mpsc::channel(all.len().max(1));
    for chunk in all {
        sender.try_send(Ok(chunk)).expect("the channel holds them all");
    }
    chunks
}

/// An image ready for sandboxes.
pub async fn sealed(disks: &dyn Disks) -> ImageId {
    let image = ImageId::generate();
    disks.stage_image(&image).await.expect("staging works");
    disks.seal_image(&image).await.expect("sealing works");
    image
}

async fn an_image_is_staged_then_sealed_then_removed(disks: &dyn Disks) {
    let image = ImageId::generate();
    let rootfs = disks.stage_image(&image).await.expect("staging works");
    assert!(rootfs.ends_with("rootfs"));
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.staged.contains(&image) && !inventory.images.contains(&image));

    disks.seal_image(&image).await.expect("sealing works");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.staged.contains(&image) && inventory.images.contains(&image));

    disks.remove_image(&image).await.expect("removing works");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.staged.contains(&image) && !inventory.images.contains(&image));
}

async fn an_image_is_built_upon_another(disks: &dyn Disks) {
    let (parent, child) = (sealed(disks).await, ImageId::generate());
    let rootfs = disks.stage_image_from(&child, &parent).await.expect("staging works");
    assert_eq!(disks.stage_image_from(&child, &parent).await.expect("staging again works"), rootfs);
    assert!(rootfs.ends_with("rootfs"));
    let unsealed = disks.locate_image(&child).await;
    assert!(matches!(unsealed, Err(DiskError::ImageNotFound { .. })), "{unsealed:?}");
    disks.seal_image(&child).await.expect("sealing works");
    assert!(disks.locate_image(&child).await.expect("locating works").ends_with("rootfs"));

    // Each is independent of the other.
    disks.remove_image(&parent).await.expect("removing works");
    let id = SandboxId::generate();
    disks.create(&id, &child, DISK_BYTES).await.expect("creating works");
    disks.destroy(&id).await.expect("destroying works");
    let gone = disks.stage_image_from(&ImageId::generate(), &parent).await;
    assert!(matches!(&gone, Err(DiskError::ImageNotFound { image }) if *image == parent), "{gone:?}");
    disks.remove_image(&child).await.expect("removing works");
}

async fn an_image_is_made_of_a_sandbox(disks: &dyn Disks) {
    let (base, id, image) = (sealed(disks).await, SandboxId::generate(), ImageId::generate());
    disks.create(&id, &base, DISK_BYTES).await.expect("creating works");
    let used = disks.used(&id).await.expect("the usage is readable");
    disks.stage_image_of_sandbox(&image, &id).await.expect("staging works");
    disks.seal_image(&image).await.expect("sealing works");
    assert_eq!(disks.used(&id).await.expect("the usage is readable"), used, "a copy is not the sandbox's");
    disks.destroy(&id).await.expect("destroying works");
    disks.locate_image(&image).await.expect("the image outlives the sandbox");
    let gone = disks.stage_image_of_sandbox(&ImageId::generate(), &id).await;
    assert!(matches!(&gone, Err(DiskError::NotFound { .. })), "{gone:?}");
    disks.remove_image(&image).await.expect("removing works");
    disks.remove_image(&base).await.expect("removing works");
}

async fn every_call_may_be_repeated(disks: &dyn Disks) {
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let first = disks.stage_image(&image).await.expect("staging works");
    assert_eq!(disks.stage_image(&image).await.expect("staging again works"), first);
    disks.seal_image(&image).await.expect("sealing works");
    disks.seal_image(&image).await.expect("sealing again works");

    let rootfs = disks.create(&id, &image, DISK_BYTES).await.expect("creating works");
    assert_eq!(disks.create(&id, &image, DISK_BYTES).await.expect("creating again works"), rootfs);
    assert_eq!(disks.locate(&id).await.expect("locating works"), rootfs);
    disks.set_quota(&id, 2 * DISK_BYTES).await.expect("changing the quota works");
    disks.set_quota(&id, 2 * DISK_BYTES).await.expect("changing the quota again works");
    assert!(disks.used(&id).await.expect("the usage is readable") < DISK_BYTES);

    disks.destroy(&id).await.expect("destroying works");
    disks.destroy(&id).await.expect("destroying again works");
    disks.remove_image(&image).await.expect("removing works");
    disks.remove_image(&image).await.expect("removing again works");
}

async fn unknown_things_are_named_in_the_error(disks: &dyn Disks) {
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let answer = disks.create(&id, &image, DISK_BYTES).await;
    assert!(
        matches!(&answer, Err(DiskError::ImageNotFound { image: named }) if *named == image),
        "{answer:?}"
    );
    let answer = disks.seal_image(&image).await;
    assert!(
        matches!(&answer, Err(DiskError::ImageNotFound { image: named }) if *named == image),
        "{answer:?}"
    );
    let answer = disks.locate(&id).await;
    assert!(matches!(&answer, Err(DiskError::NotFound { id: named }) if *named == id), "{answer:?}");
    let answer = disks.set_quota(&id, DISK_BYTES).await;
    assert!(matches!(&answer, Err(DiskError::NotFound { id: named }) if *named == id), "{answer:?}");
    let answer = disks.used(&id).await;
    assert!(matches!(&answer, Err(DiskError::NotFound { id: named }) if *named == id), "{answer:?}");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.sandboxes.contains(&id), "a refused create left a disk behind");
}

async fn removing_unknown_ids_does_nothing(disks: &dyn Disks) {
    disks.destroy(&SandboxId::generate()).await.expect("destroying nothing works");
    disks.remove_image(&ImageId::generate()).await.expect("removing nothing works");
}

async fn a_sandbox_outlives_its_image(disks: &dyn Disks) {
    let (image, id) = (sealed(disks).await, SandboxId::generate());
    disks.create(&id, &image, DISK_BYTES).await.expect("creating works");
    disks.remove_image(&image).await.expect("removing works");
    disks.locate(&id).await.expect("the sandbox is still there");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.sandboxes.contains(&id) && !inventory.images.contains(&image));
    disks.destroy(&id).await.expect("destroying works");
}

async fn the_pool_has_room(disks: &dyn Disks) {
    let space = disks.space().await.expect("the room is readable");
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes, "{space:?}");
}

async fn twenty_at_once_leave_nothing_behind(disks: Arc<dyn Disks>) {
    let image = sealed(&*disks).await;
    let before = disks.inventory().await.expect("the inventory is readable");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (disks, image) = (Arc::clone(&disks), image.clone());
        tasks.spawn(async move {
            let id = SandboxId::generate();
            // Two callers create the same sandbox: both succeed.
            let (one, two) =
                tokio::join!(disks.create(&id, &image, DISK_BYTES), disks.create(&id, &image, DISK_BYTES));
            assert_eq!(one.expect("creating works"), two.expect("creating at once works"));
            disks.destroy(&id).await.expect("destroying works");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    disks.remove_image(&image).await.expect("removing works");
}
