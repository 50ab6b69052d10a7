//! What a child has that its parent does not know: read once, of one moment, before anything is written.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::open::{About, Listed, Thing, listed};
use super::pairs::{Pair, Quarrel};
use super::{MERGE_ROWS_MAX, merged_points};
use crate::artifacts::carry::{self as artifact_carry, CarriedArtifact};
use crate::context::alike::normal_text;
use crate::entries::{embed_now, fetch};
use crate::kv::{KvItem, carry as kv_carry};
use crate::newest::bounded;
use crate::remember::RUN_KEY;
use crate::skills::carry::{self as skill_carry, CarriedOutcome, CarriedSkill};
use crate::space::arena::Row;
use crate::space::chain::{BranchNo, Chain};
use crate::space::lens::Lens;
use crate::space::load::number;
use crate::space::marks::Mark;
use crate::view::Cut;
use crate::{
    Condition, Entry, Filter, MemoryError, MemoryId, MemoryPoint, MemoryRef, Op, Reader, SpaceId, View,
};

/// The parent's entries whose texts are compared with the child's, newest first; equal texts are found among all.
const TWINS_LOOKED_AT: usize = 20_000;

/// Subjects that are looked up in the parent.
const SUBJECTS_MAX: usize = 256;

/// What the parent knows of the child's space.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Up to where its branches were brought already.
    points: Vec<MemoryPoint>,
    /// Entries of theirs that are here under another id.
    joins: HashMap<MemoryId, MemoryId>,
    /// Contradictions that earlier merges listed and nobody decided.
    listed: Vec<Listed>,
}

impl Known {
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

/// An entry that the child changed.
#[derive(Clone, Debug)]
pub(super) struct IncomingEntry {
    pub(super) id: MemoryId,
    /// `None`: forgotten.
    pub(super) now: Option<Entry>,
    /// What both knew.
    pub(super) base: Option<Entry>,
    /// How often it happened since.
    pub(super) repeated: u64,
    /// Its row, for its vector, where the parent is of the same space.
    pub(super) row: Option<Row>,
    pub(super) keys: Vec<String>,
    /// It is here because an earlier merge listed it, and for nothing that is new.
    pub(super) reopened: bool,
}

/// A name whose meaning the child changed.
#[derive(Clone, Debug)]
pub(super) struct IncomingName<T> {
    pub(super) name: String,
    pub(super) now: Option<T>,
    pub(super) base: Option<T>,
    /// It is here because an earlier merge listed it, and for nothing that is new.
    pub(super) reopened: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) space: SpaceId,
    /// Up to where the child was read.
    pub(super) upto: Option<MemoryPoint>,
    /// What both know; only within one space.
    pub(super) common: Option<Chain>,
    /// Merges from this space that the parent had seen.
    pub(super) merges: u64,
    pub(super) joins: HashMap<MemoryId, MemoryId>,
    pub(super) entries: Vec<IncomingEntry>,
    pub(super) kv: Vec<IncomingName<KvItem>>,
    pub(super) skills: Vec<IncomingName<CarriedSkill>>,
    pub(super) outcomes: Vec<CarriedOutcome>,
    pub(super) artifacts: Vec<IncomingName<CarriedArtifact>>,
    /// Entries that earlier merges brought and that did not agree with others here.
    pub(super) pairs: Vec<Pair>,
    /// What earlier merges listed of this child's past, with their numbers.
    pub(super) open: BTreeMap<About, Vec<u64>>,
}

/// What earlier stretches had already: each thing is compared once, as it stands at the end.
#[derive(Debug, Default)]
struct Seen {
    entities: HashSet<u32>,
    keys: HashSet<String>,
    skills: HashSet<String>,
    artifacts: HashSet<String>,
}

/// A stretch of a branch that is new to the parent.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    branch: BranchNo,
    from: u64,
    upto: u64,
}

impl Incoming {
    pub(super) async fn of(child: &View, parent: &View, known: Known) -> Result<Self, MemoryError> {
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

    /// Whether all there is was listed before.
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

    /// Vectors for all that may be written, where that takes no time. In the order of `entries`.
    pub(super) async fn vectors(&self, view: &View) -> Option<Vec<Vec<f32>>> {
        let text = |entry: &IncomingEntry| entry.now.as_ref().map_or(String::new(), |now| now.text.clone());
        let texts: Vec<String> = self.entries.iter().map(text).collect();
        let bytes = texts.iter().map(String::len).sum();
        let embedder = Arc::clone(&view.shared.embedder);
        embed_now(embedder, bytes, move |each| texts.iter().for_each(|text| each(text))).await
    }

    /// What the parent says about the child's subjects, and which of its texts the child may have as well.
    pub(super) async fn subjects(&self, parent: &View) -> Result<Ours, MemoryError> {
        let new =
            self.entries.iter().filter(|entry| entry.base.is_none()).filter_map(|entry| entry.now.as_ref());
        let wanted: BTreeSet<(&'static str, String)> = new.clone().filter_map(subject_of).collect();
        let ids: BTreeSet<MemoryId> = self.entries.iter().map(|entry| entry.id.clone()).collect();
        let any_new = new.count() > 0;
        let common = self.common.clone();
        parent.read(move |reader| ours(reader, wanted, &ids, any_new, common.as_ref())).await
    }
}

/// What the parent has that the child's new entries are compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct Ours {
    /// By subject: id and text.
    pub(super) subjects: HashMap<(&'static str, String), Vec<(MemoryId, String)>>,
    /// By realm and normalised text.
    pub(super) texts: HashMap<(Realm, String), MemoryId>,
}

/// What must be equal for two entries to be joined: kind, user, agent.
pub(super) type Realm = (String, Option<String>, Option<String>);

pub(super) fn realm_of(entry: &Entry) -> Realm {
    (entry.kind.clone(), entry.user.clone(), entry.agent.clone())
}

/// What an entry declares to speak of.
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
) -> Result<Ours, MemoryError> {
    let mut ours = Ours::default();
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
        // What both know was there when the child wrote; it was told then that the text is not new.
        let is_new = |row: &Row| {
            let place = reader.lens.arena.place(*row);
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
    cut: &Cut,
    parent: Option<&MemoryRef>,
    known: Known,
) -> Result<Incoming, MemoryError> {
    let arena = &reader.lens.arena;
    let child = reader.chain();
    let mut chains: Vec<Chain> =
        known.points.iter().map(|point| Chain::at(&arena.branches, Some(point), arena.head)).collect();
    chains.extend(parent.map(|parent| Chain::of(&arena.branches, parent, arena.head)));
    let common = child.common(&chains);
    let stretches: Vec<Stretch> = child
        .links()
        .map(|(branch, upto)| Stretch { branch, from: common.end(branch), upto })
        .filter(|stretch| stretch.from <= stretch.upto)
        .collect();
    let upto = match (cut, arena.branches.number(&of.branch)) {
        (Cut::Point(point), _) => point.clone(),
        (Cut::Now | Cut::Seq(_) | Cut::Time { .. }, Some(no)) => {
            // No further than it wrote, so that whoever forks from here on has come from this point.
            let head = Some(reader.space.head(no)).filter(|head| *head > 0).unwrap_or(u64::MAX);
            Some(MemoryPoint { branch: of.branch.clone(), seq: child.cut().min(head) })
        }
        (Cut::Now | Cut::Seq(_) | Cut::Time { .. }, None) => {
            let bounded = |from: &MemoryPoint| MemoryPoint {
                branch: from.branch.clone(),
                seq: from.seq.min(child.cut()),
            };
            of.from.as_ref().map(bounded)
        }
    };
    let mut incoming = Incoming {
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
    for Listed { about, seq, point } in known.listed {
        // Another child's quarrel is not this one's to settle.
        if arena.branches.number(&point.branch).is_some_and(|branch| child.sees(branch, point.seq)) {
            incoming.open.entry(about).or_default().push(seq);
        }
    }
    let base = Lens { arena: Arc::clone(arena), chain: common };
    let mut seen = Seen::default();
    for stretch in stretches {
        read_stretch(reader, stretch, &base, parent.is_some(), &mut seen, &mut incoming)?;
        if incoming.weight() > MERGE_ROWS_MAX {
            return Err(MemoryError::Full { what: "so much to one merge", max: MERGE_ROWS_MAX as u64 });
        }
    }
    reopen(reader, &base, parent.is_some(), &seen, &mut incoming)?;
    // In the order the child wrote them, so that what supersedes comes after what it supersedes.
    incoming.entries.sort_by_key(|entry| entry.now.as_ref().map_or(u64::MAX, |now| now.seq));
    Ok(incoming)
}

fn read_stretch(
    reader: &Reader<'_>,
    stretch: Stretch,
    base: &Lens,
    same_space: bool,
    seen: &mut Seen,
    incoming: &mut Incoming,
) -> Result<(), MemoryError> {
    let (connection, Stretch { branch, from, upto }) = (reader.connection(), stretch);
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

/// Brings up again what earlier merges listed, unless the child changed it since, which brings it up by itself.
fn reopen(
    reader: &Reader<'_>,
    base: &Lens,
    same_space: bool,
    seen: &Seen,
    incoming: &mut Incoming,
) -> Result<(), MemoryError> {
    let (connection, child) = (reader.connection(), reader.chain());
    let abouts: Vec<About> = incoming.open.keys().cloned().collect();
    for (thing, what) in abouts {
        match thing {
            Thing::Entry => {
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
            Thing::Key if !seen.keys.contains(&what) => {
                let now = kv_carry::held_on(connection, child, &what, reader.now_ms())?;
                incoming.kv.push(IncomingName { name: what, now, base: None, reopened: true });
            }
            Thing::Skill if !seen.skills.contains(&what) => {
                let now = skill_carry::skill_on(connection, child, &what)?;
                incoming.skills.push(IncomingName { name: what, now, base: None, reopened: true });
            }
            Thing::Artifact if !seen.artifacts.contains(&what) => {
                let now = artifact_carry::artifact_on(connection, child, &what)?;
                incoming.artifacts.push(IncomingName { name: what, now, base: None, reopened: true });
            }
            Thing::Key | Thing::Skill | Thing::Artifact => {}
            Thing::Subject => incoming.pairs.extend(Pair::from_stored(Quarrel::Subject, &what)),
            Thing::Superseding => incoming.pairs.extend(Pair::from_stored(Quarrel::Superseding, &what)),
        }
    }
    Ok(())
}

/// Entries that have a version or a mark in a stretch.
fn entities(reader: &Reader<'_>, stretch: Stretch) -> Result<Vec<u32>, MemoryError> {
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
    base: &Lens,
    same_space: bool,
) -> Result<Option<IncomingEntry>, MemoryError> {
    let row = reader.lens.row_of(entity);
    let now = row.map_or(Ok(None), |row| reader.entry(row))?;
    let known =
        base.row_of(entity).map_or(Ok(None), |row| fetch(reader.connection(), row))?.map(|found| found.entry);
    let Some(id) = now.as_ref().or(known.as_ref()).map(|entry| entry.id.clone()) else {
        // Written and forgotten since: nobody else ever saw it.
        return Ok(None);
    };
    let seen = reader.lens.arena.marks.seen(entity, reader.chain());
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
