//! Seam: copy-on-write disks.
//!
//! An image is a read-only disk. The disk of a sandbox is a writable copy-on-write child of an image or a snapshot, with
//! a quota. Each disk has a directory `rootfs/` (the sandbox's files, with uids shifted by [`UID_SHIFT`]). A driver may keep
//! its own files (a disk image, a RAM file) beside it, so that one snapshot contains everything.
//!
//! The trait [`Disks`] covers six kinds of objects:
//!
//! | object | life cycle |
//! |---|---|
//! | image | staged, sealed, removed |
//! | disk of a sandbox | created from an image or a snapshot, replaced, destroyed |
//! | snapshot of a sandbox | taken, or staged and sealed (imports), removed |
//! | dump (files of frozen processes) | staged, sealed, opened (which verifies it), removed |
//! | volume | created empty or from a volume snapshot, replaced, removed |
//! | volume snapshot | taken, removed |
//!
//! *Staged* objects are writable and incomplete; *sealed* objects never change.
//!
//! This crate does not contain: policy, the content of images, decisions about sizes and permissions.

pub mod btrfs;
mod command;
pub mod conformance;
pub mod debian;
mod dump;
pub mod faulty;
pub mod inside;
mod shift;
pub mod sim;
pub mod volume_files;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use burrow_model::{
    Bytes, ChangeKind, Changes, DumpId, ImageId, SandboxId, SnapshotId, VolumeId, VolumeSnapshotId,
};

pub use dump::MANIFEST as DUMP_MANIFEST;
pub use shift::{ShiftReport, shift_attribute, shift_owners, unshift_attribute};

/// Host uid of root inside every sandbox; the next 65,535 follow.
pub const UID_SHIFT: u32 = 100_000;
pub const UID_COUNT: u32 = 65_536;

/// A driver that stores disks.
///
/// Methods are idempotent, because the engine repeats every step that may not have finished. When a method returns `Ok`,
/// its effect is durable. An unknown id is [`DiskError::NotFound`], except for methods that remove something. A method that
/// does not apply to a kind of disk is [`DiskError::WrongKind`].
#[async_trait]
pub trait Disks: fmt::Debug + Send + Sync {
    /// Creates a writable disk to fill an image or an imported snapshot in, and returns the directory of its files
    /// (`rootfs/`, which exists). Replaces a staged disk of the same id. Until a snapshot is sealed, no other method finds it,
    /// and the next start removes it.
    ///
    /// It is empty, or a copy of `from`: for an image, a sealed image or the disk of a sandbox in its present state (which may
    /// continue to run); for a snapshot, another snapshot. Data that a sandbox shares with the copy stays charged to the
    /// sandbox for as long as either of them refers to it.
    async fn stage(&self, disk: DiskId, from: Option<DiskId>) -> Result<PathBuf, DiskError>;

    /// Makes a staged disk read-only, final and durable, in one atomic step. Does nothing if it is sealed already.
    async fn seal(&self, disk: DiskId) -> Result<(), DiskError>;

    /// Creates the disk of a sandbox or a volume, limited to `disk_bytes`, and returns the directory of its files (`rootfs/`).
    /// If it exists already, it is left unchanged and its directory is returned.
    ///
    /// It is a writable copy-on-write child of `from`: for a sandbox, an image or a snapshot; for a volume, a volume snapshot.
    /// A volume may also start empty; its `rootfs/` then belongs to root inside.
    async fn create(&self, disk: DiskId, from: Option<DiskId>, disk_bytes: u64)
    -> Result<PathBuf, DiskError>;

    /// Replaces the disk of a sandbox or a volume with a new writable copy of a snapshot. The old content is lost, also if the
    /// call is repeated. No process may use the disk during the call. A crash leaves either the old disk or the new one,
    /// complete, and possibly leftovers that the next start removes. If there is no such disk, one is created.
    async fn replace(&self, disk: DiskId, from: DiskId, disk_bytes: u64) -> Result<PathBuf, DiskError>;

    /// Creates a read-only copy of the disk of a sandbox or a volume, durable on return. If it exists already, it is left
    /// unchanged.
    ///
    /// The copy of a paused sandbox contains exactly its files at that moment, including data that no process synced. The copy
    /// of a running sandbox contains what a power failure would leave: all synced data, and, of writes during the call, possibly
    /// those to one file and not those to another. Data that both share stays charged to the sandbox for as long as either
    /// of them refers to it.
    async fn snapshot(&self, disk: DiskId, of: DiskId) -> Result<(), DiskError>;

    /// Returns the directory of a disk's files (`rootfs/`). Those of images and snapshots must only be read.
    async fn locate(&self, disk: DiskId) -> Result<PathBuf, DiskError>;

    /// Removes a disk, staged or sealed. Does nothing if it does not exist. Removals are the one exception to durability,
    /// because waiting for the disk would take longer than the rest of the call: after a power failure within a few seconds,
    /// the removed disk may exist again. The inventory then lists it, and recovery removes it.
    async fn remove(&self, disk: DiskId) -> Result<(), DiskError>;

    /// For a sandbox or a volume: the bytes charged to it. Data counts once it has reached the disk; the result may be half a
    /// second old.
    ///
    /// For a snapshot: an estimate of the bytes that only this snapshot of the sandbox refers to, which are those written since
    /// the previous snapshot, minus those that the next snapshot still contains. Removing the snapshot frees that much, unless a
    /// sandbox still uses the data. Metadata is not counted.
    async fn used(&self, disk: DiskId) -> Result<u64, DiskError>;

    /// Changes the size limit of a sandbox's disk. Succeeds without effect if the pool cannot enforce limits.
    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError>;

    /// Returns when everything written to a sandbox's disk before this call is on disk.
    async fn sync(&self, id: &SandboxId) -> Result<(), DiskError>;

    /// Lists everything that exists in the pool.
    async fn inventory(&self) -> Result<Inventory, DiskError>;

    /// Returns the size of the pool and its free space.
    async fn space(&self) -> Result<Space, DiskError>;

    /// As [`Disks::space`]. If fewer bytes are free than needed and the pool can grow, it grows first.
    async fn space_for(&self, needed_bytes: u64) -> Result<Space, DiskError>;

    /// Starts to stream a disk in its present state, for a backup, as the difference to `base` if that exists: the image of a
    /// sandbox; the parent or the image of a snapshot. Later changes are not part of the stream.
    async fn send(&self, disk: DiskId, base: Option<DiskId>) -> Result<Chunks, DiskError>;

    /// Creates a disk from a stream that [`Disks::send`] produced. Its base must have been received before. If the disk exists
    /// already, it is left unchanged.
    async fn receive(&self, disk: DiskId, disk_bytes: u64, chunks: Chunks) -> Result<(), DiskError>;

    /// Lists the differences of the snapshot `to` from the snapshot `from`, or from `image` if `from` is `None`: at most
    /// `paths_max` paths, sorted, as the sandbox sees them, and the total number. `since` of the result is `from`.
    ///
    /// The time required depends on the number of changes. If there are more than a million, or more than about a thousand with
    /// [`Effort::Glance`], only some of them are inspected: `total` then counts the changes among those, and `more` is set.
    /// Content, file type, owner, mode and attributes count as changes; times do not. A rename is reported as one deletion and
    /// one addition. An error (for example, paths too long for the kernel) does not mean that the snapshot is damaged.
    async fn changes(
        &self,
        from: Option<&SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, DiskError>;

    /// Lists the paths that differ between `old` and `new`, sorted.
    ///
    /// If `new` was derived from `old`, in any number of steps, the time required depends on the number of changes and not on
    /// the size of the trees. To compare two trees with a common origin, compare each of them with the origin.
    /// Content, file type, owner, mode and attributes count as changes; times count only if `times` says so. A rename is reported
    /// as one deletion and one addition, and a changed file is reported under each of its names. [`ChangeKind::Changed`] means
    /// that the file was written to; its content may still be the same.
    async fn compare(&self, old: &Tree, new: &Tree, times: TimeComparison) -> Result<Comparison, DiskError>;

    /// Returns all names of the file at `path`, including `path` itself. Returns none for a directory or a missing path.
    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, DiskError>;

    /// Creates an empty directory for the files of a dump, accessible only to root. Removes the files of an earlier attempt
    /// with the same id.
    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, DiskError>;

    /// Makes a staged dump final and durable, and returns the total size of its files. A dump is a flat directory of regular
    /// files; any other entry is an error. `about` is stored with the dump and returned by [`Disks::open_dump`]. With
    /// `evict`, its pages are dropped from the page cache soon afterwards. A dump that is sealed already is left unchanged.
    async fn seal_dump(&self, id: &DumpId, about: &str, evict: bool) -> Result<u64, DiskError>;

    /// Verifies each file of a sealed dump against the manifest and returns the dump. No file may be used before this call.
    /// (A dump that was verified minutes ago and is unchanged since need not be read again.) Nothing may be written
    /// to the directory: the next call would refuse the dump because of the additional file.
    async fn open_dump(&self, id: &DumpId) -> Result<Dump, DiskError>;

    /// Removes a dump, staged or sealed. Does nothing if it does not exist.
    async fn remove_dump(&self, id: &DumpId) -> Result<(), DiskError>;
}

/// A dump that has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The directory of its files.
    pub path: PathBuf,
    /// The description that was stored when the dump was sealed.
    pub about: String,
    /// The total size of its files.
    pub bytes: u64,
}

/// The stream of a disk, in chunks. It ends with the last chunk or at the first error.
pub type Chunks = tokio::sync::mpsc::Receiver<io::Result<Vec<u8>>>;

/// A disk of any kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskId {
    Image(ImageId),
    Sandbox(SandboxId),
    Snapshot(SnapshotId),
    /// A temporary read-only copy of a sandbox's disk, for comparing and reading. No inventory lists it, and the next start
    /// removes one that a crash left.
    Frozen(SnapshotId),
    Volume(VolumeId),
    VolumeSnapshot(VolumeSnapshotId),
}

impl DiskId {
    fn name(&self) -> &str {
        match self {
            Self::Image(id) => id.as_str(),
            Self::Sandbox(id) => id.as_str(),
            Self::Snapshot(id) | Self::Frozen(id) => id.as_str(),
            Self::Volume(id) => id.as_str(),
            Self::VolumeSnapshot(id) => id.as_str(),
        }
    }

    /// The error for a method that does not apply to this kind of disk.
    fn not_for(self, operation: &'static str) -> DiskError {
        DiskError::WrongKind { operation, disk: self }
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Image(_) => "image",
            Self::Sandbox(_) => "the disk of sandbox",
            Self::Snapshot(_) => "snapshot",
            Self::Frozen(_) => "the temporary copy",
            Self::Volume(_) => "volume",
            Self::VolumeSnapshot(_) => "volume snapshot",
        };
        write!(f, "{kind} `{}`", self.name())
    }
}

macro_rules! disk_of {
    ($($id:ident => $kind:ident),*) => {$(
        impl From<&$id> for DiskId {
            fn from(id: &$id) -> Self {
                Self::$kind(id.clone())
            }
        }
    )*};
}

disk_of!(
    ImageId => Image, SandboxId => Sandbox, SnapshotId => Snapshot, VolumeId => Volume,
    VolumeSnapshotId => VolumeSnapshot
);

/// A tree of files that does not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    Image(ImageId),
    Snapshot(SnapshotId),
    /// See [`DiskId::Frozen`].
    Frozen(SnapshotId),
}

impl From<&Tree> for DiskId {
    fn from(tree: &Tree) -> Self {
        match tree {
            Tree::Image(id) => Self::Image(id.clone()),
            Tree::Snapshot(id) => Self::Snapshot(id.clone()),
            Tree::Frozen(id) => Self::Frozen(id.clone()),
        }
    }
}

/// Whether a file counts as changed if only its modification time differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeComparison {
    Ignored,
    Count,
}

/// What differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Sorted by path.
    pub paths: Vec<ChangedPath>,
    /// There are more differences than the driver inspected.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedPath {
    /// Absolute, as the sandbox sees it; `/` is its root. Processes in the sandbox chose these bytes; do not trust them.
    pub path: Vec<u8>,
    pub kind: ChangeKind,
    /// The file is the same one and its content was written to. May be `false` for files that were written to.
    pub written: bool,
}

/// Everything that exists in a pool, for recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub sandboxes: Vec<SandboxId>,
    pub images: Vec<ImageId>,
    pub staged: Vec<ImageId>,
    pub snapshots: Vec<SnapshotId>,
    /// Staged or sealed.
    pub dumps: Vec<DumpId>,
    pub volumes: Vec<VolumeId>,
    pub volume_snapshots: Vec<VolumeSnapshotId>,
}

/// How thoroughly [`Disks::changes`] searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Finds all changes, regardless of the time required.
    Whole,
    /// Finds what can be found in about the time that a snapshot takes.
    Glance,
}

/// The capacity of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("{disk} does not exist in the pool")]
    NotFound { disk: DiskId },
    #[error("{disk} does not support the operation `{operation}`")]
    WrongKind { operation: &'static str, disk: DiskId },
    #[error("dump `{dump}` does not exist in the pool")]
    DumpNotFound { dump: DumpId },
    #[error("{what} is damaged: its file `{file}` {how}")]
    Damaged { what: String, file: String, how: &'static str },
    #[error("dump `{dump}` has format {format}, and this version supports formats up to {known}")]
    TooNew { dump: DumpId, format: u32, known: u32 },
    #[error("dump `{dump}` cannot contain `{file}`, which {why}")]
    NotDumpable { dump: DumpId, file: String, why: &'static str },
    #[error("pool `{}` is on {filesystem}, which is not btrfs", .pool.display())]
    NotBtrfs { pool: PathBuf, filesystem: String },
    #[error("`{}` is already mounted from `{}`", .mount.display(), .device.display())]
    MountTaken { mount: PathBuf, device: PathBuf },
    #[error("a pool in `{}` needs {}, and {} are free on that disk", .file.display(), Bytes(*.needed_bytes), Bytes(*.free_bytes))]
    NoRoomForPool { file: PathBuf, needed_bytes: u64, free_bytes: u64 },
    #[error("quotas are not enabled on the pool: {reason}")]
    NoQuotas { reason: String },
    #[error("could not {step} `{what}`")]
    Step { step: &'static str, what: String, source: io::Error },
    #[error("the pool is full: {} needed, {} free", Bytes(*.needed_bytes), Bytes(*.free_bytes))]
    Full { needed_bytes: u64, free_bytes: u64 },
    #[error("`{command}` failed: {message}")]
    Command { command: String, message: String },
    #[error("neither `mmdebstrap` nor `debootstrap` is installed, so no image can be built")]
    NoBuilder,
    #[error("no mirror for the host's distribution in its package sources, so no image can be built")]
    NoMirror,
    #[error("the disk driver is configured to fail")]
    Injected,
}

/// Converts an IO error to the error of a step.
pub(crate) fn step(step: &'static str, what: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let what = what.display().to_string();
    move |source| DiskError::Step { step, what, source }
}

impl DiskError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotBtrfs { .. } => Some(
                "set `pool.path` to a directory on btrfs, or remove it: Burrow then creates a loop-backed pool",
            ),
            Self::MountTaken { .. } => Some("unmount it, or set another mount directory for the pool"),
            Self::Full { .. } => Some("remove sandboxes or images, or free space on the disk of the pool"),
            Self::NoRoomForPool { .. } => {
                Some("free space on that disk, or set `state_dir` or `pool.path` to another one")
            }
            Self::NoQuotas { .. } => {
                Some("use Linux 6.7 or newer, which has simple quotas, or a separate pool")
            }
            Self::NoBuilder => Some("install it: `apt-get install mmdebstrap`"),
            Self::NoMirror => Some("set the image's mirror and suite in the configuration"),
            Self::TooNew { .. } => Some("it was created by a newer version of Burrow: upgrade this one"),
            Self::NotFound { .. }
            | Self::WrongKind { .. }
            | Self::Command { .. }
            | Self::Damaged { .. }
            | Self::DumpNotFound { .. }
            | Self::NotDumpable { .. }
            | Self::Step { .. }
            | Self::Injected => None,
        }
    }
}
