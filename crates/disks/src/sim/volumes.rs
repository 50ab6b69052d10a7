//! Simulated volumes: always real directories, because the host reads and writes their files itself.

use std::io;
use std::path::{Path, PathBuf};

use burrow_model::{VolumeId, VolumeSnapshotId};

use super::{Contents, Sim, copy_tree};
use crate::{DiskError, step};

/// The directory of volumes.
pub(super) const VOLUMES: &str = "volumes";
pub(super) const SNAPSHOTS: &str = "volume-snapshots";

impl Sim {
    pub(super) fn make_volume(
        &self,
        id: &VolumeId,
        from: Option<&VolumeSnapshotId>,
    ) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        let root = self.volume_root(VOLUMES, id.as_str());
        if !state.volumes.contains(id) {
            state.check_room()?;
            from.map_or(Ok(()), |from| state.volume_snapshot(from))?;
            let from = from.map(|from| self.volume_root(SNAPSHOTS, from.as_str()));
            fill(&root, from.as_deref())?;
            state.volumes.insert(id.clone());
        }
        Ok(root)
    }

    pub(super) fn find_volume(&self, id: &VolumeId) -> Result<PathBuf, DiskError> {
        self.state().volume(id).map(|()| self.volume_root(VOLUMES, id.as_str()))
    }

    pub(super) fn drop_volume(&self, id: &VolumeId) -> Result<(), DiskError> {
        let mut state = self.state();
        empty(&self.volume_root(VOLUMES, id.as_str()))?;
        state.volumes.remove(id);
        Ok(())
    }

    pub(super) fn copy_volume(&self, id: &VolumeSnapshotId, of: &VolumeId) -> Result<(), DiskError> {
        let mut state = self.state();
        if !state.volume_snapshots.contains(id) {
            state.check_room()?;
            state.volume(of)?;
            let from = self.volume_root(VOLUMES, of.as_str());
            fill(&self.volume_root(SNAPSHOTS, id.as_str()), Some(&from))?;
            state.volume_snapshots.insert(id.clone());
        }
        Ok(())
    }

    pub(super) fn put_back_volume(&self, id: &VolumeId, from: &VolumeSnapshotId) -> Result<(), DiskError> {
        let mut state = self.state();
        state.check_room()?;
        state.volume_snapshot(from)?;
        let source = self.volume_root(SNAPSHOTS, from.as_str());
        fill(&self.volume_root(VOLUMES, id.as_str()), Some(&source))?;
        state.volumes.insert(id.clone());
        Ok(())
    }

    pub(super) fn drop_volume_snapshot(&self, id: &VolumeSnapshotId) -> Result<(), DiskError> {
        let mut state = self.state();
        empty(&self.volume_root(SNAPSHOTS, id.as_str()))?;
        state.volume_snapshots.remove(id);
        Ok(())
    }

    pub(super) fn receive_volume(&self, state: &mut Contents, id: &VolumeId) -> Result<(), DiskError> {
        match state.volumes.insert(id.clone()) {
            true => fill(&self.volume_root(VOLUMES, id.as_str()), None),
            false => Ok(()),
        }
    }

    pub(super) fn receive_volume_snapshot(
        &self,
        state: &mut Contents,
        id: &VolumeSnapshotId,
    ) -> Result<(), DiskError> {
        match state.volume_snapshots.insert(id.clone()) {
            true => fill(&self.volume_root(SNAPSHOTS, id.as_str()), None),
            false => Ok(()),
        }
    }

    fn volume_root(&self, folder: &str, id: &str) -> PathBuf {
        match self.folder {
            Some(_) => self.rootfs(folder, id),
            None => self.dumps.path.with_extension(folder).join(id).join("rootfs"),
        }
    }
}

impl Contents {
    pub(super) fn volume(&self, id: &VolumeId) -> Result<(), DiskError> {
        match self.volumes.contains(id) {
            true => Ok(()),
            false => Err(DiskError::VolumeNotFound { volume: id.clone() }),
        }
    }

    pub(super) fn volume_snapshot(&self, id: &VolumeSnapshotId) -> Result<(), DiskError> {
        match self.volume_snapshots.contains(id) {
            true => Ok(()),
            false => Err(DiskError::VolumeSnapshotNotFound { snapshot: id.clone() }),
        }
    }
}

fn fill(into: &Path, from: Option<&Path>) -> Result<(), DiskError> {
    let fill = || -> io::Result<()> {
        match std::fs::remove_dir_all(into) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::fs::create_dir_all(into.parent().unwrap_or(into))?;
        crate::volume_files::make_root(into)?;
        from.map_or(Ok(()), |from| copy_tree(from, into))
    };
    fill().map_err(step("make the files of", into))
}

fn empty(root: &Path) -> Result<(), DiskError> {
    match std::fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("remove", root)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
