//! Idempotency keys: one request, one effect, one answer, for a day.

use burrow_catalog::{
    Catalog, CatalogError, IDEMPOTENCY_KEPT_MS, Idempotency, IdempotencyState, InsertResult, SandboxChange,
};

use crate::rows::{self, NOW};

const ROUTE: &str = "keys";

#[tokio::test]
async fn a_repeated_create_answers_with_the_sandbox_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let create = |catalog: Catalog, key: &'static str, body: &'static str, at_ms: u64| async move {
        let row = rows::sandbox(&catalog.default_tenant(), at_ms);
        let operation = rows::operation(&row, "create");
        let idempotency = Some(Idempotency::of(key, body.as_bytes()));
        let result = catalog.insert_sandbox_with_operation(row.clone(), operation, idempotency).await;
        (row.id, result)
    };
    let (first, made) = create(catalog.clone(), "k1", "{}", NOW).await;
    assert_eq!(made.unwrap(), InsertResult::New);
    drop(catalog);

    // A daemon that was restarted still knows.
    let catalog = Catalog::open(&path).unwrap();
    let (again, repeated) = create(catalog.clone(), "k1", "{}", NOW + 1).await;
    assert_eq!(repeated.unwrap(), InsertResult::Existing(first.clone()));
    let tenant = catalog.default_tenant();
    assert_eq!(catalog.sandbox(&tenant, &again).await.unwrap(), None);
    assert_eq!(catalog.open_operations().await.unwrap().len(), 1);
    let (_, other) = create(catalog.clone(), "k1", "{\"name\":\"x\"}", NOW + 1).await;
    assert!(matches!(other, Err(CatalogError::IdempotencyMismatch)));
    let (_, fresh) = create(catalog.clone(), "k2", "{}", NOW + 1).await;
    assert_eq!(fresh.unwrap(), InsertResult::New);
    // A key used for a sandbox cannot be used for anything else.
    let begun = catalog.idempotency_begin(&tenant, Idempotency::of("k1", b"{}"), ROUTE, NOW + 2).await;
    assert_eq!(begun.unwrap(), IdempotencyState::Mismatch);
    // After a day it is a new request.
    let (_, late) = create(catalog.clone(), "k1", "{}", NOW + IDEMPOTENCY_KEPT_MS).await;
    assert_eq!(late.unwrap(), InsertResult::New);
}

#[tokio::test]
async fn a_create_that_was_undone_may_be_tried_again_but_a_deleted_sandbox_is_not_revived() {
    let catalog = Catalog::in_memory().unwrap();
    let mut outcomes = Vec::new();
    for started_ms in [None, Some(NOW + 1)] {
        let key = Idempotency::of(if started_ms.is_some() { "ran" } else { "undone" }, b"{}");
        let row = rows::sandbox(&catalog.default_tenant(), NOW);
        let operation = rows::operation(&row, "create");
        catalog.insert_sandbox_with_operation(row.clone(), operation, Some(key.clone())).await.unwrap();
        let change = SandboxChange { started_ms: Some(started_ms), ..SandboxChange::at(NOW + 1) };
        catalog.update_sandbox(&row.id, change, None).await.unwrap();
        catalog.delete_sandbox(&row.id, None, NOW + 2).await.unwrap();
        let again = rows::sandbox(&catalog.default_tenant(), NOW + 3);
        let operation = rows::operation(&again, "create");
        let outcome = catalog.insert_sandbox_with_operation(again, operation, Some(key)).await.unwrap();
        outcomes.push((outcome, row.id));
    }
    assert_eq!(outcomes[0].0, InsertResult::New);
    assert_eq!(outcomes[1].0, InsertResult::Existing(outcomes[1].1.clone()));
}

#[tokio::test]
async fn a_name_that_is_taken_leaves_the_key_free() {
    let catalog = Catalog::in_memory().unwrap();
    let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
    row.name = Some("web".parse().unwrap());
    rows::store(&catalog, &row).await;
    let mut second = rows::sandbox(&row.tenant, NOW);
    second.name = row.name.clone();
    let key = Some(Idempotency::of("k", b"{}"));
    let taken = catalog
        .insert_sandbox_with_operation(second.clone(), rows::operation(&second, "create"), key.clone())
        .await;
    assert!(matches!(taken, Err(CatalogError::NameTaken { .. })));
    catalog.delete_sandbox(&row.id, None, NOW).await.unwrap();
    let operation = rows::operation(&second, "create");
    assert_eq!(
        catalog.insert_sandbox_with_operation(second, operation, key).await.unwrap(),
        InsertResult::New
    );
}

#[tokio::test]
async fn a_request_is_begun_once_and_its_reply_is_kept_for_a_day() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let begin = async |body: &[u8], route: &str, now_ms: u64| {
        catalog.idempotency_begin(&tenant, Idempotency::of("k", body), route, now_ms).await.unwrap()
    };
    assert_eq!(begin(b"1", ROUTE, NOW).await, IdempotencyState::Fresh);
    assert_eq!(begin(b"1", ROUTE, NOW).await, IdempotencyState::InFlight);
    assert_eq!(begin(b"2", ROUTE, NOW).await, IdempotencyState::Mismatch);
    assert_eq!(begin(b"1", "execs", NOW).await, IdempotencyState::Mismatch);
    catalog.idempotency_abandon(&tenant, "k").await.unwrap();
    assert_eq!(begin(b"1", ROUTE, NOW).await, IdempotencyState::Fresh);
    catalog.idempotency_finish(&tenant, "k", 201, b"made".to_vec()).await.unwrap();
    let done = IdempotencyState::Done { status: 201, body: b"made".to_vec() };
    assert_eq!(begin(b"1", ROUTE, NOW).await, done);
    // A completed request cannot be abandoned or completed again.
    catalog.idempotency_abandon(&tenant, "k").await.unwrap();
    catalog.idempotency_finish(&tenant, "k", 500, Vec::new()).await.unwrap();
    assert_eq!(begin(b"1", ROUTE, NOW + IDEMPOTENCY_KEPT_MS - 1).await, done);
    assert_eq!(begin(b"2", ROUTE, NOW + IDEMPOTENCY_KEPT_MS).await, IdempotencyState::Fresh);

    assert_eq!(catalog.purge_idempotency(NOW + IDEMPOTENCY_KEPT_MS).await.unwrap(), 0);
    assert_eq!(catalog.purge_idempotency(NOW + 2 * IDEMPOTENCY_KEPT_MS).await.unwrap(), 1);
    let stranger = rows::stranger(&catalog).await;
    assert_eq!(begin(b"1", ROUTE, NOW).await, IdempotencyState::Fresh);
    let foreign = catalog.idempotency_begin(&stranger, Idempotency::of("k", b"2"), ROUTE, NOW).await;
    assert_eq!(foreign.unwrap(), IdempotencyState::Fresh);
}

#[tokio::test]
async fn a_request_started_by_a_dead_daemon_may_be_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    for _ in 0..2 {
        let catalog = Catalog::open(&path).unwrap();
        let begun =
            catalog.idempotency_begin(&catalog.default_tenant(), Idempotency::of("k", b""), ROUTE, NOW).await;
        assert_eq!(begun.unwrap(), IdempotencyState::Fresh);
    }
}
