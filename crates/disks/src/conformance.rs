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
    disks.create((&id).into(), Some((&image).into()), DISK_BYTES).await.expect("creating works");
    let (sandbox, base) = (DiskId::from(&id), Some(DiskId::from(&image)));
    let sent = collect(disks.send(sandbox.clone(), base.clone()).await.expect("sending works")).await;
    assert!(!sent.is_empty());
    disks.remove((&id).into()).await.expect("destroying works");
    assert!(matches!(
        disks.send(sandbox.clone(), base).await,
        Err(DiskError::NotFound { disk: DiskId::Sandbox(_) })
    ));

    disks.receive(sandbox.clone(), DISK_BYTES, replay(sent.clone())).await.expect("receiving works");
    disks.locate((&id).into()).await.expect("what was received is there");
    disks.receive(sandbox, DISK_BYTES, replay(sent)).await.expect("receiving again works");
    snapshots_can_be_received(disks, &id, &image).await;
    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&image).into()).await.expect("removing works");
}

/// Two snapshots of a sandbox, the second sent as its difference to the first.
async fn snapshots_can_be_received(disks: &dyn Disks, of: &SandboxId, image: &ImageId) {
    let ids = [SnapshotId::generate(), SnapshotId::generate()];
    let bases = [DiskId::from(image), DiskId::from(&ids[0])];
    let mut sent = Vec::new();
    for (id, base) in ids.iter().zip(bases) {
        disks.snapshot(id.into(), of.into()).await.expect("a snapshot is taken");
        let stream = collect(disks.send(id.into(), Some(base)).await.expect("sending works")).await;
        sent.push((DiskId::from(id), stream));
    }
    for id in &ids {
        disks.remove(id.into()).await.expect("removing works");
    }
    assert!(matches!(
        disks.send(sent[0].0.clone(), None).await,
        Err(DiskError::NotFound { disk: DiskId::Snapshot(_) })
    ));
    for (disk, stream) in sent {
        disks.receive(disk.clone(), 0, replay(stream.clone())).await.expect("receiving works");
        disks.receive(disk, 0, replay(stream)).await.expect("receiving again works");
    }
    for id in &ids {
        disks.locate(id.into()).await.expect("what was received is there");
        disks.remove(id.into()).await.expect("removing works");
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
    disks.stage((&image).into(), None).await.expect("staging works");
    disks.seal((&image).into()).await.expect("sealing works");
    image
}

async fn an_image_is_staged_then_sealed_then_removed(disks: &dyn Disks) {
    let image = ImageId::generate();
    let rootfs = disks.stage((&image).into(), None).await.expect("staging works");
    assert!(rootfs.ends_with("rootfs"));
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.staged.contains(&image) && !inventory.images.contains(&image));

    disks.seal((&image).into()).await.expect("sealing works");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.staged.contains(&image) && inventory.images.contains(&image));

    disks.remove((&image).into()).await.expect("removing works");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.staged.contains(&image) && !inventory.images.contains(&image));
}

async fn an_image_is_built_upon_another(disks: &dyn Disks) {
    let (parent, child) = (sealed(disks).await, ImageId::generate());
    let rootfs = disks.stage((&child).into(), Some((&parent).into())).await.expect("staging works");
    assert_eq!(
        disks.stage((&child).into(), Some((&parent).into())).await.expect("staging again works"),
        rootfs
    );
    assert!(rootfs.ends_with("rootfs"));
    let unsealed = disks.locate((&child).into()).await;
    assert!(matches!(unsealed, Err(DiskError::NotFound { disk: DiskId::Image(_) })), "{unsealed:?}");
    disks.seal((&child).into()).await.expect("sealing works");
    assert!(disks.locate((&child).into()).await.expect("locating works").ends_with("rootfs"));

    // Each is independent of the other.
    disks.remove((&parent).into()).await.expect("removing works");
    let id = SandboxId::generate();
    disks.create((&id).into(), Some((&child).into()), DISK_BYTES).await.expect("creating works");
    disks.remove((&id).into()).await.expect("destroying works");
    let gone = disks.stage((&ImageId::generate()).into(), Some((&parent).into())).await;
    assert!(
        matches!(&gone, Err(DiskError::NotFound { disk: DiskId::Image(image) }) if *image == parent),
        "{gone:?}"
    );
    disks.remove((&child).into()).await.expect("removing works");
}

async fn an_image_is_made_of_a_sandbox(disks: &dyn Disks) {
    let (base, id, image) = (sealed(disks).await, SandboxId::generate(), ImageId::generate());
    disks.create((&id).into(), Some((&base).into()), DISK_BYTES).await.expect("creating works");
    let used = disks.used((&id).into()).await.expect("the usage is readable");
    disks.stage((&image).into(), Some((&id).into())).await.expect("staging works");
    disks.seal((&image).into()).await.expect("sealing works");
    assert_eq!(
        disks.used((&id).into()).await.expect("the usage is readable"),
        used,
        "a copy is not the sandbox's"
    );
    disks.remove((&id).into()).await.expect("destroying works");
    disks.locate((&image).into()).await.expect("the image outlives the sandbox");
    let gone = disks.stage((&ImageId::generate()).into(), Some((&id).into())).await;
    assert!(matches!(&gone, Err(DiskError::NotFound { disk: DiskId::Sandbox(_) })), "{gone:?}");
    disks.remove((&image).into()).await.expect("removing works");
    disks.remove((&base).into()).await.expect("removing works");
}

async fn every_call_may_be_repeated(disks: &dyn Disks) {
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let first = disks.stage((&image).into(), None).await.expect("staging works");
    assert_eq!(disks.stage((&image).into(), None).await.expect("staging again works"), first);
    disks.seal((&image).into()).await.expect("sealing works");
    disks.seal((&image).into()).await.expect("sealing again works");

    let rootfs = disks.create((&id).into(), Some((&image).into()), DISK_BYTES).await.expect("creating works");
    assert_eq!(
        disks.create((&id).into(), Some((&image).into()), DISK_BYTES).await.expect("creating again works"),
        rootfs
    );
    assert_eq!(disks.locate((&id).into()).await.expect("locating works"), rootfs);
    disks.set_quota(&id, 2 * DISK_BYTES).await.expect("changing the quota works");
    disks.set_quota(&id, 2 * DISK_BYTES).await.expect("changing the quota again works");
    assert!(disks.used((&id).into()).await.expect("the usage is readable") < DISK_BYTES);

    disks.remove((&id).into()).await.expect("destroying works");
    disks.remove((&id).into()).await.expect("destroying again works");
    disks.remove((&image).into()).await.expect("removing works");
    disks.remove((&image).into()).await.expect("removing again works");
}

async fn unknown_things_are_named_in_the_error(disks: &dyn Disks) {
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let answer = disks.create((&id).into(), Some((&image).into()), DISK_BYTES).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Image(named) }) if *named == image),
        "{answer:?}"
    );
    let answer = disks.seal((&image).into()).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Image(named) }) if *named == image),
        "{answer:?}"
    );
    let answer = disks.locate((&id).into()).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Sandbox(named) }) if *named == id),
        "{answer:?}"
    );
    let answer = disks.set_quota(&id, DISK_BYTES).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Sandbox(named) }) if *named == id),
        "{answer:?}"
    );
    let answer = disks.used((&id).into()).await;
    assert!(
        matches!(&answer, Err(DiskError::NotFound { disk: DiskId::Sandbox(named) }) if *named == id),
        "{answer:?}"
    );
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(!inventory.sandboxes.contains(&id), "a refused create left a disk behind");
}

async fn removing_unknown_ids_does_nothing(disks: &dyn Disks) {
    disks.remove((&SandboxId::generate()).into()).await.expect("destroying nothing works");
    disks.remove((&ImageId::generate()).into()).await.expect("removing nothing works");
}

async fn a_sandbox_outlives_its_image(disks: &dyn Disks) {
    let (image, id) = (sealed(disks).await, SandboxId::generate());
    disks.create((&id).into(), Some((&image).into()), DISK_BYTES).await.expect("creating works");
    disks.remove((&image).into()).await.expect("removing works");
    disks.locate((&id).into()).await.expect("the sandbox is still there");
    let inventory = disks.inventory().await.expect("the inventory is readable");
    assert!(inventory.sandboxes.contains(&id) && !inventory.images.contains(&image));
    disks.remove((&id).into()).await.expect("destroying works");
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
            let (one, two) = tokio::join!(
                disks.create((&id).into(), Some((&image).into()), DISK_BYTES),
                disks.create((&id).into(), Some((&image).into()), DISK_BYTES)
            );
            assert_eq!(one.expect("creating works"), two.expect("creating at once works"));
            disks.remove((&id).into()).await.expect("destroying works");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
    assert_eq!(disks.inventory().await.expect("the inventory is readable"), before);
    disks.remove((&image).into()).await.expect("removing works");
}
