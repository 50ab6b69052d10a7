//! CRIU's image files: the kind, then records, each preceded by its length. Used to change single bytes or records.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags, openat};

use super::protobuf::{Message, ProtobufError};

/// The first bytes of every image of this kind.
const MAGIC: u32 = 0x5456_4319;
/// Size of the header before the first record: these bytes, and the number of the kind.
const HEADER_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;

/// An image on disk, read completely.
#[derive(Debug)]
pub(super) struct Image {
    file: File,
    pub(super) bytes: Vec<u8>,
}

impl Image {
    /// `None` if the processes had no state of that kind.
    pub(super) fn open(images: BorrowedFd<'_>, name: &str, bytes_max: u64) -> io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(images, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            file => File::from(file?),
        };
        let length = file.metadata()?.len();
        if length > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some(Self { file, bytes }))
    }

    pub(super) fn set(&self, at: usize, byte: u8) -> io::Result<()> {
        self.file.write_all_at(&[byte], at as u64)
    }

    /// Replaces all records.
    pub(super) fn replace(&self, records: &[&[u8]]) -> io::Result<()> {
        let mut bytes = self.bytes[..HEADER_BYTES.min(self.bytes.len())].to_vec();
        for record in records {
            let length = u32::try_from(record.len()).map_err(io::Error::other)?;
            bytes.extend(length.to_le_bytes());
            bytes.extend(*record);
        }
        self.file.write_all_at(&bytes, 0)?;
        self.file.set_len(bytes.len() as u64)
    }
}

pub(super) fn malformed(error: ProtobufError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The records of an image of a kind, each with its offset.
pub(super) fn records(image: &[u8], kind: u32) -> Result<Vec<(usize, &[u8])>, ProtobufError> {
    if [word(image, 0)?, word(image, LENGTH_BYTES)?] != [MAGIC, kind] {
        return Err(ProtobufError);
    }
    let (mut at, mut found) = (HEADER_BYTES, Vec::new());
    while at < image.len() {
        let length = usize::try_from(word(image, at)?).map_err(|_| ProtobufError)?;
        at += LENGTH_BYTES;
        let record = image.get(at..).and_then(|rest| rest.get(..length)).ok_or(ProtobufError)?;
        found.push((at, record));
        at += length;
    }
    Ok(found)
}

fn word(image: &[u8], at: usize) -> Result<u32, ProtobufError> {
    let bytes = image.get(at..).and_then(<[u8]>::first_chunk).ok_or(ProtobufError)?;
    Ok(u32::from_le_bytes(*bytes))
}

/// An image with these records, in CRIU's format.
pub(super) fn written(kind: u32, records: &[Message]) -> Vec<u8> {
    let mut bytes = [MAGIC, kind].map(u32::to_le_bytes).concat();
    for record in records {
        let length = u32::try_from(record.as_bytes().len()).expect("our records are small");
        bytes.extend(length.to_le_bytes());
        bytes.extend(record.as_bytes());
    }
    bytes
}
