//! Writes a directory as an image: an OCI archive that `docker load` accepts too.

mod documents;
mod header;
mod pack;

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ::tar::EntryType;

pub(crate) use self::documents::config as config_document;
use self::header::Entry;
use self::pack::Packer;
use crate::entries::Time;
use crate::layer::attributes::Shift;
use crate::{Compression, DiffId, Digest, Hasher, ImageError, Platform, Reference, RunConfig};

const PIECE_BYTES: usize = 256 * 1024;

/// Twice as fast as the usual level 6, for a few percent more size: the client waits for the export.
const GZIP_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 3;

/// The content and the options of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions<'a> {
    pub config: &'a RunConfig,
    pub platform: &'a Platform,
    /// RFC 3339. The same directory, configuration and time always give the same bytes.
    pub created: Option<&'a str>,
    /// The names of the image in the archive; may be empty.
    pub names: &'a [Reference],
    pub compression: Compression,
    /// Subtracted from every uid and gid. Ids outside the range become nobody (65534), as they appear inside.
    pub uid_shift: u32,
    pub uid_count: u32,
    /// For the packed layer until its digest is known: an unnamed file. On a disk, not tmpfs.
    pub scratch: &'a Path,
    /// Checked between files and pieces; once true, the export ends with [`ImageError::Cancelled`].
    pub cancelled: &'a AtomicBool,
}

/// The result of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedImage {
    /// Of the manifest, which is the image's digest.
    pub digest: Digest,
    pub diff_id: DiffId,
    pub entries: u64,
    /// The size of the whole archive.
    pub bytes: u64,
    /// Device nodes and sockets, which are not exported.
    pub dropped: u64,
}

/// Writes the directory `root`, which no process may change meanwhile, as an image with one layer.
pub fn write(
    out: &mut dyn Write,
    root: BorrowedFd<'_>,
    options: &ExportOptions<'_>,
) -> Result<ExportedImage, ImageError> {
    send(out, pack(root, options)?, options)
}

/// Writes the archive of a packed layer. It takes as long as the reader of `out` does.
pub fn send(
    out: &mut dyn Write,
    mut layer: PackedLayer,
    options: &ExportOptions<'_>,
) -> Result<ExportedImage, ImageError> {
    let config = documents::config(options.config, options.platform, options.created, layer.diff_id);
    let manifest = documents::manifest(&config, layer.digest, layer.size, options.compression);
    let index = documents::index(&manifest, options.platform, options.names);
    let saved = documents::saved(Digest::of(&config), layer.digest, options.names);

    let mut archive = ArchiveWriter { out, bytes: 0 };
    let written = (|| {
        archive.file("oci-layout", documents::LAYOUT)?;
        archive.directory("blobs/")?;
        archive.directory("blobs/sha256/")?;
        archive.file(&documents::blob_name(Digest::of(&config)), &config)?;
        archive.file(&documents::blob_name(Digest::of(&manifest)), &manifest)?;
        archive.header(EntryType::Regular, &documents::blob_name(layer.digest), 0o644, layer.size)
    })();
    written.map_err(ImageError::io("write", "the archive"))?;
    archive.copy(&mut layer.file, layer.size, options.cancelled)?;
    let finished = (|| {
        header::pad(&mut archive, layer.size)?;
        archive.file("index.json", &index)?;
        archive.file("manifest.json", &saved)?;
        header::end(&mut archive)?;
        archive.out.flush()
    })();
    finished.map_err(ImageError::io("write", "the archive"))?;
    Ok(ExportedImage {
        digest: Digest::of(&manifest),
        diff_id: layer.diff_id,
        entries: layer.entries,
        bytes: archive.bytes,
        dropped: layer.dropped,
    })
}

/// A packed layer, before it is written to the archive.
#[derive(Debug)]
pub struct PackedLayer {
    file: File,
    digest: Digest,
    diff_id: DiffId,
    size: u64,
    entries: u64,
    dropped: u64,
}

/// Packs the directory, which is not read after that. When this returns, the scratch file has its final size.
pub fn pack(root: BorrowedFd<'_>, options: &ExportOptions<'_>) -> Result<PackedLayer, ImageError> {
    let failed = || ImageError::io::<io::Error>("write to", options.scratch.display());
    let file = tempfile::tempfile_in(options.scratch).map_err(failed())?;
    let stored = DigestingWriter { inner: file, hasher: Hasher::default(), size: 0 };
    let compressor = Compressor::new(stored, options.compression).map_err(failed())?;
    let digesting = DigestingWriter { inner: compressor, hasher: Hasher::default(), size: 0 };
    // Headers and small files are written in small pieces, but both digests are faster with large ones.
    let mut buffered = BufWriter::with_capacity(PIECE_BYTES, digesting);
    let shift = Shift::Down { by: options.uid_shift, count: options.uid_count };
    let mut packer = Packer::new(&mut buffered, shift, options.cancelled);
    packer.pack(root)?;
    let (entries, dropped) = (packer.entries, packer.dropped);
    let digesting = buffered.into_inner().map_err(|error| failed()(error.into_error()))?;
    let diff_id = DiffId(digesting.hasher.finish());
    let stored = digesting.inner.finish().map_err(failed())?;
    let (digest, size, mut file) = (stored.hasher.finish(), stored.size, stored.inner);
    file.rewind().map_err(failed())?;
    Ok(PackedLayer { file, digest, diff_id, size, entries, dropped })
}

/// Hashes and counts the bytes that are written through it.
struct DigestingWriter<W> {
    inner: W,
    hasher: Hasher,
    size: u64,
}

impl<W: Write> Write for DigestingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Compresses the bytes that are written through it.
enum Compressor<W: Write> {
    None(W),
    Gzip(flate2::write::GzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

impl<W: Write> Compressor<W> {
    fn new(out: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None(out),
            Compression::Gzip => {
                Self::Gzip(flate2::write::GzEncoder::new(out, flate2::Compression::new(GZIP_LEVEL)))
            }
            Compression::Zstd => Self::Zstd(zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?),
        })
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Self::None(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Compressor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::None(out) => out.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// The outer tar.
struct ArchiveWriter<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl ArchiveWriter<'_> {
    fn header(&mut self, kind: EntryType, name: &str, mode: u32, size: u64) -> io::Result<()> {
        let entry = Entry {
            kind,
            name: name.as_bytes(),
            link: None,
            mode,
            uid: 0,
            gid: 0,
            size,
            mtime: Time::default(),
            attributes: &[],
        };
        entry.write(self)
    }

    fn directory(&mut self, name: &str) -> io::Result<()> {
        self.header(EntryType::Directory, name, 0o755, 0)
    }

    fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.header(EntryType::Regular, name, 0o644, content.len() as u64)?;
        self.write_all(content)?;
        header::pad(self, content.len() as u64)
    }

    fn copy(&mut self, from: &mut File, size: u64, cancelled: &AtomicBool) -> Result<(), ImageError> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut rest = size;
        while rest > 0 {
            if cancelled.load(Ordering::Relaxed) {
                return Err(ImageError::Cancelled);
            }
            let wanted = piece.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            let read = from.read_exact(&mut piece[..wanted]);
            read.map_err(ImageError::io("read", "the packed layer"))?;
            self.write_all(&piece[..wanted]).map_err(ImageError::io("write", "the archive"))?;
            rest -= wanted as u64;
        }
        Ok(())
    }
}

impl Write for ArchiveWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
