//! Merges entries: each is added, joined, updated, forgotten, or listed as a contradiction.

use std::collections::HashMap;

use super::incoming::{IncomingChanges, IncomingEntry, ParentEntries, realm_of};
use super::merged::{ContradictionKind, MergeReport, Side};
use super::open::{ContradictedKind, Decisions};
use super::options::{EntryPolicy, MergeOptions};
use crate::context::alike::normal_text;
use crate::embed::ModelId;
use crate::entries::put::{VersionToWrite, put};
use crate::entries::{by_key, content_of, fetch, remember_key, twin, unpacked};
use crate::limits::LINKS_MAX;
use crate::space::load::integer;
use crate::space::marks::Mark;
use crate::space::writer::{Current, Writer};
use crate::{Entry, MemoryError, MemoryId, NewEntry};

/// The context of merging entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeContext<'a> {
    pub(super) model: &'a ModelId,
    /// In the order of the incoming entries.
    pub(super) vectors: Option<&'a [Vec<f32>]>,
    pub(super) ours: &'a ParentEntries,
    pub(super) options: MergeOptions,
}

pub(super) fn bring(
    writer: &mut Writer<'_>,
    incoming: &IncomingChanges,
    with: MergeContext<'_>,
    merged: &mut MergeReport,
    decisions: &mut Decisions,
) -> Result<Vec<(MemoryId, MemoryId)>, MemoryError> {
    let MergeContext { model, vectors, ours, options } = with;
    let mut merger = EntryMerger {
        writer,
        incoming,
        model,
        ours,
        policy: options.entries,
        merged,
        decisions,
        joins: incoming.joins.clone(),
        joined: Vec::new(),
    };
    for (at, entry) in incoming.entries.iter().enumerate() {
        merger.one(entry, vectors.map(|vectors| vectors[at].as_slice()))?;
    }
    merger.reopen_pairs()?;
    Ok(merger.joined)
}

pub(super) struct EntryMerger<'a, 'w> {
    pub(super) writer: &'a mut Writer<'w>,
    pub(super) incoming: &'a IncomingChanges,
    pub(super) model: &'a ModelId,
    pub(super) ours: &'a ParentEntries,
    pub(super) policy: Option<EntryPolicy>,
    pub(super) merged: &'a mut MergeReport,
    pub(super) decisions: &'a mut Decisions,
    /// Ids of their entries that have another id here: from earlier merges and this one.
    pub(super) joins: HashMap<MemoryId, MemoryId>,
    joined: Vec<(MemoryId, MemoryId)>,
}

/// The parent's version of an entry.
pub(super) struct LocalEntry {
    pub(super) current: Current,
    pub(super) entry: Entry,
}

impl EntryMerger<'_, '_> {
    fn one(&mut self, theirs: &IncomingEntry, vector: Option<&[f32]>) -> Result<(), MemoryError> {
        let id = self.joins.get(&theirs.id).unwrap_or(&theirs.id).clone();
        let here = self.here(&id)?;
        if theirs.reopened {
            return self.reopen(theirs, &id, here, vector);
        }
        match (&theirs.now, &theirs.base, here) {
            (None, _, None) => Ok(()),
            (None, None, Some(_)) => Ok(()),
            (None, Some(base), Some(here)) => self.forget(theirs, &id, base, here),
            (Some(now), base, Some(here)) if same(now, &here.entry) => {
                self.decisions.note(ContradictedKind::Entry, theirs.id.as_str(), true);
                self.merged.joined += u64::from(base.is_none());
                self.repeat(&here, if base.is_none() { 0 } else { theirs.repeated })
            }
            (Some(now), None, None) => self.add(theirs, now, vector),
            (Some(now), None, Some(here)) => self.contest(theirs, &id, Some(now), Some(here), vector),
            // The child only counted repetitions of it.
            (Some(now), Some(base), here) if same(now, base) => match here {
                Some(here) => self.repeat(&here, theirs.repeated),
                None => Ok(()),
            },
            (Some(now), Some(_), None) => self.contest(theirs, &id, Some(now), None, vector),
            (Some(now), Some(base), Some(here)) => {
                if same(base, &here.entry) {
                    self.repeat(&here, theirs.repeated)?;
                    return self.update(theirs, now, &here, vector);
                }
                self.contest(theirs, &id, Some(now), Some(here), vector)
            }
        }
    }

    pub(super) fn here(&self, id: &MemoryId) -> Result<Option<LocalEntry>, MemoryError> {
        let Some(current) = self.writer.find(id)? else { return Ok(None) };
        let found = fetch(self.writer.connection(), current.row)?;
        Ok(found.map(|found| LocalEntry { current, entry: found.entry }))
    }

    fn forget(
        &mut self,
        theirs: &IncomingEntry,
        id: &MemoryId,
        base: &Entry,
        here: LocalEntry,
    ) -> Result<(), MemoryError> {
        if !same(base, &here.entry) {
            return self.contest(theirs, id, None, Some(here), None);
        }
        self.writer.mark(here.current.entity, Mark::Forgotten)?;
        self.merged.forgotten += 1;
        Ok(())
    }

    /// A contradiction that an earlier merge listed, and whose entry the child has not changed since.
    fn reopen(
        &mut self,
        theirs: &IncomingEntry,
        id: &MemoryId,
        here: Option<LocalEntry>,
        vector: Option<&[f32]>,
    ) -> Result<(), MemoryError> {
        let agree = match (&theirs.now, &here) {
            (Some(now), Some(here)) => same(now, &here.entry),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if agree {
            self.decisions.note(ContradictedKind::Entry, theirs.id.as_str(), true);
            return Ok(());
        }
        self.contest(theirs, id, theirs.now.as_ref(), here, vector)
    }

    /// Both sides changed an entry differently: the policy decides, or it is listed.
    fn contest(
        &mut self,
        theirs: &IncomingEntry,
        id: &MemoryId,
        now: Option<&Entry>,
        here: Option<LocalEntry>,
        vector: Option<&[f32]>,
    ) -> Result<(), MemoryError> {
        let kind = match (&here, now) {
            (Some(_), Some(_)) => ContradictionKind::BothChanged,
            (None, _) | (_, None) => ContradictionKind::ForgottenAndChanged,
        };
        let kept = match (self.policy, now, &here) {
            (None | Some(EntryPolicy::Ours), _, _) | (Some(EntryPolicy::Both), None, _) => Side::Ours,
            (Some(EntryPolicy::Theirs | EntryPolicy::Both), Some(now), None) => {
                if self.restore(theirs, id, now, vector)? { Side::Theirs } else { Side::Ours }
            }
            (Some(EntryPolicy::Theirs), Some(now), Some(here)) => {
                self.update(theirs, now, here, vector)?;
                Side::Theirs
            }
            (Some(EntryPolicy::Theirs), None, here) => {
                if let Some(here) = here {
                    self.writer.mark(here.current.entity, Mark::Forgotten)?;
                    self.merged.forgotten += 1;
                }
                Side::Theirs
            }
            (Some(EntryPolicy::Both), Some(now), Some(_)) => {
                self.add_separately(theirs, id, now, vector)?;
                Side::Both
            }
        };
        self.decisions.note(ContradictedKind::Entry, theirs.id.as_str(), self.policy.is_some());
        let text = |entry: Option<&Entry>| entry.map_or(String::new(), |entry| entry.text.clone());
        let ours = text(here.as_ref().map(|here| &here.entry));
        self.merged.contradict(kind, id.as_str(), &ours, &text(now), kept);
        Ok(())
    }

    /// Restores an entry that was forgotten here. Returns false if it was erased: no merge undoes that.
    fn restore(
        &mut self,
        theirs: &IncomingEntry,
        id: &MemoryId,
        now: &Entry,
        vector: Option<&[f32]>,
    ) -> Result<bool, MemoryError> {
        let entity = self.writer.entity(id)?;
        if let Some(entity) = entity
            && self.is_erased(entity)?
        {
            return Ok(false);
        }
        self.put(theirs, now, entity, now.version, now.count, vector)?;
        self.merged.updated += 1;
        Ok(true)
    }

    /// Adds their version as a separate entry that names the one it is another version of.
    fn add_separately(
        &mut self,
        theirs: &IncomingEntry,
        ours: &MemoryId,
        now: &Entry,
        vector: Option<&[f32]>,
    ) -> Result<(), MemoryError> {
        let mut content = self.content(now);
        if !content.links.contains(ours) {
            content.links.insert(0, ours.clone());
            content.links.truncate(LINKS_MAX);
        }
        let kept = self.vector_of(theirs, vector.is_none())?;
        let vector = vector.or(kept.as_deref()).map(|vector| (self.model, vector));
        let id = MemoryId::generate();
        let new =
            VersionToWrite { id: &id, entity: None, version: 1, count: now.count, content: &content, vector };
        put(self.writer, new)?;
        self.merged.added += 1;
        Ok(())
    }

    fn repeat(&mut self, here: &LocalEntry, times: u64) -> Result<(), MemoryError> {
        if times > 0 {
            self.writer.mark(here.current.entity, Mark::Repeated(times))?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        theirs: &IncomingEntry,
        now: &Entry,
        vector: Option<&[f32]>,
    ) -> Result<(), MemoryError> {
        if let Some(twin) = self.twin(theirs, now)? {
            let here = self.here(&twin)?;
            if let Some(here) = here {
                self.repeat(&here, now.count)?;
            }
            self.merged.joined += 1;
            self.joins.insert(theirs.id.clone(), twin.clone());
            self.joined.push((theirs.id.clone(), twin));
            return Ok(());
        }
        let entity = self.writer.entity(&theirs.id)?;
        if let Some(entity) = entity
            && self.is_erased(entity)?
        {
            // Entries that were erased for legal reasons stay erased.
            return Ok(());
        }
        let conflicts = self.conflicts(&theirs.id, now, true)?;
        let seq = self.put(theirs, now, entity, now.version, now.count, vector)?;
        self.keep_keys(theirs, seq)?;
        self.merged.added += 1;
        conflicts.iter().try_for_each(|pair| self.dispute(pair))
    }

    fn update(
        &mut self,
        theirs: &IncomingEntry,
        now: &Entry,
        here: &LocalEntry,
        vector: Option<&[f32]>,
    ) -> Result<(), MemoryError> {
        let conflicts = self.conflicts(&theirs.id, now, false)?;
        let version = here.current.version + 1;
        self.put(theirs, now, Some(here.current.entity), version, here.entry.count, vector)?;
        self.merged.updated += 1;
        conflicts.iter().try_for_each(|pair| self.dispute(pair))
    }

    fn put(
        &mut self,
        theirs: &IncomingEntry,
        now: &Entry,
        entity: Option<u32>,
        version: u64,
        count: u64,
        vector: Option<&[f32]>,
    ) -> Result<u64, MemoryError> {
        let id = self.joins.get(&theirs.id).unwrap_or(&theirs.id).clone();
        let content = self.content(now);
        let kept = self.vector_of(theirs, vector.is_none())?;
        let vector = vector.or(kept.as_deref()).map(|vector| (self.model, vector));
        put(self.writer, VersionToWrite { id: &id, entity, version, count, content: &content, vector })
            .map(|placed| placed.seq)
    }

    /// Its content, with the ids of other entries translated to those used here.
    fn content(&self, now: &Entry) -> NewEntry {
        let mut content = content_of(now.clone());
        for list in [&mut content.supersedes, &mut content.links] {
            for link in list.iter_mut() {
                if let Some(ours) = self.joins.get(link) {
                    *link = ours.clone();
                }
            }
        }
        content
    }

    /// An unchanged text keeps its vector, so that an expensive embedding is not computed again.
    fn vector_of(&mut self, theirs: &IncomingEntry, wanted: bool) -> Result<Option<Vec<f32>>, MemoryError> {
        match theirs.row.filter(|_| wanted) {
            Some(row) => unpacked(self.writer, row, self.model),
            None => Ok(None),
        }
    }

    /// An entry here that is the same: by key, by text, or by normalised text.
    fn twin(&self, theirs: &IncomingEntry, now: &Entry) -> Result<Option<MemoryId>, MemoryError> {
        for key in &theirs.keys {
            if let Some(known) = by_key(self.writer, key)?
                && self.writer.find(&known.id)?.is_some()
            {
                return Ok(Some(known.id));
            }
        }
        let normal = self.ours.texts.get(&(realm_of(now), normal_text(&now.text)));
        let exact = twin(self.writer, &now.text)?;
        for id in normal.into_iter().cloned().chain(exact) {
            let Some(here) = self.here(&id)? else { continue };
            let same_text = normal_text(&here.entry.text) == normal_text(&now.text);
            // Their other fields must be equal as well: the same words about March and about May are two facts.
            let same_rest = here.entry.metadata == now.metadata
                && here.entry.session == now.session
                && (here.entry.valid_from_ms, here.entry.valid_to_ms) == (now.valid_from_ms, now.valid_to_ms);
            if id != theirs.id && same_text && same_rest && realm_of(&here.entry) == realm_of(now) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    fn is_erased(&self, entity: u32) -> Result<bool, MemoryError> {
        let mut statement =
            self.writer.connection().prepare_cached("SELECT 1 FROM erased WHERE entity = ?")?;
        Ok(statement.exists([entity])?)
    }

    fn keep_keys(&mut self, theirs: &IncomingEntry, seq: u64) -> Result<(), MemoryError> {
        let Some(entity) = self.writer.entity(&theirs.id)? else { return Ok(()) };
        for key in &theirs.keys {
            if by_key(self.writer, key)?.is_none() {
                remember_key(self.writer, key, seq, entity)?;
            }
        }
        Ok(())
    }
}

/// Records which of their entries existed here, for later merges.
pub(super) fn remember_joins(
    writer: &Writer<'_>,
    seq: u64,
    joined: &[(MemoryId, MemoryId)],
) -> Result<(), MemoryError> {
    for (theirs, ours) in joined {
        writer
            .connection()
            .prepare_cached("INSERT INTO merge_joins (seq, branch, theirs, ours) VALUES (?, ?, ?, ?)")?
            .execute((integer(seq), writer.branch(), theirs.as_str(), ours.as_str()))?;
    }
    Ok(())
}

/// Whether two versions have the same content, regardless of branch and time.
fn same(a: &Entry, b: &Entry) -> bool {
    a.text == b.text
        && a.kind == b.kind
        && a.metadata == b.metadata
        && (a.importance - b.importance).abs() < 1e-6
        && (&a.source, &a.session, &a.user, &a.agent) == (&b.source, &b.session, &b.user, &b.agent)
        && (a.at_ms, a.valid_from_ms, a.valid_to_ms) == (b.at_ms, b.valid_from_ms, b.valid_to_ms)
        && (&a.supersedes, &a.artifacts, &a.links) == (&b.supersedes, &b.artifacts, &b.links)
}
