//! Seam: copy-on-write disks.
//!
//! An image is a read-only volume; a sandbox's disk is a writable copy-on-write child of one, with a quota. What a
//! volume holds: `rootfs/` (the sandbox's files, uids shifted by [`UID_SHIFT`]) and, beside it, room for a driver's
//! own files (a disk image, a RAM file), so that one snapshot takes all.
//!
//! What is absent: policy, what is in an image, who may have how much.

pub mod btrfs;
mod command;
pub mod conformance;
pub mod debian;
mod dump;
pub mod faulty;
pub mod inside;
pub mod shelf_files;
mod shift;
pub mod sim;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::{ChangeKind, Changes, DumpId, ImageId, SandboxId, ShelfId, ShelfSnapshotId, SnapshotId};

pub use dump::MANIFEST as DUMP_MANIFEST;
pub use shift::{Shifted, shift_attribute, shift_owners, unshift_attribute};

/// Host uid of root inside every sandbox; the next 65,535 follow.
pub const UID_SHIFT: u32 = 100_000;
pub const UID_COUNT: u32 = 65_536;

/// A driver that keeps disks.
///
/// Methods are idempotent, since the engine repeats a step it cannot prove it finished. What is acknowledged is
/// durable.
#[async_trait]
pub trait Volumes: fmt::Debug + Send + Sync {
    /// A writable, empty volume to build an image in; `rootfs/` exists. An older one of the same id is emptied.
    async fn stage_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError>;

    /// A writable copy-on-write child of the sealed image `parent`, to build another image in. An older one of the
    /// same id is replaced.
    async fn stage_image_from(&self, id: &ImageId, parent: &ImageId) -> Result<PathBuf, VolumeError>;

    /// A writable copy of a sandbox's volume as it is at this moment, to make an image of. The sandbox may run on. What
    /// the two share stays charged to the sandbox for as long as either has it.
    async fn stage_image_of_sandbox(&self, id: &ImageId, sandbox: &SandboxId)
    -> Result<PathBuf, VolumeError>;

    /// Where the files of a sealed image are. To be read only.
    async fn locate_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError>;

    /// Makes a staged image read-only and final. After this it never changes.
    async fn seal_image(&self, id: &ImageId) -> Result<(), VolumeError>;

    /// Removes an image, staged or sealed. Of an unknown one: nothing to do.
    async fn remove_image(&self, id: &ImageId) -> Result<(), VolumeError>;

    /// A writable copy-on-write child of `image` for `id`, limited to `disk_bytes`. Returns the directory of its
    /// files (`rootfs/`). When it exists already, that is the answer.
    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, VolumeError>;

    /// Where the files of an existing volume are.
    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, VolumeError>;

    /// Changes the limit. Where a pool cannot enforce limits, they are wishes: this works all the same.
    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), VolumeError>;

    /// Bytes charged to the sandbox: those written that reached the disk, half a second ago or later.
    async fn used(&self, id: &SandboxId) -> Result<u64, VolumeError>;

    /// Removes a sandbox's volume. Of an unknown one: nothing to do. The one exception to durability, since waiting
    /// for it costs more than all the rest: a power cut within seconds may bring a removed volume (or image) back.
    /// The inventory then names it, and recovery removes it again.
    async fn destroy(&self, id: &SandboxId) -> Result<(), VolumeError>;

    async fn inventory(&self) -> Result<Inventory, VolumeError>;

    async fn space(&self) -> Result<Space, VolumeError>;

    /// Begins to stream a volume as it is at this moment; what changes meanwhile is not in it. For backups.
    async fn send(&self, volume: &VolumeId) -> Result<Chunks, VolumeError>;

    /// Makes a volume of a stream that `send` made; a sandbox needs its image received first, a snapshot its image and its
    /// parent. When it exists already, it stays as it is.
    async fn receive(&self, volume: &VolumeId, disk_bytes: u64, chunks: Chunks) -> Result<(), VolumeError>;

    /// A read-only copy of a sandbox's volume. Of a paused sandbox it is exactly its files at that moment, also what no
    /// process synced; of one that runs, it is what a power cut would leave: what was synced is in it, and what was written
    /// during the call may be, of one file and not of another. Durable on return. When it exists already, it stays as it
    /// is. What the two share stays charged to the sandbox for as long as either has it.
    async fn snapshot(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), VolumeError>;

    /// A writable volume to put together a snapshot in that comes from elsewhere, `rootfs/` in it: empty, or a copy of
    /// `base`. An older one of the same id is removed. Nobody sees it, and the next start removes it, until it is sealed.
    async fn stage_snapshot(
        &self,
        id: &SnapshotId,
        base: Option<&SnapshotId>,
    ) -> Result<PathBuf, VolumeError>;

    /// Makes a staged snapshot read-only, final and durable, all of it at once. One that is sealed already stays as it is.
    async fn seal_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError>;

    /// A writable copy-on-write child of a snapshot for a sandbox, exactly as [`Volumes::create`] makes one of an image.
    async fn create_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError>;

    /// Makes the sandbox's volume a fresh writable copy of the snapshot; what it held is gone, also when this is repeated.
    /// Nothing may use the volume meanwhile. A crash leaves the old volume or the new one, whole, and leftovers that the
    /// next start removes. A sandbox without a volume is given one.
    async fn replace_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError>;

    /// Where the files of a snapshot are (`rootfs/`). To be read only.
    async fn locate_snapshot(&self, id: &SnapshotId) -> Result<PathBuf, VolumeError>;

    /// About how many bytes no other snapshot of the sandbox holds: those written since the one before, less those that the
    /// one after still has. Removing the snapshot gives back that much, unless a sandbox has them still. Data only.
    async fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, VolumeError>;

    /// What differs in `to` from the snapshot `from`, or from `image` without one: paths as the sandbox sees them, in
    /// order, at most `paths_max` of them, and how many there are. `since` is `from`. Takes as long as there are changes;
    /// of more than a million, and of more than about a thousand at a [`Effort::Glance`], only some are looked at: `total`
    /// says how many of these have changed, and `more` that there are others. Content, kind, owner, mode and attributes count, times
    /// do not; a rename deletes here and adds there. A failure (say, of paths too long for the kernel) says nothing about
    /// the snapshot itself.
    async fn changes(
        &self,
        from: Option<&SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, VolumeError>;

    /// A read-only copy of a sandbox's volume, as [`Volumes::snapshot`] takes one, to be compared and read for a while: it is
    /// [`Tree::Frozen`] under that id until [`Volumes::thaw`], and no inventory names it. What a crash leaves of it the next
    /// start removes.
    async fn freeze(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), VolumeError>;

    /// Removes what [`Volumes::freeze`] made. Of an unknown one: nothing to do.
    async fn thaw(&self, id: &SnapshotId) -> Result<(), VolumeError>;

    /// Where the files of a tree are (`rootfs/`). To be read only.
    async fn locate_tree(&self, tree: &Tree) -> Result<PathBuf, VolumeError>;

    /// The names that differ in `new` from `old`, in order. Takes as long as there are changes, however large the trees are,
    /// where `old` is what `new` was made from, by however many steps: of two trees with a common origin, ask for what each of
    /// them has changed since. A [`ChangeKind::Changed`] says that a name was written to; what it was written with may be what
    /// it had. Content, kind, owner, mode and attributes count, times only where asked for; a rename deletes here and adds
    /// there; a file that changed has changed under each of its names.
    async fn compare(&self, old: &Tree, new: &Tree, times: Times) -> Result<Comparison, VolumeError>;

    /// Every name of the file at a path of a tree, that one among them; of a directory and of nothing: none.
    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, VolumeError>;

    /// Returns when all that was written to a sandbox's volume before this call is on disk.
    async fn sync(&self, id: &SandboxId) -> Result<(), VolumeError>;

    /// Removes a snapshot, staged or sealed. Of an unknown one: nothing to do. As durable as [`Volumes::destroy`].
    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError>;

    /// An empty directory for the files of a dump, which only root can get to. What an older try of the same id left there
    /// is removed.
    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, VolumeError>;

    /// Makes a staged dump final and durable, and says how many bytes its files have. It is a flat directory of regular
    /// files; anything else in it is an error. `about` is kept with it, for [`Volumes::open_dump`] to give back. With
    /// `evict` its pages are dropped from the page cache, soon after. A dump that is sealed already stays as it is.
    async fn seal_dump(&self, id: &DumpId, about: &str, evict: bool) -> Result<u64, VolumeError>;

    /// A sealed dump, each of its files compared with what was written then; nothing of it is to be used before. (What was
    /// compared minutes ago and has not been touched since need not be read again.) Nothing may be written to its directory
    /// either: the next to open it would refuse what was added.
    async fn open_dump(&self, id: &DumpId) -> Result<Dump, VolumeError>;

    /// Removes a dump, staged or sealed. Of an unknown one: nothing to do.
    async fn remove_dump(&self, id: &DumpId) -> Result<(), VolumeError>;

    /// A writable volume that outlives sandboxes, limited to `disk_bytes`: empty, with a `rootfs/` that root inside owns, or a
    /// copy-on-write child of a snapshot of one. When it exists already, that is the answer. Durable on return.
    async fn create_shelf(
        &self,
        id: &ShelfId,
        from: Option<&ShelfSnapshotId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError>;

    /// Where the files of such a volume are (`rootfs/`).
    async fn locate_shelf(&self, id: &ShelfId) -> Result<PathBuf, VolumeError>;

    /// Bytes charged to such a volume, as [`Volumes::used`] says of a sandbox.
    async fn shelf_used(&self, id: &ShelfId) -> Result<u64, VolumeError>;

    /// Of an unknown one: nothing to do. Its snapshots stay. As durable as [`Volumes::destroy`].
    async fn remove_shelf(&self, id: &ShelfId) -> Result<(), VolumeError>;

    /// A read-only copy of such a volume, as [`Volumes::snapshot`] takes one of a sandbox.
    async fn snapshot_shelf(&self, id: &ShelfSnapshotId, of: &ShelfId) -> Result<(), VolumeError>;

    /// Makes such a volume a fresh copy of a snapshot, as [`Volumes::replace_from_snapshot`] does a sandbox's.
    async fn replace_shelf(
        &self,
        id: &ShelfId,
        from: &ShelfSnapshotId,
        disk_bytes: u64,
    ) -> Result<(), VolumeError>;

    /// Of an unknown one: nothing to do. As durable as [`Volumes::destroy`].
    async fn remove_shelf_snapshot(&self, id: &ShelfSnapshotId) -> Result<(), VolumeError>;
}

/// A dump that was found whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The directory of its files.
    pub path: PathBuf,
    /// What was said of it when it was sealed.
    pub about: String,
    /// Of all files together.
    pub bytes: u64,
}

/// A volume's stream, piece by piece. An error ends it; so does the end.
pub type Chunks = tokio::sync::mpsc::Receiver<io::Result<Vec<u8>>>;

/// One volume, of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeId {
    Image(ImageId),
    Sandbox {
        id: SandboxId,
        image: ImageId,
    },
    /// Sent as its difference to `parent`, else to its image. `parent`, if given, was sent before, and is received before.
    Snapshot {
        id: SnapshotId,
        image: ImageId,
        parent: Option<SnapshotId>,
    },
    /// One that outlives sandboxes, sent as a whole.
    Shelf(ShelfId),
    ShelfSnapshot(ShelfSnapshotId),
}

impl VolumeId {
    fn name(&self) -> &str {
        match self {
            Self::Image(id) => id.as_str(),
            Self::Sandbox { id, .. } => id.as_str(),
            Self::Snapshot { id, .. } => id.as_str(),
            Self::Shelf(id) => id.as_str(),
            Self::ShelfSnapshot(id) => id.as_str(),
        }
    }
}

/// Files that do not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tree {
    Image(ImageId),
    Snapshot(SnapshotId),
    /// A sandbox's, as they were at a [`Volumes::freeze`].
    Frozen(SnapshotId),
}

/// Whether a file that has only another time of change is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Ignored,
    Count,
}

/// What differs between two trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// By path.
    pub paths: Vec<ChangedPath>,
    /// There are others: more differ than a driver looks at.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedPath {
    /// Absolute, as the sandbox sees it; `/` is its root. Names are bytes chosen inside it.
    pub path: Vec<u8>,
    pub kind: ChangeKind,
    /// It is the same file, and its content was written to. Not known of all that were.
    pub written: bool,
}

/// What exists, for recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub sandboxes: Vec<SandboxId>,
    pub images: Vec<ImageId>,
    pub staged: Vec<ImageId>,
    pub snapshots: Vec<SnapshotId>,
    /// Staged or sealed.
    pub dumps: Vec<DumpId>,
    pub shelves: Vec<ShelfId>,
    pub shelf_snapshots: Vec<ShelfSnapshotId>,
}

/// How much is looked at to tell what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// All of it, however long it takes.
    Whole,
    /// What is found about as fast as a snapshot is taken.
    Glance,
}

/// Room in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("image `{image}` does not exist in the pool")]
    ImageNotFound { image: ImageId },
    #[error("sandbox `{id}` has no volume")]
    NotFound { id: SandboxId },
    #[error("snapshot `{snapshot}` does not exist in the pool")]
    SnapshotNotFound { snapshot: SnapshotId },
    #[error("volume `{shelf}` does not exist in the pool")]
    ShelfNotFound { shelf: ShelfId },
    #[error("volume snapshot `{snapshot}` does not exist in the pool")]
    ShelfSnapshotNotFound { snapshot: ShelfSnapshotId },
    #[error("dump `{dump}` does not exist in the pool")]
    DumpNotFound { dump: DumpId },
    #[error("{what} is damaged: its file `{file}` {how}")]
    Damaged { what: String, file: String, how: &'static str },
    #[error("dump `{dump}` has format {format}, and this version knows formats up to {known}")]
    TooNew { dump: DumpId, format: u32, known: u32 },
    #[error("dump `{dump}` cannot hold `{file}`, which {why}")]
    NotDumpable { dump: DumpId, file: String, why: &'static str },
    #[error("pool `{}` is on {filesystem}, which is not btrfs", .pool.display())]
    NotBtrfs { pool: PathBuf, filesystem: String },
    #[error("`{}` is already mounted from `{}`", .mount.display(), .device.display())]
    MountTaken { mount: PathBuf, device: PathBuf },
    #[error("a pool in `{}` needs {needed_bytes} bytes, and {free_bytes} are free on that disk", .file.display())]
    NoRoomForPool { file: PathBuf, needed_bytes: u64, free_bytes: u64 },
    #[error("this pool keeps no account of disk use: {reason}")]
    NoQuotas { reason: String },
    #[error("could not {step} `{what}`")]
    Step { step: &'static str, what: String, source: io::Error },
    #[error("the pool is full: {needed_bytes} bytes wanted, {free_bytes} free")]
    Full { needed_bytes: u64, free_bytes: u64 },
    #[error("`{command}` failed: {message}")]
    Command { command: String, message: String },
    #[error("neither `mmdebstrap` nor `debootstrap` is installed, so no image can be built")]
    NoBuilder,
    #[error("the host's package sources name no mirror of its own distribution to build an image from")]
    NoMirror,
    #[error("the volume driver was told to fail")]
    Injected,
}

/// An IO error as the error of a step.
pub(crate) fn step(step: &'static str, what: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    let what = what.display().to_string();
    move |source| VolumeError::Step { step, what, source }
}

impl VolumeError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotBtrfs { .. } => {
                Some("set the pool to a directory on btrfs, or leave it out: a loop-backed pool is made then")
            }
            Self::MountTaken { .. } => Some("unmount it, or set another mount directory for the pool"),
            Self::Full { .. } => {
                Some("remove sandboxes or images, or make room on the disk that holds the pool")
            }
            Self::NoRoomForPool { .. } => {
                Some("free space on that disk, or set `state_dir` or `pool.path` to another one")
            }
            Self::NoQuotas { .. } => {
                Some("run a kernel with simple quotas (6.7 or newer), or a pool of its own")
            }
            Self::NoBuilder => Some("install it: `apt-get install mmdebstrap`"),
            Self::NoMirror => Some("set the image's mirror and suite in the configuration"),
            Self::Command { .. } => Some("run `burrow doctor` to see which programs are missing"),
            Self::Damaged { .. } => {
                Some("its processes cannot be brought back; start it from its files, or restore a snapshot")
            }
            Self::TooNew { .. } => Some("it was made by a newer burrow: upgrade this one"),
            Self::ImageNotFound { .. }
            | Self::NotFound { .. }
            | Self::SnapshotNotFound { .. }
            | Self::ShelfNotFound { .. }
            | Self::ShelfSnapshotNotFound { .. }
            | Self::DumpNotFound { .. }
            | Self::NotDumpable { .. }
            | Self::Step { .. }
            | Self::Injected => None,
        }
    }
}

/// A shared driver is a driver.
#[async_trait]
impl<V: Volumes + ?Sized> Volumes for Arc<V> {
    async fn stage_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError> {
        (**self).stage_image(id).await
    }

    async fn stage_image_from(&self, id: &ImageId, parent: &ImageId) -> Result<PathBuf, VolumeError> {
        (**self).stage_image_from(id, parent).await
    }

    async fn stage_image_of_sandbox(
        &self,
        id: &ImageId,
        sandbox: &SandboxId,
    ) -> Result<PathBuf, VolumeError> {
        (**self).stage_image_of_sandbox(id, sandbox).await
    }

    async fn locate_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError> {
        (**self).locate_image(id).await
    }

    async fn seal_image(&self, id: &ImageId) -> Result<(), VolumeError> {
        (**self).seal_image(id).await
    }

    async fn remove_image(&self, id: &ImageId) -> Result<(), VolumeError> {
        (**self).remove_image(id).await
    }

    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, VolumeError> {
        (**self).create(id, image, disk_bytes).await
    }

    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, VolumeError> {
        (**self).locate(id).await
    }

    /// Changes the limit. Where a pool cannot enforce limits, they are wishes: this works all the same.
    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), VolumeError> {
        (**self).set_quota(id, disk_bytes).await
    }

    async fn used(&self, id: &SandboxId) -> Result<u64, VolumeError> {
        (**self).used(id).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), VolumeError> {
        (**self).destroy(id).await
    }

    async fn inventory(&self) -> Result<Inventory, VolumeError> {
        (**self).inventory().await
    }

    async fn space(&self) -> Result<Space, VolumeError> {
        (**self).space().await
    }

    async fn send(&self, volume: &VolumeId) -> Result<Chunks, VolumeError> {
        (**self).send(volume).await
    }

    async fn receive(&self, volume: &VolumeId, disk_bytes: u64, chunks: Chunks) -> Result<(), VolumeError> {
        (**self).receive(volume, disk_bytes, chunks).await
    }

    async fn snapshot(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), VolumeError> {
        (**self).snapshot(id, of).await
    }

    async fn create_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError> {
        (**self).create_from_snapshot(id, snapshot, disk_bytes).await
    }

    async fn replace_from_snapshot(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError> {
        (**self).replace_from_snapshot(id, snapshot, disk_bytes).await
    }

    async fn locate_snapshot(&self, id: &SnapshotId) -> Result<PathBuf, VolumeError> {
        (**self).locate_snapshot(id).await
    }

    async fn snapshot_bytes(&self, id: &SnapshotId) -> Result<u64, VolumeError> {
        (**self).snapshot_bytes(id).await
    }

    async fn changes(
        &self,
        from: Option<&SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, VolumeError> {
        (**self).changes(from, to, image, paths_max, effort).await
    }

    async fn stage_snapshot(
        &self,
        id: &SnapshotId,
        base: Option<&SnapshotId>,
    ) -> Result<PathBuf, VolumeError> {
        (**self).stage_snapshot(id, base).await
    }

    async fn seal_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        (**self).seal_snapshot(id).await
    }

    async fn freeze(&self, id: &SnapshotId, of: &SandboxId) -> Result<(), VolumeError> {
        (**self).freeze(id, of).await
    }

    async fn thaw(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        (**self).thaw(id).await
    }

    async fn locate_tree(&self, tree: &Tree) -> Result<PathBuf, VolumeError> {
        (**self).locate_tree(tree).await
    }

    async fn compare(&self, old: &Tree, new: &Tree, times: Times) -> Result<Comparison, VolumeError> {
        (**self).compare(old, new, times).await
    }

    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, VolumeError> {
        (**self).names_of(tree, path).await
    }

    async fn sync(&self, id: &SandboxId) -> Result<(), VolumeError> {
        (**self).sync(id).await
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), VolumeError> {
        (**self).remove_snapshot(id).await
    }

    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, VolumeError> {
        (**self).stage_dump(id).await
    }

    async fn seal_dump(&self, id: &DumpId, about: &str, evict: bool) -> Result<u64, VolumeError> {
        (**self).seal_dump(id, about, evict).await
    }

    async fn open_dump(&self, id: &DumpId) -> Result<Dump, VolumeError> {
        (**self).open_dump(id).await
    }

    async fn remove_dump(&self, id: &DumpId) -> Result<(), VolumeError> {
        (**self).remove_dump(id).await
    }

    async fn create_shelf(
        &self,
        id: &ShelfId,
        from: Option<&ShelfSnapshotId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, VolumeError> {
        (**self).create_shelf(id, from, disk_bytes).await
    }

    async fn locate_shelf(&self, id: &ShelfId) -> Result<PathBuf, VolumeError> {
        (**self).locate_shelf(id).await
    }

    async fn shelf_used(&self, id: &ShelfId) -> Result<u64, VolumeError> {
        (**self).shelf_used(id).await
    }

    async fn remove_shelf(&self, id: &ShelfId) -> Result<(), VolumeError> {
        (**self).remove_shelf(id).await
    }

    async fn snapshot_shelf(&self, id: &ShelfSnapshotId, of: &ShelfId) -> Result<(), VolumeError> {
        (**self).snapshot_shelf(id, of).await
    }

    async fn replace_shelf(
        &self,
        id: &ShelfId,
        from: &ShelfSnapshotId,
        disk_bytes: u64,
    ) -> Result<(), VolumeError> {
        (**self).replace_shelf(id, from, disk_bytes).await
    }

    async fn remove_shelf_snapshot(&self, id: &ShelfSnapshotId) -> Result<(), VolumeError> {
        (**self).remove_shelf_snapshot(id).await
    }
}
