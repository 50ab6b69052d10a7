//! Converts volumes between the API and the engine.

use burrow_api as api;
use burrow_catalog::VolumeUser;
use burrow_disks::volume_files::{VolumeEntry, VolumeEntryKind};
use burrow_engine::{MountRequest, VolumeOptions};
use burrow_model::{Limits, MOUNTS_MAX, MountMode, Volume, VolumeMount, VolumeSnapshot, VolumeSnapshotId};

use super::checks::name;
use crate::auth::check_reference;
use crate::error::ApiError;

pub fn volume_options(request: api::CreateVolume, defaults: &Limits) -> Result<VolumeOptions, ApiError> {
    let disk_mib = request.disk_mib.unwrap_or(defaults.disk_mib);
    Limits { disk_mib, ..*defaults }.check().map_err(burrow_engine::EngineError::from)?;
    let from = request.from_snapshot.as_deref().map(volume_snapshot_id).transpose()?;
    Ok(VolumeOptions { name: name("name", &request.name)?, disk_mib, from })
}

fn volume_snapshot_id(text: &str) -> Result<VolumeSnapshotId, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("invalid `from_snapshot`: {error}")))
}

/// Validates each mount by itself; the engine checks whether they conflict.
pub fn mount_requests(requests: Vec<api::MountVolume>) -> Result<Vec<MountRequest>, ApiError> {
    if requests.len() > MOUNTS_MAX {
        return Err(ApiError::invalid(format!("`volumes` has more than {MOUNTS_MAX} entries")));
    }
    let wish = |request: api::MountVolume| {
        check_reference(&request.name)?;
        let path = request.path.parse();
        let path = path.map_err(|error| ApiError::invalid(format!("invalid `volumes`: {error}")))?;
        let mode = match request.mode {
            api::VolumeMode::Ro => MountMode::Ro,
            api::VolumeMode::Rw => MountMode::Rw,
        };
        Ok(MountRequest { volume: request.name, path, mode })
    };
    requests.into_iter().map(wish).collect()
}

pub fn volume(volume: Volume, used_bytes: Option<u64>, users: Vec<VolumeUser>) -> api::Volume {
    api::Volume {
        id: volume.id.into(),
        name: volume.name.into(),
        disk_mib: volume.disk_mib,
        used_bytes,
        from_snapshot: volume.origin.map(String::from),
        created_ms: volume.created_ms,
        used_by: users.into_iter().map(user).collect(),
    }
}

fn user(user: VolumeUser) -> api::VolumeUser {
    api::VolumeUser {
        sandbox: user.sandbox.into(),
        name: user.name.map(String::from),
        path: user.path.into(),
        mode: mode(user.mode),
    }
}

fn mode(mode: MountMode) -> api::VolumeMode {
    match mode {
        MountMode::Ro => api::VolumeMode::Ro,
        MountMode::Rw => api::VolumeMode::Rw,
    }
}

pub(super) fn volume_mount(mount: VolumeMount) -> api::VolumeMount {
    let VolumeMount { volume, name, path, mode: given } = mount;
    api::VolumeMount { id: volume.into(), name: name.into(), path: path.into(), mode: mode(given) }
}

pub fn volume_snapshot(snapshot: VolumeSnapshot) -> api::VolumeSnapshot {
    api::VolumeSnapshot {
        id: snapshot.id.into(),
        volume: snapshot.volume.into(),
        name: snapshot.name.map(String::from),
        created_ms: snapshot.created_ms,
    }
}

/// Owners are numeric only: names differ from sandbox to sandbox.
pub fn volume_entry(entry: VolumeEntry) -> api::FileEntry {
    api::FileEntry {
        name: entry.name,
        path: entry.path,
        kind: match entry.kind {
            VolumeEntryKind::File => api::FileKind::File,
            VolumeEntryKind::Directory => api::FileKind::Directory,
            VolumeEntryKind::Link => api::FileKind::Symlink,
            VolumeEntryKind::Other => api::FileKind::Other,
        },
        size: entry.bytes,
        mode: format!("{:04o}", entry.mode),
        uid: entry.uid,
        gid: entry.gid,
        user: None,
        group: None,
        modified_ms: i64::try_from(entry.modified_ms).unwrap_or(i64::MAX),
        target: entry.target,
    }
}
