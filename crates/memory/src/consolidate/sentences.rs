//! Selects the sentences that represent a group of texts, without a model.
//!
//! The score of a sentence is the weight of its words in the whole group (its similarity to the centroid). Sentences at the
//! beginning of a text score a little higher, because they often say what it is about, and so do names and numbers, which
//! are often searched for. Words that a selected sentence contains count less afterwards, so the selection covers the group.

use std::collections::{HashMap, HashSet};

/// Sentences considered: the size of a group is limited, and the cost is quadratic only in the number of selected sentences.
const SENTENCES_MAX: usize = 4_000;

/// Longer sentences are cut: they are log lines or tables, and their beginning identifies them.
const SENTENCE_CHARACTERS_MAX: usize = 320;

/// One sentence, and the text it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) of: usize,
    words: HashSet<String>,
    first: bool,
    names: usize,
}

/// The selected sentences, in their order, within this many characters.
pub(super) fn choose(texts: &[&str], characters_max: usize) -> Vec<Sentence> {
    let sentences = split_all(texts);
    let weights = weights_of(&sentences);
    let mut worth: Vec<f64> =
        sentences.iter().map(|sentence| score(sentence, &weights, &HashSet::new())).collect();
    let mut covered: HashSet<String> = HashSet::new();
    let mut chosen: Vec<usize> = Vec::new();
    let mut left = characters_max;
    loop {
        let fits = |at: &usize| sentences[*at].text.chars().count() < left && !chosen.contains(at);
        let best =
            (0..sentences.len()).filter(fits).max_by(|a, b| worth[*a].total_cmp(&worth[*b]).then(b.cmp(a)));
        let Some(best) = best.filter(|best| worth[*best] > 0.0) else { break };
        left -= sentences[best].text.chars().count() + 1;
        chosen.push(best);
        covered.extend(sentences[best].words.iter().cloned());
        for (at, sentence) in sentences.iter().enumerate() {
            worth[at] = score(sentence, &weights, &covered);
        }
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|at| sentences[at].clone()).collect()
}

fn split_all(texts: &[&str]) -> Vec<Sentence> {
    let mut out = Vec::new();
    for (of, text) in texts.iter().enumerate() {
        for (nth, part) in split(text).into_iter().enumerate() {
            if out.len() == SENTENCES_MAX {
                return out;
            }
            let words = content_words(part).map(|word| stem(&word)).collect();
            let text = crate::remember::cut(part, SENTENCE_CHARACTERS_MAX);
            out.push(Sentence { names: names_in(&text), text, of, words, first: nth == 0 });
        }
    }
    out
}

/// Sentences end at `.`, `!` or `?` before a blank, and at line breaks. `v1.2` and `e.g. this` are not split.
pub(super) fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        let ends = match c {
            '\n' => true,
            '.' | '!' | '?' => {
                let blank_after = bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace);
                let word = text[start..at].rsplit(char::is_whitespace).next().unwrap_or("");
                blank_after
                    && (c != '.'
                        || word.chars().count() > 3
                        || word.is_empty()
                        || !word.contains('.') && word.chars().count() > 2)
            }
            '。' | '！' | '？' => true,
            _ => false,
        };
        if ends {
            push(&mut out, &text[start..at + c.len_utf8()]);
            start = at + c.len_utf8();
        }
    }
    push(&mut out, &text[start..]);
    out
}

fn push<'a>(out: &mut Vec<&'a str>, part: &'a str) {
    let part = part.trim();
    if part.chars().any(char::is_alphanumeric) {
        out.push(part);
    }
}

/// The weight of each word: grows slowly with the number of sentences that contain it, since a word in all of them does not distinguish any.
fn weights_of(sentences: &[Sentence]) -> HashMap<&str, f64> {
    let mut counts: HashMap<&str, f64> = HashMap::new();
    for sentence in sentences {
        for word in &sentence.words {
            *counts.entry(word.as_str()).or_default() += 1.0;
        }
    }
    let total = sentences.len().max(1) as f64;
    counts.into_iter().map(|(word, count)| (word, (1.0 + count).ln() * (1.0 + total / count).ln())).collect()
}

fn score(sentence: &Sentence, weights: &HashMap<&str, f64>, covered: &HashSet<String>) -> f64 {
    if sentence.words.len() < 2 {
        return 0.0;
    }
    let worth: f64 = sentence
        .words
        .iter()
        .map(|word| {
            weights.get(word.as_str()).copied().unwrap_or(0.0)
                * if covered.contains(word) { 0.1 } else { 1.0 }
        })
        .sum();
    // Divided by the square root of the length: neither the longest nor the shortest sentence wins by its length alone.
    let dense = worth / (sentence.words.len() as f64).sqrt();
    let position = if sentence.first { 1.15 } else { 1.0 };
    let names = 1.0 + 0.08 * sentence.names.min(5) as f64;
    let asks = if sentence.text.ends_with('?') { 0.6 } else { 1.0 };
    dense * position * names * asks
}

/// Names and numbers: capitalised words that do not begin the sentence, and words with digits.
fn names_in(text: &str) -> usize {
    let words = text.split_whitespace().enumerate();
    words
        .filter(|(at, word)| {
            let capital = *at > 0 && word.chars().next().is_some_and(char::is_uppercase);
            capital || word.bytes().any(|b| b.is_ascii_digit())
        })
        .count()
}

/// Lower-case words that carry meaning.
pub(super) fn content_words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '_')))
        .map(|word| word.trim_matches('\'').trim_end_matches("'s").to_lowercase())
        .filter(|word| word.chars().count() >= 2 && word.len() <= 64 && !is_stop_word(word))
}

/// A rough stemmer, only for counting `deployed`, `deploys` and `deploy` as one word.
fn stem(word: &str) -> String {
    for ending in ["ingly", "edly", "ing", "ies", "ed", "es", "s"] {
        if let Some(root) = word.strip_suffix(ending)
            && root.chars().count() >= 4
        {
            return root.to_owned();
        }
    }
    word.to_owned()
}

pub(super) fn is_stop_word(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "a", "about", "above", "after", "again", "all", "also", "am", "an", "and", "any", "are", "aren't",
        "as", "at", "be", "because", "been", "before", "being", "below", "between", "both", "but", "by",
        "can", "could", "did", "didn't", "do", "does", "doesn't", "doing", "don't", "down", "during", "each",
        "few", "for", "from", "further", "get", "go", "got", "had", "has", "have", "having", "he", "her",
        "here", "hers", "him", "his", "how", "i", "i'd", "i'll", "i'm", "i've", "if", "in", "into", "is",
        "isn't", "it", "it's", "its", "just", "let", "like", "me", "more", "most", "my", "no", "nor", "not",
        "now", "of", "off", "oh", "ok", "on", "once", "one", "only", "or", "other", "our", "out", "over",
        "own", "really", "same", "she", "should", "so", "some", "such", "than", "that", "that's", "the",
        "their", "them", "then", "there", "these", "they", "they're", "this", "those", "through", "to",
        "too", "under", "until", "up", "us", "very", "was", "wasn't", "we", "we're", "were", "what", "when",
        "where", "which", "while", "who", "why", "will", "with", "would", "yeah", "yes", "you", "you're",
        "your",
    ];
    WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_split_correctly() {
        assert_eq!(
            split("We use v1.2 now. It works!\nNext line? Yes"),
            ["We use v1.2 now.", "It works!", "Next line?", "Yes"]
        );
        assert_eq!(split("Tools, e.g. make, help."), ["Tools, e.g. make, help."]);
        assert!(split(" \n...\n").is_empty());
    }

    #[test]
    fn the_stop_words_are_in_order() {
        for word in ["a", "about", "i'm", "isn't", "that's", "your", "nor"] {
            assert!(is_stop_word(word), "{word}");
        }
        assert!(!is_stop_word("deploy"));
    }

    #[test]
    fn the_choice_covers_what_the_group_is_about() {
        let texts = [
            "Hi there. How are you?",
            "The migration of the billing database to Postgres 16 is planned for March.",
            "Oh nice. Sounds good.",
            "Anna found that the billing database migration breaks the invoice export. She filed ticket 4711.",
            "The invoice export was fixed by Anna on Friday.",
        ];
        let chosen = choose(&texts, 260);
        let all: String = chosen.iter().map(|sentence| sentence.text.as_str()).collect::<Vec<_>>().join(" ");
        assert!(all.contains("Postgres 16"), "{all}");
        assert!(all.contains("invoice export"), "{all}");
        assert!(!all.contains("How are you"), "{all}");
        assert!(all.chars().count() <= 260);
        assert!(chosen.windows(2).all(|pair| pair[0].of <= pair[1].of));
    }

    #[test]
    fn nothing_is_chosen_from_nothing() {
        assert!(choose(&[], 100).is_empty());
        assert!(choose(&["", "…", "a"], 100).is_empty());
    }
}
