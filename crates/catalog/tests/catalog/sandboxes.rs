//! Sandboxes and the journal: rows are read as they were stored, in one commit with their operation.

use burrow_catalog::{Catalog, CatalogError, InsertResult, SandboxChange};
use burrow_model::{
    DumpId, ImageId, Lifetime, MemoryRef, OperationId, Origin, OriginKind, SandboxId, Scope, SnapshotId,
    State, StopReason,
};
use serde_json::json;

use crate::rows::{self, NOW};

#[tokio::test]
async fn a_sandbox_comes_back_as_it_was_stored() {
    let catalog = Catalog::in_memory().unwrap();
    let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
    row.name = Some("web".parse().unwrap());
    row.spec.labels.insert("team".to_owned(), "a=b".to_owned());
    row.spec.lifetime = Lifetime::Ephemeral { expires_ms: Some(NOW + 5) };
    row.state = State::Stopped;
    row.stop_reason = Some(StopReason::HostRestarted);
    row.machine = Some(json!({ "pid": 7 }));
    row.started_ms = Some(NOW + 1);
    row.stopped_ms = Some(NOW + 2);
    row.failure = Some("it would not".to_owned());
    row.generation = 9;
    rows::store(&catalog, &row).await;
    assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(catalog.sandbox_by_name(&row.tenant, "web").await.unwrap(), Some(row.clone()));
    assert_eq!(catalog.all_sandboxes().await.unwrap(), [row]);
}

#[tokio::test]
async fn every_row_has_a_tenant_and_a_foreign_id_answers_as_an_unknown_one() {
    let catalog = Catalog::in_memory().unwrap();
    let stranger = rows::stranger(&catalog).await;
    let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
    row.name = Some("web".parse().unwrap());
    rows::store(&catalog, &row).await;
    let exec = rows::exec(&row, NOW);
    catalog.insert_exec(exec.clone()).await.unwrap();
    let (key, _) = catalog.create_key(rows::key(&row.tenant, Scope::Read)).await.unwrap();
    let image = rows::image("base", NOW);
    catalog.insert_image(&row.tenant, image.clone()).await.unwrap();
    catalog.append_event(rows::event(&row.tenant, "created")).await.unwrap();

    assert_eq!(catalog.sandbox(&stranger, &row.id).await.unwrap(), None);
    assert_eq!(catalog.sandbox_by_name(&stranger, "web").await.unwrap(), None);
    for text in [row.id.as_str(), "web", &row.id.as_str()[..9]] {
        assert_eq!(catalog.resolve_sandbox(&stranger, text).await.unwrap(), None, "{text}");
    }
    let none = catalog.list_sandboxes(&stranger, Default::default(), rows::page(10)).await.unwrap();
    assert!(none.rows.is_empty());
    assert_eq!(catalog.exec(&stranger, &exec.id).await.unwrap(), None);
    assert!(catalog.list_execs(&stranger, &row.id, rows::page(10)).await.unwrap().rows.is_empty());
    let mut smuggled = rows::exec(&row, NOW);
    smuggled.tenant = stranger.clone();
    assert!(matches!(
        catalog.insert_exec(smuggled).await,
        Err(CatalogError::Unknown { kind: "sandbox", .. })
    ));
    assert_eq!(catalog.key(&stranger, &key.id).await.unwrap(), None);
    assert!(catalog.list_keys(&stranger, rows::page(10)).await.unwrap().rows.is_empty());
    let revoked = catalog.revoke_key(&stranger, &key.id, NOW).await;
    assert!(matches!(revoked, Err(CatalogError::Unknown { kind: "key", .. })));
    assert_eq!(catalog.image(&stranger, &image.id).await.unwrap(), None);
    assert_eq!(catalog.image_by_name(&stranger, &image.names[0]).await.unwrap(), None);
    assert!(!catalog.remove_image(&stranger, &image.id, NOW).await.unwrap());
    assert!(catalog.events_since(&stranger, 0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_name_is_taken_within_its_tenant_only() {
    let catalog = Catalog::in_memory().unwrap();
    let mut first = rows::sandbox(&catalog.default_tenant(), NOW);
    first.name = Some("web".parse().unwrap());
    rows::store(&catalog, &first).await;

    let mut second = rows::sandbox(&first.tenant, NOW);
    second.name = first.name.clone();
    let refused =
        catalog.insert_sandbox_with_operation(second.clone(), rows::operation(&second, "create"), None).await;
    assert!(matches!(refused, Err(CatalogError::NameTaken { existing }) if existing == first.id));
    assert_eq!(catalog.sandbox(&second.tenant, &second.id).await.unwrap(), None);
    assert!(catalog.open_operations().await.unwrap().is_empty(), "the operation went with the row");

    second.tenant = rows::stranger(&catalog).await;
    rows::store(&catalog, &second).await;
}

#[tokio::test]
async fn a_rename_frees_the_old_name_and_respects_the_others() {
    let catalog = Catalog::in_memory().unwrap();
    let (mut one, mut two) =
        (rows::sandbox(&catalog.default_tenant(), NOW), rows::sandbox(&catalog.default_tenant(), NOW));
    one.name = Some("one".parse().unwrap());
    two.name = Some("two".parse().unwrap());
    rows::store(&catalog, &one).await;
    rows::store(&catalog, &two).await;
    let rename = |name: &str| SandboxChange { name: Some(name.parse().ok()), ..SandboxChange::at(NOW + 1) };

    let taken = catalog.update_sandbox(&one.id, rename("two"), None).await;
    assert!(matches!(taken, Err(CatalogError::NameTaken { existing }) if existing == two.id));
    catalog.update_sandbox(&one.id, rename("one"), None).await.unwrap();
    catalog.update_sandbox(&one.id, rename("three"), None).await.unwrap();
    catalog.update_sandbox(&two.id, rename("one"), None).await.unwrap();
    let found = catalog.sandbox_by_name(&one.tenant, "one").await.unwrap().unwrap();
    assert_eq!((found.id, found.updated_ms), (two.id, NOW + 1));
}

#[tokio::test]
async fn a_change_touches_what_it_names_and_ends_its_operation() {
    let catalog = Catalog::in_memory().unwrap();
    let row = rows::sandbox(&catalog.default_tenant(), NOW);
    let operation = rows::operation(&row, "create");
    catalog.insert_sandbox_with_operation(row.clone(), operation.clone(), None).await.unwrap();
    assert_eq!(catalog.open_operations().await.unwrap(), std::slice::from_ref(&operation));
    catalog.update_operation(&operation.id, json!(["half"])).await.unwrap();
    assert_eq!(catalog.open_operations().await.unwrap()[0].steps, json!(["half"]));

    let mut expected = row.clone();
    expected.state = State::Running;
    expected.machine = Some(json!({ "pid": 1 }));
    expected.started_ms = Some(NOW + 10);
    expected.generation = 1;
    expected.updated_ms = NOW + 10;
    let change = SandboxChange {
        state: Some(State::Running),
        machine: Some(expected.machine.clone()),
        started_ms: Some(expected.started_ms),
        generation: Some(1),
        ..SandboxChange::at(NOW + 10)
    };
    catalog.update_sandbox(&row.id, change, Some(operation.id.clone())).await.unwrap();
    assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap(), Some(expected.clone()));
    assert!(catalog.open_operations().await.unwrap().is_empty());

    expected.spec.labels.insert("a".to_owned(), "b".to_owned());
    expected.spec.lifetime = Lifetime::Persistent { expires_ms: Some(NOW + 99) };
    expected.state = State::Failed;
    expected.stop_reason = Some(StopReason::Expired);
    expected.machine = None;
    expected.started_ms = None;
    expected.stopped_ms = Some(NOW + 11);
    expected.failure = Some("why".to_owned());
    expected.image = ImageId::generate();
    expected.token = "another".to_owned();
    expected.updated_ms = NOW + 11;
    let change = SandboxChange {
        state: Some(expected.state),
        stop_reason: Some(expected.stop_reason),
        spec: Some(expected.spec.clone()),
        image: Some(expected.image.clone()),
        token: Some(expected.token.clone()),
        machine: Some(None),
        started_ms: Some(None),
        stopped_ms: Some(expected.stopped_ms),
        failure: Some(expected.failure.clone()),
        ..SandboxChange::at(NOW + 11)
    };
    catalog.update_sandbox(&row.id, change, None).await.unwrap();
    assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap(), Some(expected));
    assert_eq!(catalog.expired(NOW + 99).await.unwrap(), [row.id]);
}

#[tokio::test]
async fn a_change_of_a_row_in_ram_is_that_of_the_stored_row() {
    let catalog = Catalog::in_memory().unwrap();
    let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &row).await;
    let mut spec = row.spec.clone();
    spec.labels.insert("a".to_owned(), "b".to_owned());
    let (snapshot, kind) = (SnapshotId::generate(), OriginKind::Fork);
    let change = SandboxChange {
        updated_ms: NOW + 1,
        state: Some(State::Hibernated),
        stop_reason: Some(Some(StopReason::Expired)),
        name: Some(Some("another".parse().unwrap())),
        spec: Some(spec),
        image: Some(ImageId::generate()),
        token: Some("another".to_owned()),
        machine: Some(Some(json!({ "pid": 2 }))),
        started_ms: Some(Some(NOW + 2)),
        stopped_ms: Some(Some(NOW + 3)),
        failure: Some(Some("why".to_owned())),
        generation: Some(7),
        dump: Some(Some(DumpId::generate())),
        origin: Some(Some(Origin { snapshot, sandbox: SandboxId::generate(), kind })),
        active_ms: Some(Some(NOW + 4)),
        slept_ms: Some(Some(NOW + 5)),
        rotated_ms: Some(Some(NOW + 6)),
        snapshotted_ms: Some(Some(NOW + 7)),
        branch: Some(Some(MemoryRef::own(&SandboxId::generate()))),
    };
    catalog.update_sandbox(&row.id, change.clone(), None).await.unwrap();
    change.apply(&mut row);
    assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap(), Some(row));
}

#[tokio::test]
async fn an_operation_begins_with_its_change_or_not_at_all() {
    let catalog = Catalog::in_memory().unwrap();
    let row = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &row).await;
    let operation = rows::operation(&row, "stop");
    let stopping = SandboxChange { state: Some(State::Stopping), ..SandboxChange::at(NOW + 1) };
    catalog.begin_operation(operation.clone(), Some(stopping.clone())).await.unwrap();
    assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap().unwrap().state, State::Stopping);
    assert_eq!(catalog.open_operations().await.unwrap(), [operation]);

    let unknown = rows::sandbox(&row.tenant, NOW);
    let refused = catalog.begin_operation(rows::operation(&unknown, "stop"), Some(stopping)).await;
    assert!(matches!(refused, Err(CatalogError::Unknown { kind: "sandbox", .. })), "{refused:?}");
    assert_eq!(catalog.open_operations().await.unwrap().len(), 1);
    let unknown = catalog.update_operation(&OperationId::generate(), json!([])).await;
    assert!(matches!(unknown, Err(CatalogError::Unknown { kind: "operation", .. })));
}

#[tokio::test]
async fn a_delete_takes_execs_along_and_revokes_keys_limited_to_it() {
    let catalog = Catalog::in_memory().unwrap();
    let row = rows::sandbox(&catalog.default_tenant(), NOW);
    rows::store(&catalog, &row).await;
    let exec = rows::exec(&row, NOW);
    catalog.insert_exec(exec.clone()).await.unwrap();
    let mut limited = rows::key(&row.tenant, Scope::Exec);
    limited.sandbox = Some(row.id.clone());
    let (limited, secret) = catalog.create_key(limited).await.unwrap();
    let (_, free) = catalog.create_key(rows::key(&row.tenant, Scope::Exec)).await.unwrap();
    let operation = rows::operation(&row, "delete");
    catalog.begin_operation(operation.clone(), None).await.unwrap();

    for _ in 0..2 {
        catalog.delete_sandbox(&row.id, Some(operation.id.clone()), NOW + 7).await.unwrap();
        assert_eq!(catalog.sandbox(&row.tenant, &row.id).await.unwrap(), None);
        assert_eq!(catalog.exec(&row.tenant, &exec.id).await.unwrap(), None);
        assert!(catalog.open_operations().await.unwrap().is_empty());
        assert_eq!(catalog.authenticate(secret.expose(), NOW), None);
        assert!(catalog.authenticate(free.expose(), NOW).is_some());
        let kept = catalog.key(&row.tenant, &limited.id).await.unwrap().unwrap();
        assert_eq!(kept.revoked_ms, Some(NOW + 7));
    }
    catalog.integrity_check().await.unwrap();
}

#[tokio::test]
async fn expired_sandboxes_are_listed_longest_overdue_first() {
    let catalog = Catalog::in_memory().unwrap();
    let mut ids = Vec::new();
    for expires_ms in [Some(NOW + 20), None, Some(NOW + 10), Some(NOW + 30)] {
        let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
        row.spec.lifetime = Lifetime::Ephemeral { expires_ms };
        rows::store(&catalog, &row).await;
        ids.push(row.id);
    }
    assert!(catalog.expired(NOW + 9).await.unwrap().is_empty());
    assert_eq!(catalog.expired(NOW + 20).await.unwrap(), [ids[2].clone(), ids[0].clone()]);
}

#[tokio::test]
async fn changing_an_unknown_sandbox_is_refused() {
    let catalog = Catalog::in_memory().unwrap();
    let unknown = catalog.update_sandbox(&SandboxId::generate(), SandboxChange::at(NOW), None).await;
    assert!(matches!(unknown, Err(CatalogError::Unknown { kind: "sandbox", .. })));
}

#[tokio::test]
async fn of_concurrent_creates_with_one_name_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let catalog = catalog.clone();
        tasks.push(tokio::spawn(async move {
            let mut row = rows::sandbox(&catalog.default_tenant(), NOW);
            row.name = Some("web".parse().unwrap());
            let operation = rows::operation(&row, "create");
            (row.id.clone(), catalog.insert_sandbox_with_operation(row, operation, None).await)
        }));
    }
    let (mut winners, mut told) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.await.unwrap() {
            (id, Ok(InsertResult::New)) => winners.push(id),
            (_, Err(CatalogError::NameTaken { existing })) => told.push(existing),
            (_, other) => panic!("{other:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert!(told.len() == 15 && told.iter().all(|existing| *existing == winners[0]));
}

#[test]
fn a_guest_token_is_never_printed() {
    let row = rows::sandbox(&burrow_model::TenantId::generate(), NOW);
    let change = SandboxChange { token: Some(row.token.clone()), ..SandboxChange::at(NOW) };
    let printed = format!("{row:?} {change:?}");
    assert!(printed.contains("***") && !printed.contains(&row.token), "{printed}");
}
