//! Cuts text into the tokens of BERT's vocabulary: words, and pieces of words that it does not have.
//!
//! Text is cleaned, lower-cased and rid of its accents; words end at white space and stand apart from punctuation;
//! a word that is not in the vocabulary is cut from the left into the longest pieces that are (`##` marks a piece that
//! goes on). The same as the tokenizer that the models were trained with, so ids mean the same.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::head;

/// A longer word is nothing the vocabulary could hold pieces of with any sense. BERT's own bound.
const WORD_CHARS_MAX: usize = 100;

/// A vocabulary, and how to cut text into it.
#[derive(Debug)]
pub struct WordPiece {
    /// Pieces that begin a word.
    first: Pieces,
    /// Pieces that go on, without their `##`.
    next: Pieces,
    /// Bytes of the longest entry: longer guesses need not be looked up.
    longest: usize,
    unknown: u32,
    /// What begins and ends a sequence for a model.
    pub(crate) begin: u32,
    pub(crate) end: u32,
}

type Pieces = HashMap<Box<str>, u32, BuildHasherDefault<Quick>>;

/// A quick hash of short words. The words in the table are ours, so nobody can choose them to collide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        // The table takes the upper bits for one thing and the lower for another.
        self.0 ^ (self.0 >> 32)
    }
}

impl WordPiece {
    /// From the lines of a `vocab.txt`: a token per line, its number is the line's.
    pub fn new<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut first, mut next) = (Pieces::default(), Pieces::default());
        let mut longest = 0;
        for (line, id) in lines.zip(0u32..) {
            longest = longest.max(line.len());
            match line.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => next.insert(rest.into(), id),
                _ => first.insert(line.into(), id),
            };
        }
        let special = |name: &str| first.get(name).copied();
        let (unknown, begin, end) = (special("[UNK]")?, special("[CLS]")?, special("[SEP]")?);
        // What a text says between brackets is text: it cannot name the tokens that only we may place.
        for name in ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"] {
            first.remove(name);
        }
        Some(Self { first, next, longest, unknown, begin, end })
    }

    /// The entries that begin a word, in the vocabulary's order: BERT's has them by how common they are.
    pub fn whole_words(&self) -> Vec<&str> {
        let mut words: Vec<(u32, &str)> = self.first.iter().map(|(word, id)| (*id, word.as_ref())).collect();
        words.sort_unstable();
        words.into_iter().map(|(_, word)| word).collect()
    }

    /// The ids of at most `max` tokens, without those that begin and end a sequence.
    pub fn encode(&self, text: &str, max: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(max.min(text.len() / 3 + 1));
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
        if let Some(id) = self.first.get(word) {
            return ids.push(*id);
        }
        if word.len() > WORD_CHARS_MAX && word.chars().nth(WORD_CHARS_MAX).is_some() {
            return ids.push(self.unknown);
        }
        let (start_len, mut start) = (ids.len(), 0);
        while start < word.len() {
            let table = if start == 0 { &self.first } else { &self.next };
            match longest(table, &word[start..], self.longest) {
                Some((id, len)) => {
                    ids.push(id);
                    start += len;
                }
                None => {
                    ids.truncate(start_len);
                    return ids.push(self.unknown);
                }
            }
        }
    }
}

fn longest(table: &Pieces, rest: &str, most: usize) -> Option<(u32, usize)> {
    let mut piece = head(rest, most);
    while !piece.is_empty() {
        if let Some(id) = table.get(piece) {
            return Some((*id, piece.len()));
        }
        piece = head(piece, piece.len() - 1);
    }
    None
}

/// What is dropped as if it had not been there.
fn is_noise(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{fffd}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// All ASCII that is neither letter nor digit counts, `$` and `^` too, as it does for BERT.
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
    fn a_text_without_end_is_bounded() {
        assert_eq!(small().encode(&"the ".repeat(1000), 7).len(), 7);
        check(&"x".repeat(10_000), &[1]);
        check("", &[]);
        check(" \n\t", &[]);
    }
}
