//! The bytes of files as content of answers: pictures as pictures, text as text, other bytes as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::results::with_verbatim;

/// Larger pictures are not shown, because clients limit the size of an answer.
pub(crate) const PICTURE_BYTES_MAX: u64 = 1 << 20;

/// The longest incomplete character at the beginning of a part of a text.
const CONTINUATION_BYTES_MAX: usize = 3;

/// The media type of a picture, by its first bytes: one of those that models accept.
pub(crate) fn picture_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// A picture, after its summary.
pub(crate) fn picture(summary: String, bytes: &[u8], media_type: &str) -> CallToolResult {
    let picture = ContentBlock::image(STANDARD.encode(bytes), media_type);
    CallToolResult::success(vec![ContentBlock::text(summary), picture])
}

/// A part of a file, after its summary: text unchanged, other bytes as an embedded resource. `from_start` says whether it is
/// the beginning; other parts may begin within a character.
pub(crate) fn part(summary: String, bytes: Vec<u8>, from_start: bool, uri: &str) -> CallToolResult {
    match text(bytes, from_start) {
        Ok(text) => with_verbatim(summary, text),
        Err(bytes) => {
            let blob = ResourceContents::blob(STANDARD.encode(bytes), uri);
            CallToolResult::success(vec![
                ContentBlock::text(format!("{summary}\nnot text: the bytes follow as a resource, in base64")),
                ContentBlock::resource(blob),
            ])
        }
    }
}

fn text(bytes: Vec<u8>, from_start: bool) -> Result<String, Vec<u8>> {
    let continuation = bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
    let skipped = if from_start { 0 } else { continuation.min(CONTINUATION_BYTES_MAX) };
    match std::str::from_utf8(&bytes[skipped..]) {
        Ok(text) if !text.contains('\0') => Ok(format!("{}{text}", "\u{fffd}".repeat(skipped))),
        Ok(_) | Err(_) => Err(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_returned_unchanged_and_other_bytes_as_a_resource() {
        for (bytes, from_start, is_text) in [
            (&b"abc\n"[..], true, true),
            ("aé漢🦊".as_bytes(), true, true),
            (b"", true, true),
            (b"a\0b", true, false),
            (b"caf\xe9", true, false),
            // A part that begins within a character.
            (&"🦊x".as_bytes()[1..], false, true),
            (&"🦊x".as_bytes()[1..], true, false),
            (b"\x80\x80\x80\x80x", false, false),
        ] {
            let answer =
                serde_json::to_value(part("s".to_owned(), bytes.to_vec(), from_start, "u:")).unwrap();
            assert_eq!(answer["content"][1]["type"] != "resource", is_text, "{bytes:?}: {answer}");
        }
        let answer = serde_json::to_value(part("s".to_owned(), vec![0, 1], true, "u:")).unwrap();
        assert_eq!(answer["content"][1]["resource"]["blob"], "AAE=");
    }

    #[test]
    fn pictures_are_recognised_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"<svg", None),
            (b"", None),
        ] {
            assert_eq!(picture_type(bytes), expected);
        }
    }
}
