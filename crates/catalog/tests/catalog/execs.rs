//! Execs: recorded, ended once, marked as lost when their sandbox stops, pruned.

use burrow_catalog::{Catalog, CatalogError, EXECS_KEPT, ExecState, PageRequest};
use serde_json::json;

use crate::rows::{self, NOW};

#[tokio::test]
async fn an_exec_ends_once_and_keeps_its_first_outcome() {
    let catalog = Catalog::in_memory().unwrap();
    let sandbox = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &sandbox).await;
    let mut exec = rows::exec(&sandbox, NOW);
    catalog.insert_exec(exec.clone()).await.unwrap();
    assert_eq!(catalog.exec(&exec.tenant, &exec.id).await.unwrap(), Some(exec.clone()));
    assert_eq!(catalog.running_execs(&sandbox.id).await.unwrap(), [exec.clone()]);

    catalog.finish_exec(&exec.id, NOW + 5, json!({ "code": 3 })).await.unwrap();
    catalog.finish_exec(&exec.id, NOW + 6, json!({ "code": 4 })).await.unwrap();
    exec.state = ExecState::Ended;
    exec.ended_ms = Some(NOW + 5);
    exec.outcome = Some(json!({ "code": 3 }));
    assert_eq!(catalog.exec(&exec.tenant, &exec.id).await.unwrap(), Some(exec));
    assert!(catalog.running_execs(&sandbox.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_exec_of_an_unknown_sandbox_is_refused() {
    let catalog = Catalog::in_memory().unwrap();
    let sandbox = rows::sandbox(&catalog.default_tenant(), NOW);
    let refused = catalog.insert_exec(rows::exec(&sandbox, NOW)).await;
    assert!(matches!(refused, Err(CatalogError::Unknown { kind: "sandbox", .. })));
}

#[tokio::test]
async fn execs_of_an_earlier_start_are_lost_and_running_ones_are_not() {
    let catalog = Catalog::in_memory().unwrap();
    let sandbox = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &sandbox).await;
    let mut execs = Vec::new();
    for generation in [1, 2, 3] {
        let mut exec = rows::exec(&sandbox, NOW);
        exec.generation = generation;
        catalog.insert_exec(exec.clone()).await.unwrap();
        execs.push(exec);
    }
    catalog.finish_exec(&execs[0].id, NOW, json!({})).await.unwrap();
    assert_eq!(catalog.mark_execs_lost(&sandbox.id, 2, NOW + 9).await.unwrap(), 1);
    assert_eq!(catalog.mark_execs_lost(&sandbox.id, 2, NOW + 9).await.unwrap(), 0);
    let mut states = Vec::new();
    for exec in &execs {
        let row = catalog.exec(&exec.tenant, &exec.id).await.unwrap().unwrap();
        states.push((row.state, row.ended_ms));
    }
    let expected =
        [(ExecState::Ended, Some(NOW)), (ExecState::Lost, Some(NOW + 9)), (ExecState::Running, None)];
    assert_eq!(states, expected);
}

#[tokio::test]
async fn execs_are_listed_in_pages_newest_first() {
    let catalog = Catalog::in_memory().unwrap();
    let sandbox = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &sandbox).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let exec = rows::exec(&sandbox, NOW + number);
        catalog.insert_exec(exec.clone()).await.unwrap();
        ids.insert(0, exec.id);
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let request = PageRequest { cursor, limit: 2 };
        let page = catalog.list_execs(&sandbox.tenant, &sandbox.id, request).await.unwrap();
        seen.extend(page.rows.into_iter().map(|row| row.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn pruning_keeps_the_newest_and_whatever_still_runs() {
    let catalog = Catalog::in_memory().unwrap();
    let sandbox = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &sandbox).await;
    let oldest = rows::exec(&sandbox, NOW);
    catalog.insert_exec(oldest.clone()).await.unwrap();
    for number in 1..=u64::from(EXECS_KEPT) + 7 {
        let mut exec = rows::exec(&sandbox, NOW + number);
        exec.state = ExecState::Ended;
        catalog.insert_exec(exec).await.unwrap();
    }
    assert_eq!(catalog.prune_execs().await.unwrap(), 7);
    assert_eq!(catalog.prune_execs().await.unwrap(), 0);
    assert!(catalog.exec(&oldest.tenant, &oldest.id).await.unwrap().is_some(), "it still runs");
    let newest = catalog.list_execs(&sandbox.tenant, &sandbox.id, rows::page(1000)).await.unwrap();
    assert!(newest.rows.iter().all(|row| row.started_ms > NOW + 7));
}
