//! Disks on btrfs: every disk is a subvolume, every copy a snapshot.
//!
//! ```text
//!   <pool>/images/<image>/rootfs          read-only, final
//!   <pool>/staged/<image>/rootfs          being filled
//!   <pool>/sandboxes/<sandbox>/rootfs     writable, limited by a quota group
//!   <pool>/snapshots/<snapshot>/rootfs    read-only, final
//!   <pool>/volumes/<volume>/rootfs        a volume, limited by a quota group
//!   <pool>/volume-snapshots/<snapshot>    a snapshot of a volume; read-only, final
//!   <pool>/arriving/<snapshot>/rootfs     an imported snapshot, until it is sealed
//!   <pool>/dumps/<dump>                   files of processes that are to be restored later
//!   <pool>/replacing/<sandbox or volume>  a disk that will replace that one, or was replaced
//!   <pool>/transfer/                      disks being sent or received
//!   <pool>/retired/                       marks of quota groups that are still to be removed
//! ```
//!
//! An image is sealed by taking a read-only snapshot of the staged disk: it appears completely, with its data, in one
//! committed transaction. The disk of a sandbox appears in one transaction with its quota. A create needs no further sync,
//! because the snapshot call returns after its commit.
//!
//! Entries of these directories whose names are not ids do not belong to Burrow and are ignored.

mod backing;
mod changes;
mod driver;
mod dumps;
mod exclusive;
mod housekeeper;
mod ioctl;
mod pool;
mod probe;
mod quota;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;
mod younger;

use std::fmt;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use burrow_model::SandboxId;

use crate::{DiskError, DiskId, step};
use dumps::Dumps;
use housekeeper::Housekeeper;
use ioctl::Access;
use pool::Pool;
use quota::{Owner, Quotas};

pub use backing::Backing;
pub use pool::{Options, POOL_BYTES_MIN, PoolSource};
pub use probe::{Finding, Problem, probe};
pub use quota::QuotaSupport;

/// Space that must be free for every create and every staged image: a completely full pool cannot even delete, because
/// deleting writes too.
const RESERVE_BYTES: u64 = 64 << 20;

/// Subvolumes that may be nested in one disk before its removal gives up.
const NESTED_MAX: usize = 100_000;

/// How often the removal of a disk that is being sent (for a backup, or to be compared) is tried: for a minute. Comparing
/// takes milliseconds; the removal of a disk during a backup has to be repeated by the caller.
const SENT_TRIES_MAX: u32 = 6000;
const SENT_PACE: Duration = Duration::from_millis(10);

/// The btrfs driver.
#[derive(Debug)]
pub struct BtrfsDisks {
    inner: Arc<Inner>,
    housekeeper: OnceLock<Housekeeper>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    /// Held while the pool grows, so that a smaller size computed at the same time never follows a larger one.
    growing: Mutex<()>,
    quotas: Quotas,
    images: Folder,
    staged: Folder,
    sandboxes: Folder,
    snapshots: Folder,
    volumes: Folder,
    volume_snapshots: Folder,
    arriving: Folder,
    dumps: Folder,
    dumping: Dumps,
    replacing: Folder,
    transfer: Folder,
}

/// One of the directories, kept open: names are resolved in it and nowhere else.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    directory: File,
}

impl BtrfsDisks {
    /// Opens the pool; creates and mounts it first if necessary. Blocks (a new pool takes a second).
    pub fn open(options: Options) -> Result<Arc<Self>, DiskError> {
        let pool = Pool::open(&options)?;
        let retired = Folder::open(&pool.root, "retired")?;
        let quotas =
            Quotas::open(&pool.directory, &retired.path).map_err(step("open the quotas of", &pool.root))?;
        if let QuotaSupport::Unavailable { reason } = quotas.support() {
            tracing::warn!(pool = %pool.root.display(), reason, "disk limits of sandboxes are not enforced");
        }
        let inner = Arc::new(Inner {
            growing: Mutex::default(),
            images: Folder::open(&pool.root, "images")?,
            staged: Folder::open(&pool.root, "staged")?,
            sandboxes: Folder::open(&pool.root, "sandboxes")?,
            snapshots: Folder::open(&pool.root, "snapshots")?,
            volumes: Folder::open(&pool.root, "volumes")?,
            volume_snapshots: Folder::open(&pool.root, "volume-snapshots")?,
            arriving: Folder::open(&pool.root, "arriving")?,
            dumps: Folder::open(&pool.root, "dumps")?,
            dumping: Dumps::default(),
            replacing: Folder::open(&pool.root, "replacing")?,
            transfer: Folder::open(&pool.root, "transfer")?,
            pool,
            quotas,
        });
        let mut live: Vec<Owner> = inner.sandboxes.ids()?.into_iter().map(Owner::Sandbox).collect();
        live.extend(inner.volumes.ids()?.into_iter().map(Owner::Volume));
        inner.quotas.retire_marked(retired.id_names()?, &live);
        for folder in [&inner.transfer, &inner.replacing, &inner.arriving] {
            inner.sweep(folder)?;
        }
        let housekeeper = OnceLock::from(Housekeeper::start(&inner)?);
        Ok(Arc::new(Self { inner, housekeeper }))
    }

    /// Whether `disk_bytes` is enforced in this pool.
    pub fn quota_support(&self) -> &QuotaSupport {
        self.inner.quotas.support()
    }

    /// The pool's root directory.
    pub fn root(&self) -> &Path {
        &self.inner.pool.root
    }

    /// Makes a loop-backed pool at least `size_bytes` large. Does nothing if the pool is a directory.
    pub async fn grow(&self, size_bytes: u64) -> Result<(), DiskError> {
        self.blocking(move |inner| inner.grow_to(size_bytes)).await
    }

    /// Stops the housekeeping and unmounts a loop-backed pool. For uninstalling and tests: a daemon that only exits
    /// leaves the pool mounted, because sandboxes outlive it. Nothing in the pool can be used afterwards.
    pub fn unmount(&self) -> Result<(), DiskError> {
        if let Some(housekeeper) = self.housekeeper.get() {
            housekeeper.stop();
        }
        self.inner.dumping.finish();
        self.inner.pool.unmount()
    }

    /// Runs file system work off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, DiskError> {
        let inner = Arc::clone(&self.inner);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(result) => result,
            // The work ends without a result only by a panic, which is passed to the caller.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

// === impl Inner ===

impl Inner {
    /// Where the disks of a kind are.
    fn folder(&self, disk: &DiskId) -> &Folder {
        match disk {
            DiskId::Image(_) => &self.images,
            DiskId::Sandbox(_) => &self.sandboxes,
            DiskId::Snapshot(_) => &self.snapshots,
            DiskId::Frozen(_) => &self.transfer,
            DiskId::Volume(_) => &self.volumes,
            DiskId::VolumeSnapshot(_) => &self.volume_snapshots,
        }
    }

    /// Where the disks of a kind are filled, if they are.
    fn staging(&self, disk: &DiskId) -> Option<&Folder> {
        match disk {
            DiskId::Image(_) => Some(&self.staged),
            DiskId::Snapshot(_) => Some(&self.arriving),
            DiskId::Sandbox(_) | DiskId::Frozen(_) | DiskId::Volume(_) | DiskId::VolumeSnapshot(_) => None,
        }
    }

    fn path(&self, disk: &DiskId) -> PathBuf {
        self.folder(disk).path.join(disk.name())
    }

    fn holds(&self, disk: &DiskId) -> bool {
        self.folder(disk).holds(disk.name())
    }

    /// The path of an existing disk.
    fn find(&self, disk: &DiskId) -> Result<PathBuf, DiskError> {
        match self.holds(disk) {
            true => Ok(self.path(disk)),
            false => Err(DiskError::NotFound { disk: disk.clone() }),
        }
    }

    fn open(&self, disk: &DiskId) -> Result<File, DiskError> {
        let path = self.find(disk)?;
        File::open(&path).map_err(step("open the disk", &path))
    }

    /// See [`crate::Disks::stage`]. It joins no quota group, because only the data of sandboxes and volumes is charged.
    fn stage(&self, disk: DiskId, from: Option<&DiskId>) -> Result<PathBuf, DiskError> {
        let Some(folder) = self.staging(&disk) else { return Err(disk.not_for("stage")) };
        self.check_room()?;
        let source = from.map(|from| self.open(from)).transpose()?;
        let name = disk.name();
        self.remove(folder, name)?;
        let path = folder.path.join(name);
        let rootfs = path.join("rootfs");
        match source {
            Some(source) => ioctl::snapshot(&folder.directory, name, &source, Access::Writable, None),
            None => ioctl::create_subvolume(&folder.directory, name)
                .and_then(|()| DirBuilder::new().mode(0o755).create(&rootfs)),
        }
        .map_err(self.failed("stage the disk", &path))?;
        Ok(rootfs)
    }

    /// The kernel writes the content to disk and returns after its commit: the disk exists completely or not at all.
    fn seal(&self, disk: DiskId) -> Result<(), DiskError> {
        let Some(folder) = self.staging(&disk) else { return Err(disk.not_for("seal")) };
        if !self.holds(&disk) {
            let path = folder.path.join(disk.name());
            let staged = match File::open(&path) {
                Ok(staged) => staged,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(DiskError::NotFound { disk });
                }
                Err(error) => return Err(step("open the staged disk", &path)(error)),
            };
            let sealed = &self.folder(&disk).directory;
            ioctl::snapshot(sealed, disk.name(), &staged, Access::ReadOnly, None)
                .map_err(self.failed("seal the disk", &path))?;
        }
        self.remove(folder, disk.name())
    }

    /// See [`crate::Disks::create`]: in one transaction with its quota.
    fn create(&self, disk: DiskId, from: Option<&DiskId>, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        let rootfs = self.path(&disk).join("rootfs");
        if self.holds(&disk) {
            return Ok(rootfs);
        }
        self.check_room()?;
        let source = match (from, &disk) {
            (Some(from), _) => self.open(from)?,
            (None, DiskId::Volume(_)) => self.empty_volume(disk.name())?,
            (None, _) => return Err(disk.not_for("create without a source")),
        };
        let made = self.copy_with_quota(self.folder(&disk), &disk, &source, disk_bytes);
        drop(source);
        if from.is_none() {
            self.remove(&self.replacing, disk.name())?;
        }
        match made? {
            Ok(()) => {}
            // Another caller created the same disk since the check.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                self.quotas.retire(&owner(&disk, "create")?);
                return Err(self.failed("make the disk", &self.path(&disk))(error));
            }
        }
        Ok(rootfs)
    }

    /// A writable copy of `source` in `folder`, charged to the owner of `disk`.
    fn copy_with_quota(
        &self,
        folder: &Folder,
        disk: &DiskId,
        source: &File,
        disk_bytes: u64,
    ) -> Result<io::Result<()>, DiskError> {
        let owner = owner(disk, "create")?;
        let made = self.quotas.with_group(&self.pool.directory, &owner, disk_bytes, |group| {
            ioctl::snapshot(&folder.directory, disk.name(), source, Access::Writable, group)
        });
        if made.is_ok() && matches!(disk, DiskId::Sandbox(_)) {
            self.note_base(folder, disk.name());
        }
        Ok(made)
    }

    /// Creates an empty volume, first in a directory that the next start empties: a volume exists completely or not at all.
    fn empty_volume(&self, name: &str) -> Result<File, DiskError> {
        self.remove(&self.replacing, name)?;
        let path = self.replacing.path.join(name);
        ioctl::create_subvolume(&self.replacing.directory, name)
            .map_err(self.failed("make the volume", &path))?;
        let rootfs = path.join("rootfs");
        crate::volume_files::make_root(&rootfs).map_err(self.failed("make the directory", &rootfs))?;
        File::open(&path).map_err(step("open the volume", &path))
    }

    fn remove_disk(&self, disk: &DiskId) -> Result<(), DiskError> {
        // The mark comes first: a crash after the removal must not leave a group that no mark names.
        if let Ok(owner) = owner(disk, "remove") {
            self.quotas.retire(&owner);
        }
        if let Some(folder) = self.staging(disk) {
            self.remove(folder, disk.name())?;
        }
        self.remove(self.folder(disk), disk.name())
    }

    /// The bytes charged to a sandbox or a volume.
    fn charged(&self, disk: DiskId) -> Result<u64, DiskError> {
        let path = self.find(&disk)?;
        match self.quotas.support() {
            QuotaSupport::Enforced => self
                .quotas
                .used(&self.pool.directory, &owner(&disk, "measure")?)
                .map_err(step("read the usage of", &path)),
            QuotaSupport::Unavailable { reason } => Err(DiskError::NoQuotas { reason: reason.clone() }),
        }
    }

    fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError> {
        let path = self.find(&id.into())?;
        let owner = Owner::Sandbox(id.clone());
        self.quotas.limit(&self.pool.directory, &owner, disk_bytes).map_err(step("limit the disk", &path))
    }

    fn sync(&self, id: &SandboxId) -> Result<(), DiskError> {
        let disk = id.into();
        // As `sync` does for a process: file contents too, not only the transaction.
        rustix::fs::syncfs(self.open(&disk)?)
            .map_err(|error| self.failed("sync the disk", &self.path(&disk))(error.into()))
    }

    /// Removes a subvolume and those nested in it. Does nothing if it does not exist. Does not wait for a commit, which would
    /// take several times as long: see [`crate::Disks::remove`].
    fn remove(&self, folder: &Folder, name: &str) -> Result<(), DiskError> {
        let path = folder.path.join(name);
        match destroy_unless_sent(folder, name) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                self.remove_nested(&path)?;
                ioctl::destroy_subvolume(&folder.directory, name).map_err(step("remove the disk", &path))
            }
            Err(error) => Err(step("remove the disk", &path)(error)),
        }
    }

    /// Removes the subvolumes nested in a subvolume, the deepest first, by id: no path inside is walked.
    fn remove_nested(&self, path: &Path) -> Result<(), DiskError> {
        let failed = || step("remove what is nested in the disk", path);
        let pool = &self.pool.directory;
        let top = File::open(path).and_then(ioctl::subvolume_id).map_err(failed())?;
        let mut found = vec![top];
        let mut looked_at = 0;
        while looked_at < found.len() {
            let mut first = 0;
            loop {
                let children =
                    ioctl::search(pool, ioctl::ROOT_TREE, found[looked_at], ioctl::ROOT_REF_KEY, first)
                        .map_err(failed())?;
                let Some(last) = children.last() else { break };
                first = last + 1;
                found.extend(children);
                if found.len() > NESTED_MAX {
                    return Err(failed()(io::ErrorKind::QuotaExceeded.into()));
                }
            }
            looked_at += 1;
        }
        for id in found.into_iter().skip(1).rev() {
            ioctl::destroy_subvolume_by_id(pool, id).map_err(failed())?;
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), DiskError> {
        let free_bytes = self.space_for(RESERVE_BYTES)?.free_bytes;
        if free_bytes < RESERVE_BYTES {
            return Err(DiskError::Full { needed_bytes: RESERVE_BYTES, free_bytes });
        }
        Ok(())
    }

    /// The error of a failed step, or the error that the pool is full if that is the cause.
    fn failed(&self, what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let otherwise = step(what, path);
        move |error| self.full_or(otherwise(error))
    }

    /// The error that the pool is full if that is the cause, else `error`.
    fn full_or(&self, error: DiskError) -> DiskError {
        if let DiskError::Step { source, .. } = &error
            && source.kind() == io::ErrorKind::StorageFull
        {
            let free_bytes = self.pool.space().map_or(0, |space| space.free_bytes);
            return DiskError::Full { needed_bytes: RESERVE_BYTES, free_bytes };
        }
        error
    }
}

/// The owner that a disk is charged to.
fn owner(disk: &DiskId, operation: &'static str) -> Result<Owner, DiskError> {
    match disk {
        DiskId::Sandbox(id) => Ok(Owner::Sandbox(id.clone())),
        DiskId::Volume(id) => Ok(Owner::Volume(id.clone())),
        DiskId::Image(_) | DiskId::Snapshot(_) | DiskId::Frozen(_) | DiskId::VolumeSnapshot(_) => {
            Err(disk.clone().not_for(operation))
        }
    }
}

/// Removes a subvolume, waiting until it is no longer being sent: until then the kernel answers `EPERM`.
fn destroy_unless_sent(folder: &Folder, name: &str) -> io::Result<()> {
    for _ in 0..SENT_TRIES_MAX {
        match ioctl::destroy_subvolume(&folder.directory, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => std::thread::sleep(SENT_PACE),
            result => return result,
        }
    }
    ioctl::destroy_subvolume(&folder.directory, name)
}

// === impl Folder ===

impl Folder {
    fn open(root: &Path, name: &str) -> Result<Self, DiskError> {
        let path = root.join(name);
        // Closed to others, even if the pool is a directory of a file system that everyone may enter.
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(step("make the directory", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
        let directory = File::open(&path).map_err(step("open the directory", &path))?;
        // Also for an existing directory with wider permissions.
        directory.set_permissions(Permissions::from_mode(0o700)).map_err(step("close to others", &path))?;
        Ok(Self { path, directory })
    }

    /// Whether a subvolume of that name is here.
    fn holds(&self, name: &str) -> bool {
        let found = fs::symlink_metadata(self.path.join(name));
        found.is_ok_and(|found| found.is_dir() && found.ino() == ioctl::FIRST_FREE_OBJECT_ID)
    }

    /// The subvolumes here whose names are ids, sorted.
    fn ids<T: FromStr + Ord + fmt::Display>(&self) -> Result<Vec<T>, DiskError> {
        let mut ids: Vec<T> = self.id_names()?;
        ids.retain(|id| self.holds(&id.to_string()));
        Ok(ids)
    }

    /// All entries here whose names are ids, sorted.
    fn id_names<T: FromStr + Ord>(&self) -> Result<Vec<T>, DiskError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(step("list", &self.path))? {
            let name = entry.map_err(step("list", &self.path))?.file_name();
            names.extend(name.to_str().and_then(|name| name.parse().ok()));
        }
        names.sort_unstable();
        Ok(names)
    }
}
