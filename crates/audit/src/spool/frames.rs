//! Appends frames to a segment: all frames of a batch, or none.

use std::io;
use std::os::fd::AsFd;

use super::{CHECK, FIRST, SEGMENT_BYTES_MAX, frame, read_at, write_all_at};

/// A segment that is open for writing, and the end of its valid frames.
#[derive(Debug)]
pub(crate) struct Frames<F> {
    pub(super) file: F,
    /// The position of the next frame.
    end: u64,
    /// The check of the frame before `end`, or the seed.
    before: [u8; CHECK],
    /// A write failed: the bytes beyond `end` must be removed first.
    torn: bool,
}

/// Frames that were written but not accepted yet.
#[derive(Debug)]
#[must_use]
pub(super) struct WrittenFrames {
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
    /// A segment without frames.
    pub(crate) fn at_the_start(file: F) -> io::Result<Self> {
        Self::at(file, FIRST)
    }

    /// Continues at `end`, the end of a frame or of the header.
    pub(super) fn at(file: F, end: u64) -> io::Result<Self> {
        let mut before = [0; CHECK];
        if read_at(&file, &mut before, end - CHECK as u64)? != CHECK {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the segment is shorter than its mark"));
        }
        rustix::fs::ftruncate(&file, end)?;
        Ok(Self { file, end, before, torn: false })
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Writes all frames or none, as far as a crash of this process is concerned.
    pub(crate) fn append(&mut self, bodies: &[Vec<u8>]) -> Result<(), FramesError> {
        let written = self.write(bodies)?;
        self.accept(written);
        Ok(())
    }

    /// Writes frames after the end, which moves only with [`Frames::accept`].
    pub(super) fn write(&mut self, bodies: &[Vec<u8>]) -> Result<WrittenFrames, FramesError> {
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
        Ok(WrittenFrames { end, before })
    }

    pub(super) fn accept(&mut self, written: WrittenFrames) {
        (self.end, self.before, self.torn) = (written.end, written.before, false);
    }

    /// Removes the bytes beyond the end now, if possible, so that no unacknowledged frames remain; otherwise before
    /// the next write.
    pub(super) fn take_back(&mut self) {
        self.torn = rustix::fs::ftruncate(&self.file, self.end).is_err();
    }
}
