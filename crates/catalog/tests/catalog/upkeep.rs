//! Backups that open, checks that find damage, logs that empty.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;

use burrow_catalog::{Catalog, CatalogError, Size};

use crate::rows::{self, NOW};

#[tokio::test]
async fn a_backup_taken_while_writing_opens_as_a_catalog() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    let before = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &before).await;
    let writing = {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            for number in 0..100 {
                rows::store(&catalog, &rows::sandbox(&catalog.default_tenant(), NOW + number)).await;
            }
        })
    };
    let backup = directory.path().join("backup.db");
    // The second one replaces the first.
    for _ in 0..2 {
        catalog.backup_to(&backup).await.unwrap();
    }
    writing.await.unwrap();
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().contains("backup.db.") || *name == "backup.db-wal"),
        "{left:?}"
    );

    let restored = Catalog::open(&backup).unwrap();
    restored.integrity_check().await.unwrap();
    assert_eq!(restored.default_tenant(), catalog.default_tenant());
    assert_eq!(restored.sandbox(&before.tenant, &before.id).await.unwrap(), Some(before));
}

#[tokio::test]
async fn a_backup_that_cannot_be_written_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::in_memory().unwrap();
    let nowhere = directory.path().join("missing/backup.db");
    assert!(matches!(catalog.backup_to(&nowhere).await, Err(CatalogError::Backup { .. })));
    let taken = directory.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    assert!(matches!(catalog.backup_to(&taken).await, Err(CatalogError::Backup { .. })));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    catalog.backup_to(&directory.path().join("good.db")).await.unwrap();
    Catalog::open(&directory.path().join("good.db")).unwrap().integrity_check().await.unwrap();
}

#[tokio::test]
async fn damage_is_found_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    for number in 0..200 {
        rows::store(&catalog, &rows::sandbox(&catalog.default_tenant(), NOW + number)).await;
    }
    catalog.integrity_check().await.unwrap();
    drop(catalog);
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(length / 2)).unwrap();
    file.write_all(&[0xA5; 16384]).unwrap();
    drop(file);
    // Detected at opening already, if opening reads the damaged part.
    let found = match Catalog::open(&path) {
        Ok(catalog) => catalog.integrity_check().await,
        Err(error) => Err(error),
    };
    assert!(matches!(found, Err(CatalogError::Corrupt { .. } | CatalogError::Sql { .. })), "{found:?}");
}

#[tokio::test]
async fn a_checkpoint_empties_the_log_and_sizes_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    rows::store(&catalog, &rows::sandbox(&catalog.default_tenant(), NOW)).await;
    assert!(catalog.size().log_bytes > 0);
    assert!(catalog.checkpoint().await.unwrap());
    let size = catalog.size();
    assert!(size.database_bytes > 0 && size.log_bytes == 0 && size.reserve_bytes == 8 << 20, "{size:?}");
    assert_eq!(Catalog::in_memory().unwrap().size(), Size::default());
}
