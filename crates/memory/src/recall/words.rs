//! Splits text into words, and recognises common words.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Common words of the language: a search for them would find everything.
const COMMON: &[&str] = &[
    "a",
    "about",
    "above",
    "after",
    "again",
    "against",
    "all",
    "am",
    "an",
    "and",
    "any",
    "are",
    "aren",
    "as",
    "at",
    "be",
    "because",
    "been",
    "before",
    "being",
    "below",
    "between",
    "both",
    "but",
    "by",
    "can",
    "could",
    "couldn",
    "d",
    "did",
    "didn",
    "do",
    "does",
    "doesn",
    "doing",
    "don",
    "down",
    "during",
    "each",
    "few",
    "for",
    "from",
    "further",
    "had",
    "hadn",
    "has",
    "hasn",
    "have",
    "haven",
    "having",
    "he",
    "her",
    "here",
    "hers",
    "herself",
    "him",
    "himself",
    "his",
    "how",
    "i",
    "if",
    "in",
    "into",
    "is",
    "isn",
    "it",
    "its",
    "itself",
    "just",
    "let",
    "ll",
    "m",
    "many",
    "may",
    "me",
    "might",
    "more",
    "most",
    "much",
    "mustn",
    "my",
    "myself",
    "no",
    "nor",
    "not",
    "now",
    "o",
    "of",
    "off",
    "on",
    "once",
    "only",
    "or",
    "other",
    "our",
    "ours",
    "ourselves",
    "out",
    "over",
    "own",
    "re",
    "s",
    "same",
    "shall",
    "shan",
    "she",
    "should",
    "shouldn",
    "so",
    "some",
    "such",
    "t",
    "than",
    "that",
    "the",
    "their",
    "theirs",
    "them",
    "themselves",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "through",
    "to",
    "too",
    "under",
    "until",
    "up",
    "ve",
    "very",
    "was",
    "wasn",
    "we",
    "were",
    "weren",
    "what",
    "when",
    "where",
    "which",
    "while",
    "who",
    "whom",
    "whose",
    "why",
    "will",
    "with",
    "won",
    "would",
    "wouldn",
    "y",
    "you",
    "your",
    "yours",
    "yourself",
    "yourselves",
];

/// The length of the longest of them.
const COMMON_BYTES_MAX: usize = 10;

pub(super) fn is_common(word: &str) -> bool {
    word.len() <= COMMON_BYTES_MAX && COMMON.binary_search(&word).is_ok()
}

/// Passes the words of a text to `each`, in lower case and without accents.
pub(super) fn each_word(text: &str, mut each: impl FnMut(&str)) {
    let mut folded = String::new();
    for word in text.split(is_between) {
        if word.is_empty() {
            continue;
        }
        folded.clear();
        if word.is_ascii() {
            folded.push_str(word);
            folded.make_ascii_lowercase();
        } else {
            folded.extend(word.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase));
        }
        if !folded.is_empty() {
            each(&folded);
        }
    }
}

fn is_between(c: char) -> bool {
    match c.is_ascii() {
        true => !c.is_ascii_alphanumeric(),
        false => !c.is_alphanumeric() && !is_combining_mark(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_common_words_is_in_order() {
        assert!(COMMON.is_sorted() && COMMON.iter().all(|word| word.len() <= COMMON_BYTES_MAX));
        assert!(is_common("the") && is_common("yourselves") && !is_common("error"));
    }

    #[test]
    fn words_are_folded_as_the_index_folds_them() {
        let mut words = Vec::new();
        each_word("Crème brûlée: don't-PANIC 3.14 Ωmega 東京", |word| words.push(word.to_owned()));
        assert_eq!(words, ["creme", "brulee", "don", "t", "panic", "3", "14", "ωmega", "東京"]);
    }
}
