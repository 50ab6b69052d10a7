//! Scores the text of one entry, together with its neighbours, for a query.
//!
//! Exact words are counted in a window of nine entries of a session (BM25F: words in nearer entries count
//! more). Similar words are compared token by token: for each word of the query, the similarity of the most similar token here.
//! The second finds what the first cannot (`hobby` in a text about pottery); the first is more precise.

use super::query::{PIECES_MAX, Query, Word};
use super::quick_map::QuickMap;
use super::stem::stem;
use super::words::{each_word, is_common};
use crate::embed::{TokenTable, head};

/// The weight of a word in the entries before, and after, by distance.
const BEFORE: [f32; REACH] = [0.6, 0.3, 0.15, 0.1];
const AFTER: [f32; REACH] = [0.4, 0.2, 0.1, 0.05];

/// The entries of a window on each side.
pub(super) const REACH: usize = 4;

/// Similarity counts over a shorter window, because some similarity is found everywhere.
const LIKE_BEFORE: [f32; 2] = [0.6, 0.3];
const LIKE_AFTER: [f32; 2] = [0.5, 0.25];

/// BM25's parameters: how fast repetitions saturate, and how much long texts are penalised.
const K1: f32 = 1.2;
const B: f32 = 0.5;

/// Bytes of a long text that are read: a hit only shows where to read on, and each query examines hundreds of texts.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A few words before a colon at the start of a text name the speaker.
const LABEL_BYTES_MAX: usize = 40;

/// The evidence in one text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    /// How often it contains each word.
    pub(super) counts: Vec<f32>,
    /// The similarity of the most similar token, for each word.
    pub(super) likest: Vec<f32>,
    pub(super) length: f32,
    /// Whether its author is named in the query.
    pub(super) is_by_named: bool,
    /// Whether it is a question: a question shows what was asked, not what is known.
    pub(super) is_question: bool,
}

/// Reads texts for one query. It caches the result for each word, so that a word is examined only once,
/// and for each token, because words share tokens.
#[derive(Debug)]
pub(super) struct Examiner<'a> {
    query: &'a Query,
    table: &'static TokenTable,
    met: QuickMap<Box<str>, CachedWord>,
    /// The similarities to the query's tokens, for one cached word after another.
    alike: Vec<f32>,
    tokens: Tokens,
}

/// The similarities of cached tokens to the tokens of a query.
#[derive(Debug)]
struct Tokens {
    pieces: Vec<u32>,
    /// By token: its index in `alike`, from 1; 0 if it is not cached.
    places: Vec<u32>,
    /// One similarity per token of the query, for one cached token after another.
    alike: Vec<f32>,
    met: u32,
}

impl Tokens {
    fn alike(&mut self, table: &TokenTable, token: u32) -> &[f32] {
        let count = self.pieces.len();
        let place = &mut self.places[token as usize];
        if *place == 0 {
            let alike = self.pieces.iter().map(|piece| table.similarity(*piece, token));
            self.alike.extend(alike);
            self.met += 1;
            *place = self.met;
        }
        let from = (*place as usize - 1) * count;
        &self.alike[from..from + count]
    }
}

/// The cached result for a word.
#[derive(Clone, Copy, Debug)]
struct CachedWord {
    /// The word of the query that it is a form of.
    is: Option<usize>,
    /// Where its similarities begin.
    alike: usize,
}

impl<'a> Examiner<'a> {
    pub(super) fn new(query: &'a Query) -> Self {
        let pieces = query.words.iter().flat_map(|word| &word.pieces).copied().collect();
        let table = TokenTable::built_in();
        let tokens = Tokens { pieces, places: vec![0; table.len()], alike: Vec::new(), met: 0 };
        Self {
            query,
            table,
            met: QuickMap::with_capacity_and_hasher(4096, Default::default()),
            alike: Vec::new(),
            tokens,
        }
    }

    pub(super) fn examine(&mut self, text: &str) -> Text {
        let text = head(text, TEXT_BYTES_MAX);
        let mut counts = vec![0.0; self.query.words.len()];
        let mut best = vec![0.0f32; self.tokens.pieces.len()];
        let mut length = 0.0;
        each_word(text, |word| {
            length += 1.0;
            let met = self.meet(word);
            if let Some(at) = met.is {
                counts[at] += 1.0;
            }
            for (best, alike) in best.iter_mut().zip(&self.alike[met.alike..]) {
                *best = best.max(*alike);
            }
        });
        let is_by_named = label(text).is_some_and(|label| self.query.names(label));
        Text { counts, likest: self.by_word(&best), length, is_by_named, is_question: is_question(text) }
    }

    fn meet(&mut self, word: &str) -> CachedWord {
        if let Some(met) = self.met.get(word) {
            return *met;
        }
        let at = self.alike.len();
        self.alike.resize(at + self.tokens.pieces.len(), 0.0);
        // Common words are similar to many words, which means nothing.
        if !is_common(word) {
            for token in self.table.words.encode(word, PIECES_MAX) {
                for (alike, of_token) in self.alike[at..].iter_mut().zip(self.tokens.alike(self.table, token))
                {
                    *alike = alike.max(*of_token);
                }
            }
        }
        let met = CachedWord { is: position(&self.query.words, word), alike: at };
        self.met.insert(word.into(), met);
        met
    }

    /// From tokens to words: the mean over a word's tokens.
    fn by_word(&self, best: &[f32]) -> Vec<f32> {
        let mut from = 0;
        let mean = |word: &Word| {
            let part = &best[from..from + word.pieces.len()];
            from += word.pieces.len();
            #[expect(clippy::cast_precision_loss, reason = "a word has eight pieces at most")]
            let count = part.len().max(1) as f32;
            part.iter().sum::<f32>() / count
        };
        self.query.words.iter().map(mean).collect()
    }
}

/// The word of the query that this is a form of. Stems begin like their words, so most words are excluded quickly.
fn position(words: &[Word], word: &str) -> Option<usize> {
    let begins = |known: &Word| {
        let (a, b) = (known.stem.as_bytes(), word.as_bytes());
        a[0] == b[0] && (a.len() < 3 || b.len() < 3 || a[1] == b[1])
    };
    let mut stemmed = None;
    words.iter().position(|known| {
        known.text == word || (begins(known) && *stemmed.get_or_insert_with(|| stem(word)) == known.stem)
    })
}

/// The speaker, if a text begins with `Name: …`.
fn label(text: &str) -> Option<&str> {
    let head = head(text, LABEL_BYTES_MAX);
    let (label, _) = head.split_once(": ")?;
    let is_name =
        label.split(' ').count() <= 3 && label.chars().all(|c| c.is_alphanumeric() || " .-_'".contains(c));
    is_name.then_some(label)
}

/// Whether it ends with a question. A note in brackets after it, for example about a picture, is ignored.
fn is_question(text: &str) -> bool {
    let quoted = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '”');
    let mut text = text.trim_end_matches(quoted);
    if text.ends_with(']')
        && let Some(at) = text.rfind(" [")
    {
        text = text[..at].trim_end_matches(quoted);
    }
    text.ends_with('?')
}

/// An entry's text with its neighbours, nearest first.
#[derive(Debug)]
pub(super) struct Window<'a> {
    pub(super) own: &'a Text,
    pub(super) before: Vec<&'a Text>,
    pub(super) after: Vec<&'a Text>,
}

impl Window<'_> {
    /// The neighbours' texts with their weights.
    fn around<'a>(
        &'a self,
        before: &'a [f32],
        after: &'a [f32],
    ) -> impl Iterator<Item = (&'a Text, f32)> + 'a {
        let before = self.before.iter().copied().zip(before.iter().copied());
        before.chain(self.after.iter().copied().zip(after.iter().copied()))
    }

    /// The length of the window for BM25F.
    pub(super) fn length(&self, neighbours: f32) -> f32 {
        let around: f32 = self.around(&BEFORE, &AFTER).map(|(text, by)| text.length * by).sum();
        self.own.length + neighbours * around
    }

    /// BM25F over the window. `neighbours` scales the weight of the neighbours; `mean` is the average [`Window::length`].
    pub(super) fn exact(&self, query: &Query, neighbours: f32, mean: f32) -> f32 {
        let held_back = K1 * (1.0 - B + B * self.length(neighbours) / mean.max(1.0));
        let mut score = 0.0;
        for (at, word) in query.words.iter().enumerate() {
            let around: f32 = self.around(&BEFORE, &AFTER).map(|(text, by)| text.counts[at] * by).sum();
            let count = self.own.counts[at] + neighbours * around;
            score += word.rarity * count * (K1 + 1.0) / (count + held_back);
        }
        score
    }

    /// The similarity of the text itself, from 0 to 1.
    pub(super) fn alike(&self, query: &Query) -> f32 {
        weighed(query, |at| self.own.likest[at])
    }

    /// The similarity of the text and its neighbours; only high similarities count.
    pub(super) fn alike_around(&self, query: &Query, neighbours: f32) -> f32 {
        weighed(query, |at| {
            let own = self.own.likest[at].powi(2);
            let around = self.around(&LIKE_BEFORE, &LIKE_AFTER);
            around.map(|(text, by)| neighbours * by * text.likest[at].powi(2)).fold(own, f32::max)
        })
    }
}

fn weighed(query: &Query, of: impl Fn(usize) -> f32) -> f32 {
    let weights: f32 = query.words.iter().map(|word| word.weight).sum();
    let sum: f32 = query.words.iter().enumerate().map(|(at, word)| word.weight * of(at)).sum();
    if weights > 0.0 { sum / weights } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::new(text, 0, 100, |_| Ok::<_, ()>(3)).unwrap()
    }

    fn texts(query: &Query, texts: &[&str]) -> Vec<Text> {
        let mut examiner = Examiner::new(query);
        texts.iter().map(|text| examiner.examine(text)).collect()
    }

    fn alone(own: &Text) -> Window<'_> {
        Window { own, before: Vec::new(), after: Vec::new() }
    }

    #[test]
    fn words_are_counted_in_all_their_forms() {
        let query = query("database migrations");
        let found = texts(&query, &["Migrating databases: the database was migrated", "nothing"]);
        assert_eq!(found[0].counts, [2.0, 2.0]);
        assert_eq!(found[0].length, 6.0);
        assert_eq!(found[1].counts, [0.0, 0.0]);
    }

    #[test]
    fn similar_texts_are_distinguished_from_others() {
        let query = query("car repair");
        let found = texts(&query, &["the vehicle was fixed by a mechanic", "she sang a song at the concert"]);
        assert!(alone(&found[0]).alike(&query) > alone(&found[1]).alike(&query) + 0.1);
        let same = texts(&query, &["repairs of a car"]);
        assert!(alone(&same[0]).alike(&query) > 0.9);
    }

    #[test]
    fn words_of_neighbours_count_less_than_own_words() {
        let query = query("deploy key");
        let found = texts(&query, &["Which deploy key is it?", "The blue one.", "It rains."]);
        let [asked, answer, rain] = &found[..] else { panic!() };
        let answered = Window { own: answer, before: vec![asked], after: Vec::new() };
        let own = alone(asked).exact(&query, 1.0, 4.0);
        let (with, without) = (answered.exact(&query, 1.0, 4.0), alone(rain).exact(&query, 1.0, 4.0));
        assert!(own > with && with > without && without == 0.0, "{own} {with} {without}");
        assert_eq!(answered.exact(&query, 0.0, 4.0), 0.0);
        assert!(answered.alike_around(&query, 1.0) > alone(answer).alike_around(&query, 1.0));
    }

    #[test]
    fn speakers_and_questions_are_recognised() {
        let query = query("what did Alice fix?");
        let found = texts(
            &query,
            &["Alice: the leak", "Bob: ask Alice", "error: at once", "Bob: why? \"", "what? [image: x]"],
        );
        let by: Vec<bool> = found.iter().map(|text| text.is_by_named).collect();
        assert_eq!(by, [true, false, false, false, false]);
        let questions: Vec<bool> = found.iter().map(|text| text.is_question).collect();
        assert_eq!(questions, [false, false, false, true, true]);
    }

    #[test]
    fn a_huge_text_costs_no_more_than_a_long_one() {
        let query = query("needle");
        let text = format!("needle {}", "hay ".repeat(16_000));
        let found = texts(&query, &[&text]);
        assert!(found[0].counts[0] > 0.0 && found[0].length <= 4096.0, "{}", found[0].length);
    }
}
