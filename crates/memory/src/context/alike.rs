//! Computes whether two texts say the same in nearly the same words.
//!
//! It compares words, not meaning: "runs on port 80" and "runs on port 81" are close in meaning and must not be treated as
//! the same. So numbers and negations must be equal, and nearly all other words.

/// The features of a text that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextFeatures {
    /// Hashes of pairs of adjacent words, deduplicated and sorted; of single words for very short texts.
    pairs: Vec<u64>,
    /// All words that contain a digit, sorted.
    numbers: Vec<String>,
    negations: usize,
}

/// Words that negate a sentence.
const NEGATIONS: &[&str] = &[
    "not", "no", "never", "none", "without", "neither", "nor", "cannot", "nobody", "nothing", "nowhere",
    "unable", "failed", "fails", "disabled", "off", "false", "stopped", "removed", "deleted",
];

impl TextFeatures {
    pub(crate) fn of(text: &str) -> Self {
        let lower = text.to_lowercase();
        let mut words: Vec<&str> = Vec::new();
        let mut numbers: Vec<String> = Vec::new();
        let mut negations = 0;
        for word in lower.split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '’' | '_'))) {
            let word = word.trim_matches(['\'', '’']);
            if word.is_empty() {
                continue;
            }
            if word.chars().any(|c| c.is_numeric()) {
                numbers.push(word.to_owned());
            }
            if NEGATIONS.contains(&word) || word.ends_with("n't") || word.ends_with("n’t") {
                negations += 1;
            }
            words.push(word);
        }
        numbers.sort_unstable();
        Self { pairs: pairs_of(&words), numbers, negations }
    }

    /// 0 for nothing in common, 1 for the same words in the same order. Different numbers or negations: 0.
    pub(crate) fn likeness_to(&self, other: &Self) -> f32 {
        if self.numbers != other.numbers || self.negations != other.negations {
            return 0.0;
        }
        if self.pairs.is_empty() && other.pairs.is_empty() {
            return 1.0;
        }
        let common = in_both(&self.pairs, &other.pairs);
        common as f32 / (self.pairs.len() + other.pairs.len() - common) as f32
    }

    /// The smallest hashes: similar texts nearly always share at least one of them, so candidates are found
    /// by them.
    pub(crate) fn sketch(&self, size: usize) -> impl Iterator<Item = u64> + '_ {
        self.pairs.iter().copied().take(size)
    }
}

fn pairs_of(words: &[&str]) -> Vec<u64> {
    let mut pairs: Vec<u64> = match words.len() {
        0..3 => words.iter().map(|word| hash(word, "")).collect(),
        _ => words.windows(2).map(|pair| hash(pair[0], pair[1])).collect(),
    };
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// How many values two sorted lists have in common.
fn in_both(a: &[u64], b: &[u64]) -> usize {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut common = 0;
    while let (Some(first), Some(second)) = (a.peek(), b.peek()) {
        let order = first.cmp(second);
        common += usize::from(order.is_eq());
        if order.is_le() {
            a.next();
        }
        if order.is_ge() {
            b.next();
        }
    }
    common
}

fn hash(a: &str, b: &str) -> u64 {
    let digest = blake3::Hasher::new().update(a.as_bytes()).update(&[0]).update(b.as_bytes()).finalize();
    let first: [u8; 8] = digest.as_bytes()[..8].try_into().expect("a digest has 32 bytes");
    u64::from_le_bytes(first)
}

/// The text in a normal form: texts that differ in case, blanks and final full stops become equal.
pub(crate) fn normal_text(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").trim_end_matches(['.', '!', ' ']).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn likeness(a: &str, b: &str) -> f32 {
        TextFeatures::of(a).likeness_to(&TextFeatures::of(b))
    }

    #[test]
    fn the_same_words_are_alike_and_other_words_are_not() {
        let a = "The deploy script needs the staging key before it can push images to the registry";
        assert!((likeness(a, &a.to_uppercase()) - 1.0).abs() < f32::EPSILON);
        assert!(likeness(a, &format!("{a} today")) > 0.9);
        assert!(likeness(a, "The lunch menu has soup and bread on it every other week") < 0.1);
    }

    #[test]
    fn other_numbers_and_negations_are_never_alike() {
        for (a, b) in [
            ("the service runs on port 80 of the host", "the service runs on port 81 of the host"),
            ("the cache is warm and used by the build", "the cache is not warm and used by the build"),
            ("Bob does like the new layout of the page", "Bob doesn't like the new layout of the page"),
            ("tls is enabled for v1 of the api", "tls is disabled for v1 of the api"),
        ] {
            assert_eq!(likeness(a, b), 0.0, "{a} / {b}");
        }
    }

    #[test]
    fn short_and_empty_texts_are_compared_by_their_words() {
        assert_eq!(likeness("yes", "no"), 0.0);
        assert!((likeness("Yes.", "yes") - 1.0).abs() < f32::EPSILON);
        assert!((likeness("", " \n") - 1.0).abs() < f32::EPSILON);
        assert_eq!(normal_text("  A  b\nC. "), "a b c");
    }
}
