//! Keeps the temporary names that CRIU gives to files whose original name was deleted.
//!
//! A file that was deleted while it is open, but has another name elsewhere, cannot be opened again by its original
//! name. CRIU gives it a name in its old directory (`link_remap.<n>`), by which the restore finds it, and removes that
//! name as soon as the processes resume. But a restore uses a copy of the files that is made *after* the dump. So the
//! name is created again, and kept until the processes resume. The same applies after a restore, which removes the name
//! too: until the restored processes resume, the restore may have to be repeated. A machine that is started from such
//! files without its processes must not have the name either: a later dump of it could need the name for another file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, ResolveFlags, fstat, linkat, open, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

use super::host_mount::HostMount;
use super::protobuf::{Fields, ProtobufError, Value};

/// The list of these names, beneath the root, each ended by a zero byte. It is one of the machine's files, so it is in
/// every copy that contains the names.
const LIST: &str = ".burrow/names";
/// Some hundred names at most; the machine can write the list.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The names start with this, followed by a number.
const REMAP_PREFIX: &[u8] = b"link_remap.";

const REMAPS: &str = "remap-fpath.img";
pub(super) const FILES: &str = "files.img";
/// An open file takes about a hundred bytes, and a machine's limit on them is far below a million.
pub(super) const IMAGE_BYTES_MAX: u64 = 256 << 20;

const COMMON_MAGIC: u32 = 0x5456_4319;
const REMAPS_MAGIC: u32 = 0x5913_3954;
pub(super) const FILES_MAGIC: u32 = 0x5630_3138;

/// Of a remap: the id of the file, of the file that stands for it, and the kind.
const REMAP_FROM: u32 = 1;
const REMAP_TO: u32 = 2;
const REMAP_KIND: u32 = 3;
const LINKED: u64 = 0;
const GHOST: u64 = 1;
/// Of a record of an open file: that it is a regular one; of that, its id and its name.
pub(super) const REGULAR: u32 = 3;
pub(super) const REGULAR_ID: u32 = 1;
pub(super) const REGULAR_NAME: u32 = 6;

/// A name, beneath the root, and the file that has it.
#[derive(Debug)]
pub(super) struct Link {
    path: PathBuf,
    file: OwnedFd,
}

/// A file that was deleted while it was open, according to the images.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeletedFile {
    /// Its original name, beneath the root.
    name: PathBuf,
    by: FoundBy,
}

/// How a restore finds the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FoundBy {
    /// By the name that CRIU gave it.
    Name(PathBuf),
    /// By its contents, which are in the images; they are written to a file with this name until it is open.
    Contents(PathBuf),
}

/// The files that have such a name now. Files on other file systems than the root's are in the images anyway.
pub(super) fn hold(images: BorrowedFd<'_>, root: &Path) -> io::Result<Vec<Link>> {
    let deleted = deleted(images)?;
    let root = open_root(root)?;
    let mut held = Vec::new();
    for path in deleted.into_iter().filter_map(|deleted| deleted.by.name()) {
        if let Some(file) = look(&root, &path)? {
            held.push(Link { path, file });
        }
    }
    Ok(held)
}

/// Refuses files that were deleted while they are open in one of these directories. They are not copied after a dump,
/// so a name that CRIU gave them would not exist for the restore, or could not be created.
pub(super) fn refuse_in(images: BorrowedFd<'_>, outside: &[HostMount]) -> io::Result<()> {
    if outside.is_empty() {
        return Ok(());
    }
    let within =
        |deleted: &&DeletedFile| outside.iter().any(|directory| deleted.name.starts_with(directory.place()));
    match deleted(images)?.iter().find(within) {
        None => Ok(()),
        Some(deleted) => Err(io::Error::other(format!(
            "`/{}` is open and was deleted, and it is in a volume",
            deleted.name.display()
        ))),
    }
}

/// Removes the remains of a restore that was killed, with which the next one would conflict.
pub(super) fn sweep(images: BorrowedFd<'_>, root: &Path) -> io::Result<()> {
    let deleted = deleted(images)?;
    let root = open_root(root)?;
    for DeletedFile { name, by } in deleted {
        match by {
            FoundBy::Contents(path) => unlink(&root, &path)?,
            FoundBy::Name(path) => {
                // Its old name is free or belongs to another file by now; or the restore has created it again.
                let (now, then) = (look(&root, &name)?, look(&root, &path)?);
                if let (Some(now), Some(then)) = (now, then)
                    && identity(&now)? == identity(&then)?
                {
                    unlink(&root, &name)?;
                }
            }
        }
    }
    Ok(())
}

pub(super) fn look(root: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    match beneath(root, path, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl FoundBy {
    fn name(self) -> Option<PathBuf> {
        match self {
            Self::Name(path) => Some(path),
            Self::Contents(_) => None,
        }
    }
}

/// Creates the names again, and returns whether there are any.
pub(super) fn recreate(links: &[Link], root: &Path) -> io::Result<bool> {
    if links.is_empty() {
        return Ok(false);
    }
    let root = open_root(root)?;
    write_list(&root, links)?;
    for Link { path, file } in links {
        let (directory, name) = split(&root, path)?;
        match linkat(file, "", &directory, name, AtFlags::EMPTY_PATH) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Removes the names that [`recreate`] created, in these files or in a copy of them. Must not be applied to files
/// that a restore still needs.
pub(crate) fn take_away(root: &Path) -> io::Result<()> {
    let root = open_root(root)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let list = match beneath(&root, Path::new(LIST), flags) {
        Ok(list) => File::from(list),
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    list.take(LIST_BYTES_MAX).read_to_end(&mut bytes)?;
    for name in bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // The machine can write the list, too. Whatever it contains, only the machine's own files can be affected, and
        // names that cannot be removed only affect the machine.
        let _ = unlink(&root, Path::new(OsStr::from_bytes(name)));
    }
    unlink(&root, Path::new(LIST))
}

/// Removes the names that CRIU gave to one file, beside its original name.
pub(super) fn remove_remaps(root: &Path, opened_as: &Path, file: (u64, u64)) -> io::Result<()> {
    let root = open_root(root)?;
    let parent = opened_as.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = match beneath(&root, parent, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(directory) => directory,
        // The directory is gone as well, or on another file system: no name was created there.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_bytes().starts_with(REMAP_PREFIX) {
            continue;
        }
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (found.st_dev, found.st_ino) == file {
            unlinkat(&directory, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// The list is written first, so that it contains every name that exists.
fn write_list(root: &OwnedFd, links: &[Link]) -> io::Result<()> {
    unlink(root, Path::new(LIST))?;
    let (directory, name) = split(root, Path::new(LIST))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut list = File::from(openat(&directory, name, flags, Mode::RUSR | Mode::WUSR)?);
    let names: Vec<&[u8]> = links.iter().map(|link| link.path.as_os_str().as_bytes()).collect();
    list.write_all(&names.join(&0))
}

fn unlink(root: &OwnedFd, path: &Path) -> io::Result<()> {
    match split(root, path).and_then(|(directory, name)| Ok(unlinkat(&directory, name, AtFlags::empty())?)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(root, flags, Mode::empty())?)
}

/// The kernel resolved these names, so no component of them is a link; a link that the machine created later is not
/// followed.
fn beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn split<'a>(root: &OwnedFd, path: &'a Path) -> io::Result<(OwnedFd, &'a Path)> {
    let name = path.file_name().map(Path::new).ok_or(io::ErrorKind::InvalidData)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((beneath(root, parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
}

/// The content of an image; empty if there is none.
pub(super) fn read(images: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let file = match openat(images, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => File::from(other?),
    };
    let mut bytes = Vec::new();
    file.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The records of an image of this kind.
pub(super) fn entries(image: &[u8], magic: u32) -> Result<Vec<&[u8]>, ProtobufError> {
    if image.is_empty() {
        return Ok(Vec::new());
    }
    let mut rest = image;
    let number = |rest: &mut &[u8]| {
        let (bytes, after) = rest.split_first_chunk().ok_or(ProtobufError)?;
        *rest = after;
        Ok(u32::from_le_bytes(*bytes))
    };
    if [number(&mut rest)?, number(&mut rest)?] != [COMMON_MAGIC, magic] {
        return Err(ProtobufError);
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = usize::try_from(number(&mut rest)?).map_err(|_| ProtobufError)?;
        let (entry, after) = rest.split_at_checked(length).ok_or(ProtobufError)?;
        rest = after;
        found.push(entry);
    }
    Ok(found)
}

fn deleted(images: BorrowedFd<'_>) -> io::Result<Vec<DeletedFile>> {
    let malformed = |error: ProtobufError| io::Error::new(io::ErrorKind::InvalidData, error);
    let remaps = read(images, REMAPS)?;
    let remaps = entries(&remaps, REMAPS_MAGIC).map_err(malformed)?;
    if remaps.is_empty() {
        return Ok(Vec::new());
    }
    let files = read(images, FILES)?;
    let names = entries(&files, FILES_MAGIC).and_then(|entries| names(&entries)).map_err(malformed)?;
    let found: Result<Vec<_>, ProtobufError> = remaps.iter().map(|remap| one(remap, &names)).collect();
    Ok(found.map_err(malformed)?.into_iter().flatten().collect())
}

/// A remap; `None` for a kind that leaves no names.
fn one(remap: &[u8], names: &HashMap<u64, PathBuf>) -> Result<Option<DeletedFile>, ProtobufError> {
    let (mut from, mut to, mut kind) = (None, None, LINKED);
    for field in Fields::of(remap) {
        let field = field?;
        match (field.number, field.value) {
            (REMAP_FROM, Value::Number(id)) => from = Some(id),
            (REMAP_TO, Value::Number(id)) => to = Some(id),
            (REMAP_KIND, Value::Number(number)) => kind = number,
            _ => {}
        }
    }
    let (from, to) = (from.ok_or(ProtobufError)?, to.ok_or(ProtobufError)?);
    let Some(name) = names.get(&from).cloned() else { return Ok(None) };
    let by = match kind {
        LINKED => names.get(&to).cloned().map(FoundBy::Name),
        GHOST => {
            let mut contents = name.clone().into_os_string();
            contents.push(format!(".cr.{to:x}.ghost"));
            Some(FoundBy::Contents(contents.into()))
        }
        _ => None,
    };
    Ok(by.map(|by| DeletedFile { name, by }))
}

/// The names of regular files by their ids, without the root.
fn names(files: &[&[u8]]) -> Result<HashMap<u64, PathBuf>, ProtobufError> {
    let mut found = HashMap::new();
    for file in files {
        for field in Fields::of(file) {
            let field = field?;
            let (REGULAR, Value::Bytes(regular)) = (field.number, field.value) else { continue };
            let (mut id, mut name) = (None, None);
            for field in Fields::of(regular) {
                let field = field?;
                match (field.number, field.value) {
                    (REGULAR_ID, Value::Number(number)) => id = Some(number),
                    (REGULAR_NAME, Value::Bytes(bytes)) => name = Some(bytes),
                    _ => {}
                }
            }
            let name = name.map(|name| Path::new(OsStr::from_bytes(name)));
            let name = name.map(|path| path.strip_prefix("/").unwrap_or(path).to_owned());
            found.extend(id.zip(name));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::super::protobuf::Message;
    use super::*;

    fn image(magic: u32, entries: &[Message]) -> Vec<u8> {
        let mut bytes = [COMMON_MAGIC, magic].map(u32::to_le_bytes).concat();
        for entry in entries {
            bytes.extend(u32::try_from(entry.as_bytes().len()).unwrap().to_le_bytes());
            bytes.extend(entry.as_bytes());
        }
        bytes
    }

    fn file(id: u64, name: &str) -> Message {
        let regular = Message::default().number(REGULAR_ID, id).bytes(REGULAR_NAME, name.as_bytes());
        Message::default().number(1, 1).number(2, id).message(REGULAR, &regular)
    }

    #[test]
    fn names_are_created_again_and_removed() {
        let (images, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let remap = |to: u64, kind: u64| {
            Message::default().number(REMAP_FROM, 1).number(REMAP_TO, to).number(REMAP_KIND, kind)
        };
        let remaps =
            image(REMAPS_MAGIC, &[remap(7, LINKED), remap(8, GHOST), remap(9, LINKED), remap(10, LINKED)]);
        fs::write(images.path().join(REMAPS), remaps).unwrap();
        let files = [
            file(1, "/a/gone"),
            file(7, "/a/link_remap.7"),
            file(8, "/a/ghost"),
            file(9, "/dev/shm/link_remap.9"),
            file(10, "/escape/link_remap.10"),
        ];
        fs::write(images.path().join(FILES), image(FILES_MAGIC, &files)).unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("a")).unwrap();
        fs::write(at("other"), "contents").unwrap();
        fs::hard_link(at("other"), at("a/link_remap.7")).unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("link_remap.10"), "").unwrap();

        let directory = File::open(images.path()).unwrap();
        let held = hold(directory.as_fd(), root.path()).unwrap();
        // As CRIU does next.
        fs::remove_file(at("a/link_remap.7")).unwrap();
        fs::create_dir(at(".burrow")).unwrap();
        assert!(recreate(&held, root.path()).unwrap());
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(at("a/link_remap.7")), inode(at("other")));
        for _ in 0..2 {
            take_away(root.path()).unwrap();
            let left = ["a/link_remap.7", ".burrow/names"].map(|name| at(name).exists());
            assert_eq!((left, at("other").exists()), ([false, false], true));
        }
        // The possible remains of a killed restore: contents that are in the way now, and the original name.
        fs::write(at("a/gone.cr.8.ghost"), "").unwrap();
        fs::hard_link(at("other"), at("a/link_remap.7")).unwrap();
        fs::hard_link(at("other"), at("a/gone")).unwrap();
        sweep(directory.as_fd(), root.path()).unwrap();
        let left = |name: &str| at(name).exists();
        assert_eq!((left("a/gone.cr.8.ghost"), left("a/gone"), left("a/link_remap.7")), (false, false, true));
        fs::write(at("a/gone"), "another one").unwrap();
        sweep(directory.as_fd(), root.path()).unwrap();
        assert!(left("a/gone"), "it belongs to another file");
        // No name leads outside the root.
        symlink(outside.path(), at("escape")).unwrap();
        assert!(hold(directory.as_fd(), root.path()).is_err());
        fs::write(at(".burrow/names"), "escape/link_remap.10\0../x\0a\0/etc/hostname").unwrap();
        take_away(root.path()).unwrap();
        assert!(at("a").exists());
        assert!(outside.path().join("link_remap.10").exists());
    }

    #[test]
    fn images_without_such_files_have_no_names_and_broken_ones_are_rejected() {
        let (images, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directory = File::open(images.path()).unwrap();
        assert!(hold(directory.as_fd(), root.path()).unwrap().is_empty());
        fs::write(images.path().join(REMAPS), b"nonsense").unwrap();
        assert!(hold(directory.as_fd(), root.path()).is_err());
    }
}
