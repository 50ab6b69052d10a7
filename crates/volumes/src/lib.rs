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
pub mod faulty;
pub mod inside;
mod shift;
pub mod sim;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use burrow_model::{ImageId, SandboxId};

pub use shift::{Shifted, shift_owners};

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

    /// Makes a volume of a stream that `send` made; a sandbox needs its image received first. When it exists already,
    /// it stays as it is.
    async fn receive(&self, volume: &VolumeId, disk_bytes: u64, chunks: Chunks) -> Result<(), VolumeError>;
}

/// A volume's stream, piece by piece. An error ends it; so does the end.
pub type Chunks = tokio::sync::mpsc::Receiver<io::Result<Vec<u8>>>;

/// One volume, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeId {
    Image(ImageId),
    Sandbox { id: SandboxId, image: ImageId },
}

impl VolumeId {
    fn name(&self) -> &str {
        match self {
            Self::Image(id) => id.as_str(),
            Self::Sandbox { id, .. } => id.as_str(),
        }
    }
}

/// What exists, for recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub sandboxes: Vec<SandboxId>,
    pub images: Vec<ImageId>,
    pub staged: Vec<ImageId>,
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
    #[error("pool `{}` is on {filesystem}, which is not btrfs", .pool.display())]
    NotBtrfs { pool: PathBuf, filesystem: String },
    #[error("`{}` is already mounted from `{}`", .mount.display(), .device.display())]
    MountTaken { mount: PathBuf, device: PathBuf },
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
            Self::NoQuotas { .. } => {
                Some("run a kernel with simple quotas (6.7 or newer), or a pool of its own")
            }
            Self::NoBuilder => Some("install it: `apt-get install mmdebstrap`"),
            Self::NoMirror => Some("set the image's mirror and suite in the configuration"),
            Self::Command { .. } => Some("run `burrow doctor` to see which programs are missing"),
            Self::ImageNotFound { .. } | Self::NotFound { .. } | Self::Step { .. } | Self::Injected => None,
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
}
