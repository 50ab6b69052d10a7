//! The output log of one exec: a ring of bytes, each with an offset, and the position of each reader.
//!
//! ```text
//!   offset   start                     reader                      end
//!   ───────────┼──────────────────────────┼─────────────────────────┼──►
//!     gone     │ held, as pieces of standard output and error       │ room
//! ```
//!
//! Invariants: at most `limit` bytes and `pieces_max` pieces are held; a byte that a lossless reader has not received
//! is never dropped. Instead, [`Log::room`] becomes 0 and the pump stops reading the process's pipe.

use std::collections::VecDeque;

use bytes::{BufMut, BytesMut};

use crate::protocol::{FRAME_BYTES_MAX, Frame, FrameKind, ReadMode};

/// A smaller ring could not hold what one read of a pipe returns.
const LIMIT_MIN: usize = 4096;

/// More output than this belongs in a file.
const LIMIT_MAX: usize = 16 << 20;

/// First allocation: most execs print less.
const FIRST_BYTES: usize = 1024;

/// The offset in front of output bytes.
const OFFSET_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// The handle of a registered reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReaderId(u64);

#[derive(Debug)]
pub(super) struct Log {
    bytes: VecDeque<u8>,
    pieces: VecDeque<Piece>,
    limit: usize,
    start: u64,
    dropped: u64,
    /// One past the highest byte that any reader has received.
    had: u64,
    readers: Vec<Reader>,
    next_reader: u64,
}

/// Bytes of one stream, up to but not including `end`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    stream: Stream,
    end: u64,
}

#[derive(Debug)]
struct Reader {
    id: u64,
    offset: u64,
    mode: ReadMode,
}

impl Log {
    pub(super) fn new(ring_bytes: u32) -> Self {
        Self {
            bytes: VecDeque::new(),
            pieces: VecDeque::new(),
            limit: (ring_bytes as usize).clamp(LIMIT_MIN, LIMIT_MAX),
            start: 0,
            dropped: 0,
            had: 0,
            readers: Vec::new(),
            next_reader: 0,
        }
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes of heap in use, for the limit on what ended execs may keep.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    pub(super) fn add_reader(&mut self, offset: u64, mode: ReadMode) -> ReaderId {
        let id = self.next_reader;
        self.next_reader += 1;
        self.readers.push(Reader { id, offset, mode });
        ReaderId(id)
    }

    pub(super) fn remove_reader(&mut self, reader: ReaderId) {
        self.readers.retain(|other| other.id != reader.0);
    }

    pub(super) fn has_readers(&self) -> bool {
        !self.readers.is_empty()
    }

    /// How many bytes may be pushed without dropping any that a lossless reader has not received.
    pub(super) fn room(&self) -> usize {
        let lossless = self.readers.iter().filter(|reader| reader.mode == ReadMode::Lossless);
        let Some(oldest) = lossless.map(|reader| reader.offset.max(self.start)).min() else {
            return self.limit.max(LIMIT_MIN);
        };
        let unread = usize::try_from(self.end().saturating_sub(oldest)).unwrap_or(usize::MAX);
        // Alternating single bytes would create more pieces than bytes are worth; too many pieces count as a full
        // ring.
        let first_unread = self.pieces.partition_point(|piece| piece.end <= oldest);
        if self.pieces.len() - first_unread >= self.pieces_max() {
            return 0;
        }
        self.limit.saturating_sub(unread)
    }

    /// Appends, and drops the oldest bytes beyond the limit.
    pub(super) fn push(&mut self, stream: Stream, chunk: &[u8]) {
        if chunk.is_empty() {
            return;
        }
        let skipped = chunk.len().saturating_sub(self.limit);
        if skipped > 0 {
            self.drop_front(self.bytes.len());
            self.count_dropped(self.start, self.start + skipped as u64);
            self.start += skipped as u64;
        }
        let chunk = &chunk[skipped..];
        if chunk.is_empty() {
            return;
        }
        self.drop_front((self.bytes.len() + chunk.len()).saturating_sub(self.limit));
        self.grow(self.bytes.len() + chunk.len());
        self.bytes.extend(chunk);
        let end = self.end();
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream => last.end = end,
            Some(_) | None => self.pieces.push_back(Piece { stream, end }),
        }
        if self.pieces.len() > self.pieces_max() {
            let oldest = self.pieces[0].end;
            self.drop_front(usize::try_from(oldest - self.start).unwrap_or(usize::MAX));
        }
    }

    /// Appends up to `budget` bytes, from `offset` or from the oldest byte held, to `out` as frames, and moves the
    /// reader. Returns the offset at which to continue.
    pub(super) fn take(&mut self, reader: ReaderId, offset: u64, budget: usize, out: &mut BytesMut) -> u64 {
        let mut next = offset.max(self.start);
        let stop = self.end().min(next.saturating_add(budget as u64));
        let mut index = self.pieces.partition_point(|piece| piece.end <= next);
        while next < stop {
            let Some(piece) = self.pieces.get(index) else { break };
            let until = piece.end.min(stop).min(next + (FRAME_BYTES_MAX - OFFSET_BYTES) as u64);
            self.put_frame(piece.stream, next, until, out);
            next = until;
            if next == piece.end {
                index += 1;
            }
        }
        self.had = self.had.max(next);
        if let Some(reader) = self.readers.iter_mut().find(|other| other.id == reader.0) {
            reader.offset = next;
        }
        next
    }

    /// Frees the capacity that the content does not need.
    pub(super) fn trim(&mut self) {
        self.bytes.shrink_to_fit();
        self.pieces.shrink_to_fit();
    }

    /// Drops the content; offsets continue. Later output passes through without being kept.
    pub(super) fn clear(&mut self) {
        self.drop_front(self.bytes.len());
        self.trim();
        self.limit = 0;
    }

    fn put_frame(&self, stream: Stream, from: u64, until: u64, out: &mut BytesMut) {
        let kind = match stream {
            Stream::Stdout => FrameKind::Stdout,
            Stream::Stderr => FrameKind::Stderr,
        };
        let at = usize::try_from(from - self.start).expect("an offset in the ring fits the ring");
        let length = usize::try_from(until - from).expect("a piece fits the ring");
        out.reserve(length + OFFSET_BYTES + crate::protocol::HEADER_BYTES);
        out.put_slice(&Frame::header(kind, length + OFFSET_BYTES));
        out.put_u64_le(from);
        let (front, back) = self.bytes.as_slices();
        if at < front.len() {
            let in_front = length.min(front.len() - at);
            out.put_slice(&front[at..at + in_front]);
            out.put_slice(&back[..length - in_front]);
        } else {
            out.put_slice(&back[at - front.len()..at - front.len() + length]);
        }
    }

    fn drop_front(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let new_start = self.start + count as u64;
        self.count_dropped(self.start, new_start);
        self.bytes.drain(..count);
        self.start = new_start;
        while self.pieces.front().is_some_and(|piece| piece.end <= new_start) {
            self.pieces.pop_front();
        }
    }

    fn count_dropped(&mut self, from: u64, to: u64) {
        self.dropped += to.saturating_sub(from.max(self.had));
    }

    /// Doubles the capacity, but never beyond the limit; `VecDeque` alone would allocate up to twice as much.
    fn grow(&mut self, needed: usize) {
        if needed > self.bytes.capacity() {
            let capacity =
                (self.bytes.capacity() * 2).clamp(FIRST_BYTES, self.limit.max(FIRST_BYTES)).max(needed);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    fn pieces_max(&self) -> usize {
        (self.limit / 64).max(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut bytes: BytesMut) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = Frame::decode(&mut bytes).unwrap() {
            frames.push(frame);
        }
        assert!(bytes.is_empty());
        frames
    }

    fn text(log: &mut Log, reader: ReaderId, offset: u64) -> String {
        let mut out = BytesMut::new();
        log.take(reader, offset, usize::MAX, &mut out);
        let mut text = String::new();
        for frame in frames(out) {
            let (name, at, bytes) = match frame {
                Frame::Stdout { offset, bytes } => ('o', offset, bytes),
                Frame::Stderr { offset, bytes } => ('e', offset, bytes),
                Frame::Control(_) | Frame::Bytes(_) | Frame::End => panic!("not output"),
            };
            text.push_str(&format!("{name}{at}:{} ", String::from_utf8_lossy(&bytes)));
        }
        text
    }

    #[test]
    fn both_streams_share_one_sequence_of_offsets() {
        let mut log = Log::new(LIMIT_MIN as u32);
        log.push(Stream::Stdout, b"ab");
        log.push(Stream::Stdout, b"c");
        log.push(Stream::Stderr, b"oops");
        log.push(Stream::Stdout, b"d");
        let reader = log.add_reader(0, ReadMode::Lossy);
        assert_eq!(text(&mut log, reader, 0), "o0:abc e3:oops o7:d ");
        assert_eq!(text(&mut log, reader, 5), "e5:ps o7:d ");
        assert_eq!(text(&mut log, reader, 8), "");
    }

    #[test]
    fn overwritten_bytes_are_counted_once() {
        let mut log = Log::new(LIMIT_MIN as u32);
        let reader = log.add_reader(0, ReadMode::Lossy);
        log.push(Stream::Stdout, &[b'x'; 100]);
        text(&mut log, reader, 0);
        log.push(Stream::Stdout, &vec![b'y'; 2 * LIMIT_MIN]);
        assert_eq!((log.start(), log.end()), (100 + LIMIT_MIN as u64, 100 + 2 * LIMIT_MIN as u64));
        assert_eq!(log.dropped(), LIMIT_MIN as u64, "the reader had received the first 100");
        assert!(text(&mut log, reader, 100).starts_with(&format!("o{}:y", log.start())));
        assert!(log.bytes.capacity() <= LIMIT_MIN);
    }

    #[test]
    fn a_lossless_reader_leaves_no_room_until_it_reads() {
        let mut log = Log::new(LIMIT_MIN as u32);
        let reader = log.add_reader(0, ReadMode::Lossless);
        log.push(Stream::Stdout, &vec![b'x'; LIMIT_MIN]);
        assert_eq!(log.room(), 0);
        log.take(reader, 0, 10, &mut BytesMut::new());
        assert_eq!(log.room(), 10);
        log.remove_reader(reader);
        assert_eq!(log.room(), LIMIT_MIN);
    }

    #[test]
    fn alternating_single_bytes_cannot_make_the_index_larger_than_the_ring() {
        let mut log = Log::new(1 << 20);
        for _ in 0..200_000 {
            log.push(Stream::Stdout, b"o");
            log.push(Stream::Stderr, b"e");
        }
        assert!(log.pieces.len() <= log.pieces_max());
        assert_eq!(log.end(), 400_000);
        assert_eq!(log.bytes.len(), log.pieces.len());
        let reader = log.add_reader(log.start(), ReadMode::Lossless);
        assert_eq!(log.room(), 0);
        log.take(reader, log.end(), 1, &mut BytesMut::new());
        assert!(log.room() > 0);
    }

    #[test]
    fn a_cleared_log_keeps_its_offsets_but_no_content() {
        let mut log = Log::new(LIMIT_MIN as u32);
        log.push(Stream::Stdout, b"hello");
        log.clear();
        log.push(Stream::Stdout, b"later");
        assert_eq!((log.start(), log.end(), log.held_bytes()), (10, 10, 0));
    }
}
