//! Volumes that outlive sandboxes ("shelves"): made, copied, put back, removed, and mounted into machines.
//!
//! ```text
//!   create    row `making` ─► subvolume ─► `ready`                     a crash undoes it
//!   snapshot  row, not ready ─► read-only subvolume ─► ready           a crash undoes it
//!   restore   row `restoring`, with what it goes to ─► replaced ─► `ready`    a crash completes it
//!   delete    row `removing` ─► subvolumes gone ─► row gone            a crash completes it
//! ```
//!
//! A row's state is the whole plan (see `catalog/src/shelves.rs`, which also decides who may have one): no operation of a
//! sandbox's journal is needed, since no sandbox is part of any of this. Whoever reads or writes files of one by way of the host
//! holds a *turn*; going back and removing take it alone, so that nothing is written to what is being replaced.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use burrow_catalog::{Page, PageRequest, SandboxRow, ShelfRow, ShelfUser};
use burrow_model::{
    MIB, MountMode, MountPath, Name, Shelf, ShelfId, ShelfMount, ShelfSnapshot, ShelfSnapshotId, ShelfState,
    TenantId, check_mounts,
};
use burrow_runtime::{Ability, Mount, Runtime};
use burrow_volumes::VolumeError;
use burrow_volumes::shelf_files::ShelfFiles;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::engine::shown;
use crate::shared::Shared;
use crate::{Engine, EngineError, faults};

#[derive(Clone, Debug)]
pub struct ShelfOptions {
    pub name: Name,
    /// Most that is written to it.
    pub disk_mib: u32,
    /// Of any volume of the tenant's; else it begins empty.
    pub from: Option<ShelfSnapshotId>,
}

/// A volume as somebody asks for it.
#[derive(Clone, Debug)]
pub struct MountWish {
    /// Name or id.
    pub volume: String,
    pub path: MountPath,
    pub mode: MountMode,
}

/// The files of a volume, which stays as it is and in its place while this is held.
#[derive(Clone, Debug)]
pub struct OpenShelf {
    pub files: Arc<ShelfFiles>,
    _turn: Arc<OwnedRwLockReadGuard<()>>,
}

/// Who uses the files of which volume at this moment.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    // As many as there are volumes; one goes with its volume.
    locks: Mutex<HashMap<ShelfId, Arc<RwLock<()>>>>,
}

impl Turns {
    fn lock(&self, id: &ShelfId) -> Arc<RwLock<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.entry(id.clone()).or_default().clone()
    }

    /// Among others. `None`: it is being put back or removed.
    fn share(&self, id: &ShelfId) -> Option<OwnedRwLockReadGuard<()>> {
        self.lock(id).try_read_owned().ok()
    }

    /// Alone. `None`: somebody reads or writes its files.
    fn take(&self, id: &ShelfId) -> Option<OwnedRwLockWriteGuard<()>> {
        self.lock(id).try_write_owned().ok()
    }

    fn forget(&self, id: &ShelfId) {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Engine {
    pub async fn create_shelf(&self, tenant: &TenantId, options: ShelfOptions) -> Result<Shelf, EngineError> {
        let max = self.shared.policy.limits_max.disk_mib;
        let ShelfOptions { name, disk_mib, from } = options;
        if disk_mib > max {
            return Err(EngineError::LimitAboveMax { field: "disk_mib", given: disk_mib, max });
        }
        crate::dump::check_room(&self.shared, 0).await?;
        let (catalog, volumes) = (&self.shared.seams.catalog, &self.shared.seams.volumes);
        let created_ms = self.now_ms();
        let shelf = Shelf {
            id: ShelfId::generate(),
            name,
            disk_mib,
            state: ShelfState::Making,
            origin: from.clone(),
            created_ms,
        };
        catalog.insert_shelf(tenant, shelf.clone()).await?;
        let made = async {
            faults::hit("shelf.begun")?;
            volumes.create_shelf(&shelf.id, from.as_ref(), bytes(disk_mib)).await?;
            faults::hit("shelf.made")?;
            Ok::<_, EngineError>(catalog.settle_shelf(&shelf.id).await?)
        };
        if let Err(error) = made.await {
            undo_create(&self.shared, &shelf.id).await;
            return Err(error);
        }
        let detail = serde_json::json!({ "volume": shelf.id, "name": shelf.name, "from": from });
        self.shared.event(tenant, "volume.created", None, detail);
        Ok(Shelf { state: ShelfState::Ready, ..shelf })
    }

    /// By id, unique prefix of an id, or name. One that is still being made is not there; one that goes can only be removed again.
    pub async fn find_shelf(&self, tenant: &TenantId, text: &str) -> Result<Shelf, EngineError> {
        let found = self.shared.seams.catalog.resolve_shelf(tenant, text).await?;
        let seen = |row: &ShelfRow| row.shelf.state != ShelfState::Making;
        let unknown = || EngineError::ShelfNotFound { what: shown(text) };
        found.filter(seen).map(|row| row.shelf).ok_or_else(unknown)
    }

    pub async fn shelves(&self, tenant: &TenantId, page: PageRequest) -> Result<Page<ShelfRow>, EngineError> {
        Ok(self.shared.seams.catalog.list_shelves(tenant, page).await?)
    }

    pub async fn users_of_shelf(&self, id: &ShelfId) -> Result<Vec<ShelfUser>, EngineError> {
        Ok(self.shared.seams.catalog.users_of_shelf(id).await?)
    }

    /// Bytes charged to it; `None` where the pool keeps no account.
    pub async fn shelf_used(&self, id: &ShelfId) -> Result<Option<u64>, EngineError> {
        match self.shared.seams.volumes.shelf_used(id).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(VolumeError::NoQuotas { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a volume that no sandbox has; with `with_snapshots` also one that has some.
    pub async fn delete_shelf(
        &self,
        tenant: &TenantId,
        shelf: &Shelf,
        with_snapshots: bool,
    ) -> Result<(), EngineError> {
        let _turn = self.shared.shelves.take(&shelf.id).ok_or_else(|| busy(shelf))?;
        let catalog = &self.shared.seams.catalog;
        let snapshots = catalog.begin_shelf_removal(tenant, &shelf.id, with_snapshots).await?;
        remove(&self.shared, &shelf.id, &snapshots).await?;
        let detail = serde_json::json!({ "volume": shelf.id, "name": shelf.name });
        self.shared.event(tenant, "volume.deleted", None, detail);
        Ok(())
    }

    /// The files as they are at this moment: those of a sandbox that writes meanwhile as a power cut would leave them.
    pub async fn snapshot_shelf(
        &self,
        tenant: &TenantId,
        shelf: &Shelf,
        name: Option<Name>,
    ) -> Result<ShelfSnapshot, EngineError> {
        crate::dump::check_room(&self.shared, 0).await?;
        let (catalog, volumes) = (&self.shared.seams.catalog, &self.shared.seams.volumes);
        let id = ShelfSnapshotId::generate();
        let snapshot = ShelfSnapshot { id, shelf: shelf.id.clone(), name, created_ms: self.now_ms() };
        catalog.insert_shelf_snapshot(tenant, snapshot.clone()).await?;
        let taken = async {
            faults::hit("shelf.snapshot.begun")?;
            volumes.snapshot_shelf(&snapshot.id, &shelf.id).await?;
            faults::hit("shelf.snapshot.taken")?;
            Ok::<_, EngineError>(catalog.settle_shelf_snapshot(&snapshot.id).await?)
        };
        if let Err(error) = taken.await {
            undo_snapshot(&self.shared, tenant, &snapshot.id).await;
            return Err(error);
        }
        let detail =
            serde_json::json!({ "volume": shelf.id, "snapshot": snapshot.id, "name": snapshot.name });
        self.shared.event(tenant, "volume.snapshotted", None, detail);
        Ok(snapshot)
    }

    /// Of one volume, newest first.
    pub async fn shelf_snapshots(&self, shelf: &ShelfId) -> Result<Vec<ShelfSnapshot>, EngineError> {
        Ok(self.shared.seams.catalog.snapshots_of_shelf(shelf).await?)
    }

    /// One of a volume's snapshots, by id, the beginning of it, or name.
    pub async fn find_shelf_snapshot(&self, shelf: &Shelf, text: &str) -> Result<ShelfSnapshot, EngineError> {
        let all = self.shelf_snapshots(&shelf.id).await?;
        let named = |snapshot: &&ShelfSnapshot| {
            snapshot.id.as_str() == text || snapshot.name.as_ref().is_some_and(|name| name.as_str() == text)
        };
        let begun = |snapshot: &&ShelfSnapshot| {
            text.len() > ShelfSnapshotId::PREFIX.len() && snapshot.id.as_str().starts_with(text)
        };
        let unknown = || EngineError::ShelfSnapshotNotFound { what: shown(text), volume: shelf.name.clone() };
        if let Some(found) = all.iter().find(named) {
            return Ok(found.clone());
        }
        let mut fitting = all.iter().filter(begun);
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) | (None, _) => Err(unknown()),
        }
    }

    pub async fn delete_shelf_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: &ShelfSnapshot,
    ) -> Result<(), EngineError> {
        // Its row first: a crash in between leaves what no row names, which a start removes.
        self.shared.seams.catalog.delete_shelf_snapshot(tenant, &snapshot.id).await?;
        self.shared.seams.volumes.remove_shelf_snapshot(&snapshot.id).await?;
        let detail = serde_json::json!({ "volume": snapshot.shelf, "snapshot": snapshot.id });
        self.shared.event(tenant, "volume.snapshot-deleted", None, detail);
        Ok(())
    }

    /// Puts a volume back to one of its snapshots. What is in it now is gone, unless a snapshot has it.
    pub async fn restore_shelf(
        &self,
        tenant: &TenantId,
        shelf: &Shelf,
        snapshot: &ShelfSnapshot,
    ) -> Result<(), EngineError> {
        let _turn = self.shared.shelves.take(&shelf.id).ok_or_else(|| busy(shelf))?;
        let (catalog, volumes) = (&self.shared.seams.catalog, &self.shared.seams.volumes);
        catalog.begin_shelf_restore(tenant, &shelf.id, &snapshot.id).await?;
        let replaced = async {
            faults::hit("shelf.restore.begun")?;
            volumes.replace_shelf(&shelf.id, &snapshot.id, bytes(shelf.disk_mib)).await?;
            faults::hit("shelf.restore.replaced")
        };
        // Whether it was replaced or not, it is whole: nothing is left to do with it.
        let replaced = replaced.await;
        catalog.settle_shelf(&shelf.id).await?;
        replaced?;
        let detail = serde_json::json!({ "volume": shelf.id, "snapshot": snapshot.id });
        self.shared.event(tenant, "volume.restored", None, detail);
        Ok(())
    }

    /// The files of a volume, to be read and changed by the host.
    pub async fn open_shelf(&self, tenant: &TenantId, id: &ShelfId) -> Result<OpenShelf, EngineError> {
        let unknown = || EngineError::ShelfNotFound { what: id.to_string() };
        let row = self.shared.seams.catalog.shelf(tenant, id).await?.ok_or_else(unknown)?;
        let turn = self.shared.shelves.share(id).ok_or_else(|| busy(&row.shelf))?;
        // Looked at again with the turn in hand: from here on nobody changes it.
        let row = self.shared.seams.catalog.shelf(tenant, id).await?.ok_or_else(unknown)?;
        if row.shelf.state != ShelfState::Ready {
            return Err(busy(&row.shelf));
        }
        let root = self.shared.seams.volumes.locate_shelf(id).await?;
        Ok(OpenShelf { files: Arc::new(ShelfFiles::open(&root)?), _turn: Arc::new(turn) })
    }

    /// What was asked for, found and checked.
    pub async fn find_mounts(
        &self,
        tenant: &TenantId,
        wishes: Vec<MountWish>,
    ) -> Result<Vec<ShelfMount>, EngineError> {
        let mut mounts = Vec::with_capacity(wishes.len());
        for MountWish { volume, path, mode } in wishes {
            let shelf = self.find_shelf(tenant, &volume).await?;
            mounts.push(ShelfMount { shelf: shelf.id, name: shelf.name, path, mode });
        }
        check_mounts(&mounts)?;
        Ok(mounts)
    }

    /// Those of a snapshot's volumes that are still there. Without the others its processes cannot go on.
    pub(crate) async fn mounts_left(
        &self,
        tenant: &TenantId,
        mounts: Vec<ShelfMount>,
        with_processes: bool,
    ) -> Result<Vec<ShelfMount>, EngineError> {
        let mut left = Vec::with_capacity(mounts.len());
        for mount in mounts {
            match self.shared.seams.catalog.shelf(tenant, &mount.shelf).await? {
                Some(row) if row.shelf.state != ShelfState::Removing => left.push(mount),
                Some(_) | None if with_processes => {
                    return Err(EngineError::VolumeMissing { name: mount.name });
                }
                Some(_) | None => {}
            }
        }
        Ok(left)
    }
}

/// Refuses a driver that has none.
pub(crate) fn check_driver(runtime: &dyn Runtime, mounts: &[ShelfMount]) -> Result<(), EngineError> {
    match runtime.capabilities().volumes {
        Ability::No { reason, .. } if !mounts.is_empty() => {
            Err(EngineError::NoVolumes { driver: runtime.name(), reason })
        }
        Ability::No { .. } | Ability::Yes => Ok(()),
    }
}

/// Where the volumes of a sandbox are on this host. Its row says by now that it is up, or about to be: so no volume goes back
/// from here on, and one that is on its way back is not used.
pub(crate) async fn mounts_of(shared: &Shared, row: &SandboxRow) -> Result<Vec<Mount>, EngineError> {
    let mut mounts = Vec::with_capacity(row.spec.volumes.len());
    for mount in &row.spec.volumes {
        let unknown = || EngineError::ShelfNotFound { what: mount.name.to_string() };
        let found = shared.seams.catalog.shelf(&row.tenant, &mount.shelf).await?.ok_or_else(unknown)?;
        if found.shelf.state != ShelfState::Ready {
            return Err(busy(&found.shelf));
        }
        let source = shared.seams.volumes.locate_shelf(&mount.shelf).await?;
        mounts.push(Mount { source, target: mount.path.clone(), mode: mount.mode });
    }
    Ok(mounts)
}

/// Completes or undoes what an earlier daemon left open, then removes what no row names.
pub(crate) async fn recover(shared: &Shared) -> Result<(), EngineError> {
    let (catalog, volumes) = (&shared.seams.catalog, &shared.seams.volumes);
    for row in catalog.all_shelf_snapshots().await?.into_iter().filter(|row| !row.ready) {
        undo_snapshot(shared, &row.tenant, &row.snapshot.id).await;
    }
    for row in catalog.all_shelves().await? {
        let (id, state) = (&row.shelf.id, row.shelf.state);
        let settled = async {
            match (state, &row.goes_to) {
                (ShelfState::Ready, _) => {}
                (ShelfState::Making, _) => undo_create(shared, id).await,
                (ShelfState::Restoring, Some(snapshot)) => {
                    volumes.replace_shelf(id, snapshot, bytes(row.shelf.disk_mib)).await?;
                    catalog.settle_shelf(id).await?;
                }
                (ShelfState::Restoring, None) => catalog.settle_shelf(id).await?,
                (ShelfState::Removing, _) => {
                    let snapshots = catalog.snapshots_of_shelf(id).await?;
                    let snapshots: Vec<_> = snapshots.into_iter().map(|snapshot| snapshot.id).collect();
                    remove(shared, id, &snapshots).await?;
                }
            }
            Ok::<_, EngineError>(())
        };
        if let Err(error) = settled.await {
            tracing::error!(
                volume = %id, error = &error as &dyn std::error::Error,
                "could not finish what was being done to a volume; the next start tries again"
            );
        }
    }
    Ok(())
}

/// Removes what no row names.
pub(crate) async fn sweep(shared: &Shared, found: &burrow_volumes::Inventory) -> Result<(), EngineError> {
    let (catalog, volumes) = (&shared.seams.catalog, &shared.seams.volumes);
    let known: HashSet<ShelfId> = catalog.all_shelves().await?.into_iter().map(|row| row.shelf.id).collect();
    for id in found.shelves.iter().filter(|id| !known.contains(id)) {
        tracing::warn!(volume = %id, "removing a volume that was never finished");
        volumes.remove_shelf(id).await?;
    }
    let all = catalog.all_shelf_snapshots().await?;
    let known: HashSet<ShelfSnapshotId> = all.into_iter().map(|row| row.snapshot.id).collect();
    for id in found.shelf_snapshots.iter().filter(|id| !known.contains(id)) {
        tracing::warn!(snapshot = %id, "removing a snapshot of a volume that was never finished");
        volumes.remove_shelf_snapshot(id).await?;
    }
    Ok(())
}

async fn remove(shared: &Shared, id: &ShelfId, snapshots: &[ShelfSnapshotId]) -> Result<(), EngineError> {
    faults::hit("shelf.remove.begun")?;
    for snapshot in snapshots {
        shared.seams.volumes.remove_shelf_snapshot(snapshot).await?;
    }
    shared.seams.volumes.remove_shelf(id).await?;
    faults::hit("shelf.remove.removed")?;
    shared.seams.catalog.delete_shelf(id).await?;
    shared.shelves.forget(id);
    Ok(())
}

/// What cannot be undone now keeps its row, for the next start.
async fn undo_create(shared: &Shared, id: &ShelfId) {
    let undone = async {
        shared.seams.volumes.remove_shelf(id).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_shelf(id).await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(volume = %id, error = &error as &dyn std::error::Error, "could not undo making a volume");
    }
}

async fn undo_snapshot(shared: &Shared, tenant: &TenantId, id: &ShelfSnapshotId) {
    let undone = async {
        shared.seams.volumes.remove_shelf_snapshot(id).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_shelf_snapshot(tenant, id).await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(snapshot = %id, error = &error as &dyn std::error::Error, "could not undo a snapshot of a volume");
    }
}

fn busy(shelf: &Shelf) -> EngineError {
    burrow_catalog::CatalogError::ShelfBusy { name: shelf.name.clone() }.into()
}

fn bytes(disk_mib: u32) -> u64 {
    u64::from(disk_mib) * MIB
}
