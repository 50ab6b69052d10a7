//! Builds the default image from Debian packages, on a blocking thread.

use std::path::PathBuf;

use async_trait::async_trait;
use burrow_disks::DiskError;
use burrow_disks::debian::{self, Mirror, Options, Progress};
use burrow_engine::{BuildStage, ImageBuilder};
use burrow_model::{ImageConfig, ImageId};
use tokio::sync::mpsc;

/// Creates images from packages of the host's own mirror, or of the configured one.
#[derive(Debug)]
pub(crate) struct DebianBuilder {
    pub(crate) cache: PathBuf,
    pub(crate) mirror: Option<Mirror>,
}

#[async_trait]
impl ImageBuilder for DebianBuilder {
    async fn build(
        &self,
        image: &ImageId,
        volume: PathBuf,
        stages: mpsc::Sender<BuildStage>,
    ) -> Result<(ImageConfig, u64), DiskError> {
        let options = Options { rootfs: volume, cache: self.cache.clone(), mirror: self.mirror.clone() };
        let tell = move |progress: Progress| {
            let stage = BuildStage { stage: progress.stage.to_string(), percent: Some(progress.percent) };
            // A slow reader misses stages; the build does not wait for it.
            let _ = stages.try_send(stage);
        };
        let build = tokio::task::spawn_blocking(move || debian::build(&options, tell));
        let built = build.await.unwrap_or_else(|panic| {
            let source = std::io::Error::other(panic);
            Err(DiskError::Step { step: "build image", what: image.to_string(), source })
        })?;
        Ok((built.config, built.size_bytes))
    }
}
