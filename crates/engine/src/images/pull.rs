//! Pulls images from registries.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use burrow_images::registry::{
    Credentials, FetchOptions, FetchedLayers, Progress, Puller, PullerOptions, ResolvedImage, Secret,
};
use burrow_images::{ImageError, Platform, Reference};
use burrow_model::{Image, ImageName, ImageOrigin, OperationId, TenantId};

use super::ImageProgressSink;
use super::config::of_run_config;
use super::finish::NewImage;
use super::progress::{ImageItem, ItemState};
use super::scratch_space::reserve;
use super::stack::{LayerSource, Stack, shown};
use crate::{Engine, EngineError};

/// The options of a pull.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Like `registry.example.com/org/app:v1`.
    pub reference: String,
    /// The name of the image here; `None`: the reference as it was written.
    pub name: Option<ImageName>,
    /// Name and password or token. Only used for this pull, and not stored.
    pub credentials: Option<(String, Secret)>,
    /// Use plain HTTP if HTTPS does not work.
    pub insecure: bool,
    /// Like `linux/arm64`; this host's if `None`.
    pub platform: Option<String>,
}

impl LayerSource for FetchedLayers {
    fn open(&self, index: usize) -> Result<Box<dyn Read + Send>, ImageError> {
        Ok(Box::new(self.layer(index)?))
    }
}

impl Engine {
    /// Pulls an image and gives it its name. Layers that exist already are neither fetched nor unpacked.
    pub async fn pull_image(
        &self,
        tenant: &TenantId,
        options: PullOptions,
        tell: ImageProgressSink,
    ) -> Result<Image, EngineError> {
        let reference = Reference::parse(&options.reference)?;
        let name = match options.name {
            Some(name) => name,
            None => as_written(&options.reference)?,
        };
        let platform = options.platform.as_deref().map_or_else(|| Ok(Platform::host()), platform)?;
        let _slot = self.shared.images.permit(&tell).await?;
        tell.stage(&format!("requesting {1} from {0}", reference.registry(), reference.repository()), None);
        let credentials = options.credentials.map_or(Credentials::Anonymous, |(username, password)| {
            Credentials::Password { username, password }
        });
        let puller =
            Puller::new(PullerOptions { credentials, insecure: options.insecure, ca_file: None, platform })?;
        let resolved = puller.resolve(&reference).await?;
        let stack = Stack::claim(&self.shared, tenant, &resolved.spec).await?;
        let folder = ScratchDir::make(&self.shared.policy.images.scratch).await?;
        let missing = stack.missing();
        let sizes =
            missing.iter().filter_map(|index| resolved.spec.layers.get(*index)).map(|layer| layer.size);
        let lease = reserve(&self.shared.policy.images, sizes.fold(0, u64::saturating_add))?;
        let fetched = self.fetch(&puller, &resolved, &missing, &folder, &tell).await?;
        // Downloaded layers count as used.
        drop(lease);
        let stacked = stack.fill(&self.shared, &resolved.spec, Arc::new(fetched), &tell).await?;
        let spec = resolved.spec;
        let origin = ImageOrigin {
            kind: "pull".to_owned(),
            of: Some(reference.at(spec.digest).to_string()),
            history: stacked.history,
        };
        let new = NewImage {
            names: vec![name],
            config: of_run_config(spec.config),
            origin,
            layer: stacked.layer,
            size_bytes: stacked.size_bytes,
            files: stacked.files,
        };
        self.finish_image(tenant, new, "image.pulled").await
    }

    async fn fetch(
        &self,
        puller: &Puller,
        resolved: &ResolvedImage,
        missing: &[usize],
        folder: &ScratchDir,
        tell: &ImageProgressSink,
    ) -> Result<FetchedLayers, EngineError> {
        let (count, digests) = (resolved.spec.layers.len(), resolved.spec.diff_ids.clone());
        let tell = tell.clone();
        let progress = move |progress: Progress| {
            tell.item(ImageItem {
                index: progress.layer,
                count,
                what: digests.get(progress.layer).map(shown).unwrap_or_default(),
                state: ItemState::Downloading,
                bytes: progress.done,
                bytes_total: Some(progress.total),
            });
        };
        let options = FetchOptions { cache: folder.path.clone(), keep: false, progress: Arc::new(progress) };
        Ok(puller.fetch(resolved, missing, &options).await?)
    }
}

/// The reference without its digest, if it can be a name.
fn as_written(text: &str) -> Result<ImageName, EngineError> {
    let name = text.split('@').next().unwrap_or_default();
    name.parse().map_err(|_| EngineError::ImageNeedsName { what: crate::shown::shown(name) })
}

/// `os/architecture[/variant]`.
fn platform(text: &str) -> Result<Platform, EngineError> {
    let mut parts = text.split('/').map(str::to_owned);
    let good = |part: &String| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(os), Some(architecture), variant, None)
            if good(&os) && good(&architecture) && variant.iter().all(good) =>
        {
            Ok(Platform { os, architecture, variant })
        }
        _ => Err(EngineError::PlatformUnknown { what: crate::shown::shown(text) }),
    }
}

/// A temporary directory for one task, removed when this is dropped. What a crash leaves is removed at the next start.
#[derive(Debug)]
pub(super) struct ScratchDir {
    pub(super) path: PathBuf,
}

impl ScratchDir {
    pub(super) async fn make(parent: &std::path::Path) -> Result<Self, EngineError> {
        let path = parent.join(OperationId::generate().as_str());
        let failed = |source| {
            EngineError::from(ImageError::Io { step: "make", what: path.display().to_string(), source })
        };
        tokio::fs::create_dir_all(&path).await.map_err(failed)?;
        Ok(Self { path })
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "could not remove scratch files");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulled_image_is_named_after_its_reference() {
        assert_eq!(as_written("python:3.12").unwrap().as_str(), "python:3.12");
        assert_eq!(
            as_written("registry.example.com/a/b@sha256:00").unwrap().as_str(),
            "registry.example.com/a/b"
        );
        assert!(matches!(as_written("[::1]:5000/a"), Err(EngineError::ImageNeedsName { .. })));
    }

    #[test]
    fn a_platform_has_two_or_three_parts() {
        let arm = platform("linux/arm64/v8").unwrap();
        assert_eq!((arm.os.as_str(), arm.variant.as_deref()), ("linux", Some("v8")));
        assert_eq!(platform("linux/amd64").unwrap().variant, None);
        for bad in ["", "linux", "linux/", "a/b/c/d", "linux/../x"] {
            assert!(platform(bad).is_err(), "{bad}");
        }
    }
}
