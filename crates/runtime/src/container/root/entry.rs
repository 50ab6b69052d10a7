//! Operations on single entries of a hostile directory, by descriptor.
//!
//! Sandboxes control their own files. Every name here is one component, resolved beneath a directory that is already
//! open, and a symbolic link is never followed: an entry is as required, or it is replaced, or the call fails. The
//! target of a link is never changed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid, fchmod, fchown, fstat,
    mkdirat, openat2, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use burrow_network::linux::UID_BASE;

/// An obstructing entry that cannot be removed at once is renamed to one of this many names.
const ASIDE_NAMES: u32 = 256;

/// Attempts if an entry changes meanwhile, which cannot happen repeatedly: no machine of this sandbox runs now.
const ATTEMPTS: u32 = 3;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Root of the host, which has no id inside: the sandbox can neither change nor replace such a file.
    Host,
    /// Root inside.
    Inside,
}

impl Owner {
    pub(super) fn id(self) -> u32 {
        match self {
            Self::Host => 0,
            Self::Inside => UID_BASE,
        }
    }
}

/// Opens an existing directory that is not a link.
pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(parent, name, flags, Mode::empty(), BENEATH)?)
}

/// A directory of that name: the existing one, or a new one. An entry of another type is moved out of the way.
pub(super) fn directory(parent: BorrowedFd<'_>, name: &str, mode: u32, owner: Owner) -> io::Result<OwnedFd> {
    for _ in 0..ATTEMPTS {
        match open_directory(parent, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_wrong_type(&error) => clear(parent, name)?,
            other => return other,
        }
        match mkdirat(parent, name, Mode::from_raw_mode(mode)) {
            Ok(()) => {
                let directory = open_directory(parent, name)?;
                own(directory.as_fd(), mode, owner)?;
                return Ok(directory);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// The same, if the name is free or a directory has it.
pub(super) fn directory_if_free(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    const MODE: u32 = 0o755;
    match open_directory(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    mkdirat(parent, name, Mode::from_raw_mode(MODE))?;
    let made = open_directory(parent, name)?;
    own(made.as_fd(), MODE, Owner::Inside)?;
    Ok(made)
}

/// A device, FIFO or similar node of exactly this kind; any other entry of that name is moved out of the way.
pub(super) fn node(
    parent: BorrowedFd<'_>,
    name: &str,
    kind: FileType,
    mode: u32,
    device: u64,
) -> io::Result<()> {
    match stat(parent, name)? {
        Some(stat) if is_node(&stat, kind, mode, device) => return Ok(()),
        Some(_) => clear(parent, name)?,
        None => {}
    }
    // Not usable by anyone until its owner is set; `mknod` also obeys the umask.
    rustix::fs::mknodat(parent, name, kind, Mode::empty(), device)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat2(parent, name, flags, Mode::empty(), BENEATH)?;
    let id = Owner::Inside.id();
    rustix::fs::chownat(&made, "", Some(Uid::from_raw(id)), Some(Gid::from_raw(id)), AtFlags::EMPTY_PATH)?;
    chmod_by_path_descriptor(made.as_fd(), mode)
}

/// A symbolic link, if the name is free or has a device: a link that the sandbox's owner created may point anywhere.
pub(super) fn symlink(parent: BorrowedFd<'_>, name: &str, target: &str) -> io::Result<()> {
    match stat(parent, name)? {
        Some(stat) if matches!(kind(&stat), FileType::CharacterDevice | FileType::BlockDevice) => {
            clear(parent, name)?
        }
        Some(_) => return Ok(()),
        None => {}
    }
    symlinkat(target, parent, name)?;
    let id = Owner::Inside.id();
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    Ok(rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// A new, empty file of that name, open for writing. An existing entry is moved out of the way; readers of an old file
/// keep it.
pub(super) fn create(parent: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    if stat(parent, name)?.is_some() {
        clear(parent, name)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(parent, name, flags, Mode::RUSR | Mode::WUSR, BENEATH)?.into())
}

/// A new file with this content. Not by renaming it into place: file systems treat a rename over a file as a request
/// for durability and start writing, which takes milliseconds of a boot, for files that the next boot can create again.
pub(super) fn replace(
    parent: BorrowedFd<'_>,
    name: &str,
    content: &[u8],
    mode: u32,
    owner: Owner,
) -> io::Result<()> {
    let mut file = create(parent, name)?;
    file.write_all(content)?;
    own(file.as_fd(), mode, owner)
}

/// Makes a regular file have this content, in place if it exists. It creates no new file, and does not truncate the
/// file to zero, which file systems treat as the same request. In a copy-on-write child this also changes the fewest
/// blocks. A file with the right content is not written: writing may wait for a commit of the whole file system.
pub(super) fn overwrite(
    parent: BorrowedFd<'_>,
    name: &str,
    content: &[u8],
    mode: u32,
    owner: Owner,
) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat2(parent, name, flags, Mode::empty(), BENEATH) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
            return replace(parent, name, content, mode, owner);
        }
        Err(error) => return Err(error.into()),
    };
    let stat = fstat(&file)?;
    // A file with more than one name may serve another purpose under another name, so it is not changed.
    if kind(&stat) != FileType::RegularFile || stat.st_nlink != 1 {
        return replace(parent, name, content, mode, owner);
    }
    if !holds(&file, &stat, content)? {
        file.write_all_at(content, 0)?;
        if u64::try_from(stat.st_size) != Ok(content.len() as u64) {
            file.set_len(content.len() as u64)?;
        }
    }
    if (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777) != (owner.id(), owner.id(), mode) {
        own(file.as_fd(), mode, owner)?;
    }
    Ok(())
}

fn holds(file: &File, stat: &Stat, content: &[u8]) -> io::Result<bool> {
    if u64::try_from(stat.st_size) != Ok(content.len() as u64) {
        return Ok(false);
    }
    let mut found = vec![0; content.len()];
    match file.read_exact_at(&mut found, 0) {
        Ok(()) => Ok(found == content),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Renames over an entry at `to`; a directory there is moved out of the way.
pub(super) fn put(parent: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
    match renameat(parent, from, parent, to) {
        Err(Errno::ISDIR) => {
            clear(parent, to)?;
            Ok(renameat(parent, from, parent, to)?)
        }
        other => Ok(other?),
    }
}

/// The beginning of a regular file; `None` if there is none of that name.
pub(super) fn read(parent: BorrowedFd<'_>, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    // Opening a FIFO would block without this flag.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat2(parent, name, flags, Mode::empty(), BENEATH) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if kind(&fstat(&file)?) != FileType::RegularFile {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(bytes_max).read_to_end(&mut content)?;
    Ok(Some(content))
}

/// The entry itself, not the target of a link; `None` if it does not exist.
pub(super) fn stat(parent: BorrowedFd<'_>, name: &str) -> io::Result<Option<Stat>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Owner first: changing it clears set-id bits, and setting the mode last also limits an inherited access control list.
pub(super) fn own(entry: BorrowedFd<'_>, mode: u32, owner: Owner) -> io::Result<()> {
    let id = owner.id();
    fchown(entry, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?;
    Ok(fchmod(entry, Mode::from_raw_mode(mode))?)
}

/// Moves an entry out of the way: a directory is kept under another name, since it may contain a user's work and takes
/// long to delete; anything else is removed.
pub(super) fn clear(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    for number in 0..ASIDE_NAMES {
        let aside = format!("{name}.aside-{number}");
        match renameat_with(parent, name, parent, &aside, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn is_wrong_type(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NOTDIR))
}

fn is_node(stat: &Stat, expected: FileType, mode: u32, device: u64) -> bool {
    kind(stat) == expected
        && stat.st_rdev == device
        && stat.st_mode & 0o7777 == mode
        && (stat.st_uid, stat.st_gid) == (Owner::Inside.id(), Owner::Inside.id())
}

/// `fchmod` does not accept `O_PATH` descriptors, and opening a device would activate its driver.
fn chmod_by_path_descriptor(entry: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
}
