//! The spool: files in which an unprivileged process records events durably, and from which the daemon reads them.
//!
//! ```text
//!  segment  ::= header frame*
//!  header   ::= "BSPOOL1\n"  mark (8, little endian)  !mark (8)  seed (8, random)
//!  frame    ::= length (4)   body (an event as JSON)  check (8)
//!  check     =  XXH3-64 over the 8 bytes before the frame, the length and the body
//! ```
//!
//! The daemon creates a segment ([`Segment::create`]) and passes its descriptor; the process opens no file. The 8
//! bytes before a frame are the check of the previous frame, or the seed. A frame is therefore valid only after the
//! exact frame that it was written after, and leftovers of a failed write are never read as events. The mark is the
//! length of the file that is known to be durable and acknowledged; it is written after each sync. A reader of a
//! segment in use stops there. A reader of a segment without a writer continues to the last complete frame.
//!
//! The check detects torn writes. It does not protect against deliberate changes of the file; the tree does, once it
//! contains the event.

mod frames;
mod reader;
mod writer;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use crate::EVENT_BYTES_MAX;

pub(crate) use frames::Frames;
pub use reader::{ReadError, Reader, SegmentPart};
pub use writer::{SpoolError, Writer};

/// Largest size of a segment. A full segment accepts no events until it is replaced, so a process without a daemon
/// cannot fill the disk. Some 125,000 events.
pub const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

const MAGIC: [u8; 8] = *b"BSPOOL1\n";
/// The position of the mark.
const MARK: u64 = 8;
/// The position of the first frame.
const FIRST: u64 = 32;
const LENGTH: usize = 4;
const CHECK: usize = 8;

/// A new segment, opened by the daemon.
#[derive(Debug)]
pub struct Segment {
    pub number: u64,
    pub path: PathBuf,
    pub file: OwnedFd,
}

impl Segment {
    /// Creates segment `number` in `folder`, durably: file and name. Fails if it exists.
    pub fn create(folder: &Path, number: u64) -> io::Result<Self> {
        let path = Self::path(folder, number);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        let made = begin(&file).and_then(|()| File::open(folder)?.sync_all());
        if let Err(error) = made {
            // An incomplete segment would make the next attempt fail.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self { number, path, file: file.into() })
    }

    pub fn path(folder: &Path, number: u64) -> PathBuf {
        folder.join(format!("{number:016x}.spool"))
    }

    /// The segments in `folder`, oldest first.
    pub fn list(folder: &Path) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".spool"));
            numbers.extend(number.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

fn begin(file: &File) -> io::Result<()> {
    let mut seed = [0; CHECK];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let mut header = MAGIC.to_vec();
    header.extend(mark_bytes(FIRST));
    header.extend(seed);
    write_all_at(file, &header, 0)?;
    file.sync_all()
}

fn mark_bytes(mark: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mark.to_le_bytes());
    bytes[8..].copy_from_slice(&(!mark).to_le_bytes());
    bytes
}

fn mark_of(bytes: [u8; 16]) -> Option<u64> {
    let (mark, inverse) = bytes.split_at(8);
    let number = |half: &[u8]| half.try_into().map(u64::from_le_bytes).ok();
    number(mark).filter(|mark| number(inverse) == Some(!*mark))
}

/// Encodes a frame of `body` that follows a frame with the check `before`.
fn frame(before: [u8; CHECK], body: &[u8], into: &mut Vec<u8>) -> [u8; CHECK] {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let check = check(before, length, body);
    into.extend(length);
    into.extend(body);
    into.extend(check);
    check
}

fn check(before: [u8; CHECK], length: [u8; LENGTH], body: &[u8]) -> [u8; CHECK] {
    let mut bytes = Vec::with_capacity(CHECK + LENGTH + body.len());
    bytes.extend(before);
    bytes.extend(length);
    bytes.extend(body);
    let hash = XxHash3_128::oneshot(&bytes).to_le_bytes();
    let mut check = [0; CHECK];
    check.copy_from_slice(&hash[..CHECK]);
    check
}

/// Parses the frame at the start of `bytes`: its body, its check, its total length; `None` if it is incomplete or
/// invalid.
fn parse(before: [u8; CHECK], bytes: &[u8]) -> Option<(&[u8], [u8; CHECK], usize)> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    let size = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if size == 0 || size > EVENT_BYTES_MAX {
        return None;
    }
    let (body, rest) = rest.split_at_checked(size)?;
    let (found, _) = rest.split_first_chunk::<CHECK>()?;
    (*found == check(before, *length, body)).then_some((body, *found, LENGTH + size + CHECK))
}

fn write_all_at(file: impl AsFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(&file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                at += count as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads until `bytes` is full or the file ends; returns the number of bytes.
fn read_at(file: impl AsFd, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[count..], at + count as u64) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}
