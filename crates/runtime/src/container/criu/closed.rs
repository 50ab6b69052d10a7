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
//!
//! A process that is held has the registers of our call. If whoever holds it died, it would run on with them and crash. So
//! a small process of its own makes the calls, which goes on when the daemon is killed: see [`Adjustment`].

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::hold::Held;
use super::image::{self, Image};
use super::protobuf::{Fields, Malformed, Value};
use super::terminals;
use super::trace::IfWeDie;

/// The number of the first process, in its machine.
const FIRST: u32 = 1;
const IMAGE: &str = "mm-1.img";
const IMAGE_KIND: u32 = 0x5749_2820;
/// What CRIU recorded of a process's memory: below this but for a process of many thousand mappings.
const IMAGE_BYTES_MAX: u64 = 16 << 20;
/// The field of that record which says whether the process is dumpable.
const DUMPABLE_FIELD: u32 = 15;

const SET_DUMPABLE: u64 = libc::PR_SET_DUMPABLE as u64;
const GET_DUMPABLE: u64 = libc::PR_GET_DUMPABLE as u64;

/// What there is to put right after a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// The first process was closed.
    pub(super) closed: bool,
    /// Processes were stopped by signals, and CRIU will have sent those once more.
    pub(super) stopped: bool,
}

/// What is done to a frozen machine before and after a dump.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Adjustment {
    /// Opens the first process, and has stopped ones be so as a dump keeps it. Leaves the machine frozen.
    Open,
    /// Undoes that. Leaves the machine frozen if `stays_frozen`.
    Close { opened: Opened, stays_frozen: bool },
}

/// Has [`adjust`] called by a process that outlives the daemon.
pub(crate) type Adjust<'a> = dyn Fn(Adjustment) -> io::Result<Opened> + 'a;

/// Adjusts the machine in `group`, and answers what there is to put right.
pub(crate) fn adjust(group: &Path, adjustment: Adjustment) -> io::Result<Opened> {
    let group = Group::at(group);
    match adjustment {
        Adjustment::Open => open(&group),
        Adjustment::Close { opened, stays_frozen } => {
            put_right(&group, opened.closed, stays_frozen).map(|()| Opened::NOTHING)
        }
    }
}

impl Opened {
    pub(super) const NOTHING: Self = Self { closed: false, stopped: false };
    /// For whoever does not know: does no harm to a machine that was neither.
    pub(super) const ALL: Self = Self { closed: true, stopped: true };
}

fn open(group: &Group) -> io::Result<Opened> {
    let mut held = Held::take(group, IfWeDie::ItGoesOn)?;
    let closed = held.call(FIRST, libc::SYS_prctl, [GET_DUMPABLE, 0, 0, 0, 0, 0])? == 0;
    if closed {
        held.call(FIRST, libc::SYS_prctl, [SET_DUMPABLE, 1, 0, 0, 0, 0])?;
    }
    terminals::name(&mut held)?;
    let stopped = held.stop_plainly()?;
    held.let_go_frozen(group)?;
    Ok(Opened { closed, stopped })
}

/// Puts a machine right that [`Adjustment::Open`] left frozen, and leaves it frozen or lets it go on.
pub(super) fn close(
    group: &Group,
    opened: Opened,
    stays_frozen: bool,
    adjust: &Adjust<'_>,
) -> io::Result<()> {
    let done = match opened {
        Opened::NOTHING => Ok(()),
        _ => adjust(Adjustment::Close { opened, stays_frozen }).map(drop),
    };
    // Whatever came of that, the machine must not be left standing, nor be let go, against what was asked for.
    if stays_frozen {
        group.freeze()?;
        group.await_frozen()?;
    } else {
        group.thaw()?;
    }
    done
}

fn put_right(group: &Group, closed: bool, stays_frozen: bool) -> io::Result<()> {
    group.freeze()?;
    let mut held = Held::take(group, IfWeDie::ItGoesOn)?;
    if closed {
        held.call(FIRST, libc::SYS_prctl, [SET_DUMPABLE, 0, 0, 0, 0, 0])?;
    }
    held.stop_plainly()?;
    if stays_frozen { held.let_go_frozen(group) } else { Ok(()) }
}

/// Has the images say that the first process is closed.
pub(super) fn write_closed(images: BorrowedFd<'_>) -> io::Result<()> {
    let image = Image::open(images, IMAGE, IMAGE_BYTES_MAX)?.ok_or(io::ErrorKind::NotFound)?;
    image.set(dumpable_offset(&image.bytes).map_err(image::malformed)?, 0)
}

/// Where in the image the one byte is that says whether the process is dumpable.
fn dumpable_offset(image: &[u8]) -> Result<usize, Malformed> {
    let (start, entry) = image::records(image, IMAGE_KIND)?.into_iter().next().ok_or(Malformed)?;
    let mut fields = Fields::of(entry);
    while let Some(field) = fields.next() {
        let field = field?;
        if let (DUMPABLE_FIELD, Value::Number(0..=1)) = (field.number, field.value) {
            return Ok(start + entry.len() - fields.remaining() - 1);
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
        let mut image = image::written(IMAGE_KIND, &[entry]);
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
