//! What builds the default image: the caller of the engine passes it.

use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_disks::DiskError;
use burrow_model::{ImageConfig, ImageId};
use tokio::sync::mpsc;

/// Fills a staged disk's `rootfs/`.
#[async_trait]
pub trait ImageBuilder: fmt::Debug + Send + Sync {
    /// Returns when the files are complete, with shifted uids. Stages are for display; dropping the receiver does not stop the build.
    async fn build(
        &self,
        image: &ImageId,
        disk: PathBuf,
        stages: mpsc::Sender<BuildStage>,
    ) -> Result<(ImageConfig, u64), DiskError>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildStage {
    pub stage: String,
    pub percent: Option<u8>,
}
