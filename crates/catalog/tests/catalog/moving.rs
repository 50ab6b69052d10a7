//! Imported and exported snapshots are found by the identities of their files, within one tenant, while they exist.

use burrow_catalog::{Catalog, CatalogError};
use burrow_model::{Image, ImageConfig, ImageId, ImageOrigin, Snapshot, SnapshotId, State, TenantId};

use crate::rows::{self, NOW};

async fn taken(catalog: &Catalog, finish: bool) -> Snapshot {
    let row =
        burrow_catalog::SandboxRow { state: State::Running, ..rows::sandbox(&catalog.default_tenant(), NOW) };
    rows::store(catalog, &row).await;
    let snapshot = rows::snapshot(&row, NOW);
    let operation = rows::begin(catalog, &row, &snapshot).await;
    if finish {
        catalog.finish_snapshot(snapshot.clone(), Some(operation)).await.unwrap();
    }
    snapshot
}

#[tokio::test]
async fn a_snapshot_is_found_by_any_file_it_travelled_in() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (one, two) = (taken(&catalog, true).await, taken(&catalog, true).await);
    let [a, b, c] = ["aa", "bb", "cc"].map(str::to_owned);
    for _ in 0..2 {
        catalog.note_identity(&tenant, &one.id, &a, NOW).await.unwrap();
    }
    catalog.note_identity(&tenant, &one.id, &b, NOW + 1).await.unwrap();
    catalog.note_identity(&tenant, &two.id, &c, NOW).await.unwrap();
    assert_eq!(catalog.identities_of(&one.id).await.unwrap(), [b.clone(), a.clone()], "the newest first");
    let found = async |identities: &[&String]| {
        let identities: Vec<String> = identities.iter().map(|text| (*text).clone()).collect();
        catalog.snapshot_by_identities(&tenant, &identities).await.unwrap().map(|snapshot| snapshot.id)
    };
    assert_eq!(found(&[&a]).await, Some(one.id.clone()));
    assert_eq!(found(&[&"zz".to_owned(), &c]).await, Some(two.id.clone()));
    assert_eq!(found(&[&"zz".to_owned()]).await, None);
    let elsewhere =
        catalog.snapshot_by_identities(&TenantId::generate(), std::slice::from_ref(&a)).await.unwrap();
    assert_eq!(elsewhere, None, "another tenant has none of it");
    catalog.delete_snapshot(&one.id, None).await.unwrap();
    assert_eq!(found(&[&a, &b]).await, None);
    assert!(catalog.identities_of(&one.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_identity_of_an_unfinished_snapshot_is_recorded_but_not_found() {
    let catalog = Catalog::in_memory().unwrap();
    let (tenant, making) = (catalog.default_tenant(), taken(&catalog, false).await);
    catalog.note_identity(&tenant, &making.id, "aa", NOW).await.unwrap();
    assert_eq!(catalog.snapshot_by_identities(&tenant, &["aa".to_owned()]).await.unwrap(), None);
    let unknown = catalog.note_identity(&tenant, &SnapshotId::generate(), "aa", NOW).await.unwrap_err();
    assert!(matches!(unknown, CatalogError::Unknown { kind: "snapshot", .. }), "{unknown}");
}

#[tokio::test]
async fn an_image_that_never_was_here_is_a_record_and_goes_with_its_last_snapshot() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let config = ImageConfig { user: Some("agent".to_owned()), ..ImageConfig::default() };
    let image = Image {
        id: ImageId::generate(),
        names: Vec::new(),
        config: config.clone(),
        origin: ImageOrigin::default(),
        layer: None,
        size_bytes: 0,
        created_ms: NOW,
    };
    catalog.insert_image_record(&tenant, image.clone(), NOW).await.unwrap();
    assert_eq!(catalog.image(&tenant, &image.id).await.unwrap(), None, "nothing can be made from it");
    assert!(catalog.all_images().await.unwrap().is_empty());
    let record = catalog.image_record(&tenant, &image.id).await.unwrap().unwrap();
    assert_eq!(record.image.config, config);
    assert_eq!(catalog.forget_removed_images().await.unwrap(), 1);
}
