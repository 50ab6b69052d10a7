//! Estimates how many tokens a text takes in a prompt, on the safe side.
//!
//! Models cut text differently, and none of their tables is ours to carry. English words take about 1.3 tokens, and
//! what is not a word (ids, hashes, code, other scripts) takes more per character. So each kind of run is counted by
//! the rate at which common tokenizers are worst at it.

/// Tokens a text takes, rather too many than too few.
pub fn estimate(text: &str) -> usize {
    let mut tokens = 0;
    let mut word = Word::default();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        tokens += word.take();
        tokens += match c {
            // A blank goes with the word after it.
            ' ' => 0,
            c if c.is_ascii() => 1,
            // Latin, Greek, Cyrillic: about a token for each letter that is not English.
            c if (c as u32) < 0x0600 => 1,
            // Two- and three-byte scripts take one or two, what is beyond the basic plane up to three.
            c if (c as u32) < 0x1_0000 => 2,
            _ => 3,
        };
    }
    tokens += word.take();
    // Runs of blanks are indentation; common tokenizers join them, older ones do not.
    tokens + text.matches("  ").count().div_ceil(2)
}

/// A run of ASCII letters and digits.
#[derive(Default)]
struct Word {
    letters: usize,
    digits: usize,
    vowels: usize,
    capitals: usize,
}

impl Word {
    fn push(&mut self, c: char) {
        if c.is_ascii_digit() {
            self.digits += 1;
            return;
        }
        self.letters += 1;
        self.vowels += usize::from(matches!(c.to_ascii_lowercase(), 'a' | 'e' | 'i' | 'o' | 'u' | 'y'));
        self.capitals += usize::from(c.is_ascii_uppercase());
    }

    fn take(&mut self) -> usize {
        let word = std::mem::take(self);
        let length = word.letters + word.digits;
        if length == 0 {
            return 0;
        }
        if word.letters == 0 {
            // Digits go in threes at best, and singly in some models.
            return word.digits.div_ceil(2);
        }
        if word.digits > 0 {
            // Ids and hashes: digits among letters leave hardly any common piece.
            return (length * 3).div_ceil(4).max(2);
        }
        let unspeakable = length > 6 && word.vowels * 5 < word.letters;
        if unspeakable || length >= 16 {
            return length.div_ceil(2);
        }
        if word.capitals > 1 {
            return length.div_ceil(2);
        }
        // Common words are one token up to some length, others three to four characters each.
        length.div_ceil(4) + usize::from(length > 8)
    }
}

/// The longest beginning of a text that takes at most so many tokens, cut between words where one is near.
pub(super) fn head(text: &str, tokens_max: usize) -> &str {
    if estimate(text) <= tokens_max {
        return text;
    }
    // `estimate` grows with the text, so the cut can be searched for.
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let (mut fits, mut over) = (0, ends.len());
    while over - fits > 1 {
        let middle = fits.midpoint(over);
        match ends.get(middle) {
            Some(at) if estimate(&text[..*at]) <= tokens_max => fits = middle,
            Some(_) | None => over = middle,
        }
    }
    let cut = &text[..ends.get(fits).copied().unwrap_or(0)];
    match cut.rfind(char::is_whitespace) {
        Some(space) if cut.len() - space < 30 => cut[..space].trim_end(),
        Some(_) | None => cut,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_estimate_is_above_what_tokenizers_count() {
        // The larger of what two common vocabularies (of 100,000 and 200,000 tokens) count.
        for (text, counted) in [
            ("The quick brown fox jumps over the lazy dog.", 10),
            ("error[E0425]: cannot find value `y` in this scope", 14),
            ("2026-11-15T12:30:45Z", 13),
            ("9fceb02d0ae598e95dc970b74767f19372d61af8", 22),
            ("/usr/lib/x86_64-linux-gnu/libssl.so.3", 14),
            ("漢字かな交じり文", 9),
            ("👩‍💻 ❤️", 9),
            ("fn main() { println!(\"{}\", x.iter().map(|y| y+1).sum::<u64>()); }", 24),
            ("", 0),
        ] {
            assert!(estimate(text) >= counted, "{text}: {} < {counted}", estimate(text));
        }
        let prose =
            "We decided to keep the database in one file because backups are simpler that way. ".repeat(20);
        assert!(estimate(&prose) < prose.len() / 3, "not wastefully far above: {}", estimate(&prose));
    }

    proptest! {
        #[test]
        fn a_head_fits_and_more_text_never_takes_less(text in "\\PC{0,300}", tokens_max in 0usize..120) {
            let cut = head(&text, tokens_max);
            prop_assert!(text.starts_with(cut));
            prop_assert!(estimate(cut) <= tokens_max);
        }

        #[test]
        fn parts_take_no_more_than_their_whole_allows(a in "[ -~é漢\n]{0,80}", b in "[ -~é漢\n]{0,80}") {
            let joined = format!("{a}\n{b}");
            prop_assert!(estimate(&joined) <= estimate(&a) + estimate(&b) + 1);
        }
    }
}
