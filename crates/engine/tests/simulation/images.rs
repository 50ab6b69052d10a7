//! Images on simulated disks with real files: one failure at every step, shared layers, clean-ups.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

use burrow_disks::Disks as _;
use burrow_disks::sim::Sim;
use burrow_engine::{
    CommitOptions, ConfigChange, Engine, EngineError, ImageProgress, ImageProgressSink, ItemState,
    ObjectKind, RemoveResult,
};
use burrow_model::{Image, ImageId, ImageName};

use crate::world::{FAILS_ONCE, Fault, Seam, World, create};

/// A tar of a root file system with one file.
fn archive(content: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "etc/file", content.as_bytes()).unwrap();
    builder.into_inner().unwrap()
}

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

async fn import(
    engine: &Engine,
    world: &World,
    content: &str,
    called: &str,
    tell: ImageProgressSink,
) -> Result<Image, EngineError> {
    let opened = engine.open_archive(Box::new(Cursor::new(archive(content))), &tell).await?;
    let mut images = engine.import_images(&world.tenant, opened, Some(name(called)), tell).await?;
    Ok(images.remove(0))
}

fn commit(sandbox: burrow_model::SandboxId) -> CommitOptions {
    let change = ConfigChange {
        env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        labels: BTreeMap::new(),
        user: None,
        workdir: Some("/srv".to_owned()),
        entrypoint: None,
        cmd: None,
    };
    CommitOptions { sandbox, name: Some(name("committed")), change }
}

/// The pool contains exactly the disks that rows name.
async fn check(world: &World, context: &str) {
    let images = world.catalog.all_images().await.unwrap().into_iter().map(|row| row.image.id);
    let layers = world.catalog.all_layers().await.unwrap().into_iter().map(|row| row.disk);
    let named: BTreeSet<ImageId> = images.chain(layers).collect();
    let inventory = world.disks.inner.inventory().await.unwrap();
    let there: BTreeSet<ImageId> = inventory.images.into_iter().chain(inventory.staged).collect();
    assert_eq!(there, named, "{context}");
}

#[derive(Clone, Copy, Debug)]
enum ImageAction {
    Import,
    Commit,
    Remove,
    Prune,
}

/// One run with one fault. Returns whether the fault occurred.
async fn run(act: ImageAction, fault: Fault) -> bool {
    let context = format!("{act:?} with {fault:?}");
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(Sim::in_folder(folder.path()), Some(fault)).await;
    let engine = match world.try_engine().await {
        Ok(engine) => engine,
        Err(_) => world.engine().await,
    };
    let tenant = &world.tenant;
    let done = async {
        match act {
            ImageAction::Import => {
                drop(import(&engine, &world, "a", "app", ImageProgressSink::none()).await?)
            }
            ImageAction::Commit => {
                let id = engine.create(tenant, create(Some("alpha"))).await?.row.id;
                engine.commit_image(tenant, commit(id), ImageProgressSink::none()).await?;
            }
            ImageAction::Remove => {
                import(&engine, &world, "a", "app", ImageProgressSink::none()).await?;
                engine.remove_image(tenant, "app").await?;
            }
            ImageAction::Prune => {
                import(&engine, &world, "a", "app", ImageProgressSink::none()).await?;
                import(&engine, &world, "b", "app", ImageProgressSink::none()).await?;
                engine.prune_images(tenant).await?;
            }
        }
        Ok::<_, EngineError>(())
    };
    let _ = done.await;
    engine.shutdown().await;
    if !world.disks.has_failed() {
        return false;
    }
    let engine = world.engine().await;
    check(&world, &context).await;
    import(&engine, &world, "c", "after", ImageProgressSink::none())
        .await
        .expect("an import after the fault");
    for image in engine.images(tenant).await.unwrap() {
        engine.remove_image(tenant, image.id.as_str()).await.unwrap();
    }
    engine.prune_images(tenant).await.unwrap();
    check(&world, &context).await;
    assert!(world.disks.inner.inventory().await.unwrap().images.is_empty(), "{context}");
    true
}

#[tokio::test]
async fn a_failure_at_any_step_of_making_an_image_leaves_no_partial_state() {
    let mut met = 0;
    for act in [ImageAction::Import, ImageAction::Commit, ImageAction::Remove, ImageAction::Prune] {
        for fails in FAILS_ONCE {
            for call in 0.. {
                if !run(act, Fault { seam: Seam::Disks, call, fails }).await {
                    break; // There was no further call to fail: every failure was tested.
                }
                met += 1;
            }
        }
    }
    assert!(met > 20, "only {met} faults occurred");
}

#[tokio::test]
async fn a_shared_layer_is_unpacked_once_and_removed_with_its_last_image() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(Sim::in_folder(folder.path()), None).await;
    let engine = world.engine().await;
    let (states, seen) = std::sync::mpsc::channel();
    let states = std::sync::Mutex::new(states);
    let tell = ImageProgressSink::new(move |progress| {
        if let ImageProgress::Item(item) = progress {
            let _ = states.lock().unwrap().send(item.state);
        }
    });
    let one = import(&engine, &world, "same", "one", tell.clone()).await.unwrap();
    assert!(seen.try_iter().collect::<Vec<_>>().contains(&ItemState::Unpacking));
    let two = import(&engine, &world, "same", "two", tell).await.unwrap();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [ItemState::Cached]);
    assert_eq!(one.layer, two.layer);
    let detail = engine.inspect_image(&world.tenant, "one").await.unwrap();
    assert_eq!((detail.layers.len(), detail.unique_bytes), (1, 0), "another image uses it");

    engine.remove_image(&world.tenant, "one").await.unwrap();
    assert_eq!(engine.prune_images(&world.tenant).await.unwrap().layers, 0);
    engine.remove_image(&world.tenant, two.id.as_str()).await.unwrap();
    assert_eq!(engine.prune_images(&world.tenant).await.unwrap().layers, 1);
    check(&world, "after the last").await;
}

#[tokio::test]
async fn an_image_is_removed_with_its_last_name() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(Sim::in_folder(folder.path()), None).await;
    let engine = world.engine().await;
    let image = import(&engine, &world, "x", "one", ImageProgressSink::none()).await.unwrap();
    let image = engine.tag_image(&world.tenant, &image, name("two:v1")).await.unwrap();
    assert_eq!(image.names, [name("one"), name("two:v1")]);
    assert_eq!(engine.remove_image(&world.tenant, "one").await.unwrap(), RemoveResult::Name);
    assert_eq!(engine.remove_image(&world.tenant, "two:v1").await.unwrap(), RemoveResult::Image);
    let gone = engine.find_image(&world.tenant, image.id.as_str()).await;
    assert!(matches!(gone, Err(EngineError::NotFound { kind: ObjectKind::Image, .. })), "{gone:?}");
}

#[tokio::test]
async fn a_layer_without_a_disk_after_a_backup_is_removed_from_the_catalog() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::on(Sim::in_folder(folder.path()), None).await;
    let engine = world.engine().await;
    import(&engine, &world, "x", "app", ImageProgressSink::none()).await.unwrap();
    engine.shutdown().await;
    let layer = world.catalog.all_layers().await.unwrap().remove(0);
    world.disks.inner.remove((&layer.disk).into()).await.unwrap();
    let engine = world.engine().await;
    assert!(world.catalog.all_layers().await.unwrap().is_empty());
    // The image has its own files; importing it again makes the layer again.
    import(&engine, &world, "x", "app", ImageProgressSink::none()).await.unwrap();
    check(&world, "after the loss").await;
}
