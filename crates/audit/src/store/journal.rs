//! What is recorded and not yet in the log: a file that outlives this process, and the same events in RAM.
//!
//! ```text
//!  record ──► pwrite of a frame, no sync ──► answered
//!                └── the next commit, whatever it is for, takes all that is there into the trees,
//!                    with the place it was read to, in the one transaction
//! ```
//!
//! A commit costs some fifty times what a write of some hundred bytes costs, and most calls leave an event. The file is a
//! segment as the spool has it, without marks: a reader goes on to the last whole frame. Each start begins a new one, so that
//! what a power cut left of the old one is never written after.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::StoreError;
use crate::spool::{Frames, Part, ReadError, Reader, Segment};
use crate::{EVENT_BYTES_MAX, Event};

/// Events that may wait for a commit. Beyond it whoever records waits for one.
const WAITING_MAX: usize = 4096;

/// A segment that has grown to this is replaced.
const REPLACE_BYTES: u64 = 1024 * 1024;

/// A place in the journal: all before it is in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

/// Events on their way into the log.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) events: Vec<Event>,
    /// By the daemon's clock, of the newest.
    pub(super) seen_ms: u64,
    /// After the last of them.
    pub(super) end: Place,
}

#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` while none could be made: everything goes straight into the log.
    file: Option<Written>,
    /// The highest number there ever was.
    newest: u64,
    waiting: Waiting,
}

#[derive(Debug)]
struct Written {
    number: u64,
    frames: Frames<OwnedFd>,
}

impl Journal {
    /// Reads what an earlier process recorded after `taken`, and begins a new segment. Blocks.
    pub(super) fn open(folder: PathBuf, taken: Place) -> Result<Self, StoreError> {
        let failed = |step| {
            let path = folder.clone();
            move |source| StoreError::File { step, path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(failed("make"))?;
        let there = Segment::list(&folder).map_err(failed("list"))?;
        let mut waiting = Waiting { end: taken, ..Waiting::default() };
        for number in there.iter().copied().filter(|number| *number >= taken.segment) {
            let from = (number == taken.segment).then_some(taken.offset);
            read(&folder, number, from, &mut waiting).map_err(failed("read"))?;
        }
        let newest = there.last().copied().unwrap_or(0).max(taken.segment);
        let journal = Self { folder, state: Mutex::new(State { file: None, newest, waiting }) };
        journal.replace();
        Ok(journal)
    }

    /// Writes events down so that the death of this process does not take them. `false` where they must go into the log
    /// at once: there is no room here, or they are too large.
    pub(super) fn record(&self, events: &[Event], seen_ms: u64) -> bool {
        let mut state = self.state();
        let State { file, waiting, .. } = &mut *state;
        let Some(Written { number, frames }) = file else { return false };
        let bodies: Vec<_> = events.iter().map(Event::to_bytes).collect();
        let fits = bodies.iter().all(|body| body.len() <= EVENT_BYTES_MAX);
        if !fits || waiting.events.len() + events.len() > WAITING_MAX || frames.append(&bodies).is_err() {
            return false;
        }
        waiting.events.extend_from_slice(events);
        waiting.seen_ms = waiting.seen_ms.max(seen_ms);
        waiting.end = Place { segment: *number, offset: frames.end() };
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().waiting.events.is_empty()
    }

    /// All that waits, for a commit.
    pub(super) fn take(&self) -> Option<Waiting> {
        let mut state = self.state();
        if state.waiting.events.is_empty() {
            return None;
        }
        let end = state.waiting.end;
        Some(std::mem::replace(&mut state.waiting, Waiting { end, ..Waiting::default() }))
    }

    /// After a commit that failed: they wait again, before what came meanwhile.
    pub(super) fn put_back(&self, mut taken: Waiting) {
        let mut state = self.state();
        taken.events.append(&mut state.waiting.events);
        taken.seen_ms = taken.seen_ms.max(state.waiting.seen_ms);
        taken.end = taken.end.max(state.waiting.end);
        state.waiting = taken;
    }

    /// After a commit up to `place`: removes what is in the log as a whole, and begins a new segment where one is due.
    pub(super) fn taken_to(&self, place: Place) {
        if self.state().file.as_ref().is_none_or(|written| written.frames.end() > REPLACE_BYTES) {
            self.replace();
        }
        let there = Segment::list(&self.folder).unwrap_or_default();
        for number in there.into_iter().filter(|number| *number < place.segment) {
            // What stays is known to be taken, and is tried again.
            let _ = fs::remove_file(Segment::path(&self.folder, number));
        }
    }

    /// Where that fails, the old one stays in use.
    fn replace(&self) {
        let number = self.state().newest + 1;
        // Outside of the lock: it syncs.
        let made = Segment::create(&self.folder, number).and_then(|made| Frames::at_the_start(made.file));
        let mut state = self.state();
        if let Ok(frames) = made {
            state.newest = number;
            state.file = Some(Written { number, frames });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rest of one segment. One that was never begun as a whole, or whose end a power cut took, holds nothing.
fn read(folder: &Path, number: u64, from: Option<u64>, waiting: &mut Waiting) -> io::Result<()> {
    let mut reader = match Reader::open(&Segment::path(folder, number), from) {
        Ok(reader) => reader,
        Err(ReadError::Read { source }) => return Err(source),
        Err(ReadError::NoSegment | ReadError::Damaged { .. }) => return Ok(()),
    };
    loop {
        match reader.read(Part::All, WAITING_MAX) {
            Ok(events) if events.is_empty() => return Ok(()),
            Ok(events) => {
                waiting.seen_ms = events.iter().map(|event| event.at_ms).fold(waiting.seen_ms, u64::max);
                waiting.events.extend(events);
                waiting.end = Place { segment: number, offset: reader.offset() };
            }
            Err(ReadError::Read { source }) => return Err(source),
            Err(ReadError::NoSegment | ReadError::Damaged { .. }) => return Ok(()),
        }
    }
}
