//! Pre-created resources: recorded before they exist, and given to a sandbox in one commit.

use burrow_catalog::{Catalog, CatalogError, Idempotency, InsertResult, SandboxRow};
use burrow_model::State;

use crate::rows::{self, NOW};

fn taken(catalog: &Catalog, warm_pool: &burrow_catalog::WarmRow) -> SandboxRow {
    SandboxRow {
        id: warm_pool.id.clone(),
        state: State::Running,
        started_ms: Some(NOW),
        ..rows::sandbox(&catalog.default_tenant(), NOW)
    }
}

#[tokio::test]
async fn warm_rows_are_listed_oldest_first_until_they_are_removed() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (young, old) = (rows::warm_pool(&tenant, NOW + 1), rows::warm_pool(&tenant, NOW));
    catalog.insert_warm(vec![young.clone(), old.clone()]).await.unwrap();
    assert_eq!(catalog.all_warm().await.unwrap(), [old.clone(), young.clone()]);
    catalog.delete_warm(&old.id).await.unwrap();
    catalog.delete_warm(&old.id).await.unwrap();
    assert_eq!(catalog.all_warm().await.unwrap(), [young]);
}

#[tokio::test]
async fn a_sandbox_replaces_its_warm_row_in_one_commit() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let rows: Vec<_> = (0..3).map(|number| rows::warm_pool(&tenant, NOW + number)).collect();
    catalog.insert_warm(rows.clone()).await.unwrap();

    let row = taken(&catalog, &rows[0]);
    assert_eq!(catalog.insert_running_sandbox(row.clone(), None).await.unwrap(), InsertResult::New);
    assert_eq!(catalog.sandbox(&tenant, &row.id).await.unwrap().unwrap().state, State::Running);
    assert_eq!(catalog.open_operations().await.unwrap(), []);
    assert_eq!(catalog.all_warm().await.unwrap(), rows[1..]);

    // A create that uses only the pre-created disk takes the row as well.
    let row = SandboxRow { state: State::Creating, started_ms: None, ..taken(&catalog, &rows[1]) };
    let operation = rows::operation(&row, "create");
    catalog.insert_sandbox_with_operation(row, operation, None).await.unwrap();
    assert_eq!(catalog.all_warm().await.unwrap(), rows[2..]);
}

#[tokio::test]
async fn a_refused_create_keeps_the_warm_row() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let rows: Vec<_> = (0..3).map(|number| rows::warm_pool(&tenant, NOW + number)).collect();
    catalog.insert_warm(rows.clone()).await.unwrap();
    let key = Some(Idempotency::of("once", b"{}"));
    let named = |warm_pool| SandboxRow { name: Some("web".parse().unwrap()), ..taken(&catalog, warm_pool) };
    let first = named(&rows[0]);
    assert_eq!(catalog.insert_running_sandbox(first.clone(), key.clone()).await.unwrap(), InsertResult::New);

    let again = catalog.insert_running_sandbox(taken(&catalog, &rows[1]), key).await.unwrap();
    assert_eq!(again, InsertResult::Existing(first.id.clone()));
    let refused = catalog.insert_running_sandbox(named(&rows[2]), None).await.unwrap_err();
    assert!(matches!(refused, CatalogError::NameTaken { existing } if existing == first.id));
    assert_eq!(catalog.all_warm().await.unwrap(), rows[1..]);
}
