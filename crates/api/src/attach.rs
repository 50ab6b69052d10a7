//! The WebSocket of `GET /v1/sandboxes/{sandbox}/execs/{exec}/attach`.
//!
//! Client to server: binary messages are standard input; text messages are [`AttachClientMessage`] as JSON.
//! Server to client: text messages are [`AttachServerMessage`] as JSON; binary messages are output: one byte for the
//! stream (1 = stdout, 2 = stderr), the offset of the first byte as 8 bytes big-endian, then the bytes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ErrorDetail, Exec, OutputStream};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AttachClientMessage {
    Resize { columns: u16, rows: u16 },
    Signal { signal: String },
    CloseStdin,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AttachServerMessage {
    /// Bytes `from..to` have been dropped from the ring.
    Gap { from: u64, to: u64 },
    /// The exec has ended and all output has been sent. Last message.
    Exit { exec: Box<Exec> },
    /// The stream was interrupted: attach again from the last offset. Last message.
    Error { error: ErrorDetail },
}

/// The header of an output message: stream byte and offset.
pub const OUTPUT_HEADER_BYTES: usize = 9;

pub fn encode_output(stream: OutputStream, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(OUTPUT_HEADER_BYTES + bytes.len());
    message.push(match stream {
        OutputStream::Stdout => 1,
        OutputStream::Stderr => 2,
    });
    message.extend_from_slice(&offset.to_be_bytes());
    message.extend_from_slice(bytes);
    message
}

/// `None` if the message is not an output message.
pub fn decode_output(message: &[u8]) -> Option<(OutputStream, u64, &[u8])> {
    let (header, bytes) = message.split_at_checked(OUTPUT_HEADER_BYTES)?;
    let stream = match header[0] {
        1 => OutputStream::Stdout,
        2 => OutputStream::Stderr,
        _ => return None,
    };
    let offset = u64::from_be_bytes(header[1..].try_into().ok()?);
    Some((stream, offset, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_messages_survive_encoding_and_decoding() {
        let message = encode_output(OutputStream::Stderr, 1 << 40, b"oops");
        assert_eq!(decode_output(&message), Some((OutputStream::Stderr, 1 << 40, &b"oops"[..])));
        assert_eq!(decode_output(&[1, 2, 3]), None);
        assert_eq!(decode_output(&[7; 20]), None);
    }
}
