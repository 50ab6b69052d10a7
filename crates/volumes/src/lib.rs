//! Seam: copy-on-write disks.
//!
//! An image is a read-only volume; a sandbox's disk is a writable copy-on-write child of one, with a quota. What a
//! volume holds: `rootfs/` (the sandbox's files, uids shifted by [`UID_SHIFT`]) and, beside it, room for a driver's
//! own files (a disk image, a RAM file), so that one snapshot takes all.
//!
//! What is absent: policy, what is in an image, who may have how much.

pub mod btrfs;
pub mod faulty;
pub mod sim;

use std::fmt;
use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{ImageId, SandboxId};

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

    /// Makes a staged image read-only and final. After this it never changes.
    async fn seal_image(&self, id: &ImageId) -> Result<(), VolumeError>;

    /// Removes an image, staged or sealed. Of an unknown one: nothing to do.
    async fn remove_image(&self, id: &ImageId) -> Result<(), VolumeError>;

    /// A writable copy-on-write child of `image` for `id`, limited to `disk_bytes`. Returns the directory of its
    /// files (`rootfs/`). When it exists already, that is the answer.
    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, VolumeError>;

    /// Where the files of an existing volume are.
    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, VolumeError>;

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), VolumeError>;

    /// Bytes charged to the sandbox.
    async fn used(&self, id: &SandboxId) -> Result<u64, VolumeError>;

    /// Removes a sandbox's volume. Of an unknown one: nothing to do.
    async fn destroy(&self, id: &SandboxId) -> Result<(), VolumeError>;

    async fn inventory(&self) -> Result<Inventory, VolumeError>;

    async fn space(&self) -> Result<Space, VolumeError>;
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
    #[error("could not {step} on `{what}`")]
    Step { step: &'static str, what: String, source: io::Error },
    #[error("the pool is full: {needed_bytes} bytes wanted, {free_bytes} free")]
    Full { needed_bytes: u64, free_bytes: u64 },
    #[error("`{command}` failed: {message}")]
    Command { command: String, message: String },
    #[error("the volume driver was told to fail")]
    Injected,
}
