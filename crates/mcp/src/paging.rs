//! Cuts long texts to what a model can use, and says how to read the rest.

/// Bytes of one answer, unless the model asks for another number: about 4,000 tokens.
pub(crate) const PAGE_BYTES: usize = 16_000;
pub(crate) const PAGE_BYTES_MAX: usize = 100_000;

/// The number of bytes that a model requested for, within bounds.
pub(crate) fn limit(requested: Option<usize>) -> usize {
    requested.unwrap_or(PAGE_BYTES).clamp(1, PAGE_BYTES_MAX)
}

/// One page of a text, from `offset` on. The rest is counted, with the offset where it begins.
pub(crate) fn page(text: &str, offset: usize) -> Result<String, String> {
    if offset > 0 && offset >= text.len() {
        return Err(format!("offset {offset} is beyond the end: there are {} bytes", text.len()));
    }
    let from = floor(text, offset);
    let to = floor(text, from.saturating_add(PAGE_BYTES));
    let mut shown = text[from..to].to_owned();
    if to < text.len() {
        shown.push_str(&format!("\n[… {} more bytes: call again with offset {to} …]", text.len() - to));
    }
    Ok(shown)
}

/// The beginning of a text, and whether it is the whole text.
pub(crate) fn beginning(text: &str, max: usize) -> (&str, bool) {
    let end = floor(text, max);
    (&text[..end], end == text.len())
}

/// The beginning and the end of a text, with the number of bytes in between; the whole text if it is short.
pub(crate) fn ends(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = &text[..floor(text, max / 2)];
    let tail = &text[floor(text, text.len() - max / 2)..];
    let left_out = text.len().saturating_sub(head.len() + tail.len());
    format!("{head}\n[… {left_out} bytes omitted …]\n{tail}")
}

/// Removes an incomplete character at the end, which the next page then contains as a whole. At least one byte always
/// remains, so that paging always makes progress.
pub(crate) fn whole_characters(bytes: &mut Vec<u8>) {
    let unfinished = unfinished(bytes);
    if unfinished < bytes.len() {
        bytes.truncate(bytes.len() - unfinished);
    }
}

/// Bytes at the end that begin a character and do not complete it.
fn unfinished(bytes: &[u8]) -> usize {
    let Some(begun) = bytes.iter().rposition(|byte| byte & 0xc0 != 0x80) else { return 0 };
    let needed = match bytes[begun] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return 0,
    };
    let there = bytes.len() - begun;
    if there < needed { there } else { 0 }
}

fn floor(text: &str, mut place: usize) -> usize {
    place = place.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concatenated_pages_are_the_whole_text() {
        let text = "aé漢🦊\n".repeat(9000);
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let shown = page(&text, offset).unwrap();
            let Some((piece, note)) = shown.split_once("\n[… ") else {
                whole.push_str(&shown);
                break;
            };
            whole.push_str(piece);
            let next = note.split("offset ").nth(1).unwrap().split(' ').next().unwrap();
            assert!(next.parse::<usize>().unwrap() > offset);
            offset = next.parse().unwrap();
        }
        assert_eq!(whole, text);
    }

    #[test]
    fn an_offset_beyond_the_end_is_an_error_and_an_empty_text_is_one_page() {
        assert!(page("abc", 3).unwrap_err().contains("3 bytes"));
        assert_eq!(page("", 0).unwrap(), "");
    }

    #[test]
    fn both_ends_of_a_long_text_are_kept_and_characters_stay_whole() {
        assert_eq!(ends("short", 10), "short");
        let text = format!("{}{}{}", "é".repeat(20), "x".repeat(100), "ü".repeat(20));
        for max in 4..40 {
            let cut = ends(&text, max);
            let (head, rest) = cut.split_once('\n').unwrap();
            let (note, tail) = rest.split_once('\n').unwrap();
            assert!(head.chars().all(|c| c == 'é') && tail.chars().all(|c| c == 'ü'), "{cut}");
            let note: usize = note.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(head.len() + tail.len() + note, text.len());
        }
    }

    #[test]
    fn a_beginning_reports_whether_it_is_the_whole_text() {
        assert_eq!(beginning("abc", 3), ("abc", true));
        assert_eq!(beginning("aéc", 2), ("a", false));
    }

    #[test]
    fn an_incomplete_character_is_left_for_the_next_page() {
        for (bytes, expected) in [
            (&b"abc"[..], 3),
            ("aé".as_bytes(), 3),
            (&"aé".as_bytes()[..2], 1),
            (&"a🦊".as_bytes()[..4], 1),
            // Not text: left unchanged.
            (b"a\xff", 2),
            (b"\x80\x80", 2),
            // Nothing would remain, and paging must make progress.
            (&"é".as_bytes()[..1], 1),
            (b"", 0),
        ] {
            let mut cut = bytes.to_vec();
            whole_characters(&mut cut);
            assert_eq!(cut.len(), expected, "{bytes:?}");
        }
    }
}
