//! Packs a local directory into a tar archive while it is sent.
//!
//! Links are packed as links, never followed. The owner is root, since the users of this host do not exist inside;
//! sockets, pipes and devices are skipped and reported.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

/// What was skipped and sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PackReport {
    pub(crate) entries: u64,
    pub(crate) left_out: Vec<PathBuf>,
}

/// Writes the contents of `directory`, with paths relative to it, calling `progress` for each piece of a file.
pub(crate) fn pack(directory: &Path, into: impl Write, progress: impl FnMut(u64)) -> io::Result<PackReport> {
    let mut packer = Packer { builder: Builder::new(into), packed: PackReport::default(), progress };
    let metadata = fs::metadata(directory)?;
    packer.plain(Path::new("./"), &metadata, EntryType::Directory)?;
    packer.directory(directory, Path::new(""))?;
    packer.builder.into_inner()?.flush()?;
    Ok(packer.packed)
}

/// Several trees in one archive, each at a given path.
pub(crate) struct Tree<W: Write> {
    packer: Packer<W, fn(u64)>,
}

impl<W: Write> Tree<W> {
    pub(crate) fn new(builder: Builder<W>) -> Self {
        Self { packer: Packer { builder, packed: PackReport::default(), progress: |_| {} } }
    }

    /// A directory without its contents.
    pub(crate) fn directory_entry(&mut self, path: &Path, inside: &Path) -> io::Result<()> {
        let metadata = fs::metadata(path).map_err(|error| at(path, error))?;
        self.packer.plain(inside, &metadata, EntryType::Directory)
    }

    /// A file, a link, or a directory with its contents.
    pub(crate) fn add(&mut self, path: &Path, inside: &Path) -> io::Result<()> {
        self.packer.entry(path, inside)
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.packer.builder.into_inner()?.flush()
    }
}

struct Packer<W: Write, P> {
    builder: Builder<W>,
    packed: PackReport,
    progress: P,
}

impl<W: Write, P: FnMut(u64)> Packer<W, P> {
    fn directory(&mut self, directory: &Path, below: &Path) -> io::Result<()> {
        let mut names: Vec<_> = fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        // The same tree makes the same archive.
        names.sort();
        for name in names {
            self.entry(&directory.join(&name), &below.join(&name))?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, inside: &Path) -> io::Result<()> {
        let metadata = match fs::symlink_metadata(path) {
            // It was removed since the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result.map_err(|error| at(path, error))?,
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.plain(inside, &metadata, EntryType::Directory)?;
            self.directory(path, inside).map_err(|error| at(path, error))
        } else if kind.is_file() {
            self.file(path, inside)
        } else if kind.is_symlink() {
            let target = fs::read_link(path).map_err(|error| at(path, error))?;
            let mut header = header(&metadata, EntryType::Symlink, 0);
            self.builder.append_link(&mut header, inside, &target)?;
            self.packed.entries += 1;
            Ok(())
        } else {
            debug_assert!(
                kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device()
            );
            self.packed.left_out.push(path.to_owned());
            Ok(())
        }
    }

    fn plain(&mut self, inside: &Path, metadata: &Metadata, kind: EntryType) -> io::Result<()> {
        let mut header = header(metadata, kind, 0);
        self.builder.append_data(&mut header, inside, io::empty())?;
        self.packed.entries += 1;
        Ok(())
    }

    fn file(&mut self, path: &Path, inside: &Path) -> io::Result<()> {
        // The file may have been replaced meanwhile: a link is not followed, a pipe does not block.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).expect("open flags fit an int");
        let file =
            File::options().read(true).custom_flags(flags).open(path).map_err(|error| at(path, error))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            self.packed.left_out.push(path.to_owned());
            return Ok(());
        }
        let size = metadata.len();
        let mut header = header(&metadata, EntryType::Regular, size);
        let content = ExactReader { file, left: size, progress: &mut self.progress };
        self.builder.append_data(&mut header, inside, content).map_err(|error| at(path, error))?;
        self.packed.entries += 1;
        Ok(())
    }
}

fn header(metadata: &Metadata, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or_default());
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Reads a file of exactly the size in its header: a file that grew is truncated, a file that shrank is an error, since
/// the rest of the archive would be at the wrong offset.
struct ExactReader<'a, P> {
    file: File,
    left: u64,
    progress: &'a mut P,
}

impl<P: FnMut(u64)> Read for ExactReader<'_, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.file.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file was truncated while it was read",
            ));
        }
        self.left -= count as u64;
        (self.progress)(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_tree_is_packed_without_owners_and_sockets() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/a"), "content").unwrap();
        symlink("/nowhere", tree.join("link")).unwrap();
        let long = "n".repeat(180);
        fs::write(tree.join(&long), "long").unwrap();
        let _socket = UnixListener::bind(tree.join("socket")).unwrap();

        let (mut bytes, mut sent) = (Vec::new(), 0);
        let packed = pack(&tree, &mut bytes, |count| sent += count).unwrap();
        assert_eq!(packed.left_out, [tree.join("socket")]);
        assert_eq!((packed.entries, sent), (5, 11));

        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
            seen.push(entry.path().unwrap().to_string_lossy().into_owned());
        }
        assert_eq!(seen, ["./", "link", &long, "sub", "sub/a"]);
    }

    #[test]
    fn a_packed_tree_can_be_unpacked() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/c"), "x".repeat(100_000)).unwrap();
        let mut bytes = Vec::new();
        pack(&tree, &mut bytes, |_| {}).unwrap();
        let copy = place.path().join("copy");
        crate::transfer::destination::unpack_to(bytes.as_slice(), &copy).unwrap();
        assert_eq!(fs::read(copy.join("a/b/c")).unwrap(), fs::read(tree.join("a/b/c")).unwrap());
    }
}
