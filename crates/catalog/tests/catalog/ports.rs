//! Public ports: visible at once, kept after a restart, removed with their sandbox; and the secret that signs links.

use burrow_catalog::{Catalog, CatalogError, PUBLISHED_MAX, PublishResult};
use burrow_model::{SandboxId, Scope, TenantId, VolumeId};

use crate::rows::{self, NOW};
use crate::volumes;

async fn sandbox(catalog: &Catalog, tenant: &TenantId) -> SandboxId {
    let row = rows::sandbox(tenant, NOW);
    let operation = rows::operation(&row, "create");
    catalog.insert_sandbox_with_operation(row.clone(), operation, None).await.unwrap();
    row.id
}

#[tokio::test]
async fn a_port_is_public_from_its_commit_on_until_it_is_withdrawn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let tenant = catalog.default_tenant();
    let id = sandbox(&catalog, &tenant).await;
    assert_eq!(catalog.publisher(&id, 8080), None);
    assert_eq!(catalog.publish_port(&tenant, &id, 8080, NOW).await.unwrap(), PublishResult::Now);
    assert_eq!(catalog.publish_port(&tenant, &id, 8080, NOW).await.unwrap(), PublishResult::Already);
    assert_eq!(catalog.publish_port(&tenant, &id, 65535, NOW).await.unwrap(), PublishResult::Now);
    assert_eq!(catalog.publisher(&id, 8080), Some(tenant.clone()));
    assert_eq!(catalog.publisher(&id, 8081), None);
    drop(catalog);
    let catalog = Catalog::open(&path).unwrap();
    assert_eq!(catalog.published_ports(&tenant, &id), [8080, 65535].into());
    catalog.unpublish_port(&tenant, &id, 8080).await.unwrap();
    catalog.unpublish_port(&tenant, &id, 8080).await.unwrap();
    assert_eq!((catalog.publisher(&id, 8080), catalog.publisher(&id, 65535)), (None, Some(tenant.clone())));
    catalog.delete_sandbox(&id, None, NOW).await.unwrap();
    assert_eq!(catalog.publisher(&id, 65535), None);
    drop(catalog);
    assert_eq!(Catalog::open(&path).unwrap().publisher(&id, 65535), None);
}

#[tokio::test]
async fn a_sandbox_of_another_tenant_answers_like_an_unknown_one() {
    let catalog = Catalog::in_memory().unwrap();
    let (tenant, other) = (catalog.default_tenant(), catalog.create_tenant("other", NOW).await.unwrap());
    let id = sandbox(&catalog, &tenant).await;
    for (who, what) in [(&other, &id), (&tenant, &SandboxId::generate())] {
        let refused = catalog.publish_port(who, what, 80, NOW).await;
        assert!(matches!(refused, Err(CatalogError::Unknown { kind: "sandbox", .. })), "{refused:?}");
    }
    catalog.publish_port(&tenant, &id, 80, NOW).await.unwrap();
    catalog.unpublish_port(&other, &id, 80).await.unwrap();
    assert_eq!(catalog.publisher(&id, 80), Some(tenant.clone()), "others cannot withdraw it");
    assert!(catalog.published_ports(&other, &id).is_empty());
}

#[tokio::test]
async fn the_generation_of_tokens_grows_with_each_revocation_and_goes_with_the_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let (tenant, other) = (catalog.default_tenant(), catalog.create_tenant("other", NOW).await.unwrap());
    let (one, two) = (sandbox(&catalog, &tenant).await, sandbox(&catalog, &tenant).await);
    assert_eq!(catalog.token_generation(&one), 0);
    catalog.revoke_tokens(&tenant, &one).await.unwrap();
    catalog.revoke_tokens(&tenant, &one).await.unwrap();
    assert_eq!((catalog.token_generation(&one), catalog.token_generation(&two)), (2, 0));
    for (who, what) in [(&other, &one), (&tenant, &SandboxId::generate())] {
        let refused = catalog.revoke_tokens(who, what).await;
        assert!(matches!(refused, Err(CatalogError::Unknown { kind: "sandbox", .. })), "{refused:?}");
    }
    drop(catalog);
    let catalog = Catalog::open(&path).unwrap();
    assert_eq!(catalog.token_generation(&one), 2);
    catalog.delete_sandbox(&one, None, NOW).await.unwrap();
    assert_eq!(catalog.token_generation(&one), 0);
}

#[tokio::test]
async fn all_tokens_are_revoked_to_generations_that_no_sandbox_had() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let tenant = catalog.default_tenant();
    let (one, two) = (sandbox(&catalog, &tenant).await, sandbox(&catalog, &tenant).await);
    catalog.revoke_tokens(&tenant, &one).await.unwrap();
    catalog.revoke_all_tokens(NOW).await.unwrap();
    // Not 2 and 1: in the catalog that this one is a copy of, `one` may have had 2 since.
    assert_eq!((catalog.token_generation(&one), catalog.token_generation(&two)), (NOW, NOW));
    catalog.revoke_tokens(&tenant, &one).await.unwrap();
    catalog.revoke_all_tokens(NOW).await.unwrap();
    drop(catalog);
    let catalog = Catalog::open(&path).unwrap();
    assert_eq!((catalog.token_generation(&one), catalog.token_generation(&two)), (NOW + 2, NOW + 1));
}

#[tokio::test]
async fn tokens_of_volumes_have_generations_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let (tenant, other) = (catalog.default_tenant(), catalog.create_tenant("other", NOW).await.unwrap());
    let one = volumes::stored(&catalog, "one").await.id;
    let two = volumes::stored(&catalog, "two").await.id;
    catalog.revoke_volume_tokens(&tenant, &one).await.unwrap();
    for (who, what) in [(&other, &one), (&tenant, &VolumeId::generate())] {
        let refused = catalog.revoke_volume_tokens(who, what).await;
        assert!(matches!(refused, Err(CatalogError::Unknown { kind: "volume", .. })), "{refused:?}");
    }
    let generations =
        |catalog: &Catalog| (catalog.volume_token_generation(&one), catalog.volume_token_generation(&two));
    assert_eq!(generations(&catalog), (1, 0));
    drop(catalog);
    let catalog = Catalog::open(&path).unwrap();
    assert_eq!(generations(&catalog), (1, 0));
    catalog.revoke_all_tokens(NOW).await.unwrap();
    assert_eq!(generations(&catalog), (NOW, NOW));
    catalog.delete_volume(&one).await.unwrap();
    assert_eq!(generations(&catalog), (0, NOW));
}

#[tokio::test]
async fn public_ports_are_bounded() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let id = sandbox(&catalog, &tenant).await;
    for port in 1..=u16::try_from(PUBLISHED_MAX).unwrap() {
        assert_eq!(catalog.publish_port(&tenant, &id, port, NOW).await.unwrap(), PublishResult::Now);
    }
    assert_eq!(catalog.publish_port(&tenant, &id, 9999, NOW).await.unwrap(), PublishResult::TooMany);
    assert_eq!(catalog.publisher(&id, 9999), None);
}

#[tokio::test]
async fn the_secret_of_links_is_made_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let secret = catalog.port_link_secret().await.unwrap();
    assert_eq!(catalog.port_link_secret().await.unwrap(), secret);
    drop(catalog);
    assert_eq!(Catalog::open(&path).unwrap().port_link_secret().await.unwrap(), secret);
    assert_ne!(Catalog::in_memory().unwrap().port_link_secret().await.unwrap(), secret);
}

#[tokio::test]
async fn a_key_is_found_by_its_id_while_it_is_usable() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let mut new = rows::key(&tenant, Scope::Exec);
    new.expires_ms = Some(NOW + 10);
    let (row, _) = catalog.create_key(new).await.unwrap();
    assert_eq!(catalog.usable_key(&row.id, NOW).as_ref(), Some(&row));
    assert_eq!(catalog.usable_key(&row.id, NOW + 10), None);
    catalog.revoke_key(&tenant, &row.id, NOW).await.unwrap();
    assert_eq!(catalog.usable_key(&row.id, NOW), None);
}
