//! Packets: a length, and that many bytes of numbers and texts.

use std::io::{self, Read, Write};

/// The longest packet that either side may send: OpenSSH's limit.
pub(super) const PACKET_BYTES_MAX: usize = 256 << 10;

/// Answers are sent at this size, even if more requests are waiting.
const ANSWERS_BYTES: usize = 512 << 10;

/// Read from the client at once.
const READ_BYTES: usize = 512 << 10;

/// Received bytes that have not been answered yet.
#[derive(Debug)]
pub(super) struct Inbox<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Inbox<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ_BYTES + PACKET_BYTES_MAX + 4], start: 0, end: 0 }
    }

    /// A complete packet, if there is one.
    pub(super) fn waiting(&mut self) -> io::Result<Option<Fields<'_>>> {
        let held = &self.buffer[self.start..self.end];
        let Some((length, rest)) = held.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > PACKET_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet of an impossible length"));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + 4;
        self.start = from + length;
        Ok(Some(Fields(&self.buffer[from..from + length])))
    }

    /// Waits for more. False at the end of the input.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let count = self.input.read(&mut self.buffer[self.end..])?;
        self.end += count;
        match (count, self.end) {
            (0, 0) => Ok(false),
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(true),
        }
    }
}

/// The request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedPacket;

/// The rest of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn byte(&mut self) -> Result<u8, MalformedPacket> {
        let (first, rest) = self.0.split_first().ok_or(MalformedPacket)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u32, MalformedPacket> {
        let (number, rest) = self.0.split_first_chunk::<4>().ok_or(MalformedPacket)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*number))
    }

    pub(super) fn long(&mut self) -> Result<u64, MalformedPacket> {
        let (number, rest) = self.0.split_first_chunk::<8>().ok_or(MalformedPacket)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*number))
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], MalformedPacket> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length).ok_or(MalformedPacket)?;
        self.0 = rest;
        Ok(text)
    }
}

/// Answers that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    /// The start of the packet that is being written.
    begun: usize,
}

impl Packet {
    pub(super) fn begin(&mut self, kind: u8, id: u32) {
        self.begun = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.push(kind);
        self.number(id);
    }

    /// Writes its length.
    pub(super) fn end(&mut self) {
        let length = u32::try_from(self.bytes.len() - self.begun - 4).expect("answers are bounded");
        self.bytes[self.begun..self.begun + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Removes the packet that was begun.
    pub(super) fn undo(&mut self) {
        self.bytes.truncate(self.begun);
    }

    pub(super) fn number(&mut self, number: u32) {
        self.bytes.extend(number.to_be_bytes());
    }

    pub(super) fn long(&mut self, number: u64) {
        self.bytes.extend(number.to_be_bytes());
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.number(u32::try_from(text.len()).expect("texts are bounded"));
        self.bytes.extend(text);
    }

    /// A text of at most `length` bytes, which `read` writes in place; it returns how many.
    pub(super) fn text_of<E>(
        &mut self,
        length: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let from = self.bytes.len() + 4;
        self.bytes.resize(from + length, 0);
        let count = read(&mut self.bytes[from..])?;
        self.bytes.truncate(from + count);
        let text_in = u32::try_from(count).expect("texts are bounded");
        self.bytes[from - 4..from].copy_from_slice(&text_in.to_be_bytes());
        Ok(count)
    }

    pub(super) fn is_long(&self) -> bool {
        self.bytes.len() >= ANSWERS_BYTES
    }

    pub(super) fn send(&mut self, output: &mut impl Write) -> io::Result<()> {
        output.write_all(&self.bytes)?;
        self.bytes.clear();
        self.begun = 0;
        output.flush()
    }
}
