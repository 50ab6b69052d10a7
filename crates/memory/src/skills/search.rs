//! Finds skills for a situation: by words, by meaning, and by their success rate.
//!
//! score = relevance × probability of success. A branch has few skills, so all of them are compared, without an index.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::rows::{NAMES, StoredSkill, head};
use super::write::StoredVector;
use super::{NewSkill, Skill};
use crate::embed::Embedder;
use crate::newest::links;
use crate::{MemoryError, View};

/// Most skills that one search returns.
pub const SKILL_HITS_MAX: usize = 100;

/// Longest query: a longer one would cost time per skill without being more precise.
pub const SKILL_QUERY_BYTES_MAX: usize = 16 << 10;

/// The weight of a word in the name, relative to one in the description.
const NAME_WEIGHT: f64 = 2.0;
/// BM25's saturation and length normalisation, at their usual values.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The share of words in the relevance if there is a vector, too.
const LEXICAL_SHARE: f64 = 0.6;
/// Lower similarities of meaning are chance.
const COSINE_MIN: f64 = 0.35;

/// A matching skill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkillHit {
    pub skill: Skill,
    /// The score that hits are sorted by, from 0 to 1.
    pub score: f64,
    /// How well it matches the query, from 0 to 1, and by what.
    pub relevance: f64,
    pub lexical: f64,
    /// `None` if there was no vector to compare.
    pub vector: Option<f64>,
}

impl View {
    /// The matching skills, best first.
    pub async fn skill_search(&self, query: &str, limit: usize) -> Result<Vec<SkillHit>, MemoryError> {
        if query.len() > SKILL_QUERY_BYTES_MAX {
            return Err(MemoryError::too_large("the query", query.len(), SKILL_QUERY_BYTES_MAX));
        }
        let limit = limit.clamp(1, SKILL_HITS_MAX);
        let vector = embed(Arc::clone(&self.shared.embedder), query.to_owned()).await;
        let terms: HashSet<String> = words(query).collect();
        self.read(move |reader| {
            let (connection, links) = (reader.connection(), links(reader.chain()));
            let mut known = Vec::new();
            NAMES.walk(connection, "", None, |name| {
                known.extend(head(connection, &links, name)?.filter(|stored| stored.body.is_some()));
                Ok::<_, MemoryError>(true)
            })?;
            let lexical = lexical(&terms, &known);
            let mut found: Vec<(Match, StoredSkill)> = known
                .into_iter()
                .zip(lexical)
                .filter_map(|(stored, lexical)| {
                    Some((relevance(lexical, cosine(vector.as_ref(), &stored))?, stored))
                })
                .collect();
            // The success rate at most doubles a score, so examining a few times the limit is enough.
            found.sort_by(|a, b| b.0.relevance.total_cmp(&a.0.relevance));
            found.truncate(limit * 4);
            let mut hits = Vec::with_capacity(found.len());
            for (matched, stored) in found {
                let skill = stored.skill(connection, &links)?;
                hits.push(SkillHit {
                    score: matched.relevance * skill.score,
                    relevance: matched.relevance,
                    lexical: matched.lexical,
                    vector: matched.vector,
                    skill,
                });
            }
            hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.skill.name.cmp(&b.skill.name)));
            hits.truncate(limit);
            Ok(hits)
        })
        .await
    }

    /// The vector of a skill. Without one, it is found by its words only.
    pub(super) async fn skill_vector(&self, new: &NewSkill) -> Option<StoredVector> {
        let text = format!("{}\n{}\n{}", new.name, new.description, new.when_to_use);
        embed(Arc::clone(&self.shared.embedder), text).await
    }
}

async fn embed(embedder: Arc<dyn Embedder>, text: String) -> Option<StoredVector> {
    let made = tokio::task::spawn_blocking(move || {
        let made = embedder.embed(&[&text])?;
        let data = made.into_iter().next().unwrap_or_default();
        Ok::<_, crate::embed::EmbedError>((embedder.model().to_string(), data))
    });
    match made.await {
        Ok(Ok((model, numbers))) => {
            let data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            Some(StoredVector { model, data })
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "could not embed a skill or a query for skills; searching by words only");
            None
        }
        Err(error) => {
            tracing::error!(%error, "an embedder panicked");
            None
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Match {
    relevance: f64,
    lexical: f64,
    vector: Option<f64>,
}

fn relevance(lexical: f64, vector: Option<f64>) -> Option<Match> {
    let relevance = match vector {
        Some(cosine) => LEXICAL_SHARE * lexical + (1.0 - LEXICAL_SHARE) * cosine.max(0.0),
        None => lexical,
    };
    let fits = lexical > 0.0 || vector.is_some_and(|cosine| cosine >= COSINE_MIN);
    fits.then_some(Match { relevance: relevance.clamp(0.0, 1.0), lexical, vector })
}

fn cosine(query: Option<&StoredVector>, stored: &StoredSkill) -> Option<f64> {
    let query = query?;
    let data = stored.vector.as_ref().filter(|data| data.len() == query.data.len())?;
    if stored.model.as_ref() != Some(&query.model) {
        return None;
    }
    let numbers = |data: &[u8]| -> Vec<f32> {
        data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let product: f32 = numbers(data).iter().zip(numbers(&query.data)).map(|(a, b)| a * b).sum();
    Some(f64::from(product))
}

/// BM25 of each skill, from 0 to 1: relative to a skill that contains all the words.
fn lexical(terms: &HashSet<String>, known: &[StoredSkill]) -> Vec<f64> {
    let mut documents = Vec::with_capacity(known.len());
    let mut with_term: HashMap<&str, f64> = HashMap::new();
    for stored in known {
        let mut counts: HashMap<&str, f64> = HashMap::new();
        let mut length = 0.0;
        let weighted = [(&stored.name, NAME_WEIGHT), (&stored.description, 1.0), (&stored.when_to_use, 1.0)];
        for (text, weight) in weighted {
            for word in words(text) {
                length += 1.0;
                if let Some(term) = terms.get(&word) {
                    *counts.entry(term).or_default() += weight;
                }
            }
        }
        counts.keys().for_each(|term| *with_term.entry(term).or_default() += 1.0);
        documents.push((counts, length));
    }
    let number = documents.len().max(1) as f64;
    let mean = (documents.iter().map(|(_, length)| length).sum::<f64>() / number).max(1.0);
    let rarity = |term: &str| {
        let having = with_term.get(term).copied().unwrap_or(0.0);
        (1.0 + (number - having + 0.5) / (having + 0.5)).ln()
    };
    let most: f64 = terms.iter().map(|term| rarity(term) * (K1 + 1.0)).sum::<f64>().max(f64::MIN_POSITIVE);
    documents
        .iter()
        .map(|(counts, length)| {
            let norm = K1 * (1.0 - B + B * length / mean);
            let sum: f64 =
                counts.iter().map(|(term, count)| rarity(term) * count * (K1 + 1.0) / (count + norm)).sum();
            sum / most
        })
        .collect()
}

/// Words that occur in every query and are not significant.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "in",
    "is", "it", "me", "my", "of", "on", "or", "that", "the", "this", "to", "we", "what", "when", "which",
    "with", "you",
];

/// The words of a text in lower case, without the most common endings.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
        .map(|word| stem(&word).to_owned())
}

/// Makes `deploying`, `deployed` and `deploys` equal.
fn stem(word: &str) -> &str {
    if word.len() < 4 || !word.is_ascii() || word.ends_with("ss") {
        return word;
    }
    let cut = ["ations", "ation", "ings", "ing", "ies", "ed", "es", "s", "e", "y"];
    let stems = cut.iter().filter_map(|ending| word.strip_suffix(ending));
    let stem = stems.into_iter().find(|stem| stem.len() >= 3).unwrap_or(word);
    // Makes `running` and `run` equal as well.
    let bytes = stem.as_bytes();
    let doubled =
        bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2] && stem.len() < word.len();
    if doubled && !matches!(bytes[bytes.len() - 1], b'l' | b's') { &stem[..stem.len() - 1] } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_meet() {
        for (form, other) in [
            ("deploying", "deploys"),
            ("running", "run"),
            ("migrations", "migration"),
            ("services", "service"),
            ("queries", "query"),
            ("restarted", "restart"),
        ] {
            assert_eq!(stem(form), stem(other), "{form} and {other}");
        }
        assert_ne!(stem("process"), stem("proc"));
    }

    #[test]
    fn words_are_lower_case_and_without_filler() {
        let found: Vec<_> = words("How do I restart the PostgreSQL-server?").collect();
        assert_eq!(found, ["restart", "postgresql", "server"]);
    }
}
