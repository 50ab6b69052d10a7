//! Keys: stored hashed, checked from RAM, revoked at once.

use burrow_catalog::{Catalog, CatalogError, KeySecret, NewKey, PageRequest};
use burrow_model::{KeyId, Scope};

use crate::rows::{self, NOW};

#[tokio::test]
async fn a_secret_opens_its_key_and_is_nowhere_in_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let (row, secret) = catalog.create_key(rows::key(&catalog.default_tenant(), Scope::Admin)).await.unwrap();
    let text = secret.expose().to_owned();
    assert!(text.len() == 44 && text.starts_with("e2b_") && text.starts_with(&row.prefix), "{text}");
    assert_eq!(format!("{secret:?}"), "***");
    assert_eq!(catalog.authenticate(&text, NOW).as_ref(), Some(&row));
    for wrong in
        ["", "e2b_", &text[..43], &text.to_uppercase(), &format!("{text} "), KeySecret::generate().expose()]
    {
        assert_eq!(catalog.authenticate(wrong, NOW), None);
    }
    drop(catalog);
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(20).any(|window| window == &text.as_bytes()[8..28]));
    }
    // Loaded again at open.
    let catalog = Catalog::open(&path).unwrap();
    assert_eq!(catalog.authenticate(&text, NOW).map(|found| found.id), Some(row.id));
}

#[tokio::test]
async fn an_expired_key_opens_nothing() {
    let catalog = Catalog::in_memory().unwrap();
    let mut new = rows::key(&catalog.default_tenant(), Scope::Read);
    new.expires_ms = Some(NOW + 10);
    let (_, secret) = catalog.create_key(new).await.unwrap();
    assert!(catalog.authenticate(secret.expose(), NOW + 9).is_some());
    assert!(catalog.authenticate(secret.expose(), NOW + 10).is_none());
}

#[tokio::test]
async fn a_revoked_key_is_dead_at_once_and_stays_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("catalog.db");
    let catalog = Catalog::open(&path).unwrap();
    let tenant = catalog.default_tenant();
    let (row, secret) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    let revoked = catalog.revoke_key(&tenant, &row.id, NOW + 1).await.unwrap();
    assert_eq!(revoked.revoked_ms, Some(NOW + 1));
    assert!(catalog.authenticate(secret.expose(), NOW + 1).is_none());
    assert_eq!(catalog.revoke_key(&tenant, &row.id, NOW + 2).await.unwrap(), revoked, "asking twice is safe");
    drop(catalog);
    let catalog = Catalog::open(&path).unwrap();
    assert!(catalog.authenticate(secret.expose(), NOW + 1).is_none());
    let unknown = catalog.revoke_key(&tenant, &KeyId::generate(), NOW).await;
    assert!(matches!(unknown, Err(CatalogError::Unknown { kind: "key", .. })));
}

#[tokio::test]
async fn a_key_that_was_created_with_another_ends_with_it() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let new = NewKey { expires_ms: Some(NOW + 100), ..rows::key(&tenant, Scope::Exec) };
    let (parent, _) = catalog.create_key(new).await.unwrap();
    let child = |expires_ms| NewKey {
        parent: Some(parent.id.clone()),
        expires_ms,
        ..rows::key(&tenant, Scope::Exec)
    };
    let (short, _) = catalog.create_key(child(Some(NOW + 10))).await.unwrap();
    let (long, secret) = catalog.create_key(child(Some(NOW + 1_000))).await.unwrap();
    assert_eq!((short.expires_ms, long.expires_ms), (Some(NOW + 10), parent.expires_ms));
    let (other, of_other) = catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();

    catalog.revoke_key(&tenant, &parent.id, NOW + 1).await.unwrap();
    assert!(catalog.authenticate(secret.expose(), NOW + 2).is_none());
    assert_eq!(catalog.key(&tenant, &long.id).await.unwrap().unwrap().revoked_ms, Some(NOW + 1));
    let late = catalog.create_key(child(None)).await;
    assert!(matches!(late, Err(CatalogError::Unknown { kind: "key", .. })), "a revoked key creates none");
    assert_eq!(catalog.authenticate(of_other.expose(), NOW + 2).map(|row| row.id), Some(other.id));
}

#[tokio::test]
async fn the_last_usable_admin_key_cannot_be_revoked() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    assert_eq!(catalog.usable_admin_keys(&tenant, NOW).await.unwrap(), 0);
    let (first, secret) = catalog.create_key(rows::key(&tenant, Scope::Admin)).await.unwrap();
    // None of these could manage keys in its place.
    catalog.create_key(rows::key(&tenant, Scope::Exec)).await.unwrap();
    let mut limited = rows::key(&tenant, Scope::Admin);
    limited.sandbox = Some(burrow_model::SandboxId::generate());
    catalog.create_key(limited).await.unwrap();
    let mut expiring = rows::key(&tenant, Scope::Admin);
    expiring.expires_ms = Some(NOW + 10);
    let (expiring, _) = catalog.create_key(expiring).await.unwrap();
    let stranger = rows::stranger(&catalog).await;
    catalog.create_key(rows::key(&stranger, Scope::Admin)).await.unwrap();

    let refused = catalog.revoke_key(&tenant, &first.id, NOW + 10).await;
    assert!(matches!(refused, Err(CatalogError::LastAdminKey)));
    assert!(catalog.authenticate(secret.expose(), NOW + 10).is_some());
    // An expired key is not usable, so it may be revoked.
    catalog.revoke_key(&tenant, &expiring.id, NOW + 10).await.unwrap();

    let (second, _) = catalog.create_key(rows::key(&tenant, Scope::Admin)).await.unwrap();
    let (one, two) = tokio::join!(
        catalog.revoke_key(&tenant, &first.id, NOW + 11),
        catalog.revoke_key(&tenant, &second.id, NOW + 11)
    );
    assert!(one.is_ok() && matches!(two, Err(CatalogError::LastAdminKey)), "{one:?} {two:?}");
    assert_eq!(catalog.usable_admin_keys(&tenant, NOW + 11).await.unwrap(), 1);
}

#[tokio::test]
async fn the_use_of_a_key_is_noted_at_most_once_a_minute() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (row, secret) = catalog.create_key(rows::key(&tenant, Scope::Read)).await.unwrap();
    let mut noted = Vec::new();
    for at_ms in [NOW, NOW + 59_999, NOW + 60_000, NOW + 61_000] {
        catalog.authenticate(secret.expose(), at_ms);
        // It was queued before this read, which is executed after it in RAM.
        noted.push(catalog.key(&tenant, &row.id).await.unwrap().unwrap().last_used_ms);
    }
    assert_eq!(noted, [Some(NOW), Some(NOW), Some(NOW + 60_000), Some(NOW + 60_000)]);
}

#[tokio::test]
async fn a_given_secret_must_have_the_shape_and_is_taken_once() {
    for bad in ["", "e2b_", "e2b_xyz", &format!("e2b_{}", "A".repeat(40)), &"é".repeat(22)] {
        assert!(matches!(bad.parse::<KeySecret>(), Err(CatalogError::BadSecret)), "{bad:?}");
    }
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let secret: KeySecret = format!("e2b_{}", "0a".repeat(20)).parse().unwrap();
    let row = catalog.create_key_with_secret(rows::key(&tenant, Scope::Admin), &secret).await.unwrap();
    assert_eq!(row.prefix, "e2b_0a0a");
    assert_eq!(catalog.authenticate(secret.expose(), NOW), Some(row));
    assert!(catalog.create_key_with_secret(rows::key(&tenant, Scope::Admin), &secret).await.is_err());
}

#[tokio::test]
async fn keys_are_listed_in_pages_newest_first() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let mut ids = Vec::new();
    for number in 0..5 {
        let mut new = rows::key(&tenant, Scope::Read);
        new.created_ms += number;
        ids.insert(0, catalog.create_key(new).await.unwrap().0.id);
    }
    let first = catalog.list_keys(&tenant, rows::page(3)).await.unwrap();
    let rest = PageRequest { cursor: first.next_cursor.clone(), limit: 3 };
    let rest = catalog.list_keys(&tenant, rest).await.unwrap();
    assert_eq!(rest.next_cursor, None);
    let seen: Vec<_> = first.rows.into_iter().chain(rest.rows).map(|row| row.id).collect();
    assert_eq!(seen, ids);
}
