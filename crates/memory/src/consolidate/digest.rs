//! Writes a summary of a group of entries: sentences, the time span, and words by which the sources can be found.
//!
//! The last line lists the words of the sources that the sentences do not contain. A search for one of them finds
//! the summary, and the summary leads to its sources (see `reach`), so details that a summary omits can still be found
//! after their entries have become cold.

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;

use super::sentences::{choose, content_words};
use crate::context::dates::iso_day;
use crate::embed::EndpointError;

/// The beginning of the line of words.
const WORDS_MARK: &str = "Words: ";

/// The limit of the sentences in characters.
pub(super) const SENTENCES_CHARACTERS: usize = 900;

/// Words listed: about as many uncommon words as thirty messages of a conversation contain.
const WORDS_MAX: usize = 600;

/// An entry that a summary is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub at_ms: u64,
    pub kind: String,
    pub text: String,
}

/// Writes the sentences of a summary.
#[async_trait]
pub trait Summariser: std::fmt::Debug + Send + Sync {
    /// A few sentences about the sources, of at most this many characters; longer text is cut.
    async fn summarise(&self, sources: &[Source], characters_max: usize) -> Result<String, SummariseError>;
}

/// Why a summariser failed; the built-in one is then used instead.
#[derive(Debug, thiserror::Error)]
pub enum SummariseError {
    #[error("could not request a summary")]
    Endpoint(#[from] EndpointError),
    #[error("the answer of `{url}` contains no text")]
    Answer { url: String },
}

/// The built-in summariser: it selects sentences of the sources.
#[derive(Clone, Copy, Debug)]
pub struct ExtractiveSummariser;

#[async_trait]
impl Summariser for ExtractiveSummariser {
    async fn summarise(&self, sources: &[Source], characters_max: usize) -> Result<String, SummariseError> {
        Ok(extract(sources, characters_max))
    }
}

pub(super) fn extract(sources: &[Source], characters_max: usize) -> String {
    let texts: Vec<&str> = sources.iter().map(|source| source.text.as_str()).collect();
    let chosen = choose(&texts, characters_max);
    let mut out = String::new();
    for sentence in chosen {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&sentence.text.replace('\n', " "));
    }
    out
}

/// The complete text of a summary.
pub(super) fn compose(title: &str, sources: &[Source], sentences: &str) -> String {
    let first = sources.iter().map(|source| source.at_ms).min().unwrap_or(0);
    let last = sources.iter().map(|source| source.at_ms).max().unwrap_or(0);
    let (from, to) = (iso_day(first), iso_day(last));
    let when = if from == to { from } else { format!("{from} to {to}") };
    let mut text = format!("Summary of {} entries of {title}, {when}:\n{sentences}", sources.len());
    // Added even if it is empty: the last line with this beginning is ours, whatever the sentences contain.
    text.push('\n');
    text.push_str(WORDS_MARK);
    text.push_str(&words_beyond(sources, sentences).join(" "));
    text
}

/// A summary without its line of words, for users and prompts.
pub fn readable(text: &str) -> &str {
    match text.rfind(&format!("\n{WORDS_MARK}")) {
        Some(at) => &text[..at],
        None => text,
    }
}

/// Words of the sources that the sentences lack, rarest first, within the limit: searches mostly use rare words.
fn words_beyond(sources: &[Source], sentences: &str) -> Vec<String> {
    let said: HashSet<String> = content_words(sentences).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        for word in content_words(&source.text) {
            if !said.contains(&word) {
                *counts.entry(word).or_default() += 1;
            }
        }
    }
    let mut words: Vec<(usize, String)> = counts.into_iter().map(|(word, count)| (count, word)).collect();
    words.sort();
    words.truncate(WORDS_MAX);
    words.into_iter().map(|(_, word)| word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(at_ms: u64, text: &str) -> Source {
        Source { at_ms, kind: "turn".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_summary_names_its_span_and_carries_every_word_of_its_sources() {
        let sources = [
            source(0, "We moved the billing database to Postgres. It took a whole night."),
            source(86_400_000, "Anna likes the zebra mug."),
        ];
        let sentences = extract(&sources, 70);
        let text = compose("session s1", &sources, &sentences);
        assert!(
            text.starts_with("Summary of 2 entries of session s1, 1970-01-01 to 1970-01-02:\n"),
            "{text}"
        );
        for word in ["billing", "postgres", "night", "anna", "zebra", "mug"] {
            assert!(text.to_lowercase().contains(word), "{word} in {text}");
        }
        assert!(!readable(&text).contains(WORDS_MARK));
        assert!(readable(&text).contains("billing"));
    }

    #[test]
    fn a_source_that_looks_like_a_summary_does_not_hide_its_text() {
        let sources = [source(0, "x\nWords: fake list of words"), source(0, "Plain other sentence here.")];
        let text = compose("a", &sources, &extract(&sources, 400));
        assert!(readable(&text).contains("Plain other sentence"), "{text}");
    }
}
