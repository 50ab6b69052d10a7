//! Parses a query: its words with their weights in this space, names, times.

use super::stem::stem;
use super::when::{Time, times};
use super::words::{each_word, is_common};
use crate::embed::{TokenTable, head};

/// Words of a query that are searched for; of a longer query, the rarest.
pub(super) const WORDS_MAX: usize = 24;

/// Bytes of a query that are read.
const QUESTION_BYTES_MAX: usize = 8 * 1024;

/// One word of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    /// In lower case, otherwise as in the query.
    pub(super) text: String,
    pub(super) stem: String,
    /// Its tokens in the table of the built-in embedder, for finding similar words.
    pub(super) pieces: Vec<u32>,
    /// The approximate number of entries that contain it.
    pub(super) frequency: u64,
    /// The weight of exact occurrences: zero if most entries contain the word.
    pub(super) rarity: f32,
    /// The weight of similar words.
    pub(super) weight: f32,
}

/// A parsed query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Query {
    pub(super) words: Vec<Word>,
    /// Stems of all its words, common ones included, for recognising names.
    pub(super) stems: Vec<String>,
    pub(super) times: Vec<Time>,
}

impl Query {
    /// `frequency` returns how many of `entries` contain a word.
    pub(super) fn new<E>(
        text: &str,
        now_ms: u64,
        entries: u64,
        mut frequency: impl FnMut(&str) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let text = head(text, QUESTION_BYTES_MAX);
        let mut all: Vec<String> = Vec::new();
        each_word(text, |word| all.push(word.to_owned()));
        let table = TokenTable::built_in();
        let mut words: Vec<Word> = Vec::new();
        for word in &all {
            let stem = stem(word);
            if is_common(word) || words.iter().any(|known| known.stem == stem) {
                continue;
            }
            let frequency = frequency(word)?;
            let (rarity, weight) = rarities(frequency, entries);
            let pieces = table.words.encode(word, PIECES_MAX);
            words.push(Word { text: word.clone(), stem, pieces, frequency, rarity, weight });
        }
        if words.len() > WORDS_MAX {
            let mut weights: Vec<f32> = words.iter().map(|word| word.weight).collect();
            weights.sort_by(|a, b| b.total_cmp(a));
            words.retain(|word| word.weight >= weights[WORDS_MAX - 1]);
            words.truncate(WORDS_MAX);
        }
        let mut stems: Vec<String> = all.iter().map(|word| stem(word)).collect();
        stems.sort_unstable();
        stems.dedup();
        Ok(Self { words, stems, times: times(&all, now_ms) })
    }

    /// Whether the query contains this word, in any form.
    pub(super) fn names(&self, word: &str) -> bool {
        let mut found = false;
        each_word(word, |word| found |= !is_common(word) && self.stems.binary_search(&stem(word)).is_ok());
        found
    }

    /// How well an entry fits the times in the query, from 0 to 1; 0 if there are none.
    pub(super) fn fits(&self, at_ms: u64) -> f32 {
        self.times.iter().map(|time| time.fits(at_ms)).fold(0.0, f32::max)
    }
}

/// Tokens of one word: a word with more is a hash or similar, whose tokens mean nothing.
pub(super) const PIECES_MAX: usize = 8;

/// Entries without the word that are added to those of the space: in a space of three entries, a word that two of them contain
/// is still significant.
const ENTRIES_ELSEWHERE: f64 = 50.0;

/// Two weights by Robertson and Spärck Jones: the first is zero for words that most entries contain, the second is never zero.
#[expect(clippy::cast_precision_loss, reason = "counts of entries, far below 2^52")]
fn rarities(frequency: u64, entries: u64) -> (f32, f32) {
    let (found, all) = (frequency.min(entries) as f64, entries as f64 + ENTRIES_ELSEWHERE);
    let odds = (all - found + 0.5) / (found + 0.5);
    let rarity = if frequency == 0 { 0.0 } else { odds.ln().max(0.0) };
    #[expect(clippy::cast_possible_truncation, reason = "a logarithm of a count")]
    (rarity as f32, (1.0 + odds).ln() as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        let frequency = |word: &str| Ok::<_, ()>(if word == "build" { 900 } else { 2 });
        Query::new(text, 1_700_000_000_000, 1000, frequency).unwrap()
    }

    #[test]
    fn common_words_and_repeats_are_not_looked_for() {
        let query = query("Why did the build of Alice's builds fail, and when was it failing?");
        let words: Vec<&str> = query.words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(words, ["build", "alice", "fail"]);
        assert_eq!(query.words[0].rarity, 0.0);
        assert!(query.words[0].weight > 0.0 && query.words[2].rarity > 3.0);
    }

    #[test]
    fn names_are_known_in_any_case_and_form() {
        let query = query("what did ALICE say about it?");
        assert!(query.names("Alice") && query.names("alice liddell"));
        assert!(!query.names("Bob") && !query.names("the what"));
    }

    #[test]
    fn a_long_query_uses_its_rarest_words() {
        let text: String = (0..500).map(|n| format!("word{n} ")).collect();
        assert_eq!(query(&text).words.len(), WORDS_MAX);
        assert_eq!(query(&"x".repeat(100_000)).words.len(), 1);
        assert_eq!(query("").words, []);
        assert_eq!(query("what is it?").words, []);
    }
}
