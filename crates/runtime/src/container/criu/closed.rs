//! The machine's first process lets nobody look into its RAM, and CRIU cannot dump it so a second time.
//!
//! The kernel calls a process that others may look into *dumpable*, and asks for the rights over it those of the user
//! namespace it was executed in. A restored process was never executed in its machine, but made by CRIU in the host's; so
//! to whoever has entered the machine's namespace, as CRIU does to check it, the first process is closed for good. It is
//! therefore opened for the time of a dump, by a call made as it, and the images say that it was closed.
//!
//! ```text
//! freeze ─► hold ─► open ─► freeze, let go ─► (dump) ─► hold ─► close ─► let go
//! ```
//!
//! All of the machine stands still from the first step to the last: nobody in it gets to look.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags, openat};

use super::group::Group;
use super::hold::Held;
use super::protobuf::{Fields, Malformed, Value};
use super::terminals;
use super::trace::IfWeDie;

/// The number of the first process, in its machine.
const FIRST: u32 = 1;
const IMAGE: &str = "mm-1.img";
/// What CRIU recorded of a process's memory: below this but for a process of many thousand mappings.
const IMAGE_BYTES_MAX: u64 = 16 << 20;
const MAGICS: [u32; 2] = [0x5456_4319, 0x5749_2820];
/// The field of that record which says whether the process is dumpable.
const DUMPABLE_FIELD: u32 = 15;

const SET_DUMPABLE: u64 = libc::PR_SET_DUMPABLE as u64;
const GET_DUMPABLE: u64 = libc::PR_GET_DUMPABLE as u64;

/// Opens the first process of a frozen machine, and leaves the machine frozen. Answers whether it was closed.
pub(super) fn open(group: &Group) -> io::Result<bool> {
    let mut held = Held::take(group, IfWeDie::ItGoesOn)?;
    let closed = held.call(FIRST, libc::SYS_prctl, [GET_DUMPABLE, 0, 0, 0, 0, 0])? == 0;
    if closed {
        held.call(FIRST, libc::SYS_prctl, [SET_DUMPABLE, 1, 0, 0, 0, 0])?;
    }
    terminals::name(&mut held)?;
    group.freeze()?;
    Ok(closed)
}

/// Closes the first process of a machine that [`open`] left frozen, if it was closed, and leaves the machine frozen or lets
/// it go on.
pub(super) fn close(group: &Group, closed: bool, stays_frozen: bool) -> io::Result<()> {
    let done = if closed { close_first(group, stays_frozen) } else { Ok(()) };
    // Whatever came of that, the machine must not be left standing, nor be let go, against what was asked for.
    if stays_frozen {
        group.freeze()?;
        group.await_frozen()?;
    } else {
        group.thaw()?;
    }
    done
}

fn close_first(group: &Group, stays_frozen: bool) -> io::Result<()> {
    group.freeze()?;
    let mut held = Held::take(group, IfWeDie::ItGoesOn)?;
    held.call(FIRST, libc::SYS_prctl, [SET_DUMPABLE, 0, 0, 0, 0, 0])?;
    if stays_frozen {
        group.freeze()?;
    }
    Ok(())
}

/// Has the images say that the first process is closed.
pub(super) fn write_closed(images: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let image = File::from(openat(images, IMAGE, flags, Mode::empty())?);
    let length = image.metadata()?.len();
    if length > IMAGE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    image.read_exact_at(&mut bytes, 0)?;
    let at = dumpable_offset(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    image.write_all_at(&[0], at as u64)
}

/// Where in the image the one byte is that says whether the process is dumpable.
fn dumpable_offset(image: &[u8]) -> Result<usize, Malformed> {
    const ENTRY: usize = 12;
    let word = |at: usize| {
        let bytes = image.get(at..).and_then(<[u8]>::first_chunk).ok_or(Malformed)?;
        Ok(u32::from_le_bytes(*bytes))
    };
    if [word(0)?, word(4)?] != MAGICS {
        return Err(Malformed);
    }
    let length = usize::try_from(word(8)?).map_err(|_| Malformed)?;
    let entry = image.get(ENTRY..).and_then(|rest| rest.get(..length)).ok_or(Malformed)?;
    let mut fields = Fields::of(entry);
    while let Some(field) = fields.next() {
        let field = field?;
        if let (DUMPABLE_FIELD, Value::Number(0..=1)) = (field.number, field.value) {
            return Ok(ENTRY + entry.len() - fields.remaining() - 1);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::Message;
    use super::*;

    #[test]
    fn the_byte_that_says_dumpable_is_found_among_the_others() {
        let entry = Message::default().number(1, 300).bytes(14, b"mapping").number(15, 1).flag(17);
        let mut image = MAGICS.map(u32::to_le_bytes).concat();
        image.extend(u32::try_from(entry.as_bytes().len()).unwrap().to_le_bytes());
        image.extend(entry.as_bytes());
        let at = dumpable_offset(&image).unwrap();
        assert_eq!(image[at], 1);
        image[at] = 0;
        let fields: Vec<_> = Fields::of(&image[12..]).map(|field| field.unwrap()).collect();
        assert!(fields.iter().any(|field| field.number == 15 && field.value == Value::Number(0)));
        assert_eq!(fields.len(), 4);
        for length in 0..at {
            assert!(dumpable_offset(&image[..length]).is_err(), "{length}");
        }
    }
}
