//! Two entries that do not agree, each of them an entry of its own: of one subject, or one that replaces what was changed here.
//!
//! | | of one subject | theirs replaces what was changed or forgotten here |
//! |---|---|---|
//! | listed, open | both stay | both stay, theirs as the truth |
//! | ours | ours replaces theirs | theirs replaces nothing; ours replaces it, or it is forgotten, too |
//! | theirs | theirs replaces ours | both stay, theirs as the truth |
//! | both | both stay | both stay, and neither replaces the other |
//!
//! What is replaced stays where it is, marked: to replace is a new version of who replaces, so that history shows who decided.

use super::entries::{Bringer, Here};
use super::incoming::subject_of;
use super::open::Thing;
use super::{ContradictionKind, EntryPolicy, Side};
use crate::context::alike::normal_text;
use crate::entries::put::{Put, put};
use crate::entries::{content_of, unpacked};
use crate::limits::LINKS_MAX;
use crate::space::marks::Mark;
use crate::{Entry, MemoryError, MemoryId};

/// What two entries quarrel about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quarrel {
    Subject,
    Superseding,
}

impl Quarrel {
    fn thing(self) -> Thing {
        match self {
            Self::Subject => Thing::Subject,
            Self::Superseding => Thing::Superseding,
        }
    }
}

/// Theirs by the id it has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) quarrel: Quarrel,
    pub(super) theirs: MemoryId,
    pub(super) ours: MemoryId,
}

impl Pair {
    /// As a contradiction is stored.
    fn stored(&self) -> String {
        format!("{} {}", self.theirs, self.ours)
    }

    pub(super) fn from_stored(quarrel: Quarrel, text: &str) -> Option<Self> {
        let (theirs, ours) = text.split_once(' ')?;
        Some(Self { quarrel, theirs: theirs.parse().ok()?, ours: ours.parse().ok()? })
    }
}

impl Bringer<'_, '_> {
    /// With whom an entry that is about to be brought will quarrel.
    pub(super) fn quarrels(
        &self,
        theirs: &MemoryId,
        now: &Entry,
        is_new: bool,
    ) -> Result<Vec<Pair>, MemoryError> {
        let pair = |quarrel, ours: &MemoryId| Pair { quarrel, theirs: theirs.clone(), ours: ours.clone() };
        let mut pairs = Vec::new();
        for ours in self.superseded_and_changed(now)? {
            pairs.push(pair(Quarrel::Superseding, &ours));
        }
        // Both sides may have learned something about the same subject.
        if let Some(subject) = subject_of(now).filter(|_| is_new) {
            let said = self.ours.subjects.get(&subject).map_or(&[][..], Vec::as_slice);
            for (ours, text) in said {
                if !now.supersedes.contains(ours) && normal_text(text) != normal_text(&now.text) {
                    pairs.push(pair(Quarrel::Subject, ours));
                }
            }
        }
        Ok(pairs)
    }

    /// What the child replaced as the truth and has changed here since, or was forgotten.
    fn superseded_and_changed(&self, now: &Entry) -> Result<Vec<MemoryId>, MemoryError> {
        let mut found = Vec::new();
        let Some(common) = &self.incoming.common else { return Ok(found) };
        for superseded in &now.supersedes {
            // The child's own entries are nobody else's to change.
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

    /// Those that earlier merges listed, as far as they are not settled by now.
    pub(super) fn reopen_pairs(&mut self) -> Result<(), MemoryError> {
        for pair in &self.incoming.pairs {
            // An entry that changed once more has brought it up by itself.
            if !self.decisions.has(pair.quarrel.thing(), &pair.stored()) {
                self.dispute(pair)?;
            }
        }
        Ok(())
    }

    /// Both are here: the policy decides, or it is listed.
    pub(super) fn dispute(&mut self, pair: &Pair) -> Result<(), MemoryError> {
        let id = self.joins.get(&pair.theirs).unwrap_or(&pair.theirs).clone();
        let (theirs, ours) = (self.here(&id)?, self.here(&pair.ours)?);
        let Some(theirs) = theirs.filter(|theirs| disagree(pair, theirs, ours.as_ref())) else {
            self.decisions.note(pair.quarrel.thing(), &pair.stored(), true);
            return Ok(());
        };
        let kept = match (pair.quarrel, self.policy) {
            (_, None) | (Quarrel::Subject, Some(EntryPolicy::Both)) => Side::Both,
            (Quarrel::Superseding, Some(EntryPolicy::Theirs)) => Side::Theirs,
            (Quarrel::Subject, Some(EntryPolicy::Theirs)) => {
                self.replaces(&theirs, &pair.ours, true)?;
                Side::Theirs
            }
            (Quarrel::Superseding, Some(EntryPolicy::Both)) => {
                self.replaces(&theirs, &pair.ours, false)?;
                Side::Both
            }
            (quarrel, Some(EntryPolicy::Ours)) => {
                if quarrel == Quarrel::Superseding {
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
        self.decisions.note(pair.quarrel.thing(), &pair.stored(), self.policy.is_some());
        let (kind, what) = match (pair.quarrel, subject_of(&theirs.entry)) {
            (Quarrel::Subject, Some((name, subject))) => {
                (ContradictionKind::SameSubject, format!("{name}: {subject}"))
            }
            (Quarrel::Subject, None) => (ContradictionKind::SameSubject, pair.ours.to_string()),
            (Quarrel::Superseding, _) => (ContradictionKind::SupersedesChanged, pair.ours.to_string()),
        };
        let text = ours.map_or(String::new(), |ours| ours.entry.text);
        self.merged.contradict(kind, &what, &text, &theirs.entry.text, kept);
        Ok(())
    }

    /// A new version of an entry, which replaces another as the truth, or does so no longer.
    fn replaces(&mut self, who: &Here, whom: &MemoryId, replaces: bool) -> Result<(), MemoryError> {
        let mut content = content_of(who.entry.clone());
        content.supersedes.retain(|id| id != whom);
        if replaces {
            content.supersedes.push(whom.clone());
            // The newest are those that may still be taken for the truth.
            let over = content.supersedes.len().saturating_sub(LINKS_MAX);
            content.supersedes.drain(..over);
        }
        let vector = unpacked(self.writer, who.current.row, self.model)?;
        let new = Put {
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

/// Whether there is anything left to decide.
fn disagree(pair: &Pair, theirs: &Here, ours: Option<&Here>) -> bool {
    match (pair.quarrel, ours) {
        (Quarrel::Superseding, _) => theirs.entry.supersedes.contains(&pair.ours),
        (Quarrel::Subject, None) => false,
        (Quarrel::Subject, Some(ours)) => {
            subject_of(&theirs.entry) == subject_of(&ours.entry)
                && normal_text(&theirs.entry.text) != normal_text(&ours.entry.text)
                && !theirs.entry.supersedes.contains(&ours.entry.id)
                && !ours.entry.supersedes.contains(&theirs.entry.id)
        }
    }
}
