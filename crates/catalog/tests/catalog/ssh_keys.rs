//! Public keys for logging in: each is bound to an API key, and invalid without it.

use burrow_catalog::{Catalog, CatalogError, KeyRow, NewKey, SSH_KEYS_OF_KEY_MAX, SshKeyRow};
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

#[tokio::test]
async fn an_ssh_key_of_an_invalid_api_key_does_not_block_others() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let (admin, _) = catalog.create_key(rows::key(&tenant, Scope::Admin)).await.unwrap();
    let (dead, _) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    let (short, _) = catalog
        .create_key(NewKey { expires_ms: Some(NOW + 10), ..rows::key(&tenant, Scope::Exec) })
        .await
        .unwrap();
    catalog.insert_ssh_key(row(&dead, "SHA256:revoked")).await.unwrap();
    catalog.insert_ssh_key(row(&short, "SHA256:expired")).await.unwrap();
    let alive = catalog.insert_ssh_key(row(&admin, "SHA256:expired")).await;
    assert!(matches!(alive, Err(CatalogError::SshKeyTaken)), "{alive:?}");
    catalog.revoke_key(&tenant, &dead.id, NOW + 1).await.unwrap();
    catalog.insert_ssh_key(row(&admin, "SHA256:revoked")).await.unwrap();
    let later = SshKeyRow { created_ms: NOW + 10, ..row(&admin, "SHA256:expired") };
    catalog.insert_ssh_key(later).await.unwrap();
    for fingerprint in ["SHA256:revoked", "SHA256:expired"] {
        let (_, key) = catalog.ssh_login(fingerprint, NOW + 10).await.unwrap().unwrap();
        assert_eq!(key.id, admin.id, "{fingerprint}");
    }
}

#[tokio::test]
async fn a_proven_claim_takes_a_key_over_and_the_old_row_is_gone() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let (first, _) = catalog.create_key(rows::key(&tenant, Scope::Admin)).await.unwrap();
    let (second, _) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    catalog.insert_ssh_key(row(&first, "SHA256:one")).await.unwrap();
    let taken = catalog.take_over_ssh_key(row(&second, "SHA256:one")).await.unwrap();
    let (found, key) = catalog.ssh_login("SHA256:one", NOW).await.unwrap().unwrap();
    assert_eq!((&found.id, &key.id), (&taken.id, &second.id));
    let all = catalog.list_ssh_keys(&tenant, None, rows::page(10)).await.unwrap().rows;
    assert_eq!(all, [taken]);
}

#[tokio::test]
async fn an_api_key_has_a_bounded_number_of_public_keys() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let (greedy, _) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    let (other, _) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    for number in 0..SSH_KEYS_OF_KEY_MAX {
        catalog.insert_ssh_key(row(&greedy, &format!("SHA256:{number}"))).await.unwrap();
    }
    let refused = catalog.insert_ssh_key(row(&greedy, "SHA256:more")).await;
    assert!(matches!(refused, Err(CatalogError::TooManySshKeysOfKey)), "{refused:?}");
    catalog.insert_ssh_key(row(&other, "SHA256:more")).await.unwrap();
}
