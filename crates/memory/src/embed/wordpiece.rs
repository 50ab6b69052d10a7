//! Splits text into the tokens of BERT's vocabulary: words, and parts of words that are not in it.
//!
//! Text is cleaned, lower-cased and stripped of accents; words end at white space and punctuation.
//! A word that is not in the vocabulary is split from the left into the longest parts that are (`##` marks a part that
//! continues a word). The result equals that of the tokenizer that the models were trained with.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::trie::Trie;

/// Longer words are not split: their parts would be meaningless. BERT uses the same limit.
const WORD_CHARS_MAX: usize = 100;

/// A vocabulary, and the tokenizer for it.
#[derive(Debug)]
pub struct WordPiece {
    /// Tokens that begin a word.
    first: Trie,
    /// Tokens that continue a word, without their `##`.
    next: Trie,
    unknown: u32,
    /// The tokens that begin and end a sequence for a model.
    pub(crate) begin: u32,
    pub(crate) end: u32,
}

impl WordPiece {
    /// From the lines of a `vocab.txt`: one token per line, whose number is the line number.
    pub fn new<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut first, mut next) = (Vec::new(), Vec::new());
        let (mut unknown, mut begin, mut end) = (None, None, None);
        for (line, id) in lines.zip(0u32..) {
            match line {
                "[UNK]" => unknown = Some(id),
                "[CLS]" => begin = Some(id),
                "[SEP]" => end = Some(id),
                // Brackets in a text are text: they cannot produce the special tokens.
                "[PAD]" | "[MASK]" => {}
                _ => match line.strip_prefix("##").filter(|rest| !rest.is_empty()) {
                    Some(rest) => next.push((rest.as_bytes(), id)),
                    None => first.push((line.as_bytes(), id)),
                },
            }
        }
        let (first, next) = (Trie::new(first), Trie::new(next));
        Some(Self { first, next, unknown: unknown?, begin: begin?, end: end? })
    }

    /// The ids of at most `max` tokens, without those that begin and end a sequence.
    pub fn encode(&self, text: &str, max: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(max.min(text.len() / 3 + 1));
        // A fast path for one plain word: ranking embeds thousands of them.
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            self.cut(text, &mut ids);
            ids.truncate(max);
            return ids;
        }
        let mut word = String::new();
        for character in text.chars() {
            if ids.len() >= max {
                break;
            }
            self.take(character, &mut word, &mut ids);
        }
        self.finish(&mut word, &mut ids);
        ids.truncate(max);
        ids
    }

    fn take(&self, character: char, word: &mut String, ids: &mut Vec<u32>) {
        if character.is_ascii_alphanumeric() {
            word.push(character.to_ascii_lowercase());
        } else if character.is_whitespace() {
            self.finish(word, ids);
        } else if is_noise(character) {
        } else if is_punctuation(character) || is_ideograph(character) {
            self.finish(word, ids);
            word.push(character);
            self.finish(word, ids);
        } else {
            let plain = character.to_lowercase().nfd().filter(|c| !is_combining_mark(*c));
            word.extend(plain);
        }
    }

    fn finish(&self, word: &mut String, ids: &mut Vec<u32>) {
        if !word.is_empty() {
            self.cut(word, ids);
            word.clear();
        }
    }

    fn cut(&self, word: &str, ids: &mut Vec<u32>) {
        let mut piece = self.first.longest(word);
        let is_whole = piece.is_some_and(|(_, length)| length == word.len());
        if !is_whole && word.len() > WORD_CHARS_MAX && word.chars().nth(WORD_CHARS_MAX).is_some() {
            return ids.push(self.unknown);
        }
        let (start_len, mut start) = (ids.len(), 0);
        while let Some((id, length)) = piece {
            ids.push(id);
            start += length;
            if start == word.len() {
                return;
            }
            piece = self.next.longest(&word[start..]);
        }
        ids.truncate(start_len);
        ids.push(self.unknown);
    }
}

/// Characters that are removed.
fn is_noise(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{fffd}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// All ASCII characters that are neither letters nor digits, including `$` and `^`, as in BERT.
fn is_punctuation(character: char) -> bool {
    character.is_ascii_punctuation()
        || matches!(character, '¡' | '§' | '«' | '¶' | '·' | '»' | '¿' | '\u{37e}' | '‐'..='‧' | '‰'..='⁞'
            | '⁽' | '⁾' | '₍' | '₎' | '⌈'..='⌋' | '〈' | '〉' | '❨'..='❵' | '⟦'..='⟯' | '⦃'..='⦘' | '⸀'..='⹝'
            | '、'..='〃' | '〈'..='】' | '〔'..='〟' | '〰' | '・' | '︰'..='﹒' | '﹔'..='﹡' | '﹣' | '﹨' | '﹪' | '﹫'
            | '！'..='＃' | '％'..='＊' | '，'..='／' | '：' | '；' | '？' | '＠' | '［'..='］' | '＿' | '｛' | '｝' | '｟'..='･')
}

fn is_ideograph(character: char) -> bool {
    matches!(u32::from(character),
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x2_0000..=0x2_a6df | 0x2_a700..=0x2_ceaf | 0xf900..=0xfaff
            | 0x2_f800..=0x2_fa1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> WordPiece {
        let words = [
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cafe", "un", "##aff", "##able", "!", "-", "東", "##s",
        ];
        WordPiece::new(words.into_iter()).unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &[u32]) {
        assert_eq!(small().encode(text, 100), expected, "{text}");
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces_there_are() {
        check("The cafe", &[4, 5]);
        check("unaffable", &[6, 7, 8]);
        check("cafes!", &[5, 12, 9]);
        check("unx the", &[1, 4]);
    }

    #[test]
    fn case_accents_and_controls_do_not_matter() {
        check("THE\u{0} CAFÉ", &[4, 5]);
        check("c\u{200b}afe\u{301}", &[5]);
    }

    #[test]
    fn punctuation_and_ideographs_stand_alone() {
        check("the-cafe!!", &[4, 10, 5, 9, 9]);
        check("the東東", &[4, 11, 11]);
    }

    #[test]
    fn a_text_cannot_name_the_tokens_of_the_model() {
        check("[CLS]", &[1, 1, 1]);
        assert!(!small().encode("[SEP] [sep] [MASK]", 100).contains(&3));
    }

    #[test]
    fn the_tokens_of_an_endless_text_are_limited() {
        assert_eq!(small().encode(&"the ".repeat(1000), 7).len(), 7);
        check(&"x".repeat(10_000), &[1]);
        check("", &[]);
        check(" \n\t", &[]);
    }
}
