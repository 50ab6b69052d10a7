//! The kinds of state in a dump: open files, sockets with their states, memory.
//!
//! CRIU refuses some kinds only at a restore, when the processes no longer exist. A kind that has been restored on this
//! host before is not expected to fail; a new kind is a reason for a trial. Two objects are of one kind if CRIU handles
//! both by the same code, as far as the images show: names of files do not matter, except in `/proc` and `/sys`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::Dir;

use super::fault_origin::{bytes, number};
use super::links::{FILES, FILES_MAGIC, entries, read};
use super::protobuf::{Fields, ProtobufError, Value};

/// Of an open file: its type, and the fields of the types that are distinguished further.
const FILE_TYPE: u32 = 1;
const REGULAR: u32 = 3;
const INTERNET_SOCKET: u32 = 4;
const UNIX_SOCKET: u32 = 16;

const REGULAR_FLAGS: u32 = 2;
const REGULAR_NAME: u32 = 6;
/// Of an internet socket: type, protocol, state. Of a Unix socket: type and state; whether it has a peer.
const INTERNET: [u32; 3] = [4, 5, 6];
const UNIX: [u32; 2] = [3, 4];
const UNIX_PEER: u32 = 8;

/// `O_PATH | O_TMPFILE | O_DIRECTORY | O_APPEND`, and whether it was opened for writing, with the numbers of x86_64.
/// Other flags do not change how a file is opened again.
const FLAGS_THAT_MATTER: u64 = 0o10_000_000 | 0o20_200_000 | 0o2_000 | 0o3;

const CONNECTION_MAGIC: u32 = 0x5146_5506;
/// Of a connection: bytes received and not read, bytes in the send queue, and those of them that were never sent.
const QUEUES: [u32; 3] = [1, 3, 12];
/// Of an internet socket: its inode, which is in the name of its connection's image, and its state.
const INTERNET_INODE: u32 = 2;
const INTERNET_STATE: u32 = 6;

const TREE_MAGIC: u32 = 0x5027_3030;
/// Of a process: its id, and those of its process group and its session.
const PROCESS: u32 = 1;
const GROUP: u32 = 3;
const SESSION: u32 = 4;

const CORE_MAGIC: u32 = 0x5505_3847;
/// Of a process: its record; of that, whether it runs, is a zombie or stopped.
const TASK: u32 = 3;
const TASK_STATE: u32 = 2;

const MEMORY_MAGIC: u32 = 0x5749_2820;
/// Of a process's memory: its areas; of an area: its flags, and CRIU's status.
const AREAS: u32 = 14;
const AREA_FLAGS: u32 = 6;
const AREA_STATUS: u32 = 7;
/// `MAP_SHARED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_HUGETLB`.
const AREA_FLAGS_THAT_MATTER: u64 = 0x4_0123;

/// The kinds in a dump, each as a short text. An image that cannot be parsed, as of a newer CRIU, is a separate kind.
pub(crate) fn kinds(images: BorrowedFd<'_>) -> io::Result<BTreeSet<String>> {
    let mut kinds = BTreeSet::new();
    // How a connection is restored depends on both its queues and its state, which is in another image.
    let states = states_of(&read(images, FILES)?).unwrap_or_default();
    for entry in Dir::read_from(images)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".img") else { continue };
        let kind = without_id(stem);
        kinds.insert(kind.to_owned());
        let found = match kind {
            "files" => files(&read(images, &name)?),
            "mm" => memory(&read(images, &name)?),
            "tcp-stream" => connection(&read(images, &name)?, state_of(&states, stem)),
            "pstree" => tree(&read(images, &name)?),
            "core" => task(&read(images, &name)?),
            _ => continue,
        };
        match found {
            Ok(found) => kinds.extend(found),
            Err(ProtobufError) => drop(kinds.insert(format!("{kind} of another format"))),
        }
    }
    Ok(kinds)
}

fn files(image: &[u8]) -> Result<Vec<String>, ProtobufError> {
    Ok(entries(image, FILES_MAGIC)?.into_iter().map(kind_of).collect())
}

fn memory(image: &[u8]) -> Result<Vec<String>, ProtobufError> {
    Ok(entries(image, MEMORY_MAGIC)?.into_iter().flat_map(areas).collect())
}

/// The state of each internet socket, by its inode.
fn states_of(image: &[u8]) -> Result<BTreeMap<u64, u64>, ProtobufError> {
    let sockets = entries(image, FILES_MAGIC)?.into_iter().filter_map(|file| bytes(file, INTERNET_SOCKET));
    let states =
        sockets.filter_map(|socket| Some((number(socket, INTERNET_INODE)?, number(socket, INTERNET_STATE)?)));
    Ok(states.collect())
}

/// The state of the connection with an image of this name.
fn state_of(states: &BTreeMap<u64, u64>, stem: &str) -> Option<u64> {
    let (_, inode) = stem.rsplit_once('-')?;
    states.get(&u64::from_str_radix(inode, 16).ok()?).copied()
}

/// Processes whose session or process group has no leader any more.
fn tree(image: &[u8]) -> Result<Vec<String>, ProtobufError> {
    let processes = entries(image, TREE_MAGIC)?;
    let ids: BTreeSet<u64> = processes.iter().filter_map(|process| number(process, PROCESS)).collect();
    let is_gone = |process: &[u8], field| number(process, field).is_some_and(|leader| !ids.contains(&leader));
    let describe = |(field, kind): (u32, &str)| {
        let found = processes.iter().any(|process| is_gone(process, field));
        found.then(|| format!("process whose {kind} leader has ended"))
    };
    Ok([(SESSION, "session"), (GROUP, "process group")].into_iter().filter_map(describe).collect())
}

/// The state of a process, or nothing for a thread.
fn task(image: &[u8]) -> Result<Vec<String>, ProtobufError> {
    let cores = entries(image, CORE_MAGIC)?;
    let states = cores.into_iter().filter_map(|core| number(bytes(core, TASK)?, TASK_STATE));
    Ok(states.map(|state| format!("process in state {state}")).collect())
}

/// The record of a connection is followed by the contents of its queues.
fn connection(image: &[u8], state: Option<u64>) -> Result<Vec<String>, ProtobufError> {
    let length = image.get(8..).and_then(<[u8]>::first_chunk).ok_or(ProtobufError)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| ProtobufError)?;
    let image = 12usize.checked_add(length).and_then(|end| image.get(..end)).ok_or(ProtobufError)?;
    let describe = |record: &[u8]| {
        let waiting = QUEUES.map(|field| number(record, field).is_some_and(|bytes| bytes > 0));
        let state = state.map_or_else(|| "unknown".to_owned(), |state| state.to_string());
        let [received, queued, unsent] = waiting;
        format!("connection in state {state}, received {received}, queued {queued}, unsent {unsent}")
    };
    Ok(entries(image, CONNECTION_MAGIC)?.into_iter().map(describe).collect())
}

fn areas(memory: &[u8]) -> impl Iterator<Item = String> + use<'_> {
    let areas = Fields::of(memory).filter_map(Result::ok).filter(|field| field.number == AREAS);
    areas.filter_map(|field| match field.value {
        Value::Bytes(area) => {
            let (flags, status) = (number(area, AREA_FLAGS)?, number(area, AREA_STATUS)?);
            Some(format!("memory {status:#x}, flags {:#x}", flags & AREA_FLAGS_THAT_MATTER))
        }
        Value::Number(_) => None,
    })
}

fn kind_of(file: &[u8]) -> String {
    let part = |of: &[u8], field| number(of, field).unwrap_or_default();
    if let Some(regular) = bytes(file, REGULAR) {
        let name = String::from_utf8_lossy(bytes(regular, REGULAR_NAME).unwrap_or_default()).into_owned();
        let flags = part(regular, REGULAR_FLAGS) & FLAGS_THAT_MATTER;
        let name = name.trim_end_matches('\0');
        return match name.starts_with("/proc") || name.starts_with("/sys") {
            true => format!("file {flags:#o} {}", without_numbers(name)),
            false => format!("file {flags:#o}"),
        };
    }
    if let Some(socket) = bytes(file, INTERNET_SOCKET) {
        let [kind, protocol, state] = INTERNET.map(|field| part(socket, field));
        return format!("internet socket {kind}, protocol {protocol}, state {state}");
    }
    if let Some(socket) = bytes(file, UNIX_SOCKET) {
        let [kind, state] = UNIX.map(|field| part(socket, field));
        return format!("Unix socket {kind}, state {state}, peer {}", part(socket, UNIX_PEER) != 0);
    }
    format!("type {}", part(file, FILE_TYPE))
}

/// The name of an image without the number of its object, which may be hexadecimal, and without the extension of an archive,
/// as in `tmpfs-dev-207.tar.gz`.
fn without_id(stem: &str) -> &str {
    let stem = stem.split('.').next().unwrap_or(stem);
    match stem.rsplit_once('-') {
        Some((kind, id)) if id.bytes().all(|b| b.is_ascii_hexdigit()) => kind,
        Some(_) | None => stem,
    }
}

/// The text with `N` for each run of digits.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if !character.is_ascii_digit() {
            out.push(character);
        } else if !out.ends_with('N') {
            out.push('N');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use super::super::image::written;
    use super::super::protobuf::Message;
    use super::*;

    #[test]
    fn kinds_depend_on_types_and_states_and_not_on_names() {
        let images = tempfile::tempdir().unwrap();
        let write = |name: &str, kind, records: &[Message]| {
            fs::write(images.path().join(name), written(kind, records)).unwrap();
        };
        let file = |field, of: Message| Message::default().number(FILE_TYPE, 1).message(field, &of);
        let regular = |name: &[u8]| {
            file(REGULAR, Message::default().number(REGULAR_FLAGS, 0o1).bytes(REGULAR_NAME, name))
        };
        let socket = Message::default().number(2, 0x8c).number(4, 1).number(5, 6).number(6, 1);
        let files = [
            regular(b"/srv/a"),
            regular(b"/srv/b"),
            regular(b"/proc/17/task/18/schedstat"),
            file(INTERNET_SOCKET, socket),
            file(UNIX_SOCKET, Message::default().number(3, 1).number(4, 10)),
            Message::default().number(FILE_TYPE, 17),
        ];
        write(FILES, FILES_MAGIC, &files);
        let mut connection =
            written(CONNECTION_MAGIC, &[Message::default().number(1, 0).number(3, 9).number(12, 4)]);
        connection.extend(b"sent this");
        fs::write(images.path().join("tcp-stream-8c.img"), connection).unwrap();
        fs::write(images.path().join("mm-18.img"), "of the future").unwrap();
        // The number of a file system is another one for every machine.
        fs::write(images.path().join("tmpfs-dev-207.tar.gz.img"), "an archive").unwrap();
        let area = Message::default().number(AREA_FLAGS, 0x22).number(AREA_STATUS, 0x201);
        write("mm-17.img", MEMORY_MAGIC, &[Message::default().number(1, 5).message(AREAS, &area)]);
        let process =
            |id, session| Message::default().number(1, id).number(2, 0).number(3, 1).number(4, session);
        write("pstree.img", TREE_MAGIC, &[process(1, 1), process(17, 9)]);
        let task = Message::default().number(1, 0).number(TASK_STATE, 3);
        write("core-17.img", CORE_MAGIC, &[Message::default().number(1, 1).message(TASK, &task)]);
        fs::write(images.path().join("stats-dump"), "no image").unwrap();
        let found = kinds(File::open(images.path()).unwrap().as_fd()).unwrap();
        let expected = [
            "Unix socket 1, state 10, peer false",
            "connection in state 1, received false, queued true, unsent true",
            "core",
            "file 0o1",
            "file 0o1 /proc/N/task/N/schedstat",
            "files",
            "internet socket 1, protocol 6, state 1",
            "memory 0x201, flags 0x22",
            "mm",
            "mm of another format",
            "process in state 3",
            "process whose session leader has ended",
            "pstree",
            "tcp-stream",
            "tmpfs-dev",
            "type 17",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
