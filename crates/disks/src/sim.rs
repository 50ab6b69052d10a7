//! Disks without a file system, for simulation.
//!
//! Fulfils the contract of the trait (idempotence, errors, the inventory). The paths it returns for disks do not exist: the
//! content of a disk is a table of names and contents, which tests write and read with [`Sim::write`] and [`Sim::read`], and
//! which copies, snapshots and images include. A driver in a folder also keeps files, as plain directories beside that
//! table, for tests of code that writes and reads them. Dumps are real directories, because a runtime writes into them. So
//! are snapshots while they are staged or located (exports read them and imports write them), and volumes and their
//! snapshots, whose files the host itself reads and writes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use burrow_model::{Change, ChangeKind, Changes, DumpId, ImageId, SandboxId, SnapshotId};

use crate::dump::{self, NoDisk, RecentlyVerified};
use crate::{
    ChangedPath, Chunks, Comparison, DiskError, DiskId, Disks, Dump, Effort, Inventory, Space,
    TimeComparison, Tree, step,
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
    disks: BTreeMap<DiskId, Disk>,
    staged: BTreeMap<DiskId, Files>,
}

/// Absolute path to content, as a sandbox sees them.
type Files = BTreeMap<String, String>;

/// `limit_bytes` and `used_bytes` are those of sandboxes. The files of volumes are not in the table.
#[derive(Clone, Debug, Default)]
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
            for folder in ["snapshots", "arriving", "volumes", "volume-snapshots"] {
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
        let (disks, staged) = Default::default();
        let state = Mutex::new(Contents { total_bytes, disks, staged });
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
        self.state().disk(&id.into())?.files.insert(path.to_owned(), content.to_owned());
        Ok(())
    }

    /// Reads a file of a sandbox.
    pub fn read(&self, id: &SandboxId, path: &str) -> Option<String> {
        self.state().disks.get(&id.into())?.files.get(path).cloned()
    }

    /// Removes a file of a sandbox.
    pub fn unlink(&self, id: &SandboxId, path: &str) -> Result<(), DiskError> {
        self.state().disk(&id.into())?.files.remove(path);
        Ok(())
    }

    /// All files of a sandbox, by path.
    pub fn files(&self, id: &SandboxId) -> Result<BTreeMap<String, String>, DiskError> {
        self.state().disk(&id.into()).map(|disk| disk.files.clone())
    }

    /// Creates the files of a disk, empty or as a copy of another disk's, where they are kept.
    fn fill(&self, disk: &DiskId, into: &Path, from: Option<&DiskId>) -> Result<(), DiskError> {
        if !self.keeps_files(disk) {
            return Ok(());
        }
        let made = (|| {
            clear(into)?;
            std::fs::create_dir_all(into.parent().unwrap_or(into))?;
            match disk {
                DiskId::Volume(_) | DiskId::VolumeSnapshot(_) => crate::volume_files::make_root(into)?,
                DiskId::Image(_) | DiskId::Sandbox(_) | DiskId::Snapshot(_) | DiskId::Frozen(_) => {
                    std::fs::create_dir_all(into)?;
                }
            }
            from.map_or(Ok(()), |from| copy_tree(&self.root(from), into))
        })();
        made.map_err(step("make the files of", into))
    }

    fn keeps_files(&self, disk: &DiskId) -> bool {
        self.folder.is_some() || matches!(disk, DiskId::Volume(_) | DiskId::VolumeSnapshot(_))
    }

    /// Where the files of a disk are, or would be.
    fn root(&self, disk: &DiskId) -> PathBuf {
        let folder = match disk {
            DiskId::Image(_) => "images",
            DiskId::Sandbox(_) => "sandboxes",
            DiskId::Snapshot(_) => "snapshots",
            DiskId::Frozen(_) => "frozen",
            DiskId::Volume(_) => "volumes",
            DiskId::VolumeSnapshot(_) => "volume-snapshots",
        };
        self.rootfs(folder, disk)
    }

    /// The same while it is staged.
    fn staging_root(&self, disk: &DiskId) -> PathBuf {
        self.rootfs(if matches!(disk, DiskId::Snapshot(_)) { "arriving" } else { "staged" }, disk)
    }

    fn rootfs(&self, folder: &str, disk: &DiskId) -> PathBuf {
        let top = match (&self.folder, disk) {
            (Some(top), _) => top.join(folder),
            (None, DiskId::Snapshot(_) | DiskId::Volume(_) | DiskId::VolumeSnapshot(_)) => {
                self.dumps.path.with_extension(folder)
            }
            (None, DiskId::Image(_) | DiskId::Sandbox(_) | DiskId::Frozen(_)) => {
                Path::new("/sim").join(folder)
            }
        };
        top.join(disk.name()).join("rootfs")
    }

    /// Writes the table of a snapshot's files into a directory.
    fn spread(&self, root: &Path, files: &Files) -> Result<(), DiskError> {
        let write = || -> io::Result<()> {
            clear(root)?;
            std::fs::create_dir_all(root)?;
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
        match state.disks.get_mut(&id.into()) {
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
        self.state().disks.get(&id.into()).map(|disk| disk.limit_bytes)
    }

    fn state(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn free_bytes(&self) -> u64 {
        let used = self.disks.values().fold(0u64, |sum, disk| sum.saturating_add(disk.used_bytes));
        self.total_bytes.saturating_sub(used)
    }

    fn check_room(&self) -> Result<(), DiskError> {
        match self.free_bytes() {
            0 => Err(DiskError::Full { needed_bytes: 1, free_bytes: 0 }),
            1.. => Ok(()),
        }
    }

    fn disk(&mut self, disk: &DiskId) -> Result<&mut Disk, DiskError> {
        self.disks.get_mut(disk).ok_or_else(|| DiskError::NotFound { disk: disk.clone() })
    }

    fn files(&self, disk: &DiskId) -> Result<&Files, DiskError> {
        let found = self.disks.get(disk).ok_or_else(|| DiskError::NotFound { disk: disk.clone() });
        found.map(|disk| &disk.files)
    }

    /// The ids of one kind of disk.
    fn ids<T>(&self, id: impl Fn(&DiskId) -> Option<&T>) -> Vec<T>
    where
        T: Clone,
    {
        self.disks.keys().filter_map(id).cloned().collect()
    }
}

/// Removes a directory, if it exists.
fn clear(root: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
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
    async fn stage(&self, disk: DiskId, from: Option<DiskId>) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        state.check_room()?;
        let files = from.as_ref().map_or(Ok(Files::new()), |from| state.files(from).cloned())?;
        let root = self.staging_root(&disk);
        match &disk {
            DiskId::Snapshot(_) if self.folder.is_none() => self.spread(&root, &files)?,
            DiskId::Image(_) | DiskId::Snapshot(_) => self.fill(&disk, &root, from.as_ref())?,
            DiskId::Sandbox(_) | DiskId::Frozen(_) | DiskId::Volume(_) | DiskId::VolumeSnapshot(_) => {
                return Err(disk.not_for("stage"));
            }
        }
        state.staged.insert(disk, files);
        Ok(root)
    }

    async fn seal(&self, disk: DiskId) -> Result<(), DiskError> {
        let mut state = self.state();
        let Some(mut files) = state.staged.remove(&disk) else { return state.files(&disk).map(drop) };
        let (staged, sealed) = (self.staging_root(&disk), self.root(&disk));
        if matches!(disk, DiskId::Snapshot(_)) {
            files.clear();
            gather(&staged, "", &mut files).map_err(step("read the files of", &staged))?;
        }
        if self.keeps_files(&disk) {
            clear(&sealed).map_err(step("remove", &sealed))?;
            std::fs::create_dir_all(&sealed)
                .and_then(|()| copy_tree(&staged, &sealed))
                .map_err(step("make the files of", &sealed))?;
        }
        clear(&staged).map_err(step("remove", &staged))?;
        state.disks.insert(disk, Disk { files, ..Disk::default() });
        Ok(())
    }

    async fn create(
        &self,
        disk: DiskId,
        from: Option<DiskId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        let root = self.root(&disk);
        if !state.disks.contains_key(&disk) {
            state.check_room()?;
            let files = from.as_ref().map_or(Ok(Files::new()), |from| state.files(from).cloned())?;
            self.fill(&disk, &root, from.as_ref())?;
            state.disks.insert(disk, Disk { limit_bytes: disk_bytes, used_bytes: 0, files });
        }
        Ok(root)
    }

    async fn replace(&self, disk: DiskId, from: DiskId, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        let mut state = self.state();
        state.check_room()?;
        let (files, root) = (state.files(&from)?.clone(), self.root(&disk));
        self.fill(&disk, &root, Some(&from))?;
        state.disks.insert(disk, Disk { limit_bytes: disk_bytes, used_bytes: 0, files });
        Ok(root)
    }

    async fn snapshot(&self, disk: DiskId, of: DiskId) -> Result<(), DiskError> {
        let mut state = self.state();
        if !state.disks.contains_key(&disk) {
            state.check_room()?;
            let files = state.files(&of)?.clone();
            self.fill(&disk, &self.root(&disk), Some(&of))?;
            state.disks.insert(disk, Disk { files, ..Disk::default() });
        }
        Ok(())
    }

    async fn locate(&self, disk: DiskId) -> Result<PathBuf, DiskError> {
        let (state, root) = (self.state(), self.root(&disk));
        let files = state.files(&disk)?;
        if self.folder.is_none() && matches!(disk, DiskId::Snapshot(_)) {
            self.spread(&root, files)?;
        }
        Ok(root)
    }

    async fn remove(&self, disk: DiskId) -> Result<(), DiskError> {
        let mut state = self.state();
        for root in [self.staging_root(&disk), self.root(&disk)] {
            clear(&root).map_err(step("remove", &root))?;
        }
        state.staged.remove(&disk);
        state.disks.remove(&disk);
        Ok(())
    }

    /// Of a snapshot: the total size of the files that neither the image nor another snapshot contains unchanged.
    async fn used(&self, disk: DiskId) -> Result<u64, DiskError> {
        let mut state = self.state();
        if !matches!(disk, DiskId::Snapshot(_)) {
            return state.disk(&disk).map(|disk| disk.used_bytes);
        }
        let own = state.files(&disk)?;
        let alone = |(path, content): &(&String, &String)| {
            !state.disks.iter().any(|(other, Disk { files, .. })| {
                matches!(other, DiskId::Image(_) | DiskId::Snapshot(_))
                    && *other != disk
                    && files.get(*path) == Some(*content)
            })
        };
        Ok(own.iter().filter(alone).map(|(_, content)| content.len() as u64).sum())
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError> {
        self.state().disk(&id.into())?.limit_bytes = disk_bytes;
        Ok(())
    }

    async fn sync(&self, id: &SandboxId) -> Result<(), DiskError> {
        self.state().disk(&id.into()).map(drop)
    }

    async fn inventory(&self) -> Result<Inventory, DiskError> {
        let state = self.state();
        let staged = state.staged.keys().filter_map(|disk| match disk {
            DiskId::Image(id) => Some(id.clone()),
            DiskId::Sandbox(_)
            | DiskId::Snapshot(_)
            | DiskId::Frozen(_)
            | DiskId::Volume(_)
            | DiskId::VolumeSnapshot(_) => None,
        });
        Ok(Inventory {
            sandboxes: state.ids(|disk| if let DiskId::Sandbox(id) = disk { Some(id) } else { None }),
            images: state.ids(|disk| if let DiskId::Image(id) = disk { Some(id) } else { None }),
            staged: staged.collect(),
            snapshots: state.ids(|disk| if let DiskId::Snapshot(id) = disk { Some(id) } else { None }),
            dumps: dump::inventory(&self.dumps.path)?,
            volumes: state.ids(|disk| if let DiskId::Volume(id) = disk { Some(id) } else { None }),
            volume_snapshots: state
                .ids(|disk| if let DiskId::VolumeSnapshot(id) = disk { Some(id) } else { None }),
        })
    }

    async fn space(&self) -> Result<Space, DiskError> {
        let state = self.state();
        Ok(Space { total_bytes: state.total_bytes, free_bytes: state.free_bytes() })
    }

    async fn space_for(&self, _: u64) -> Result<Space, DiskError> {
        self.space().await
    }

    /// A simulated disk's stream is the number of bytes it is charged for.
    async fn send(&self, disk: DiskId, _: Option<DiskId>) -> Result<Chunks, DiskError> {
        let used = self.state().disk(&disk)?.used_bytes;
        let (sender, chunks) = tokio::sync::mpsc::channel(1);
        sender.try_send(Ok(used.to_le_bytes().to_vec())).expect("the channel holds one");
        Ok(chunks)
    }

    async fn receive(&self, disk: DiskId, disk_bytes: u64, mut chunks: Chunks) -> Result<(), DiskError> {
        let failed =
            |source| DiskError::Step { step: "receive the disk", what: disk.name().to_owned(), source };
        let chunk =
            chunks.recv().await.ok_or(io::ErrorKind::UnexpectedEof).map_err(|kind| failed(kind.into()))?;
        let bytes = chunk.map_err(failed)?;
        let used_bytes = bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut state = self.state();
        if let Entry::Vacant(vacant) = state.disks.entry(disk) {
            self.fill(vacant.key(), &self.root(vacant.key()), None)?;
            vacant.insert(Disk { limit_bytes: disk_bytes, used_bytes, files: Files::new() });
        }
        Ok(())
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
        let before = state.files(&from.map_or_else(|| image.into(), DiskId::from))?;
        let paths = differing(before, state.files(&to.into())?);
        let seen = if effort == Effort::Glance { paths.len().min(GLANCE_MAX) } else { paths.len() };
        let more = seen < paths.len();
        let paths = paths
            .into_iter()
            .take(seen.min(paths_max))
            .map(|(path, kind)| Change { path: path.clone(), kind })
            .collect();
        Ok(Changes { paths, total: seen as u64, more, since: from.cloned() })
    }

    /// In a folder: what a walk of both trees finds.
    async fn compare(&self, old: &Tree, new: &Tree, _: TimeComparison) -> Result<Comparison, DiskError> {
        let mut trees = Vec::new();
        for tree in [old, new] {
            let disk = tree.into();
            let table = self.state().files(&disk)?.clone();
            let path = self.root(&disk);
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
        self.state().files(&tree.into())?;
        Ok(vec![path.to_vec()])
    }

    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, DiskError> {
        let state = self.state();
        state.check_room()?;
        dump::stage(&self.dumps.path, id)
    }

    async fn seal_dump(&self, id: &DumpId, about: &str, _: bool) -> Result<u64, DiskError> {
        let _state = self.state();
        dump::seal(&self.dumps.path, id, about, &NoDisk, &RecentlyVerified::never())
    }

    async fn open_dump(&self, id: &DumpId) -> Result<Dump, DiskError> {
        dump::open(&self.dumps.path, id, &RecentlyVerified::never())
    }

    async fn remove_dump(&self, id: &DumpId) -> Result<(), DiskError> {
        let _state = self.state();
        dump::remove(&self.dumps.path, id)
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
        sim.create((&id).into(), Some((&image).into()), 1000).await.unwrap();
        sim.write(&id, "/kept", "first").unwrap();
        let (first, second) = (SnapshotId::generate(), SnapshotId::generate());
        sim.snapshot((&first).into(), (&id).into()).await.unwrap();
        sim.write(&id, "/kept", "second").unwrap();
        sim.write(&id, "/new", "x").unwrap();
        sim.snapshot((&second).into(), (&id).into()).await.unwrap();

        let child = SandboxId::generate();
        sim.create((&child).into(), Some((&second).into()), 1000).await.unwrap();
        assert_eq!(sim.read(&child, "/kept").as_deref(), Some("second"));
        sim.replace((&id).into(), (&first).into(), 1000).await.unwrap();
        assert_eq!((sim.read(&id, "/kept").as_deref(), sim.read(&id, "/new")), (Some("first"), None));
        let changed = sim.changes(Some(&first), &second, &image, 1, Effort::Whole).await.unwrap();
        assert_eq!((changed.total, changed.paths.len(), changed.paths[0].kind), (2, 1, ChangeKind::Changed));
        assert_eq!(sim.used((&second).into()).await.unwrap(), 7);

        let committed = ImageId::generate();
        sim.stage((&committed).into(), Some((&child).into())).await.unwrap();
        sim.seal((&committed).into()).await.unwrap();
        sim.unlink(&child, "/new").unwrap();
        let other = SandboxId::generate();
        sim.create((&other).into(), Some((&committed).into()), 1000).await.unwrap();
        assert_eq!(sim.files(&other).unwrap().len(), 2);
        assert_eq!(sim.files(&child).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_full_pool_refuses_to_create_and_keeps_what_it_has() {
        let (sim, image, id) = (Sim::new(100), ImageId::generate(), SandboxId::generate());
        sim.stage((&image).into(), None).await.unwrap();
        sim.seal((&image).into()).await.unwrap();
        sim.create((&id).into(), Some((&image).into()), 1000).await.unwrap();
        assert!(sim.charge(&id, 100) && !sim.charge(&id, 1));
        let refused = sim.create((&SandboxId::generate()).into(), Some((&image).into()), 1).await;
        assert!(matches!(refused, Err(DiskError::Full { .. })), "{refused:?}");
        sim.create((&id).into(), Some((&image).into()), 1000).await.unwrap();
    }
}
