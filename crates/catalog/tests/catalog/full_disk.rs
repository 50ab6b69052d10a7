//! A full disk: creates are refused clearly, deletes still work, and everything works again once there is room.
//!
//! Runs in its own mount namespace with a small tmpfs, so nothing is left behind however it ends.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use burrow_catalog::{Catalog, CatalogError, SandboxRow, SnapshotRow};
use burrow_model::SandboxId;

use crate::rows::{self, NOW};

const CHILD: &str = "BURROW_TEST_CATALOG_FULL";
const DISK_BYTES: u64 = 48 << 20;
/// Far more writes than the disk has room for.
const ATTEMPTS_MAX: u64 = 50_000;

#[test]
fn on_a_full_disk_deletes_still_work() {
    let Some(directory) = std::env::var_os(CHILD) else {
        return in_a_namespace("full_disk::on_a_full_disk_deletes_still_work");
    };
    let directory = Path::new(&directory);
    mount_small(directory);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let kept = fill_and_spend(directory).await;
        refuse_clearly(directory).await;
        let sandbox = recover(directory, &kept).await;
        restart_on_a_full_disk(directory, &sandbox).await;
    });
}

/// Runs a test of this program again in its own mount namespace.
fn in_a_namespace(test: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    let output = unshare
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, directory.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

fn mount_small(directory: &Path) {
    let size = format!("size={DISK_BYTES}");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory).status().unwrap();
    assert!(mounted.success());
}

/// Fills the disk with another file, to the last byte.
fn fill(directory: &Path) {
    let mut ballast = File::create(directory.join("ballast")).unwrap();
    let mut block = vec![1u8; 1 << 16];
    while !block.is_empty() {
        if ballast.write_all(&block).is_err() {
            block.truncate(block.len() / 2);
        }
    }
}

async fn create(catalog: &Catalog) -> Result<SandboxRow, CatalogError> {
    let row = rows::sandbox(&catalog.default_tenant(), NOW);
    let operation = rows::operation(&row, "create");
    catalog.insert_sandbox_with_operation(row.clone(), operation, None).await?;
    Ok(row)
}

async fn fill_and_spend(directory: &Path) -> Vec<SandboxId> {
    let catalog = Catalog::open(&directory.join("catalog.db")).unwrap();
    let reserve = directory.join("catalog.reserve");
    let mut kept = Vec::new();
    for _ in 0..500 {
        kept.push(create(&catalog).await.unwrap().id);
    }
    // Of a sandbox that does not exist any more.
    let gone = rows::sandbox(&catalog.default_tenant(), NOW);
    let (old, making) = (rows::snapshot(&gone, NOW), rows::snapshot(&gone, NOW));
    rows::take(&catalog, &gone, &old).await;
    let operation = rows::begin(&catalog, &gone, &making).await;
    fill(directory);
    let refused = loop {
        match create(&catalog).await {
            Ok(row) => kept.push(row.id),
            Err(error) => break error,
        }
        assert!((kept.len() as u64) < ATTEMPTS_MAX, "the disk never filled");
    };
    assert!(matches!(refused, CatalogError::Full), "{refused:?}");
    assert!(refused.hint().is_some());
    assert!(reserve.exists(), "a create does not touch the reserve");
    fill(directory);

    // Upkeep continues and, as soon as it needs it, uses the reserve.
    let mut attempts = 0;
    while reserve.exists() {
        let id = kept.pop().unwrap();
        // In one batch with a create, whose failure does not affect the delete.
        let (created, deleted) = tokio::join!(create(&catalog), catalog.delete_sandbox(&id, None, NOW));
        deleted.unwrap();
        match created {
            Ok(row) => kept.insert(0, row.id),
            Err(error) => assert!(matches!(error, CatalogError::Full), "{error:?}"),
        }
        attempts += 1;
        assert!(attempts < ATTEMPTS_MAX, "the reserve was never needed");
    }
    let free = rustix::fs::statvfs(directory).map(|found| found.f_bavail * found.f_frsize).unwrap();
    assert!(free > 4 << 20, "there is space now: {free}");
    assert!(matches!(create(&catalog).await, Err(CatalogError::Full)), "and it is not for creates");
    assert!(matches!(
        catalog.append_event(rows::event(&catalog.default_tenant(), "x")).await,
        Err(CatalogError::Full)
    ));
    let row = SnapshotRow { tenant: gone.tenant.clone(), snapshot: rows::snapshot(&gone, NOW), ready: false };
    let begun = catalog.begin_snapshot(row, rows::operation(&gone, "snapshot")).await;
    assert!(matches!(begun, Err(CatalogError::Full)), "nor for snapshots");
    catalog.finish_snapshot(making, Some(operation)).await.unwrap();
    catalog.delete_snapshot(&old.id, None).await.unwrap();
    for id in kept.drain(..kept.len() / 2) {
        catalog.delete_sandbox(&id, None, NOW).await.unwrap();
    }
    kept
}

/// With the reserve spent and the rest used by others, no space is left, and the error says so.
async fn refuse_clearly(directory: &Path) {
    fill(directory);
    assert!(matches!(Catalog::open(&directory.join("catalog.db")), Err(CatalogError::Full)));
    fs::remove_file(directory.join("ballast")).unwrap();
}

async fn recover(directory: &Path, kept: &[SandboxId]) -> SandboxId {
    let catalog = Catalog::open(&directory.join("catalog.db")).unwrap();
    let created = create(&catalog).await.unwrap();
    assert_eq!(catalog.size().reserve_bytes, 8 << 20, "the reserve is held again");
    let found = catalog.all_sandboxes().await.unwrap();
    assert!(
        kept.iter().all(|id| found.iter().any(|row| row.id == *id)),
        "nothing that was acknowledged is gone"
    );
    assert_eq!(found.len(), kept.len() + 1, "and nothing that was refused or deleted is there");
    catalog.integrity_check().await.unwrap();

    // Without a restart, too: a full disk, the reserve spent, room again.
    fill(directory);
    let mut deleted = kept.iter();
    while directory.join("catalog.reserve").exists() {
        catalog.delete_sandbox(deleted.next().unwrap(), None, NOW).await.unwrap();
    }
    assert!(matches!(create(&catalog).await, Err(CatalogError::Full)));
    fs::remove_file(directory.join("ballast")).unwrap();
    create(&catalog).await.unwrap();
    assert!(directory.join("catalog.reserve").exists());
    created.id
}

async fn restart_on_a_full_disk(directory: &Path, sandbox: &SandboxId) {
    fill(directory);
    let catalog = Catalog::open(&directory.join("catalog.db")).unwrap();
    let tenant = catalog.default_tenant();
    assert!(catalog.sandbox(&tenant, sandbox).await.unwrap().is_some());
    assert!(matches!(create(&catalog).await, Err(CatalogError::Full)));
    catalog.delete_sandbox(sandbox, None, NOW).await.unwrap();
    assert!(catalog.sandbox(&tenant, sandbox).await.unwrap().is_none());
}
