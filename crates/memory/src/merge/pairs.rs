//! Contradictions between two separate entries: of the same subject, or where one supersedes an entry that was changed here.
//!
//! | | same subject | theirs supersedes an entry that was changed or forgotten here |
//! |---|---|---|
//! | listed, open | both stay | both stay, theirs supersedes |
//! | ours | ours supersedes theirs | theirs supersedes nothing; ours supersedes it, or it is forgotten, too |
//! | theirs | theirs supersedes ours | both stay, theirs supersedes |
//! | both | both stay | both stay, and neither supersedes the other |
//!
//! A superseded entry stays, marked. Superseding is a new version of the superseding entry, so the history shows the decision.

use super::entries::{EntryMerger, LocalEntry};
use super::incoming::subject_of;
use super::merged::{ContradictionKind, Side};
use super::open::ContradictedKind;
use super::options::EntryPolicy;
use crate::context::alike::normal_text;
use crate::entries::put::{VersionToWrite, put};
use crate::entries::{content_of, unpacked};
use crate::limits::LINKS_MAX;
use crate::space::marks::Mark;
use crate::{Entry, MemoryError, MemoryId};

/// Why two entries contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairConflict {
    Subject,
    Superseding,
}

impl PairConflict {
    fn thing(self) -> ContradictedKind {
        match self {
            Self::Subject => ContradictedKind::Subject,
            Self::Superseding => ContradictedKind::Superseding,
        }
    }
}

/// The entry of the other side, by its id there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) conflict: PairConflict,
    pub(super) theirs: MemoryId,
    pub(super) ours: MemoryId,
}

impl Pair {
    /// The stored form of the pair.
    fn stored(&self) -> String {
        format!("{} {}", self.theirs, self.ours)
    }

    pub(super) fn from_stored(conflict: PairConflict, text: &str) -> Option<Self> {
        let (theirs, ours) = text.split_once(' ')?;
        Some(Self { conflict, theirs: theirs.parse().ok()?, ours: ours.parse().ok()? })
    }
}

impl EntryMerger<'_, '_> {
    /// The entries that an incoming entry contradicts.
    pub(super) fn conflicts(
        &self,
        theirs: &MemoryId,
        now: &Entry,
        is_new: bool,
    ) -> Result<Vec<Pair>, MemoryError> {
        let pair = |conflict, ours: &MemoryId| Pair { conflict, theirs: theirs.clone(), ours: ours.clone() };
        let mut pairs = Vec::new();
        for ours in self.superseded_and_changed(now)? {
            pairs.push(pair(PairConflict::Superseding, &ours));
        }
        // Both sides may have added an entry about the same subject.
        if let Some(subject) = subject_of(now).filter(|_| is_new) {
            let said = self.ours.subjects.get(&subject).map_or(&[][..], Vec::as_slice);
            for (ours, text) in said {
                if !now.supersedes.contains(ours) && normal_text(text) != normal_text(&now.text) {
                    pairs.push(pair(PairConflict::Subject, ours));
                }
            }
        }
        Ok(pairs)
    }

    /// Entries that the child superseded, and that were changed or forgotten here since.
    fn superseded_and_changed(&self, now: &Entry) -> Result<Vec<MemoryId>, MemoryError> {
        let mut found = Vec::new();
        let Some(common) = &self.incoming.common else { return Ok(found) };
        for superseded in &now.supersedes {
            // Entries that only the child has cannot be changed by others.
            let of_child = self.incoming.entries.iter().find(|entry| entry.id == *superseded);
            if of_child.is_some_and(|entry| entry.base.is_none()) {
                continue;
            }
            let as_it_was = self.here(superseded)?.is_some_and(|here| {
                let branch = self.writer.arena().branches.number(&here.entry.branch);
                branch.is_some_and(|branch| common.sees(branch, here.entry.seq))
            });
            if !as_it_was {
                found.push(superseded.clone());
            }
        }
        Ok(found)
    }

    /// The pairs that earlier merges listed and that are not settled yet.
    pub(super) fn reopen_pairs(&mut self) -> Result<(), MemoryError> {
        for pair in &self.incoming.pairs {
            // An entry that changed since raises the contradiction again by itself.
            if !self.decisions.has(pair.conflict.thing(), &pair.stored()) {
                self.dispute(pair)?;
            }
        }
        Ok(())
    }

    /// Both entries exist here: the policy decides, or the contradiction is listed.
    pub(super) fn dispute(&mut self, pair: &Pair) -> Result<(), MemoryError> {
        let id = self.joins.get(&pair.theirs).unwrap_or(&pair.theirs).clone();
        let (theirs, ours) = (self.here(&id)?, self.here(&pair.ours)?);
        let Some(theirs) = theirs.filter(|theirs| disagree(pair, theirs, ours.as_ref())) else {
            self.decisions.note(pair.conflict.thing(), &pair.stored(), true);
            return Ok(());
        };
        let kept = match (pair.conflict, self.policy) {
            (_, None) | (PairConflict::Subject, Some(EntryPolicy::Both)) => Side::Both,
            (PairConflict::Superseding, Some(EntryPolicy::Theirs)) => Side::Theirs,
            (PairConflict::Subject, Some(EntryPolicy::Theirs)) => {
                self.replaces(&theirs, &pair.ours, true)?;
                Side::Theirs
            }
            (PairConflict::Superseding, Some(EntryPolicy::Both)) => {
                self.replaces(&theirs, &pair.ours, false)?;
                Side::Both
            }
            (conflict, Some(EntryPolicy::Ours)) => {
                if conflict == PairConflict::Superseding {
                    self.replaces(&theirs, &pair.ours, false)?;
                }
                match &ours {
                    Some(ours) => self.replaces(ours, &id, true)?,
                    None => {
                        self.writer.mark(theirs.current.entity, Mark::Forgotten)?;
                        self.merged.forgotten += 1;
                    }
                }
                Side::Ours
            }
        };
        self.decisions.note(pair.conflict.thing(), &pair.stored(), self.policy.is_some());
        let (kind, what) = match (pair.conflict, subject_of(&theirs.entry)) {
            (PairConflict::Subject, Some((name, subject))) => {
                (ContradictionKind::SameSubject, format!("{name}: {subject}"))
            }
            (PairConflict::Subject, None) => (ContradictionKind::SameSubject, pair.ours.to_string()),
            (PairConflict::Superseding, _) => (ContradictionKind::SupersedesChanged, pair.ours.to_string()),
        };
        let text = ours.map_or(String::new(), |ours| ours.entry.text);
        self.merged.contradict(kind, &what, &text, &theirs.entry.text, kept);
        Ok(())
    }

    /// Writes a new version of an entry that supersedes another one, or no longer does.
    fn replaces(&mut self, who: &LocalEntry, whom: &MemoryId, replaces: bool) -> Result<(), MemoryError> {
        let mut content = content_of(who.entry.clone());
        content.supersedes.retain(|id| id != whom);
        if replaces {
            content.supersedes.push(whom.clone());
            // The newest ones are most likely still current.
            let over = content.supersedes.len().saturating_sub(LINKS_MAX);
            content.supersedes.drain(..over);
        }
        let vector = unpacked(self.writer, who.current.row, self.model)?;
        let new = VersionToWrite {
            id: &who.entry.id,
            entity: Some(who.current.entity),
            version: who.current.version + 1,
            count: who.entry.count,
            content: &content,
            vector: vector.as_deref().map(|vector| (self.model, vector)),
        };
        put(self.writer, new)?;
        self.merged.updated += 1;
        Ok(())
    }
}

/// Whether there is still a contradiction.
fn disagree(pair: &Pair, theirs: &LocalEntry, ours: Option<&LocalEntry>) -> bool {
    match (pair.conflict, ours) {
        (PairConflict::Superseding, _) => theirs.entry.supersedes.contains(&pair.ours),
        (PairConflict::Subject, None) => false,
        (PairConflict::Subject, Some(ours)) => {
            subject_of(&theirs.entry) == subject_of(&ours.entry)
                && normal_text(&theirs.entry.text) != normal_text(&ours.entry.text)
                && !theirs.entry.supersedes.contains(&ours.entry.id)
                && !ours.entry.supersedes.contains(&theirs.entry.id)
        }
    }
}
