//! Chunked streams to and from a machine's first process, with a time limit.
//!
//! A chunk is a length of four bytes, little endian, and that many bytes. A length of zero ends the stream, and the
//! largest number aborts it. The machine is hostile: the size of chunks and the time to wait for them are limited.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::report::Report;

const END: u32 = 0;
const BROKEN: u32 = u32::MAX;
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Length limit of the machine's final report.
const REPORT_BYTES_MAX: usize = 64 << 10;

/// A socket with an overall time limit.
#[derive(Debug)]
pub(super) struct TimedSocket<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl<'a> TimedSocket<'a> {
    pub(super) fn new(stream: &'a UnixStream, within: Duration) -> Self {
        Self { stream, until: Instant::now() + within }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(late()) } else { Ok(left) }
    }
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer).map_err(renamed)
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(renamed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives the timeout of a socket its proper error kind.
fn renamed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { late() } else { error }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the machine did not answer in time")
}

/// Sends the stream that `give` writes; if it fails, the stream is aborted.
pub(super) fn give(
    out: &mut dyn Write,
    give: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut pieces = ChunkWriter { out, held: Vec::with_capacity(PIECE_BYTES_MAX) };
    let given = give(&mut pieces).and_then(|()| pieces.flush());
    let end = if given.is_ok() { END } else { BROKEN };
    let ended = pieces.out.write_all(&end.to_le_bytes());
    given.and(ended)
}

/// Lets `take` read a stream, skips the rest, and returns the machine's report.
pub(super) fn take(
    input: &mut dyn Read,
    take: impl FnOnce(&mut dyn Read) -> io::Result<()>,
) -> io::Result<Report> {
    let mut whole = ChunkReader { input, left: 0, end: None };
    let taken = take(&mut whole);
    // The machine's error is more useful than the fact that its stream was aborted.
    if taken.is_err() && whole.end.is_none() {
        return taken.map(|()| Report::Ready);
    }
    let drained = io::copy(&mut whole, &mut io::sink()).map(drop);
    let report = match whole.end {
        Some(_) => report(whole.input)?,
        None => return drained.map(|()| Report::Ready),
    };
    match (&report, taken) {
        (Report::Failed { .. }, _) | (_, Ok(())) => Ok(report),
        (Report::Ready, Err(error)) => Err(error),
    }
}

fn report(input: &mut dyn Read) -> io::Result<Report> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
    if length > REPORT_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

struct ChunkWriter<'a> {
    out: &'a mut dyn Write,
    held: Vec<u8>,
}

impl Write for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES_MAX - self.held.len());
        self.held.extend_from_slice(&bytes[..count]);
        if self.held.len() == PIECE_BYTES_MAX {
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

struct ChunkReader<'a> {
    input: &'a mut dyn Read,
    /// Bytes left of the current chunk.
    left: usize,
    /// Set at the end: whether the stream was complete.
    end: Option<bool>,
}

impl Read for ChunkReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.end.is_some() || buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length);
            if length == END {
                self.end = Some(true);
                return Ok(0);
            }
            if length == BROKEN {
                self.end = Some(false);
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let length = usize::try_from(length).ok().filter(|length| *length <= PIECE_BYTES_MAX);
            self.left = length.ok_or(io::ErrorKind::InvalidData)?;
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

    const READY: &[u8] = b"\x10\0\0\0{\"kind\":\"ready\"}";

    fn read(stream: &[u8]) -> (io::Result<Report>, Vec<u8>) {
        let mut heard = Vec::new();
        let told = take(&mut &stream[..], |input| input.read_to_end(&mut heard).map(drop));
        (told, heard)
    }

    #[test]
    fn a_stream_is_read_back_with_its_final_report() {
        let long = vec![7; 3 * PIECE_BYTES_MAX + 5];
        for content in [&long[..], b"", b"short"] {
            let mut stream = Vec::new();
            give(&mut stream, |out| out.write_all(content)).unwrap();
            stream.extend(READY);
            let (told, heard) = read(&stream);
            assert_eq!((told.unwrap(), &heard[..]), (Report::Ready, content));
            // A reader that has enough leaves the rest.
            assert_eq!(take(&mut &stream[..], |_| Ok(())).unwrap(), Report::Ready);
        }
    }

    #[test]
    fn an_aborted_stream_is_never_complete() {
        let mut stream = Vec::new();
        give(&mut stream, |out| out.write_all(b"half").and(Err(io::ErrorKind::NotFound.into()))).unwrap_err();
        let failed = b"{\"kind\":\"failed\",\"step\":\"read\",\"message\":\"no\"}";
        let told = [&[failed.len() as u8, 0, 0, 0][..], failed].concat();
        assert!(matches!(read(&[&stream[..], &told].concat()).0.unwrap(), Report::Failed { .. }));
        assert!(read(&[&stream[..], READY].concat()).0.is_err(), "an aborted stream is an error");
        for hostile in
            [&b""[..], b"\x05\0\0\0ab", b"\0\0\xff\0abc", b"\0\0\0\0", b"\0\0\0\0\xff\xff\xff\x0fx"]
        {
            assert!(read(hostile).0.is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn reads_and_writes_time_out() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut timed = TimedSocket::new(&ours, Duration::from_millis(20));
        assert_eq!(timed.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(timed.write(b"x").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
