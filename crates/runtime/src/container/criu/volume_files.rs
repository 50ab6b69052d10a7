//! Open files of volumes that were changed while their machine was hibernated.
//!
//! CRIU stores the length and the mode of each open file, and a restore fails if they have changed. That protects the
//! machine's own files, of which a restore has a copy of the same moment. A volume is restored in its present state,
//! like a disk that others use: a process finds its file longer or shorter, as if that had happened while it ran. So a
//! restore reads the images without these two values, for files below directories of the host.
//!
//! The values are kept where the contents matter: for a program, and for a private mapping, of which the images contain
//! only the changed pages. They are also kept if the file does not exist, or its name now belongs to a file of another
//! type: CRIU then fails, and names it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Dir, FileType, fstat};

use super::host_mount::HostMount;
use super::image::{malformed, written};
use super::links::{self, FILES, FILES_MAGIC, REGULAR, REGULAR_ID, REGULAR_NAME};
use super::protobuf::{Fields, Message, ProtobufError, Value};

/// Of a regular file or a directory.
const REGULAR_SIZE: u32 = 8;
const REGULAR_MODE: u32 = 10;

/// One image per process: `mm-<pid>.img`.
const MEMORY_PREFIX: &[u8] = b"mm-";
const SUFFIX: &[u8] = b".img";
const MEMORY_MAGIC: u32 = 0x5749_2820;
/// Of a process's memory: its program, and its mappings.
const MEMORY_PROGRAM: u32 = 12;
const MEMORY_MAPPING: u32 = 14;
/// Of a mapping: the mapped file, and the flags of `mmap`.
const MAPPING_FILE: u32 = 4;
const MAPPING_FLAGS: u32 = 6;
const MAP_SHARED: u64 = libc::MAP_SHARED as u64;

/// The image of open files without the length and the mode of files in volumes; `None` if there are no volumes.
pub(super) fn replacement(
    images: BorrowedFd<'_>,
    outside: &[HostMount],
) -> io::Result<Option<(String, Vec<u8>)>> {
    if outside.is_empty() {
        return Ok(None);
    }
    let mut sources = Vec::new();
    for directory in outside {
        sources.push((directory, links::open_root(&directory.source)?));
    }
    let fixed = fixed(images)?;
    let found = links::read(images, FILES)?;
    let mut files = Vec::new();
    for file in links::entries(&found, FILES_MAGIC).map_err(malformed)? {
        let mut may_change =
            |regular: &RegularFile<'_>| !fixed.contains(&regular.id) && regular.is_in(&sources);
        files.push(without_checks(file, &mut may_change).map_err(malformed)?);
    }
    Ok(Some((FILES.to_owned(), written(FILES_MAGIC, &files))))
}

/// The ids of files whose contents matter.
fn fixed(images: BorrowedFd<'_>) -> io::Result<HashSet<u64>> {
    let mut fixed = HashSet::new();
    for entry in Dir::read_from(images)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !name.starts_with(MEMORY_PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let name = String::from_utf8(name.to_owned()).map_err(io::Error::other)?;
        let memory = links::read(images, &name)?;
        for memory in links::entries(&memory, MEMORY_MAGIC).map_err(malformed)? {
            collect_fixed(memory, &mut fixed).map_err(malformed)?;
        }
    }
    Ok(fixed)
}

fn collect_fixed(memory: &[u8], fixed: &mut HashSet<u64>) -> Result<(), ProtobufError> {
    for field in Fields::of(memory) {
        let field = field?;
        match (field.number, field.value) {
            (MEMORY_PROGRAM, Value::Number(file)) => drop(fixed.insert(file)),
            (MEMORY_MAPPING, Value::Bytes(mapping)) => {
                let (mut file, mut flags) = (None, 0);
                for field in Fields::of(mapping) {
                    let field = field?;
                    match (field.number, field.value) {
                        (MAPPING_FILE, Value::Number(id)) => file = Some(id),
                        (MAPPING_FLAGS, Value::Number(number)) => flags = number,
                        _ => {}
                    }
                }
                fixed.extend(file.filter(|_| flags & MAP_SHARED == 0));
            }
            _ => {}
        }
    }
    Ok(())
}

/// An open file with a name, in the images.
struct RegularFile<'a> {
    id: u64,
    name: &'a [u8],
    mode: u64,
}

impl RegularFile<'_> {
    fn of(message: &[u8]) -> Result<RegularFile<'_>, ProtobufError> {
        let mut regular = RegularFile { id: 0, name: &[], mode: 0 };
        for field in Fields::of(message) {
            let field = field?;
            match (field.number, field.value) {
                (REGULAR_ID, Value::Number(id)) => regular.id = id,
                (REGULAR_NAME, Value::Bytes(name)) => regular.name = name,
                (REGULAR_MODE, Value::Number(mode)) => regular.mode = mode,
                _ => {}
            }
        }
        Ok(regular)
    }

    /// Whether its name is in one of these directories, and still belongs to a file of the same type.
    fn is_in(&self, outside: &[(&HostMount, OwnedFd)]) -> bool {
        let path = Path::new(OsStr::from_bytes(self.name));
        let path = path.strip_prefix("/").unwrap_or(path);
        let within = outside.iter().filter(|(directory, _)| path.starts_with(directory.place()));
        let Some((directory, source)) = within.max_by_key(|(directory, _)| directory.key.len()) else {
            return false;
        };
        let Ok(beneath) = path.strip_prefix(directory.place()) else { return false };
        // The directory itself always exists. In other paths no component may be a link.
        let Ok(Some(file)) = (match beneath.as_os_str().is_empty() {
            true => return true,
            false => links::look(source, beneath),
        }) else {
            return false;
        };
        let kind = FileType::from_raw_mode;
        let then = u32::try_from(self.mode).unwrap_or_default();
        fstat(&file).is_ok_and(|now| kind(now.st_mode) == kind(then))
    }
}

/// The record of an open file, without the length and the mode if they may have changed.
fn without_checks(
    file: &[u8],
    may_change: &mut dyn FnMut(&RegularFile<'_>) -> bool,
) -> Result<Message, ProtobufError> {
    let mut written = Message::default();
    let (mut fields, mut start) = (Fields::of(file), 0);
    while let Some(field) = fields.next() {
        let field = field?;
        let end = file.len() - fields.remaining();
        written = match field.value {
            Value::Bytes(regular) if field.number == REGULAR && may_change(&RegularFile::of(regular)?) => {
                written.message(REGULAR, &without(regular, &[REGULAR_SIZE, REGULAR_MODE])?)
            }
            Value::Bytes(_) | Value::Number(_) => written.raw(&file[start..end]),
        };
        start = end;
    }
    Ok(written)
}

fn without(message: &[u8], left_out: &[u32]) -> Result<Message, ProtobufError> {
    let mut written = Message::default();
    let (mut fields, mut start) = (Fields::of(message), 0);
    while let Some(field) = fields.next() {
        let number = field?.number;
        let end = message.len() - fields.remaining();
        if !left_out.contains(&number) {
            written = written.raw(&message[start..end]);
        }
        start = end;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn file(id: u64, name: &[u8], checked: bool) -> Message {
        let regular = Message::default().number(REGULAR_ID, id).number(2, 7).bytes(REGULAR_NAME, name);
        let regular = if checked { regular.number(REGULAR_SIZE, 5) } else { regular };
        let regular = regular.flag(9);
        let regular = if checked { regular.number(REGULAR_MODE, 0o100_644) } else { regular };
        Message::default().number(1, 1).number(2, id).message(REGULAR, &regular.number(12, 3))
    }

    #[test]
    fn only_files_of_volumes_without_needed_contents_may_have_changed() {
        let (images, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["held", "program", "private", "shared"] {
            fs::write(volume.path().join(name), name).unwrap();
        }
        symlink("held", volume.path().join("link")).unwrap();
        fs::create_dir(volume.path().join("directory")).unwrap();
        let rows: [(u64, &[u8], bool); 9] = [
            (1, b"/data/held", false),
            (2, b"/data/program", true),
            (3, b"/data/private", true),
            (4, b"/data/shared", false),
            (5, b"/data/link", true),
            (6, b"/data/directory", true),
            (7, b"/data/removed", true),
            (8, b"/database/held", true),
            (9, b"/held", true),
        ];
        let write = |name: &str, bytes| fs::write(images.path().join(name), bytes).unwrap();
        write(FILES, written(FILES_MAGIC, &rows.map(|(id, name, _)| file(id, name, true))));
        let mapping = |id, flags| Message::default().number(MAPPING_FILE, id).number(MAPPING_FLAGS, flags);
        let memory = Message::default()
            .number(MEMORY_PROGRAM, 2)
            .message(MEMORY_MAPPING, &mapping(3, 2))
            .message(MEMORY_MAPPING, &mapping(4, 1));
        write("mm-1.img", written(MEMORY_MAGIC, &[memory]));
        let outside =
            HostMount { key: "/data".to_owned(), source: volume.path().to_owned(), read_only: false };
        let images = File::open(images.path()).unwrap();
        let (name, replaced) = replacement(images.as_fd(), &[outside]).unwrap().unwrap();
        assert_eq!(name, FILES);
        let expected = written(FILES_MAGIC, &rows.map(|(id, name, checked)| file(id, name, checked)));
        let shown = |bytes: &[u8]| {
            let files = links::entries(bytes, FILES_MAGIC).unwrap();
            files.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(shown(&replaced), shown(&expected));
        assert!(replacement(images.as_fd(), &[]).unwrap().is_none());
    }
}
