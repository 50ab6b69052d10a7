//! Frames, of which all communication consists.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest payload of a frame. Limits how much one connection makes the other side store.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Length and kind.
pub const HEADER_BYTES: usize = 5;

/// Offset in front of output bytes.
const OFFSET_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    Control = 0,
    Bytes = 1,
    Stdout = 2,
    Stderr = 3,
    End = 4,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The JSON of the message that is expected next.
    Control(Bytes),
    Bytes(Bytes),
    Stdout {
        offset: u64,
        bytes: Bytes,
    },
    Stderr {
        offset: u64,
        bytes: Bytes,
    },
    /// End of the Bytes frames.
    End,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {length} bytes is larger than {FRAME_BYTES_MAX}")]
    TooLarge { length: usize },
    #[error("unknown frame kind {kind}")]
    UnknownKind { kind: u8 },
    #[error("an output frame is shorter than its offset")]
    ShortOutput,
}

impl Frame {
    /// Takes one frame from the start of `buffer`. `None` if more bytes are needed.
    pub fn decode(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        if buffer.len() < HEADER_BYTES {
            return Ok(None);
        }
        let length = u32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
        let kind = buffer[4];
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge { length });
        }
        if kind > FrameKind::End as u8 {
            return Err(FrameError::UnknownKind { kind });
        }
        if buffer.len() < HEADER_BYTES + length {
            return Ok(None);
        }
        buffer.advance(HEADER_BYTES);
        let payload = buffer.split_to(length).freeze();
        match kind {
            0 => Ok(Some(Self::Control(payload))),
            1 => Ok(Some(Self::Bytes(payload))),
            2 => output(payload).map(|(offset, bytes)| Some(Self::Stdout { offset, bytes })),
            3 => output(payload).map(|(offset, bytes)| Some(Self::Stderr { offset, bytes })),
            _ => Ok(Some(Self::End)),
        }
    }

    /// Takes the header of a Bytes frame from the start of `buffer`, and returns the length of its payload. `None` if
    /// more bytes are needed, or if it is another kind of frame, which [`Frame::decode`] takes.
    pub fn take_bytes_header(buffer: &mut BytesMut) -> Result<Option<usize>, FrameError> {
        if buffer.len() < HEADER_BYTES || buffer[4] != FrameKind::Bytes as u8 {
            return Ok(None);
        }
        let length = u32::from_le_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge { length });
        }
        buffer.advance(HEADER_BYTES);
        Ok(Some(length))
    }

    /// Appends the frame to `buffer`. A payload over [`FRAME_BYTES_MAX`] is a bug of the caller, which must split it.
    pub fn encode(&self, buffer: &mut BytesMut) {
        match self {
            Self::Control(bytes) => put(buffer, FrameKind::Control, None, bytes),
            Self::Bytes(bytes) => put(buffer, FrameKind::Bytes, None, bytes),
            Self::Stdout { offset, bytes } => put(buffer, FrameKind::Stdout, Some(*offset), bytes),
            Self::Stderr { offset, bytes } => put(buffer, FrameKind::Stderr, Some(*offset), bytes),
            Self::End => put(buffer, FrameKind::End, None, &[]),
        }
    }

    /// The header alone, for payloads that are sent by other means (`sendfile`).
    pub fn header(kind: FrameKind, length: usize) -> [u8; HEADER_BYTES] {
        assert!(length <= FRAME_BYTES_MAX, "callers split payloads at FRAME_BYTES_MAX");
        let [a, b, c, d] = u32::try_from(length).expect("bounded above").to_le_bytes();
        [a, b, c, d, kind as u8]
    }
}

fn output(mut payload: Bytes) -> Result<(u64, Bytes), FrameError> {
    if payload.len() < OFFSET_BYTES {
        return Err(FrameError::ShortOutput);
    }
    let offset = payload.get_u64_le();
    Ok((offset, payload))
}

fn put(buffer: &mut BytesMut, kind: FrameKind, offset: Option<u64>, bytes: &[u8]) {
    let length = bytes.len() + if offset.is_some() { OFFSET_BYTES } else { 0 };
    buffer.reserve(HEADER_BYTES + length);
    buffer.put_slice(&Frame::header(kind, length));
    if let Some(offset) = offset {
        buffer.put_u64_le(offset);
    }
    buffer.put_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_frame_survives_encoding_and_decoding() {
        let frames = [
            Frame::Control(Bytes::from_static(b"{}")),
            Frame::Bytes(Bytes::from_static(b"\0\xff")),
            Frame::Stdout { offset: 7, bytes: Bytes::from_static(b"out") },
            Frame::Stderr { offset: u64::MAX, bytes: Bytes::new() },
            Frame::End,
        ];
        let mut buffer = BytesMut::new();
        for frame in &frames {
            frame.encode(&mut buffer);
        }
        for frame in &frames {
            assert_eq!(Frame::decode(&mut buffer).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::decode(&mut buffer), Ok(None));
    }

    #[test]
    fn an_excessive_length_is_refused_before_memory_is_allocated() {
        let mut buffer = BytesMut::from(&[0xff, 0xff, 0xff, 0x7f, 1][..]);
        assert_eq!(Frame::decode(&mut buffer), Err(FrameError::TooLarge { length: 0x7fff_ffff }));
        let mut buffer = BytesMut::from(&[0, 0, 0, 0, 9][..]);
        assert_eq!(Frame::decode(&mut buffer), Err(FrameError::UnknownKind { kind: 9 }));
        let mut buffer = BytesMut::from(&[1, 0, 0, 0, 2, 0][..]);
        assert_eq!(Frame::decode(&mut buffer), Err(FrameError::ShortOutput));
    }
}
