//! What the text of one entry, and of those around it, says for a question.
//!
//! Exact words are counted over a window of nine entries of a session (BM25F: the nearer the entry, the more a word in it
//! counts). Like words are compared piece by piece: for each word of the question, how alike is the likest one here.
//! The second finds what the first cannot (`hobby` in a text about pottery), the first is right where it finds.

use super::Quick;
use super::query::{PIECES_MAX, Query, Word};
use super::stem::stem;
use super::words::{each_word, is_common};
use crate::embed::{TokenTable, head};

/// How much a word counts that stands so many entries before, and after.
const BEFORE: [f32; REACH] = [0.6, 0.3, 0.15, 0.1];
const AFTER: [f32; REACH] = [0.4, 0.2, 0.1, 0.05];

/// As far as a window reaches to either side.
pub(super) const REACH: usize = 4;

/// Likeness counts over a shorter one; it is everywhere.
const LIKE_BEFORE: [f32; 2] = [0.6, 0.3];
const LIKE_AFTER: [f32; 2] = [0.5, 0.25];

/// BM25's own: how soon repeats of a word stop to count, and how much long texts are held back.
const K1: f32 = 1.2;
const B: f32 = 0.5;

/// Of a long text, what is looked at: a hit is a place to read on, and hundreds of texts are looked at for one question.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// The words before a colon at the start of a text say who speaks, if they are few.
const LABEL_BYTES_MAX: usize = 40;

/// What one text has of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    /// How often it has each word.
    pub(super) counts: Vec<f32>,
    /// The likeness of the likest token, for each word.
    pub(super) likest: Vec<f32>,
    pub(super) length: f32,
    /// Whether it is by somebody the question names.
    pub(super) is_by_named: bool,
    /// A question tells what somebody wanted to know, not what is known.
    pub(super) is_question: bool,
}

/// Reads texts for one question; remembers what each word it met says for it, so that a word is looked at closely once,
/// and what each token does: words share them.
#[derive(Debug)]
pub(super) struct Examiner<'a> {
    query: &'a Query,
    table: &'static TokenTable,
    met: Quick<Box<str>, Met>,
    /// The likenesses to the question's pieces, of one met word after another.
    alike: Vec<f32>,
    tokens: Tokens,
}

/// How alike the tokens that were met are to the pieces of a question.
#[derive(Debug)]
struct Tokens {
    pieces: Vec<u32>,
    /// By token: its place in `alike`, from 1; 0 for one that was not met.
    places: Vec<u32>,
    /// A likeness for each piece, of one met token after another.
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

/// What a word says for a question.
#[derive(Clone, Copy, Debug)]
struct Met {
    /// Which of the question's words it is a form of.
    is: Option<usize>,
    /// Where its likenesses begin.
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
            met: Quick::with_capacity_and_hasher(4096, Default::default()),
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

    fn meet(&mut self, word: &str) -> Met {
        if let Some(met) = self.met.get(word) {
            return *met;
        }
        let at = self.alike.len();
        self.alike.resize(at + self.tokens.pieces.len(), 0.0);
        // Common words are like much, and say nothing by it.
        if !is_common(word) {
            for token in self.table.words.encode(word, PIECES_MAX) {
                for (alike, of_token) in self.alike[at..].iter_mut().zip(self.tokens.alike(self.table, token))
                {
                    *alike = alike.max(*of_token);
                }
            }
        }
        let met = Met { is: position(&self.query.words, word), alike: at };
        self.met.insert(word.into(), met);
        met
    }

    /// From pieces to words: the mean over a word's pieces.
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

/// Which word of the question this is a form of. Stems begin as their words do, so most are told apart by that.
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

/// Who speaks, where a text begins as `Name: …`.
fn label(text: &str) -> Option<&str> {
    let head = head(text, LABEL_BYTES_MAX);
    let (label, _) = head.split_once(": ")?;
    let is_name =
        label.split(' ').count() <= 3 && label.chars().all(|c| c.is_alphanumeric() || " .-_'".contains(c));
    is_name.then_some(label)
}

/// Whether it ends by asking. A note in brackets after it, as of a picture, does not count.
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

/// An entry's text with those around it, nearest first.
#[derive(Debug)]
pub(super) struct Window<'a> {
    pub(super) own: &'a Text,
    pub(super) before: Vec<&'a Text>,
    pub(super) after: Vec<&'a Text>,
}

impl Window<'_> {
    /// The texts around it with what they count.
    fn around<'a>(
        &'a self,
        before: &'a [f32],
        after: &'a [f32],
    ) -> impl Iterator<Item = (&'a Text, f32)> + 'a {
        let before = self.before.iter().copied().zip(before.iter().copied());
        before.chain(self.after.iter().copied().zip(after.iter().copied()))
    }

    /// The length of the window as BM25F sees it.
    pub(super) fn length(&self, neighbours: f32) -> f32 {
        let around: f32 = self.around(&BEFORE, &AFTER).map(|(text, by)| text.length * by).sum();
        self.own.length + neighbours * around
    }

    /// BM25F over the window. `neighbours` scales what those around it count; `mean` is the usual [`Window::length`].
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

    /// How alike the text itself is, from 0 to 1.
    pub(super) fn alike(&self, query: &Query) -> f32 {
        weighed(query, |at| self.own.likest[at])
    }

    /// How alike the text and those around it are; only what is much alike counts.
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
    fn what_is_like_the_question_is_told_from_what_is_not() {
        let query = query("car repair");
        let found = texts(&query, &["the vehicle was fixed by a mechanic", "she sang a song at the concert"]);
        assert!(alone(&found[0]).alike(&query) > alone(&found[1]).alike(&query) + 0.1);
        let same = texts(&query, &["repairs of a car"]);
        assert!(alone(&same[0]).alike(&query) > 0.9);
    }

    #[test]
    fn the_words_around_an_entry_count_for_it_and_less_than_its_own() {
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
    fn speakers_and_questions_are_known() {
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
    fn a_huge_text_costs_what_a_long_one_does() {
        let query = query("needle");
        let text = format!("needle {}", "hay ".repeat(16_000));
        let found = texts(&query, &[&text]);
        assert!(found[0].counts[0] > 0.0 && found[0].length <= 4096.0, "{}", found[0].length);
    }
}
