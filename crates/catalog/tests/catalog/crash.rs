//! Invariant: acknowledged means durable. A process that is killed loses nothing that it has acknowledged.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burrow_catalog::Catalog;
use burrow_model::{ExecId, SandboxId};

use crate::rows::{self, NOW};

const CHILD: &str = "BURROW_TEST_CATALOG_CRASH";
const ROUNDS: usize = 3;
/// How many acknowledgements the parent waits for before it kills.
const ACKNOWLEDGED_MIN: usize = 150;

#[test]
fn acknowledged_writes_survive_kill_9() {
    if let Some(path) = std::env::var_os(CHILD) {
        return insert_for_ever(&PathBuf::from(path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let mut acknowledged = HashSet::new();
    for _ in 0..ROUNDS {
        acknowledged.extend(round(&path));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(&path, &acknowledged));
    }
}

/// Lets a child insert rows, kills it during that, and returns the rows that it acknowledged.
fn round(path: &Path) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::acknowledged_writes_survive_kill_9", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with(SandboxId::PREFIX) || line.starts_with(ExecId::PREFIX) {
            acknowledged.push(line);
        }
        if acknowledged.len() == ACKNOWLEDGED_MIN {
            // The rest of the pipe is read until it closes.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= ACKNOWLEDGED_MIN, "the child ended early, after {}", acknowledged.len());
    acknowledged
}

async fn check(path: &Path, acknowledged: &HashSet<String>) {
    let catalog = Catalog::open(path).unwrap();
    catalog.integrity_check().await.unwrap();
    let tenant = catalog.default_tenant();
    for id in acknowledged {
        let found = match id.parse::<SandboxId>() {
            Ok(id) => catalog.sandbox(&tenant, &id).await.unwrap().is_some(),
            Err(_) => catalog.exec(&tenant, &id.parse().unwrap()).await.unwrap().is_some(),
        };
        assert!(found, "{id} was acknowledged and is gone");
    }
    // A sandbox and the operation that creates it are in one commit.
    let sandboxes = catalog.all_sandboxes().await.unwrap().len();
    assert_eq!(catalog.open_operations().await.unwrap().len(), sandboxes);
}

fn insert_for_ever(path: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let catalog = Catalog::open(path).unwrap();
    runtime.block_on(async {
        let mut writers = Vec::new();
        for _ in 0..4 {
            writers.push(tokio::spawn(insert_and_tell(catalog.clone())));
        }
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn insert_and_tell(catalog: Catalog) {
    loop {
        let row = rows::sandbox(&catalog.default_tenant(), NOW);
        let operation = rows::operation(&row, "create");
        catalog.insert_sandbox_with_operation(row.clone(), operation, None).await.unwrap();
        tell(row.id.as_str());
        let exec = rows::exec(&row, NOW);
        catalog.insert_exec(exec.clone()).await.unwrap();
        tell(exec.id.as_str());
    }
}

/// One write per line, so that a kill never leaves a part of an id.
fn tell(id: &str) {
    std::io::stdout().write_all(format!("{id}\n").as_bytes()).unwrap();
}
