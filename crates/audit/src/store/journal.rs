//! Events that are recorded but not yet in the log: a file that survives this process, and the same events in RAM.
//!
//! ```text
//!  record ──► pwrite of a frame, no sync ──► caller continues
//!                └── the next commit of any kind moves all these events into the trees,
//!                    and stores the journal's position, in one transaction
//! ```
//!
//! A commit costs some fifty times as much as writing some hundred bytes, and most calls cause an event. The file is
//! a segment like those of the spool, without marks: a reader continues to the last complete frame. Each start
//! creates a new segment, so that nothing is appended after remains of a power failure.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::StoreError;
use crate::spool::{Frames, ReadError, Reader, Segment, SegmentPart};
use crate::{EVENT_BYTES_MAX, Event};

/// Largest number of events that wait for a commit. When it is reached, callers commit themselves.
const WAITING_MAX: usize = 4096;

/// A segment that has reached this size is replaced.
const REPLACE_BYTES: u64 = 1024 * 1024;

/// A position in the journal: everything before it is in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JournalPosition {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

/// Events on their way into the log.
#[derive(Debug, Default)]
pub(super) struct WaitingEvents {
    pub(super) events: Vec<Event>,
    /// The time of the newest event, by the daemon's clock.
    pub(super) seen_ms: u64,
    /// The position after the last event.
    pub(super) end: JournalPosition,
}

#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` if no segment could be created: then every event goes directly into the log.
    file: Option<OpenSegment>,
    /// The highest segment number so far.
    newest: u64,
    waiting: WaitingEvents,
}

#[derive(Debug)]
struct OpenSegment {
    number: u64,
    frames: Frames<OwnedFd>,
}

impl Journal {
    /// Reads the events that an earlier process recorded after `taken`, and creates a new segment. Blocks.
    pub(super) fn open(folder: PathBuf, taken: JournalPosition) -> Result<Self, StoreError> {
        let failed = |step| {
            let path = folder.clone();
            move |source| StoreError::File { step, path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(failed("make"))?;
        let there = Segment::list(&folder).map_err(failed("list"))?;
        let mut waiting = WaitingEvents { end: taken, ..WaitingEvents::default() };
        for number in there.iter().copied().filter(|number| *number >= taken.segment) {
            let from = (number == taken.segment).then_some(taken.offset);
            read(&folder, number, from, &mut waiting).map_err(failed("read"))?;
        }
        let newest = there.last().copied().unwrap_or(0).max(taken.segment);
        let journal = Self { folder, state: Mutex::new(State { file: None, newest, waiting }) };
        journal.replace();
        Ok(journal)
    }

    /// Records events so that a crash of this process does not lose them. `false` if they must go directly into the
    /// log, because there is no room here or they are too large.
    pub(super) fn record(&self, events: &[Event], seen_ms: u64) -> bool {
        let mut state = self.state();
        let State { file, waiting, .. } = &mut *state;
        let Some(OpenSegment { number, frames }) = file else { return false };
        let bodies: Vec<_> = events.iter().map(Event::to_bytes).collect();
        let fits = bodies.iter().all(|body| body.len() <= EVENT_BYTES_MAX);
        if !fits || waiting.events.len() + events.len() > WAITING_MAX || frames.append(&bodies).is_err() {
            return false;
        }
        waiting.events.extend_from_slice(events);
        waiting.seen_ms = waiting.seen_ms.max(seen_ms);
        waiting.end = JournalPosition { segment: *number, offset: frames.end() };
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().waiting.events.is_empty()
    }

    /// Takes all waiting events, for a commit.
    pub(super) fn take(&self) -> Option<WaitingEvents> {
        let mut state = self.state();
        if state.waiting.events.is_empty() {
            return None;
        }
        let end = state.waiting.end;
        Some(std::mem::replace(&mut state.waiting, WaitingEvents { end, ..WaitingEvents::default() }))
    }

    /// Called after a failed commit: puts the events back, before those recorded since.
    pub(super) fn put_back(&self, mut taken: WaitingEvents) {
        let mut state = self.state();
        taken.events.append(&mut state.waiting.events);
        taken.seen_ms = taken.seen_ms.max(state.waiting.seen_ms);
        taken.end = taken.end.max(state.waiting.end);
        state.waiting = taken;
    }

    /// Called after a commit up to `place`: removes segments that are completely in the log, and creates a new one if
    /// the current one is large.
    pub(super) fn taken_to(&self, place: JournalPosition) {
        if self.state().file.as_ref().is_none_or(|written| written.frames.end() > REPLACE_BYTES) {
            self.replace();
        }
        let there = Segment::list(&self.folder).unwrap_or_default();
        for number in there.into_iter().filter(|number| *number < place.segment) {
            // A segment that cannot be removed is known to be in the log, and removed later.
            let _ = fs::remove_file(Segment::path(&self.folder, number));
        }
    }

    /// If this fails, the old segment stays in use.
    fn replace(&self) {
        let number = self.state().newest + 1;
        // Without the mutex, because it syncs.
        let made = Segment::create(&self.folder, number).and_then(|made| Frames::at_the_start(made.file));
        let mut state = self.state();
        if let Ok(frames) = made {
            state.newest = number;
            state.file = Some(OpenSegment { number, frames });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the rest of one segment. A segment whose header or end was lost in a power failure contains nothing more.
fn read(folder: &Path, number: u64, from: Option<u64>, waiting: &mut WaitingEvents) -> io::Result<()> {
    let mut reader = match Reader::open(&Segment::path(folder, number), from) {
        Ok(reader) => reader,
        Err(ReadError::Read { source }) => return Err(source),
        Err(ReadError::NoSegment | ReadError::Damaged { .. }) => return Ok(()),
    };
    loop {
        match reader.read(SegmentPart::All, WAITING_MAX) {
            Ok(events) if events.is_empty() => return Ok(()),
            Ok(events) => {
                waiting.seen_ms = events.iter().map(|event| event.at_ms).fold(waiting.seen_ms, u64::max);
                waiting.events.extend(events);
                waiting.end = JournalPosition { segment: number, offset: reader.offset() };
            }
            Err(ReadError::Read { source }) => return Err(source),
            Err(ReadError::NoSegment | ReadError::Damaged { .. }) => return Ok(()),
        }
    }
}
