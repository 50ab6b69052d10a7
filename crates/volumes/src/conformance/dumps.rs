//! What every driver promises of dumps.

use burrow_model::DumpId;

use crate::{VolumeError, Volumes};

pub(super) async fn all(volumes: &dyn Volumes) {
    a_dump_is_staged_then_sealed_then_opened_then_removed(volumes).await;
    every_call_may_be_repeated(volumes).await;
    unknown_dumps_are_named_in_the_error(volumes).await;
    a_dump_that_has_changed_is_refused(volumes).await;
    what_is_no_file_is_not_sealed(volumes).await;
}

async fn a_dump_is_staged_then_sealed_then_opened_then_removed(volumes: &dyn Volumes) {
    let id = DumpId::generate();
    let staged = volumes.stage_dump(&id).await.expect("staging works");
    assert_eq!(std::fs::read_dir(&staged).expect("it is a directory").count(), 0);
    assert!(volumes.inventory().await.expect("the inventory is readable").dumps.contains(&id));
    std::fs::write(staged.join("pages-1.img"), vec![7; 100_000]).expect("writing works");
    std::fs::write(staged.join("empty.img"), "").expect("writing works");
    let unsealed = volumes.open_dump(&id).await;
    assert!(matches!(&unsealed, Err(VolumeError::DumpNotFound { .. })), "{unsealed:?}");

    let about = "{\"said\": \"of\nit\"}";
    for evict in [true, false] {
        assert_eq!(volumes.seal_dump(&id, about, evict).await.expect("sealing works, also again"), 100_000);
    }
    let dump = volumes.open_dump(&id).await.expect("it opens");
    assert_eq!((dump.about.as_str(), dump.bytes), (about, 100_000));
    assert_eq!(std::fs::read(dump.path.join("pages-1.img")).expect("it is there"), vec![7; 100_000]);
    assert!(volumes.inventory().await.expect("the inventory is readable").dumps.contains(&id));
    assert!(!staged.exists(), "the staged one is the sealed one");

    volumes.remove_dump(&id).await.expect("removing works");
    assert!(!volumes.inventory().await.expect("the inventory is readable").dumps.contains(&id));
    assert!(matches!(volumes.open_dump(&id).await, Err(VolumeError::DumpNotFound { .. })));
}

async fn every_call_may_be_repeated(volumes: &dyn Volumes) {
    let id = DumpId::generate();
    let staged = volumes.stage_dump(&id).await.expect("staging works");
    std::fs::write(staged.join("half"), "made").expect("writing works");
    let again = volumes.stage_dump(&id).await.expect("staging again works");
    assert_eq!(again, staged);
    assert_eq!(std::fs::read_dir(&again).expect("it is a directory").count(), 0, "what was left is gone");
    for _ in 0..2 {
        volumes.remove_dump(&id).await.expect("removing a staged one works");
    }
    assert!(!staged.exists());
}

async fn unknown_dumps_are_named_in_the_error(volumes: &dyn Volumes) {
    let id = DumpId::generate();
    let named = |answer: Result<(), VolumeError>| {
        let named = matches!(&answer, Err(VolumeError::DumpNotFound { dump }) if *dump == id);
        assert!(named, "{answer:?}");
    };
    named(volumes.open_dump(&id).await.map(drop));
    named(volumes.seal_dump(&id, "", false).await.map(drop));
    volumes.remove_dump(&id).await.expect("removing nothing works");
}

async fn a_dump_that_has_changed_is_refused(volumes: &dyn Volumes) {
    let id = DumpId::generate();
    let staged = volumes.stage_dump(&id).await.expect("staging works");
    std::fs::write(staged.join("core-1.img"), "abc").expect("writing works");
    volumes.seal_dump(&id, "", false).await.expect("sealing works");
    let dump = volumes.open_dump(&id).await.expect("it opens");
    std::fs::write(dump.path.join("core-1.img"), "abd").expect("writing works");
    let refused = volumes.open_dump(&id).await;
    assert!(
        matches!(&refused, Err(VolumeError::Damaged { file, .. }) if file == "core-1.img"),
        "{refused:?}"
    );
    volumes.remove_dump(&id).await.expect("removing a damaged one works");
}

async fn what_is_no_file_is_not_sealed(volumes: &dyn Volumes) {
    let id = DumpId::generate();
    let staged = volumes.stage_dump(&id).await.expect("staging works");
    std::os::unix::fs::symlink("/etc/passwd", staged.join("core-1.img")).expect("linking works");
    let refused = volumes.seal_dump(&id, "", false).await;
    assert!(
        matches!(&refused, Err(VolumeError::NotDumpable { file, .. }) if file == "core-1.img"),
        "{refused:?}"
    );
    assert!(matches!(volumes.open_dump(&id).await, Err(VolumeError::DumpNotFound { .. })));
    let gone = volumes.inventory().await.expect("the inventory is readable");
    assert!(!gone.dumps.contains(&id), "what could not be sealed is gone");
}
