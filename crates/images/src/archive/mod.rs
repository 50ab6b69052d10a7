//! Opens images that are files: `docker save`, OCI archives and layouts, plain tars of a root file system.
//!
//! Opening reads only the documents, not the layers, so that an image whose chain ids are known costs nothing more.
//! Exceptions: a compressed archive is decompressed into the scratch directory first, and a plain tar is read once,
//! since nothing else describes its content.

mod docker;
mod members;
mod oci;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use self::members::{Members, Slice, TarIndex};
use crate::layer::{self, stream};
use crate::{
    Compression, Digest, DiskSpace, ImageError, ImageSpec, Layer, Platform, Reference, RunConfig, export,
    manifest,
};

/// How an archive is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions<'a> {
    /// For decompressed and spooled archives: unnamed files, removed with the [`Archive`]. On a disk, not tmpfs.
    pub scratch: &'a Path,
    /// The limit for the archive, and for its decompressed content.
    pub bytes_max: u64,
    /// The platform to choose if an archive holds an image for several.
    pub platform: &'a Platform,
    /// Checked before the files in `scratch` grow.
    pub space: &'a dyn DiskSpace,
}

/// An opened archive, with at least one image.
#[derive(Debug)]
pub struct Archive {
    images: Vec<ArchivedImage>,
    layers: Vec<Vec<Slice>>,
}

/// One image of an archive.
#[derive(Clone, Debug)]
pub struct ArchivedImage {
    /// Its names at its origin; names that are not valid references are left out.
    pub names: Vec<Reference>,
    pub spec: ImageSpec,
}

/// The stored bytes of one layer.
#[derive(Clone, Debug)]
pub struct LayerStream(Slice);

/// An image and the positions of its layers.
#[derive(Debug)]
struct OpenedImage {
    image: ArchivedImage,
    /// The configuration's digest.
    config: Digest,
    layers: Vec<Slice>,
}

/// Bytes copied at once.
const PIECE_BYTES: usize = 256 * 1024;

/// Opens a file, or a directory with an OCI layout.
pub fn open(path: &Path, options: &OpenOptions<'_>) -> Result<Archive, ImageError> {
    let failed = || ImageError::io::<io::Error>("open", path.display());
    // The caller's path may lead through links, but opening must not wait for a FIFO.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(ImageError::io("open", path.display()))?;
    let mut file = File::from(fd);
    let found = file.metadata().map_err(failed())?;
    if found.is_dir() {
        let members = Members::Directory { fd: file.into(), path: path.to_owned() };
        return match oci::is_layout(&members) {
            true => finish(&members, oci::images(&members, options.platform)?),
            false => Err(not_an_image(path, "the directory has no `oci-layout` or no `index.json`")),
        };
    }
    if !found.is_file() {
        return Err(not_an_image(path, "it is neither a file nor a directory"));
    }
    if found.len() > options.bytes_max {
        let what = path.display().to_string();
        return Err(ImageError::TooLarge { what, limit: options.bytes_max, unit: "bytes" });
    }
    let mut start = Vec::new();
    (&mut file).take(4).read_to_end(&mut start).map_err(failed())?;
    match Compression::detect(&start) {
        Compression::None => read(file, path, options),
        Compression::Gzip | Compression::Zstd => {
            file.rewind().map_err(failed())?;
            spool_named(file, path, options)
        }
    }
}

/// Opens an archive from a pipe or the body of a request; it is written to the scratch directory first.
pub fn spool(stream: impl Read + Send, options: &OpenOptions<'_>) -> Result<Archive, ImageError> {
    spool_named(stream, Path::new("(stream)"), options)
}

fn spool_named(
    mut stream: impl Read + Send,
    path: &Path,
    options: &OpenOptions<'_>,
) -> Result<Archive, ImageError> {
    let failed = || ImageError::io::<io::Error>("read", path.display());
    let mut start = Vec::new();
    (&mut stream).take(4).read_to_end(&mut start).map_err(failed())?;
    let compression = Compression::detect(&start);
    let whole = io::Cursor::new(start).chain(stream);
    let mut whole = stream::open(whole, compression).map_err(failed())?;
    let scratch = options.scratch;
    let spooling = || ImageError::io::<io::Error>("write to", scratch.display());
    let mut file = tempfile::tempfile_in(scratch).map_err(spooling())?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut total = 0u64;
    loop {
        let count = match whole.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed()(error)),
        };
        total += count as u64;
        if total > options.bytes_max {
            let what = path.display().to_string();
            return Err(ImageError::TooLarge { what, limit: options.bytes_max, unit: "bytes" });
        }
        options.space.take(count as u64).map_err(spooling())?;
        file.write_all(&piece[..count]).map_err(spooling())?;
    }
    read(file, path, options)
}

/// Opens an uncompressed tar.
fn read(file: File, path: &Path, options: &OpenOptions<'_>) -> Result<Archive, ImageError> {
    let index = TarIndex::read(file, path)?;
    if index.entries == 0 {
        return Err(not_an_image(path, "it is empty"));
    }
    let members = Members::Tar(index);
    if oci::is_layout(&members) {
        let mut images = oci::images(&members, options.platform)?;
        for opened in images.iter_mut().filter(|opened| opened.image.names.is_empty()) {
            opened.image.names = docker::names_of(&members, opened.config);
        }
        return finish(&members, images);
    }
    if docker::is_saved(&members) {
        return finish(&members, docker::images(&members, options.platform)?);
    }
    let Members::Tar(index) = &members else { unreachable!("it was made a tar above") };
    if index.is_early_docker_format() {
        return Err(ImageError::SchemaOne { of: path.display().to_string() });
    }
    let plain = plain(index, options)?;
    finish(&members, vec![plain])
}

/// A root file system: the tar itself is the only layer. The configuration is empty.
fn plain(index: &TarIndex, options: &OpenOptions<'_>) -> Result<OpenedImage, ImageError> {
    let whole = index.whole()?;
    let diff_id = layer::diff_id(whole.clone(), Compression::None, options.bytes_max)?;
    let config = RunConfig::default();
    let document = export::config_document(&config, options.platform, None, diff_id);
    let spec = ImageSpec {
        digest: Digest::of(&document),
        config,
        platform: options.platform.clone(),
        created: None,
        diff_ids: vec![diff_id],
        layers: vec![Layer {
            media_type: manifest::OCI_LAYER.to_owned(),
            digest: Some(diff_id.0),
            size: whole.size(),
            compression: Compression::None,
        }],
    };
    let config = spec.digest;
    Ok(OpenedImage { image: ArchivedImage { names: Vec::new(), spec }, config, layers: vec![whole] })
}

fn finish(members: &Members, opened: Vec<OpenedImage>) -> Result<Archive, ImageError> {
    if opened.is_empty() {
        return Err(not_an_image(members.path(), "it contains no image"));
    }
    let (images, layers) = opened.into_iter().map(|opened| (opened.image, opened.layers)).unzip();
    Ok(Archive { images, layers })
}

fn not_an_image(path: &Path, reason: &'static str) -> ImageError {
    ImageError::NotAnImage { path: path.to_owned(), reason }
}

impl Archive {
    pub fn images(&self) -> &[ArchivedImage] {
        &self.images
    }

    /// The stored bytes of layer `layer` of image `image`, for [`crate::layer::apply`]; both count from 0.
    ///
    /// # Panics
    ///
    /// When there is no such image or layer.
    pub fn layer(&self, image: usize, layer: usize) -> LayerStream {
        LayerStream(self.layers[image][layer].clone())
    }
}

impl Read for LayerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

#[cfg(test)]
mod tests;
