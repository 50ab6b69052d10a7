//! The end of a segment that is written to: frames after one another, all of a batch or none.

use std::io;
use std::os::fd::AsFd;

use super::{CHECK, FIRST, SEGMENT_BYTES_MAX, frame, read_at, write_all_at};

/// A segment open for writing, and how far it is good.
#[derive(Debug)]
pub(crate) struct Frames<F> {
    pub(super) file: F,
    /// Where the next frame goes.
    end: u64,
    /// The check before `end`.
    before: [u8; CHECK],
    /// A write failed: what lies beyond `end` has to go first.
    torn: bool,
}

/// Frames that are written and not counted yet.
#[derive(Debug)]
#[must_use]
pub(super) struct Written {
    pub(super) end: u64,
    before: [u8; CHECK],
}

/// Why frames were not written.
#[derive(Debug)]
pub(crate) enum FramesError {
    Full,
    Write(io::Error),
    Repair(io::Error),
}

impl<F: AsFd> Frames<F> {
    /// Of a segment that holds nothing.
    pub(crate) fn at_the_start(file: F) -> io::Result<Self> {
        Self::at(file, FIRST)
    }

    /// Goes on at `end`, which a frame or the header ends at.
    pub(super) fn at(file: F, end: u64) -> io::Result<Self> {
        let mut before = [0; CHECK];
        if read_at(&file, &mut before, end - CHECK as u64)? != CHECK {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a segment shorter than its mark"));
        }
        rustix::fs::ftruncate(&file, end)?;
        Ok(Self { file, end, before, torn: false })
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// All of them or none, as far as this process's death is concerned.
    pub(crate) fn append(&mut self, bodies: &[Vec<u8>]) -> Result<(), FramesError> {
        let written = self.write(bodies)?;
        self.accept(written);
        Ok(())
    }

    /// Writes them after the end, which stays where it is until [`Frames::accept`].
    pub(super) fn write(&mut self, bodies: &[Vec<u8>]) -> Result<Written, FramesError> {
        if self.torn {
            rustix::fs::ftruncate(&self.file, self.end).map_err(|errno| FramesError::Repair(errno.into()))?;
            self.torn = false;
        }
        let mut before = self.before;
        let mut bytes = Vec::with_capacity(bodies.iter().map(|body| body.len() + 16).sum());
        for body in bodies {
            before = frame(before, body, &mut bytes);
        }
        let end = self.end + bytes.len() as u64;
        if end > SEGMENT_BYTES_MAX {
            return Err(FramesError::Full);
        }
        self.torn = true;
        if let Err(error) = write_all_at(&self.file, &bytes, self.end) {
            self.take_back();
            return Err(FramesError::Write(error));
        }
        Ok(Written { end, before })
    }

    pub(super) fn accept(&mut self, written: Written) {
        (self.end, self.before, self.torn) = (written.end, written.before, false);
    }

    /// Now if possible, so that nothing unacknowledged lies there; otherwise before the next write.
    pub(super) fn take_back(&mut self) {
        self.torn = rustix::fs::ftruncate(&self.file, self.end).is_err();
    }
}
