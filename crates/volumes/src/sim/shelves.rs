//! Volumes that outlive sandboxes, simulated: real directories always, since the host reads and writes their files itself.

use std::io;
use std::path::{Path, PathBuf};

use burrow_model::{ShelfId, ShelfSnapshotId};

use super::{Contents, Sim, copy_tree};
use crate::{VolumeError, step};

/// Their folders.
pub(super) const SHELVES: &str = "shelves";
pub(super) const SNAPSHOTS: &str = "shelf-snapshots";

impl Sim {
    pub(super) fn make_shelf(
        &self,
        id: &ShelfId,
        from: Option<&ShelfSnapshotId>,
    ) -> Result<PathBuf, VolumeError> {
        let mut state = self.state();
        let root = self.shelf_root(SHELVES, id.as_str());
        if !state.shelves.contains(id) {
            state.check_room()?;
            from.map_or(Ok(()), |from| state.shelf_snapshot(from))?;
            let from = from.map(|from| self.shelf_root(SNAPSHOTS, from.as_str()));
            fill(&root, from.as_deref())?;
            state.shelves.insert(id.clone());
        }
        Ok(root)
    }

    pub(super) fn find_shelf(&self, id: &ShelfId) -> Result<PathBuf, VolumeError> {
        self.state().shelf(id).map(|()| self.shelf_root(SHELVES, id.as_str()))
    }

    pub(super) fn drop_shelf(&self, id: &ShelfId) -> Result<(), VolumeError> {
        let mut state = self.state();
        empty(&self.shelf_root(SHELVES, id.as_str()))?;
        state.shelves.remove(id);
        Ok(())
    }

    pub(super) fn copy_shelf(&self, id: &ShelfSnapshotId, of: &ShelfId) -> Result<(), VolumeError> {
        let mut state = self.state();
        if !state.shelf_snapshots.contains(id) {
            state.check_room()?;
            state.shelf(of)?;
            let from = self.shelf_root(SHELVES, of.as_str());
            fill(&self.shelf_root(SNAPSHOTS, id.as_str()), Some(&from))?;
            state.shelf_snapshots.insert(id.clone());
        }
        Ok(())
    }

    pub(super) fn put_back_shelf(&self, id: &ShelfId, from: &ShelfSnapshotId) -> Result<(), VolumeError> {
        let mut state = self.state();
        state.check_room()?;
        state.shelf_snapshot(from)?;
        let source = self.shelf_root(SNAPSHOTS, from.as_str());
        fill(&self.shelf_root(SHELVES, id.as_str()), Some(&source))?;
        state.shelves.insert(id.clone());
        Ok(())
    }

    pub(super) fn drop_shelf_snapshot(&self, id: &ShelfSnapshotId) -> Result<(), VolumeError> {
        let mut state = self.state();
        empty(&self.shelf_root(SNAPSHOTS, id.as_str()))?;
        state.shelf_snapshots.remove(id);
        Ok(())
    }

    pub(super) fn receive_shelf(&self, state: &mut Contents, id: &ShelfId) -> Result<(), VolumeError> {
        match state.shelves.insert(id.clone()) {
            true => fill(&self.shelf_root(SHELVES, id.as_str()), None),
            false => Ok(()),
        }
    }

    pub(super) fn receive_shelf_snapshot(
        &self,
        state: &mut Contents,
        id: &ShelfSnapshotId,
    ) -> Result<(), VolumeError> {
        match state.shelf_snapshots.insert(id.clone()) {
            true => fill(&self.shelf_root(SNAPSHOTS, id.as_str()), None),
            false => Ok(()),
        }
    }

    fn shelf_root(&self, folder: &str, id: &str) -> PathBuf {
        match self.folder {
            Some(_) => self.rootfs(folder, id),
            None => self.dumps.path.with_extension(folder).join(id).join("rootfs"),
        }
    }
}

impl Contents {
    pub(super) fn shelf(&self, id: &ShelfId) -> Result<(), VolumeError> {
        match self.shelves.contains(id) {
            true => Ok(()),
            false => Err(VolumeError::ShelfNotFound { shelf: id.clone() }),
        }
    }

    pub(super) fn shelf_snapshot(&self, id: &ShelfSnapshotId) -> Result<(), VolumeError> {
        match self.shelf_snapshots.contains(id) {
            true => Ok(()),
            false => Err(VolumeError::ShelfSnapshotNotFound { snapshot: id.clone() }),
        }
    }
}

fn fill(into: &Path, from: Option<&Path>) -> Result<(), VolumeError> {
    let fill = || -> io::Result<()> {
        match std::fs::remove_dir_all(into) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::fs::create_dir_all(into.parent().unwrap_or(into))?;
        crate::shelf_files::make_root(into)?;
        from.map_or(Ok(()), |from| copy_tree(from, into))
    };
    fill().map_err(step("make the files of", into))
}

fn empty(root: &Path) -> Result<(), VolumeError> {
    match std::fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("remove", root)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
