//! Disks without a file system, for simulation.
//!
//! Fulfils the contract of the trait (idempotence, errors, the inventory). The paths it returns for disks do not exist: the
//! content of a disk is a table of names and contents, which tests write and read with [`Sim::write`] and [`Sim::read`], and
//! which copies, snapshots and images include. A driver in a folder also keeps files, as plain directories beside that
//! table, for tests of code that writes and reads them. Dumps are real directories, because a runtime writes into them. So
//! are snapshots while they are staged or located (exports read them and imports write them), and volumes and their
//! snapshots, whose files the host itself reads and writes.

mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::{
    Change, ChangeKind, Changes, DumpId, ImageId, SandboxId, SnapshotId, VolumeId, VolumeSnapshotId,
};

use crate::dump::{self, NoDisk, Recent};
use crate::{
    ChangedPath, Chunks, Comparison, DiskError, DiskId, Disks, Dump, Effort, Inventory, Space, Times, Tree,
    step,
};

/// The default size of the simulated pool.
const TOTAL_BYTES: u64 = 1 << 40;

/// Paths that a glance sees, as on the real driver.
const GLANCE_MAX: usize = 1_000;

/// A pool in RAM.
#[derive(Debug)]
pub struct Sim {
    state: Mutex<Contents>,
    /// Where files are kept, if they are.
    folder: Option<PathBuf>,
    dumps: DumpsFolder,
}

#[derive(Debug)]
struct Contents {
    total_bytes: u64,
    images: BTreeMap<ImageId, Files>,
    staged: BTreeMap<ImageId, Files>,
    sandboxes: BTreeMap<SandboxId, Disk>,
    snapshots: BTreeMap<SnapshotId, Files>,
    frozen: BTreeMap<SnapshotId, Files>,
    volumes: BTreeSet<VolumeId>,
    volume_snapshots: BTreeSet<VolumeSnapshotId>,
}

/// Absolute path to content, as a sandbox sees them.
type Files = BTreeMap<String, String>;

#[derive(Clone, Debug)]
struct Disk {
    limit_bytes: u64,
    used_bytes: u64,
    files: Files,
}

/// Where dumps are; a temporary folder is removed with the driver.
#[derive(Debug)]
struct DumpsFolder {
    path: PathBuf,
    own: bool,
}

impl Drop for DumpsFolder {
    fn drop(&mut self) {
        if self.own {
            let _ = std::fs::remove_dir_all(&self.path);
            for folder in ["snapshots", "arriving", volumes::VOLUMES, volumes::SNAPSHOTS] {
                let _ = std::fs::remove_dir_all(self.path.with_extension(folder));
            }
        }
    }
}

impl Default for Sim {
    fn default() -> Self {
        Self::new(TOTAL_BYTES)
    }
}

impl Sim {
    pub fn new(total_bytes: u64) -> Self {
        let (images, staged, sandboxes, snapshots, frozen) = Default::default();
        let (volumes, volume_snapshots) = Default::default();
        let state = Mutex::new(Contents {
            total_bytes,
            images,
            staged,
            sandboxes,
            snapshots,
            frozen,
            volumes,
            volume_snapshots,
        });
        let path = std::env::temp_dir().join(format!("burrow-sim-{}", DumpId::generate()));
        Self { state, folder: None, dumps: DumpsFolder { path, own: true } }
    }

    /// With real files, in an empty directory.
    pub fn in_folder(folder: &Path) -> Self {
        let dumps = DumpsFolder { path: folder.join("dumps"), own: false };
        Self { folder: Some(folder.to_owned()), dumps, ..Self::default() }
    }

    /// Writes a file of a sandbox.
    pub fn write(&self, id: &SandboxId, path: &str, content: &str) -> Result<(), DiskError> {
        self.state().disk(id)?.files.insert(path.to_owned(), content.to_owned());
        Ok(())
    }

    /// Reads a file of a sandbox.
    pub fn read(&self, id: &SandboxId, path: &str) -> Option<String> {
        self.state().sandboxes.get(id)?.files.get(path).cloned()
    }

    /// Removes a file of a sandbox.
    pub fn unlink(&self, id: &SandboxId, path: &str) -> Result<(), DiskError> {
        self.state().disk(id)?.files.remove(path);
        Ok(())
    }

    /// All files of a sandbox, by path.
    pub fn files(&self, id: &SandboxId) -> Result<BTreeMap<String, String>, DiskError> {
        self.state().disk(id).map(|disk| disk.files.clone())
    }

    /// Creates the files of a disk, empty or as a copy of another disk's.
    fn fill(&self, into: &Path, from: Option<&Path>) -> Result<(), DiskError> {
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

    fn empty(&self, disk: &Path) -> Result<(), DiskError> {
        match self.folder.as_ref().map(|_| std::fs::remove_dir_all(disk)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(step("remove", disk)(error)),
            Some(Ok(()) | Err(_)) | None => Ok(()),
        }
    }

    fn fill_if_missing(&self, folder: &str, id: &str) -> Result<(), DiskError> {
        let root = self.rootfs(folder, id);
        if root.exists() { Ok(()) } else { self.fill(&root, None) }
    }

    fn fill_from_snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), DiskError> {
        let root = self.rootfs("sandboxes", id.as_str());
        self.fill(&root, Some(&self.rootfs("snapshots", snapshot.as_str())))
    }

    fn rootfs(&self, folder: &str, id: &str) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("/sim")).join(folder).join(id).join("rootfs")
    }

    /// Where the files of snapshots are while they are read or written.
    fn snapshot_root(&self, folder: &str, id: &SnapshotId) -> PathBuf {
        match self.folder {
            Some(_) => self.rootfs(folder, id.as_str()),
            None => self.dumps.path.with_extension(folder).join(id.as_str()).join("rootfs"),
        }
    }

    /// Writes the table of a snapshot's files into a directory.
    fn spread(&self, root: &Path, files: &Files) -> Result<(), DiskError> {
        let write = || -> io::Result<()> {
            match std::fs::remove_dir_all(root) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => std::fs::create_dir_all(root)?,
            }
            for (path, content) in files {
                let path = root.join(path.trim_start_matches('/'));
                std::fs::create_dir_all(path.parent().unwrap_or(root))?;
                std::fs::write(path, content)?;
            }
            Ok(())
        };
        write().map_err(step("write the files of", root))
    }

    /// Charges a sandbox for `bytes` more, as writing would; `false` if its quota or the pool does not allow it.
    pub fn charge(&self, id: &SandboxId, bytes: u64) -> bool {
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

    /// The limit of a sandbox, for tests of quotas.
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

    fn check_room(&self) -> Result<(), DiskError> {
        match self.free_bytes() {
            0 => Err(DiskError::Full { needed_bytes: 1, free_bytes: 0 }),
            1.. => Ok(()),
        }
    }

    fn disk(&mut self, id: &SandboxId) -> Result<&mut Disk, DiskError> {
        self.sandboxes.get_mut(id).ok_or_else(|| DiskError::NotFound { id: id.clone() })
    }

    fn image(&self, id: &ImageId) -> Result<&Files, DiskError> {
        self.images.get(id).ok_or_else(|| DiskError::ImageNotFound { image: id.clone() })
    }

    fn snapshot(&self, id: &SnapshotId) -> Result<&Files, DiskError> {
        self.snapshots.get(id).ok_or_else(|| DiskError::SnapshotNotFound { snapshot: id.clone() })
    }

    fn tree(&self, tree: &Tree) -> Result<&Files, DiskError> {
        match tree {
            Tree::Image(id) => self.image(id),
            Tree::Snapshot(id) => self.snapshot(id),
            Tree::Frozen(id) => {
                self.frozen.get(id).ok_or_else(|| DiskError::SnapshotNotFound { snapshot: id.clone() })
            }
        }
    }
}

/// The paths at which two tables differ.
fn differing<'a>(before: &'a Files, after: &'a Files) -> BTreeMap<&'a String, ChangeKind> {
    let mut paths: BTreeMap<&String, ChangeKind> = before
        .keys()
        .filter(|path| !after.contains_key(*path))
        .map(|path| (path, ChangeKind::Deleted))
        .collect();
    for (path, content) in after {
        match before.get(path) {
            None => drop(paths.insert(path, ChangeKind::Added)),
            Some(old) if old != content => drop(paths.insert(path, ChangeKind::Changed)),
            Some(_) => {}
        }
    }
    paths
}

/// Everything in a directory, as a table of kind, mode, and content or target.
fn walk(root: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let mut left = vec![(root.to_owned(), String::new())];
    while let Some((folder, above)) = left.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let path = format!("{above}/{}", entry.file_name().to_string_lossy());
            let (kind, mode) = (entry.file_type()?, entry.metadata()?.permissions().mode());
            let content = if kind.is_dir() {
                left.push((entry.path(), path.clone()));
                Vec::new()
            } else if kind.is_symlink() {
                std::fs::read_link(entry.path())?.into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(entry.path())?
            };
            files.insert(path, format!("{mode:o} {content:?}"));
        }
    }
    Ok(files)
}

/// Regular files beneath a directory, in the form of the table.
fn gather(root: &Path, above: &str, files: &mut Files) -> io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let path = format!("{above}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            gather(&entry.path(), &path, files)?;
        } else if entry.file_type()?.is_file() {
            files.insert(path, String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned());
        }
    }
    Ok(())
}

/// Copies files, directories and links, without their owners.
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
impl Disks for Sim {
    async fn stage_image(&self, id: &ImageId) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        state.check_room()?;
        let root = self.rootfs("staged", id.as_str());
        self.fill(&root, None)?;
        state.staged.insert(id.clone(), Files::new());
        Ok(root)
    }

    async fn stage_image_from(&self, id: &ImageId, parent: &ImageId) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        state.check_room()?;
        let files = state.image(parent)?.clone();
        let root = self.rootfs("staged", id.as_str());
        self.fill(&root, Some(&self.rootfs("images", parent.as_str())))?;
        state.staged.insert(id.clone(), files);
        Ok(root)
    }

    async fn stage_image_of_sandbox(&self, id: &ImageId, sandbox: &SandboxId) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        state.check_room()?;
        let files = state.disk(sandbox)?.files.clone();
        let root = self.rootfs("staged", id.as_str());
        self.fill(&root, Some(&self.rootfs("sandboxes", sandbox.as_str())))?;
        state.staged.insert(id.clone(), files);
        Ok(root)
    }

    async fn locate_image(&self, id: &ImageId) -> Result<PathBuf, DiskError> {
        self.state().image(id)?;
        Ok(self.rootfs("images", id.as_str()))
    }

    async fn seal_image(&self, id: &ImageId) -> Result<(), DiskError> {
        let mut state = self.state();
        let (staged, sealed) = (self.rootfs("staged", id.as_str()), self.rootfs("images", id.as_str()));
        match state.staged.remove(id) {
            Some(files) => {
                self.fill(&sealed, Some(&staged))?;
                self.empty(&staged)?;
                state.images.insert(id.clone(), files);
                Ok(())
            }
            None => state.image(id).map(drop),
        }
    }

    async fn remove_image(&self, id: &ImageId) -> Result<(), DiskError> {
        let mut state = self.state();
        for folder in ["staged", "images"] {
            self.empty(&self.rootfs(folder, id.as_str()))?;
        }
        state.staged.remove(id);
        state.images.remove(id);
        Ok(())
    }

    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        if !state.sandboxes.contains_key(id) {
            state.check_room()?;
            let files = state.image(image)?.clone();
            let root = self.rootfs("sandboxes", id.as_str());
            self.fill(&root, Some(&self.rootfs("images", image.as_str())))?;
            state.sandboxes.insert(id.clone(), Disk { limit_bytes: disk_bytes, used_bytes: 0, files });
        }
        Ok(self.rootfs("sandboxes", id.as_str()))
    }

    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, DiskError> {
        self.state().disk(id).map(|_| self.rootfs("sandboxes", id.as_str()))
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError> {
        self.state().disk(id)?.limit_bytes = disk_bytes;
        Ok(())
    }

    async fn used(&self, id: &SandboxId) -> Result<u64, DiskError> {
        self.state().disk(id).map(|disk| disk.used_bytes)
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DiskError> {
        let mut state = self.state();
        self.empty(&self.rootfs("sandboxes", id.as_str()))?;
        state.sandboxes.remove(id);
        Ok(())
    }

    async fn inventory(&self) -> Result<Inventory, DiskError> {
        let state = self.state();
        Ok(Inventory {
            sandboxes: state.sandboxes.keys().cloned().collect(),
            images: state.images.keys().cloned().collect(),
            staged: state.staged.keys().cloned().collect(),
            snapshots: state.snapshots.keys().cloned().collect(),
            dumps: dump::inventory(&self.dumps.path)?,
            volumes: state.volumes.iter().cloned().collect(),
            volume_snapshots: state.volume_snapshots.iter().cloned().collect(),
        })
    }

    async fn space(&self) -> Result<Space, DiskError> {
        let state = self.state();
        Ok(Space { total_bytes: state.total_bytes, free_bytes: state.free_bytes() })
    }

    /// A simulated disk's stream is the number of bytes it is charged for.
    async fn send(&self, disk: &DiskId) -> Result<Chunks, DiskError> {
        let used = match disk {
            DiskId::Image(id) => self.state().image(id).map(|_| 0)?,
            DiskId::Sandbox { id, .. } => self.state().disk(id)?.used_bytes,
            DiskId::Snapshot { id, .. } => self.state().snapshot(id).map(|_| 0)?,
            DiskId::Volume(id) => self.state().volume(id).map(|()| 0)?,
            DiskId::VolumeSnapshot(id) => self.state().volume_snapshot(id).map(|()| 0)?,
        };
        let (sender, chunks) = tokio::sync::mpsc::channel(1);
        sender.try_send(Ok(used.to_le_bytes().to_vec())).expect("the channel holds one");
        Ok(chunks)
    }

    async fn receive(&self, disk: &DiskId, disk_bytes: u64, mut chunks: Chunks) -> Result<(), DiskError> {
        let failed =
            |source| DiskError::Step { step: "receive the disk", what: disk.name().to_owned(), source };
        let chunk =
            chunks.recv().await.ok_or(io::ErrorKind::UnexpectedEof).map_err(|kind| failed(kind.into()))?;
        let bytes = chunk.map_err(failed)?;
        let used_bytes = bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut state = self.state();
        match disk {
            DiskId::Image(id) => {
                self.fill_if_missing("images", id.as_str())?;
                state.images.entry(id.clone()).or_default();
            }
            DiskId::Snapshot { id, .. } => {
                self.fill_if_missing("snapshots", id.as_str())?;
                state.snapshots.entry(id.clone()).or_default();
            }
            DiskId::Sandbox { id, .. } => {
                self.fill_if_missing("sandboxes", id.as_str())?;
                let disk = Disk { limit_bytes: disk_bytes, used_bytes, files: Files::new() };
                state.sandboxes.entry(id.clone()).or_insert(disk);
            }
            DiskId::Volume(id) => self.receive_volume(&mut state, id)?,
            DiskId::VolumeSnapshot(id) => self.receive_volume_snapshot(&mut state, id)?,
        }
        Ok(())
    }

    async fn snapshot(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        let mut state = self.state();
        if !state.snapshots.contains_key(id) {
            state.check_room()?;
            let files = state.disk(of)?.files.clone();
            let root = self.rootfs("snapshots", id.as_str());
            self.fill(&root, Some(&self.rootfs("sandboxes", of.as_str())))?;
            state.snapshots.insert(id.clone(), files);
        }
        Ok(())
    }

    async fn create_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        if !state.sandboxes.contains_key(id) {
            state.check_room()?;
            let files = state.snapshot(snapshot)?.clone();
            self.fill_from_snapshot(id, snapshot)?;
            state.sandboxes.insert(id.clone(), Disk { limit_bytes: disk_bytes, used_bytes: 0, files });
        }
        Ok(self.rootfs("sandboxes", id.as_str()))
    }

    async fn replace_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        state.check_room()?;
        let files = state.snapshot(snapshot)?.clone();
        self.fill_from_snapshot(id, snapshot)?;
        state.sandboxes.insert(id.clone(), Disk { limit_bytes: disk_bytes, used_bytes: 0, files });
        Ok(self.rootfs("sandboxes", id.as_str()))
    }

    async fn locate_snapshot(&self, id: &SnapshotId) -> Result<PathBuf, DiskError> {
        let (state, root) = (self.state(), self.snapshot_root("snapshots", id));
        let files = state.snapshot(id)?;
        if self.folder.is_none() {
            self.spread(&root, files)?;
        }
        Ok(root)
    }

    async fn stage_snapshot(&self, id: &SnapshotId, base: Option<&SnapshotId>) -> Result<PathBuf, DiskError> {
        let state = self.state();
        state.check_room()?;
        let (nothing, root) = (Files::new(), self.snapshot_root("arriving", id));
        let files = base.map_or(Ok(&nothing), |base| state.snapshot(base))?;
        match self.folder {
            Some(_) => {
                let base = base.map(|base| self.snapshot_root("snapshots", base));
                self.fill(&root, base.as_deref())?;
            }
            None => self.spread(&root, files)?,
        }
        Ok(root)
    }

    async fn seal_snapshot(&self, id: &SnapshotId) -> Result<(), DiskError> {
        let mut state = self.state();
        if state.snapshots.contains_key(id) {
            return Ok(());
        }
        let root = self.snapshot_root("arriving", id);
        if !root.exists() {
            return Err(DiskError::SnapshotNotFound { snapshot: id.clone() });
        }
        let mut files = Files::new();
        gather(&root, "", &mut files).map_err(step("read the files of", &root))?;
        self.fill(&self.snapshot_root("snapshots", id), Some(&root))?;
        std::fs::remove_dir_all(&root).map_err(step("remove", &root))?;
        state.snapshots.insert(id.clone(), files);
        Ok(())
    }

    /// The total size of the files that neither the image nor another snapshot contains unchanged.
    async fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, DiskError> {
        let state = self.state();
        let own = state.snapshot(id)?;
        let others: Vec<&Files> = state
            .images
            .values()
            .chain(state.snapshots.iter().filter(|(other, _)| *other != id).map(|(_, files)| files))
            .collect();
        let alone = |(path, content): &(&String, &String)| {
            !others.iter().any(|files| files.get(*path) == Some(*content))
        };
        Ok(own.iter().filter(alone).map(|(_, content)| content.len() as u64).sum())
    }

    async fn changes(
        &self,
        from: Option<&SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, DiskError> {
        let state = self.state();
        let before = match from {
            Some(from) => state.snapshot(from)?,
            None => state.image(image)?,
        };
        let paths = differing(before, state.snapshot(to)?);
        let seen = if effort == Effort::Glance { paths.len().min(GLANCE_MAX) } else { paths.len() };
        let more = seen < paths.len();
        let paths = paths
            .into_iter()
            .take(seen.min(paths_max))
            .map(|(path, kind)| Change { path: path.clone(), kind })
            .collect();
        Ok(Changes { paths, total: seen as u64, more, since: from.cloned() })
    }

    async fn freeze(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), DiskError> {
        let mut state = self.state();
        if !state.frozen.contains_key(id) {
            state.check_room()?;
            let files = state.disk(of)?.files.clone();
            let root = self.rootfs("frozen", id.as_str());
            self.fill(&root, Some(&self.rootfs("sandboxes", of.as_str())))?;
            state.frozen.insert(id.clone(), files);
        }
        Ok(())
    }

    async fn thaw(&self, id: &SnapshotId) -> Result<(), DiskError> {
        let mut state = self.state();
        self.empty(&self.rootfs("frozen", id.as_str()))?;
        state.frozen.remove(id);
        Ok(())
    }

    async fn locate_tree(&self, tree: &Tree) -> Result<PathBuf, DiskError> {
        self.state().tree(tree)?;
        Ok(match tree {
            Tree::Image(id) => self.rootfs("images", id.as_str()),
            Tree::Snapshot(id) => self.rootfs("snapshots", id.as_str()),
            Tree::Frozen(id) => self.rootfs("frozen", id.as_str()),
        })
    }

    /// In a folder: what a walk of both trees finds.
    async fn compare(&self, old: &Tree, new: &Tree, _: Times) -> Result<Comparison, DiskError> {
        let mut trees = Vec::new();
        for tree in [old, new] {
            let path = self.locate_tree(tree).await?;
            let table = self.state().tree(tree)?.clone();
            trees.push(match self.folder {
                Some(_) => walk(&path).map_err(step("walk", &path))?,
                None => table,
            });
        }
        let paths = differing(&trees[0], &trees[1])
            .into_iter()
            .map(|(path, kind)| ChangedPath { path: path.clone().into_bytes(), kind, written: false })
            .collect();
        Ok(Comparison { paths, more: false })
    }

    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, DiskError> {
        self.state().tree(tree)?;
        Ok(vec![path.to_vec()])
    }

    async fn sync(&self, id: &SandboxId) -> Result<(), DiskError> {
        self.state().disk(id).map(drop)
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), DiskError> {
        let mut state = self.state();
        for folder in ["arriving", "snapshots"] {
            let root = self.snapshot_root(folder, id);
            match std::fs::remove_dir_all(&root) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(step("remove", &root)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        state.snapshots.remove(id);
        Ok(())
    }

    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, DiskError> {
        let state = self.state();
        state.check_room()?;
        dump::stage(&self.dumps.path, id)
    }

    async fn seal_dump(&self, id: &DumpId, about: &str, _: bool) -> Result<u64, DiskError> {
        let _state = self.state();
        dump::seal(&self.dumps.path, id, about, &NoDisk, &Recent::never())
    }

    async fn open_dump(&self, id: &DumpId) -> Result<Dump, DiskError> {
        dump::open(&self.dumps.path, id, &Recent::never())
    }

    async fn remove_dump(&self, id: &DumpId) -> Result<(), DiskError> {
        let _state = self.state();
        dump::remove(&self.dumps.path, id)
    }

    async fn create_volume(
        &self,
        id: &VolumeId,
        from: Option<&VolumeSnapshotId>,
        _: u64,
    ) -> Result<PathBuf, DiskError> {
        self.make_volume(id, from)
    }

    async fn locate_volume(&self, id: &VolumeId) -> Result<PathBuf, DiskError> {
        self.find_volume(id)
    }

    async fn volume_used(&self, id: &VolumeId) -> Result<u64, DiskError> {
        self.find_volume(id).map(|_| 0)
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<(), DiskError> {
        self.drop_volume(id)
    }

    async fn snapshot_volume(&self, id: &VolumeSnapshotId, of: &VolumeId) -> Result<(), DiskError> {
        self.copy_volume(id, of)
    }

    async fn replace_volume(&self, id: &VolumeId, from: &VolumeSnapshotId, _: u64) -> Result<(), DiskError> {
        self.put_back_volume(id, from)
    }

    async fn remove_volume_snapshot(&self, id: &VolumeSnapshotId) -> Result<(), DiskError> {
        self.drop_volume_snapshot(id)
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
    async fn snapshots_children_and_images_of_a_sandbox_contain_its_files() {
        let sim = Sim::default();
        let (image, id) = (crate::conformance::sealed(&sim).await, SandboxId::generate());
        sim.create(&id, &image, 1000).await.unwrap();
        sim.write(&id, "/kept", "first").unwrap();
        let (first, second) = (SnapshotId::generate(), SnapshotId::generate());
        sim.snapshot(&first, &id).await.unwrap();
        sim.write(&id, "/kept", "second").unwrap();
        sim.write(&id, "/new", "x").unwrap();
        sim.snapshot(&second, &id).await.unwrap();

        let child = SandboxId::generate();
        sim.create_from_snapshot(&child, &second, 1000).await.unwrap();
        assert_eq!(sim.read(&child, "/kept").as_deref(), Some("second"));
        sim.replace_from_snapshot(&id, &first, 1000).await.unwrap();
        assert_eq!((sim.read(&id, "/kept").as_deref(), sim.read(&id, "/new")), (Some("first"), None));
        let changed = sim.changes(Some(&first), &second, &image, 1, Effort::Whole).await.unwrap();
        assert_eq!((changed.total, changed.paths.len(), changed.paths[0].kind), (2, 1, ChangeKind::Changed));
        assert_eq!(sim.snapshot_bytes(&second).await.unwrap(), 7);

        let committed = ImageId::generate();
        sim.stage_image_of_sandbox(&committed, &child).await.unwrap();
        sim.seal_image(&committed).await.unwrap();
        sim.unlink(&child, "/new").unwrap();
        let other = SandboxId::generate();
        sim.create(&other, &committed, 1000).await.unwrap();
        assert_eq!(sim.files(&other).unwrap().len(), 2);
        assert_eq!(sim.files(&child).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_full_pool_refuses_to_create_and_keeps_what_it_has() {
        let (sim, image, id) = (Sim::new(100), ImageId::generate(), SandboxId::generate());
        sim.stage_image(&image).await.unwrap();
        sim.seal_image(&image).await.unwrap();
        sim.create(&id, &image, 1000).await.unwrap();
        assert!(sim.charge(&id, 100) && !sim.charge(&id, 1));
        let refused = sim.create(&SandboxId::generate(), &image, 1).await;
        assert!(matches!(refused, Err(DiskError::Full { .. })), "{refused:?}");
        sim.create(&id, &image, 1000).await.unwrap();
    }
}
