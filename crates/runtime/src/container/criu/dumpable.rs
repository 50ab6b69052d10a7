//! Makes the machine's first process dumpable for the time of a dump.
//!
//! The kernel calls a process whose RAM others may read *dumpable*; reading it requires capabilities in the user
//! namespace in which it was executed. A restored process was never executed in its machine, but created by CRIU in the
//! host's namespace. So a process that has entered the machine's namespace, as CRIU does to check it, can never read
//! the first process, and CRIU could not dump it a second time. It is therefore opened for the time of a dump, by a
//! system call made in it, and the images record that it was closed.
//!
//! ```text
//! freeze ─► hold ─► open ─► freeze, detach ─► (dump) ─► hold ─► close ─► detach
//! ```
//!
//! The whole machine is frozen from the first step to the last: no process in it can read the opened one.
//!
//! A held process has the registers of our call. If its tracer died, it would resume with them and crash. So a separate
//! small process makes the calls, which continues when the daemon is killed: see [`Adjustment`].

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::group::Group;
use super::hold::HeldThreads;
use super::image::{self, Image};
use super::parasite;
use super::protobuf::{Fields, ProtobufError, Value};
use super::sleeps::{self, Sleep};
use super::terminals;
use super::trace::OnTracerExit;

/// The pid of the first process, inside its machine.
const FIRST: u32 = 1;
const IMAGE: &str = "mm-1.img";
const IMAGE_KIND: u32 = 0x5749_2820;
/// CRIU's record of a process's memory: smaller than this, except for a process with many thousand mappings.
const IMAGE_BYTES_MAX: u64 = 16 << 20;
/// The field of that record for dumpability.
const DUMPABLE_FIELD: u32 = 15;

/// CRIU's code ends by itself as soon as its process gets the processor, on a busy host within some milliseconds.
const CLEAN_ATTEMPTS: u32 = 200;
const CLEAN_PAUSE: Duration = Duration::from_millis(5);

const SET_DUMPABLE: u64 = libc::PR_SET_DUMPABLE as u64;
const GET_DUMPABLE: u64 = libc::PR_GET_DUMPABLE as u64;

/// The changes that must be undone after a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppliedChanges {
    /// The first process was closed, that is, not dumpable.
    pub(super) closed: bool,
    /// Processes were stopped by signals, which CRIU has sent again.
    pub(super) stopped: bool,
    /// Sleeping threads, whose calls CRIU has interrupted.
    pub(super) sleeps: Vec<Sleep>,
}

/// A change of a frozen machine before or after a dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Adjustment {
    /// Notes sleeping threads, opens the first process, and normalizes stopped processes for the dump. Leaves the
    /// machine frozen.
    Open,
    /// Undoes that. Leaves the machine frozen if `stays_frozen`.
    Close { opened: AppliedChanges, stays_frozen: bool },
    /// Removes CRIU's code from the processes, after CRIU was killed. Leaves the machine frozen if `stays_frozen`.
    Clean { stays_frozen: bool },
}

/// Calls [`adjust`] in a process that outlives the daemon.
pub(crate) type Adjust<'a> = dyn Fn(Adjustment) -> io::Result<AppliedChanges> + 'a;

/// Adjusts the machine in `group`, and returns the changes that must be undone.
pub(crate) fn adjust(group: &Path, adjustment: Adjustment) -> io::Result<AppliedChanges> {
    let group = Group::at(group);
    match adjustment {
        Adjustment::Open => open(&group),
        Adjustment::Close { opened, stays_frozen } => {
            undo(&group, &opened, stays_frozen).map(|()| AppliedChanges::NOTHING)
        }
        Adjustment::Clean { stays_frozen } => clean(&group, stays_frozen).map(|()| AppliedChanges::NOTHING),
    }
}

impl AppliedChanges {
    pub(super) const NOTHING: Self = Self { closed: false, stopped: false, sleeps: Vec::new() };
    /// If the changes are unknown: harmless for a machine without them. The sleeps are lost.
    pub(super) const ALL: Self = Self { closed: true, stopped: true, sleeps: Vec::new() };
}

fn open(group: &Group) -> io::Result<AppliedChanges> {
    let mut held = HeldThreads::take(group, OnTracerExit::Continues)?;
    // First: any other call overwrites the kernel's state of an interrupted sleep.
    let sleeps = sleeps::note(&mut held)?;
    let closed = held.call(FIRST, libc::SYS_prctl, [GET_DUMPABLE, 0, 0, 0, 0, 0])? == 0;
    if closed {
        held.call(FIRST, libc::SYS_prctl, [SET_DUMPABLE, 1, 0, 0, 0, 0])?;
    }
    terminals::name(&mut held)?;
    let stopped = held.normalize_stop()?;
    held.detach_frozen(group)?;
    Ok(AppliedChanges { closed, stopped, sleeps })
}

/// Undoes the changes of [`Adjustment::Open`], and leaves the machine frozen or resumes it.
pub(super) fn close(
    group: &Group,
    opened: AppliedChanges,
    stays_frozen: bool,
    adjust: &Adjust<'_>,
) -> io::Result<()> {
    let done = if opened == AppliedChanges::NOTHING {
        Ok(())
    } else {
        adjust(Adjustment::Close { opened, stays_frozen }).map(drop)
    };
    // Whatever the outcome, the machine must end in the requested state, frozen or running.
    if stays_frozen {
        group.freeze()?;
        group.await_frozen()?;
    } else {
        group.thaw()?;
    }
    done
}

fn undo(group: &Group, opened: &AppliedChanges, stays_frozen: bool) -> io::Result<()> {
    group.freeze()?;
    let mut held = HeldThreads::take(group, OnTracerExit::Continues)?;
    if opened.closed {
        held.call(FIRST, libc::SYS_prctl, [SET_DUMPABLE, 0, 0, 0, 0, 0])?;
    }
    if !opened.sleeps.is_empty() {
        sleeps::restart(&mut held, &opened.sleeps, sleeps::now()?)?;
    }
    held.normalize_stop()?;
    if stays_frozen { held.detach_frozen(group) } else { Ok(()) }
}

fn clean(group: &Group, stays_frozen: bool) -> io::Result<()> {
    for _ in 0..CLEAN_ATTEMPTS {
        group.freeze()?;
        if parasite::unmap(group)? {
            return if stays_frozen { Ok(()) } else { group.thaw() };
        }
        // It needs a moment of CPU time to end.
        group.thaw()?;
        thread::sleep(CLEAN_PAUSE);
    }
    if stays_frozen {
        group.freeze()?;
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Records in the images that the first process is closed.
pub(super) fn write_closed(images: BorrowedFd<'_>) -> io::Result<()> {
    let image = Image::open(images, IMAGE, IMAGE_BYTES_MAX)?.ok_or(io::ErrorKind::NotFound)?;
    image.set(dumpable_offset(&image.bytes).map_err(image::malformed)?, 0)
}

/// The offset of the byte in the image that records whether the process is dumpable.
fn dumpable_offset(image: &[u8]) -> Result<usize, ProtobufError> {
    let (start, entry) = image::records(image, IMAGE_KIND)?.into_iter().next().ok_or(ProtobufError)?;
    let mut fields = Fields::of(entry);
    while let Some(field) = fields.next() {
        let field = field?;
        if let (DUMPABLE_FIELD, Value::Number(0..=1)) = (field.number, field.value) {
            return Ok(start + entry.len() - fields.remaining() - 1);
        }
    }
    Err(ProtobufError)
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::Message;
    use super::*;

    #[test]
    fn the_byte_for_dumpability_is_found() {
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
