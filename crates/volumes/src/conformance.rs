//! What every driver promises, as one suite that each of them passes.
//!
//! Reads and writes no files but those of dumps: what a driver does with those of volumes is tested beside it.

mod dumps;
mod shelves;
mod snapshots;

use std::sync::Arc;

use burrow_model::{ImageId, SandboxId, SnapshotId};

use crate::{Chunks, VolumeError, VolumeId, Volumes};

const DISK_BYTES: u64 = 64 << 20;

/// Runs the suite. Panics at the first broken promise.
pub async fn all(volumes: &dyn Volumes) {
    an_image_is_staged_then_sealed_then_removed(volumes).await;
    every_call_may_be_repeated(volumes).await;
    unknown_things_are_named_in_the_error(volumes).await;
    removing_what_is_unknown_is_nothing_to_do(volumes).await;
    a_sandbox_outlives_its_image(volumes).await;
    the_pool_has_room(volumes).await;
    what_is_sent_can_be_received(volumes).await;
    an_image_is_built_upon_another(volumes).await;
    an_image_is_made_of_a_sandbox(volumes).await;
    snapshots::all(volumes).await;
    dumps::all(volumes).await;
    shelves::all(volumes).await;
}

/// Runs the part that needs a driver shared between tasks.
pub async fn concurrent(volumes: Arc<dyn Volumes>) {
    twenty_at_once_leave_nothing_behind(Arc::clone(&volumes)).await;
    snapshots::twenty_children_of_one(volumes).await;
}

/// A backup: sent, lost, received.
async fn what_is_sent_can_be_received(volumes: &dyn Volumes) {
    let (image, id) = (sealed(volumes).await, SandboxId::generate());
    volumes.create(&id, &image, DISK_BYTES).await.expect("creating works");
    let sandbox = VolumeId::Sandbox { id: id.clone(), image: image.clone() };
    let sent = collect(volumes.send(&sandbox).await.expect("sending works")).await;
    assert!(!sent.is_empty());
    volumes.destroy(&id).await.expect("destroying works");
    assert!(matches!(volumes.send(&sandbox).await, Err(VolumeError::NotFound { .. })));

    volumes.receive(&sandbox, DISK_BYTES, replay(sent.clone())).await.expect("receiving works");
    volumes.locate(&id).await.expect("what was received is there");
    volumes.receive(&sandbox, DISK_BYTES, replay(sent)).await.expect("receiving again works");
    snapshots_can_be_received(volumes, &id, &image).await;
    volumes.destroy(&id).await.expect("destroying works");
    volumes.remove_image(&image).await.expect("removing works");
}

/// Two snapshots of a sandbox, the second sent as its difference to the first.
async fn snapshots_can_be_received(volumes: &dyn Volumes, of: &SandboxId, image: &ImageId) {
    let ids = [SnapshotId::generate(), SnapshotId::generate()];
    let parents = [None, Some(ids[0].clone())];
    let mut sent = Vec::new();
    for (id, parent) in ids.iter().zip(parents) {
        volumes.snapshot(id, of).await.expect("a snapshot is taken");
        let volume = VolumeId::Snapshot { id: id.clone(), image: image.clone(), parent };
        let stream = collect(volumes.send(&volume).await.expect("sending works")).await;
        sent.push((volume, stream));
    }
    for id in &ids {
        volumes.remove_snapshot(id).await.expect("removing works");
    }
    assert!(matches!(volumes.send(&sent[0].0).await, Err(VolumeError::SnapshotNotFound { .. })));
    for (volume, stream) in sent {
        volumes.receive(&volume, 0, replay(stream.clone())).await.expect("receiving works");
        volumes.receive(&volume, 0, replay(stream)).await.expect("receiving again works");
    }
    for id in &ids {
        volumes.locate_snapshot(id).await.expect("what was received is there");
        volumes.remove_snapshot(id).await.expect("removing works");
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
pub async fn sealed(volumes: &dyn Volumes) -> ImageId {
    let image = ImageId::generate();
    volumes.stage_image(&image).await.expect("staging works");
    volumes.seal_image(&image).await.expect("sealing works");
    image
}

async fn an_image_is_staged_then_sealed_then_removed(volumes: &dyn Volumes) {
    let image = ImageId::generate();
    let rootfs = volumes.stage_image(&image).await.expect("staging works");
    assert!(rootfs.ends_with("rootfs"));
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(inventory.staged.contains(&image) && !inventory.images.contains(&image));

    volumes.seal_image(&image).await.expect("sealing works");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(!inventory.staged.contains(&image) && inventory.images.contains(&image));

    volumes.remove_image(&image).await.expect("removing works");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(!inventory.staged.contains(&image) && !inventory.images.contains(&image));
}

async fn an_image_is_built_upon_another(volumes: &dyn Volumes) {
    let (parent, child) = (sealed(volumes).await, ImageId::generate());
    let rootfs = volumes.stage_image_from(&child, &parent).await.expect("staging works");
    assert_eq!(volumes.stage_image_from(&child, &parent).await.expect("staging again works"), rootfs);
    assert!(rootfs.ends_with("rootfs"));
    let unsealed = volumes.locate_image(&child).await;
    assert!(matches!(unsealed, Err(VolumeError::ImageNotFound { .. })), "{unsealed:?}");
    volumes.seal_image(&child).await.expect("sealing works");
    assert!(volumes.locate_image(&child).await.expect("locating works").ends_with("rootfs"));

    // Each stands for itself.
    volumes.remove_image(&parent).await.expect("removing works");
    let id = SandboxId::generate();
    volumes.create(&id, &child, DISK_BYTES).await.expect("creating works");
    volumes.destroy(&id).await.expect("destroying works");
    let gone = volumes.stage_image_from(&ImageId::generate(), &parent).await;
    assert!(matches!(&gone, Err(VolumeError::ImageNotFound { image }) if *image == parent), "{gone:?}");
    volumes.remove_image(&child).await.expect("removing works");
}

async fn an_image_is_made_of_a_sandbox(volumes: &dyn Volumes) {
    let (base, id, image) = (sealed(volumes).await, SandboxId::generate(), ImageId::generate());
    volumes.create(&id, &base, DISK_BYTES).await.expect("creating works");
    let used = volumes.used(&id).await.expect("the usage is readable");
    volumes.stage_image_of_sandbox(&image, &id).await.expect("staging works");
    volumes.seal_image(&image).await.expect("sealing works");
    assert_eq!(volumes.used(&id).await.expect("the usage is readable"), used, "a copy is not the sandbox's");
    volumes.destroy(&id).await.expect("destroying works");
    volumes.locate_image(&image).await.expect("the image outlives the sandbox");
    let gone = volumes.stage_image_of_sandbox(&ImageId::generate(), &id).await;
    assert!(matches!(&gone, Err(VolumeError::NotFound { .. })), "{gone:?}");
    volumes.remove_image(&image).await.expect("removing works");
    volumes.remove_image(&base).await.expect("removing works");
}

async fn every_call_may_be_repeated(volumes: &dyn Volumes) {
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let first = volumes.stage_image(&image).await.expect("staging works");
    assert_eq!(volumes.stage_image(&image).await.expect("staging again works"), first);
    volumes.seal_image(&image).await.expect("sealing works");
    volumes.seal_image(&image).await.expect("sealing again works");

    let rootfs = volumes.create(&id, &image, DISK_BYTES).await.expect("creating works");
    assert_eq!(volumes.create(&id, &image, DISK_BYTES).await.expect("creating again works"), rootfs);
    assert_eq!(volumes.locate(&id).await.expect("locating works"), rootfs);
    volumes.set_quota(&id, 2 * DISK_BYTES).await.expect("changing the quota works");
    volumes.set_quota(&id, 2 * DISK_BYTES).await.expect("changing the quota again works");
    assert!(volumes.used(&id).await.expect("the usage is readable") < DISK_BYTES);

    volumes.destroy(&id).await.expect("destroying works");
    volumes.destroy(&id).await.expect("destroying again works");
    volumes.remove_image(&image).await.expect("removing works");
    volumes.remove_image(&image).await.expect("removing again works");
}

async fn unknown_things_are_named_in_the_error(volumes: &dyn Volumes) {
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let answer = volumes.create(&id, &image, DISK_BYTES).await;
    assert!(
        matches!(&answer, Err(VolumeError::ImageNotFound { image: named }) if *named == image),
        "{answer:?}"
    );
    let answer = volumes.seal_image(&image).await;
    assert!(
        matches!(&answer, Err(VolumeError::ImageNotFound { image: named }) if *named == image),
        "{answer:?}"
    );
    let answer = volumes.locate(&id).await;
    assert!(matches!(&answer, Err(VolumeError::NotFound { id: named }) if *named == id), "{answer:?}");
    let answer = volumes.set_quota(&id, DISK_BYTES).await;
    assert!(matches!(&answer, Err(VolumeError::NotFound { id: named }) if *named == id), "{answer:?}");
    let answer = volumes.used(&id).await;
    assert!(matches!(&answer, Err(VolumeError::NotFound { id: named }) if *named == id), "{answer:?}");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(!inventory.sandboxes.contains(&id), "a refused create left a volume behind");
}

async fn removing_what_is_unknown_is_nothing_to_do(volumes: &dyn Volumes) {
    volumes.destroy(&SandboxId::generate()).await.expect("destroying nothing works");
    volumes.remove_image(&ImageId::generate()).await.expect("removing nothing works");
}

async fn a_sandbox_outlives_its_image(volumes: &dyn Volumes) {
    let (image, id) = (sealed(volumes).await, SandboxId::generate());
    volumes.create(&id, &image, DISK_BYTES).await.expect("creating works");
    volumes.remove_image(&image).await.expect("removing works");
    volumes.locate(&id).await.expect("the sandbox is still there");
    let inventory = volumes.inventory().await.expect("the inventory is readable");
    assert!(inventory.sandboxes.contains(&id) && !inventory.images.contains(&image));
    volumes.destroy(&id).await.expect("destroying works");
}

async fn the_pool_has_room(volumes: &dyn Volumes) {
    let space = volumes.space().await.expect("the room is readable");
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes, "{space:?}");
}

async fn twenty_at_once_leave_nothing_behind(volumes: Arc<dyn Volumes>) {
    let image = sealed(&*volumes).await;
    let before = volumes.inventory().await.expect("the inventory is readable");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (volumes, image) = (Arc::clone(&volumes), image.clone());
        tasks.spawn(async move {
            let id = SandboxId::generate();
            // Two callers want the same sandbox: both get it.
            let (one, two) = tokio::join!(
                volumes.create(&id, &image, DISK_BYTES),
                volumes.create(&id, &image, DISK_BYTES)
            );
            assert_eq!(one.expect("creating works"), two.expect("creating at once works"));
            volumes.destroy(&id).await.expect("destroying works");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    assert_eq!(volumes.inventory().await.expect("the inventory is readable"), before);
    volumes.remove_image(&image).await.expect("removing works");
}
