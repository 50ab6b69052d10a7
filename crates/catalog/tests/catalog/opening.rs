//! Opening: private files, one daemon at a time, and clear refusals.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burrow_catalog::{Catalog, CatalogError, VERSION};
use rusqlite::Connection;

const HOLDER: &str = "BURROW_TEST_CATALOG_HOLDER";

#[tokio::test]
async fn the_default_tenant_is_made_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let first = Catalog::open(&path).unwrap().default_tenant();
    assert_eq!(Catalog::open(&path).unwrap().default_tenant(), first);
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    catalog.create_tenant("another", 0).await.unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["catalog.db", "catalog.db-shm", "catalog.db-wal", "catalog.lock", "catalog.reserve"]);
}

#[tokio::test]
async fn a_newer_catalog_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    drop(Catalog::open(&path).unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
    let refused = Catalog::open(&path).unwrap_err();
    assert!(
        matches!(refused, CatalogError::TooNew { found, known } if found == VERSION + 1 && known == VERSION)
    );
    assert!(refused.hint().unwrap().contains("newer release"));
    let kept: u32 =
        Connection::open(&path).unwrap().query_row("PRAGMA user_version", (), |row| row.get(0)).unwrap();
    assert_eq!(kept, VERSION + 1);
}

#[tokio::test]
async fn a_file_that_is_no_catalog_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    std::fs::write(&path, "not a database, ".repeat(1000)).unwrap();
    assert!(matches!(Catalog::open(&path), Err(CatalogError::Sql { .. })));
    let nowhere = directory.path().join("missing/catalog.db");
    assert!(matches!(Catalog::open(&nowhere), Err(CatalogError::Open { path, .. }) if path == nowhere));
}

#[test]
fn a_second_daemon_is_kept_out_until_the_first_is_gone() {
    if let Some(path) = std::env::var_os(HOLDER) {
        return hold(&PathBuf::from(path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "opening::a_second_daemon_is_kept_out_until_the_first_is_gone", "--nocapture"])
        .env(HOLDER, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "held"));
    assert!(matches!(Catalog::open(&path), Err(CatalogError::InUse { .. })));
    holder.kill().unwrap();
    holder.wait().unwrap();
    Catalog::open(&path).unwrap();
}

/// Keeps the catalog open until its input closes or it is killed.
fn hold(path: &Path) {
    let catalog = Catalog::open(path).unwrap();
    std::io::stdout().write_all(b"\nheld\n").unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(catalog);
}
