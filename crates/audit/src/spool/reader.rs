//! Reads complete events from a segment, in order, starting at a stored offset.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{CHECK, FIRST, LENGTH, MAGIC, mark_of, parse, read_at};
use crate::{EVENT_BYTES_MAX, Event};

/// Size of one read: several of the largest frames, some thousands of usual ones.
const PIECE: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("could not read the audit spool")]
    Read { source: io::Error },
    #[error("the file is not a segment of an audit spool")]
    NoSegment,
    /// Events that were acknowledged to their writer are missing: the disk lost them, or the file was changed.
    #[error("the segment of the audit spool is damaged at byte {offset} of {end}")]
    Damaged { offset: u64, end: u64 },
}

/// Whether the segment still has a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPart {
    /// It has: only acknowledged events are read.
    Acknowledged,
    /// It has none: complete frames after the mark are read too. They were durable, and only the mark was lost in a
    /// power failure. A torn end is not an error.
    All,
}

/// Reads one segment. Its offset is its only state.
#[derive(Debug)]
pub struct Reader {
    file: File,
    offset: u64,
}

impl Reader {
    /// Opens a segment at `offset`, or at its first frame.
    pub fn open(path: &Path, offset: Option<u64>) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|source| ReadError::Read { source })?;
        Self::new(file, offset)
    }

    pub fn new(file: File, offset: Option<u64>) -> Result<Self, ReadError> {
        let mut magic = [0; MAGIC.len()];
        let count = read_at(&file, &mut magic, 0).map_err(|source| ReadError::Read { source })?;
        if count != magic.len() || magic != MAGIC {
            return Err(ReadError::NoSegment);
        }
        Ok(Self { file, offset: offset.unwrap_or(FIRST).max(FIRST) })
    }

    /// The position after the last event that was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of bytes that are acknowledged but not read yet.
    pub fn behind(&self) -> Result<u64, ReadError> {
        Ok(self.mark()?.unwrap_or(self.offset).saturating_sub(self.offset))
    }

    /// Reads up to `max` events; none if there are no more at the moment.
    pub fn read(&mut self, part: SegmentPart, max: usize) -> Result<Vec<Event>, ReadError> {
        let mark = self.mark()?;
        let end = match (part, mark) {
            (SegmentPart::Acknowledged, Some(mark)) => mark,
            // The header is being written right now.
            (SegmentPart::Acknowledged, None) => return Ok(Vec::new()),
            (SegmentPart::All, _) => u64::MAX,
        };
        let mut events = Vec::new();
        while events.len() < max && self.offset < end {
            let took = self.piece(end, mark.unwrap_or(FIRST), max, &mut events)?;
            if took == 0 {
                break;
            }
        }
        Ok(events)
    }

    /// Reads one piece of the file; returns how many frames it contained.
    fn piece(
        &mut self,
        end: u64,
        mark: u64,
        max: usize,
        events: &mut Vec<Event>,
    ) -> Result<usize, ReadError> {
        let from = self.offset - CHECK as u64;
        let wanted = usize::try_from(end - from).unwrap_or(usize::MAX).min(PIECE);
        let mut bytes = vec![0; wanted];
        let count = read_at(&self.file, &mut bytes, from).map_err(|source| ReadError::Read { source })?;
        let damaged = ReadError::Damaged { offset: self.offset, end: mark };
        let Some((before, mut rest)) = bytes[..count].split_first_chunk::<CHECK>() else {
            return if self.offset < mark { Err(damaged) } else { Ok(0) };
        };
        let (mut before, mut frames) = (*before, 0);
        while events.len() < max
            && let Some((body, check, length)) = parse(before, rest)
        {
            let damaged = ReadError::Damaged { offset: self.offset, end: mark };
            events.push(Event::from_bytes(body).map_err(|_| damaged)?);
            (before, rest) = (check, &rest[length..]);
            self.offset += length as u64;
            frames += 1;
        }
        // Every frame fits into a piece, so a frame that does not start here is invalid.
        const { assert!(PIECE > CHECK + LENGTH + EVENT_BYTES_MAX + CHECK) };
        match frames {
            0 if self.offset < mark => Err(damaged),
            _ => Ok(frames),
        }
    }

    fn mark(&self) -> Result<Option<u64>, ReadError> {
        let mut bytes = [0; 16];
        let count =
            read_at(&self.file, &mut bytes, super::MARK).map_err(|source| ReadError::Read { source })?;
        Ok(if count == bytes.len() { mark_of(bytes) } else { None })
    }
}
