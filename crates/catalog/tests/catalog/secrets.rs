//! Secrets, authorities and placeholders: versions, epochs, users of secrets, and removal with the lineage.

use burrow_catalog::{
    AuthorityRow, Catalog, CatalogError, FORMER_KEPT_MS, PlaceholderRow, SandboxRow, SealedValue, SecretRow,
    SecretStoreResult,
};
use burrow_model::network::{RequestRule, RequestScope, RuleMode, SealedTransforms};
use burrow_model::{Name, PlaceholderSpec, SecretSpec, Slot, TenantId};

use crate::rows::{self, NOW};

pub(crate) fn spec(name: &str) -> SecretSpec {
    SecretSpec {
        name: name.parse().unwrap(),
        allow: vec![RequestScope::of("api.example.com".parse().unwrap())],
        slot: Slot::Header { name: "authorization".parse().unwrap(), format: "Bearer {}".parse().unwrap() },
        placeholder: Some(PlaceholderSpec { env: "API_KEY".to_owned(), prefix: "sk-".to_owned() }),
    }
}

pub(crate) fn sealed(version: u64) -> SealedValue {
    SealedValue { version, sealed: format!("sealed {version}"), sealed_by: "file:1".to_owned() }
}

pub(crate) fn authority(sandbox: &SandboxRow) -> AuthorityRow {
    AuthorityRow {
        lineage: sandbox.memory().space,
        tenant: sandbox.tenant.clone(),
        certificate: vec![0x30, 0],
        sealed: "sealed".to_owned(),
        sealed_by: "file:1".to_owned(),
        created_ms: NOW,
    }
}

pub(crate) fn placeholder(sandbox: &SandboxRow, secret: &str, epoch: u64, value: &str) -> PlaceholderRow {
    PlaceholderRow {
        tenant: sandbox.tenant.clone(),
        secret: secret.parse().unwrap(),
        lineage: sandbox.memory().space,
        epoch,
        value: value.to_owned(),
        created_ms: NOW,
    }
}

pub(crate) async fn put(catalog: &Catalog, tenant: &TenantId, spec: SecretSpec, version: u64) -> SecretRow {
    match catalog.put_secret(tenant, spec, sealed(version), NOW + version).await.unwrap() {
        SecretStoreResult::Stored(row) => *row,
        SecretStoreResult::Overtaken { version } => panic!("overtaken by version {version}"),
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_value_is_stored_for_the_next_version_and_no_other() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let first = put(&catalog, &tenant, spec("openai"), 1).await;
    assert_eq!((first.version, first.epoch, first.created_ms), (1, 1, NOW + 1));
    for stale in [1, 3] {
        let stored = catalog.put_secret(&tenant, spec("openai"), sealed(stale), NOW).await.unwrap();
        assert_eq!(stored, SecretStoreResult::Overtaken { version: 1 });
        let stored = catalog.rotate_secret(&tenant, &name("openai"), sealed(stale), NOW).await.unwrap();
        assert_eq!(stored, SecretStoreResult::Overtaken { version: 1 });
    }
    let stored = catalog.rotate_secret(&tenant, &name("openai"), sealed(2), NOW + 9).await.unwrap();
    let expected = SecretRow { version: 2, sealed: "sealed 2".to_owned(), changed_ms: NOW + 9, ..first };
    assert_eq!(stored, SecretStoreResult::Stored(Box::new(expected.clone())));
    assert_eq!(catalog.secret(&tenant, &name("openai")).await.unwrap(), Some(expected.clone()));
    assert_eq!(catalog.secrets(&tenant).await.unwrap(), [expected]);
    let unknown = catalog.rotate_secret(&tenant, &name("other"), sealed(1), NOW).await.unwrap_err();
    assert!(matches!(unknown, CatalogError::Unknown { kind: "secret", .. }), "{unknown}");
}

#[tokio::test]
async fn headers_of_sandboxes_are_found_by_their_key_and_encrypted_again() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let of = |sealed: &str, by: &str| SealedTransforms {
        hosts: vec!["*.example.com".parse().unwrap()],
        sealed: sealed.to_owned(),
        sealed_by: by.to_owned(),
    };
    let mut with = rows::sandbox(&tenant, NOW);
    with.spec.network.transforms = Some(of("old", "file:1"));
    for row in [&with, &rows::sandbox(&tenant, NOW + 1)] {
        rows::store(&catalog, row).await;
    }
    assert_eq!(catalog.transforms_sealed_otherwise("file:1").await.unwrap(), []);
    let found = catalog.transforms_sealed_otherwise("file:2").await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].sandbox, &found[0].transforms), (&with.id, &of("old", "file:1")));
    // Changed in the meantime: left unchanged.
    catalog.reseal_transforms(&with.id, "older", of("new", "file:2")).await.unwrap();
    assert_eq!(catalog.transforms_sealed_otherwise("file:2").await.unwrap(), found);
    catalog.reseal_transforms(&with.id, "old", of("new", "file:2")).await.unwrap();
    let row = catalog.sandbox(&tenant, &with.id).await.unwrap().unwrap();
    assert_eq!(row.spec.network.transforms, Some(of("new", "file:2")));
    assert_eq!(catalog.transforms_sealed_otherwise("file:2").await.unwrap(), []);
}

#[tokio::test]
async fn a_foreign_tenant_sees_nothing_and_removes_nothing() {
    let catalog = Catalog::in_memory().unwrap();
    let (tenant, stranger) = (catalog.default_tenant(), TenantId::generate());
    put(&catalog, &tenant, spec("openai"), 1).await;
    assert_eq!(catalog.secret(&stranger, &name("openai")).await.unwrap(), None);
    assert!(catalog.secrets(&stranger).await.unwrap().is_empty());
    assert!(!catalog.delete_secret(&stranger, &name("openai")).await.unwrap());
    assert!(catalog.delete_secret(&tenant, &name("openai")).await.unwrap());
    assert!(!catalog.delete_secret(&tenant, &name("openai")).await.unwrap());
}

#[tokio::test]
async fn a_placeholder_stays_for_its_lineage_until_its_shape_or_its_secret_changes() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let sandbox = rows::sandbox(&tenant, NOW);
    let keep = |epoch, value| catalog.keep_placeholder(placeholder(&sandbox, "openai", epoch, value));
    assert_eq!(keep(1, "sk-a").await.unwrap(), None, "of a secret that is not there");
    put(&catalog, &tenant, spec("openai"), 1).await;
    assert_eq!(keep(1, "sk-a").await.unwrap().unwrap(), "sk-a");
    assert_eq!(keep(1, "sk-b").await.unwrap().unwrap(), "sk-a", "the first stays");
    assert_eq!(put(&catalog, &tenant, spec("openai"), 2).await.epoch, 1, "a new value changes no shape");
    let plain = SecretSpec { placeholder: None, ..spec("openai") };
    assert_eq!(put(&catalog, &tenant, plain, 3).await.epoch, 2);
    let lineage = sandbox.memory().space;
    assert_eq!(catalog.placeholder(&tenant, &name("openai"), &lineage, 1).await.unwrap().unwrap(), "sk-a");
    assert_eq!(catalog.placeholder(&tenant, &name("openai"), &lineage, 2).await.unwrap(), None);
    catalog.delete_secret(&tenant, &name("openai")).await.unwrap();
    assert_eq!(catalog.placeholder(&tenant, &name("openai"), &lineage, 1).await.unwrap(), None);
}

#[tokio::test]
async fn the_sandboxes_that_use_a_secret_are_known() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let mut user = rows::sandbox(&tenant, NOW);
    user.name = Some(name("user"));
    for _ in 0..2 {
        user.spec.network.requests.push(RequestRule {
            scope: RequestScope::of("api.example.com".parse().unwrap()),
            mode: RuleMode::Intercept,
            secret: Some(name("openai")),
            budget: None,
            approve: None,
        });
    }
    rows::store(&catalog, &user).await;
    rows::store(&catalog, &rows::sandbox(&tenant, NOW + 1)).await;
    let users = catalog.users_of_secrets(&tenant).await.unwrap();
    assert_eq!(users, [(name("openai"), user.id.clone(), user.name.clone())]);
    assert!(catalog.users_of_secrets(&TenantId::generate()).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_authority_is_one_for_ever_and_goes_with_its_lineage() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (kept, gone) = (rows::sandbox(&tenant, NOW), rows::sandbox(&tenant, NOW));
    rows::store(&catalog, &kept).await;
    put(&catalog, &tenant, spec("openai"), 1).await;
    for sandbox in [&kept, &gone] {
        catalog.keep_authority(authority(sandbox)).await.unwrap();
        catalog.keep_placeholder(placeholder(sandbox, "openai", 1, "sk-a")).await.unwrap();
    }
    let second = AuthorityRow { certificate: vec![1], ..authority(&kept) };
    assert_eq!(catalog.keep_authority(second).await.unwrap(), authority(&kept));
    let stranger = TenantId::generate();
    assert_eq!(catalog.authority(&stranger, &kept.memory().space).await.unwrap(), None);
    assert_eq!(catalog.forget_lineages(NOW + 1).await.unwrap(), 0, "its sandbox may be on its way");
    assert_eq!(catalog.forget_lineages(NOW + 3_600_001).await.unwrap(), 2);
    assert_eq!(catalog.authority(&tenant, &gone.memory().space).await.unwrap(), None);
    assert_eq!(catalog.authority(&tenant, &kept.memory().space).await.unwrap(), Some(authority(&kept)));
}

#[tokio::test]
async fn values_encrypted_with_an_old_key_are_found_and_encrypted_again() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let sandbox = rows::sandbox(&tenant, NOW);
    let row = put(&catalog, &tenant, spec("openai"), 1).await;
    catalog.keep_authority(authority(&sandbox)).await.unwrap();
    assert_eq!(catalog.sealed_otherwise("file:1").await.unwrap(), (Vec::new(), Vec::new()));
    let found = catalog.sealed_otherwise("file:2").await.unwrap();
    assert_eq!(found, (vec![row], vec![authority(&sandbox)]));
    let resealed =
        |version| SealedValue { version, sealed: "resealed".to_owned(), sealed_by: "file:2".to_owned() };
    catalog.reseal_secret(&tenant, &name("openai"), resealed(7)).await.unwrap();
    assert_eq!(catalog.sealed_otherwise("file:2").await.unwrap().0.len(), 1, "it was another version");
    catalog.reseal_secret(&tenant, &name("openai"), resealed(1)).await.unwrap();
    let lineage = sandbox.memory().space;
    catalog.reseal_authority(&lineage, "resealed".to_owned(), "file:2".to_owned()).await.unwrap();
    assert_eq!(catalog.sealed_otherwise("file:2").await.unwrap(), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn former_values_are_stored_for_a_limited_time_and_number() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let former = async |now_ms| -> Vec<u64> {
        let rows = catalog.former_secrets(&tenant, &name("openai"), now_ms).await.unwrap();
        assert!(rows.iter().all(|row| row.sealed == format!("sealed {}", row.version)), "{rows:?}");
        rows.into_iter().map(|row| row.version).collect()
    };
    put(&catalog, &tenant, spec("openai"), 1).await;
    assert!(former(NOW).await.is_empty());
    catalog.rotate_secret(&tenant, &name("openai"), sealed(2), NOW + 2).await.unwrap();
    put(&catalog, &tenant, spec("openai"), 3).await;
    assert_eq!(former(NOW + 3).await, [2, 1]);
    for version in 4..=6 {
        catalog.rotate_secret(&tenant, &name("openai"), sealed(version), NOW + version).await.unwrap();
    }
    assert_eq!(former(NOW + 6).await, [5, 4, 3]);
    // Version 3 was replaced at `NOW + 4`.
    assert_eq!(former(NOW + 4 + FORMER_KEPT_MS).await, [5, 4]);
    assert!(catalog.forget_former_secrets(NOW + 3 + FORMER_KEPT_MS).await.unwrap().is_empty());
    let expired = catalog.forget_former_secrets(NOW + 5 + FORMER_KEPT_MS).await.unwrap();
    assert_eq!(expired, [(tenant.clone(), name("openai"))]);
    assert_eq!(former(NOW + 6).await, [5]);
    catalog.delete_secret(&tenant, &name("openai")).await.unwrap();
    assert!(former(NOW + 6).await.is_empty(), "they are removed with the secret");
}

#[tokio::test]
async fn former_values_are_encrypted_again_and_keys_of_certificates_are_not_stored() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    put(&catalog, &tenant, SecretSpec { slot: Slot::ClientCert, ..spec("cert") }, 1).await;
    put(&catalog, &tenant, spec("cert"), 2).await;
    assert!(catalog.former_secrets(&tenant, &name("cert"), NOW).await.unwrap().is_empty());
    put(&catalog, &tenant, spec("cert"), 3).await;
    assert!(catalog.former_sealed_otherwise("file:1").await.unwrap().is_empty());
    let found = catalog.former_sealed_otherwise("file:2").await.unwrap();
    assert_eq!(found.iter().map(|row| row.version).collect::<Vec<_>>(), [2]);
    let resealed = SealedValue { version: 2, sealed: "resealed".to_owned(), sealed_by: "file:2".to_owned() };
    catalog.reseal_former_secret(&tenant, &name("cert"), resealed).await.unwrap();
    assert!(catalog.former_sealed_otherwise("file:2").await.unwrap().is_empty());
    assert_eq!(catalog.former_secrets(&tenant, &name("cert"), NOW).await.unwrap()[0].sealed, "resealed");
}
