//! Images in an OCI layout: `index.json` names them, `blobs/sha256/` contains all files by digest.

use super::members::{Members, Slice};
use super::{ArchivedImage, OpenedImage};
use crate::manifest::{self, Descriptor, Document};
use crate::{CONFIG_BYTES_MAX, Digest, ImageError, MANIFEST_BYTES_MAX, Platform, Reference};

/// The maximum nesting of indexes; tools create one level.
const DEPTH_MAX: u32 = 3;

/// Images of one archive.
const IMAGES_MAX: usize = 256;

/// The annotations in which tools store the name of an image. The second may contain a tag only.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

pub(super) fn is_layout(members: &Members) -> bool {
    members.contains("oci-layout") && members.contains("index.json")
}

pub(super) fn images(members: &Members, host: &Platform) -> Result<Vec<OpenedImage>, ImageError> {
    let of = members.path().display().to_string();
    let bytes = members.read("index.json", MANIFEST_BYTES_MAX)?;
    let Document::Index(descriptors) = manifest::parse(&bytes, &of, None)? else {
        return Err(ImageError::NotAnImage {
            path: members.path().to_owned(),
            reason: "its index.json is not an OCI index",
        });
    };
    if descriptors.len() > IMAGES_MAX {
        return Err(ImageError::TooLarge { what: of, limit: IMAGES_MAX as u64, unit: "images" });
    }
    let mut images: Vec<OpenedImage> = Vec::new();
    let mut failure = None;
    for descriptor in &descriptors {
        match open(members, descriptor, host, 0) {
            Ok(mut opened) => {
                opened.image.names = names(descriptor);
                match images.iter_mut().find(|known| known.image.spec.digest == opened.image.spec.digest) {
                    Some(known) => known.image.names.append(&mut opened.image.names),
                    None => images.push(opened),
                }
            }
            // Variants for other platforms, signatures and the like may also be in the index.
            Err(error @ (ImageError::Platform { .. } | ImageError::MediaType { .. })) => {
                failure.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match failure {
        Some(error) if images.is_empty() => Err(error),
        Some(_) | None => Ok(images),
    }
}

fn open(
    members: &Members,
    descriptor: &Descriptor,
    host: &Platform,
    depth: u32,
) -> Result<OpenedImage, ImageError> {
    let of = members.path().display().to_string();
    if let Some(platform) = descriptor.platform.as_ref().filter(|platform| !platform.runs_on(host)) {
        let (wanted, offered) = (host.to_string(), crate::error::shortened(&platform.to_string()));
        return Err(ImageError::Platform { of, wanted, offered });
    }
    let bytes = blob(members, descriptor, MANIFEST_BYTES_MAX)?;
    let media_type = Some(descriptor.media_type.as_str()).filter(|kind| !kind.is_empty());
    let manifest = match manifest::parse(&bytes, &of, media_type)? {
        Document::Index(manifests) if depth < DEPTH_MAX => {
            return open(members, manifest::choose(&manifests, host, &of)?, host, depth + 1);
        }
        Document::Index(_) => {
            let reason = "indexes are nested too deeply";
            return Err(ImageError::Document { document: "index", of, reason });
        }
        Document::Manifest(manifest) => manifest,
    };
    let config = manifest::parse_config(&blob(members, &manifest.config, CONFIG_BYTES_MAX)?, &of)?;
    let spec = manifest::assemble(descriptor.digest, &manifest, config, host, &of)?;
    let mut layers = Vec::with_capacity(manifest.layers.len());
    for layer in &manifest.layers {
        layers.push(open_blob(members, layer)?);
    }
    let config = manifest.config.digest;
    Ok(OpenedImage { image: ArchivedImage { names: Vec::new(), spec }, config, layers })
}

/// A small blob, its digest verified.
fn blob(members: &Members, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>, ImageError> {
    open_blob(members, descriptor)?;
    let bytes = members.read(&blob_name(&descriptor.digest), limit)?;
    let found = Digest::of(&bytes);
    match found == descriptor.digest {
        true => Ok(bytes),
        false => Err(ImageError::Mismatch {
            what: members.path().join(blob_name(&descriptor.digest)).display().to_string(),
            expected: descriptor.digest,
            found,
        }),
    }
}

/// A blob, whose size is verified.
fn open_blob(members: &Members, descriptor: &Descriptor) -> Result<Slice, ImageError> {
    let name = blob_name(&descriptor.digest);
    let slice = members.required(&name)?;
    match slice.size() == descriptor.size {
        true => Ok(slice),
        false => Err(ImageError::Size { what: name, expected: descriptor.size, found: slice.size() }),
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn names(descriptor: &Descriptor) -> Vec<Reference> {
    let mut names: Vec<Reference> = Vec::new();
    for key in NAMES {
        let Some(text) = descriptor.annotations.get(key) else { continue };
        // `latest` alone is a tag, not an image of that name.
        if !text.contains([':', '/']) {
            continue;
        }
        if let Ok(name) = Reference::parse(text)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}
