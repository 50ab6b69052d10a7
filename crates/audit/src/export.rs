//! The lines of an export: JSON, one event per line, the checkpoint last.
//!
//! ```text
//!  {"index":0,"hash":"6e34…"}                        its body was removed by retention
//!  {"index":1,"event":{"at_ms":…,"tenant":"ten…",…}} the event's own bytes, which the tree hashed
//!  {"checkpoint":"burrow-audit/ten…\n2\n…\n"}
//! ```
//!
//! Any tool can read the lines as JSON. The verifier needs the exact bytes of the event, so it takes those between
//! the fixed prefix and the last brace; added white space therefore makes a line invalid.

use crate::EVENT_BYTES_MAX;
use crate::note::NOTE_BYTES_MAX;
use crate::store::Outline;
use crate::tree::Hash;

/// Longest line in bytes: the largest event and its wrapper, or a checkpoint with every character escaped.
pub const LINE_BYTES_MAX: usize = EVENT_BYTES_MAX + 2 * NOTE_BYTES_MAX + 64;

/// One line; the event is not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Event { index: u64, body: &'a [u8] },
    Hash { index: u64, hash: Hash },
    Checkpoint { note: String },
}

/// The error for a line that is not part of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of an audit log export")]
pub struct InvalidLine;

/// Writes the line of one event, including the line break.
pub fn write_outline(outline: &Outline, into: &mut Vec<u8>) {
    match outline {
        Outline::Body { index, bytes } => {
            into.extend(format!("{{\"index\":{index},\"event\":").bytes());
            into.extend(bytes);
            into.extend(b"}\n");
        }
        Outline::Hash { index, hash } => {
            into.extend(format!("{{\"index\":{index},\"hash\":\"{hash}\"}}\n").bytes());
        }
    }
}

/// Writes the last line.
pub fn write_checkpoint(note: &str, into: &mut Vec<u8>) {
    let line = serde_json::json!({ "checkpoint": note });
    into.extend(line.to_string().bytes());
    into.push(b'\n');
}

/// Parses a line, with or without its line break.
pub fn parse_line(line: &[u8]) -> Result<Line<'_>, InvalidLine> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.len() > LINE_BYTES_MAX {
        return Err(InvalidLine);
    }
    if let Some(rest) = line.strip_prefix(b"{\"index\":") {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        let index = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).ok_or(InvalidLine)?;
        if let Some(body) = rest.strip_prefix(b",\"event\":").and_then(|rest| rest.strip_suffix(b"}")) {
            return Ok(Line::Event { index, body });
        }
        let hash = rest.strip_prefix(b",\"hash\":\"").and_then(|rest| rest.strip_suffix(b"\"}"));
        let hash = hash.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(Hash::from_hex);
        return Ok(Line::Hash { index, hash: hash.ok_or(InvalidLine)? });
    }
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|_| InvalidLine)?;
    let note = value.get("checkpoint").and_then(|note| note.as_str()).ok_or(InvalidLine)?;
    Ok(Line::Checkpoint { note: note.to_owned() })
}
