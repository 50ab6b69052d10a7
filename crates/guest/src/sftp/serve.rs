//! Answers each request with one packet.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with};

use super::attributes::{self, Attributes};
use super::handles::{Handle, Handles};
use super::listing;
use super::packet::{Fields, MalformedPacket, PACKET_BYTES_MAX, Packet};

const VERSION: u32 = 3;

/// The limit of one read or write; a packet has a few bytes more.
const DATA_BYTES_MAX: usize = PACKET_BYTES_MAX - 1024;

/// The limit of one answer about a directory. A name has at most 255 bytes, twice in an entry.
const NAMES_BYTES: usize = 32 << 10;

// The types of requests and answers: draft-ietf-secsh-filexfer-02.
mod kind {
    pub(super) const INIT: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const WRITE: u8 = 6;
    pub(super) const LSTAT: u8 = 7;
    pub(super) const FSTAT: u8 = 8;
    pub(super) const SETSTAT: u8 = 9;
    pub(super) const FSETSTAT: u8 = 10;
    pub(super) const OPENDIR: u8 = 11;
    pub(super) const READDIR: u8 = 12;
    pub(super) const REMOVE: u8 = 13;
    pub(super) const MKDIR: u8 = 14;
    pub(super) const RMDIR: u8 = 15;
    pub(super) const REALPATH: u8 = 16;
    pub(super) const STAT: u8 = 17;
    pub(super) const RENAME: u8 = 18;
    pub(super) const READLINK: u8 = 19;
    pub(super) const SYMLINK: u8 = 20;
    pub(super) const STATUS: u8 = 101;
    pub(super) const HANDLE: u8 = 102;
    pub(super) const DATA: u8 = 103;
    pub(super) const NAME: u8 = 104;
    pub(super) const ATTRS: u8 = 105;
    pub(super) const EXTENDED: u8 = 200;
    pub(super) const EXTENDED_REPLY: u8 = 201;
}

mod open {
    pub(super) const READ: u32 = 1;
    pub(super) const WRITE: u32 = 2;
    pub(super) const APPEND: u32 = 4;
    pub(super) const CREATE: u32 = 8;
    pub(super) const TRUNCATE: u32 = 16;
    pub(super) const EXCLUSIVE: u32 = 32;
}

/// Extensions of OpenSSH that clients use, with their versions.
const EXTENSIONS: [(&str, &str); 7] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
];

/// Why a request fails.
#[derive(Debug)]
enum Failure {
    End,
    Malformed,
    Unsupported,
    BadHandle,
    TooManyHandles,
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<MalformedPacket> for Failure {
    fn from(_: MalformedPacket) -> Self {
        Self::Malformed
    }
}

#[derive(Debug, Default)]
pub(super) struct Server {
    handles: Handles,
}

impl Server {
    /// Writes one answer, whatever the request.
    pub(super) fn answer(&mut self, mut request: Fields<'_>, packet: &mut Packet) {
        let (Ok(kind), Ok(id)) = (request.byte(), request.number()) else {
            packet.begin(kind::STATUS, 0);
            return status(packet, &Failure::Malformed);
        };
        if kind == kind::INIT {
            return greet(packet);
        }
        packet.begin(kind::STATUS, id);
        match self.carry_out(kind, id, request, packet) {
            Ok(()) => {}
            Err(no) => {
                packet.undo();
                packet.begin(kind::STATUS, id);
                status(packet, &no);
            }
        }
    }

    /// The packet was begun as a status; a request with another answer starts it again.
    fn carry_out(
        &mut self,
        kind: u8,
        id: u32,
        mut fields: Fields<'_>,
        packet: &mut Packet,
    ) -> Result<(), Failure> {
        let fields = &mut fields;
        match kind {
            kind::OPEN => return self.open(id, fields, packet),
            kind::READ => return self.read(id, fields, packet),
            kind::OPENDIR => return self.open_directory(id, fields, packet),
            kind::READDIR => return self.read_directory(id, fields, packet),
            kind::STAT => return write_attributes(id, &fs::metadata(path(fields)?)?, packet),
            kind::LSTAT => return write_attributes(id, &fs::symlink_metadata(path(fields)?)?, packet),
            kind::FSTAT => return self.stat_handle(id, fields, packet),
            kind::REALPATH => return name(id, real_path(&path(fields)?)?.as_os_str().as_bytes(), packet),
            kind::READLINK => {
                return name(id, fs::read_link(path(fields)?)?.as_os_str().as_bytes(), packet);
            }
            kind::EXTENDED => return self.extended(id, fields, packet),
            kind::CLOSE => drop(self.handles.remove(fields.text()?).ok_or(Failure::BadHandle)?),
            kind::WRITE => self.write(fields)?,
            kind::SETSTAT => {
                let path = path(fields)?;
                Attributes::read(fields)?.apply_at(&path, true)?;
            }
            kind::FSETSTAT => self.set_handle(fields)?,
            kind::REMOVE => fs::remove_file(path(fields)?)?,
            kind::MKDIR => make_directory(fields)?,
            kind::RMDIR => fs::remove_dir(path(fields)?)?,
            kind::RENAME => {
                // Version 3: an existing file is not replaced.
                renameat_with(CWD, path(fields)?, CWD, path(fields)?, RenameFlags::NOREPLACE)?;
            }
            kind::SYMLINK => {
                // In OpenSSH's order, which differs from the specification: the target of the link first, then its
                // path.
                let (target, link) = (path(fields)?, path(fields)?);
                symlink(target, link)?;
            }
            _ => return Err(Failure::Unsupported),
        }
        success(packet);
        Ok(())
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>, packet: &mut Packet) -> Result<(), Failure> {
        let path = path(fields)?;
        let flags = fields.number()?;
        let attributes = Attributes::read(fields)?;
        let has = |flag: u32| flags & flag != 0;
        let mut options = OpenOptions::new();
        options.read(has(open::READ)).write(has(open::WRITE) && !has(open::APPEND)).append(has(open::APPEND));
        options.truncate(has(open::TRUNCATE) && has(open::WRITE) && !has(open::APPEND));
        options.create(has(open::CREATE)).create_new(has(open::CREATE) && has(open::EXCLUSIVE));
        options.mode(attributes.mode.unwrap_or(0o666));
        let file = options.open(path)?;
        self.hand_out(id, Handle::File { file, append: has(open::APPEND) }, packet)
    }

    fn open_directory(
        &mut self,
        id: u32,
        fields: &mut Fields<'_>,
        packet: &mut Packet,
    ) -> Result<(), Failure> {
        let path = path(fields)?;
        let entries = fs::read_dir(&path)?;
        self.hand_out(id, Handle::Directory { entries, path }, packet)
    }

    fn hand_out(&mut self, id: u32, handle: Handle, packet: &mut Packet) -> Result<(), Failure> {
        let name = self.handles.insert(handle).ok_or(Failure::TooManyHandles)?;
        packet.undo();
        packet.begin(kind::HANDLE, id);
        packet.text(&name);
        packet.end();
        Ok(())
    }

    fn read(&mut self, id: u32, fields: &mut Fields<'_>, packet: &mut Packet) -> Result<(), Failure> {
        let (file, _) = self.handles.file(fields.text()?).ok_or(Failure::BadHandle)?;
        let (offset, length) = (fields.long()?, fields.number()? as usize);
        packet.undo();
        packet.begin(kind::DATA, id);
        match packet.text_of(length.min(DATA_BYTES_MAX), |buffer| file.read_at(buffer, offset))? {
            0 if length > 0 => return Err(Failure::End),
            _ => packet.end(),
        }
        Ok(())
    }

    fn write(&mut self, fields: &mut Fields<'_>) -> Result<(), Failure> {
        let (mut file, append) = self.handles.file(fields.text()?).ok_or(Failure::BadHandle)?;
        let (offset, data) = (fields.long()?, fields.text()?);
        if append {
            file.write_all(data)?
        } else {
            file.write_all_at(data, offset)?
        }
        Ok(())
    }

    fn stat_handle(&mut self, id: u32, fields: &mut Fields<'_>, packet: &mut Packet) -> Result<(), Failure> {
        let metadata = match self.handles.get(fields.text()?).ok_or(Failure::BadHandle)? {
            Handle::File { file, .. } => file.metadata()?,
            Handle::Directory { path, .. } => fs::metadata(path)?,
        };
        write_attributes(id, &metadata, packet)
    }

    fn set_handle(&mut self, fields: &mut Fields<'_>) -> Result<(), Failure> {
        let handle = self.handles.get(fields.text()?).ok_or(Failure::BadHandle)?;
        let attributes = Attributes::read(fields)?;
        match handle {
            Handle::File { file, .. } => attributes.apply(file)?,
            Handle::Directory { path, .. } => attributes.apply_at(path, true)?,
        }
        Ok(())
    }

    fn read_directory(
        &mut self,
        id: u32,
        fields: &mut Fields<'_>,
        packet: &mut Packet,
    ) -> Result<(), Failure> {
        let Some(Handle::Directory { entries, path }) = self.handles.get(fields.text()?) else {
            return Err(Failure::BadHandle);
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let mut found = Vec::new();
        let mut bytes = 0;
        while bytes < NAMES_BYTES {
            let Some(entry) = entries.next() else { break };
            let name = entry?.file_name();
            let metadata = fs::symlink_metadata(path.join(&name)).ok();
            bytes += 2 * name.len() + 100;
            found.push((name, metadata));
        }
        if found.is_empty() {
            return Err(Failure::End);
        }
        packet.undo();
        packet.begin(kind::NAME, id);
        packet.number(u32::try_from(found.len()).expect("names are few"));
        for (name, metadata) in found {
            let name = name.as_bytes();
            packet.text(name);
            match metadata {
                Some(metadata) => {
                    packet.text(&listing::line(name, &metadata, now));
                    attributes::write(&metadata, packet);
                }
                None => {
                    packet.text(name);
                    attributes::write_none(packet);
                }
            }
        }
        packet.end();
        Ok(())
    }

    fn extended(&mut self, id: u32, fields: &mut Fields<'_>, packet: &mut Packet) -> Result<(), Failure> {
        match fields.text()? {
            b"posix-rename@openssh.com" => fs::rename(path(fields)?, path(fields)?)?,
            b"hardlink@openssh.com" => {
                let (from, to) = (path(fields)?, path(fields)?);
                rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
            }
            b"fsync@openssh.com" => {
                self.handles.file(fields.text()?).ok_or(Failure::BadHandle)?.0.sync_all()?
            }
            b"lsetstat@openssh.com" => {
                let path = path(fields)?;
                Attributes::read(fields)?.apply_at(&path, false)?;
            }
            b"statvfs@openssh.com" => return file_system_stats(id, &path(fields)?, packet),
            b"limits@openssh.com" => return limits(id, packet),
            b"expand-path@openssh.com" => {
                let path = expanded(&path(fields)?);
                return name(id, real_path(&path)?.as_os_str().as_bytes(), packet);
            }
            _ => return Err(Failure::Unsupported),
        }
        success(packet);
        Ok(())
    }
}

fn greet(packet: &mut Packet) {
    packet.begin(kind::VERSION, VERSION);
    for (name, version) in EXTENSIONS {
        packet.text(name.as_bytes());
        packet.text(version.as_bytes());
    }
    packet.end();
}

fn path(fields: &mut Fields<'_>) -> Result<PathBuf, Failure> {
    let bytes = fields.text()?;
    if bytes.contains(&0) {
        return Err(Failure::Malformed);
    }
    // An empty path means the current directory.
    let bytes = if bytes.is_empty() { b"." } else { bytes };
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

fn make_directory(fields: &mut Fields<'_>) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = path(fields)?;
    let mode = Attributes::read(fields)?.mode.unwrap_or(0o777);
    fs::DirBuilder::new().mode(mode).create(path)?;
    Ok(())
}

/// Of an existing path, as the kernel resolves it; otherwise from the text alone: clients ask for paths that they are
/// about to create.
fn real_path(path: &Path) -> Result<PathBuf, Failure> {
    if let Ok(real) = fs::canonicalize(path) {
        return Ok(real);
    }
    let mut real = if path.is_absolute() { PathBuf::from("/") } else { std::env::current_dir()? };
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => real.push(name),
            std::path::Component::ParentDir => {
                real.pop();
            }
            std::path::Component::RootDir
            | std::path::Component::CurDir
            | std::path::Component::Prefix(_) => {}
        }
    }
    Ok(real)
}

/// `~` and `~/…`: the user's own home. Homes of other users are not supported.
fn expanded(path: &Path) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    match (path.strip_prefix("~"), home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        (Ok(_), None) | (Err(_), _) => path.to_owned(),
    }
}

fn write_attributes(id: u32, metadata: &fs::Metadata, packet: &mut Packet) -> Result<(), Failure> {
    packet.undo();
    packet.begin(kind::ATTRS, id);
    attributes::write(metadata, packet);
    packet.end();
    Ok(())
}

fn name(id: u32, name: &[u8], packet: &mut Packet) -> Result<(), Failure> {
    packet.undo();
    packet.begin(kind::NAME, id);
    packet.number(1);
    packet.text(name);
    packet.text(name);
    attributes::write_none(packet);
    packet.end();
    Ok(())
}

/// `statvfs`: what `df` shows.
fn file_system_stats(id: u32, path: &Path, packet: &mut Packet) -> Result<(), Failure> {
    let found = rustix::fs::statvfs(path)?;
    packet.undo();
    packet.begin(kind::EXTENDED_REPLY, id);
    let numbers =
        [found.f_bsize, found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail, found.f_files];
    for number in numbers {
        packet.long(number);
    }
    // The bits for read-only and no-setuid are the same as in `statvfs`.
    for number in [found.f_ffree, found.f_favail, found.f_fsid, found.f_flag.bits() & 3, found.f_namemax] {
        packet.long(number);
    }
    packet.end();
    Ok(())
}

fn limits(id: u32, packet: &mut Packet) -> Result<(), Failure> {
    packet.undo();
    packet.begin(kind::EXTENDED_REPLY, id);
    let data = DATA_BYTES_MAX as u64;
    for number in [PACKET_BYTES_MAX as u64, data, data, 1000] {
        packet.long(number);
    }
    packet.end();
    Ok(())
}

fn success(packet: &mut Packet) {
    write_status(packet, 0, "Success");
}

fn status(packet: &mut Packet, failure: &Failure) {
    match failure {
        Failure::End => write_status(packet, 1, "End of file"),
        Failure::Malformed => write_status(packet, 5, "Bad message"),
        Failure::Unsupported => write_status(packet, 8, "Operation unsupported"),
        Failure::BadHandle => write_status(packet, 4, "No such handle"),
        Failure::TooManyHandles => write_status(packet, 4, "Too many open files"),
        Failure::Io(error) => {
            let kind = error.kind();
            if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                write_status(packet, 2, "No such file");
            } else if kind == io::ErrorKind::PermissionDenied {
                write_status(packet, 3, "Permission denied");
            } else {
                write_status(packet, 4, &error.to_string());
            }
        }
    }
}

fn write_status(packet: &mut Packet, code: u32, text: &str) {
    packet.number(code);
    packet.text(text.as_bytes());
    packet.text(b"");
    packet.end();
}
