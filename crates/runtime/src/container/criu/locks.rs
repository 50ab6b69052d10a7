//! The POSIX locks that CRIU recorded, so that they can be set again after a restore.
//!
//! CRIU sets a process's locks before it maps its files. Closing the descriptors by which it mapped them drops, as
//! POSIX requires, every lock of that process on those files. SQLite in WAL mode has such locks on a file that it has
//! mapped, and if they are missing, another process may reset its index. So all locks are set again at the end of a
//! restore; locks that still exist are not changed by that.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, openat};

use super::protobuf::{Fields, ProtobufError, Value};

/// Sixteen thousand locks are two hundred thousand bytes; a larger image is an attack.
const IMAGE_BYTES_MAX: u64 = 4 << 20;

const COMMON_MAGIC: u32 = 0x5456_4319;
const LOCKS_MAGIC: u32 = 0x5432_3616;

/// `FL_POSIX` in CRIU's images; the other kinds belong to open files rather than processes, and are not lost.
const POSIX: u64 = 1;

/// A lock of one process on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    /// The pid inside the machine.
    pub inner_pid: u32,
    /// A descriptor of that process.
    pub descriptor: i32,
    /// `F_RDLCK` or `F_WRLCK`.
    pub kind: i16,
    pub start: i64,
    /// Zero: to the end of the file, even if it grows.
    pub length: i64,
}

/// Reads the locks of a dump; empty if it has none.
pub(super) fn read(images: BorrowedFd<'_>) -> io::Result<Vec<Lock>> {
    let file = match openat(
        images,
        "filelocks.img",
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    file.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    parse(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn parse(image: &[u8]) -> Result<Vec<Lock>, ProtobufError> {
    if image.is_empty() {
        return Ok(Vec::new());
    }
    let mut rest = image;
    for magic in [COMMON_MAGIC, LOCKS_MAGIC] {
        if number(&mut rest)? != magic {
            return Err(ProtobufError);
        }
    }
    let mut locks = Vec::new();
    while !rest.is_empty() {
        let length = number(&mut rest)?;
        let length = usize::try_from(length).map_err(|_| ProtobufError)?;
        let (entry, after) = rest.split_at_checked(length).ok_or(ProtobufError)?;
        rest = after;
        locks.extend(lock(entry)?);
    }
    Ok(locks)
}

fn number(rest: &mut &[u8]) -> Result<u32, ProtobufError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(ProtobufError)?;
    *rest = after;
    Ok(u32::from_le_bytes(*bytes))
}

/// One entry; `None` for a lock of another kind.
fn lock(entry: &[u8]) -> Result<Option<Lock>, ProtobufError> {
    let mut values = [0_u64; 7];
    for field in Fields::of(entry) {
        let field = field?;
        if let (Some(slot), Value::Number(number)) = (values.get_mut(field.number as usize), field.value) {
            *slot = number;
        }
    }
    let [_, flag, kind, pid, descriptor, start, length] = values;
    if flag & POSIX == 0 {
        return Ok(None);
    }
    Ok(Some(Lock {
        inner_pid: u32::try_from(pid).map_err(|_| ProtobufError)?,
        descriptor: i32::try_from(descriptor).map_err(|_| ProtobufError)?,
        kind: i16::try_from(kind).map_err(|_| ProtobufError)?,
        start: start.cast_signed(),
        length: length.cast_signed(),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::Message;
    use super::*;

    fn image(entries: &[[u64; 6]]) -> Vec<u8> {
        let mut bytes = [COMMON_MAGIC.to_le_bytes(), LOCKS_MAGIC.to_le_bytes()].concat();
        for entry in entries {
            let fields = entry.iter().zip(1..);
            let message =
                fields.fold(Message::default(), |message, (value, field)| message.number(field, *value));
            bytes.extend(u32::try_from(message.as_bytes().len()).unwrap().to_le_bytes());
            bytes.extend(message.as_bytes());
        }
        bytes
    }

    #[test]
    fn posix_locks_are_read_and_other_kinds_ignored() {
        let bytes = image(&[[1, 0, 17, 5, 128, 1], [2, 1, 17, 6, 0, 0], [1, 1, 18, 3, 0, 0]]);
        let expected = [
            Lock { inner_pid: 17, descriptor: 5, kind: 0, start: 128, length: 1 },
            Lock { inner_pid: 18, descriptor: 3, kind: 1, start: 0, length: 0 },
        ];
        assert_eq!(parse(&bytes).unwrap(), expected);
        assert_eq!(parse(&[]).unwrap(), []);
    }

    #[test]
    fn a_truncated_image_is_rejected() {
        let bytes = image(&[[1, 0, 17, 5, 128, 1]]);
        for length in 1..bytes.len() {
            // An image that was truncated exactly between entries looks complete.
            assert!(length == 8 || parse(&bytes[..length]).is_err(), "{length}");
        }
    }
}
