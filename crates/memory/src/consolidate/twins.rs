//! Finds duplicate entries: equal texts, and texts that differ in a word or two.
//!
//! Candidates are found by sketches (the smallest hashes of their word pairs: similar texts share one), then compared
//! fully. Never joined: entries of different users, agents or kinds, and texts with different numbers or
//! negations (their likeness is 0). The oldest entry of a group is kept.

use std::collections::HashMap;

use burrow_model::MemoryId;

use crate::context::alike::{TextFeatures, normal_text};

/// Hashes per text that candidates are found by. Two texts that share 90 % of their pairs have a given one of the
/// smallest hashes in common with at least that probability; that they share none of eight happens once in a hundred million.
const SKETCH: usize = 8;

/// Entries compared for one sketch value: a hash shared by more entries belongs to a common phrase.
const BUCKET_MAX: usize = 64;

/// Kind, user, agent.
pub(super) type Realm = (String, Option<String>, Option<String>);

/// The fields of an entry that joining depends on.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: MemoryId,
    pub(super) text: String,
    /// Must be equal for two entries to be joined: kind, user, agent.
    pub(super) realm: Realm,
    pub(super) at_ms: u64,
}

/// The entries `gone` duplicate the entry `keep`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DuplicateGroup {
    pub keep: MemoryId,
    pub gone: Vec<MemoryId>,
    /// The similarity of the least similar one.
    pub likeness: f32,
}

/// The joins among candidates. `near` is the least similarity; `None` joins equal texts only.
pub(super) fn find(candidates: &[Candidate], near: Option<f32>) -> Vec<DuplicateGroup> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|at| (candidates[*at].at_ms, candidates[*at].id.clone()));
    let mut equal: HashMap<(String, &Realm), usize> = HashMap::new();
    let mut buckets: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut likenesses: HashMap<usize, TextFeatures> = HashMap::new();
    let mut groups: HashMap<usize, (Vec<usize>, f32)> = HashMap::new();
    for at in order {
        let candidate = &candidates[at];
        let key = (normal_text(&candidate.text), &candidate.realm);
        if let Some(first) = equal.get(&key) {
            groups.entry(*first).or_insert((Vec::new(), 1.0)).0.push(at);
            continue;
        }
        let likeness = TextFeatures::of(&candidate.text);
        let twin = near.and_then(|near| nearest(candidates, at, &likeness, &buckets, &likenesses, near));
        if let Some((first, share)) = twin {
            let group = groups.entry(first).or_insert((Vec::new(), 1.0));
            group.0.push(at);
            group.1 = group.1.min(share);
            continue;
        }
        // Texts are compared only with kept entries: a chain of small differences must not join its two ends.
        equal.insert(key, at);
        for hash in likeness.sketch(SKETCH) {
            let bucket = buckets.entry(hash).or_default();
            if bucket.len() < BUCKET_MAX {
                bucket.push(at);
            }
        }
        likenesses.insert(at, likeness);
    }
    let mut joins: Vec<(usize, (Vec<usize>, f32))> = groups.into_iter().collect();
    joins.sort_by_key(|(keep, _)| (candidates[*keep].at_ms, candidates[*keep].id.clone()));
    joins
        .into_iter()
        .map(|(keep, (gone, likeness))| DuplicateGroup {
            keep: candidates[keep].id.clone(),
            gone: gone.into_iter().map(|at| candidates[at].id.clone()).collect(),
            likeness,
        })
        .collect()
}

fn nearest(
    candidates: &[Candidate],
    at: usize,
    likeness: &TextFeatures,
    buckets: &HashMap<u64, Vec<usize>>,
    likenesses: &HashMap<usize, TextFeatures>,
    near: f32,
) -> Option<(usize, f32)> {
    let mut best: Option<(usize, f32)> = None;
    for hash in likeness.sketch(SKETCH) {
        for other in buckets.get(&hash).map_or(&[][..], Vec::as_slice) {
            if candidates[*other].realm != candidates[at].realm {
                continue;
            }
            let share = likenesses.get(other).map_or(0.0, |other| other.likeness_to(likeness));
            if share >= near && best.is_none_or(|(_, best)| share > best) {
                best = Some((*other, share));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(text: &str, at_ms: u64, user: Option<&str>) -> Candidate {
        Candidate {
            id: MemoryId::generate(),
            text: text.to_owned(),
            realm: ("note".to_owned(), user.map(str::to_owned), None),
            at_ms,
        }
    }

    const TEXT: &str =
        "the deploy script needs the staging key before it can push any images to the registry of the team";

    #[test]
    fn the_oldest_of_equal_and_nearly_equal_texts_is_kept() {
        let all = [
            candidate(&TEXT.to_uppercase(), 3, None),
            candidate(TEXT, 1, None),
            candidate(&format!("{TEXT} today"), 2, None),
        ];
        let joins = find(&all, Some(0.85));
        assert_eq!(joins.len(), 1);
        assert_eq!(joins[0].keep, all[1].id);
        assert_eq!(joins[0].gone, [all[2].id.clone(), all[0].id.clone()]);
        assert!(joins[0].likeness < 1.0);
        let exact = find(&all, None);
        assert_eq!(exact[0].gone, std::slice::from_ref(&all[0].id));
    }

    #[test]
    fn users_numbers_and_negations_keep_texts_apart() {
        let all = [
            candidate(TEXT, 1, Some("anna")),
            candidate(TEXT, 2, Some("bob")),
            candidate(&format!("{TEXT} 1"), 3, Some("anna")),
            candidate(&format!("{TEXT} 2"), 4, Some("anna")),
            candidate(&TEXT.replace("can", "cannot"), 5, Some("anna")),
        ];
        assert_eq!(find(&all, Some(0.5)), []);
    }

    #[test]
    fn a_chain_of_small_differences_does_not_join_its_ends() {
        let words: Vec<String> = (0..30).map(|n| format!("word{}", char::from(b'a' + (n % 26)))).collect();
        let all: Vec<Candidate> = (0..6u64)
            .map(|n| {
                let mut text = words.clone();
                for (letter, word) in (b'a'..).zip(text.iter_mut().take(n as usize * 2)) {
                    *word = format!("other{}", char::from(letter));
                }
                candidate(&text.join(" "), n, None)
            })
            .collect();
        for join in find(&all, Some(0.8)) {
            let keep = all.iter().find(|c| c.id == join.keep).unwrap();
            for gone in &join.gone {
                let gone = all.iter().find(|c| c.id == *gone).unwrap();
                assert!(TextFeatures::of(&keep.text).likeness_to(&TextFeatures::of(&gone.text)) >= 0.8);
            }
        }
    }

    proptest! {
        #[test]
        fn every_entry_is_kept_or_gone_and_never_both(picks in proptest::collection::vec(0usize..5, 0..40)) {
            let texts = ["alpha beta gamma delta", "alpha beta gamma", "one two three four five", "yes", ""];
            let all: Vec<Candidate> = picks.iter().enumerate().map(|(n, pick)| candidate(texts[*pick], n as u64, None)).collect();
            let joins = find(&all, Some(0.9));
            let mut gone: Vec<&MemoryId> = joins.iter().flat_map(|join| &join.gone).collect();
            let count = gone.len();
            gone.sort();
            gone.dedup();
            prop_assert_eq!(gone.len(), count);
            prop_assert!(joins.iter().all(|join| !gone.contains(&&join.keep)));
            let kinds: std::collections::HashSet<&usize> = picks.iter().collect();
            prop_assert_eq!(all.len() - count, kinds.len());
        }
    }
}
