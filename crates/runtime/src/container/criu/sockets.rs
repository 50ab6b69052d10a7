//! Unix sockets that a restore could not create again, or not at the same place.
//!
//! First: named sockets in a volume that is read-only for the restored machine.
//!
//! For each socket with a file, CRIU removes the existing socket and binds a new one. It does so before the access
//! modes of volumes can be set, so a child would remove its parent's socket in the volume that they share. Therefore
//! such a dump is refused before CRIU starts. If the machine itself only reads the volume, it is refused before the
//! dump, since it could not be woken.
//!
//! CRIU uses the name that a process bound, whose links may lead elsewhere by now. The name is resolved here as it will
//! be in the restored machine. Names that cannot be resolved are refused: a machine must not be able to write through a
//! link that is not visible here.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fstat, readlinkat};

use super::host_mount::HostMount;
use super::image::{self, Image, malformed};
use super::links::{self, FILES, FILES_MAGIC, IMAGE_BYTES_MAX};
use super::protobuf::{Fields, ProtobufError, Value};

/// Of a record of an open file: that it is a Unix socket; of that, its name, and the directory of a relative one.
pub(super) const UNIX: u32 = 16;
const UNIX_STATE: u32 = 4;
pub(super) const UNIX_NAME: u32 = 11;
pub(super) const UNIX_DIRECTORY: u32 = 14;

/// The kernel's number for the state of a listening socket.
const LISTENS: u64 = 10;

/// File systems that only the machine has. Links there are in the images, or the kernel's own.
const UNREADABLE: [&str; 2] = ["proc", "dev/shm"];

/// The same limit as the kernel's.
const LINKS_MAX: u32 = 40;

/// Refuses sockets with files in directories that are read-only here.
pub(super) fn refuse_in(images: BorrowedFd<'_>, root: &Path, outside: &[HostMount]) -> io::Result<()> {
    if !outside.iter().any(|directory| directory.read_only) {
        return Ok(());
    }
    let files = links::read(images, FILES)?;
    let names = links::entries(&files, FILES_MAGIC).and_then(|files| names(&files)).map_err(malformed)?;
    let view = MachineFiles::open(root, outside)?;
    for name in names {
        let shown = name.display();
        let why = match view.follow(&name)? {
            NameTarget::Elsewhere => continue,
            NameTarget::Into(directory) => {
                format!("a process has a socket at `{shown}`, and `{}` is read-only here", directory.key)
            }
            NameTarget::Unseen => {
                format!("a process has a socket at `{shown}`, which may lead into a volume that is read-only")
            }
        };
        return Err(io::Error::other(why));
    }
    Ok(())
}

/// Moves listening sockets to the front of the image. If a connection was not accepted yet and CRIU reads its client
/// before the listener, the restore fails, and the machine could not be woken.
pub(super) fn write_listeners_first(images: BorrowedFd<'_>) -> io::Result<()> {
    let Some(image) = Image::open(images, FILES, IMAGE_BYTES_MAX)? else { return Ok(()) };
    let ordered = listeners_first(&image.bytes).map_err(malformed)?;
    ordered.map_or(Ok(()), |records| image.replace(&records))
}

/// The records of the image in that order; `None` if nothing listens.
fn listeners_first(image: &[u8]) -> Result<Option<Vec<&[u8]>>, ProtobufError> {
    let (mut listeners, mut others) = (Vec::new(), Vec::new());
    for (_, record) in image::records(image, FILES_MAGIC)? {
        if listens(record)? { listeners.push(record) } else { others.push(record) }
    }
    if listeners.is_empty() {
        return Ok(None);
    }
    listeners.append(&mut others);
    Ok(Some(listeners))
}

/// Whether a record of an open file is a listening Unix socket.
fn listens(file: &[u8]) -> Result<bool, ProtobufError> {
    for field in Fields::of(file) {
        let field = field?;
        if let (UNIX, Value::Bytes(socket)) = (field.number, field.value) {
            for field in Fields::of(socket) {
                let field = field?;
                if (field.number, field.value) == (UNIX_STATE, Value::Number(LISTENS)) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// The names of all sockets that have a file.
fn names(files: &[&[u8]]) -> Result<Vec<PathBuf>, ProtobufError> {
    let mut found = Vec::new();
    for file in files {
        for field in Fields::of(file) {
            let field = field?;
            if let (UNIX, Value::Bytes(socket)) = (field.number, field.value) {
                found.extend(name(socket)?);
            }
        }
    }
    Ok(found)
}

/// `None` for a socket without a name, or with an abstract one.
fn name(socket: &[u8]) -> Result<Option<PathBuf>, ProtobufError> {
    let (mut name, mut directory): (&[u8], &[u8]) = (&[], &[]);
    for field in Fields::of(socket) {
        let field = field?;
        match (field.number, field.value) {
            (UNIX_NAME, Value::Bytes(bytes)) => name = bytes,
            (UNIX_DIRECTORY, Value::Bytes(bytes)) => directory = bytes,
            _ => {}
        }
    }
    // A file name ends with a zero byte, which is counted; an abstract name starts with one.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = || Path::new("/").join(OsStr::from_bytes(directory)).join(OsStr::from_bytes(name));
    Ok((!name.is_empty()).then(path))
}

/// Where a name leads.
#[derive(Debug)]
enum NameTarget<'a> {
    Elsewhere,
    /// Into a directory that is read-only here.
    Into(&'a HostMount),
    /// To a file system whose links cannot be read.
    Unseen,
}

/// The machine's files, as the restored machine will see them.
#[derive(Debug)]
struct MachineFiles<'a> {
    root: OwnedFd,
    outside: Vec<(&'a HostMount, OwnedFd)>,
}

impl<'a> MachineFiles<'a> {
    fn open(root: &Path, outside: &'a [HostMount]) -> io::Result<Self> {
        let open = |directory: &'a HostMount| Ok((directory, links::open_root(&directory.source)?));
        let outside = outside.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self { root: links::open_root(root)?, outside })
    }

    /// Resolves a name link by link. A link as the last component, which CRIU does not follow, counts too: no socket is
    /// a link.
    fn follow(&self, name: &Path) -> io::Result<NameTarget<'a>> {
        let mut ahead = steps(name);
        let mut at = PathBuf::new();
        let mut links = 0;
        while let Some(step) = ahead.pop() {
            match step.as_bytes() {
                b"/" => at.clear(),
                b"." => {}
                b".." => {
                    at.pop();
                }
                _ => at.push(&step),
            }
            let volume = self.outside.iter().find(|(directory, _)| at.starts_with(directory.place()));
            let link = match volume {
                Some((directory, _)) if directory.read_only => return Ok(NameTarget::Into(directory)),
                Some((directory, source)) => {
                    read_link(source, at.strip_prefix(directory.place()).unwrap_or(&at))?
                }
                None if !ahead.is_empty() && is_unseen(&at) => return Ok(NameTarget::Unseen),
                None => read_link(&self.root, &at)?,
            };
            if let Some(target) = link {
                links += 1;
                if links > LINKS_MAX {
                    return Ok(NameTarget::Unseen);
                }
                at.pop();
                ahead.extend(steps(&target));
            }
        }
        Ok(NameTarget::Elsewhere)
    }
}

/// The components of a path, in reverse order.
fn steps(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|step| step.as_os_str().to_owned()).collect()
}

fn is_unseen(at: &Path) -> bool {
    UNREADABLE.iter().any(|place| at.starts_with(place) && at != Path::new(place))
}

/// `None` if it is not a link, or does not exist.
fn read_link(base: &OwnedFd, path: &Path) -> io::Result<Option<PathBuf>> {
    let Some(file) = links::look(base, path)? else { return Ok(None) };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let target = readlinkat(&file, "", Vec::new())?;
    Ok(Some(PathBuf::from(OsStr::from_bytes(target.as_bytes()))))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    use super::super::protobuf::Message;
    use super::*;

    #[test]
    fn listeners_come_first_and_the_rest_keeps_its_order() {
        let socket = |id, state| {
            let socket = Message::default().number(1, id).number(UNIX_STATE, state);
            Message::default().number(2, id).message(UNIX, &socket)
        };
        let other = Message::default().number(2, 7).bytes(3, b"a regular file");
        let records = [socket(1, 1), other.clone(), socket(2, LISTENS), socket(3, 1), socket(4, LISTENS)];
        let image = image::written(FILES_MAGIC, &records);
        let ordered = listeners_first(&image).unwrap().unwrap();
        let expected = [&records[2], &records[4], &records[0], &records[1], &records[3]];
        assert_eq!(ordered, expected.map(Message::as_bytes));
        let none = image::written(FILES_MAGIC, &[other, socket(1, 1)]);
        assert_eq!(listeners_first(&none).unwrap(), None);
    }

    /// The refusal for a machine with one socket, a read-only volume `/models` and a writable one `/data`.
    fn refusal(name: &[u8], directory: &[u8]) -> Option<String> {
        let [images, root, models, data] = [(); 4].map(|()| tempfile::tempdir().unwrap());
        let at = |name: &str| root.path().join(name);
        for made in ["models", "data", "run", "dev", "dev/shm", "var"] {
            fs::create_dir(at(made)).unwrap();
        }
        symlink("/run", at("var/run")).unwrap();
        symlink("/models/sub", at("run/absolute")).unwrap();
        symlink("../var/../models", at("run/relative")).unwrap();
        symlink("loop", at("run/loop")).unwrap();
        symlink("/models", data.path().join("across")).unwrap();
        let socket = Message::default().number(1, 7).bytes(UNIX_NAME, name).bytes(UNIX_DIRECTORY, directory);
        let file = Message::default().number(1, 5).number(2, 7).message(UNIX, &socket);
        fs::write(images.path().join(FILES), image::written(FILES_MAGIC, &[file])).unwrap();
        let outside =
            [("/models", &models, true), ("/data", &data, false)].map(|(key, source, read_only)| HostMount {
                key: key.to_owned(),
                source: source.path().to_owned(),
                read_only,
            });
        let directory = File::open(images.path()).unwrap();
        refuse_in(directory.as_fd(), root.path(), &outside).err().map(|error| error.to_string())
    }

    #[test]
    fn a_socket_in_a_read_only_volume_is_refused_with_its_name() {
        let expected = "a process has a socket at `/models/a.sock`, and `/models` is read-only here";
        assert_eq!(refusal(b"/models/a.sock\0", b"").as_deref(), Some(expected));
        assert_eq!(refusal(b"a.sock\0", b"/models").as_deref(), Some(expected));
        for name in [&b"/data/a.sock\0"[..], b"/modelsx\0", b"/run/a.sock\0", b"/gone/a.sock\0"] {
            assert_eq!(refusal(name, b""), None, "{name:?}");
        }
    }

    #[test]
    fn a_socket_without_a_file_is_allowed() {
        for name in [&b""[..], b"\0/models/a.sock"] {
            assert_eq!(refusal(name, b""), None, "{name:?}");
        }
    }

    #[test]
    fn links_are_followed_as_in_the_restored_machine_and_unresolvable_ones_are_refused() {
        for name in [
            "/run/absolute/a.sock",
            "/var/run/relative/a.sock",
            "/run/../models/a.sock",
            "/data/across/a.sock",
            "/run/loop/a.sock",
            "/proc/self/cwd/a.sock",
            "/dev/shm/folder/a.sock",
        ] {
            assert!(refusal(name.as_bytes(), b"").is_some(), "{name}");
        }
        for name in ["/var/run/a.sock", "/dev/shm/a.sock", "/dev/shm/../a.sock", "/data/folder/a.sock"] {
            assert_eq!(refusal(name.as_bytes(), b""), None, "{name}");
        }
    }

    #[test]
    fn broken_images_are_rejected_if_there_are_read_only_volumes() {
        let images = tempfile::tempdir().unwrap();
        fs::write(images.path().join(FILES), b"nonsense").unwrap();
        let directory = File::open(images.path()).unwrap();
        let outside =
            |read_only| HostMount { key: "/data".to_owned(), source: images.path().to_owned(), read_only };
        assert!(refuse_in(directory.as_fd(), images.path(), &[outside(false)]).is_ok());
        assert!(refuse_in(directory.as_fd(), images.path(), &[outside(true)]).is_err());
    }
}
