//! Streams in pieces over a serial port, which has no end-of-file: see [`crate::protocol::VmRequest::Apply`].

use std::io::{self, Read, Write};

use crate::protocol::{STREAM_BROKEN, STREAM_END, STREAM_PIECE_BYTES_MAX};

/// Writes a stream in pieces.
pub(super) struct PieceStreamWriter<W: Write> {
    out: W,
    held: Vec<u8>,
}

impl<W: Write> PieceStreamWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, held: Vec::with_capacity(STREAM_PIECE_BYTES_MAX) }
    }

    /// Ends the stream; `whole` says whether it is complete.
    pub(super) fn end(mut self, whole: bool) -> io::Result<()> {
        self.flush()?;
        let end = if whole { STREAM_END } else { STREAM_BROKEN };
        self.out.write_all(&end.to_le_bytes())
    }
}

impl<W: Write> Write for PieceStreamWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(STREAM_PIECE_BYTES_MAX - self.held.len());
        self.held.extend_from_slice(&bytes[..count]);
        if self.held.len() == STREAM_PIECE_BYTES_MAX {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let length = u32::try_from(self.held.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&self.held)?;
        self.held.clear();
        Ok(())
    }
}

/// Reads a stream that arrives in pieces.
pub(super) struct PieceStreamReader<'a> {
    input: &'a mut dyn Read,
    /// Bytes left of the current piece.
    left: usize,
    ended: bool,
}

impl<'a> PieceStreamReader<'a> {
    pub(super) fn new(input: &'a mut dyn Read) -> Self {
        Self { input, left: 0, ended: false }
    }

    /// Skips the rest of the stream, to find what follows it.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let mut rest = [0; 4096];
        while !self.ended {
            match self.read(&mut rest) {
                Ok(_) => {}
                Err(error) if self.ended => drop(error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for PieceStreamReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended || buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            match u32::from_le_bytes(length) {
                STREAM_END => {
                    self.ended = true;
                    return Ok(0);
                }
                STREAM_BROKEN => {
                    self.ended = true;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                length => self.left = usize::try_from(length).map_err(io::Error::other)?,
            }
        }
        let count = self.left.min(buffer.len());
        let count = self.input.read(&mut buffer[..count])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_back_and_the_data_after_it_is_found() {
        let long: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        for (content, whole) in [(&long[..], true), (b"", true), (b"half", false)] {
            let mut stream = Vec::new();
            let mut pieces = PieceStreamWriter::new(&mut stream);
            pieces.write_all(content).unwrap();
            pieces.end(whole).unwrap();
            stream.extend(b"next");
            let (mut rest, mut read) = (&stream[..], Vec::new());
            let done = PieceStreamReader::new(&mut rest).read_to_end(&mut read);
            assert_eq!((done.is_ok(), &read[..], rest), (whole, content, &b"next"[..]));
            let mut rest = &stream[..];
            PieceStreamReader::new(&mut rest).drain().unwrap();
            assert_eq!(rest, b"next");
        }
        assert!(PieceStreamReader::new(&mut &b"\x05\0\0\0abc"[..]).drain().is_err());
    }
}
