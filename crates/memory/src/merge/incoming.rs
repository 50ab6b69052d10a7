//! The changes of a child that its parent does not have: read once, at one moment, before anything is written.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::open::{ContradictedKind, ContradictedObject, OpenContradiction, listed};
use super::pairs::{Pair, PairConflict};
use crate::artifacts::carry::{self as artifact_carry, CarriedArtifact};
use crate::context::alike::normal_text;
use crate::entries::{embed_now, fetch};
use crate::kv::{KvItem, carry as kv_carry};
use crate::newest::bounded;
use crate::remember::RUN_KEY;
use crate::skills::carry::{self as skill_carry, CarriedOutcome, CarriedSkill};
use crate::space::arena::Row;
use crate::space::chain::{BranchNo, Chain};
use crate::space::load::{damaged, number, unsigned};
use crate::space::marks::Mark;
use crate::space::visibility::Visibility;
use crate::view::ViewPosition;
use crate::{
    Condition, Entry, Filter, MemoryError, MemoryId, MemoryPoint, MemoryRef, Op, Reader, SpaceId, View,
};

/// Rows of a child that one merge copies: they are one transaction, and other writers wait for it.
pub const MERGE_ROWS_MAX: usize = 100_000;

/// The parent's entries whose normalised texts are compared with the child's, newest first; exactly equal texts are found among all.
const TWINS_LOOKED_AT: usize = 20_000;

/// Subjects that are looked up in the parent.
const SUBJECTS_MAX: usize = 256;

/// What the parent knows about the child's space.
#[derive(Clone, Debug)]
pub(super) struct ParentKnowledge {
    /// The points up to which its branches were merged.
    points: Vec<MemoryPoint>,
    /// Their entries that have another id here.
    joins: HashMap<MemoryId, MemoryId>,
    /// Contradictions that earlier merges listed and no merge has decided.
    listed: Vec<OpenContradiction>,
}

impl ParentKnowledge {
    pub(super) async fn of(parent: &View, space: &SpaceId) -> Result<Self, MemoryError> {
        let space = space.clone();
        parent
            .read(move |reader| {
                let points = merged_points(reader, &space)?;
                let sql = "SELECT theirs, ours FROM merge_joins WHERE sees(branch, seq)";
                let mut statement = reader.connection().prepare_cached(sql)?;
                let mut rows = statement.query(())?;
                let mut joins = HashMap::new();
                while let Some(row) = rows.next()? {
                    let (theirs, ours): (String, String) = (row.get(0)?, row.get(1)?);
                    if let (Ok(theirs), Ok(ours)) = (theirs.parse(), ours.parse()) {
                        joins.insert(theirs, ours);
                    }
                }
                Ok(Self { points, joins, listed: listed(reader, &space)? })
            })
            .await
    }
}

/// The points up to which other branches of a space were merged into this one.
fn merged_points(reader: &Reader<'_>, space: &SpaceId) -> Result<Vec<MemoryPoint>, MemoryError> {
    let sql = "SELECT from_branch, upto FROM merges WHERE from_space = ? AND sees(branch, seq)";
    let mut statement = reader.connection().prepare_cached(sql)?;
    let mut rows = statement.query([space.as_str()])?;
    let mut points = Vec::new();
    while let Some(row) = rows.next()? {
        let branch: String = row.get(0)?;
        let branch = branch.parse().map_err(|error: burrow_model::IdError| {
            damaged(format!("the row of a merge has an invalid branch: {error}"))
        })?;
        points.push(MemoryPoint { branch, seq: unsigned(row, 1)? });
    }
    Ok(points)
}

/// An entry that the child changed.
#[derive(Clone, Debug)]
pub(super) struct IncomingEntry {
    pub(super) id: MemoryId,
    /// `None`: forgotten.
    pub(super) now: Option<Entry>,
    /// The version that both sides knew.
    pub(super) base: Option<Entry>,
    /// How often it was repeated since.
    pub(super) repeated: u64,
    /// Its row, for its vector, if the parent is in the same space.
    pub(super) row: Option<Row>,
    pub(super) keys: Vec<String>,
    /// It was only included because an earlier merge listed it, not because it changed.
    pub(super) reopened: bool,
}

/// A name whose value the child changed.
#[derive(Clone, Debug)]
pub(super) struct IncomingName<T> {
    pub(super) name: String,
    pub(super) now: Option<T>,
    pub(super) base: Option<T>,
    /// It was only included because an earlier merge listed it, not because it changed.
    pub(super) reopened: bool,
}

#[derive(Clone, Debug)]
pub(super) struct IncomingChanges {
    pub(super) space: SpaceId,
    /// The point up to which the child was read.
    pub(super) upto: Option<MemoryPoint>,
    /// What both sides know; only within one space.
    pub(super) common: Option<Chain>,
    /// Merges from this space that the parent had seen.
    pub(super) merges: u64,
    pub(super) joins: HashMap<MemoryId, MemoryId>,
    pub(super) entries: Vec<IncomingEntry>,
    pub(super) kv: Vec<IncomingName<KvItem>>,
    pub(super) skills: Vec<IncomingName<CarriedSkill>>,
    pub(super) outcomes: Vec<CarriedOutcome>,
    pub(super) artifacts: Vec<IncomingName<CarriedArtifact>>,
    /// Entries from earlier merges that contradict others here.
    pub(super) pairs: Vec<Pair>,
    /// The contradictions that earlier merges listed about this child's past, with their numbers.
    pub(super) open: BTreeMap<ContradictedObject, Vec<u64>>,
}

/// What earlier stretches contained: each object is compared once, in its last state.
#[derive(Debug, Default)]
struct SeenObjects {
    entities: HashSet<u32>,
    keys: HashSet<String>,
    skills: HashSet<String>,
    artifacts: HashSet<String>,
}

/// A part of a branch that is new to the parent.
#[derive(Clone, Copy, Debug)]
struct BranchRange {
    branch: BranchNo,
    from: u64,
    upto: u64,
}

impl IncomingChanges {
    pub(super) async fn of(child: &View, parent: &View, known: ParentKnowledge) -> Result<Self, MemoryError> {
        let of = child.of().clone();
        let parent = (parent.of().space == of.space).then(|| parent.of().clone());
        let cut = child.cut.clone();
        child.read(move |reader| read(reader, &of, &cut, parent.as_ref(), known)).await
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.kv.is_empty()
            && self.skills.is_empty()
            && self.outcomes.is_empty()
            && self.artifacts.is_empty()
            && self.pairs.is_empty()
    }

    /// Whether it contains only contradictions that were listed before.
    pub(super) fn is_only_reopened(&self) -> bool {
        self.entries.iter().all(|entry| entry.reopened)
            && self.kv.iter().all(|key| key.reopened)
            && self.skills.iter().all(|skill| skill.reopened)
            && self.artifacts.iter().all(|artifact| artifact.reopened)
            && self.outcomes.is_empty()
    }

    pub(super) fn weight(&self) -> usize {
        self.entries.len()
            + self.kv.len()
            + self.skills.len()
            + self.outcomes.len()
            + self.artifacts.len()
            + self.pairs.len()
            + 1
    }

    /// Vectors for all texts that may be written, if the embedder is immediate. In the order of `entries`.
    pub(super) async fn vectors(&self, view: &View) -> Option<Vec<Vec<f32>>> {
        let text = |entry: &IncomingEntry| entry.now.as_ref().map_or(String::new(), |now| now.text.clone());
        let texts: Vec<String> = self.entries.iter().map(text).collect();
        let bytes = texts.iter().map(String::len).sum();
        let embedder = Arc::clone(&view.shared.embedder);
        embed_now(embedder, bytes, move |each| texts.iter().for_each(|text| each(text))).await
    }

    /// The parent's entries about the child's subjects, and its texts that the child may have as well.
    pub(super) async fn subjects(&self, parent: &View) -> Result<ParentEntries, MemoryError> {
        let new =
            self.entries.iter().filter(|entry| entry.base.is_none()).filter_map(|entry| entry.now.as_ref());
        let wanted: BTreeSet<(&'static str, String)> = new.clone().filter_map(subject_of).collect();
        let ids: BTreeSet<MemoryId> = self.entries.iter().map(|entry| entry.id.clone()).collect();
        let any_new = new.count() > 0;
        let common = self.common.clone();
        parent.read(move |reader| ours(reader, wanted, &ids, any_new, common.as_ref())).await
    }
}

/// The parent's entries that the child's new entries are compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct ParentEntries {
    /// Ids and texts by subject.
    pub(super) subjects: HashMap<(&'static str, String), Vec<(MemoryId, String)>>,
    /// Ids by realm and normalised text.
    pub(super) texts: HashMap<(Realm, String), MemoryId>,
}

/// Must be equal for two entries to be joined: kind, user, agent.
pub(super) type Realm = (String, Option<String>, Option<String>);

pub(super) fn realm_of(entry: &Entry) -> Realm {
    (entry.kind.clone(), entry.user.clone(), entry.agent.clone())
}

/// The subject that an entry declares.
pub(super) fn subject_of(entry: &Entry) -> Option<(&'static str, String)> {
    ["subject", "key"].into_iter().find_map(|name| match entry.metadata.get(name)? {
        Value::String(text) => Some((name, text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    })
}

fn ours(
    reader: &Reader<'_>,
    wanted: BTreeSet<(&'static str, String)>,
    theirs: &BTreeSet<MemoryId>,
    any_new: bool,
    common: Option<&Chain>,
) -> Result<ParentEntries, MemoryError> {
    let mut ours = ParentEntries::default();
    for (name, subject) in wanted.into_iter().take(SUBJECTS_MAX) {
        let condition =
            Condition { path: name.to_owned(), op: Op::Eq, value: Value::String(subject.clone()) };
        let filter = Filter { metadata: vec![condition], include_cold: true, ..Filter::all() };
        let sieve = reader.filter(&filter)?;
        let rows: Vec<Row> = reader.rows().filter(|row| sieve.admits(*row)).take(16).collect();
        for entry in reader.entries(&rows)?.into_iter().filter(|entry| !theirs.contains(&entry.id)) {
            ours.subjects.entry((name, subject.clone())).or_default().push((entry.id, entry.text));
        }
    }
    if any_new {
        // Entries that both sides know existed when the child wrote, and `add` reported the duplicate then.
        let is_new = |row: &Row| {
            let place = reader.visibility.arena.place(*row);
            place.is_some_and(|(chunk, slot)| {
                common.is_none_or(|common| !common.sees(chunk.branch[slot], chunk.seq[slot]))
            })
        };
        let rows: Vec<Row> = reader.rows().filter(is_new).take(TWINS_LOOKED_AT).collect();
        for entry in reader.entries(&rows)?.into_iter().filter(|entry| !theirs.contains(&entry.id)) {
            ours.texts.insert((realm_of(&entry), normal_text(&entry.text)), entry.id);
        }
    }
    Ok(ours)
}

fn read(
    reader: &Reader<'_>,
    of: &MemoryRef,
    cut: &ViewPosition,
    parent: Option<&MemoryRef>,
    known: ParentKnowledge,
) -> Result<IncomingChanges, MemoryError> {
    let arena = &reader.visibility.arena;
    let child = reader.chain();
    let mut chains: Vec<Chain> =
        known.points.iter().map(|point| Chain::at(&arena.branches, Some(point), arena.head)).collect();
    chains.extend(parent.map(|parent| Chain::of(&arena.branches, parent, arena.head)));
    let common = child.common(&chains);
    let stretches: Vec<BranchRange> = child
        .links()
        .map(|(branch, upto)| BranchRange { branch, from: common.end(branch), upto })
        .filter(|stretch| stretch.from <= stretch.upto)
        .collect();
    let upto = match (cut, arena.branches.number(&of.branch)) {
        (ViewPosition::Point(point), _) => point.clone(),
        (ViewPosition::Now | ViewPosition::Seq(_) | ViewPosition::Time { .. }, Some(no)) => {
            // Only up to the child's last write, so that every fork from here on descends from this point.
            let head = Some(reader.space.head(no)).filter(|head| *head > 0).unwrap_or(u64::MAX);
            Some(MemoryPoint { branch: of.branch.clone(), seq: child.cut().min(head) })
        }
        (ViewPosition::Now | ViewPosition::Seq(_) | ViewPosition::Time { .. }, None) => {
            let bounded = |from: &MemoryPoint| MemoryPoint {
                branch: from.branch.clone(),
                seq: from.seq.min(child.cut()),
            };
            of.from.as_ref().map(bounded)
        }
    };
    let mut incoming = IncomingChanges {
        space: of.space.clone(),
        upto,
        common: parent.map(|_| common.clone()),
        merges: known.points.len() as u64,
        joins: known.joins,
        entries: Vec::new(),
        kv: Vec::new(),
        skills: Vec::new(),
        outcomes: Vec::new(),
        artifacts: Vec::new(),
        pairs: Vec::new(),
        open: BTreeMap::new(),
    };
    for OpenContradiction { about, seq, point } in known.listed {
        // Contradictions of another child are not decided by this merge.
        if arena.branches.number(&point.branch).is_some_and(|branch| child.sees(branch, point.seq)) {
            incoming.open.entry(about).or_default().push(seq);
        }
    }
    let base = Visibility { arena: Arc::clone(arena), chain: common };
    let mut seen = SeenObjects::default();
    for stretch in stretches {
        read_stretch(reader, stretch, &base, parent.is_some(), &mut seen, &mut incoming)?;
        if incoming.weight() > MERGE_ROWS_MAX {
            return Err(MemoryError::Full { what: "more rows in one merge", max: MERGE_ROWS_MAX as u64 });
        }
    }
    reopen(reader, &base, parent.is_some(), &seen, &mut incoming)?;
    // In the order of the child's log, so that superseding entries follow those that they supersede.
    incoming.entries.sort_by_key(|entry| entry.now.as_ref().map_or(u64::MAX, |now| now.seq));
    Ok(incoming)
}

fn read_stretch(
    reader: &Reader<'_>,
    stretch: BranchRange,
    base: &Visibility,
    same_space: bool,
    seen: &mut SeenObjects,
    incoming: &mut IncomingChanges,
) -> Result<(), MemoryError> {
    let (connection, BranchRange { branch, from, upto }) = (reader.connection(), stretch);
    for entity in entities(reader, stretch)? {
        if seen.entities.insert(entity) {
            incoming.entries.extend(read_entry(reader, entity, base, same_space)?);
        }
    }
    let (child, common) = (reader.chain(), &base.chain);
    for key in kv_carry::changed(connection, branch, from, upto)? {
        if !seen.keys.insert(key.clone()) {
            continue;
        }
        let now = kv_carry::held_on(connection, child, &key, reader.now_ms())?;
        let base = kv_carry::held_on(connection, common, &key, reader.now_ms())?;
        incoming.kv.push(IncomingName { name: key, now, base, reopened: false });
    }
    for name in skill_carry::changed(connection, branch, from, upto)? {
        if !seen.skills.insert(name.clone()) {
            continue;
        }
        let now = skill_carry::skill_on(connection, child, &name)?;
        let base = skill_carry::skill_on(connection, common, &name)?;
        incoming.skills.push(IncomingName { name, now, base, reopened: false });
    }
    incoming.outcomes.extend(skill_carry::outcomes(connection, child, branch, from, upto)?);
    for name in artifact_carry::changed(connection, branch, from, upto)? {
        if !seen.artifacts.insert(name.clone()) {
            continue;
        }
        let now = artifact_carry::artifact_on(connection, child, &name)?;
        let base = artifact_carry::artifact_on(connection, common, &name)?;
        incoming.artifacts.push(IncomingName { name, now, base, reopened: false });
    }
    Ok(())
}

/// Includes the contradictions that earlier merges listed, except those that the child's changes raise again anyway.
fn reopen(
    reader: &Reader<'_>,
    base: &Visibility,
    same_space: bool,
    seen: &SeenObjects,
    incoming: &mut IncomingChanges,
) -> Result<(), MemoryError> {
    let (connection, child) = (reader.connection(), reader.chain());
    let abouts: Vec<ContradictedObject> = incoming.open.keys().cloned().collect();
    for (thing, what) in abouts {
        match thing {
            ContradictedKind::Entry => {
                let Ok(id) = what.parse::<MemoryId>() else { continue };
                let Some(entity) = reader.entity(&id)?.filter(|entity| !seen.entities.contains(entity))
                else {
                    continue;
                };
                let entry = read_entry(reader, entity, base, same_space)?;
                let gone = || IncomingEntry {
                    id,
                    now: None,
                    base: None,
                    repeated: 0,
                    row: None,
                    keys: Vec::new(),
                    reopened: true,
                };
                incoming
                    .entries
                    .push(entry.map_or_else(gone, |entry| IncomingEntry { reopened: true, ..entry }));
            }
            ContradictedKind::Key if !seen.keys.contains(&what) => {
                let now = kv_carry::held_on(connection, child, &what, reader.now_ms())?;
                incoming.kv.push(IncomingName { name: what, now, base: None, reopened: true });
            }
            ContradictedKind::Skill if !seen.skills.contains(&what) => {
                let now = skill_carry::skill_on(connection, child, &what)?;
                incoming.skills.push(IncomingName { name: what, now, base: None, reopened: true });
            }
            ContradictedKind::Artifact if !seen.artifacts.contains(&what) => {
                let now = artifact_carry::artifact_on(connection, child, &what)?;
                incoming.artifacts.push(IncomingName { name: what, now, base: None, reopened: true });
            }
            ContradictedKind::Key | ContradictedKind::Skill | ContradictedKind::Artifact => {}
            ContradictedKind::Subject => {
                incoming.pairs.extend(Pair::from_stored(PairConflict::Subject, &what))
            }
            ContradictedKind::Superseding => {
                incoming.pairs.extend(Pair::from_stored(PairConflict::Superseding, &what))
            }
        }
    }
    Ok(())
}

/// Entries that have a version or a mark in a stretch.
fn entities(reader: &Reader<'_>, stretch: BranchRange) -> Result<Vec<u32>, MemoryError> {
    let mut found = BTreeSet::new();
    for sql in [
        "SELECT entity FROM entries WHERE seq BETWEEN ?1 AND ?2 AND branch = ?3 AND erased = 0",
        "SELECT entity FROM marks WHERE seq BETWEEN ?1 AND ?2 AND branch = ?3",
    ] {
        let mut statement = reader.connection().prepare_cached(sql)?;
        let mut rows = statement.query((bounded(stretch.from), bounded(stretch.upto), stretch.branch))?;
        while let Some(row) = rows.next()? {
            found.insert(number(row, 0)?);
        }
    }
    Ok(found.into_iter().collect())
}

fn read_entry(
    reader: &Reader<'_>,
    entity: u32,
    base: &Visibility,
    same_space: bool,
) -> Result<Option<IncomingEntry>, MemoryError> {
    let row = reader.visibility.row_of(entity);
    let now = row.map_or(Ok(None), |row| reader.entry(row))?;
    let known =
        base.row_of(entity).map_or(Ok(None), |row| fetch(reader.connection(), row))?.map(|found| found.entry);
    let Some(id) = now.as_ref().or(known.as_ref()).map(|entry| entry.id.clone()) else {
        // It was written and forgotten since the fork, so no other branch ever saw it.
        return Ok(None);
    };
    let seen = reader.visibility.arena.marks.seen(entity, reader.chain());
    let repeated = seen
        .iter()
        .filter(|marked| !base.chain.sees(marked.branch, marked.seq))
        .map(|marked| if let Mark::Repeated(times) = marked.mark { times } else { 0 })
        .sum();
    let mut keys = Vec::new();
    if known.is_none() {
        let sql = "SELECT DISTINCT key FROM keys WHERE entity = ?1 AND sees(branch, seq)
                     AND substr(key, 1, length(?2)) <> ?2";
        let mut statement = reader.connection().prepare_cached(sql)?;
        keys = statement.query_map((entity, RUN_KEY), |row| row.get(0))?.collect::<Result<_, _>>()?;
    }
    let row = row.filter(|_| same_space);
    Ok(Some(IncomingEntry { id, now, base: known, repeated, row, keys, reopened: false }))
}
