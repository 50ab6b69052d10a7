//! What is made ahead: named before it exists, and a sandbox's own with one commit.

use burrow_catalog::{Catalog, CatalogError, Idempotency, Inserted, SandboxRow};
use burrow_model::State;

use crate::rows::{self, NOW};

fn taken(catalog: &Catalog, stock: &burrow_catalog::StockRow) -> SandboxRow {
    SandboxRow {
        id: stock.id.clone(),
        state: State::Running,
        started_ms: Some(NOW),
        ..rows::sandbox(&catalog.default_tenant(), NOW)
    }
}

#[tokio::test]
async fn what_is_named_is_listed_oldest_first_until_it_is_forgotten() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (young, old) = (rows::stock(&tenant, NOW + 1), rows::stock(&tenant, NOW));
    catalog.insert_stock(vec![young.clone(), old.clone()]).await.unwrap();
    assert_eq!(catalog.all_stock().await.unwrap(), [old.clone(), young.clone()]);
    catalog.delete_stock(&old.id).await.unwrap();
    catalog.delete_stock(&old.id).await.unwrap();
    assert_eq!(catalog.all_stock().await.unwrap(), [young]);
}

#[tokio::test]
async fn a_sandbox_takes_the_place_of_its_stock_in_one_commit() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let rows: Vec<_> = (0..3).map(|number| rows::stock(&tenant, NOW + number)).collect();
    catalog.insert_stock(rows.clone()).await.unwrap();

    let row = taken(&catalog, &rows[0]);
    assert_eq!(catalog.insert_running_sandbox(row.clone(), None).await.unwrap(), Inserted::New);
    assert_eq!(catalog.sandbox(&tenant, &row.id).await.unwrap().unwrap().state, State::Running);
    assert_eq!(catalog.open_operations().await.unwrap(), []);
    assert_eq!(catalog.all_stock().await.unwrap(), rows[1..]);

    // A create that goes on by itself, with the volume alone, takes it as well.
    let row = SandboxRow { state: State::Creating, started_ms: None, ..taken(&catalog, &rows[1]) };
    let operation = rows::operation(&row, "create");
    catalog.insert_sandbox_with_operation(row, operation, None).await.unwrap();
    assert_eq!(catalog.all_stock().await.unwrap(), rows[2..]);
}

#[tokio::test]
async fn a_refused_create_leaves_the_stock_named() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let rows: Vec<_> = (0..3).map(|number| rows::stock(&tenant, NOW + number)).collect();
    catalog.insert_stock(rows.clone()).await.unwrap();
    let key = Some(Idempotency::of("once", b"{}"));
    let named = |stock| SandboxRow { name: Some("web".parse().unwrap()), ..taken(&catalog, stock) };
    let first = named(&rows[0]);
    assert_eq!(catalog.insert_running_sandbox(first.clone(), key.clone()).await.unwrap(), Inserted::New);

    let again = catalog.insert_running_sandbox(taken(&catalog, &rows[1]), key).await.unwrap();
    assert_eq!(again, Inserted::Existing(first.id.clone()));
    let refused = catalog.insert_running_sandbox(named(&rows[2]), None).await.unwrap_err();
    assert!(matches!(refused, CatalogError::NameTaken { existing } if existing == first.id));
    assert_eq!(catalog.all_stock().await.unwrap(), rows[1..]);
}
