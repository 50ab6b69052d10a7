//! Texts to remember, and questions about them, generated from a seed.
//!
//! Words are distributed as in real text: their ranks follow Zipf's law, the first ones are English function words and
//! the rest are made of syllables. An entry has a subject, a few rare words that it repeats and shares with its
//! neighbours, so that a search finds something and an index has both the long and the short posting lists of real text.

/// Number of different words.
const WORDS: usize = 30_000;
/// Entries that share their subject, like turns of one conversation.
const SESSION: usize = 20;
/// The exponent of Zipf's law, as in English.
const EXPONENT: f64 = 1.05;

const FILLER: &str = "the of to and a in is it that was for on with as at by this be from or we not have are but they had \
                      will one all there when up out then so server file error service";

const SYLLABLES: &str = "ba cor den fi gan hel is jo ka lor mi nel or pa qui ran sto ta ul ver wen xi yor zan bre cla dro \
                         fen gli pro tri sha";

/// splitmix64: small, and the same on every machine.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("smaller than a usize")
    }

    /// In the range 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what a double has")]
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A vocabulary.
#[derive(Clone, Debug)]
pub(super) struct Language {
    words: Vec<String>,
    /// By rank: the share of all text that consists of words up to this rank.
    shares: Vec<f64>,
}

impl Language {
    #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
    pub(super) fn new() -> Self {
        let mut random = Random::new(7);
        let syllables: Vec<&str> = SYLLABLES.split(' ').collect();
        let mut words: Vec<String> = FILLER.split(' ').map(str::to_owned).collect();
        while words.len() < WORDS {
            let length = 2 + random.below(3);
            words.push((0..length).map(|_| syllables[random.below(syllables.len())]).collect());
        }
        let weights: Vec<f64> = (1..=WORDS).map(|rank| (rank as f64).powf(-EXPONENT)).collect();
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let shares = weights.iter().map(|weight| {
            sum += weight / total;
            sum
        });
        Self { shares: shares.collect(), words }
    }

    fn word(&self, random: &mut Random) -> &str {
        let share = random.share();
        &self.words[self.shares.partition_point(|known| *known < share).min(WORDS - 1)]
    }

    /// The subject words of an entry and its neighbours.
    fn subject(&self, number: usize) -> [&str; 3] {
        let mut random = Random::new(0x5eed ^ (number / SESSION) as u64);
        std::array::from_fn(|_| self.words[500 + random.below(WORDS - 500)].as_str())
    }

    /// Entry number `number`, always the same: some 20 words, a few of which belong to its subject.
    pub(super) fn entry(&self, number: usize) -> String {
        let mut random = Random::new(0xe47 + number as u64);
        let subject = self.subject(number);
        let mut text = String::new();
        for _ in 0..10 + random.below(25) {
            if !text.is_empty() {
                text.push(' ');
            }
            match random.below(8) {
                0 => text.push_str(subject[random.below(subject.len())]),
                _ => text.push_str(self.word(&mut random)),
            }
        }
        text
    }

    pub(super) fn session(number: usize) -> String {
        format!("session-{}", number / SESSION)
    }

    /// A question about an entry: words of its subject among common words.
    pub(super) fn question(&self, number: usize, random: &mut Random) -> String {
        let [first, second, _] = self.subject(number);
        format!("when did the {} {first} {} with {second}", self.word(random), self.word(random))
    }

    /// The number of a random entry.
    pub(super) fn pick(random: &mut Random, entries: usize) -> usize {
        random.below(entries.max(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn texts_are_the_same_each_time_and_as_common_as_in_english() {
        let language = Language::new();
        assert_eq!(language.entry(17), Language::new().entry(17));
        let mut counts: HashMap<String, usize> = HashMap::new();
        for number in 0..2000 {
            for word in language.entry(number).split(' ') {
                *counts.entry(word.to_owned()).or_default() += 1;
            }
        }
        let total: usize = counts.values().sum();
        let the = counts["the"] * 100 / total;
        assert!((4..15).contains(&the), "`the` is {the} % of all words");
        assert!(
            counts.values().filter(|count| **count == 1).count() > counts.len() / 5,
            "many words are rare"
        );
    }
}
