//! Frames, the units of a file.
//!
//! ```text
//!  0   kind            1 byte
//!  1   compression     1 byte: 0 none, 1 zstd
//!  2   zero            2 bytes
//!  4   stored length   4 bytes, little endian: bytes that follow
//!  8   raw length      4 bytes, little endian: bytes after decompression
//!  12  zero            4 bytes
//!  16  BLAKE3          32 bytes, of the raw content
//! ```
//!
//! A frame is small enough for RAM, so the RAM that a reader needs does not depend on the size of a file.

use std::io::{self, Read, Write};

use crate::PortableError;

/// The maximum raw length of a frame: four chunks, so that the longest entry of a tree fits.
pub(crate) const RAW_BYTES_MAX: usize = 4 << 20;

pub(crate) const FRAME_HEADER_BYTES: usize = 48;

/// The end of a file, before the hash of all preceding bytes.
pub(crate) const END: [u8; 8] = *b"BRWEXEND";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Header,
    Section,
    Entries,
    Data,
    /// A reference to an earlier chunk. Has no content.
    Again,
    Manifest,
}

impl FrameKind {
    const ALL: [Self; 6] =
        [Self::Header, Self::Section, Self::Entries, Self::Data, Self::Again, Self::Manifest];

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Header => 1,
            Self::Section => 2,
            Self::Entries => 3,
            Self::Data => 4,
            Self::Again => 5,
            Self::Manifest => 6,
        }
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Zstd,
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) compression: Compression,
    pub(crate) stored: u32,
    pub(crate) raw: u32,
    pub(crate) hash: [u8; 32],
}

impl FrameHeader {
    pub(crate) fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0] = self.kind.number();
        bytes[1] = match self.compression {
            Compression::None => 0,
            Compression::Zstd => 1,
        };
        bytes[4..8].copy_from_slice(&self.stored.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.hash);
        bytes
    }

    pub(crate) fn read(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, PortableError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let kind = FrameKind::of(bytes[0]);
        let kind =
            kind.ok_or_else(|| PortableError::damaged(format!("a frame has the unknown kind {}", bytes[0])))?;
        let compression = match bytes[1] {
            0 => Compression::None,
            1 => Compression::Zstd,
            other => {
                return Err(PortableError::damaged(format!("a frame has the unknown compression {other}")));
            }
        };
        if bytes[2..4] != [0; 2] || bytes[12..16] != [0; 4] {
            return Err(PortableError::damaged("a frame's header is not in canonical form"));
        }
        let (stored, raw) = (word(4), word(8));
        if raw as usize > RAW_BYTES_MAX || stored > raw {
            return Err(PortableError::damaged("a frame exceeds the maximum length"));
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[16..48]);
        Ok(Self { kind, compression, stored, raw, hash })
    }

    /// Adds the frame to the hash that identifies the file.
    pub(crate) fn bind(self, root: &mut blake3::Hasher) {
        root.update(&[self.kind.number()]);
        root.update(&self.raw.to_le_bytes());
        root.update(&self.hash);
    }
}

/// Hashes everything that is read or written through it.
#[derive(Debug)]
pub(crate) struct HashingStream<T> {
    pub(crate) inner: T,
    pub(crate) hasher: blake3::Hasher,
    pub(crate) bytes: u64,
}

impl<T> HashingStream<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, hasher: blake3::Hasher::new(), bytes: 0 }
    }
}

impl<R: Read> HashingStream<R> {
    /// Fills the buffer. A file that ends before is truncated.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<(), PortableError> {
        fill(&mut self.inner, buffer)?;
        self.hasher.update(buffer);
        self.bytes += buffer.len() as u64;
        Ok(())
    }
}

impl<W: Write> HashingStream<W> {
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), PortableError> {
        self.inner.write_all(bytes).map_err(|source| PortableError::Write { source })?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

pub(crate) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<(), PortableError> {
    input.read_exact(buffer).map_err(|source| {
        let ended = source.kind() == io::ErrorKind::UnexpectedEof;
        if ended { PortableError::Truncated } else { PortableError::Read { source } }
    })
}
