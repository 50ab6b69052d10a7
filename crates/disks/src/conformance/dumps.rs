//! The contract of dumps.

use burrow_model::DumpId;

use crate::{DiskError, Disks};

pub(super) async fn all(disks: &dyn Disks) {
    a_dump_is_staged_then_sealed_then_opened_then_removed(disks).await;
    every_call_may_be_repeated(disks).await;
    unknown_dumps_are_named_in_the_error(disks).await;
    a_dump_that_has_changed_is_refused(disks).await;
    a_dump_with_other_than_regular_files_is_not_sealed(disks).await;
}

async fn a_dump_is_staged_then_sealed_then_opened_then_removed(disks: &dyn Disks) {
    let id = DumpId::generate();
    let staged = disks.stage_dump(&id).await.expect("staging works");
    assert_eq!(std::fs::read_dir(&staged).expect("it is a directory").count(), 0);
    assert!(disks.inventory().await.expect("the inventory is readable").dumps.contains(&id));
    std::fs::write(staged.join("pages-1.img"), vec![7; 100_000]).expect("writing works");
    std::fs::write(staged.join("empty.img"), "").expect("writing works");
    let unsealed = disks.open_dump(&id).await;
    assert!(matches!(&unsealed, Err(DiskError::DumpNotFound { .. })), "{unsealed:?}");

    let about = "{\"said\": \"of\nit\"}";
    for evict in [true, false] {
        assert_eq!(disks.seal_dump(&id, about, evict).await.expect("sealing works, also again"), 100_000);
    }
    let dump = disks.open_dump(&id).await.expect("it opens");
    assert_eq!((dump.about.as_str(), dump.bytes), (about, 100_000));
    assert_eq!(std::fs::read(dump.path.join("pages-1.img")).expect("it is there"), vec![7; 100_000]);
    assert!(disks.inventory().await.expect("the inventory is readable").dumps.contains(&id));
    assert!(!staged.exists(), "the staged one is the sealed one");

    disks.remove_dump(&id).await.expect("removing works");
    assert!(!disks.inventory().await.expect("the inventory is readable").dumps.contains(&id));
    assert!(matches!(disks.open_dump(&id).await, Err(DiskError::DumpNotFound { .. })));
}

async fn every_call_may_be_repeated(disks: &dyn Disks) {
    let id = DumpId::generate();
    let staged = disks.stage_dump(&id).await.expect("staging works");
    std::fs::write(staged.join("half"), "made").expect("writing works");
    let again = disks.stage_dump(&id).await.expect("staging again works");
    assert_eq!(again, staged);
    assert_eq!(std::fs::read_dir(&again).expect("it is a directory").count(), 0, "what was left is gone");
    for _ in 0..2 {
        disks.remove_dump(&id).await.expect("removing a staged one works");
    }
    assert!(!staged.exists());
}

async fn unknown_dumps_are_named_in_the_error(disks: &dyn Disks) {
    let id = DumpId::generate();
    let named = |answer: Result<(), DiskError>| {
        let named = matches!(&answer, Err(DiskError::DumpNotFound { dump }) if *dump == id);
        assert!(named, "{answer:?}");
    };
    named(disks.open_dump(&id).await.map(drop));
    named(disks.seal_dump(&id, "", false).await.map(drop));
    disks.remove_dump(&id).await.expect("removing nothing works");
}

async fn a_dump_that_has_changed_is_refused(disks: &dyn Disks) {
    let id = DumpId::generate();
    let staged = disks.stage_dump(&id).await.expect("staging works");
    std::fs::write(staged.join("core-1.img"), "abc").expect("writing works");
    disks.seal_dump(&id, "", false).await.expect("sealing works");
    let dump = disks.open_dump(&id).await.expect("it opens");
    std::fs::write(dump.path.join("core-1.img"), "abd").expect("writing works");
    let refused = disks.open_dump(&id).await;
    assert!(matches!(&refused, Err(DiskError::Damaged { file, .. }) if file == "core-1.img"), "{refused:?}");
    disks.remove_dump(&id).await.expect("removing a damaged one works");
}

async fn a_dump_with_other_than_regular_files_is_not_sealed(disks: &dyn Disks) {
    let id = DumpId::generate();
    let staged = disks.stage_dump(&id).await.expect("staging works");
    std::os::unix::fs::symlink("/etc/passwd", staged.join("core-1.img")).expect("linking works");
    let refused = disks.seal_dump(&id, "", false).await;
    assert!(
        matches!(&refused, Err(DiskError::NotDumpable { file, .. }) if file == "core-1.img"),
        "{refused:?}"
    );
    assert!(matches!(disks.open_dump(&id).await, Err(DiskError::DumpNotFound { .. })));
    let gone = disks.inventory().await.expect("the inventory is readable");
    assert!(!gone.dumps.contains(&id), "what could not be sealed is gone");
}
