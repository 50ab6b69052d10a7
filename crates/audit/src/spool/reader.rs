//! The reading end: whole events, in order, from where one left off.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{CHECK, FIRST, LENGTH, MAGIC, mark_of, parse, read_at};
use crate::{EVENT_BYTES_MAX, Event};

/// Bytes read at once: several of the largest frames, some thousands of usual ones.
const PIECE: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("could not read the audit spool")]
    Read { source: io::Error },
    #[error("the file is no segment of an audit spool")]
    NoSegment,
    /// Acknowledged to whoever wrote it, and not there: the disk lost it, or somebody changed the file.
    #[error("the segment of the audit spool is damaged at byte {offset} of {end}")]
    Damaged { offset: u64, end: u64 },
}

/// Who may still write to the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Somebody: only what is acknowledged is read.
    Acknowledged,
    /// Nobody: what follows the mark and is whole was durable too, and its mark was lost with the power. A torn tail is no
    /// error.
    All,
}

/// Reads one segment. The offset it stands at is all there is to remember of it.
#[derive(Debug)]
pub struct Reader {
    file: File,
    offset: u64,
}

impl Reader {
    /// Goes on at `offset`, or at the beginning.
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

    /// After the last event that was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that are acknowledged and not read.
    pub fn behind(&self) -> Result<u64, ReadError> {
        Ok(self.mark()?.unwrap_or(self.offset).saturating_sub(self.offset))
    }

    /// Up to `max` events; none where there are no more now.
    pub fn read(&mut self, part: Part, max: usize) -> Result<Vec<Event>, ReadError> {
        let mark = self.mark()?;
        let end = match (part, mark) {
            (Part::Acknowledged, Some(mark)) => mark,
            // Being written this moment.
            (Part::Acknowledged, None) => return Ok(Vec::new()),
            (Part::All, _) => u64::MAX,
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

    /// Reads one piece; answers how many frames were in it.
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
        // Every frame fits into a piece, so one that does not begin here is none.
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
