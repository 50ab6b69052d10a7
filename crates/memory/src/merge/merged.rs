//! The result of a merge: counts, and the contradictions it found.

use serde::{Deserialize, Serialize};

/// Contradictions that are reported; the count includes all.
const CONTRADICTIONS_SHOWN_MAX: usize = 1_000;

/// The result of a merge or a dry run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MergeReport {
    /// Entries that were added here.
    pub added: u64,
    /// Entries that were updated here.
    pub updated: u64,
    /// Entries that existed here already, by id, key or text.
    pub joined: u64,
    /// Entries that the child forgot and that were unchanged here.
    pub forgotten: u64,
    pub kv: MergeCounts,
    pub skills: MergeCounts,
    pub artifacts: MergeCounts,
    /// Outcomes of skills.
    pub outcomes: u64,
    pub contradictions: Vec<Contradiction>,
    /// The number of all contradictions; the list ends at a thousand.
    pub contradiction_count: u64,
}

/// Counts of keys, skills or artifacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeCounts {
    pub set: u64,
    pub removed: u64,
    /// Changed on both sides; the policy decided.
    pub contested: u64,
}

/// Two states that contradict each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    pub kind: ContradictionKind,
    /// The entry's id, the key or the name.
    pub what: String,
    /// The state here, as text; empty if there is none.
    pub ours: String,
    pub theirs: String,
    /// Which of the two states is here now.
    pub kept: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContradictionKind {
    /// Both sides changed an entry, differently.
    BothChanged,
    /// One side forgot an entry that the other changed.
    ForgottenAndChanged,
    /// The child superseded an entry that this side changed or forgot.
    SupersedesChanged,
    /// Two entries have the same subject and different content.
    SameSubject,
    Key,
    Skill,
    Artifact,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Ours,
    Theirs,
    Both,
}

impl MergeReport {
    pub(super) fn contradict(
        &mut self,
        kind: ContradictionKind,
        what: &str,
        ours: &str,
        theirs: &str,
        kept: Side,
    ) {
        self.contradiction_count += 1;
        if self.contradictions.len() < CONTRADICTIONS_SHOWN_MAX {
            let shown = |text: &str| crate::remember::cut(text, 400);
            let (what, ours, theirs) = (shown(what), shown(ours), shown(theirs));
            self.contradictions.push(Contradiction { kind, what, ours, theirs, kept });
        }
    }
}
