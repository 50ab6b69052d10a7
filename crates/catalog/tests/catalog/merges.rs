//! Merges and races: rows from the intent to the end.

use burrow_catalog::{Catalog, MergeRow, MergeState, RaceRow};
use burrow_model::{MergeId, RaceId, SandboxId, TenantId};
use serde_json::json;

use crate::rows::{self, NOW};

fn merge(tenant: &TenantId, sandbox: &SandboxId, created_ms: u64) -> MergeRow {
    MergeRow {
        id: MergeId::generate(),
        tenant: tenant.clone(),
        sandbox: sandbox.clone(),
        child: SandboxId::generate(),
        state: MergeState::Applying,
        created_ms,
        merge: json!({ "undo": "snp" }),
    }
}

#[tokio::test]
async fn a_merge_is_begun_with_its_operation_and_ends_with_it() {
    let catalog = Catalog::in_memory().unwrap();
    let parent = rows::sandbox(&catalog.default_tenant(), NOW);
    let create = rows::operation(&parent, "create");
    catalog.insert_sandbox_with_operation(parent.clone(), create, None).await.unwrap();
    let create = catalog.open_operations().await.unwrap().remove(0);
    catalog.finish_operation(&create.id).await.unwrap();
    let (kept, dropped) =
        (merge(&parent.tenant, &parent.id, NOW), merge(&parent.tenant, &parent.id, NOW + 1));
    for row in [&kept, &dropped] {
        let operation = rows::operation(&parent, "merge");
        catalog.begin_merge(row.clone(), operation).await.unwrap();
    }
    let operations = catalog.open_operations().await.unwrap();
    assert_eq!(operations.len(), 2);
    assert_eq!(catalog.merges_remembering().await.unwrap(), []);
    // Undone: the row is gone.
    catalog.drop_merge(&dropped.id, operations[1].id.clone()).await.unwrap();
    catalog.settle_merge(&kept.id, json!({ "undo": "other" }), operations[0].id.clone()).await.unwrap();
    assert_eq!(catalog.open_operations().await.unwrap(), []);
    let open = catalog.merges_remembering().await.unwrap();
    assert_eq!(
        open,
        [MergeRow { state: MergeState::Remembering, merge: json!({ "undo": "other" }), ..kept.clone() }]
    );
    catalog.finish_merge(&kept.id, None).await.unwrap();
    assert_eq!(catalog.merges_remembering().await.unwrap(), []);
    let told = catalog.merges_into(&parent.tenant, &parent.id).await.unwrap();
    assert_eq!((told.len(), told[0].state), (1, MergeState::Done));
    assert_eq!(
        catalog.merges_into(&TenantId::generate(), &parent.id).await.unwrap(),
        [],
        "not visible to another tenant"
    );
    assert!(catalog.finish_merge(&MergeId::generate(), None).await.is_err());
}

#[tokio::test]
async fn a_race_is_open_until_it_is_done_and_seen_by_its_tenant_only() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let row = RaceRow {
        id: RaceId::generate(),
        tenant: tenant.clone(),
        sandbox: SandboxId::generate(),
        done: false,
        created_ms: NOW,
        race: json!({ "stage": "forking" }),
    };
    catalog.insert_race(row.clone()).await.unwrap();
    assert_eq!(catalog.open_races().await.unwrap(), std::slice::from_ref(&row));
    assert_eq!(catalog.race(&TenantId::generate(), &row.id).await.unwrap(), None);
    catalog.update_race(&row.id, true, json!({ "stage": "done" })).await.unwrap();
    assert_eq!(catalog.open_races().await.unwrap(), []);
    let done = RaceRow { done: true, race: json!({ "stage": "done" }), ..row.clone() };
    assert_eq!(catalog.race(&tenant, &row.id).await.unwrap(), Some(done.clone()));
    assert_eq!(catalog.races(&tenant).await.unwrap(), [done]);
    catalog.delete_race(&row.id).await.unwrap();
    assert_eq!(catalog.races(&tenant).await.unwrap(), []);
}
