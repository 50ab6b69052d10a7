//! Unix sockets whose files were renamed after they were bound.
//!
//! CRIU restores a socket under the name to which it was bound. A program may have renamed the file since, so that its
//! clients never see a socket that is not ready: `supervisord` links it to another name and removes the first. So the
//! images get the present name.

#![expect(unsafe_code, reason = "asking a socket for its file has no safe interface")]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat, statat,
};
use rustix::net::{SocketAddrUnix, getsockname};

use super::group::Group;
use super::image::{self, Image, malformed};
use super::links::{FILES, FILES_MAGIC, IMAGE_BYTES_MAX};
use super::process_descriptors::Descriptors;
use super::protobuf::{Fields, Message, ProtobufError, Value};
use super::sockets::{UNIX, UNIX_DIRECTORY, UNIX_NAME};

/// Of a record of a socket: its inode, and that its file was deleted.
const UNIX_INODE: u32 = 2;
const UNIX_DELETED: u32 = 15;

/// Returns the file that a Unix socket is bound to.
const SIOCUNIXFILE: libc::Ioctl = 0x89e0;

/// The suffix in `/proc` of a file whose name was deleted.
const DELETED: &[u8] = b" (deleted)";

/// The longest name that a socket can be bound to, and the number of directory entries that are searched for it.
const NAME_BYTES_MAX: usize = 107;
const ENTRIES_MAX: usize = 100_000;

/// Where the file of a socket is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SocketFile {
    /// At the original name, or deleted.
    AsBound,
    At(PathBuf),
    /// In another directory, or under a name that is too long.
    Unknown,
}

/// The location of the file of a socket that a process of the machine has open.
pub(super) fn socket_file(socket: &OwnedFd, pid: u32) -> io::Result<SocketFile> {
    // A socket that is bound to no file has none.
    let Some(file) = file_of(socket) else { return Ok(SocketFile::AsBound) };
    let found = fstat(&file)?;
    let root = openat(CWD, format!("/proc/{pid}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let bound = SocketAddrUnix::try_from(getsockname(socket)?)?;
    let bound = bound.path().map(|name| PathBuf::from(OsStr::from_bytes(name.to_bytes())));
    let Some(bound) = bound.filter(|_| found.st_nlink > 0) else { return Ok(SocketFile::AsBound) };
    let link = readlinkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new())?;
    let (link, has_moved) = match link.as_bytes().strip_suffix(DELETED) {
        Some(link) => (link, true),
        None => (link.as_bytes(), false),
    };
    let link = Path::new(OsStr::from_bytes(link));
    let stays = match bound.strip_prefix("/") {
        Ok(within) => leads_to(&root, within, &found),
        // CRIU finds the directory itself.
        Err(_) => !has_moved && link.file_name() == bound.file_name(),
    };
    if stays {
        return Ok(SocketFile::AsBound);
    }
    let now = if has_moved { beside(&root, link, &found)? } else { Some(link.to_owned()) };
    let fits = |now: &PathBuf| now.is_absolute() && now.as_os_str().len() <= NAME_BYTES_MAX;
    Ok(now.filter(fits).map_or(SocketFile::Unknown, SocketFile::At))
}

fn file_of(socket: &OwnedFd) -> Option<OwnedFd> {
    // SAFETY: takes numbers, and returns a new descriptor or an error.
    let file = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCUNIXFILE, 0) };
    // SAFETY: the call succeeded, so the descriptor is new and ours.
    (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
}

/// Whether a name leads to a file, in the machine.
fn leads_to(root: &OwnedFd, name: &Path, file: &Stat) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found =
        openat2(root, name, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS);
    found.and_then(fstat).is_ok_and(|found| is_same(&found, file))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// The present name of the file in the directory of its former name.
fn beside(root: &OwnedFd, former: &Path, file: &Stat) -> io::Result<Option<PathBuf>> {
    let Some(directory) = former.parent() else { return Ok(None) };
    let within = directory.strip_prefix("/").unwrap_or(directory);
    let within = if within.as_os_str().is_empty() { Path::new(".") } else { within };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(opened) = openat2(root, within, flags, Mode::empty(), resolve) else { return Ok(None) };
    for entry in Dir::read_from(&opened)?.take(ENTRIES_MAX) {
        let entry = entry?;
        if entry.ino() != file.st_ino {
            continue;
        }
        let found = statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| is_same(&found, file)) {
            return Ok(Some(directory.join(OsStr::from_bytes(entry.file_name().to_bytes()))));
        }
    }
    Ok(None)
}

/// Writes the present names of renamed sockets to the images.
pub(super) fn write_present(images: BorrowedFd<'_>, group: &Group) -> io::Result<()> {
    let renamed = renamed(group)?;
    let Some(image) = Image::open(images, FILES, IMAGE_BYTES_MAX)?.filter(|_| !renamed.is_empty()) else {
        return Ok(());
    };
    let records = image::records(&image.bytes, FILES_MAGIC).map_err(malformed)?;
    let named = records.iter().map(|(_, record)| with_present_name(record, &renamed));
    let named: Vec<Message> = named.collect::<Result<_, _>>().map_err(malformed)?;
    image.replace(&named.iter().map(Message::as_bytes).collect::<Vec<_>>())
}

/// The renamed sockets of all processes, by their inodes.
fn renamed(group: &Group) -> io::Result<HashMap<u64, PathBuf>> {
    let mut found = HashMap::new();
    for pid in group.processes()? {
        let descriptors = Descriptors::of(pid)?;
        for (descriptor, link) in descriptors.list()? {
            let inode = link.as_ref().and_then(|link| link.to_str()).and_then(inode_of);
            let Some(inode) = inode.filter(|inode| !found.contains_key(inode)) else { continue };
            let Ok(socket) = descriptors.copy(descriptor) else { continue };
            if let SocketFile::At(name) = socket_file(&socket, pid)? {
                found.insert(inode, name);
            }
        }
    }
    Ok(found)
}

fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The record of an open file, with the present name if it is a renamed socket.
fn with_present_name(file: &[u8], renamed: &HashMap<u64, PathBuf>) -> Result<Message, ProtobufError> {
    let mut message = Message::default();
    for field in Fields::of(file) {
        let field = field?;
        message = match (field.number, field.value) {
            (UNIX, Value::Bytes(socket)) => message.message(UNIX, &named(socket, renamed)?),
            (number, Value::Number(value)) => message.number(number, value),
            (number, Value::Bytes(bytes)) => message.bytes(number, bytes),
        };
    }
    Ok(message)
}

fn named(socket: &[u8], renamed: &HashMap<u64, PathBuf>) -> Result<Message, ProtobufError> {
    let fields = Fields::of(socket).collect::<Result<Vec<_>, _>>()?;
    let inode = fields.iter().find(|field| field.number == UNIX_INODE).map(|field| field.value);
    let name = match inode {
        Some(Value::Number(inode)) => renamed.get(&inode),
        Some(Value::Bytes(_)) | None => None,
    };
    let mut message = Message::default();
    for field in fields {
        message = match (field.number, field.value, name) {
            (UNIX_NAME, _, Some(name)) => {
                message.bytes(UNIX_NAME, &[name.as_os_str().as_bytes(), b"\0"].concat())
            }
            (UNIX_DIRECTORY | UNIX_DELETED, _, Some(_)) => message,
            (number, Value::Number(value), _) => message.number(number, value),
            (number, Value::Bytes(bytes), _) => message.bytes(number, bytes),
        };
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn place_of(listener: &UnixListener) -> SocketFile {
        socket_file(&listener.try_clone().unwrap().into(), std::process::id()).unwrap()
    }

    #[test]
    fn the_file_of_a_renamed_socket_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let listener = UnixListener::bind(at("first")).unwrap();
        assert_eq!(place_of(&listener), SocketFile::AsBound);
        fs::rename(at("first"), at("second")).unwrap();
        assert_eq!(place_of(&listener), SocketFile::At(at("second")));
        fs::hard_link(at("second"), at("third")).unwrap();
        fs::remove_file(at("second")).unwrap();
        assert_eq!(place_of(&listener), SocketFile::At(at("third")));
        fs::create_dir(at("elsewhere")).unwrap();
        fs::hard_link(at("third"), at("elsewhere/fourth")).unwrap();
        fs::remove_file(at("third")).unwrap();
        assert_eq!(place_of(&listener), SocketFile::Unknown);
        fs::remove_file(at("elsewhere/fourth")).unwrap();
        assert_eq!(place_of(&listener), SocketFile::AsBound);
    }

    #[test]
    fn only_the_records_of_renamed_sockets_change() {
        let socket = |inode, name: &[u8]| {
            let socket = Message::default().number(UNIX_INODE, inode).bytes(UNIX_NAME, name);
            let socket = socket.bytes(13, b"rights").number(UNIX_DELETED, 1).number(17, 3000);
            Message::default().number(1, 5).number(2, 7).message(UNIX, &socket)
        };
        let renamed = HashMap::from([(7, PathBuf::from("/srv/socket"))]);
        let other = socket(8, b"/srv/other\0");
        assert_eq!(with_present_name(other.as_bytes(), &renamed).unwrap().as_bytes(), other.as_bytes());
        let changed = Message::default().number(UNIX_INODE, 7).bytes(UNIX_NAME, b"/srv/socket\0");
        let changed = changed.bytes(13, b"rights").number(17, 3000);
        let expected = Message::default().number(1, 5).number(2, 7).message(UNIX, &changed);
        let record = socket(7, b"/srv/socket.1\0");
        assert_eq!(with_present_name(record.as_bytes(), &renamed).unwrap().as_bytes(), expected.as_bytes());
    }
}
