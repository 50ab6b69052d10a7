//! Volumes between the wire and the engine.

use burrow_api as api;
use burrow_catalog::ShelfUser;
use burrow_engine::{MountWish, ShelfOptions};
use burrow_model::{Limits, MOUNTS_MAX, MountMode, Shelf, ShelfMount, ShelfSnapshot, ShelfSnapshotId};
use burrow_volumes::shelf_files::{ShelfEntry, ShelfEntryKind};

use super::checks::name;
use crate::rest::auth::check_reference;
use crate::rest::error::ApiError;

pub(crate) fn shelf_options(request: api::CreateVolume, defaults: &Limits) -> Result<ShelfOptions, ApiError> {
    let disk_mib = request.disk_mib.unwrap_or(defaults.disk_mib);
    Limits { disk_mib, ..*defaults }.check().map_err(burrow_engine::EngineError::from)?;
    let from = request.from_snapshot.as_deref().map(shelf_snapshot_id).transpose()?;
    Ok(ShelfOptions { name: name("name", &request.name)?, disk_mib, from })
}

fn shelf_snapshot_id(text: &str) -> Result<ShelfSnapshotId, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("`from_snapshot` does not fit: {error}")))
}

/// What is asked for, each by itself; whether they fit together is the engine's to know.
pub(crate) fn mount_wishes(requests: Vec<api::MountVolume>) -> Result<Vec<MountWish>, ApiError> {
    if requests.len() > MOUNTS_MAX {
        return Err(ApiError::invalid(format!("`volumes` has more than {MOUNTS_MAX} entries")));
    }
    let wish = |request: api::MountVolume| {
        check_reference(&request.name)?;
        let path = request.path.parse();
        let path = path.map_err(|error| ApiError::invalid(format!("`volumes` does not fit: {error}")))?;
        let mode = match request.mode {
            api::VolumeMode::Ro => MountMode::Ro,
            api::VolumeMode::Rw => MountMode::Rw,
        };
        Ok(MountWish { volume: request.name, path, mode })
    };
    requests.into_iter().map(wish).collect()
}

pub(crate) fn volume(shelf: Shelf, used_bytes: Option<u64>, users: Vec<ShelfUser>) -> api::Volume {
    api::Volume {
        id: shelf.id.into(),
        name: shelf.name.into(),
        disk_mib: shelf.disk_mib,
        used_bytes,
        from_snapshot: shelf.origin.map(String::from),
        created_ms: shelf.created_ms,
        used_by: users.into_iter().map(user).collect(),
    }
}

fn user(user: ShelfUser) -> api::VolumeUser {
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

pub(crate) fn volume_mount(mount: ShelfMount) -> api::VolumeMount {
    let ShelfMount { shelf, name, path, mode: given } = mount;
    api::VolumeMount { id: shelf.into(), name: name.into(), path: path.into(), mode: mode(given) }
}

pub(crate) fn volume_snapshot(snapshot: ShelfSnapshot) -> api::VolumeSnapshot {
    api::VolumeSnapshot {
        id: snapshot.id.into(),
        volume: snapshot.shelf.into(),
        name: snapshot.name.map(String::from),
        created_ms: snapshot.created_ms,
    }
}

/// Owners have numbers only: their names are those of whichever sandbox looks.
pub(crate) fn volume_entry(entry: ShelfEntry) -> api::FileEntry {
    api::FileEntry {
        name: entry.name,
        path: entry.path,
        kind: match entry.kind {
            ShelfEntryKind::File => api::FileKind::File,
            ShelfEntryKind::Directory => api::FileKind::Directory,
            ShelfEntryKind::Link => api::FileKind::Symlink,
            ShelfEntryKind::Other => api::FileKind::Other,
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
