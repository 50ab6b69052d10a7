//! Volumes without a file system, for simulation.
//!
//! Keeps the seam's promises (idempotence, errors, the inventory) and no files: the paths it answers do not exist. One
//! in a folder keeps the files of images too, as plain directories, for tests of those who fill them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::{ImageId, SandboxId};

use crate::{Chunks, Inventory, Space, VolumeError, VolumeId, Volumes, step};

/// What the simulated pool holds unless told otherwise.
const TOTAL_BYTES: u64 = 1 << 40;

/// A pool in RAM.
#[derive(Debug)]
pub struct Sim {
    state: Mutex<Contents>,
    /// Where files are kept, if they are.
    folder: Option<PathBuf>,
}

#[derive(Debug)]
struct Contents {
    total_bytes: u64,
    images: BTreeSet<ImageId>,
    staged: BTreeSet<ImageId>,
    sandboxes: BTreeMap<SandboxId, Disk>,
}

#[derive(Clone, Copy, Debug)]
struct Disk {
    limit_bytes: u64,
    used_bytes: u64,
}

impl Default for Sim {
    fn default() -> Self {
        Self::new(TOTAL_BYTES)
    }
}

impl Sim {
    pub fn new(total_bytes: u64) -> Self {
        let (images, staged, sandboxes) = Default::default();
        Self { state: Mutex::new(Contents { total_bytes, images, staged, sandboxes }), folder: None }
    }

    /// With files, in an empty directory.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..Self::default() }
    }

    /// Makes the files of a volume, as those of another or none.
    fn fill(&self, into: &Path, from: Option<&Path>) -> Result<(), VolumeError> {
        if self.folder.is_none() {
            return Ok(());
        }
        let made = (|| {
            match std::fs::remove_dir_all(into) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => std::fs::create_dir_all(into)?,
            }
            from.map_or(Ok(()), |from| copy_tree(from, into))
        })();
        made.map_err(step("make the files of", into))
    }

    fn empty(&self, volume: &Path) -> Result<(), VolumeError> {
        match self.folder.as_ref().map(|_| std::fs::remove_dir_all(volume)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(step("remove", volume)(error)),
            Some(Ok(()) | Err(_)) | None => Ok(()),
        }
    }

    fn rootfs(&self, folder: &str, id: &str) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("/sim")).join(folder).join(id).join("rootfs")
    }

    /// Charges a sandbox for `bytes` more, as writing would; `false` when its quota or the pool does not allow it.
    pub fn write(&self, id: &SandboxId, bytes: u64) -> bool {
        let mut state = self.state();
        let free_bytes = state.free_bytes();
        match state.sandboxes.get_mut(id) {
            Some(disk)
                if disk.used_bytes.saturating_add(bytes) <= disk.limit_bytes && bytes <= free_bytes =>
            {
                disk.used_bytes += bytes;
                true
            }
            Some(_) | None => false,
        }
    }

    /// The limit a sandbox has, to see that it was set.
    pub fn limit(&self, id: &SandboxId) -> Option<u64> {
        self.state().sandboxes.get(id).map(|disk| disk.limit_bytes)
    }

    fn state(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn free_bytes(&self) -> u64 {
        let used = self.sandboxes.values().fold(0u64, |sum, disk| sum.saturating_add(disk.used_bytes));
        self.total_bytes.saturating_sub(used)
    }

    fn check_room(&self) -> Result<(), VolumeError> {
        match self.free_bytes() {
            0 => Err(VolumeError::Full { needed_bytes: 1, free_bytes: 0 }),
            1.. => Ok(()),
        }
    }

    fn disk(&mut self, id: &SandboxId) -> Result<&mut Disk, VolumeError> {
        self.sandboxes.get_mut(id).ok_or_else(|| VolumeError::NotFound { id: id.clone() })
    }
}

/// Files, directories and links; owners as they come.
fn copy_tree(from: &Path, into: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, into.join(entry.file_name()));
        if kind.is_dir() {
            std::fs::create_dir(&target)?;
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[async_trait]
impl Volumes for Sim {
    async fn stage_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError> {
        let mut state = self.state();
        state.check_room()?;
        let root = self.rootfs("staged", id.as_str());
        self.fill(&root, None)?;
        state.staged.insert(id.clone());
        Ok(root)
    }

    async fn stage_image_from(&self, id: &ImageId, parent: &ImageId) -> Result<PathBuf, VolumeError> {
        let mut state = self.state();
        state.check_room()?;
        if !state.images.contains(parent) {
            return Err(VolumeError::ImageNotFound { image: parent.clone() });
        }
        let root = self.rootfs("staged", id.as_str());
        self.fill(&root, Some(&self.rootfs("images", parent.as_str())))?;
        state.staged.insert(id.clone());
        Ok(root)
    }

    async fn stage_image_of_sandbox(
        &self,
        id: &ImageId,
        sandbox: &SandboxId,
    ) -> Result<PathBuf, VolumeError> {
        let mut state = self.state();
        state.check_room()?;
        state.disk(sandbox)?;
        let root = self.rootfs("staged", id.as_str());
        // Sandboxes have no files of their own here.
        self.fill(&root, None)?;
        state.staged.insert(id.clone());
        Ok(root)
    }

    async fn locate_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError> {
        match self.state().images.contains(id) {
            true => Ok(self.rootfs("images", id.as_str())),
            false => Err(VolumeError::ImageNotFound { image: id.clone() }),
        }
    }

    async fn seal_image(&self, id: &ImageId) -> Result<(), VolumeError> {
        let mut state = self.state();
        let (staged, sealed) = (self.rootfs("staged", id.as_str()), self.rootfs("images", id.as_str()));
        match state.staged.remove(id) {
            true => {
                self.fill(&sealed, Some(&staged))?;
                self.empty(&staged)?;
            }
            false if state.images.contains(id) => {}
            false => return Err(VolumeError::ImageNotFound { image: id.clone() }),
        }
        state.images.insert(id.clone());
        Ok(())
    }

    async fn remove_image(&self, id: &ImageId) -> Result<(), VolumeError> {
        let mut state = self.state();
        for folder in ["staged", "images"] {
            self.empty(&self.rootfs(folder, id.as_str()))?;
        }
        state.staged.remove(id);
        state.images.remove(id);
        Ok(())
    }

    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, VolumeError> {
        let mut state = self.state();
        if !state.sandboxes.contains_key(id) {
            state.check_room()?;
            if !state.images.contains(image) {
                return Err(VolumeError::ImageNotFound { image: image.clone() });
            }
            state.sandboxes.insert(id.clone(), Disk { limit_bytes: disk_bytes, used_bytes: 0 });
        }
        Ok(self.rootfs("sandboxes", id.as_str()))
    }

    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, VolumeError> {
        self.state().disk(id).map(|_| self.rootfs("sandboxes", id.as_str()))
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), VolumeError> {
        self.state().disk(id)?.limit_bytes = disk_bytes;
        Ok(())
    }

    async fn used(&self, id: &SandboxId) -> Result<u64, VolumeError> {
        self.state().disk(id).map(|disk| disk.used_bytes)
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), VolumeError> {
        self.state().sandboxes.remove(id);
        Ok(())
    }

    async fn inventory(&self) -> Result<Inventory, VolumeError> {
        let state = self.state();
        Ok(Inventory {
            sandboxes: state.sandboxes.keys().cloned().collect(),
            images: state.images.iter().cloned().collect(),
            staged: state.staged.iter().cloned().collect(),
        })
    }

    async fn space(&self) -> Result<Space, VolumeError> {
        let state = self.state();
        Ok(Space { total_bytes: state.total_bytes, free_bytes: state.free_bytes() })
    }

    /// A simulated volume's stream is the number of bytes it is charged for.
    async fn send(&self, volume: &VolumeId) -> Result<Chunks, VolumeError> {
        let used = match volume {
            VolumeId::Image(id) if self.state().images.contains(id) => 0,
            VolumeId::Image(id) => return Err(VolumeError::ImageNotFound { image: id.clone() }),
            VolumeId::Sandbox { id, .. } => self.state().disk(id)?.used_bytes,
        };
        let (sender, chunks) = tokio::sync::mpsc::channel(1);
        sender.try_send(Ok(used.to_le_bytes().to_vec())).expect("the channel holds one");
        Ok(chunks)
    }

    async fn receive(
        &self,
        volume: &VolumeId,
        disk_bytes: u64,
        mut chunks: Chunks,
    ) -> Result<(), VolumeError> {
        let failed =
            |source| VolumeError::Step { step: "receive the volume", what: volume.name().to_owned(), source };
        let chunk =
            chunks.recv().await.ok_or(io::ErrorKind::UnexpectedEof).map_err(|kind| failed(kind.into()))?;
        let bytes = chunk.map_err(failed)?;
        let used_bytes = bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut state = self.state();
        match volume {
            VolumeId::Image(id) => drop(state.images.insert(id.clone())),
            VolumeId::Sandbox { id, .. } => {
                state.sandboxes.entry(id.clone()).or_insert(Disk { limit_bytes: disk_bytes, used_bytes });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_simulation_keeps_the_promises_of_the_seam() {
        crate::conformance::all(&Sim::default()).await;
        let folder = tempfile::tempdir().unwrap();
        crate::conformance::all(&Sim::in_folder(folder.path())).await;
    }

    #[tokio::test]
    async fn a_full_pool_refuses_to_create_and_keeps_what_it_has() {
        let (sim, image, id) = (Sim::new(100), ImageId::generate(), SandboxId::generate());
        sim.stage_image(&image).await.unwrap();
        sim.seal_image(&image).await.unwrap();
        sim.create(&id, &image, 1000).await.unwrap();
        assert!(sim.write(&id, 100) && !sim.write(&id, 1));
        let refused = sim.create(&SandboxId::generate(), &image, 1).await;
        assert!(matches!(refused, Err(VolumeError::Full { .. })), "{refused:?}");
        sim.create(&id, &image, 1000).await.unwrap();
    }
}
