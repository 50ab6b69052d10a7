//! Names the process, and the descriptor, at which a restore failed.
//!
//! A line of CRIU's log starts with the pid of the process that wrote it, and names a file as the images do: by its
//! path, or by the id or the inode of sockets, pipes and similar objects. The images show which program that process
//! ran, and which of its descriptors had that file open. If the first error names no file, a later one of the same
//! process often does.

use std::os::fd::BorrowedFd;

use super::links::{FILES, FILES_MAGIC, entries, read};
use super::protobuf::{Fields, Value};

const CORE_MAGIC: u32 = 0x5505_3847;
/// Of a process: its task record, and in it the name.
const CORE_TASK: u32 = 3;
const TASK_NAME: u32 = 6;

const IDS_MAGIC: u32 = 0x5443_2030;
/// Of the ids that a process may share with others: the id of its descriptor table.
const IDS_FILES: u32 = 2;

const DESCRIPTORS_MAGIC: u32 = 0x5621_3732;
/// Of a descriptor: the open file, and its number.
const DESCRIPTOR_FILE: u32 = 1;
const DESCRIPTOR_NUMBER: u32 = 4;

/// Of an open file: its id, and for each kind with a name, the field of the kind and the field of the name in it.
const FILE_ID: u32 = 2;
const NAMED_KINDS: [(u32, u32); 2] = [(3, 6), (16, 11)];

/// Of a socket or a pipe: its inode, for the kinds that store it.
const INODE_KINDS: [u32; 4] = [4, 7, 16, 18];
const INODE: u32 = 2;

/// Texts before the id of an open file, and before an inode.
const BEFORE_ID: [&str; 4] = [" id ", "(id ", "id=", "fsnotify: Can't create inotify for "];
const BEFORE_INODE: [&str; 2] = [" ino ", "(ino "];
/// CRIU prints the ids of TCP connections in hexadecimal without a prefix.
const HEXADECIMAL: &str = "tcp: ";
/// Printed after the cause, for a file of any kind; the descriptor follows.
const NOT_OPENED: &str = "Unable to open fd=";

/// The origin of the error in a line of the log: "process 7 (`sleep`), descriptor 3". `None` if it is unknown.
pub(super) fn name(images: BorrowedFd<'_>, log: &str, line: &str) -> Option<String> {
    line.contains(": Error (").then_some(())?;
    let pid = pid_of(line)?;
    let (program, table) = process(images, pid)?;
    let later = || log.lines().filter(|line| pid_of(line) == Some(pid)).find_map(not_opened);
    let descriptor = table.and_then(|table| descriptor(images, table, line)).or_else(later);
    Some(match descriptor {
        Some(descriptor) => format!("process {pid} (`{program}`), descriptor {descriptor}"),
        None => format!("process {pid} (`{program}`)"),
    })
}

/// The last process that wrote to the log: "process 7 (`sleep`)".
pub(super) fn last(images: BorrowedFd<'_>, log: &str) -> Option<String> {
    let pid = log.lines().rev().find_map(pid_of)?;
    let (program, _) = process(images, pid)?;
    Some(format!("process {pid} (`{program}`)"))
}

/// The program of a process, and the id of its descriptor table.
fn process(images: BorrowedFd<'_>, pid: u32) -> Option<(String, Option<u64>)> {
    let (core, ids) = (read(images, &format!("core-{pid}.img")), read(images, &format!("ids-{pid}.img")));
    let (core, ids) = (core.ok()?, ids.ok()?);
    let core = *entries(&core, CORE_MAGIC).ok()?.first()?;
    let program = bytes(core, CORE_TASK).and_then(|task| bytes(task, TASK_NAME));
    let program = String::from_utf8_lossy(program.unwrap_or_default()).into_owned();
    let ids = entries(&ids, IDS_MAGIC).ok()?;
    let table = ids.first().and_then(|ids| number(ids, IDS_FILES));
    Some((program, table))
}

/// The pid at the start of a line, after its time if it has one: `(00.01)  7: Error (criu/x.c:9): why`.
fn pid_of(line: &str) -> Option<u32> {
    let after_time = line.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (pid, _) = after_time.map_or(line, |(_, rest)| rest).split_once(": ")?;
    pid.trim().parse().ok()
}

/// The descriptor that could not be opened, according to a line.
fn not_opened(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(NOT_OPENED)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The descriptor whose file the line names; of several such files, the one with the longest name.
fn descriptor(images: BorrowedFd<'_>, table: u64, line: &str) -> Option<u64> {
    let (files, table) = (read(images, FILES).ok()?, read(images, &format!("fdinfo-{table}.img")).ok()?);
    let (files, table) = (entries(&files, FILES_MAGIC).ok()?, entries(&table, DESCRIPTORS_MAGIC).ok()?);
    let file = |id| files.iter().find(|file| number(file, FILE_ID) == Some(id)).copied();
    let named = |entry: &&[u8]| {
        let name = name_of(file(number(entry, DESCRIPTOR_FILE)?)?)?;
        (!name.is_empty() && line.contains(name.as_str())).then_some(name.len())
    };
    let by_name =
        table.iter().filter_map(|entry| Some((named(entry)?, entry))).max_by_key(|(length, _)| *length);
    let (id, inode) = (number_after(line, &BEFORE_ID), number_after(line, &BEFORE_INODE));
    let numbered = |entry: &&&[u8]| {
        let found = number(entry, DESCRIPTOR_FILE);
        found.is_some()
            && (found == id || inode.is_some() && found.and_then(file).and_then(inode_of) == inode)
    };
    let entry = by_name.map(|(_, entry)| entry).or_else(|| table.iter().find(numbered))?;
    number(entry, DESCRIPTOR_NUMBER)
}

/// The number after the first of these texts.
fn number_after(line: &str, before: &[&str]) -> Option<u64> {
    let rest = before.iter().find_map(|before| Some(line.split_once(before)?.1))?.trim_start();
    let (digits, radix) = match rest.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if line.contains(HEXADECIMAL) => (rest, 16),
        None => (rest, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).ok()
}

fn inode_of(file: &[u8]) -> Option<u64> {
    INODE_KINDS.iter().find_map(|kind| number(bytes(file, *kind)?, INODE))
}

/// The name of an open file as CRIU prints it: without the first slash.
fn name_of(file: &[u8]) -> Option<String> {
    let name = NAMED_KINDS.iter().find_map(|(kind, name)| bytes(bytes(file, *kind)?, *name))?;
    Some(String::from_utf8_lossy(name).trim_matches(['\0', '/']).to_owned())
}

fn value(message: &[u8], number: u32) -> Option<Value<'_>> {
    Fields::of(message).filter_map(Result::ok).find(|field| field.number == number).map(|field| field.value)
}

pub(super) fn bytes(message: &[u8], number: u32) -> Option<&[u8]> {
    match value(message, number)? {
        Value::Bytes(bytes) => Some(bytes),
        Value::Number(_) => None,
    }
}

pub(super) fn number(message: &[u8], number: u32) -> Option<u64> {
    match value(message, number)? {
        Value::Number(number) => Some(number),
        Value::Bytes(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;

    use super::super::image::written;
    use super::super::protobuf::Message;
    use super::*;

    #[test]
    fn the_process_and_the_descriptor_of_an_error_are_named() {
        let images = tempfile::tempdir().unwrap();
        let write = |name: &str, kind, records: &[Message]| {
            fs::write(images.path().join(name), written(kind, records)).unwrap();
        };
        let task = Message::default().bytes(TASK_NAME, b"python3");
        write("core-17.img", CORE_MAGIC, &[Message::default().message(CORE_TASK, &task)]);
        write("ids-17.img", IDS_MAGIC, &[Message::default().number(IDS_FILES, 4)]);
        let file = |id, name: &[u8]| {
            Message::default().number(FILE_ID, id).message(3, &Message::default().bytes(6, name))
        };
        let other = |id, kind, inode| {
            let inner = Message::default().number(1, id).number(INODE, inode);
            Message::default().number(FILE_ID, id).message(kind, &inner)
        };
        let files = [
            file(1, b"/srv/log"),
            file(2, b"/srv/log.1"),
            file(3, b"/srv/other"),
            other(10, 4, 300),
            other(11, 13, 1),
            other(12, 18, 77),
        ];
        write(FILES, FILES_MAGIC, &files);
        let descriptor =
            |file, number| Message::default().number(DESCRIPTOR_FILE, file).number(DESCRIPTOR_NUMBER, number);
        write(
            "fdinfo-4.img",
            DESCRIPTORS_MAGIC,
            &[(1, 5), (2, 6), (3, 7), (10, 8), (11, 9), (12, 10)]
                .map(|(file, number)| descriptor(file, number)),
        );
        let images = File::open(images.path()).unwrap();
        let named = |line: &str| name(images.as_fd(), line, line);
        let with = |number| Some(format!("process 17 (`python3`), descriptor {number}"));
        assert_eq!(named("(00.04)     17: Error (criu/x.c:9): File srv/log has bad size"), with(5));
        assert_eq!(named("(00.04)     17: Error (criu/x.c:9): File srv/log.1 has bad size"), with(6));
        for (line, descriptor) in [
            ("inet: Can't bind inet socket (id 10): Address already in use", 8),
            ("tcp: Unable to shutdown the socket id a ino ffff: Broken pipe", 8),
            ("x: Can't do it (ino 300): why", 8),
            ("fsnotify: Can't create inotify for 0x00000b: why", 9),
            ("Can't open the pipe id 0xc: why", 10),
        ] {
            assert_eq!(
                named(&format!("(00.04)     17: Error (criu/x.c:9): {line}")),
                with(descriptor),
                "{line}"
            );
        }
        assert_eq!(named("    17: Error (criu/x.c:9): File srv/log has bad size"), with(5));
        assert_eq!(named("Error (criu/x.c:9): File srv/log has bad size"), None);
        let process = Some("process 17 (`python3`)".to_owned());
        let cause = "(00.04)     17: Error (criu/x.c:9): Can't map";
        assert_eq!(named(cause), process);
        let echo = |pid: u32| {
            let log =
                format!("{cause}\n(00.05)     {pid}: Error (criu/files.c:9): Unable to open fd=12 id=0x7\n");
            name(images.as_fd(), &log, cause)
        };
        assert_eq!((echo(17), echo(1)), (with(12), process.clone()));
        let log = format!("{cause}\n(00.05) Warn  (criu/x.c:9): x\n(00.06) Error (criu/x.c:9): y: z\n");
        assert_eq!(last(images.as_fd(), &log), process);
        assert_eq!(last(images.as_fd(), "(00.05) Warn  (criu/x.c:9): x\n"), None);
        assert_eq!(named("(00.04) Error (criu/x.c:9): File srv/log has bad size"), None);
        assert_eq!(named("(00.04)     18: Error (criu/x.c:9): File srv/log has bad size"), None);
    }
}
