//! The dump in a file: the driver's flat directory of files, and the engine's description of it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use burrow_portable::{Entry, Extent, Kind, Meta, PortableError, Reader, Sink, Time, TreePath, Writer};

use crate::EngineError;

/// The first file of the section: the engine's description of the dump. The others belong to the driver.
pub(super) const ABOUT: &str = "about";

/// The driver's files are in a directory, so that none of them can be confused with ours.
const FILES: &[u8] = b"images/";

/// The process that restores them is not root while it reads them. No other user can access their directory.
const READABLE: u32 = 0o644;

/// The engine's description of a dump: a few limits and services.
const ABOUT_BYTES_MAX: u64 = 1 << 20;

pub(super) fn write_out<W: Write>(
    writer: &mut Writer<W>,
    images: &Path,
    about: &str,
) -> Result<(), EngineError> {
    put(writer, ABOUT.as_bytes(), about.len() as u64, &mut |buffer, offset| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(about.len());
        (&about.as_bytes()[start..]).read_exact(buffer)
    })?;
    let failed = |source| PortableError::Content { path: "the processes".to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(images).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // The pool's own list of these files is not exported: the receiver creates its own.
        if entry.file_name() != burrow_disks::DUMP_MANIFEST {
            names.push(entry.file_name());
        }
    }
    names.sort();
    for name in names {
        let file = File::open(images.join(&name)).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let path = [FILES, name.as_encoded_bytes()].concat();
        put(writer, &path, size, &mut |buffer, offset| file.read_exact_at(buffer, offset))?;
    }
    Ok(())
}

/// A file without owner and time.
pub(super) fn put<W: Write>(
    writer: &mut Writer<W>,
    path: &[u8],
    size: u64,
    read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>,
) -> Result<(), EngineError> {
    let meta = Meta { mode: 0o600, uid: 0, gid: 0, mtime: Time::default(), attributes: Vec::new() };
    let extents = if size == 0 { Vec::new() } else { vec![Extent { offset: 0, bytes: size }] };
    let entry = Entry { path: TreePath::new(path)?, kind: Kind::file(meta, size, extents) };
    Ok(writer.entry(&entry, read)?)
}

/// Reads one file of the section. Returns the engine's description, if it is that file.
pub(super) fn take_in<R: Read>(
    reader: &mut Reader<R>,
    entry: &Entry,
    into: &Path,
) -> Result<Option<String>, EngineError> {
    let refused = |reason| PortableError::Entry { path: entry.path.shown(), reason };
    if entry.path.as_bytes() == ABOUT.as_bytes() {
        let text = read_small(reader, entry, ABOUT_BYTES_MAX)?;
        return Ok(Some(String::from_utf8(text).map_err(|_| refused("it is not text"))?));
    }
    let name = entry.path.as_bytes().strip_prefix(FILES).and_then(|name| std::str::from_utf8(name).ok());
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let name = name.filter(plain).filter(|name| *name != burrow_disks::DUMP_MANIFEST);
    let name = name.ok_or_else(|| refused("no driver writes a file of this name"))?;
    let placed = |source| PortableError::Place { path: entry.path.shown(), source };
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(READABLE).open(into.join(name));
    let mut sink = PlainFile(file.map_err(placed)?);
    reader.content(&mut sink)?;
    let Kind::File { size, .. } = &entry.kind else { return Err(refused("it is not a file").into()) };
    sink.0.set_len(*size).map_err(placed)?;
    sink.0.set_permissions(Permissions::from_mode(READABLE)).map_err(placed)?;
    Ok(None)
}

/// Reads a file that is small enough for RAM.
pub(super) fn read_small<R: Read>(
    reader: &mut Reader<R>,
    entry: &Entry,
    bytes_max: u64,
) -> Result<Vec<u8>, EngineError> {
    if entry.content_bytes() > bytes_max
        || !matches!(&entry.kind, Kind::File { size, .. } if *size <= bytes_max)
    {
        return Err(PortableError::Entry { path: entry.path.shown(), reason: "it is too large" }.into());
    }
    let mut sink = RamSink(Vec::new());
    reader.content(&mut sink)?;
    Ok(sink.0)
}

/// Content in RAM, without holes.
struct RamSink(Vec<u8>);

impl Sink for RamSink {
    fn piece(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset != self.0.len() as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn chunk(&mut self, _: &[u8; 32], _: u64, _: u64) {}

    fn again(&mut self, _: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// A plain file.
struct PlainFile(File);

impl Sink for PlainFile {
    fn piece(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn chunk(&mut self, _: &[u8; 32], _: u64, _: u64) {}

    fn again(&mut self, _: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// Discards content that is not needed. It is verified all the same.
pub(super) struct DiscardSink;

impl Sink for DiscardSink {
    fn piece(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn chunk(&mut self, _: &[u8; 32], _: u64, _: u64) {}

    fn again(&mut self, _: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
