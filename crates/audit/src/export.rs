//! The lines of an export: JSON, one event each, the checkpoint last.
//!
//! ```text
//!  {"index":0,"hash":"6e34…"}                        its body was removed by retention
//!  {"index":1,"event":{"at_ms":…,"tenant":"ten…",…}} the event's own bytes, which the tree hashed
//!  {"checkpoint":"burrow-audit/ten…\n2\n…\n"}
//! ```
//!
//! Any tool reads them as JSON. The verifier needs the event's very bytes, so it takes them as they stand between the
//! fixed beginning and the last brace: white space added in between makes a line that is no longer the one that was written.

use crate::EVENT_BYTES_MAX;
use crate::note::NOTE_BYTES_MAX;
use crate::store::Outline;
use crate::tree::Hash;

/// Bytes of a line: the largest event and what is around it, or a checkpoint with every character escaped.
pub const LINE_BYTES_MAX: usize = EVENT_BYTES_MAX + 2 * NOTE_BYTES_MAX + 64;

/// One line, still as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Event { index: u64, body: &'a [u8] },
    Hash { index: u64, hash: Hash },
    Checkpoint { note: String },
}

/// What is no line of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no line of an export of the audit log")]
pub struct NoLine;

/// The line of one event, with its line break.
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

/// The last line.
pub fn write_checkpoint(note: &str, into: &mut Vec<u8>) {
    let line = serde_json::json!({ "checkpoint": note });
    into.extend(line.to_string().bytes());
    into.push(b'\n');
}

/// Reads a line, with or without its line break.
pub fn parse_line(line: &[u8]) -> Result<Line<'_>, NoLine> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.len() > LINE_BYTES_MAX {
        return Err(NoLine);
    }
    if let Some(rest) = line.strip_prefix(b"{\"index\":") {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = rest.split_at(digits);
        let index = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()).ok_or(NoLine)?;
        if let Some(body) = rest.strip_prefix(b",\"event\":").and_then(|rest| rest.strip_suffix(b"}")) {
            return Ok(Line::Event { index, body });
        }
        let hash = rest.strip_prefix(b",\"hash\":\"").and_then(|rest| rest.strip_suffix(b"\"}"));
        let hash = hash.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(Hash::from_hex);
        return Ok(Line::Hash { index, hash: hash.ok_or(NoLine)? });
    }
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|_| NoLine)?;
    let note = value.get("checkpoint").and_then(|note| note.as_str()).ok_or(NoLine)?;
    Ok(Line::Checkpoint { note: note.to_owned() })
}
