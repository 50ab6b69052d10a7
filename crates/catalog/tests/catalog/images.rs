//! Images: a name points at the newest, the older stays until it is removed.

use burrow_catalog::Catalog;

use crate::rows::{self, NOW};

#[tokio::test]
async fn a_newer_image_takes_the_name_over_and_the_older_stays() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (old, new) = (rows::image("base", NOW), rows::image("base", NOW + 1));
    assert_eq!(catalog.insert_image(&tenant, old.clone()).await.unwrap(), None);
    assert_eq!(catalog.insert_image(&tenant, new.clone()).await.unwrap(), Some(old.id.clone()));

    let named = catalog.image_by_name(&tenant, &old.name).await.unwrap().unwrap();
    assert!(named.image == new && named.named);
    let nameless = catalog.image(&tenant, &old.id).await.unwrap().unwrap();
    assert!(nameless.image == old && !nameless.named);
    let listed: Vec<_> =
        catalog.list_images(&tenant).await.unwrap().into_iter().map(|row| row.image.id).collect();
    assert_eq!(listed, [new.id.clone(), old.id.clone()]);
    assert_eq!(catalog.all_images().await.unwrap().len(), 2);

    assert!(catalog.delete_image(&tenant, &new.id).await.unwrap());
    assert!(!catalog.delete_image(&tenant, &new.id).await.unwrap());
    assert_eq!(
        catalog.image_by_name(&tenant, &old.name).await.unwrap(),
        None,
        "a name never falls back by itself"
    );
}

#[tokio::test]
async fn tenants_have_names_of_their_own() {
    let catalog = Catalog::in_memory().unwrap();
    let stranger = rows::stranger(&catalog).await;
    let (ours, theirs) = (rows::image("base", NOW), rows::image("base", NOW));
    catalog.insert_image(&catalog.default_tenant(), ours.clone()).await.unwrap();
    assert_eq!(catalog.insert_image(&stranger, theirs).await.unwrap(), None);
    let found = catalog.image_by_name(&catalog.default_tenant(), &ours.name).await.unwrap().unwrap();
    assert_eq!(found.image, ours);
}
