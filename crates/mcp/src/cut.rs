//! Long texts, cut to what a model can use, with a word on how to read on.

/// Bytes of one answer, unless the model asks for another number: about 4,000 tokens.
pub(crate) const SHOWN: usize = 16_000;
pub(crate) const SHOWN_MAX: usize = 100_000;

/// How many bytes a model asked for.
pub(crate) fn limit(asked: Option<usize>) -> usize {
    asked.unwrap_or(SHOWN).clamp(1, SHOWN_MAX)
}

/// A text from `offset` on, as much as is shown at once. What is left out is counted, with where it begins.
pub(crate) fn page(text: &str, offset: usize) -> Result<String, String> {
    if offset > 0 && offset >= text.len() {
        return Err(format!("there are {} bytes, and offset {offset} is beyond them", text.len()));
    }
    let from = floor(text, offset);
    let to = floor(text, from.saturating_add(SHOWN));
    let mut shown = text[from..to].to_owned();
    if to < text.len() {
        shown.push_str(&format!("\n[… {} more bytes: ask again with offset {to} …]", text.len() - to));
    }
    Ok(shown)
}

/// The beginning of a text, and whether that is all of it.
pub(crate) fn beginning(text: &str, max: usize) -> (&str, bool) {
    let end = floor(text, max);
    (&text[..end], end == text.len())
}

/// Both ends of a text, with what is between counted; all of it where it is short.
pub(crate) fn ends(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = &text[..floor(text, max / 2)];
    let tail = &text[floor(text, text.len() - max / 2)..];
    let left_out = text.len().saturating_sub(head.len() + tail.len());
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

/// Takes the last character off where only its beginning is there: who reads on from there gets it whole. Something
/// always stays, so that reading on always gets on.
pub(crate) fn whole_characters(bytes: &mut Vec<u8>) {
    let unfinished = unfinished(bytes);
    if unfinished < bytes.len() {
        bytes.truncate(bytes.len() - unfinished);
    }
}

/// Bytes at the end that begin a character and do not finish it.
fn unfinished(bytes: &[u8]) -> usize {
    let Some(begun) = bytes.iter().rposition(|byte| byte & 0xc0 != 0x80) else { return 0 };
    let wanted = match bytes[begun] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return 0,
    };
    let there = bytes.len() - begun;
    if there < wanted { there } else { 0 }
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
    fn pages_put_together_are_the_whole_text() {
        let text = "aé漢🦊\n".repeat(9000);
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let shown = page(&text, offset).unwrap();
            let Some((piece, told)) = shown.split_once("\n[… ") else {
                whole.push_str(&shown);
                break;
            };
            whole.push_str(piece);
            let next = told.split("offset ").nth(1).unwrap().split(' ').next().unwrap();
            assert!(next.parse::<usize>().unwrap() > offset);
            offset = next.parse().unwrap();
        }
        assert_eq!(whole, text);
    }

    #[test]
    fn an_offset_beyond_the_end_is_told_and_an_empty_text_is_empty() {
        assert!(page("abc", 3).unwrap_err().contains("3 bytes"));
        assert_eq!(page("", 0).unwrap(), "");
    }

    #[test]
    fn both_ends_of_a_long_text_stay_and_characters_stay_whole() {
        assert_eq!(ends("short", 10), "short");
        let text = format!("{}{}{}", "é".repeat(20), "x".repeat(100), "ü".repeat(20));
        for max in 4..40 {
            let cut = ends(&text, max);
            let (head, rest) = cut.split_once('\n').unwrap();
            let (told, tail) = rest.split_once('\n').unwrap();
            assert!(head.chars().all(|c| c == 'é') && tail.chars().all(|c| c == 'ü'), "{cut}");
            let told: usize = told.split(' ').nth(1).unwrap().parse().unwrap();
            assert_eq!(head.len() + tail.len() + told, text.len());
        }
    }

    #[test]
    fn a_beginning_says_whether_there_is_more() {
        assert_eq!(beginning("abc", 3), ("abc", true));
        assert_eq!(beginning("aéc", 2), ("a", false));
    }

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        for (bytes, kept) in [
            (&b"abc"[..], 3),
            ("aé".as_bytes(), 3),
            (&"aé".as_bytes()[..2], 1),
            (&"a🦊".as_bytes()[..4], 1),
            // No text at all: shown as it is.
            (b"a\xff", 2),
            (b"\x80\x80", 2),
            // Nothing else is left, and reading on must get on.
            (&"é".as_bytes()[..1], 1),
            (b"", 0),
        ] {
            let mut cut = bytes.to_vec();
            whole_characters(&mut cut);
            assert_eq!(cut.len(), kept, "{bytes:?}");
        }
    }
}
