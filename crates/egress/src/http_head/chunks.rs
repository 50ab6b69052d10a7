//! Finds the end of a chunked body.

use super::HeadError;

/// Longest chunk size line, including its extension, and longest trailers in total.
const LINE_MAX: usize = 512;
const TRAILERS_MAX: usize = 8 * 1024;

/// 16 hexadecimal digits fill a `u64`; no chunk needs half of that.
const SIZE_DIGITS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Chunks {
    state: State,
    /// Length of the current line, or of all trailers.
    length: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Size { size: u64, digits: usize },
    Extension { size: u64 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, length: 0 }
    }

    /// Returns how many of `bytes` belong to the body, and whether it ends there.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Result<(usize, bool), HeadError> {
        let mut at = 0;
        while at < bytes.len() {
            if let State::Data { left } = &mut self.state {
                let have = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX).min(*left);
                *left -= have;
                at += usize::try_from(have).unwrap_or(usize::MAX);
                if *left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.state = self.step(bytes[at])?;
            at += 1;
            if matches!(self.state, State::Done) {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn step(&mut self, byte: u8) -> Result<State, HeadError> {
        use State::*;
        self.length += 1;
        let text = byte == b'\t' || (b' '..0x7f).contains(&byte) || byte >= 0x80;
        let next = match (self.state, byte) {
            (Size { size, digits }, b'\r') if digits > 0 => SizeEnd { size },
            (Size { size, digits }, b';') if digits > 0 => Extension { size },
            (Size { size, digits }, _) if digits < SIZE_DIGITS_MAX => {
                let digit = char::from(byte).to_digit(16).ok_or(HeadError::Chunk)?;
                Size { size: size * 16 + u64::from(digit), digits: digits + 1 }
            }
            (Extension { size }, b'\r') => SizeEnd { size },
            (Extension { size }, _) if text && self.length <= LINE_MAX => Extension { size },
            (SizeEnd { size }, b'\n') => {
                self.length = 0;
                if size == 0 { TrailerStart } else { Data { left: size } }
            }
            (DataCr, b'\r') => DataLf,
            (DataLf, b'\n') => {
                self.length = 0;
                Size { size: 0, digits: 0 }
            }
            (TrailerStart, b'\r') => EndLf,
            // A leading blank would be a folded line.
            (TrailerStart, _) if super::head::is_token(byte) && self.length <= TRAILERS_MAX => Trailer,
            (Trailer, b'\r') => TrailerLf,
            (Trailer, _) if text && self.length <= TRAILERS_MAX => Trailer,
            (TrailerLf, b'\n') => TrailerStart,
            (EndLf, b'\n') => Done,
            (
                Size { .. }
                | Extension { .. }
                | SizeEnd { .. }
                | Data { .. }
                | DataCr
                | DataLf
                | TrailerStart
                | Trailer
                | TrailerLf
                | EndLf
                | Done,
                _,
            ) => return Err(HeadError::Chunk),
        };
        Ok(next)
    }
}
