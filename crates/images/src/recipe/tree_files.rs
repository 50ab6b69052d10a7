//! The files that a copy of a Dockerfile takes from a tree: found by their patterns, hashed, packed into a tar.
//!
//! The tree is untrusted, and must not change meanwhile. Links in the paths of sources are followed, but resolved inside
//! the tree; links in directories are copied as links.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek as _, Write};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::{InlineFile, content_hash};
use crate::dockerfile::name_matches;
use crate::{Compression, Digest, Hasher, ImageError};

/// Files that the patterns of one instruction may match.
const MATCHES_MAX: usize = 100_000;

/// Directories inside directories.
const DEPTH_MAX: usize = 256;

/// The directory that the host adds to the root of an image for its agent.
const AGENT: &str = ".burrow";

/// What a copy takes from a tree.
#[derive(Clone, Debug)]
pub struct TreeFiles {
    root: PathBuf,
    entries: Vec<TreeEntry>,
}

#[derive(Clone, Debug)]
struct TreeEntry {
    /// Below the root, without links.
    path: PathBuf,
    /// The last component of its source.
    name: String,
    is_directory: bool,
}

/// How files are packed.
#[derive(Clone, Copy, Debug)]
pub struct PackOptions<'a> {
    /// The name of a single file in place of its own.
    pub name: Option<&'a str>,
    /// The mode of files and directories in place of their own.
    pub mode: Option<u32>,
    /// Subtracted from owners; `None`: everything belongs to root.
    pub uid_shift: Option<u32>,
    /// Whether the content of tar archives is packed in their place.
    pub unpack: bool,
    pub inline: &'a [InlineFile],
}

impl TreeFiles {
    /// Finds the files of sources, which are relative and without `..`. A source without a pattern must exist.
    pub fn find(root: &Path, sources: &[String]) -> Result<Self, ImageError> {
        let failed = |error| ImageError::io("open", root.display())(error);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, root, flags, Mode::empty())
            .map_err(|error| failed(io::Error::from(error)))?;
        let canonical = place(&opened).map_err(failed)?;
        let mut files = Self { root: canonical, entries: Vec::new() };
        for source in sources {
            let patterned = crate::dockerfile::is_pattern(source);
            let paths = if patterned { files.matches(&opened, source)? } else { vec![source.clone()] };
            for path in paths {
                match files.entry(&opened, &path) {
                    Ok(entry) => files.entries.push(entry),
                    // A link that leads nowhere.
                    Err(_) if patterned => {}
                    Err(_) => {
                        let reason = format!("`{}` does not exist", crate::error::shortened(source));
                        return Err(ImageError::Recipe { line: None, reason });
                    }
                }
            }
        }
        Ok(files)
    }

    fn entry(&self, root: &OwnedFd, path: &str) -> io::Result<TreeEntry> {
        let found = resolve(root, path)?;
        let whole = place(&found)?;
        let is_directory = fs::metadata(&whole)?.is_dir();
        let below = whole.strip_prefix(&self.root).map_err(io::Error::other)?.to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(TreeEntry { path: below, name, is_directory })
    }

    /// The paths that match a pattern, sorted.
    fn matches(&self, root: &OwnedFd, source: &str) -> Result<Vec<String>, ImageError> {
        let mut found = vec![String::new()];
        for part in source.split('/') {
            let mut next = Vec::new();
            for path in found {
                let names = match crate::dockerfile::is_pattern(part) {
                    true => names(root, &path).into_iter().filter(|name| name_matches(part, name)).collect(),
                    false => vec![part.to_owned()],
                };
                next.extend(
                    names
                        .into_iter()
                        .map(|name| if path.is_empty() { name } else { format!("{path}/{name}") }),
                );
                if next.len() > MATCHES_MAX {
                    let reason = format!(
                        "`{}` matches more than {MATCHES_MAX} files",
                        crate::error::shortened(source)
                    );
                    return Err(ImageError::Recipe { line: None, reason });
                }
            }
            found = next;
        }
        Ok(found)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The name of the only source, if it is a file.
    pub fn single_file(&self) -> Option<&str> {
        match self.entries.as_slice() {
            [TreeEntry { name, is_directory: false, .. }] => Some(name),
            _ => None,
        }
    }

    /// Whether it is one file, and a tar archive that can be unpacked.
    pub fn is_archive(&self) -> Result<bool, ImageError> {
        match self.entries.as_slice() {
            [TreeEntry { path, is_directory: false, .. }] => {
                let whole = self.root.join(path);
                archive(&whole).map(|kind| kind.is_some()).map_err(ImageError::io("read", whole.display()))
            }
            _ => Ok(false),
        }
    }

    /// The digest of names and contents.
    pub fn digest(&self) -> Result<Digest, ImageError> {
        let mut hasher = Hasher::default();
        for entry in &self.entries {
            let path = entry.path.to_str().ok_or_else(|| ImageError::Recipe {
                line: None,
                reason: format!("the name of `{}` is not UTF-8", entry.path.display()),
            })?;
            hasher.update(entry.name.as_bytes());
            hasher.update(&[0, u8::from(entry.is_directory)]);
            hasher.update(content_hash(&self.root, path)?.as_bytes());
        }
        Ok(hasher.finish())
    }

    /// Writes a tar: the contents of directories, and files under their names.
    pub fn pack(&self, out: impl Write, options: &PackOptions<'_>) -> io::Result<()> {
        let mut packer = Packer { builder: tar::Builder::new(out), options: *options };
        for entry in &self.entries {
            let whole = self.root.join(&entry.path);
            if entry.is_directory {
                packer.directory(&whole, Path::new(""), entry.path.as_os_str().is_empty(), 0)?;
                continue;
            }
            let opened = if options.unpack { archive(&whole)? } else { None };
            match opened {
                Some(opened) => packer.unpacked(opened)?,
                None => packer.entry(&whole, Path::new(options.name.unwrap_or(&entry.name)), 0)?,
            }
        }
        for file in options.inline {
            packer.inline(file)?;
        }
        packer.builder.into_inner()?.flush()
    }
}

/// Resolves a path inside a tree; links are followed, and lead nowhere else.
fn resolve(root: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let path = if path.is_empty() { "." } else { path };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// The path of an open file, without links.
fn place(file: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The names in a directory, sorted; none if it is not one.
fn names(root: &OwnedFd, path: &str) -> Vec<String> {
    let listed = resolve(root, path).and_then(|found| place(&found)).and_then(fs::read_dir);
    let Ok(listed) = listed else { return Vec::new() };
    let mut names: Vec<String> =
        listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The content of a tar archive, decompressed; `None` for every other file.
fn archive(path: &Path) -> io::Result<Option<Box<dyn Read>>> {
    /// Where a tar header has `ustar`, and its length.
    const MAGIC: std::ops::Range<usize> = 257..262;
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let mut start = [0; 6];
    let read = file.read(&mut start)?;
    file.rewind()?;
    if start.starts_with(b"BZh") || start == *b"\xfd7zXZ\0" {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "ADD unpacks only tar archives that are plain or compressed by gzip or zstd: copy it, and unpack it in a RUN",
        ));
    }
    let mut peek = open_archive(&start[..read], file.try_clone()?)?;
    let mut header = [0; 512];
    // A file that only looks compressed is copied.
    let is_tar = peek.read_exact(&mut header).is_ok() && &header[MAGIC] == b"ustar";
    drop(peek);
    file.rewind()?;
    if is_tar { open_archive(&start[..read], file).map(Some) } else { Ok(None) }
}

fn open_archive(start: &[u8], file: File) -> io::Result<Box<dyn Read>> {
    Ok(match Compression::detect(start) {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(file)?),
    })
}

struct Packer<'a, W: Write> {
    builder: tar::Builder<W>,
    options: PackOptions<'a>,
}

impl<W: Write> Packer<'_, W> {
    fn directory(&mut self, from: &Path, to: &Path, is_root: bool, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other("directories are nested too deeply"));
        }
        let mut names: Vec<_> = fs::read_dir(from)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        names.sort();
        for name in names.iter().filter(|name| !is_root || *name != AGENT) {
            self.entry(&from.join(name), &to.join(name), depth)?;
        }
        Ok(())
    }

    /// A file, a link, or a directory with its contents. Sockets, pipes and devices are left out.
    fn entry(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let metadata = fs::symlink_metadata(from)?;
        let mut header = self.header(&metadata);
        if metadata.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            return self.builder.append_link(&mut header, to, fs::read_link(from)?);
        }
        if metadata.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            self.builder.append_data(&mut header, to, io::empty())?;
            return self.directory(from, to, false, depth + 1);
        }
        if metadata.is_file() {
            header.set_size(metadata.len());
            return self.builder.append_data(&mut header, to, File::open(from)?);
        }
        Ok(())
    }

    fn header(&self, metadata: &Metadata) -> tar::Header {
        let own = |id: u32| self.options.uid_shift.map_or(0, |shift| u64::from(id.saturating_sub(shift)));
        let mut header = tar::Header::new_gnu();
        header.set_mode(self.options.mode.unwrap_or(metadata.mode()) & 0o7777);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        header.set_uid(own(metadata.uid()));
        header.set_gid(own(metadata.gid()));
        header.set_size(0);
        header
    }

    fn inline(&mut self, file: &InlineFile) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(self.options.mode.unwrap_or(0o644));
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(file.content.len() as u64);
        self.builder.append_data(
            &mut header,
            self.options.name.unwrap_or(&file.name),
            file.content.as_bytes(),
        )
    }

    /// The entries of an archive, which keep their owners. Their names must stay below it.
    fn unpacked(&mut self, archive: Box<dyn Read>) -> io::Result<()> {
        let refused = || io::Error::new(io::ErrorKind::InvalidData, "a name in the archive leads out of it");
        for entry in tar::Archive::new(archive).entries()? {
            let mut entry = entry?;
            let kind = entry.header().entry_type();
            let known = kind.is_file()
                || kind.is_contiguous()
                || kind.is_dir()
                || kind.is_symlink()
                || kind.is_hard_link();
            let path = below(&entry.path()?).ok_or_else(refused)?;
            if !known || path.as_os_str().is_empty() {
                continue;
            }
            let mut header = tar::Header::new_gnu();
            header.set_mode(self.options.mode.unwrap_or(entry.header().mode()?) & 0o7777);
            header.set_mtime(entry.header().mtime()?);
            header.set_uid(entry.header().uid()?);
            header.set_gid(entry.header().gid()?);
            header.set_size(0);
            if kind.is_file() || kind.is_contiguous() {
                header.set_size(entry.size());
                self.builder.append_data(&mut header, path, &mut entry)?;
            } else if kind.is_dir() {
                header.set_entry_type(tar::EntryType::Directory);
                self.builder.append_data(&mut header, path, io::empty())?;
            } else {
                let target = entry.link_name()?.ok_or_else(refused)?.into_owned();
                let hard = kind.is_hard_link();
                header.set_entry_type(if hard { tar::EntryType::Link } else { tar::EntryType::Symlink });
                let target = if hard { below(&target).ok_or_else(refused)? } else { target };
                self.builder.append_link(&mut header, path, target)?;
            }
        }
        Ok(())
    }
}

/// A path without components that lead elsewhere.
fn below(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        let at = |name: &str| tree.path().join(name);
        fs::create_dir_all(at("src/deep")).unwrap();
        fs::create_dir(at(".burrow")).unwrap();
        for name in ["package.json", "package-lock.json", "src/a.py", "src/deep/b.py", ".burrow/agent"] {
            fs::write(at(name), name).unwrap();
        }
        symlink("/src/a.py", at("absolute")).unwrap();
        symlink("/etc/passwd", at("src/outside")).unwrap();
        tree
    }

    const PLAIN: PackOptions<'static> =
        PackOptions { name: None, mode: None, uid_shift: None, unpack: false, inline: &[] };

    fn packed(files: &TreeFiles, options: &PackOptions<'_>) -> Vec<String> {
        let mut bytes = Vec::new();
        files.pack(&mut bytes, options).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(Result::unwrap);
        entries
            .map(|entry| entry.path().unwrap().to_string_lossy().trim_end_matches('/').to_owned())
            .collect()
    }

    #[test]
    fn sources_are_found_by_name_and_by_pattern() {
        let tree = tree();
        let of = |sources: &[&str]| packed(&TreeFiles::find(tree.path(), &strings(sources)).unwrap(), &PLAIN);
        assert_eq!(of(&["package*.json"]), ["package-lock.json", "package.json"]);
        assert_eq!(of(&["src"]), ["a.py", "deep", "deep/b.py", "outside"]);
        assert_eq!(of(&["*/*.py"]), ["a.py"]);
        assert_eq!(of(&["missing*", "absolute"]), ["absolute"], "a pattern may match nothing");
        assert_eq!(of(&[""]).len(), 8, "without the agent");
        let one = TreeFiles::find(tree.path(), &strings(&["src/a.py"])).unwrap();
        assert_eq!(one.single_file(), Some("a.py"));
        let inline = [InlineFile { name: "EOF".to_owned(), content: "x".to_owned() }];
        assert_eq!(packed(&one, &PackOptions { name: Some("b"), inline: &[], ..PLAIN }), ["b"]);
        assert_eq!(packed(&one, &PackOptions { inline: &inline, ..PLAIN }), ["a.py", "EOF"]);
    }

    #[test]
    fn no_link_leads_out_of_the_tree() {
        let tree = tree();
        symlink("../../../..", tree.path().join("up")).unwrap();
        for source in ["src/outside", "up/etc/passwd", "missing"] {
            let error = TreeFiles::find(tree.path(), &strings(&[source])).unwrap_err();
            assert!(error.to_string().contains("does not exist"), "{error}");
        }
        let up = TreeFiles::find(tree.path(), &strings(&["up"])).unwrap();
        assert!(packed(&up, &PLAIN).contains(&"package.json".to_owned()), "the root is its own parent");
    }

    #[test]
    fn the_digest_depends_on_contents_and_names() {
        let tree = tree();
        let digest =
            |sources: &[&str]| TreeFiles::find(tree.path(), &strings(sources)).unwrap().digest().unwrap();
        let before = digest(&["package*.json"]);
        assert_eq!(before, digest(&["package-lock.json", "package.json"]));
        fs::write(tree.path().join("package.json"), "changed").unwrap();
        assert_ne!(before, digest(&["package*.json"]));
        assert_ne!(digest(&["absolute"]), digest(&["src/a.py"]), "the name in the image differs");
    }

    #[test]
    fn archives_are_unpacked_on_request_and_their_names_stay_below() {
        let tree = tempfile::tempdir().unwrap();
        let write = |name: &str, member: &str| {
            let file = File::create(tree.path().join(name)).unwrap();
            let mut builder =
                tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            header.set_uid(33);
            header.set_gid(33);
            header.set_mtime(1);
            header.as_old_mut().name[..member.len()].copy_from_slice(member.as_bytes());
            header.set_cksum();
            builder.append(&header, &b"x"[..]).unwrap();
            builder.into_inner().unwrap().finish().unwrap();
        };
        write("good.tgz", "dir/file");
        write("bad.tgz", "../file");
        fs::write(tree.path().join("fake.gz"), b"\x1f\x8b not compressed").unwrap();
        fs::write(tree.path().join("x.tar.xz"), b"\xfd7zXZ\0....").unwrap();
        let of = |name: &str| TreeFiles::find(tree.path(), &strings(&[name])).unwrap();
        let unpack = PackOptions { unpack: true, ..PLAIN };
        assert!(of("good.tgz").is_archive().unwrap());
        assert_eq!(packed(&of("good.tgz"), &unpack), ["dir/file"]);
        assert_eq!(packed(&of("good.tgz"), &PLAIN), ["good.tgz"]);
        assert_eq!(packed(&of("fake.gz"), &unpack), ["fake.gz"]);
        assert!(of("bad.tgz").pack(io::sink(), &unpack).is_err());
        assert!(of("x.tar.xz").pack(io::sink(), &unpack).is_err());
    }
}
