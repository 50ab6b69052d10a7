//! Imports images from files: `docker save`, OCI archives, plain tars.

use std::io::Read;
use std::sync::Arc;

use burrow_images::archive::{self, Archive, ArchivedImage, OpenOptions};
use burrow_images::{ImageError, Platform, Reference};
use burrow_model::{Image, ImageName, ImageOrigin, TenantId};

use super::ImageProgressSink;
use super::config::of_run_config;
use super::finish::{NewImage, blocking};
use super::scratch_space::ScratchSpace;
use super::stack::{LayerSource, Stack};
use super::work::ImageWorkPermit;
use crate::{Engine, EngineError};

/// An archive that was received and read.
#[derive(Debug)]
pub struct OpenedArchive {
    archive: Arc<Archive>,
    _slot: ImageWorkPermit,
}

/// One image of an archive.
struct ArchivedLayers {
    archive: Arc<Archive>,
    image: usize,
}

impl LayerSource for ArchivedLayers {
    fn open(&self, index: usize) -> Result<Box<dyn Read + Send>, ImageError> {
        Ok(Box::new(self.archive.layer(self.image, index)))
    }
}

impl Engine {
    /// Reads an archive to its end, onto the disk. Layers are only read when they are needed.
    pub async fn open_archive(
        &self,
        stream: Box<dyn Read + Send>,
        tell: &ImageProgressSink,
    ) -> Result<OpenedArchive, EngineError> {
        let permit = self.shared.images.permit(tell).await?;
        let policy = self.shared.policy.images.clone();
        let archive = blocking(move || {
            let platform = Platform::host();
            let space = ScratchSpace::new(&policy);
            let options = OpenOptions {
                scratch: &policy.scratch,
                bytes_max: policy.archive_bytes_max,
                platform: &platform,
                space: &space,
            };
            Ok(archive::spool(stream, &options)?)
        })
        .await?;
        Ok(OpenedArchive { archive: Arc::new(archive), _slot: permit })
    }

    /// Creates an image from each in the archive. `name` is for an archive with one image; without it each keeps its names.
    pub async fn import_images(
        &self,
        tenant: &TenantId,
        opened: OpenedArchive,
        name: Option<ImageName>,
        tell: ImageProgressSink,
    ) -> Result<Vec<Image>, EngineError> {
        let found = opened.archive.images().len();
        if name.is_some() && found > 1 {
            return Err(EngineError::ImagesInArchive { found });
        }
        let mut images = Vec::with_capacity(found);
        for (index, archived) in opened.archive.images().iter().enumerate() {
            let source = Arc::new(ArchivedLayers { archive: opened.archive.clone(), image: index });
            images.push(self.import_one(tenant, archived, source, name.clone(), &tell).await?);
        }
        Ok(images)
    }

    async fn import_one(
        &self,
        tenant: &TenantId,
        archived: &ArchivedImage,
        source: Arc<ArchivedLayers>,
        name: Option<ImageName>,
        tell: &ImageProgressSink,
    ) -> Result<Image, EngineError> {
        let spec = &archived.spec;
        let host = Platform::host();
        if !spec.platform.runs_on(&host) {
            let (of, wanted) = (spec.digest.to_string(), host.to_string());
            return Err(ImageError::Platform { of, wanted, offered: spec.platform.to_string() }.into());
        }
        let stack = Stack::claim(&self.shared, tenant, spec).await?;
        let stacked = stack.fill(&self.shared, spec, source, tell).await?;
        let names = match name {
            Some(name) => vec![name],
            None => archived.names.iter().filter_map(local_name).collect(),
        };
        let of = archived
            .names
            .first()
            .map_or_else(|| spec.digest.to_string(), |name| name.at(spec.digest).to_string());
        let new = NewImage {
            names,
            config: of_run_config(spec.config.clone()),
            origin: ImageOrigin { kind: "import".to_owned(), of: Some(of), history: stacked.history },
            layer: stacked.layer,
            size_bytes: stacked.size_bytes,
            files: stacked.files,
        };
        self.finish_image(tenant, new, "image.imported").await
    }
}

/// The name here of an image of an archive. Other programs add the tag `latest` if none was written, so it is dropped.
fn local_name(reference: &Reference) -> Option<ImageName> {
    let text = reference.familiar();
    let text = text.split('@').next().unwrap_or_default();
    text.strip_suffix(":latest").unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_registries_and_tags_are_dropped_from_names_of_an_archive() {
        let check = |text: &str, expected: &str| {
            let name = local_name(&Reference::parse(text).unwrap()).unwrap();
            assert_eq!(name.as_str(), expected);
        };
        check("app", "app");
        check("docker.io/library/app:latest", "app");
        check("app:v2", "app:v2");
        check("registry.example.com/o/app:latest", "registry.example.com/o/app");
    }
}
