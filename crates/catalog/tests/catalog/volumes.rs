//! Volumes: one writer, no removal while in use, and a row that says what is still to be done.

use std::collections::BTreeSet;

use burrow_catalog::{Catalog, CatalogError, SandboxChange, SandboxRow};
use burrow_model::{
    MountMode, SandboxSpec, State, Volume, VolumeId, VolumeMount, VolumeSnapshot, VolumeSnapshotId,
    VolumeState,
};

use crate::rows::{self, NOW};

pub(crate) fn volume(name: &str) -> Volume {
    Volume {
        id: VolumeId::generate(),
        name: name.parse().unwrap(),
        disk_mib: 64,
        state: VolumeState::Making,
        origin: None,
        created_ms: NOW,
    }
}

pub(crate) async fn stored(catalog: &Catalog, name: &str) -> Volume {
    let volume = volume(name);
    catalog.insert_volume(&catalog.default_tenant(), volume.clone()).await.unwrap();
    catalog.settle_volume(&volume.id).await.unwrap();
    Volume { state: VolumeState::Ready, ..volume }
}

pub(crate) fn snapshot(of: &Volume, name: Option<&str>) -> VolumeSnapshot {
    VolumeSnapshot {
        id: VolumeSnapshotId::generate(),
        volume: of.id.clone(),
        name: name.map(|name| name.parse().unwrap()),
        created_ms: NOW,
    }
}

pub(crate) fn mount(volume: &Volume, mode: MountMode) -> VolumeMount {
    let path = format!("/mnt/{}", volume.name).parse().unwrap();
    VolumeMount { volume: volume.id.clone(), name: volume.name.clone(), path, mode }
}

pub(crate) fn sandbox(catalog: &Catalog, volumes: Vec<VolumeMount>) -> SandboxRow {
    let spec = SandboxSpec { volumes, ..rows::spec() };
    SandboxRow { spec, ..rows::sandbox(&catalog.default_tenant(), NOW) }
}

async fn store(catalog: &Catalog, row: &SandboxRow) -> Result<(), CatalogError> {
    let operation = rows::operation(row, "create");
    catalog.insert_sandbox_with_operation(row.clone(), operation, None).await.map(drop)
}

async fn open() -> (tempfile::TempDir, Catalog) {
    let directory = tempfile::tempdir().unwrap();
    let catalog = Catalog::open(&directory.path().join("catalog.db")).unwrap();
    (directory, catalog)
}

#[tokio::test]
async fn a_volume_is_found_by_name_and_id_and_only_by_its_tenant() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let data = stored(&catalog, "data").await;
    for text in ["data", data.id.as_str(), &data.id.as_str()[..9], &data.id.as_str()[3..11]] {
        assert_eq!(catalog.resolve_volume(&tenant, text).await.unwrap().unwrap().volume, data, "{text}");
    }
    let stranger = catalog.create_tenant("stranger", NOW).await.unwrap();
    assert_eq!(catalog.resolve_volume(&stranger, "data").await.unwrap(), None);
    assert_eq!(catalog.volume(&stranger, &data.id).await.unwrap(), None);
    let taken = catalog.insert_volume(&tenant, volume("data")).await;
    assert!(matches!(taken, Err(CatalogError::VolumeNameTaken { existing }) if existing == data.id));
    assert_eq!(catalog.list_volumes(&tenant, rows::page(10)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn one_sandbox_writes_and_any_number_reads() {
    let (_directory, catalog) = open().await;
    let data = stored(&catalog, "data").await;
    let writer = sandbox(&catalog, vec![mount(&data, MountMode::Rw)]);
    store(&catalog, &writer).await.unwrap();
    for _ in 0..2 {
        store(&catalog, &sandbox(&catalog, vec![mount(&data, MountMode::Ro)])).await.unwrap();
    }
    let second = sandbox(&catalog, vec![mount(&data, MountMode::Rw)]);
    let refused = store(&catalog, &second).await.unwrap_err();
    assert!(matches!(&refused, CatalogError::VolumeWritten { by, .. } if *by == writer.id), "{refused}");
    assert_eq!(catalog.sandbox(&second.tenant, &second.id).await.unwrap(), None, "nothing of it was stored");
    assert_eq!(catalog.users_of_volume(&data.id).await.unwrap().len(), 3);
    catalog.delete_sandbox(&writer.id, None, NOW).await.unwrap();
    store(&catalog, &second).await.unwrap();
}

#[tokio::test]
async fn a_changed_specification_takes_and_gives_volumes_in_its_own_commit() {
    let (_directory, catalog) = open().await;
    let (data, other) = (stored(&catalog, "data").await, stored(&catalog, "other").await);
    let (holder, row) = (sandbox(&catalog, vec![mount(&data, MountMode::Rw)]), sandbox(&catalog, Vec::new()));
    store(&catalog, &holder).await.unwrap();
    store(&catalog, &row).await.unwrap();
    let change = |volumes| SandboxChange {
        spec: Some(SandboxSpec { volumes, ..rows::spec() }),
        ..SandboxChange::at(NOW + 1)
    };
    let both = vec![mount(&other, MountMode::Rw), mount(&data, MountMode::Rw)];
    let refused = catalog.update_sandbox(&row.id, change(both), None).await;
    assert!(matches!(refused, Err(CatalogError::VolumeWritten { .. })), "{refused:?}");
    assert_eq!(catalog.users_of_volume(&other.id).await.unwrap(), [], "all of the change or none");
    catalog.update_sandbox(&holder.id, change(Vec::new()), None).await.unwrap();
    catalog.update_sandbox(&row.id, change(vec![mount(&data, MountMode::Rw)]), None).await.unwrap();
    let users = catalog.users_of_volume(&data.id).await.unwrap();
    assert_eq!((users.len(), &users[0].sandbox), (1, &row.id));
}

#[tokio::test]
async fn a_volume_in_use_is_not_removed_and_a_volume_in_removal_is_not_mounted() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let data = stored(&catalog, "data").await;
    let user = sandbox(&catalog, vec![mount(&data, MountMode::Ro)]);
    store(&catalog, &user).await.unwrap();
    let refused = catalog.begin_volume_removal(&tenant, &data.id, true).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("volume `data` is in use by {}", user.id));
    catalog.delete_sandbox(&user.id, None, NOW).await.unwrap();

    let kept = snapshot(&data, Some("first"));
    catalog.insert_volume_snapshot(&tenant, kept.clone()).await.unwrap();
    let busy = catalog.begin_volume_removal(&tenant, &data.id, true).await;
    assert!(matches!(busy, Err(CatalogError::VolumeBusy { .. })), "a snapshot is being taken: {busy:?}");
    catalog.settle_volume_snapshot(&kept.id).await.unwrap();
    let refused = catalog.begin_volume_removal(&tenant, &data.id, false).await;
    assert!(matches!(refused, Err(CatalogError::VolumeHasSnapshots { count: 1, .. })), "{refused:?}");
    assert_eq!(catalog.begin_volume_removal(&tenant, &data.id, true).await.unwrap(), [kept.id]);

    let late = store(&catalog, &sandbox(&catalog, vec![mount(&data, MountMode::Ro)])).await;
    assert!(matches!(late, Err(CatalogError::VolumeBusy { .. })), "{late:?}");
    catalog.delete_volume(&data.id).await.unwrap();
    assert_eq!(catalog.all_volume_snapshots().await.unwrap(), []);
    let gone = store(&catalog, &sandbox(&catalog, vec![mount(&data, MountMode::Ro)])).await.unwrap_err();
    assert_eq!(gone.to_string(), "volume `data` does not exist");
}

#[tokio::test]
async fn a_volume_is_restored_only_while_no_sandbox_that_mounts_it_has_processes() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let (data, other) = (stored(&catalog, "data").await, stored(&catalog, "other").await);
    let kept = snapshot(&data, None);
    catalog.insert_volume_snapshot(&tenant, kept.clone()).await.unwrap();
    let unready = catalog.begin_volume_restore(&tenant, &data.id, &kept.id).await;
    assert!(matches!(unready, Err(CatalogError::Unknown { .. })), "{unready:?}");
    catalog.settle_volume_snapshot(&kept.id).await.unwrap();
    let foreign = catalog.begin_volume_restore(&tenant, &other.id, &kept.id).await;
    assert!(matches!(foreign, Err(CatalogError::Unknown { .. })), "of another volume: {foreign:?}");

    let user = sandbox(&catalog, vec![mount(&data, MountMode::Ro)]);
    store(&catalog, &user).await.unwrap();
    for state in [State::Creating, State::Running, State::Paused, State::Hibernated, State::Starting] {
        let change = SandboxChange { state: Some(state), ..SandboxChange::at(NOW) };
        catalog.update_sandbox(&user.id, change, None).await.unwrap();
        let refused = catalog.begin_volume_restore(&tenant, &data.id, &kept.id).await;
        assert!(matches!(refused, Err(CatalogError::VolumeInUse { .. })), "{state:?}: {refused:?}");
    }
    let stopped = SandboxChange { state: Some(State::Stopped), ..SandboxChange::at(NOW) };
    catalog.update_sandbox(&user.id, stopped, None).await.unwrap();
    catalog.begin_volume_restore(&tenant, &data.id, &kept.id).await.unwrap();
    let row = catalog.volume(&tenant, &data.id).await.unwrap().unwrap();
    assert_eq!((row.volume.state, row.goes_to.as_ref()), (VolumeState::Restoring, Some(&kept.id)));
    let needed = catalog.delete_volume_snapshot(&tenant, &kept.id).await;
    assert!(matches!(needed, Err(CatalogError::VolumeBusy { .. })), "{needed:?}");
    // Other changes of its users are still possible.
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let spec = SandboxSpec { labels, ..user.spec.clone() };
    let change = SandboxChange { spec: Some(spec), ..SandboxChange::at(NOW) };
    catalog.update_sandbox(&user.id, change, None).await.unwrap();
    catalog.settle_volume(&data.id).await.unwrap();
    let row = catalog.volume(&tenant, &data.id).await.unwrap().unwrap();
    assert_eq!((row.volume.state, row.goes_to), (VolumeState::Ready, None));
    catalog.delete_volume_snapshot(&tenant, &kept.id).await.unwrap();
}

#[tokio::test]
async fn the_origin_of_a_volume_is_kept_until_the_volume_is_created() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let data = stored(&catalog, "data").await;
    let kept = snapshot(&data, Some("first"));
    catalog.insert_volume_snapshot(&tenant, kept.clone()).await.unwrap();
    catalog.settle_volume_snapshot(&kept.id).await.unwrap();
    let again = catalog.insert_volume_snapshot(&tenant, snapshot(&data, Some("first"))).await;
    assert!(matches!(again, Err(CatalogError::VolumeSnapshotNameTaken { .. })), "{again:?}");
    let copy = Volume { origin: Some(kept.id.clone()), ..volume("copy") };
    catalog.insert_volume(&tenant, copy.clone()).await.unwrap();
    assert!(catalog.delete_volume_snapshot(&tenant, &kept.id).await.is_err());
    assert!(catalog.begin_volume_removal(&tenant, &data.id, true).await.is_err());
    catalog.settle_volume(&copy.id).await.unwrap();
    catalog.delete_volume_snapshot(&tenant, &kept.id).await.unwrap();
    let gone = Volume { origin: Some(kept.id), ..volume("late") };
    assert!(matches!(catalog.insert_volume(&tenant, gone).await, Err(CatalogError::Unknown { .. })));
}

#[tokio::test]
async fn a_volume_missing_from_a_backup_is_removed_from_all_sandboxes() {
    let (_directory, catalog) = open().await;
    let tenant = catalog.default_tenant();
    let (kept, lost) = (stored(&catalog, "kept").await, stored(&catalog, "lost").await);
    let row = sandbox(&catalog, vec![mount(&lost, MountMode::Rw), mount(&kept, MountMode::Ro)]);
    store(&catalog, &row).await.unwrap();
    let snapshot = snapshot(&kept, None);
    catalog.insert_volume_snapshot(&tenant, snapshot).await.unwrap();
    let volumes = BTreeSet::from([kept.id.clone()]);
    catalog.settle_volumes_of_backup(volumes, BTreeSet::new()).await.unwrap();
    let row = catalog.sandbox(&tenant, &row.id).await.unwrap().unwrap();
    assert_eq!(row.spec.volumes, [mount(&kept, MountMode::Ro)]);
    assert_eq!(catalog.volume(&tenant, &lost.id).await.unwrap(), None);
    assert_eq!(catalog.users_of_volume(&kept.id).await.unwrap().len(), 1);
    assert_eq!(catalog.all_volume_snapshots().await.unwrap(), []);
}
