//! Files with holes, in the four forms that versions of GNU tar have written.

use std::io;

use ::tar::{GnuExtSparseHeader, Header};

use super::pax::number;
use super::{BLOCK_BYTES, Entries, Refusal, Source};

/// Pieces of one file; a hostile archive could otherwise cause one write per 24 bytes of its own.
const PIECES_MAX: usize = 1 << 20;

/// The map before the content of a PAX 1.0 file.
const MAP_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The positions of the content. Pieces are in order and do not overlap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SparseMap {
    /// Offset and length.
    pub(crate) pieces: Vec<(u64, u64)>,
    /// The size of the file, with its holes.
    pub(crate) size: u64,
}

/// The PAX records that describe a sparse file.
#[derive(Debug, Default)]
pub(super) struct PaxSparse {
    pub(super) name: Option<Vec<u8>>,
    major: Option<u64>,
    minor: Option<u64>,
    real_size: Option<u64>,
    /// Forms 0.0 and 0.1: offsets and lengths alternately.
    numbers: Vec<u64>,
}

impl PaxSparse {
    pub(super) fn is_some(&self) -> bool {
        self.major.is_some() || self.minor.is_some() || self.real_size.is_some() || !self.numbers.is_empty()
    }

    pub(super) fn note(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.major = Some(number(value)?),
            b"minor" => self.minor = Some(number(value)?),
            b"size" | b"realsize" => self.real_size = Some(number(value)?),
            b"offset" | b"numbytes" => {
                // Alternately, beginning with an offset.
                if (key == b"offset") != self.numbers.len().is_multiple_of(2) {
                    return Err(BROKEN);
                }
                self.push(value)?;
            }
            b"map" => {
                for part in value.split(|&byte| byte == b',').filter(|_| !value.is_empty()) {
                    self.push(part)?;
                }
            }
            // The number of pieces, which follows from the list.
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.numbers.len() >= 2 * PIECES_MAX {
            return Err(Refusal::Because("a file has too many holes"));
        }
        self.numbers.push(number(value)?);
        Ok(())
    }
}

const BROKEN: Refusal = Refusal::Because("the map of its holes is malformed");

impl<S: Source> Entries<S> {
    /// The oldest form: four pieces in the header, further ones in blocks after it.
    pub(super) fn gnu_sparse(&mut self, header: &Header, stored: u64) -> Result<SparseMap, Refusal> {
        let gnu = header.as_gnu().ok_or(BROKEN)?;
        let broken = |_: io::Error| BROKEN;
        let mut pieces = Vec::new();
        let take = |pieces: &mut Vec<(u64, u64)>, part: &::tar::GnuSparseHeader| {
            if !part.is_empty() {
                pieces.push((part.offset().map_err(broken)?, part.length().map_err(broken)?));
            }
            Ok::<_, Refusal>(())
        };
        for part in &gnu.sparse {
            take(&mut pieces, part)?;
        }
        let mut more = gnu.is_extended();
        while more {
            let mut extension = GnuExtSparseHeader::new();
            let mut block = [0; BLOCK_BYTES];
            if !self.block(&mut block)? || pieces.len() > PIECES_MAX {
                return Err(BROKEN);
            }
            extension.as_mut_bytes().copy_from_slice(&block);
            for part in &extension.sparse {
                take(&mut pieces, part)?;
            }
            more = extension.is_extended();
        }
        check(pieces, gnu.real_size().map_err(broken)?, stored)
    }

    /// The forms in PAX records. Returns how much of the stored content is left.
    pub(super) fn pax_sparse(&mut self, pax: &PaxSparse, stored: u64) -> Result<(SparseMap, u64), Refusal> {
        let size = pax.real_size.ok_or(BROKEN)?;
        let pairs = |numbers: &[u64]| match numbers.len().is_multiple_of(2) {
            true => Ok(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()),
            false => Err(BROKEN),
        };
        match (pax.major, pax.minor) {
            (None, None) | (Some(0), Some(0 | 1)) => Ok((check(pairs(&pax.numbers)?, size, stored)?, stored)),
            (Some(1), Some(0)) => {
                let (numbers, map_bytes) = self.pax_map(stored)?;
                let rest = stored.checked_sub(map_bytes).ok_or(BROKEN)?;
                Ok((check(pairs(&numbers)?, size, rest)?, rest))
            }
            (_, _) => Err(Refusal::Because("it is in an unknown sparse format")),
        }
    }

    /// Form 1.0: the map is before the content: decimal numbers, one per line, padded to a block.
    fn pax_map(&mut self, stored: u64) -> Result<(Vec<u64>, u64), Refusal> {
        let mut numbers = Vec::new();
        let mut count = None;
        let mut digits = Vec::new();
        let mut taken = 0;
        while count.is_none_or(|count| numbers.len() < count) {
            let mut block = [0; BLOCK_BYTES];
            taken += BLOCK_BYTES as u64;
            if taken > stored.min(MAP_BYTES_MAX) || !self.block(&mut block)? {
                return Err(BROKEN);
            }
            for byte in block {
                match byte {
                    b'\n' => {
                        let value: u64 = number(&std::mem::take(&mut digits))?;
                        match count {
                            None => {
                                let pieces = usize::try_from(value).ok().filter(|n| *n <= PIECES_MAX);
                                count = Some(2 * pieces.ok_or(BROKEN)?);
                            }
                            Some(count) if numbers.len() < count => numbers.push(value),
                            Some(_) => return Err(BROKEN),
                        }
                    }
                    // The rest of the last block.
                    0 => {}
                    digit if digits.len() < 20 => digits.push(digit),
                    _ => return Err(BROKEN),
                }
            }
        }
        Ok((numbers, taken))
    }
}

fn check(pieces: Vec<(u64, u64)>, size: u64, stored: u64) -> Result<SparseMap, Refusal> {
    let mut end = 0;
    let mut sum = 0u64;
    for &(offset, length) in &pieces {
        if offset < end {
            return Err(BROKEN);
        }
        end = offset.checked_add(length).ok_or(BROKEN)?;
        sum = sum.checked_add(length).ok_or(BROKEN)?;
    }
    match end <= size && sum == stored {
        true => Ok(SparseMap { pieces, size }),
        false => Err(BROKEN),
    }
}
