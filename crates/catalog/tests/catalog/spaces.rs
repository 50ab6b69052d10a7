//! Named spaces, and which memory is still in use.

use burrow_catalog::{Catalog, CatalogError, SandboxChange, SpaceChange};
use burrow_model::{
    AttachedSpace, MemoryPoint, MemoryRef, SandboxId, Snapshot, SnapshotMemory, SpaceAccess, SpaceId,
};

use crate::rows::{self, NOW};

#[tokio::test]
async fn a_space_is_found_by_id_name_and_beginning_and_only_by_its_tenant() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let other = catalog.create_tenant("other", NOW).await.unwrap();
    let row = rows::space(&tenant, "team", NOW);
    catalog.insert_space(row.clone()).await.unwrap();
    for text in [row.id.as_str(), "team", &row.id.as_str()[..12], &row.id.as_str()[3..14]] {
        assert_eq!(catalog.resolve_space(&tenant, text).await.unwrap(), Some(row.clone()), "{text}");
        assert_eq!(catalog.resolve_space(&other, text).await.unwrap(), None, "{text}");
    }
    catalog.insert_space(rows::space(&other, "team", NOW)).await.unwrap();
    let taken = catalog.insert_space(rows::space(&tenant, "team", NOW)).await;
    assert!(matches!(taken, Err(CatalogError::SpaceNameTaken { existing }) if existing == row.id));
    catalog.delete_space(&other, &row.id).await.unwrap();
    assert!(
        catalog.resolve_space(&tenant, "team").await.unwrap().is_some(),
        "another tenant cannot delete it"
    );
    catalog.delete_space(&tenant, &row.id).await.unwrap();
    assert_eq!(catalog.resolve_space(&tenant, "team").await.unwrap(), None);
}

#[tokio::test]
async fn a_space_changes_in_what_is_given_and_is_listed_newest_first() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (old, new) = (rows::space(&tenant, "old", NOW), rows::space(&tenant, "new", NOW + 1));
    catalog.insert_space(old.clone()).await.unwrap();
    catalog.insert_space(new.clone()).await.unwrap();
    let change = SpaceChange { name: None, description: Some("of the team".to_owned()), labels: None };
    let changed = catalog.update_space(&tenant, &old.id, change).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.description.as_str()), ("old", "of the team"));
    let taken = SpaceChange { name: Some("new".parse().unwrap()), description: None, labels: None };
    let refused = catalog.update_space(&tenant, &old.id, taken).await;
    assert!(matches!(refused, Err(CatalogError::SpaceNameTaken { .. })));
    let page = catalog.list_spaces(&tenant, rows::page(1)).await.unwrap();
    assert_eq!(page.rows, [new]);
    assert!(page.next_cursor.is_some());
}

#[tokio::test]
async fn a_space_is_in_use_until_its_last_sandbox_and_snapshot_are_removed() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let parent = rows::sandbox(&tenant, NOW);
    rows::store(&catalog, &parent).await;
    let own = parent.memory();
    assert_eq!(catalog.space_users(&own.space).await.unwrap().branches, std::slice::from_ref(&own));

    // A fork uses the same space, on its own branch.
    let point = MemoryPoint { branch: own.branch.clone(), seq: 7 };
    let mut child = rows::sandbox(&tenant, NOW + 1);
    child.branch = Some(MemoryRef::branched(&own.space, Some(point.clone())));
    rows::store(&catalog, &child).await;
    let memory = Some(SnapshotMemory { space: own.space.clone(), point: Some(point.clone()), named: None });
    let snapshot = Snapshot { memory, ..rows::snapshot(&parent, NOW + 2) };
    rows::take(&catalog, &parent, &snapshot).await;
    let sight = catalog.space_users(&own.space).await.unwrap();
    assert_eq!((sight.branches.len(), sight.points, sight.named), (2, vec![point], false));
    assert_eq!(catalog.spaces_in_use().await.unwrap(), [own.space.clone()].into());
    assert!(
        catalog.space_users(&SpaceId::of(&child.id)).await.unwrap().is_unused(),
        "it was never on its own"
    );

    catalog.delete_sandbox(&parent.id, None, NOW + 9).await.unwrap();
    catalog.delete_sandbox(&child.id, None, NOW + 9).await.unwrap();
    assert!(!catalog.space_users(&own.space).await.unwrap().is_unused(), "a snapshot outlives its sandbox");
    catalog.delete_snapshot(&snapshot.id, None).await.unwrap();
    assert!(catalog.space_users(&own.space).await.unwrap().is_unused());
    assert!(catalog.spaces_in_use().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_sandbox_moves_to_another_branch_in_one_change() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let row = rows::sandbox(&tenant, NOW);
    rows::store(&catalog, &row).await;
    let back = MemoryRef::branched(&row.memory().space, None);
    let change = SandboxChange { branch: Some(Some(back.clone())), ..SandboxChange::at(NOW + 1) };
    catalog.update_sandbox(&row.id, change, None).await.unwrap();
    assert_eq!(catalog.sandbox(&tenant, &row.id).await.unwrap().unwrap().memory(), back);
}

#[tokio::test]
async fn the_sandboxes_that_use_a_named_space_are_known() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let space = rows::space(&tenant, "team", NOW);
    catalog.insert_space(space.clone()).await.unwrap();
    let mut primary = rows::sandbox(&tenant, NOW);
    primary.spec.memory.space = Some(space.id.clone());
    let mut attached = rows::sandbox(&tenant, NOW + 1);
    attached.spec.memory.attached =
        vec![AttachedSpace { space: space.id.clone(), access: SpaceAccess::Read }];
    let stranger = rows::sandbox(&tenant, NOW + 2);
    for row in [&primary, &attached, &stranger] {
        rows::store(&catalog, row).await;
    }
    let users: Vec<SandboxId> = catalog.users_of_space(&space.id).await.unwrap();
    assert_eq!(users, [primary.id, attached.id]);
    assert!(catalog.space_users(&space.id).await.unwrap().named);
}
