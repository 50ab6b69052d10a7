//! Images in the format of `docker save`: `manifest.json` names configuration and layers by file.

use serde::Deserialize;

use super::members::Members;
use super::{ArchivedImage, OpenedImage};
use crate::manifest;
use crate::{
    CONFIG_BYTES_MAX, Compression, Digest, ImageError, LAYERS_MAX, Layer, MANIFEST_BYTES_MAX, Platform,
    Reference,
};

/// Images of one archive.
const IMAGES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Whether there is a `manifest.json` of this format, and not just a file of that name.
pub(super) fn is_saved(members: &Members) -> bool {
    read(members).is_ok()
}

fn read(members: &Members) -> Result<Vec<SavedImage>, ImageError> {
    let bytes = members.read("manifest.json", MANIFEST_BYTES_MAX)?;
    let of = members.path().display().to_string();
    serde_json::from_slice(&bytes).map_err(|source| ImageError::Json { document: "manifest", of, source })
}

pub(super) fn images(members: &Members, host: &Platform) -> Result<Vec<OpenedImage>, ImageError> {
    let saved = read(members)?;
    let of = members.path().display().to_string();
    if saved.len() > IMAGES_MAX {
        return Err(ImageError::TooLarge { what: of, limit: IMAGES_MAX as u64, unit: "images" });
    }
    saved.iter().map(|saved| open(members, saved, host, &of)).collect()
}

/// Image names by configuration, which only `manifest.json` contains.
pub(super) fn names_of(members: &Members, config: Digest) -> Vec<Reference> {
    let Ok(saved) = read(members) else { return Vec::new() };
    let of_this = |saved: &&SavedImage| digest_in(&saved.config) == Some(config);
    saved.iter().filter(of_this).flat_map(names).collect()
}

fn open(members: &Members, saved: &SavedImage, host: &Platform, of: &str) -> Result<OpenedImage, ImageError> {
    if saved.layers.len() > LAYERS_MAX {
        return Err(ImageError::TooLarge { what: of.to_owned(), limit: LAYERS_MAX as u64, unit: "layers" });
    }
    let bytes = members.read(&saved.config, CONFIG_BYTES_MAX)?;
    let digest = Digest::of(&bytes);
    if let Some(expected) = digest_in(&saved.config).filter(|expected| *expected != digest) {
        return Err(ImageError::Mismatch { what: saved.config.clone(), expected, found: digest });
    }
    let config = manifest::parse_config(&bytes, of)?;
    let mut layers = Vec::with_capacity(saved.layers.len());
    let mut slices = Vec::with_capacity(saved.layers.len());
    for name in &saved.layers {
        let slice = members.required(name)?;
        let start = slice.start().map_err(ImageError::io("read", crate::error::shortened(name)))?;
        let compression = Compression::detect(&start);
        let suffix = match compression {
            Compression::None => "",
            Compression::Gzip => "+gzip",
            Compression::Zstd => "+zstd",
        };
        layers.push(Layer {
            media_type: format!("{}{suffix}", manifest::OCI_LAYER),
            digest: name.starts_with("blobs/").then(|| digest_in(name)).flatten(),
            size: slice.size(),
            compression,
        });
        slices.push(slice);
    }
    let spec = manifest::finish(digest, layers, config, host, of)?;
    Ok(OpenedImage { image: ArchivedImage { names: names(saved), spec }, config: digest, layers: slices })
}

fn names(saved: &SavedImage) -> Vec<Reference> {
    saved.repo_tags.iter().flatten().filter_map(|name| Reference::parse(name).ok()).collect()
}

/// The digest in a file name: `<hex>.json`, `blobs/sha256/<hex>`, `sha256:<hex>`.
fn digest_in(name: &str) -> Option<Digest> {
    let last = name.rsplit(['/', ':']).next()?;
    let hex = last.split('.').next()?;
    format!("sha256:{hex}").parse().ok()
}
