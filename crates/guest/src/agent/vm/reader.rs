//! The first process of a machine that only reads disks: see [`crate::protocol::ReaderRequest`].
//!
//! No other process ever runs in it. The disks were written by sandboxes; a malicious file system can only affect
//! this temporary machine. It ends when its host hangs up.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use burrow_trees::survey::{self, NameChange, Survey};
use burrow_trees::{Root, carry};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::apply::{apply, explained};
use super::failure::{AtStep as _, Failure};
use super::pieces::{PieceStreamReader, PieceStreamWriter};
use super::{channel, init, settle};
use crate::protocol::{BootReport, ReaderRequest};

/// Up to this limit the differences of two disks are reported; the machine has RAM for that.
const SURVEY: survey::Bounds = survey::Bounds { names_max: 400_000, bytes_max: 48 << 20 };

/// The total length of the requested names.
const NAMES_BYTES_MAX: u64 = 64 << 20;

const LINE_BYTES_MAX: u64 = 64 << 10;

/// How often the agent checks whether the host has opened the port.
const HOST_LOOKS: u32 = 60_000;
const HOST_LOOK_EVERY: Duration = Duration::from_millis(2);

struct Disk {
    place: PathBuf,
    writable: bool,
}

/// Serves until the host hangs up or sends an invalid request.
pub(super) fn run() -> Result<(), Failure> {
    init::prepare_bare()?;
    let port = open_port()?;
    let mut out = port.try_clone().at("share the port to the host")?;
    let mut input = BufReader::with_capacity(64 << 10, port);
    let mut disks = Vec::new();
    await_host(&mut input)?;
    loop {
        let mut line = Vec::new();
        (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).at("read from the host")?;
        let Ok(request) = serde_json::from_slice(&line) else { break };
        let mut pieces = PieceStreamWriter::new(&mut out);
        let done = serve(&request, &mut disks, &mut input, &mut pieces);
        pieces.end(done.is_ok()).at("answer")?;
        let report = done.map_or_else(Failure::report, |()| BootReport::Ready);
        let text = serde_json::to_vec(&report).unwrap_or_default();
        let length = u32::try_from(text.len()).unwrap_or(0);
        out.write_all(&length.to_le_bytes()).and_then(|()| out.write_all(&text)).at("answer")?;
    }
    // Changes are on disk already; unmounting marks the file systems as clean.
    for disk in &disks {
        let _ = unmount(&disk.place, UnmountFlags::empty());
    }
    Ok(())
}

fn serve(
    request: &ReaderRequest,
    disks: &mut Vec<Disk>,
    input: &mut dyn Read,
    out: &mut PieceStreamWriter<&mut File>,
) -> Result<(), Failure> {
    match request {
        ReaderRequest::Open { unix_ns, disks: count, writable } => {
            settle::set_clock(*unix_ns)?;
            for number in 0..*count {
                disks.push(open_disk(number, writable.contains(&number))?);
            }
            Ok(())
        }
        ReaderRequest::Changes { old, new } => {
            let (old, new) = (root(disks, *old)?, root(disks, *new)?);
            let survey = survey::survey(&old, &new, SURVEY)
                .map_err(|error| Failure::new("compare the disks", &explained(&error)))?;
            tell(&survey, out).at("answer")
        }
        ReaderRequest::Copy { disk, whole } => {
            let mut stream = PieceStreamReader::new(input);
            let names = take_names(&mut stream).at("read the names");
            stream.drain().at("read the names")?;
            let (mut names, root) = (names?, root(disks, *disk)?);
            if *whole {
                let all = survey::whole(&root, SURVEY)
                    .map_err(|error| Failure::new("list the disk", &explained(&error)))?;
                if all.more {
                    return Err(Failure::new("list the disk", "it holds too many files"));
                }
                names = all.found.into_keys().chain([b"/".to_vec()]).collect();
            }
            carry::send(&root, &names, out).map_err(|error| Failure::new("read the disk", &explained(&error)))
        }
        ReaderRequest::Apply { disk } => {
            let mut stream = PieceStreamReader::new(input);
            let done = match disks.get(usize::from(*disk)) {
                Some(disk) if disk.writable => apply(&disk.place, &mut stream),
                Some(_) => Err(Failure::new("change the disk", "it is read-only")),
                None => Err(no_disk(*disk)),
            };
            stream.drain().at("read the changes")?;
            done
        }
    }
}

fn tell(survey: &Survey, out: &mut dyn io::Write) -> io::Result<()> {
    for (path, became) in &survey.found {
        let letter = match became {
            NameChange::Added => b'+',
            NameChange::Changed => b'~',
            NameChange::Deleted => b'-',
        };
        out.write_all(&[letter])?;
        out.write_all(&u32::try_from(path.len()).map_err(io::Error::other)?.to_le_bytes())?;
        out.write_all(path)?;
    }
    out.write_all(if survey.more { b"m" } else { b"e" })
}

fn take_names(stream: &mut PieceStreamReader<'_>) -> io::Result<BTreeSet<Vec<u8>>> {
    let mut stream = stream.take(NAMES_BYTES_MAX);
    let mut names = BTreeSet::new();
    loop {
        let mut length = [0; 4];
        if stream.read(&mut length[..1])? == 0 {
            return Ok(names);
        }
        stream.read_exact(&mut length[1..])?;
        let mut name = Vec::new();
        let length = u64::from(u32::from_le_bytes(length));
        (&mut stream).take(length).read_to_end(&mut name)?;
        names.insert(name);
    }
}

fn root(disks: &[Disk], number: u8) -> Result<Root, Failure> {
    let disk = disks.get(usize::from(number)).ok_or_else(|| no_disk(number))?;
    Root::open(&disk.place).map_err(|error| Failure::new("open the disk", &explained(&error)))
}

fn no_disk(number: u8) -> Failure {
    Failure::new("open the disk", &format!("there is no disk {number}"))
}

/// Mounts the disk with this number. A journal is replayed first: the device is a copy and may be written to, even if
/// the file system is mounted read-only.
fn open_disk(number: u8, writable: bool) -> Result<Disk, Failure> {
    let wanted = format!("disk{number}");
    let device = init::await_device(|| device_of(&wanted));
    let device = device.ok_or_else(|| no_disk(number))?;
    let place = Path::new("/disks").join(number.to_string());
    fs::create_dir_all(&place).at("create the mount point of the disk")?;
    let harmless = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    let flags = if writable { harmless } else { harmless | MountFlags::RDONLY };
    mount(&device, &place, "ext4", flags, None).at("mount the disk")?;
    Ok(Disk { place, writable })
}

/// The device with this serial number.
fn device_of(serial: &str) -> Option<PathBuf> {
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let found = fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
        let device = Path::new("/dev").join(entry.file_name());
        if found.trim() == serial && device.exists() {
            return Some(device);
        }
    }
    None
}

fn open_port() -> Result<File, Failure> {
    let name = init::await_device(channel::find_port);
    let name = name.ok_or_else(|| Failure::new("find the port to the host", "there is none"))?;
    let path = format!("/dev/{name}");
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let port = init::await_device(|| rustix::fs::open(&path, flags, Mode::empty()).ok());
    port.map(File::from).ok_or(io::ErrorKind::NotFound).at("open the port to the host")
}

/// Waits until the host has opened the port; until then, reading it returns end-of-file.
fn await_host(input: &mut BufReader<File>) -> Result<(), Failure> {
    for _ in 0..HOST_LOOKS {
        if !input.fill_buf().at("read from the host")?.is_empty() {
            return Ok(());
        }
        std::thread::sleep(HOST_LOOK_EVERY);
    }
    Err(Failure::new("wait for the host", "it did not open the port in time"))
}
