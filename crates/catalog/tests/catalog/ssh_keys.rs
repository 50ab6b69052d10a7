//! Public keys that log in: each stands for an API key, and opens nothing without it.

use burrow_catalog::{Catalog, CatalogError, KeyRow, SshKeyRow};
use burrow_model::{Scope, SshKeyId};

use crate::rows::{self, NOW};

pub(crate) fn row(key: &KeyRow, fingerprint: &str) -> SshKeyRow {
    SshKeyRow {
        id: SshKeyId::generate(),
        tenant: key.tenant.clone(),
        api_key: key.id.clone(),
        name: "ada".to_owned(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
        fingerprint: fingerprint.to_owned(),
        created_ms: NOW,
        last_used_ms: None,
    }
}

async fn open() -> (tempfile::TempDir, Catalog) {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    (directory, catalog)
}

#[tokio::test]
async fn a_public_key_opens_what_its_api_key_opens_and_as_long() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let (admin, _) = catalog.create_key(rows::key(&tenant, Scope::Admin)).await.unwrap();
    let (other, _) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    let added = catalog.insert_ssh_key(row(&other, "SHA256:one")).await.unwrap();
    assert_eq!(catalog.insert_ssh_key(row(&other, "SHA256:one")).await.unwrap(), added, "once is enough");
    let taken = catalog.insert_ssh_key(row(&admin, "SHA256:one")).await;
    assert!(matches!(taken, Err(CatalogError::SshKeyTaken)), "{taken:?}");
    let (found, key) = catalog.ssh_login("SHA256:one", NOW).await.unwrap().unwrap();
    assert_eq!((&found.id, &key.id), (&added.id, &other.id));
    assert!(catalog.ssh_login("SHA256:two", NOW).await.unwrap().is_none());

    catalog.insert_ssh_key(row(&admin, "SHA256:three")).await.unwrap();
    let all = catalog.list_ssh_keys(&tenant, None, rows::page(10)).await.unwrap().rows;
    let own = catalog.list_ssh_keys(&tenant, Some(other.id.clone()), rows::page(10)).await.unwrap().rows;
    assert_eq!((all.len(), own), (2, vec![added.clone()]));

    catalog.revoke_key(&tenant, &other.id, NOW + 1).await.unwrap();
    assert!(catalog.ssh_login("SHA256:one", NOW + 1).await.unwrap().is_none(), "with its API key it ends");
    catalog.remove_ssh_key(&tenant, &added.id).await.unwrap();
    let gone = catalog.remove_ssh_key(&tenant, &added.id).await;
    assert!(matches!(gone, Err(CatalogError::Unknown { .. })), "{gone:?}");
}
