//! Long texts, cut to what a model can use.

/// Characters of one answer, unless the model asks for another number.
pub(crate) const SHOWN: usize = 16_000;
pub(crate) const SHOWN_MAX: usize = 100_000;

/// The beginning and the end of a text, with what is between counted; all of it where it is short.
pub(crate) fn ends(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = &text[..floor(text, max / 2)];
    let tail = &text[ceil(text, text.len() - max / 2)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}

/// The beginning of a text, and whether that is all of it.
pub(crate) fn beginning(text: &str, max: usize) -> (&str, bool) {
    let end = floor(text, max);
    (&text[..end], end == text.len())
}

fn floor(text: &str, mut place: usize) -> usize {
    place = place.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

fn ceil(text: &str, mut place: usize) -> usize {
    while !text.is_char_boundary(place) {
        place += 1;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_long_text_stay_and_characters_stay_whole() {
        assert_eq!(ends("short", 10), "short");
        let text = format!("{}{}{}", "é".repeat(20), "x".repeat(100), "ü".repeat(20));
        for max in 2..40 {
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
}
