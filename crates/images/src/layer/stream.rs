//! The stream of a layer: decompressed and hashed by two threads, and read by the caller's.
//!
//! Pieces are shared, not copied: the decompressor fills one, the hasher and the reader use it, and when both are
//! done it is filled again. Bounded channels keep the three threads within a few pieces of each other. When the
//! reader ends, the others end at their next piece.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::entries::Source;
use crate::{Compression, DiffId, Hasher, ImageError};

/// Large enough to make the cost of passing it on irrelevant, small enough to stay in the processor's cache.
const PIECE_BYTES: usize = 256 * 1024;

/// Pieces between two threads.
const PIECES: usize = 4;

/// All pieces: those in both channels, and one in use by each thread.
const RING: usize = 2 * PIECES + 3;

/// The limit of the windows of zstd streams, as a logarithm: 128 MiB, the limit of the zstd tools.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

type Piece = Arc<Vec<u8>>;

/// Options and limits of a stream.
#[derive(Clone, Copy)]
pub(crate) struct StreamOptions<'a> {
    pub(crate) compression: Compression,
    /// The limit of the uncompressed stream.
    pub(crate) bytes_max: u64,
    pub(crate) cancelled: &'a AtomicBool,
    /// Called with the number of stored bytes read.
    pub(crate) progress: &'a (dyn Fn(u64) + Send + Sync),
}

/// The uncompressed stream, for one reader.
#[derive(Debug)]
pub(crate) struct UncompressedStream {
    pieces: Receiver<Result<Piece, ImageError>>,
    piece: Piece,
    offset: usize,
    /// Bytes of all pieces so far.
    total: u64,
    /// The cause of the `io::Error` that the reader received.
    failure: Option<ImageError>,
    ended: bool,
}

/// Runs `read` on the uncompressed stream, reads the rest of it, and returns the digest of all of it.
pub(crate) fn digest_while<T>(
    stored: impl Read + Send,
    options: StreamOptions<'_>,
    read: impl FnOnce(&mut UncompressedStream) -> Result<T, ImageError>,
) -> Result<(T, DiffId, u64), ImageError> {
    std::thread::scope(|scope| {
        let (to_reader, pieces) = sync_channel(PIECES);
        let (to_hasher, hashed) = sync_channel::<Piece>(PIECES);
        let start = |error| ImageError::Io { step: "start", what: "a thread".to_owned(), source: error };
        std::thread::Builder::new()
            .name("layer-unpack".to_owned())
            .spawn_scoped(scope, move || decompress(stored, options, &to_reader, &to_hasher))
            .map_err(start)?;
        let hasher = std::thread::Builder::new()
            .name("layer-digest".to_owned())
            .spawn_scoped(scope, move || {
                let mut hasher = Hasher::default();
                hashed.iter().for_each(|piece| hasher.update(&piece));
                hasher.finish()
            })
            .map_err(start)?;
        let (piece, failure) = (Arc::new(Vec::new()), None);
        let mut stream = UncompressedStream { pieces, piece, offset: 0, total: 0, failure, ended: false };
        let result = read(&mut stream).and_then(|value| {
            stream.drain()?;
            Ok(value)
        });
        let (failure, total) = (stream.failure.take(), stream.total);
        // Ends the decompressor, if it has not ended already, and with it the hasher.
        drop(stream);
        let digest = hasher.join().expect("hashing does not panic");
        match (failure, result) {
            // The reader only saw that its stream ended.
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(error),
            (None, Ok(value)) => Ok((value, DiffId(digest), total)),
        }
    })
}

fn decompress(
    stored: impl Read + Send,
    options: StreamOptions<'_>,
    to_reader: &SyncSender<Result<Piece, ImageError>>,
    to_hasher: &SyncSender<Piece>,
) {
    let stored = CountingReader { inner: stored, count: 0, progress: options.progress };
    let result = match open(stored, options.compression) {
        Ok(mut stream) => pump(&mut *stream, options, to_reader, to_hasher),
        Err(error) => Err(broken(error)),
    };
    if let Err(error) = result {
        // Ignored if the reader has ended.
        let _ = to_reader.send(Err(error));
    }
}

fn pump(
    stream: &mut dyn Read,
    options: StreamOptions<'_>,
    to_reader: &SyncSender<Result<Piece, ImageError>>,
    to_hasher: &SyncSender<Piece>,
) -> Result<(), ImageError> {
    let mut ring: Vec<Piece> = Vec::with_capacity(RING);
    let mut total = 0u64;
    for index in 0usize.. {
        if options.cancelled.load(Ordering::Relaxed) {
            return Err(ImageError::Cancelled);
        }
        if ring.len() <= index % RING {
            ring.push(Arc::new(vec![0; PIECE_BYTES]));
        }
        let slot = &mut ring[index % RING];
        if Arc::get_mut(slot).is_none() {
            *slot = Arc::new(vec![0; PIECE_BYTES]);
        }
        let buffer = Arc::get_mut(slot).expect("it has no other owner");
        buffer.resize(PIECE_BYTES, 0);
        let count = fill(stream, buffer).map_err(broken)?;
        if count == 0 {
            return Ok(());
        }
        buffer.truncate(count);
        total += count as u64;
        if total > options.bytes_max {
            let what = "the uncompressed layer".to_owned();
            return Err(ImageError::TooLarge { what, limit: options.bytes_max, unit: "bytes" });
        }
        let piece = Arc::clone(slot);
        // A thread that has ended early reports its own error.
        if to_hasher.send(Arc::clone(&piece)).is_err() || to_reader.send(Ok(piece)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Fills the buffer, or as much of it as there is data.
fn fill(stream: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Decompresses a stream.
pub(crate) fn open<'a>(
    stored: impl Read + Send + 'a,
    compression: Compression,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(stored),
        Compression::Gzip => {
            let buffered = io::BufReader::with_capacity(PIECE_BYTES, stored);
            // Parallel compressors write several members in sequence.
            Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
        }
        Compression::Zstd => {
            let buffered = io::BufReader::with_capacity(PIECE_BYTES, stored);
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}

fn broken(source: io::Error) -> ImageError {
    ImageError::Io { step: "read", what: "the layer".to_owned(), source }
}

/// Counts the bytes read.
struct CountingReader<'a, R> {
    inner: R,
    count: u64,
    progress: &'a (dyn Fn(u64) + Send + Sync),
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        (self.progress)(self.count);
        Ok(count)
    }
}

impl UncompressedStream {
    /// Reads to the end: the bytes after an archive are padding, but belong to the digest.
    fn drain(&mut self) -> Result<(), ImageError> {
        loop {
            let count = self.fill_buf().map_err(broken)?.len();
            if count == 0 {
                return Ok(());
            }
            self.consume(count);
        }
    }
}

impl Read for UncompressedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for UncompressedStream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.offset == self.piece.len() && !self.ended {
            match self.pieces.recv() {
                Ok(Ok(piece)) => {
                    self.total += piece.len() as u64;
                    self.piece = piece;
                    self.offset = 0;
                }
                Ok(Err(error)) => {
                    self.ended = true;
                    self.failure = Some(error);
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Err(_) => self.ended = true,
            }
        }
        Ok(&self.piece[self.offset..])
    }

    fn consume(&mut self, count: usize) {
        self.offset += count;
    }
}

impl Source for &mut UncompressedStream {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn options(compression: Compression, bytes_max: u64, cancelled: &AtomicBool) -> StreamOptions<'_> {
        StreamOptions { compression, bytes_max, cancelled, progress: &|_| {} }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_compression_gives_the_same_bytes_and_digest() {
        let bytes: Vec<u8> = (0..3_000_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let two_members = [gzip(&bytes[..1000]), gzip(&bytes[1000..])].concat();
        let stored = [
            (Compression::None, bytes.clone()),
            (Compression::Gzip, two_members),
            (Compression::Zstd, zstd::encode_all(&bytes[..], 1).unwrap()),
        ];
        for (compression, stored) in stored {
            assert_eq!(Compression::detect(&stored), compression);
            let cancelled = AtomicBool::new(false);
            let options = options(compression, u64::MAX, &cancelled);
            let ((), digest, total) = digest_while(&stored[..], options, |stream| {
                // Bytes that are not read count as well.
                let mut start = vec![0; 700_001];
                stream.read_exact(&mut start).unwrap();
                assert_eq!(start, bytes[..700_001]);
                Ok(())
            })
            .unwrap();
            assert_eq!(digest.0, crate::Digest::of(&bytes));
            assert_eq!(total, bytes.len() as u64);
        }
    }

    #[test]
    fn a_stream_larger_than_the_limit_is_refused() {
        let bomb = gzip(&vec![0; 50_000_000]);
        let cancelled = AtomicBool::new(false);
        let options = options(Compression::Gzip, 10_000_000, &cancelled);
        let error = digest_while(&bomb[..], options, |_| Ok(())).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { limit: 10_000_000, .. }), "{error}");
    }

    #[test]
    fn invalid_compression_and_cancellation_end_the_stream() {
        let mut cut = gzip(&vec![7; 1_000_000]);
        cut.truncate(cut.len() / 2);
        let cancelled = AtomicBool::new(false);
        let gzip = options(Compression::Gzip, u64::MAX, &cancelled);
        assert!(matches!(digest_while(&cut[..], gzip, |_| Ok(())), Err(ImageError::Io { .. })));
        let zstd = options(Compression::Zstd, u64::MAX, &cancelled);
        assert!(digest_while(&b"no frame at all"[..], zstd, |_| Ok(())).is_err());
        cancelled.store(true, Ordering::Relaxed);
        let plain = options(Compression::None, u64::MAX, &cancelled);
        assert!(matches!(digest_while(&cut[..], plain, |_| Ok(())), Err(ImageError::Cancelled)));
    }
}
