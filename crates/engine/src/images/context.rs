//! The files that are sent with a build.
//!
//! They arrive as one tar: `request` is the build request, and the files below `context/` can be copied. The tar is untrusted: it
//! is unpacked by the same code as layers, below a directory that only the daemon can access, and is not changed afterwards.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use burrow_disks::UID_COUNT;
use burrow_images::layer::{self, ApplyLimits, ApplyOptions};
use burrow_images::recipe::{self, Copy};
use burrow_images::{Compression, DiffId, Digest, DiskSpace, Hasher, ImageError};

use super::finish::blocking;
use super::pull::ScratchDir;
use super::scratch_space::{ScratchSpace, reserve};
use crate::{Engine, EngineError};

/// A request is a build file and little else, and a build file has about a page.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Files of one context: far more than a project has, far fewer than an image may have.
const ENTRIES_MAX: u64 = 500_000;

/// Depth of directories.
const DEPTH_MAX: usize = 128;

/// A request to build, with the files it may copy.
#[derive(Debug)]
pub struct BuildContext {
    /// The unparsed request.
    pub request: Vec<u8>,
    /// Removed when this is dropped.
    folder: ScratchDir,
}

impl Engine {
    /// Reads a context to its end.
    pub async fn open_context(&self, stream: Box<dyn Read + Send>) -> Result<BuildContext, EngineError> {
        let policy = &self.shared.policy.images;
        let folder = ScratchDir::make(&policy.scratch).await?;
        let (path, bytes_max) = (folder.path.clone(), policy.archive_bytes_max);
        let (space, policy) = (ScratchSpace::new(policy), policy.clone());
        let cancelled = self.shared.images.closing();
        let request = blocking(move || {
            let (tar, digest) = spool(stream, &path, bytes_max, &space)?;
            let size = tar.metadata().map_err(failed("read", &path))?.len();
            let _unpacked = reserve(&policy, size)?;
            let files = path.join("files");
            fs::create_dir(&files).map_err(failed("make", &files))?;
            let root = File::open(&files).map_err(failed("open", &files))?;
            let options = ApplyOptions {
                compression: Compression::None,
                expected: DiffId(digest),
                uid_shift: 0,
                uid_count: UID_COUNT,
                limits: ApplyLimits { entries: ENTRIES_MAX, bytes: bytes_max },
                cancelled: &cancelled,
                progress: &|_| {},
            };
            layer::apply(tar, root.as_fd(), &options)?;
            read_request(&files.join("request"))
        })
        .await?;
        Ok(BuildContext { request, folder })
    }
}

impl BuildContext {
    /// The directory of the files.
    pub(super) fn files(&self) -> PathBuf {
        self.folder.path.join("files/context")
    }

    /// The digest of the files of a copy, for its step's key.
    pub(super) async fn digest(&self, from: &str) -> Result<Digest, EngineError> {
        let (files, from) = (self.files(), from.to_owned());
        blocking(move || Ok(recipe::content_hash(&files, &from)?)).await
    }

    /// The files of a copy.
    pub(super) fn copy_source(&self, copy: &Copy) -> Result<CopySource, EngineError> {
        CopySource::new(&self.files(), copy)
    }
}

/// The source and the destination of one copy.
#[derive(Debug)]
pub(super) struct CopySource {
    source: PathBuf,
    /// The directory in the image into which it is unpacked.
    pub(super) into: String,
    /// Name of a single file there; `None` for the contents of a directory.
    name: Option<String>,
    /// The name of the file in the context.
    own_name: String,
    mode: Option<u32>,
}

impl CopySource {
    fn new(files: &Path, copy: &Copy) -> Result<Self, EngineError> {
        let refused = |reason: &str| {
            let reason = format!("`copy` from `{}`: {reason}", crate::shown::shown(&copy.from));
            EngineError::from(ImageError::Recipe { line: None, reason })
        };
        let mut source = files.to_owned();
        let mut parts = copy.from.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
        while let Some(part) = parts.next() {
            if part == ".." {
                return Err(refused("the path leaves the context"));
            }
            source.push(part);
            let found = fs::symlink_metadata(&source).map_err(|_| refused("no such file in the context"))?;
            // A link in the middle could lead anywhere.
            if found.is_symlink() && parts.peek().is_some() {
                return Err(refused("the path contains a symbolic link"));
            }
        }
        let found = fs::symlink_metadata(&source).map_err(|_| refused("no such file in the context"))?;
        if found.is_dir() {
            let into = match copy.to.trim_end_matches('/') {
                "" => "/".to_owned(),
                into => into.to_owned(),
            };
            let own_name = String::new();
            return Ok(Self { source, into, name: None, own_name, mode: copy.mode });
        }
        let own = source.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let (into, name) = match copy.to.rsplit_once('/') {
            Some((folder, "")) => (folder, own.as_str()),
            Some((folder, name)) => (folder, name),
            None => ("/", copy.to.as_str()),
        };
        let into = if into.is_empty() { "/" } else { into }.to_owned();
        Ok(Self { into, name: Some(name.to_owned()), own_name: own, source, mode: copy.mode })
    }

    /// The path that a single file is copied to. If it is an existing directory, the file is copied into it.
    pub(super) fn target(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(format!("{}/{name}", self.into.trim_end_matches('/')))
    }

    /// The same, with a single file below the directory `target`, under its own name.
    pub(super) fn into_directory(self, target: String) -> Self {
        Self { into: target, name: Some(self.own_name.clone()), ..self }
    }

    /// Writes the files as a tar. Blocks.
    pub(super) fn pack(&self, out: impl Write) -> io::Result<()> {
        let mut packer = Packer { builder: tar::Builder::new(out), mode: self.mode };
        match &self.name {
            Some(name) => packer.entry(&self.source, Path::new(name), 0)?,
            None => packer.directory(&self.source, Path::new(""), 0)?,
        }
        packer.builder.into_inner()?.flush()
    }
}

struct Packer<W: Write> {
    builder: tar::Builder<W>,
    mode: Option<u32>,
}

impl<W: Write> Packer<W> {
    fn directory(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut names: Vec<_> = fs::read_dir(from)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()?;
        names.sort();
        for name in names {
            self.entry(&from.join(&name), &to.join(&name), depth)?;
        }
        Ok(())
    }

    /// One file, link or directory with its contents; a context contains nothing else.
    fn entry(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let metadata = fs::symlink_metadata(from)?;
        let mut header = self.header(&metadata);
        if metadata.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            return self.builder.append_link(&mut header, to, fs::read_link(from)?);
        }
        if metadata.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(metadata.mode() & 0o7777);
            self.builder.append_data(&mut header, to, io::empty())?;
            return self.directory(from, to, depth + 1);
        }
        if metadata.is_file() {
            header.set_size(metadata.len());
            return self.builder.append_data(&mut header, to, File::open(from)?);
        }
        Ok(())
    }

    fn header(&self, metadata: &Metadata) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_mode(self.mode.unwrap_or(metadata.mode()) & 0o7777);
        header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
        // The guest sets the owner, which it receives beside the archive.
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header
    }
}

/// Writes the stream to an unnamed file, and returns its digest.
fn spool(
    mut stream: Box<dyn Read + Send>,
    folder: &Path,
    bytes_max: u64,
    space: &impl DiskSpace,
) -> Result<(File, Digest), EngineError> {
    let path = folder.join("context.tar");
    let open = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let mut file = open.map_err(failed("make", &path))?;
    fs::remove_file(&path).map_err(failed("unlink", &path))?;
    let mut hasher = Hasher::default();
    let mut piece = vec![0; 256 << 10];
    let mut total = 0u64;
    loop {
        let read = stream.read(&mut piece).map_err(failed("read", &path))?;
        if read == 0 {
            break;
        }
        total += read as u64;
        if total > bytes_max {
            let what = "the build's context".to_owned();
            return Err(ImageError::TooLarge { what, limit: bytes_max, unit: "bytes" }.into());
        }
        hasher.update(&piece[..read]);
        space.take(read as u64).map_err(failed("write", &path))?;
        file.write_all(&piece[..read]).map_err(failed("write", &path))?;
    }
    file.rewind().map_err(failed("rewind", &path))?;
    Ok((file, hasher.finish()))
}

fn read_request(path: &Path) -> Result<Vec<u8>, EngineError> {
    let refused =
        |reason: &str| EngineError::from(ImageError::Recipe { line: None, reason: reason.to_owned() });
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.len() <= REQUEST_BYTES_MAX => {}
        Ok(_) => return Err(refused("`request` is not a file, or is larger than 1 MiB")),
        Err(_) => return Err(refused("the archive contains no file `request`")),
    }
    fs::read(path).map_err(failed("read", path))
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EngineError {
    let what = path.display().to_string();
    move |source| ImageError::Io { step, what, source }.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn copy(from: &str, to: &str) -> Copy {
        Copy { from: from.to_owned(), to: to.to_owned(), owner: None, mode: Some(0o600) }
    }

    fn names(copy_source: &CopySource) -> Vec<String> {
        let mut packed = Vec::new();
        copy_source.pack(&mut packed).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let entries = archive.entries().unwrap().map(Result::unwrap);
        entries.map(|entry| entry.path().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_copy_copies_the_named_files_to_the_named_path() {
        let files = tempfile::tempdir().unwrap();
        fs::create_dir_all(files.path().join("app/sub")).unwrap();
        fs::write(files.path().join("app/sub/file"), "x").unwrap();
        symlink("/etc/passwd", files.path().join("app/link")).unwrap();
        fs::write(files.path().join("one"), "y").unwrap();

        let tree = CopySource::new(files.path(), &copy("app", "/srv/app")).unwrap();
        assert_eq!(tree.into, "/srv/app");
        assert_eq!(names(&tree), ["link", "sub", "sub/file"]);
        for (to, into, name) in [("/x/two", "/x", "two"), ("/x/", "/x", "one"), ("/two", "/", "two")] {
            let file = CopySource::new(files.path(), &copy("one", to)).unwrap();
            assert_eq!((file.into.as_str(), names(&file)), (into, vec![name.to_owned()]));
        }
        let file = CopySource::new(files.path(), &copy("one", "/x/two")).unwrap();
        assert_eq!((tree.target(), file.target().as_deref()), (None, Some("/x/two")));
        let below = file.into_directory("/x/two".to_owned());
        assert_eq!((below.into.as_str(), names(&below)), ("/x/two", vec!["one".to_owned()]));
        assert_eq!(names(&CopySource::new(files.path(), &copy(".", "/all")).unwrap()).len(), 5);
    }

    #[test]
    fn a_copy_never_leaves_the_context() {
        let (files, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(host.path().join("secret"), "s").unwrap();
        symlink(host.path(), files.path().join("out")).unwrap();
        for from in ["..", "a/../..", "out/secret", "missing"] {
            assert!(CopySource::new(files.path(), &copy(from, "/x")).is_err(), "{from}");
        }
        // A link itself may be copied.
        assert_eq!(names(&CopySource::new(files.path(), &copy("out", "/x")).unwrap()), ["x"]);
    }
}
