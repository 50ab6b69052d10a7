//! Estimates how many tokens a text takes in a prompt, rather too many than too few.
//!
//! Models tokenise differently, and their tables are not available here. English words take about 1.3 tokens;
//! other text (ids, hashes, code, other scripts) takes more per character. So each kind of run is counted at
//! the worst rate of common tokenizers.

/// The estimated tokens of a text, rather too many than too few.
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
            // A blank belongs to the token of the next word.
            ' ' => 0,
            c if c.is_ascii() => 1,
            // Latin, Greek, Cyrillic: about one token per non-ASCII letter.
            c if (c as u32) < 0x0600 => 1,
            // Two- and three-byte characters take one or two tokens, characters beyond the basic plane up to three.
            c if (c as u32) < 0x1_0000 => 2,
            _ => 3,
        };
    }
    tokens += word.take();
    // Runs of blanks are indentation; newer tokenizers join them, older ones do not.
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
            // Tokens have at most three digits, and one digit in some models.
            return word.digits.div_ceil(2);
        }
        if word.digits > 0 {
            // Ids and hashes: words that mix digits and letters contain hardly any common token.
            return (length * 3).div_ceil(4).max(2);
        }
        let unspeakable = length > 6 && word.vowels * 5 < word.letters;
        if unspeakable || length >= 16 {
            return length.div_ceil(2);
        }
        if word.capitals > 1 {
            return length.div_ceil(2);
        }
        // Common short words are one token, other words one per three to four characters.
        length.div_ceil(4) + usize::from(length > 8)
    }
}

/// The longest beginning of a text that takes at most this many tokens, cut between words if possible.
pub(super) fn head(text: &str, tokens_max: usize) -> &str {
    if estimate(text) <= tokens_max {
        return text;
    }
    // `estimate` grows with the text, so binary search finds the cut.
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
        // The larger count of two common vocabularies (of 100,000 and 200,000 tokens).
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
        fn a_cut_text_fits_and_longer_texts_take_no_fewer_tokens(text in "\\PC{0,300}", tokens_max in 0usize..120) {
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
