//! Volumes that outlive sandboxes: creates, snapshots, restores, deletes and mounts them.
//!
//! ```text
//!   create    row `making` ─► subvolume ─► `ready`                           a crash undoes it
//!   snapshot  row, not ready ─► read-only subvolume ─► ready                 a crash undoes it
//!   restore   row `restoring`, with the snapshot ─► replaced ─► `ready`      a crash completes it
//!   delete    row `removing` ─► subvolumes removed ─► row deleted            a crash completes it
//! ```
//!
//! The state of a row says which step is unfinished (see `catalog/src/volumes.rs`, which also decides which sandbox may have a
//! volume). No operation of a sandbox's journal is needed, since these changes involve no sandbox. Reading or writing the files of
//! a volume through the host requires its lock, shared; restore and delete take it exclusively, so that no process writes to files
//! that are being replaced.

mod file_locks;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use burrow_catalog::{Page, PageRequest, SandboxRow, VolumeRow, VolumeSnapshotRow, VolumeUser};
use burrow_disks::DiskError;
use burrow_disks::volume_files::VolumeFiles;
use burrow_model::{
    MIB, MountMode, MountPath, Name, TenantId, Volume, VolumeId, VolumeMount, VolumeSnapshot,
    VolumeSnapshotId, VolumeState, check_mounts,
};
use burrow_runtime::{Ability, Mount, Runtime};
use tokio::sync::OwnedRwLockReadGuard;
use tokio::task::JoinSet;

use crate::shared::Shared;
use crate::shown::shown;
use crate::{Engine, EngineError, ObjectKind, VolumeRefusal, faults};

pub(crate) use file_locks::FileLocks;

#[derive(Clone, Debug)]
pub struct VolumeOptions {
    pub name: Name,
    /// The most that can be written to it.
    pub disk_mib: u32,
    /// A snapshot of any volume of this tenant; without one the volume starts empty.
    pub from: Option<VolumeSnapshotId>,
}

/// A request to mount a volume.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// Name or id.
    pub volume: String,
    pub path: MountPath,
    pub mode: MountMode,
}

/// The open files of a volume. While this value exists, the volume is neither restored nor removed.
#[derive(Clone, Debug)]
pub struct OpenVolume {
    pub files: Arc<VolumeFiles>,
    _lock: Arc<OwnedRwLockReadGuard<()>>,
}

impl Engine {
    pub async fn create_volume(
        &self,
        tenant: &TenantId,
        options: VolumeOptions,
    ) -> Result<Volume, EngineError> {
        let max = self.shared.policy.limits_max.disk_mib;
        let VolumeOptions { name, disk_mib, from } = options;
        if disk_mib > max {
            return Err(EngineError::LimitAboveMax { field: "disk_mib", given: disk_mib, max });
        }
        crate::snapshots::dump::check_room(&self.shared, 0).await?;
        let (catalog, disks) = (&self.shared.seams.catalog, &self.shared.seams.disks);
        let created_ms = self.now_ms();
        let volume = Volume {
            id: VolumeId::generate(),
            name,
            disk_mib,
            state: VolumeState::Making,
            origin: from.clone(),
            created_ms,
        };
        catalog.insert_volume(tenant, volume.clone()).await?;
        let made = async {
            faults::hit("volume.begun")?;
            disks.create((&volume.id).into(), from.as_ref().map(Into::into), bytes(disk_mib)).await?;
            faults::hit("volume.made")?;
            Ok::<_, EngineError>(catalog.settle_volume(&volume.id).await?)
        };
        if let Err(error) = made.await {
            undo_create(&self.shared, &volume.id).await;
            return Err(error);
        }
        let detail = serde_json::json!({ "volume": volume.id, "name": volume.name, "from": from });
        self.shared.event(tenant, "volume.created", None, detail);
        Ok(Volume { state: VolumeState::Ready, ..volume })
    }

    /// By id, unique prefix of an id, or name. A volume in creation is not found; a volume in removal is, so that the removal can be repeated.
    pub async fn find_volume(&self, tenant: &TenantId, text: &str) -> Result<Volume, EngineError> {
        let found = self.shared.seams.catalog.resolve_volume(tenant, text).await?;
        let seen = |row: &VolumeRow| row.volume.state != VolumeState::Making;
        let unknown = || EngineError::NotFound { kind: ObjectKind::Volume, what: shown(text) };
        found.filter(seen).map(|row| row.volume).ok_or_else(unknown)
    }

    pub async fn volumes(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Page<VolumeRow>, EngineError> {
        Ok(self.shared.seams.catalog.list_volumes(tenant, page).await?)
    }

    pub async fn users_of_volume(&self, id: &VolumeId) -> Result<Vec<VolumeUser>, EngineError> {
        Ok(self.shared.seams.catalog.users_of_volume(id).await?)
    }

    /// Bytes charged to it; `None` if quotas are not enabled on the pool.
    pub async fn volume_used(&self, id: &VolumeId) -> Result<Option<u64>, EngineError> {
        match self.shared.seams.disks.used(id.into()).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(DiskError::NoQuotas { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a volume that no sandbox uses. Without `with_snapshots`, a volume that has snapshots is not removed.
    pub async fn delete_volume(
        &self,
        tenant: &TenantId,
        volume: &Volume,
        with_snapshots: bool,
    ) -> Result<(), EngineError> {
        let _lock = self.shared.volumes.lock_exclusive(&volume.id).ok_or_else(|| busy(volume))?;
        let catalog = &self.shared.seams.catalog;
        let snapshots = catalog.begin_volume_removal(tenant, &volume.id, with_snapshots).await?;
        remove(&self.shared, &volume.id, &snapshots).await?;
        let detail = serde_json::json!({ "volume": volume.id, "name": volume.name });
        self.shared.event(tenant, "volume.deleted", None, detail);
        Ok(())
    }

    /// Captures the files at this moment. If a sandbox is writing to them, they are as after a power failure.
    pub async fn snapshot_volume(
        &self,
        tenant: &TenantId,
        volume: &Volume,
        name: Option<Name>,
    ) -> Result<VolumeSnapshot, EngineError> {
        crate::snapshots::dump::check_room(&self.shared, 0).await?;
        let (catalog, disks) = (&self.shared.seams.catalog, &self.shared.seams.disks);
        let id = VolumeSnapshotId::generate();
        let snapshot = VolumeSnapshot { id, volume: volume.id.clone(), name, created_ms: self.now_ms() };
        catalog.insert_volume_snapshot(tenant, snapshot.clone()).await?;
        let taken = async {
            faults::hit("volume.snapshot.begun")?;
            disks.snapshot((&snapshot.id).into(), (&volume.id).into()).await?;
            faults::hit("volume.snapshot.taken")?;
            Ok::<_, EngineError>(catalog.settle_volume_snapshot(&snapshot.id).await?)
        };
        if let Err(error) = taken.await {
            undo_snapshot(&self.shared, tenant, &snapshot.id).await;
            return Err(error);
        }
        let detail =
            serde_json::json!({ "volume": volume.id, "snapshot": snapshot.id, "name": snapshot.name });
        self.shared.event(tenant, "volume.snapshotted", None, detail);
        Ok(snapshot)
    }

    /// The snapshots of one volume, newest first.
    pub async fn volume_snapshots(&self, volume: &VolumeId) -> Result<Vec<VolumeSnapshot>, EngineError> {
        Ok(self.shared.seams.catalog.snapshots_of_volume(volume).await?)
    }

    /// A snapshot of a volume, by id, unique prefix of an id, or name.
    pub async fn find_volume_snapshot(
        &self,
        volume: &Volume,
        text: &str,
    ) -> Result<VolumeSnapshot, EngineError> {
        let all = self.volume_snapshots(&volume.id).await?;
        let named = |snapshot: &&VolumeSnapshot| {
            snapshot.id.as_str() == text || snapshot.name.as_ref().is_some_and(|name| name.as_str() == text)
        };
        let begun = |snapshot: &&VolumeSnapshot| {
            text.len() > VolumeSnapshotId::PREFIX.len() && snapshot.id.as_str().starts_with(text)
        };
        let unknown =
            || EngineError::VolumeSnapshotNotFound { what: shown(text), volume: volume.name.clone() };
        if let Some(found) = all.iter().find(named) {
            return Ok(found.clone());
        }
        let mut fitting = all.iter().filter(begun);
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) | (None, _) => Err(unknown()),
        }
    }

    pub async fn delete_volume_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: &VolumeSnapshot,
    ) -> Result<(), EngineError> {
        // Its row first: a crash in between leaves a subvolume without a row, which the next start removes.
        self.shared.seams.catalog.delete_volume_snapshot(tenant, &snapshot.id).await?;
        self.shared.seams.disks.remove((&snapshot.id).into()).await?;
        let detail = serde_json::json!({ "volume": snapshot.volume, "snapshot": snapshot.id });
        self.shared.event(tenant, "volume.snapshot-deleted", None, detail);
        Ok(())
    }

    /// Restores a volume to one of its snapshots. Its present contents are lost, unless a snapshot holds them.
    pub async fn restore_volume(
        &self,
        tenant: &TenantId,
        volume: &Volume,
        snapshot: &VolumeSnapshot,
    ) -> Result<(), EngineError> {
        let _lock = self.shared.volumes.lock_exclusive(&volume.id).ok_or_else(|| busy(volume))?;
        let (catalog, disks) = (&self.shared.seams.catalog, &self.shared.seams.disks);
        catalog.begin_volume_restore(tenant, &volume.id, &snapshot.id).await?;
        let replaced = async {
            faults::hit("volume.restore.begun")?;
            disks.replace((&volume.id).into(), (&snapshot.id).into(), bytes(volume.disk_mib)).await?;
            faults::hit("volume.restore.replaced")
        };
        // Whether it was replaced or not, its contents are consistent: nothing else has to be done.
        let replaced = replaced.await;
        catalog.settle_volume(&volume.id).await?;
        replaced?;
        let detail = serde_json::json!({ "volume": volume.id, "snapshot": snapshot.id });
        self.shared.event(tenant, "volume.restored", None, detail);
        Ok(())
    }

    /// Opens the files of a volume, for reading and writing by the host.
    pub async fn open_volume(&self, tenant: &TenantId, id: &VolumeId) -> Result<OpenVolume, EngineError> {
        let unknown = || EngineError::NotFound { kind: ObjectKind::Volume, what: id.to_string() };
        let row = self.shared.seams.catalog.volume(tenant, id).await?.ok_or_else(unknown)?;
        let lock = self.shared.volumes.lock_shared(id).ok_or_else(|| busy(&row.volume))?;
        // Read again under the lock: from here on no other task changes the row.
        let row = self.shared.seams.catalog.volume(tenant, id).await?.ok_or_else(unknown)?;
        if row.volume.state != VolumeState::Ready {
            return Err(busy(&row.volume));
        }
        let root = self.shared.seams.disks.locate(id.into()).await?;
        Ok(OpenVolume { files: Arc::new(VolumeFiles::open(&root)?), _lock: Arc::new(lock) })
    }

    /// Resolves and checks requested mounts.
    pub async fn find_mounts(
        &self,
        tenant: &TenantId,
        wishes: Vec<MountRequest>,
    ) -> Result<Vec<VolumeMount>, EngineError> {
        let mut mounts = Vec::with_capacity(wishes.len());
        for MountRequest { volume, path, mode } in wishes {
            let volume = self.find_volume(tenant, &volume).await?;
            mounts.push(VolumeMount { volume: volume.id, name: volume.name, path, mode });
        }
        check_mounts(&mounts)?;
        Ok(mounts)
    }

    /// The volumes of a snapshot that still exist. Without the others its processes cannot resume.
    pub(crate) async fn mounts_left(
        &self,
        tenant: &TenantId,
        mounts: Vec<VolumeMount>,
        with_processes: bool,
    ) -> Result<Vec<VolumeMount>, EngineError> {
        let mut left = Vec::with_capacity(mounts.len());
        for mount in mounts {
            match self.shared.seams.catalog.volume(tenant, &mount.volume).await? {
                Some(row) if row.volume.state != VolumeState::Removing => left.push(mount),
                Some(_) | None if with_processes => {
                    return Err(EngineError::Volumes(VolumeRefusal::Missing { name: mount.name }));
                }
                Some(_) | None => {}
            }
        }
        Ok(left)
    }
}

/// Refuses volumes for a driver that does not support them.
pub(crate) fn check_driver(runtime: &dyn Runtime, mounts: &[VolumeMount]) -> Result<(), EngineError> {
    match runtime.capabilities().volumes {
        Ability::No { reason, .. } if !mounts.is_empty() => {
            Err(EngineError::Volumes(VolumeRefusal::Unsupported { driver: runtime.name(), reason }))
        }
        Ability::No { .. } | Ability::Yes => Ok(()),
    }
}

/// Where the volumes of a sandbox are on this host. By now its row says that it is up, or about to be. So no restore of one of its
/// volumes can begin, and a volume that is being restored is not used.
pub(crate) async fn mounts_of(shared: &Shared, row: &SandboxRow) -> Result<Vec<Mount>, EngineError> {
    let mut mounts = Vec::with_capacity(row.spec.volumes.len());
    for mount in &row.spec.volumes {
        let unknown = || EngineError::NotFound { kind: ObjectKind::Volume, what: mount.name.to_string() };
        let found = shared.seams.catalog.volume(&row.tenant, &mount.volume).await?.ok_or_else(unknown)?;
        if found.volume.state != VolumeState::Ready {
            return Err(busy(&found.volume));
        }
        let source = shared.seams.disks.locate((&mount.volume).into()).await?;
        mounts.push(Mount { source, target: mount.path.clone(), mode: mount.mode });
    }
    Ok(mounts)
}

/// Completes or undoes the operations that an earlier daemon left unfinished, in one task per volume.
pub(crate) async fn recover(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let mut unfinished: HashMap<VolumeId, Vec<VolumeSnapshotRow>> = HashMap::new();
    for row in catalog.all_volume_snapshots().await?.into_iter().filter(|row| !row.ready) {
        unfinished.entry(row.snapshot.volume.clone()).or_default().push(row);
    }
    for row in catalog.all_volumes().await? {
        let snapshots = unfinished.remove(&row.volume.id).unwrap_or_default();
        let shared = shared.clone();
        tasks.spawn(async move {
            for row in &snapshots {
                undo_snapshot(&shared, &row.tenant, &row.snapshot.id).await;
            }
            if let Err(error) = settle(&shared, &row).await {
                tracing::error!(
                    volume = %row.volume.id, error = &error as &dyn std::error::Error,
                    "could not complete or undo an unfinished operation of a volume; the next start tries again"
                );
            }
        });
    }
    Ok(())
}

/// Completes or undoes the unfinished operation of one volume. Until then the volume is busy.
async fn settle(shared: &Shared, row: &VolumeRow) -> Result<(), EngineError> {
    let (catalog, disks) = (&shared.seams.catalog, &shared.seams.disks);
    let id = &row.volume.id;
    match (row.volume.state, &row.goes_to) {
        (VolumeState::Ready, _) => {}
        (VolumeState::Making, _) => undo_create(shared, id).await,
        (VolumeState::Restoring, Some(snapshot)) => {
            disks.replace(id.into(), snapshot.into(), bytes(row.volume.disk_mib)).await?;
            catalog.settle_volume(id).await?;
        }
        (VolumeState::Restoring, None) => catalog.settle_volume(id).await?,
        (VolumeState::Removing, _) => {
            let snapshots = catalog.snapshots_of_volume(id).await?;
            let snapshots: Vec<_> = snapshots.into_iter().map(|snapshot| snapshot.id).collect();
            remove(shared, id, &snapshots).await?;
        }
    }
    Ok(())
}

/// Subvolumes in the pool that no row names.
pub(crate) async fn unnamed(
    shared: &Shared,
    found: &burrow_disks::Inventory,
) -> Result<(Vec<VolumeId>, Vec<VolumeSnapshotId>), EngineError> {
    let catalog = &shared.seams.catalog;
    let known: HashSet<VolumeId> =
        catalog.all_volumes().await?.into_iter().map(|row| row.volume.id).collect();
    let volumes = found.volumes.iter().filter(|id| !known.contains(id)).cloned().collect();
    let all = catalog.all_volume_snapshots().await?;
    let known: HashSet<VolumeSnapshotId> = all.into_iter().map(|row| row.snapshot.id).collect();
    let snapshots = found.volume_snapshots.iter().filter(|id| !known.contains(id)).cloned().collect();
    Ok((volumes, snapshots))
}

async fn remove(shared: &Shared, id: &VolumeId, snapshots: &[VolumeSnapshotId]) -> Result<(), EngineError> {
    faults::hit("volume.remove.begun")?;
    for snapshot in snapshots {
        shared.seams.disks.remove(snapshot.into()).await?;
    }
    shared.seams.disks.remove(id.into()).await?;
    faults::hit("volume.remove.removed")?;
    shared.seams.catalog.delete_volume(id).await?;
    shared.volumes.forget(id);
    Ok(())
}

/// If this fails, the row remains, and the next start undoes it.
async fn undo_create(shared: &Shared, id: &VolumeId) {
    let undone = async {
        shared.seams.disks.remove(id.into()).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_volume(id).await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(volume = %id, error = &error as &dyn std::error::Error, "could not undo the creation of a volume");
    }
}

async fn undo_snapshot(shared: &Shared, tenant: &TenantId, id: &VolumeSnapshotId) {
    let undone = async {
        shared.seams.disks.remove(id.into()).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_volume_snapshot(tenant, id).await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(snapshot = %id, error = &error as &dyn std::error::Error, "could not undo the creation of a volume snapshot");
    }
}

fn busy(volume: &Volume) -> EngineError {
    burrow_catalog::CatalogError::VolumeBusy { name: volume.name.clone() }.into()
}

fn bytes(disk_mib: u32) -> u64 {
    u64::from(disk_mib) * MIB
}
