//! Images: names that move, images without names, records of removed images, and layers.

use burrow_catalog::{Catalog, CatalogError, LayerRow};
use burrow_model::{ImageId, ImageName, TenantId};

use crate::rows::{self, NOW};

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_newer_image_takes_the_name_over_and_the_older_stays() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (mut old, new) = (rows::image("base", NOW), rows::image("base", NOW + 1));
    assert_eq!(catalog.insert_image(&tenant, old.clone()).await.unwrap(), []);
    assert_eq!(catalog.insert_image(&tenant, new.clone()).await.unwrap(), [old.id.clone()]);

    let named = catalog.image_by_name(&tenant, &name("base")).await.unwrap().unwrap();
    assert_eq!(named.image, new);
    let nameless = catalog.image(&tenant, &old.id).await.unwrap().unwrap();
    old.names.clear();
    assert_eq!(nameless.image, old);
    let listed: Vec<_> =
        catalog.list_images(&tenant).await.unwrap().into_iter().map(|row| row.image.id).collect();
    assert_eq!(listed, [new.id.clone(), old.id.clone()]);
    assert_eq!(catalog.all_images().await.unwrap().len(), 2);

    assert!(catalog.remove_image(&tenant, &new.id, NOW).await.unwrap());
    assert!(!catalog.remove_image(&tenant, &new.id, NOW).await.unwrap());
    assert_eq!(
        catalog.image_by_name(&tenant, &name("base")).await.unwrap(),
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
    assert_eq!(catalog.insert_image(&stranger, theirs).await.unwrap(), []);
    let found = catalog.image_by_name(&catalog.default_tenant(), &name("base")).await.unwrap().unwrap();
    assert_eq!(found.image, ours);
    let tagged = catalog.tag_image(&stranger, &ours.id, name("mine")).await;
    assert!(matches!(tagged, Err(CatalogError::Unknown { .. })), "{tagged:?}");
    assert_eq!(catalog.untag_image(&stranger, &name("other")).await.unwrap(), None);
}

#[tokio::test]
async fn an_image_may_have_several_names_and_lose_them() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (one, two) = (rows::image("one", NOW), rows::image("two", NOW + 1));
    catalog.insert_image(&tenant, one.clone()).await.unwrap();
    catalog.insert_image(&tenant, two.clone()).await.unwrap();
    assert_eq!(catalog.tag_image(&tenant, &one.id, name("registry.example.com/a/b:c")).await.unwrap(), None);
    assert_eq!(catalog.tag_image(&tenant, &one.id, name("one")).await.unwrap(), None, "it has it already");
    assert_eq!(catalog.tag_image(&tenant, &one.id, name("two")).await.unwrap(), Some(two.id.clone()));
    let names = catalog.image(&tenant, &one.id).await.unwrap().unwrap().image.names;
    assert_eq!(names, [name("one"), name("registry.example.com/a/b:c"), name("two")]);

    assert_eq!(catalog.untag_image(&tenant, &name("one")).await.unwrap(), Some(one.id.clone()));
    assert_eq!(catalog.untag_image(&tenant, &name("one")).await.unwrap(), None);
    let unused: Vec<_> =
        catalog.unused_images(&tenant).await.unwrap().into_iter().map(|row| row.image.id).collect();
    assert_eq!(unused, [two.id], "an image with a name is of use");
}

#[tokio::test]
async fn a_removed_image_is_remembered_for_its_sandboxes_only() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let image = rows::image("base", NOW);
    catalog.insert_image(&tenant, image.clone()).await.unwrap();
    let mut row = rows::sandbox(&tenant, NOW);
    row.image = image.id.clone();
    let operation = rows::operation(&row, "create");
    catalog.insert_sandbox_with_operation(row.clone(), operation, None).await.unwrap();
    assert_eq!(catalog.image_users(&tenant, &image.id).await.unwrap(), [row.id.clone()]);

    assert!(catalog.remove_image(&tenant, &image.id, NOW + 5).await.unwrap());
    assert_eq!(catalog.image(&tenant, &image.id).await.unwrap(), None);
    assert!(catalog.list_images(&tenant).await.unwrap().is_empty());
    assert!(catalog.all_images().await.unwrap().is_empty(), "it has no files any more");
    let record = catalog.image_record(&tenant, &image.id).await.unwrap().unwrap();
    assert_eq!((record.image.config, record.removed_ms), (image.config, Some(NOW + 5)));
    assert_eq!(catalog.forget_removed_images().await.unwrap(), 0);
    assert!(matches!(
        catalog.tag_image(&tenant, &image.id, name("again")).await,
        Err(CatalogError::Unknown { .. })
    ));

    catalog.delete_sandbox(&row.id, None, NOW).await.unwrap();
    assert_eq!(catalog.forget_removed_images().await.unwrap(), 1);
    assert_eq!(catalog.image_record(&tenant, &image.id).await.unwrap(), None);
}

fn layer(tenant: &TenantId, key: &str, parent: Option<&LayerRow>) -> LayerRow {
    LayerRow {
        tenant: tenant.clone(),
        key: key.to_owned(),
        disk: ImageId::generate(),
        parent: parent.map(|parent| parent.disk.clone()),
        what: "a layer".to_owned(),
        size_bytes: 7,
        created_ms: NOW,
        used_ms: NOW,
    }
}

fn keys(rows: Vec<LayerRow>) -> Vec<String> {
    let mut keys: Vec<_> = rows.into_iter().map(|row| row.key).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn layers_below_an_image_are_in_use_and_all_others_are_not() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let stranger = rows::stranger(&catalog).await;
    let a = layer(&tenant, "a", None);
    let b = layer(&tenant, "b", Some(&a));
    for row in [a.clone(), b.clone(), layer(&tenant, "c", Some(&b)), layer(&tenant, "d", Some(&a))] {
        catalog.insert_layer(row).await.unwrap();
    }
    catalog.insert_layer(layer(&stranger, "b", None)).await.unwrap();
    let mut image = rows::image("base", NOW);
    image.layer = Some(b.disk.clone());
    catalog.insert_image(&tenant, image.clone()).await.unwrap();
    assert_eq!(catalog.image(&tenant, &image.id).await.unwrap().unwrap().image, image);

    assert_eq!(keys(catalog.unused_layers(&tenant).await.unwrap()), ["c", "d"]);
    assert_eq!(keys(catalog.unused_layers(&stranger).await.unwrap()), ["b"], "another's image uses nothing");
    assert_eq!(catalog.layer_of_disk(&stranger, &b.disk).await.unwrap(), None);
    assert_eq!(catalog.layer_of_disk(&tenant, &b.disk).await.unwrap(), Some(b.clone()));
    catalog.remove_image(&tenant, &image.id, NOW).await.unwrap();
    assert_eq!(catalog.unused_layers(&tenant).await.unwrap().len(), 4);

    catalog.touch_layer(&tenant, "a", NOW + 9).await.unwrap();
    assert_eq!(catalog.layer(&tenant, "a").await.unwrap().unwrap().used_ms, NOW + 9);
    assert!(catalog.delete_layer(&tenant, "a").await.unwrap());
    assert!(!catalog.delete_layer(&tenant, "a").await.unwrap());
    assert_eq!(catalog.all_layers().await.unwrap().len(), 4);
    assert_eq!(catalog.list_layers(&stranger).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_moves_on_to_a_newer_layer_and_the_older_stays_for_its_image() {
    let catalog = Catalog::in_memory().unwrap();
    let tenant = catalog.default_tenant();
    let (old, new) = (layer(&tenant, "step", None), layer(&tenant, "step", None));
    catalog.insert_layer(old.clone()).await.unwrap();
    let mut image = rows::image("base", NOW);
    image.layer = Some(old.disk.clone());
    catalog.insert_image(&tenant, image).await.unwrap();
    catalog.insert_layer(new.clone()).await.unwrap();
    assert_eq!(catalog.layer(&tenant, "step").await.unwrap().unwrap().disk, new.disk);
    let kept = catalog.layer_of_disk(&tenant, &old.disk).await.unwrap().unwrap();
    assert_eq!(kept.key, format!("old:{}", old.disk));
    assert_eq!(keys(catalog.unused_layers(&tenant).await.unwrap()), ["step"]);
}
